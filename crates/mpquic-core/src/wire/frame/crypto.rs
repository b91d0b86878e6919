//! CRYPTO and NEW_TOKEN.

use bytes::Bytes;

use super::fields::{data, varint};
use super::frame_type;
use crate::error::{Fault, TransportError};
use crate::wire::buf::{Counter, Sink, VARINT_MAX};

/// CRYPTO (RFC 9000 section 19.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crypto {
    /// Offset in the handshake stream of this encryption level.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// The header of a CRYPTO frame, before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CryptoHeader {
    /// Offset in the handshake stream of the encryption level.
    pub offset: u64,
    /// Bytes that follow.
    pub length: u64,
}

impl CryptoHeader {
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
        out.varint(frame_type::CRYPTO);
        self.write_fields(out);
    }

    /// Writes what follows the type.
    #[inline]
    fn write_fields(&self, out: &mut impl Sink) {
        out.varint(self.offset);
        out.varint(self.length);
    }
}

impl Crypto {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        let offset = varint(buf)?;
        let data = data(buf)?;
        // RFC 9000 section 19.6
        if offset + data.len() as u64 > VARINT_MAX {
            return Err(Fault::OffsetTooLarge.into());
        }
        Ok(Self { offset, data })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        let header = CryptoHeader {
            offset: self.offset,
            length: self.data.len() as u64,
        };
        header.write_fields(out);
        out.bytes(&self.data);
    }
}

/// The token of a NEW_TOKEN frame.
pub(super) fn decode_new_token(buf: &mut Bytes) -> Result<Bytes, TransportError> {
    let token = data(buf)?;
    // RFC 9000 section 19.7
    if token.is_empty() {
        return Err(Fault::EmptyToken.into());
    }
    Ok(token)
}
