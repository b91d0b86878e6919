//! Events about streams for the application.

use quinn_proto::{Dir, StreamId, VarInt};

/// An event about streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
    /// A blocked write may be tried again.
    Writable {
        /// The stream.
        id: StreamId,
    },
    /// All bytes and the end of a stream were acknowledged.
    Finished {
        /// The stream.
        id: StreamId,
    },
    /// The peer acknowledged the reset of a stream (RFC 9000 section 3.1).
    ResetReceived {
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
    /// The deadline of a stream has passed, and the stream was reset
    /// ([`SendStream::set_deadline`](crate::SendStream::set_deadline)).
    Expired {
        /// The stream.
        id: StreamId,
    },
    /// After a failed attempt: the peer now allows more streams of this direction.
    Available {
        /// The direction.
        dir: Dir,
    },
}
