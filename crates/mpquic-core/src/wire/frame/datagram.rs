//! DATAGRAM (RFC 9221 section 4).

use bytes::Bytes;

use super::fields::data;
use super::frame_type;
use crate::error::TransportError;
use crate::wire::buf::{Counter, Sink};

/// The header of a DATAGRAM frame, before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Bytes that follow; `None` if they extend to the end of the packet.
    pub length: Option<u64>,
}

impl DatagramHeader {
    /// Bytes `encode` appends.
    pub fn size(&self) -> usize {
        let mut counter = Counter::default();
        self.write(&mut counter);
        counter.0
    }

    /// Appends the header; the bytes are to follow.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    #[inline]
    fn write(&self, out: &mut impl Sink) {
        match self.length {
            Some(length) => {
                out.varint(frame_type::DATAGRAM_LENGTH);
                out.varint(length);
            }
            None => out.varint(frame_type::DATAGRAM),
        }
    }
}

/// Without a length, the bytes extend to the end of the packet.
pub(super) fn decode(buf: &mut Bytes, has_length: bool) -> Result<Bytes, TransportError> {
    if has_length {
        data(buf)
    } else {
        Ok(std::mem::take(buf))
    }
}
