//! [`FrameKind`] and [`FrameCounts`]: how often frames of each type were sent or received.

use std::fmt;
use std::ops::Index;

/// Lists the kinds with their names in the RFCs.
macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        /// A type of frame; types that differ only in flags or in the direction of streams are one.
        /// PADDING is none: it is not counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum FrameKind {
            $(#[doc = $name] $kind,)*
        }

        impl FrameKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The name in the RFC, such as `PATH_ACK`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

// In the order of `Frame`'s variants, for an easy conversion.
kinds! {
    Ping "PING",
    Ack "ACK",
    PathAck "PATH_ACK",
    ResetStream "RESET_STREAM",
    ResetStreamAt "RESET_STREAM_AT",
    StopSending "STOP_SENDING",
    Crypto "CRYPTO",
    NewToken "NEW_TOKEN",
    Stream "STREAM",
    MaxData "MAX_DATA",
    MaxStreamData "MAX_STREAM_DATA",
    MaxStreams "MAX_STREAMS",
    DataBlocked "DATA_BLOCKED",
    StreamDataBlocked "STREAM_DATA_BLOCKED",
    StreamsBlocked "STREAMS_BLOCKED",
    NewConnectionId "NEW_CONNECTION_ID",
    RetireConnectionId "RETIRE_CONNECTION_ID",
    PathChallenge "PATH_CHALLENGE",
    PathResponse "PATH_RESPONSE",
    ConnectionClose "CONNECTION_CLOSE",
    HandshakeDone "HANDSHAKE_DONE",
    Datagram "DATAGRAM",
    AckFrequency "ACK_FREQUENCY",
    ImmediateAck "IMMEDIATE_ACK",
    AlternativeAddress "ALTERNATIVE_ADDRESS",
    PathAbandon "PATH_ABANDON",
    PathStatusBackup "PATH_STATUS_BACKUP",
    PathNewConnectionId "PATH_NEW_CONNECTION_ID",
    PathRetireConnectionId "PATH_RETIRE_CONNECTION_ID",
    MaxPathId "MAX_PATH_ID",
    PathsBlocked "PATHS_BLOCKED",
    PathCidsBlocked "PATH_CIDS_BLOCKED",
    PathStatusAvailable "PATH_STATUS_AVAILABLE",
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How often there were frames of each kind.
///
/// ```
/// use mpquic_core::{FrameCounts, FrameKind};
///
/// let counts = FrameCounts::default();
/// assert_eq!(counts[FrameKind::PathAck], 0);
/// assert_eq!(counts.iter().count(), 0, "there was no frame of any kind");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameCounts(Option<Box<[u64; KINDS]>>);

/// Number of kinds.
const KINDS: usize = FrameKind::ALL.len();

impl FrameCounts {
    /// Counts a frame; PADDING is none.
    #[inline]
    pub(crate) fn add(&mut self, kind: Option<FrameKind>) {
        let counts = self.0.get_or_insert_with(|| Box::new([0; KINDS]));
        if let Some(count) = kind.and_then(|kind| counts.get_mut(kind as usize)) {
            *count += 1;
        }
    }

    /// The kinds there were frames of, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (FrameKind, u64)> {
        let all = FrameKind::ALL.iter().copied();
        all.map(|kind| (kind, self[kind]))
            .filter(|(_, count)| *count > 0)
    }
}

impl Index<FrameKind> for FrameCounts {
    type Output = u64;

    fn index(&self, kind: FrameKind) -> &u64 {
        let counts = self.0.as_deref();
        counts.map_or(&0, |counts| &counts[kind as usize])
    }
}
