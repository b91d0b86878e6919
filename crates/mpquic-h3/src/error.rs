//! Translates errors of a connection and of its streams into the types of `h3`.

use std::fmt;
use std::io;
use std::sync::Arc;

use h3::error::Code;
use h3::quic::{ConnectionErrorIncoming, StreamErrorIncoming};
use mpquic_tokio::{Connection, ConnectionError, ReadError, VarInt, WriteError};

/// A request or a response that breaks a rule of RFC 9114 section 4.1.2. Its stream ended with
/// `H3_MESSAGE_ERROR`.
///
/// Found in `h3`'s `StreamError::Undefined`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedMessage(&'static str);

impl MalformedMessage {
    pub(crate) fn new(reason: &'static str) -> Self {
        Self(reason)
    }
}

impl fmt::Display for MalformedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message is malformed: {}", self.0)
    }
}

impl std::error::Error for MalformedMessage {}

pub(crate) fn of_connection(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => ConnectionErrorIncoming::ApplicationClose {
            error_code: close.error_code.into_inner(),
        },
        ConnectionError::TimedOut | ConnectionError::HandshakeTimedOut => {
            ConnectionErrorIncoming::Timeout
        }
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

pub(crate) fn of_lost_connection(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming {
        connection_error: of_connection(error),
    }
}

pub(crate) fn of_read(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => terminated(code),
        ReadError::ConnectionLost(error) => of_lost_connection(error),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

pub(crate) fn of_write(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => terminated(code),
        WriteError::ConnectionLost(error) => of_lost_connection(error),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

/// Closes a connection whose peer broke the rules, and tells h3 of it.
pub(crate) fn closed(
    connection: &Connection,
    code: Code,
    reason: &'static str,
) -> ConnectionErrorIncoming {
    connection.close(self::code(code.value()), reason.as_bytes());
    let error = io::Error::new(io::ErrorKind::InvalidData, reason);
    ConnectionErrorIncoming::Undefined(Arc::new(error))
}

/// True if the stream ended, and not its connection.
pub(crate) fn is_of_stream(error: &StreamErrorIncoming) -> bool {
    !matches!(error, StreamErrorIncoming::ConnectionErrorIncoming { .. })
}

fn terminated(code: VarInt) -> StreamErrorIncoming {
    StreamErrorIncoming::StreamTerminated {
        error_code: code.into_inner(),
    }
}

/// A code as QUIC carries it. Larger codes do not exist.
pub(crate) fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
