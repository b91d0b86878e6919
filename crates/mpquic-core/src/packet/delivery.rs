//! For each frame sent: who hears whether it arrived.

use quinn_proto::{Dir, StreamId};

use crate::ids::PathId;

/// A frame under way. It names the owner and just enough for the owner to act on loss: owners send
/// the *current* state again, not the old bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// ACK or PATH_ACK: the largest number acknowledged, to forget ranges the peer knows we got.
    Ack {
        path: PathId,
        largest: u64,
    },
    /// CRYPTO bytes of the packet's own encryption level.
    Crypto {
        offset: u64,
        length: u32,
    },
    /// STREAM bytes.
    Stream {
        id: StreamId,
        offset: u64,
        length: u32,
        fin: bool,
    },
    ResetStream(StreamId),
    ResetStreamAt {
        id: StreamId,
        reliable_size: u64,
    },
    StopSending(StreamId),
    MaxData,
    MaxStreamData(StreamId),
    MaxStreams(Dir),
    DataBlocked,
    StreamDataBlocked(StreamId),
    StreamsBlocked(Dir),
    HandshakeDone,
    NewToken,
    /// ACK_FREQUENCY with this sequence number.
    AckFrequency(u64),
    /// NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID.
    NewConnectionId {
        path: PathId,
        sequence: u64,
    },
    /// RETIRE_CONNECTION_ID or PATH_RETIRE_CONNECTION_ID.
    RetireConnectionId {
        path: PathId,
        sequence: u64,
    },
    PathAbandon(PathId),
    PathStatus {
        path: PathId,
        sequence: u64,
    },
    MaxPathId(PathId),
    PathsBlocked(PathId),
    PathCidsBlocked {
        path: PathId,
        next_sequence: u64,
    },
    /// DATAGRAM: never sent again.
    Datagram,
    /// PING, PATH_CHALLENGE, PATH_RESPONSE, PADDING of a probe: no owner.
    Nothing,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its packet was acknowledged.
    Acked,
    /// Its packet was declared lost, or its path is suspect: send the content again if it still
    /// matters. May be followed by `Acked` (the loss was spurious) or by another `Lost`.
    Lost,
}

/// How far a statement that the peer must hear has come: the owner keeps one beside each value it
/// announces and sends the value again when it is back at `Queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// To be written.
    Queued,
    /// In a packet under way.
    Sent,
    /// The peer has it; later fates of other copies change nothing.
    Delivered,
}

impl Progress {
    /// Takes the fate of one copy.
    pub(crate) fn on_fate(&mut self, fate: Fate) {
        *self = match (*self, fate) {
            (Self::Delivered, _) | (_, Fate::Acked) => Self::Delivered,
            (_, Fate::Lost) => Self::Queued,
        };
    }

    /// True if it is to be written.
    pub(crate) fn is_queued(self) -> bool {
        self == Self::Queued
    }
}
