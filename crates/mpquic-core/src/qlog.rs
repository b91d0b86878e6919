//! What a connection tells a log: the events of qlog's QUIC schema
//! (draft-ietf-quic-qlog-quic-events-13), with the path ID where multipath needs it.
//!
//! The core neither formats nor writes. A [`Factory`] in
//! [`TransportConfig::qlog`](crate::config::TransportConfig::qlog) gives each connection a
//! [`Sink`]; without one, no event is made.

use std::fmt;
use std::time::Instant;

use quinn_proto::{ConnectionId, Side};

use crate::congestion::RttSnapshot;
use crate::error::ConnectionError;
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::version::Version;
use crate::wire::frame::{FrameIter, PacketType};
use crate::wire::transport_parameters::{TransportParameters, VersionInformation};

/// Makes the sinks of new connections.
pub trait Factory: fmt::Debug + Send + Sync {
    /// The sink for a connection; `None` if it is not to be logged.
    fn start(&self, connection: &ConnectionStart) -> Option<Box<dyn Sink>>;
}

/// Takes the events of one connection, in order of time. Called on the path of packets, so it
/// should be quick.
pub trait Sink: fmt::Debug + Send {
    /// Takes an event.
    fn on_event(&mut self, now: Instant, event: &Event<'_>);
}

/// The connection a sink is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionStart {
    /// When it starts.
    pub now: Instant,
    /// Which side we are.
    pub side: Side,
    /// Destination of the client's first Initial, before any Retry: both sides know it, and it
    /// names the connection in logs.
    pub original_dcid: ConnectionId,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// The first event.
    ConnectionStarted {
        /// The addresses of path 0.
        four_tuple: FourTuple,
        /// Our connection ID.
        local_cid: ConnectionId,
        /// The peer's, as far as it is known.
        peer_cid: ConnectionId,
    },
    /// Our application closed the connection.
    LocallyClosed {
        /// Its error code.
        error_code: u64,
        /// Its words.
        reason: &'a [u8],
    },
    /// The connection ended for another reason.
    ConnectionLost(&'a ConnectionError),
    /// TLS agreed on an application protocol.
    ProtocolChosen(&'a [u8]),
    /// The version is settled.
    VersionChosen {
        /// What we announced.
        local: Option<&'a VersionInformation>,
        /// What the peer announced, if it knows how to.
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
    /// A packet is about to leave.
    PacketSent(&'a Packet),
    /// A packet was opened; its frames are not processed yet.
    PacketReceived(&'a Packet),
    /// A packet was not processed.
    PacketDropped {
        /// The path of the connection ID it was sent to.
        path: PathId,
        /// What it looks like, if that can be told.
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
        /// What they are now.
        metrics: Metrics,
    },
    /// Both sides' keys for a type of packet were made.
    KeysUpdated {
        /// For these packets.
        packet_type: PacketType,
        /// How many key updates came before (RFC 9001 section 6).
        generation: u32,
        /// Who wanted them.
        trigger: KeyTrigger,
    },
    /// Both sides' keys for a type of packet were forgotten.
    KeysDiscarded(PacketType),
}

/// A packet as sent or received.
#[derive(Debug, Clone)]
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
pub enum DropReason {
    /// Another QUIC version.
    Unsupported,
    /// Its header is malformed.
    Invalid,
    /// A packet with this number was processed before.
    Duplicate,
    /// Its connection ID names nothing any more.
    ConnectionUnknown,
    /// It could not be opened.
    DecryptionFailure,
    /// Its keys are not there yet, or not any more.
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
pub struct Metrics {
    /// Round-trip times.
    pub rtt: RttSnapshot,
    /// Probe timeouts since the last acknowledgement.
    pub pto_count: u32,
    /// Congestion window, bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// The controller's pacing rate, bytes per second, if it sets one.
    pub pacing_rate: Option<u64>,
}
