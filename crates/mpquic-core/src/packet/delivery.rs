//! For each frame sent: who has to be told whether it arrived.

use quinn_proto::{Dir, StreamId};

use crate::ids::PathId;

/// A frame in flight. It says who owns the frame, and just enough for the owner to react to a loss:
/// owners send the *current* state again, not the old bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// PING, PATH_CHALLENGE, PATH_RESPONSE, PADDING of a probe: no owner.
    Nothing,
    /// DATAGRAM: never sent again.
    Datagram,
    /// ACK or PATH_ACK: the largest number acknowledged, to forget ranges the peer knows we got.
    Ack {
        path: PathId,
        largest: u64,
    },
    /// CRYPTO bytes of the packet's own encryption level.
    Crypto(CryptoDelivery),
    Handshake(HandshakeDelivery),
    Stream(StreamDelivery),
    Path(PathDelivery),
    PathLimit(PathLimitDelivery),
    /// ACK_FREQUENCY with this sequence number.
    AckFrequency(u64),
    /// ALTERNATIVE_ADDRESS with this sequence number.
    AlternativeAddress(u64),
}

/// A small type: every packet in flight has some of them.
const _: () = assert!(size_of::<Delivery>() <= 24);

/// CRYPTO bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CryptoDelivery {
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// A frame that ends the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeDelivery {
    HandshakeDone,
    NewToken,
}

/// A frame of streams and their flow control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamDelivery {
    /// STREAM bytes.
    Data {
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
}

/// A frame about one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathDelivery {
    /// NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID.
    NewConnectionId { path: PathId, sequence: u64 },
    /// RETIRE_CONNECTION_ID or PATH_RETIRE_CONNECTION_ID.
    RetireConnectionId { path: PathId, sequence: u64 },
    /// PATH_CIDS_BLOCKED.
    CidsBlocked { path: PathId, next_sequence: u64 },
    /// PATH_ABANDON.
    Abandon(PathId),
    /// PATH_STATUS_AVAILABLE or PATH_STATUS_BACKUP.
    Status { path: PathId, sequence: u64 },
}

impl PathDelivery {
    /// The path the frame is about.
    pub(crate) fn path(self) -> PathId {
        match self {
            Self::NewConnectionId { path, .. }
            | Self::RetireConnectionId { path, .. }
            | Self::CidsBlocked { path, .. }
            | Self::Abandon(path)
            | Self::Status { path, .. } => path,
        }
    }
}

/// A frame about how many paths there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathLimitDelivery {
    MaxPathId(PathId),
    PathsBlocked(PathId),
}

impl From<CryptoDelivery> for Delivery {
    fn from(delivery: CryptoDelivery) -> Self {
        Self::Crypto(delivery)
    }
}

impl From<HandshakeDelivery> for Delivery {
    fn from(delivery: HandshakeDelivery) -> Self {
        Self::Handshake(delivery)
    }
}

impl From<StreamDelivery> for Delivery {
    fn from(delivery: StreamDelivery) -> Self {
        Self::Stream(delivery)
    }
}

impl From<PathDelivery> for Delivery {
    fn from(delivery: PathDelivery) -> Self {
        Self::Path(delivery)
    }
}

impl From<PathLimitDelivery> for Delivery {
    fn from(delivery: PathLimitDelivery) -> Self {
        Self::PathLimit(delivery)
    }
}

/// The fate of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its packet was acknowledged.
    Acked,
    /// The frame's packet was declared lost, or its path is suspect: send content again that still
    /// matters. `Acked` (after a spurious loss) or another `Lost` may follow.
    Lost,
}

/// The progress of a value that the peer must learn. The owner keeps one beside each value that it
/// announces, and sends the value again when the progress is back at `Queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The value waits to be sent.
    Queued,
    /// The value is in flight.
    Sent,
    /// The peer has the value; the fates of other copies change nothing.
    Delivered,
}

impl Progress {
    /// A copy of the value was acknowledged or lost.
    pub(crate) fn on_fate(&mut self, fate: Fate) {
        *self = match (*self, fate) {
            (Self::Delivered, _) | (_, Fate::Acked) => Self::Delivered,
            (_, Fate::Lost) => Self::Queued,
        };
    }

    /// True if the value waits to be sent.
    pub(crate) fn is_queued(self) -> bool {
        self == Self::Queued
    }
}

/// Consecutive acknowledged bytes of one stream, collected: a train of packets mostly has such
/// bytes.
#[derive(Default)]
pub(crate) struct StreamRun(Option<StreamDelivery>);

impl StreamRun {
    /// Adds to the run; returns bytes outside of the run, to be passed on now.
    #[inline]
    pub(crate) fn push(&mut self, next: Delivery) -> Option<Delivery> {
        let Delivery::Stream(
            stream @ StreamDelivery::Data {
                id,
                offset,
                length,
                fin,
            },
        ) = next
        else {
            return Some(next);
        };
        if let Some(StreamDelivery::Data {
            id: same,
            offset: start,
            length: gathered,
            fin: ends,
        }) = &mut self.0
            && *same == id
            && *start + u64::from(*gathered) == offset
            && let Some(sum) = gathered.checked_add(length)
        {
            *gathered = sum;
            *ends |= fin;
            return None;
        }
        self.0.replace(stream).map(Delivery::Stream)
    }

    /// Takes the last run of stream bytes.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Delivery> {
        self.0.take().map(Delivery::Stream)
    }
}

#[cfg(test)]
impl Delivery {
    /// For tests of path components: the delivery of a frame about a path.
    #[track_caller]
    pub(crate) fn of_path(self) -> PathDelivery {
        match self {
            Self::Path(delivery) => delivery,
            other => panic!("{other:?} is not about a path"),
        }
    }

    /// The delivery of a frame about the number of paths.
    #[track_caller]
    pub(crate) fn of_path_limit(self) -> PathLimitDelivery {
        match self {
            Self::PathLimit(delivery) => delivery,
            other => panic!("{other:?} is not about the number of paths"),
        }
    }

    /// The delivery of a stream frame.
    #[track_caller]
    pub(crate) fn of_stream(self) -> StreamDelivery {
        match self {
            Self::Stream(delivery) => delivery,
            other => panic!("{other:?} is not of streams"),
        }
    }

    /// The delivery of a CRYPTO frame.
    #[track_caller]
    pub(crate) fn of_crypto(self) -> CryptoDelivery {
        match self {
            Self::Crypto(delivery) => delivery,
            other => panic!("{other:?} is not of CRYPTO"),
        }
    }
}
