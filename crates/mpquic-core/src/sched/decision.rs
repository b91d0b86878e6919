//! The decisions that a scheduler can make.

use std::ops::Range;
use std::time::Instant;

use quinn_proto::StreamId;

use crate::ids::PathId;

/// The data that a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataSelection {
    /// Whatever is most urgent: control frames, DATAGRAMs, retransmissions, then streams by priority.
    Next,
    /// DATAGRAMs, the oldest first; [`QueueView::datagrams`](super::QueueView::datagrams) tells how
    /// much waits. With [`Decision::Duplicate`], other paths carry them as well, and the peer's
    /// application gets each copy. (Copies of anything else are of stream bytes only, so that nobody
    /// gets a DATAGRAM twice who does not expect it.)
    Datagram,
    /// DATAGRAMs behind so many bytes of older ones, which are left for other paths: what is sent now on a path
    /// that takes longer then arrives in its turn. Of these there are no copies.
    DatagramsBehind(u64),
    /// This stream's next bytes.
    Stream(StreamId),
    /// This stream from an offset; bytes that are not buffered or already acknowledged are left out.
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

/// What a scheduler decides.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Send on one path.
    Send {
        /// Where.
        path: PathId,
        /// What.
        data: DataSelection,
        /// At most this many bytes of datagrams before asking again; 0 means one datagram.
        max_bytes: u64,
        /// Given back with every event about the packets of this decision.
        tag: u64,
    },
    /// Send one datagram on a path, and the same content on other paths as soon as their windows
    /// allow.
    Duplicate {
        /// The path of the original.
        path: PathId,
        /// The paths of the copies.
        copies: PathSet,
        /// What.
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
    /// A path could send, but it is better to wait for another one.
    ///
    /// If `on` is usable and has packets in flight, the wait ends at its next acknowledgement or
    /// probe timeout, and at `until` if that is earlier. Otherwise it ends at `until`, and at the
    /// latest one second after the first such wait in a row; without `until` the core ignores the
    /// wait.
    Wait {
        /// The path that is waited for.
        on: PathId,
        /// Ask again at this time, at the latest.
        until: Option<Instant>,
    },
    /// No path can send. Overridden when nothing is in flight on any usable path.
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
