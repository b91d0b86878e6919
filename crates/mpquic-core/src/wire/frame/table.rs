//! The frame table: what may be done with each frame (RFC 9000 section 12.4,
//! RFC 9221 section 4, RFC 10069 section 4, and the drafts named at the types).

use quinn_proto::Dir;

use super::frame_type as ty;
use super::kind::FrameKind;
use super::{Close, Frame, MaxStreams, PacketType, PathStatus, StreamsBlocked};
use crate::ids;

/// Packet types as a set of bits.
const INITIAL: u8 = 1 << PacketType::Initial as u8;
const ZERO_RTT: u8 = 1 << PacketType::ZeroRtt as u8;
const HANDSHAKE: u8 = 1 << PacketType::Handshake as u8;
const ONE_RTT: u8 = 1 << PacketType::OneRtt as u8;

const ALL: u8 = INITIAL | HANDSHAKE | ZERO_RTT | ONE_RTT;
const NOT_ZERO_RTT: u8 = INITIAL | HANDSHAKE | ONE_RTT;
const DATA: u8 = ZERO_RTT | ONE_RTT;

/// One line of the table.
struct Row {
    frame_type: u64,
    packets: u8,
    ack_eliciting: bool,
    probing: bool,
}

/// The line of a frame that elicits an acknowledgement, and is no probe.
const fn row(frame_type: u64, packets: u8) -> Row {
    Row {
        frame_type,
        packets,
        ack_eliciting: true,
        probing: false,
    }
}

impl Row {
    const fn not_ack_eliciting(mut self) -> Self {
        self.ack_eliciting = false;
        self
    }

    /// RFC 9000 section 9.1.
    const fn probing(mut self) -> Self {
        self.probing = true;
        self
    }
}

impl Frame {
    /// The table. What RFC 9000 section 12.5 lets a server reject in 0-RTT packets is rejected;
    /// the frames of RFC 10069 need 1-RTT packets (MP-004) and are no probes (MP-054).
    #[rustfmt::skip]
    #[inline]
    fn row(&self) -> Row {
        use ids::PathStatus::{Available, Backup};
        match self {
            Self::Padding => row(ty::PADDING, ALL).not_ack_eliciting().probing(),
            Self::Ping => row(ty::PING, ALL),
            Self::Ack(ack) => row(ty::ACK | u64::from(ack.ecn_counts.is_some()), NOT_ZERO_RTT).not_ack_eliciting(),
            Self::ResetStream(_) => row(ty::RESET_STREAM, DATA),
            Self::ResetStreamAt(_) => row(ty::RESET_STREAM_AT, DATA),
            Self::StopSending(_) => row(ty::STOP_SENDING, DATA),
            Self::Crypto(_) => row(ty::CRYPTO, NOT_ZERO_RTT),
            Self::NewToken(_) => row(ty::NEW_TOKEN, ONE_RTT),
            Self::Stream(stream) => row(stream.header().frame_type(), DATA),
            Self::MaxData(_) => row(ty::MAX_DATA, DATA),
            Self::MaxStreamData(_) => row(ty::MAX_STREAM_DATA, DATA),
            Self::MaxStreams(MaxStreams { dir: Dir::Bi, .. }) => row(ty::MAX_STREAMS_BIDI, DATA),
            Self::MaxStreams(MaxStreams { dir: Dir::Uni, .. }) => row(ty::MAX_STREAMS_UNI, DATA),
            Self::DataBlocked(_) => row(ty::DATA_BLOCKED, DATA),
            Self::StreamDataBlocked(_) => row(ty::STREAM_DATA_BLOCKED, DATA),
            Self::StreamsBlocked(StreamsBlocked { dir: Dir::Bi, .. }) => row(ty::STREAMS_BLOCKED_BIDI, DATA),
            Self::StreamsBlocked(StreamsBlocked { dir: Dir::Uni, .. }) => row(ty::STREAMS_BLOCKED_UNI, DATA),
            Self::NewConnectionId(_) => row(ty::NEW_CONNECTION_ID, DATA).probing(),
            Self::RetireConnectionId(_) => row(ty::RETIRE_CONNECTION_ID, ONE_RTT),
            Self::PathChallenge(_) => row(ty::PATH_CHALLENGE, DATA).probing(),
            Self::PathResponse(_) => row(ty::PATH_RESPONSE, ONE_RTT).probing(),
            Self::ConnectionClose(Close::Connection(_)) => row(ty::CONNECTION_CLOSE, ALL).not_ack_eliciting(),
            Self::ConnectionClose(Close::Application(_)) => row(ty::APPLICATION_CLOSE, DATA).not_ack_eliciting(),
            Self::HandshakeDone => row(ty::HANDSHAKE_DONE, ONE_RTT),
            Self::Datagram(_) => row(ty::DATAGRAM_LENGTH, DATA),
            Self::AckFrequency(_) => row(ty::ACK_FREQUENCY, ONE_RTT),
            Self::ImmediateAck => row(ty::IMMEDIATE_ACK, ONE_RTT),
            Self::AlternativeAddress(_) => row(ty::ALTERNATIVE_ADDRESS, ONE_RTT),
            Self::PathAck(frame) => row(ty::PATH_ACK | u64::from(frame.ack.ecn_counts.is_some()), ONE_RTT).not_ack_eliciting(),
            Self::PathAbandon(_) => row(ty::PATH_ABANDON, ONE_RTT),
            Self::PathStatus(PathStatus { status: Backup, .. }) => row(ty::PATH_STATUS_BACKUP, ONE_RTT),
            Self::PathStatus(PathStatus { status: Available, .. }) => row(ty::PATH_STATUS_AVAILABLE, ONE_RTT),
            Self::PathNewConnectionId(_) => row(ty::PATH_NEW_CONNECTION_ID, ONE_RTT),
            Self::PathRetireConnectionId(_) => row(ty::PATH_RETIRE_CONNECTION_ID, ONE_RTT),
            Self::MaxPathId(_) => row(ty::MAX_PATH_ID, ONE_RTT),
            Self::PathsBlocked(_) => row(ty::PATHS_BLOCKED, ONE_RTT),
            Self::PathCidsBlocked(_) => row(ty::PATH_CIDS_BLOCKED, ONE_RTT),
        }
    }

