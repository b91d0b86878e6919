//! CONNECTION_CLOSE, both kinds.

use bytes::Bytes;

use super::{Close, Frame, data, varint};
use crate::error::{ConnectionClose, TransportError, TransportErrorCode};
use crate::wire::buf::Sink;

impl Close {
    pub(super) fn decode_connection(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self::Connection(ConnectionClose {
            code: TransportErrorCode::from_u64(varint(buf)?),
            frame_type: varint(buf)?,
            reason: data(buf)?,
        }))
    }

    pub(super) fn decode_application(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self::Application(varint(buf)?, data(buf)?))
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        let reason = match self {
            Self::Connection(close) => {
                out.varint(close.code.to_u64());
                out.varint(close.frame_type);
                &close.reason
            }
            Self::Application(code, reason) => {
                out.varint(*code);
                reason
            }
        };
        out.varint(reason.len() as u64);
        out.bytes(reason);
    }

    /// The same close with as much of the reason as lets the whole frame fit into `size` bytes;
    /// characters are not cut apart. 26 bytes always suffice.
    #[must_use]
    pub fn shortened_to(mut self, size: usize) -> Self {
        let excess = Frame::ConnectionClose(self.clone())
            .size()
            .saturating_sub(size);
        let reason = match &mut self {
            Self::Connection(close) => &mut close.reason,
            Self::Application(_, reason) => reason,
        };
        let mut length = reason.len().saturating_sub(excess);
        while length > 0 && reason.get(length).is_some_and(|byte| byte & 0xc0 == 0x80) {
            length -= 1;
        }
        reason.truncate(length);
        self
    }
}
