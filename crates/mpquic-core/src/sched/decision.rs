//! The decisions that a scheduler can make.

use std::ops::Range;
use std::time::Instant;

use quinn_proto::StreamId;

use crate::ids::PathId;

/// The data that a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataSelection {
    /// Whatever is most urgent: control frames, DATAGRAMs, retransmissions, then streams by
    /// priority.
    Next,
    /// DATAGRAMs, the oldest first; [`QueueView::datagrams`](super::QueueView::datagrams) tells the
    /// waiting bytes. With [`Decision::Duplicate`], other paths carry the DATAGRAMs as well, and
    /// the peer's application gets each copy. (Copies with other selections contain stream bytes
    /// only: no application gets a DATAGRAM twice by surprise.)
    Datagram,
    /// DATAGRAMs behind this many bytes of older DATAGRAMs. Other paths carry the older DATAGRAMs:
    /// on a slower path, the later DATAGRAMs then arrive in their turn. They are not copied.
    DatagramsBehind(u64),
    /// This stream's next bytes.
    Stream(StreamId),
    /// This stream from an offset on, without bytes that are not buffered or already acknowledged.
    StreamAt {
        /// The stream.
        id: StreamId,
        /// First byte.
        offset: u64,
    },
    /// Bytes already sent once.
    Range {
        /// The stream.
        id: StreamId,
        /// Offsets within it.
        offsets: Range<u64>,
    },
}

/// A scheduler's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Send on one path.
    Send {
        /// Where.
        path: PathId,
        /// The data to send.
        data: DataSelection,
        /// Most bytes of datagrams before the next question; 0 means one datagram.
        max_bytes: u64,
        /// Given back with every event about the packets of this decision.
        tag: u64,
    },
    /// Sends one datagram on a path, and the same content on other paths, once their windows allow.
    Duplicate {
        /// The path of the original.
        path: PathId,
        /// The paths of the copies.
        copies: PathSet,
        /// The data to send.
        data: DataSelection,
        /// Given back with every event about the packets of this decision.
        tag: u64,
    },
    /// Send unacknowledged bytes again on another path, before they are lost.
    Reinject {
        /// Where.
        path: PathId,
        /// The stream.
        stream: StreamId,
        /// Offsets within it.
        offsets: Range<u64>,
        /// Given back with every event about the packets of this decision.
        tag: u64,
    },
    /// A path could send, but the scheduler waits for another one.
    ///
    /// If `on` is usable and has packets in flight, the wait ends with its next acknowledgement or
    /// probe timeout, or at an earlier `until`. Otherwise the wait ends at `until`, and at the
    /// latest one second after the first such wait in a row; without `until` the core ignores the
    /// wait.
    Wait {
        /// The path that is waited for.
        on: PathId,
        /// Ask again at this time, at the latest.
        until: Option<Instant>,
    },
    /// No path can send. Overridden without packets in flight on a usable path.
    Blocked,
}

impl Decision {
    /// Sends whatever is next on `path`, one datagram.
    pub fn send(path: PathId) -> Self {
        Self::send_up_to(path, 0)
    }

    /// Sends whatever is next on `path`, up to `max_bytes` of datagrams before asking again.
    pub fn send_up_to(path: PathId, max_bytes: u64) -> Self {
        Self::Send {
            path,
            data: DataSelection::Next,
            max_bytes,
            tag: 0,
        }
    }
}

/// A small set of paths.
pub type PathSet = smallvec::SmallVec<[PathId; 8]>;
