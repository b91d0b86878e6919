//! The errors of operations on streams.

use quinn_proto::VarInt;
use thiserror::Error;

/// Why nothing was read from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReadStreamError {
    /// No data to read now; a [`StreamEvent::Readable`](super::StreamEvent::Readable) will follow.
    #[error("blocked")]
    Blocked,
    /// The peer reset the stream.
    #[error("reset by the peer: code {0}")]
    Reset(VarInt),
    /// An unknown stream, or a stream after [`stop`](crate::RecvStream::stop) or its end.
    #[error("closed stream")]
    ClosedStream,
    /// An ordered read after an unordered one.
    #[error("ordered read after an unordered one")]
    IllegalOrderedRead,
}

/// Why a stream could not be reset after its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResetAtError {
    /// The peer does not support RESET_STREAM_AT.
    #[error("the peer does not support resetting a stream after its beginning")]
    UnsupportedByPeer,
    /// Fewer bytes were written, or an earlier reset delivers fewer bytes.
    #[error("no more than what was written can be delivered")]
    TooLong,
    /// The stream was delivered or stopped, or was already reset after this many bytes or fewer.
    #[error("closed stream")]
    ClosedStream,
}
