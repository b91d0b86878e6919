//! A door to the reassembly of one stream.

use bytes::Bytes;
use quinn_proto::Chunk;

use crate::stream::assembler::Assembler;
use crate::stream::piece::Source;

/// Received bytes of one stream, put in order.
#[derive(Debug, Default)]
pub struct Reassembly(Assembler);

impl Reassembly {
    /// Stores bytes that came in a datagram of this size. With `gather`, short slices are copied
    /// together.
    pub fn insert(&mut self, offset: u64, data: Bytes, datagram: u32, gather: bool) {
        self.0.insert(offset, data, Source { datagram, gather });
    }

    /// The next bytes in order.
    pub fn read(&mut self, max_length: usize) -> Option<Chunk> {
        self.0.read(max_length)
    }

    /// Any bytes. Reads are unordered from then on.
    pub fn read_unordered(&mut self, max_length: usize) -> Option<Chunk> {
        self.0.read_unordered(max_length)
    }

    /// Copies what has waited since the last call.
    pub fn detach_waiting(&mut self) {
        self.0.detach_waiting();
    }

    /// Drops all bytes held.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Frees memory that is kept for reuse.
    pub fn trim(&mut self) {
        self.0.trim();
    }

    /// Bytes held.
    pub fn unread(&self) -> u64 {
        self.0.unread()
    }

    /// Bytes given to the reader.
    pub fn bytes_read(&self) -> u64 {
        self.0.bytes_read()
    }

    /// Offset of the first byte that an ordered reader has not read.
    pub fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// Pieces of bytes held beyond gaps.
    pub fn runs(&self) -> usize {
        self.0.runs()
    }

    /// True if a read would give bytes.
    pub fn is_readable(&self) -> bool {
        self.0.is_readable()
    }

    /// True if the reader was given every byte below `offset`.
    pub fn is_read_up_to(&self, offset: u64) -> bool {
        self.0.is_read_up_to(offset)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        self.0.memory()
    }
}
