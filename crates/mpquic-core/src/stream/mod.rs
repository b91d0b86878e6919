//! Streams: both halves, flow control, and what is sent next.

use quinn_proto::{Dir, StreamId, VarInt};
use thiserror::Error;

mod application;
pub(crate) mod assembler;
pub(crate) mod crypto_stream;
pub(crate) mod datagrams;
mod egress;
pub(crate) mod flow;
mod ingress;
pub(crate) mod pending;
pub(crate) mod queue;
mod receive_window;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod send_buffer;
pub(crate) mod set;
pub(crate) mod table;
#[cfg(test)]
mod tests;

/// Something happened to streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent {
    /// The peer opened at least one stream of this direction.
    Opened {
        /// The direction.
        dir: Dir,
    },
    /// A stream has data, its end or a reset to read.
    Readable {
        /// The stream.
        id: StreamId,
    },
    /// A blocked write may go on.
    Writable {
        /// The stream.
        id: StreamId,
    },
    /// All bytes and the end of a stream were acknowledged.
    Finished {
        /// The stream.
        id: StreamId,
    },
    /// The peer asks us to stop sending.
    Stopped {
        /// The stream.
        id: StreamId,
        /// The peer's application error code.
        error_code: VarInt,
    },
    /// More streams of this direction may be opened, after an attempt to open one failed.
    Available {
        /// The direction.
        dir: Dir,
    },
}

/// Why nothing was read from a stream.
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

/// Why a stream could not be reset after its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResetAtError {
    /// The peer does not know RESET_STREAM_AT.
    #[error("the peer does not support resetting a stream after its beginning")]
    UnsupportedByPeer,
    /// Fewer bytes were written, or an earlier reset delivers fewer bytes.
    #[error("no more than what was written can be delivered")]
    TooLong,
    /// The stream was delivered or stopped, or was already reset after this many bytes or fewer.
    #[error("closed stream")]
    ClosedStream,
}

/// How much a vectored write accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Bytes accepted.
    pub bytes: usize,
    /// Chunks accepted whole. The first chunk that was not accepted whole keeps its unwritten rest.
    pub chunks: usize,
}

/// The sending half of a stream, borrowed from a connection.
pub struct SendStream<'a> {
    streams: &'a mut set::Streams,
    id: StreamId,
}

/// The receiving half of a stream, borrowed from a connection.
pub struct RecvStream<'a> {
    streams: &'a mut set::Streams,
    id: StreamId,
}
