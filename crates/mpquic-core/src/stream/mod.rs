//! Streams: both halves, flow control, and what is sent next.

use bytes::Bytes;
use quinn_proto::{Chunk, ClosedStream, Dir, FinishError, StreamId, VarInt, WriteError};
use thiserror::Error;

pub(crate) mod assembler;
pub(crate) mod crypto_stream;
pub(crate) mod datagrams;
pub(crate) mod flow;
pub(crate) mod queue;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod send_buffer;
pub(crate) mod set;

/// Something happened to streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent {
    /// The peer opened at least one stream of this kind.
    Opened {
        /// Which kind.
        dir: Dir,
    },
    /// A stream has data, its end or a reset to read.
    Readable {
        /// Which.
        id: StreamId,
    },
    /// A blocked write may go on.
    Writable {
        /// Which.
        id: StreamId,
    },
    /// All bytes and the end of a stream were acknowledged.
    Finished {
        /// Which.
        id: StreamId,
    },
    /// The peer asks us to stop sending.
    Stopped {
        /// Which.
        id: StreamId,
        /// The peer's application error code.
        error_code: VarInt,
    },
    /// More streams of this kind may be opened, after `open` had failed.
    Available {
        /// Which kind.
        dir: Dir,
    },
}

/// Why a stream gave no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReadStreamError {
    /// Nothing to read now; a [`StreamEvent::Readable`] will follow.
    #[error("blocked")]
    Blocked,
    /// The peer reset the stream.
    #[error("reset by the peer: code {0}")]
    Reset(VarInt),
    /// The stream does not exist, was stopped, or was read to its end.
    #[error("closed stream")]
    ClosedStream,
    /// An ordered read after an unordered one.
    #[error("ordered read after an unordered one")]
    IllegalOrderedRead,
}

/// What a vectored write took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Bytes taken.
    pub bytes: usize,
    /// Chunks taken whole; the first chunk not taken whole was advanced.
    pub chunks: usize,
}

/// The sending half of a stream, lent by a connection.
pub struct SendStream<'a> {
    streams: &'a mut set::Streams,
    id: StreamId,
}

#[allow(clippy::todo, unused_variables, reason = "skeleton")]
impl SendStream<'_> {
    /// Takes as much of `data` as flow control and the send buffer allow. `Blocked` if nothing.
    pub fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        todo!()
    }
    /// Takes whole chunks without copying.
    pub fn write_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Written, WriteError> {
        todo!()
    }
    /// The code the peer stopped the stream with, if it did.
    pub fn stopped(&self) -> Result<Option<VarInt>, ClosedStream> {
        todo!()
    }
    /// Ends the stream after the bytes written so far.
    pub fn finish(&mut self) -> Result<(), FinishError> {
        todo!()
    }
    /// Drops unsent bytes and tells the peer.
    pub fn reset(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        todo!()
    }
    /// Larger is more urgent; 0 is the default.
    pub fn set_priority(&mut self, priority: i32) -> Result<(), ClosedStream> {
        todo!()
    }
    /// The priority.
    pub fn priority(&self) -> Result<i32, ClosedStream> {
        todo!()
    }
}

/// The receiving half of a stream, lent by a connection.
pub struct RecvStream<'a> {
    streams: &'a mut set::Streams,
    id: StreamId,
}

#[allow(clippy::todo, unused_variables, reason = "skeleton")]
impl RecvStream<'_> {
    /// The next bytes, at most `max_length`, without copying; `None` at the end of the stream.
    pub fn read_chunk(
        &mut self,
        max_length: usize,
        ordered: bool,
    ) -> Result<Option<Chunk>, ReadStreamError> {
        todo!()
    }
    /// Asks the peer to stop sending and drops what arrives.
    pub fn stop(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        todo!()
    }
}
