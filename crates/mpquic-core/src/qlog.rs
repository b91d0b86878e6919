//! The events that a connection reports to a log: those of qlog's QUIC schema
//! (draft-ietf-quic-qlog-quic-events-13), with a path ID where multipath needs it.
//!
//! The core neither formats nor writes. A [`Factory`] in
//! [`TransportOptions::qlog`](crate::config::TransportOptions::qlog) gives each connection a
//! [`Sink`]; without one, no event is made.

use std::fmt;
use std::time::Instant;

use quinn_proto::{ConnectionId, Side};

use crate::congestion::{ResumePhase, RttSnapshot};
use crate::error::{ConnectionError, TransportErrorCode};
use crate::ids::{FourTuple, PathId, PathStatus, SpaceId};
use crate::key_exchange::KeyExchangeGroup;
use crate::version::Version;
use crate::wire::transport_parameters::{TransportParameters, VersionInformation};
use frame::FrameIter;

pub use crate::wire::frame::PacketType;

/// The frames of a packet, as sinks see them.
///
/// # Stability
///
/// These types follow the wire format: each release may add frames, fields and variants. They are
/// outside of semantic versioning; write `..` and `_` in patterns.
pub mod frame {
    pub use crate::wire::frame::{
        Ack, AckFrequency, AckRanges, AddressEntry, AlternativeAddress, Close, Crypto, EcnCounts,
        Frame, FrameIter, MaxStreamData, MaxStreams, NewConnectionId, PathAbandon, PathAck,
        PathCidsBlocked, PathNewConnectionId, PathRetireConnectionId, PathStatus, ResetStream,
        ResetStreamAt, StopSending, Stream, StreamDataBlocked, StreamsBlocked,
    };
}

/// Makes the sinks of new connections.
pub trait Factory: fmt::Debug + Send + Sync {
    /// The sink for a connection; `None` if it is not to be logged.
    fn start(&self, connection: &ConnectionStart) -> Option<Box<dyn Sink>>;

    /// The sink for what a server sends before there is a connection: [`Event::UnnumberedSent`].
    /// An endpoint asks once, at the first such event.
    fn start_endpoint(&self, now: Instant) -> Option<Box<dyn Sink>> {
        let _ = now;
        None
    }
}

/// Receives the events of one connection, in order of time. Calls come while packets are processed,
/// so a sink should be fast.
pub trait Sink: fmt::Debug + Send {
    /// An event happened.
    fn on_event(&mut self, now: Instant, event: &Event<'_>);
}

/// The connection a sink is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStart {
    /// When it starts.
    pub now: Instant,
    /// Which side we are.
    pub side: Side,
    /// Destination of the client's first Initial, before any Retry: both sides know this ID, which
    /// names the connection in logs.
    pub original_dcid: ConnectionId,
}

