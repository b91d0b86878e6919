//! PADDING, CRYPTO, NEW_TOKEN and DATAGRAM. PING and HANDSHAKE_DONE are nothing but their type.

use bytes::{Buf, Bytes};

use super::table::frame_type;
use super::{Crypto, data, truncated, varint};
use crate::error::TransportError;
use crate::wire::buf::{Counter, Sink, VARINT_MAX};

/// What precedes the bytes of a CRYPTO frame.
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
    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(frame_type::CRYPTO);
        out.varint(self.offset);
        out.varint(self.length);
    }
}

/// What precedes the bytes of a DATAGRAM frame.
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
    pub(super) fn write(&self, out: &mut impl Sink) {
        match self.length {
            Some(length) => {
                out.varint(frame_type::DATAGRAM_LENGTH);
                out.varint(length);
            }
            None => out.varint(frame_type::DATAGRAM),
        }
    }
}

/// Skips the zeros of a run of PADDING frames.
pub(super) fn skip_padding(buf: &mut Bytes) {
    let run = buf.iter().position(|&byte| byte != 0).unwrap_or(buf.len());
    buf.advance(run);
}

pub(super) fn decode_crypto(buf: &mut Bytes) -> Result<Crypto, TransportError> {
    let offset = varint(buf)?;
    let data = data(buf)?;
    // RFC 9000 section 19.6
    if offset + data.len() as u64 > VARINT_MAX {
        return Err(TransportError::frame_encoding("offset beyond 2^62 - 1"));
    }
    Ok(Crypto { offset, data })
}

pub(super) fn decode_new_token(buf: &mut Bytes) -> Result<Bytes, TransportError> {
    let token = data(buf)?;
    // RFC 9000 section 19.7
    if token.is_empty() {
        return Err(TransportError::frame_encoding("empty token"));
    }
    Ok(token)
}

pub(super) fn decode_datagram(buf: &mut Bytes, has_length: bool) -> Result<Bytes, TransportError> {
    if has_length {
        data(buf)
    } else {
        crate::wire::buf::take_bytes(buf, buf.len() as u64).ok_or_else(truncated)
    }
}