    /// The type this frame is encoded with. STREAM and DATAGRAM are counted with their length.
    #[inline]
    pub fn frame_type(&self) -> u64 {
        self.row().frame_type
    }

    /// True if a packet of this type may carry the frame; in other packets, the frame is a
    /// PROTOCOL_VIOLATION.
    #[inline]
    pub fn is_allowed_in(&self, packet: PacketType) -> bool {
        self.row().packets & (1 << packet as u8) != 0
    }

    /// The kind under which statistics count the frame; `None` for PADDING.
    #[inline]
    pub(crate) fn kind(&self) -> Option<FrameKind> {
        use ids::PathStatus::{Available, Backup};
        let kind = match self {
            Self::Padding => return None,
            Self::Ping => FrameKind::Ping,
            Self::Ack(_) => FrameKind::Ack,
            Self::PathAck(_) => FrameKind::PathAck,
            Self::ResetStream(_) => FrameKind::ResetStream,
            Self::ResetStreamAt(_) => FrameKind::ResetStreamAt,
            Self::StopSending(_) => FrameKind::StopSending,
            Self::Crypto(_) => FrameKind::Crypto,
            Self::NewToken(_) => FrameKind::NewToken,
            Self::Stream(_) => FrameKind::Stream,
            Self::MaxData(_) => FrameKind::MaxData,
            Self::MaxStreamData(_) => FrameKind::MaxStreamData,
            Self::MaxStreams(_) => FrameKind::MaxStreams,
            Self::DataBlocked(_) => FrameKind::DataBlocked,
            Self::StreamDataBlocked(_) => FrameKind::StreamDataBlocked,
            Self::StreamsBlocked(_) => FrameKind::StreamsBlocked,
            Self::NewConnectionId(_) => FrameKind::NewConnectionId,
            Self::RetireConnectionId(_) => FrameKind::RetireConnectionId,
            Self::PathChallenge(_) => FrameKind::PathChallenge,
            Self::PathResponse(_) => FrameKind::PathResponse,
            Self::ConnectionClose(_) => FrameKind::ConnectionClose,
            Self::HandshakeDone => FrameKind::HandshakeDone,
            Self::Datagram(_) => FrameKind::Datagram,
            Self::AckFrequency(_) => FrameKind::AckFrequency,
            Self::ImmediateAck => FrameKind::ImmediateAck,
            Self::AlternativeAddress(_) => FrameKind::AlternativeAddress,
            Self::PathAbandon(_) => FrameKind::PathAbandon,
            Self::PathStatus(PathStatus { status: Backup, .. }) => FrameKind::PathStatusBackup,
            Self::PathStatus(PathStatus {
                status: Available, ..
            }) => FrameKind::PathStatusAvailable,
            Self::PathNewConnectionId(_) => FrameKind::PathNewConnectionId,
            Self::PathRetireConnectionId(_) => FrameKind::PathRetireConnectionId,
            Self::MaxPathId(_) => FrameKind::MaxPathId,
            Self::PathsBlocked(_) => FrameKind::PathsBlocked,
            Self::PathCidsBlocked(_) => FrameKind::PathCidsBlocked,
        };
        Some(kind)
    }

    /// False only for ACK, PATH_ACK, PADDING and CONNECTION_CLOSE (RFC 9002 section 2).
    #[inline]
    pub fn is_ack_eliciting(&self) -> bool {
        self.row().ack_eliciting
    }

    /// True if the frame alone does not make a packet non-probing (RFC 9000 section 9.1).
    #[inline]
    pub fn is_probing(&self) -> bool {
        self.row().probing
    }
}
