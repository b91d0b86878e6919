//! CONNECTION_CLOSE, both kinds.

use bytes::Bytes;
use quinn_proto::{ApplicationClose, VarInt};

use super::fields::{data, truncated, varint};
use super::frame_type;
use crate::error::{ConnectionClose, TransportError, TransportErrorCode};
use crate::wire::buf::{Counter, Sink, varint_size};

/// CONNECTION_CLOSE (RFC 9000 section 19.19).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Close {
    /// Type 0x1c.
    Connection(ConnectionClose),
    /// Type 0x1d.
    Application(ApplicationClose),
}

impl Close {
    pub(super) fn decode_connection(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self::Connection(ConnectionClose {
            code: TransportErrorCode::from_u64(varint(buf)?),
            frame_type: varint(buf)?,
            reason: data(buf)?,
        }))
    }

    pub(super) fn decode_application(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self::Application(ApplicationClose {
            error_code: VarInt::from_u64(varint(buf)?).map_err(|_| truncated())?,
            reason: data(buf)?,
        }))
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        let reason = match self {
            Self::Connection(close) => {
                out.varint(close.code.to_u64());
                out.varint(close.frame_type);
                &close.reason
            }
            Self::Application(close) => {
                out.varint(close.error_code.into_inner());
                &close.reason
            }
        };
        out.varint(reason.len() as u64);
        out.bytes(reason);
    }

    /// Shortens the reason so that the whole frame fits into `size` bytes, without cutting a
    /// character. 26 bytes always suffice.
    #[must_use]
    pub fn shortened_to(mut self, size: usize) -> Self {
        let mut whole = Counter(varint_size(frame_type::CONNECTION_CLOSE));
        self.write(&mut whole);
        let excess = whole.0.saturating_sub(size);
        let reason = match &mut self {
            Self::Connection(close) => &mut close.reason,
            Self::Application(close) => &mut close.reason,
        };
        let mut length = reason.len().saturating_sub(excess);
        while length > 0 && reason.get(length).is_some_and(|byte| byte & 0xc0 == 0x80) {
            length -= 1;
        }
        reason.truncate(length);
        self
    }
}