/// An event for the log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The first event.
    ConnectionStarted {
        /// The addresses of path 0.
        four_tuple: FourTuple,
        /// Our connection ID.
        local_cid: ConnectionId,
        /// The peer's connection ID, empty while unknown.
        peer_cid: ConnectionId,
    },
    /// Our application closed the connection.
    LocallyClosed {
        /// Its error code.
        error_code: u64,
        /// Its reason phrase.
        reason: &'a [u8],
    },
    /// The connection ended for another reason.
    ConnectionLost(&'a ConnectionError),
    /// TLS agreed on an application protocol.
    ProtocolChosen(&'a [u8]),
    /// TLS agreed on the secrets of the connection by this group.
    KeyExchangeChosen(KeyExchangeGroup),
    /// The version is final.
    VersionChosen {
        /// Our versions.
        local: Option<&'a VersionInformation>,
        /// Announced by the peer.
        peer: Option<&'a VersionInformation>,
        /// The version in use.
        version: Version,
    },
    /// The transport parameters of one side are known.
    ParametersSet {
        /// Whose they are.
        initiator: Initiator,
        /// All of them.
        parameters: &'a TransportParameters,
    },
    /// A path runs between these addresses from now on.
    TupleAssigned {
        /// The path.
        path: PathId,
        /// Its addresses.
        four_tuple: FourTuple,
    },
    /// The state of a path changed.
    PathChanged {
        /// The path.
        path: PathId,
        /// The change.
        change: PathChange,
    },
    /// A packet is about to be sent.
    PacketSent(&'a Packet),
    /// A packet was opened; its frames are not processed yet.
    PacketReceived(&'a Packet),
    /// A Retry or Version Negotiation packet is sent in answer to a client.
    UnnumberedSent(&'a Unnumbered<'a>),
    /// A Retry or Version Negotiation packet arrived, and the client acts on it.
    UnnumberedReceived(&'a Unnumbered<'a>),
    /// A packet was not processed.
    PacketDropped {
        /// The path of the connection ID it was sent to.
        path: PathId,
        /// The type, as far as the header shows one.
        packet_type: Option<PacketType>,
        /// Its bytes.
        size: usize,
        /// Why.
        reason: DropReason,
    },
    /// A packet was declared lost (RFC 9002 section 6).
    PacketLost {
        /// Its packet number space.
        space: SpaceId,
        /// Its number there.
        packet_number: u64,
    },
    /// Measurements of a path may have changed.
    MetricsUpdated {
        /// The path.
        path: PathId,
        /// The new values.
        metrics: Metrics,
    },
    /// The use of what is remembered of a path went on (RFC 9959).
    ResumePhaseChanged {
        /// The path.
        path: PathId,
        /// The phase before.
        old: ResumePhase,
        /// The phase now.
        new: ResumePhase,
    },
    /// The MTU of a path, or the state of its search, may have changed.
    MtuUpdated {
        /// The path.
        path: PathId,
        /// UDP payload bytes of the largest datagrams.
        mtu: u16,
        /// True if larger ones are not tried for now.
        done: bool,
    },
    /// Both sides' keys for a type of packet were made; those of 0-RTT are the client's alone.
    KeysUpdated {
        /// For these packets.
        packet_type: PacketType,
        /// How many key updates came before (RFC 9001 section 6).
        generation: u32,
        /// The cause of the new keys.
        trigger: KeyTrigger,
    },
    /// Both sides' keys for a type of packet were forgotten.
    KeysDiscarded(PacketType),
    /// A client begins with 0-RTT, under these parameters of an earlier connection.
    ParametersRestored(&'a TransportParameters),
}

/// A change of a path. Changes of addresses are logged as [`Event::TupleAssigned`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathChange {
    /// The path was validated.
    Established,
    /// The path fell silent: its data moved to other paths.
    Suspect,
    /// The path answers again.
    Recovered,
    /// The path is no longer used.
    Abandoned {
        /// The code of PATH_ABANDON.
        error_code: TransportErrorCode,
        /// The side that abandoned the path first.
        initiator: Initiator,
    },
    /// All its state is gone.
    Discarded,
    /// The peer wishes that it is used like this.
    PeerStatus(PathStatus),
}

/// A packet without a number, which is not protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unnumbered<'a> {
    /// The connection ID it is sent to; with Version Negotiation, up to 255 bytes.
    pub destination: &'a [u8],
    /// The connection ID it is sent from.
    pub source: &'a [u8],
    /// Destination of the packet that it answers, which names the connection in logs.
    pub original_dcid: &'a [u8],
    /// Its bytes.
    pub size: usize,
    /// Which it is.
    pub kind: UnnumberedKind<'a>,
}

/// Kinds of packets without a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnnumberedKind<'a> {
    /// The client has to prove its address (RFC 9000 section 8.1.2).
    Retry {
        /// Version of the connection.
        version: Version,
        /// The token that the client has to send back.
        token: &'a [u8],
    },
    /// The server does not speak the client's version (RFC 9000 section 6).
    VersionNegotiation {
        /// The versions that the server speaks, and perhaps reserved ones.
        versions: &'a [u32],
        /// Client: the versions that it speaks itself.
        spoken: &'a [Version],
        /// Client: the version in which it starts over, if any.
        chosen: Option<Version>,
    },
}

/// A packet as sent or received.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Packet {
    /// The path whose packet number space it is in.
    pub path: PathId,
    /// Its type.
    pub packet_type: PacketType,
    /// Its version; 1-RTT packets do not say it.
    pub version: Option<Version>,
    /// Its number.
    pub packet_number: u64,
    /// The connection ID it is sent to.
    pub destination: ConnectionId,
    /// The connection ID it is sent from, where the header of a packet sent has one.
    pub source: Option<ConnectionId>,
    /// Bytes of header, payload and tag.
    pub size: usize,
    /// Its frames; clone before reading.
    pub frames: FrameIter,
}

/// Which side something comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// Ours.
    Local,
    /// The peer's.
    Remote,
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// Another QUIC version.
    Unsupported,
    /// Its header is malformed.
    Invalid,
    /// A packet with this number was processed before.
    Duplicate,
    /// Its connection ID is not in use any more.
    ConnectionUnknown,
    /// The packet could not be opened.
    DecryptionFailure,
    /// A packet without its keys, before or after their time.
    KeyUnavailable,
    /// Well-formed, but not acceptable now.
    Rejected,
}

/// Why keys changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyTrigger {
    /// The handshake.
    Tls,
    /// Our key update.
    LocalUpdate,
    /// The peer's key update.
    RemoteUpdate,
}

/// Measurements of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Round-trip times.
    pub rtt: RttSnapshot,
    /// Probe timeouts since the last acknowledgement.
    pub pto_count: u32,
    /// Congestion window, bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// The controller's pacing rate, in bytes per second.
    pub pacing_rate: Option<u64>,
    /// The state of ECN validation.
    pub ecn: EcnValidation,
}

/// The state of ECN validation of a path (RFC 9000 appendix A.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EcnValidation {
    /// The first packets are marked.
    Testing,
    /// Enough packets were marked; no more are until the result is known.
    Unknown,
    /// The path or the peer corrupts marks, or ECN is turned off.
    Failed,
    /// Marks arrive and are reported.
    Capable,
}
