//! The reports of a connection: events for the application and the endpoint, errors, statistics.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{ConnectionId, EcnCodepoint};
use thiserror::Error;

use crate::congestion::ResumePhase;
use crate::error::{ConnectionError, TransportErrorCode};
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::key_exchange::KeyExchangeGroup;
use crate::memory::MemoryUse;
use crate::qlog::EcnValidation;
use crate::server_address::ServerAddress;
use crate::stream::StreamEvent;
use crate::wire::frame::FrameCounts;

/// A datagram that an endpoint found to belong to a connection.
#[derive(Debug)]
pub struct Datagram {
    /// When it arrived.
    pub now: Instant,
    /// The addresses between which it travelled.
    pub four_tuple: FourTuple,
    /// Its ECN codepoint.
    pub ecn: Option<EcnCodepoint>,
    /// The path its destination connection ID was issued for.
    pub path: PathId,
    /// Its bytes.
    pub data: BytesMut,
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// ALPN and server name are known.
    HandshakeDataReady,
    /// The handshake is complete.
    Connected {
        /// Both sides support multipath.
        multipath: bool,
    },
    /// The handshake is confirmed (RFC 9001 section 4.1.2): the client may move paths.
    HandshakeConfirmed,
    /// The connection ended.
    ConnectionLost {
        /// Why.
        reason: ConnectionError,
    },
    /// Stream activity.
    Stream(StreamEvent),
    /// At least one DATAGRAM can be read.
    DatagramReceived,
    /// DATAGRAMs can be sent again.
    DatagramsUnblocked,
    /// Path activity.
    Path(PathEvent),
}

/// A change of a path, or of the addresses of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathEvent {
    /// The path was validated; on a server, the client opened it.
    Established(PathId),
    /// The path is no longer used.
    Abandoned {
        /// Which.
        path: PathId,
        /// The code of PATH_ABANDON.
        error_code: TransportErrorCode,
        /// True if the peer abandoned it first.
        by_peer: bool,
    },
    /// All state of an abandoned path is gone. These are its last counters.
    Discarded(Box<PathStats>),
    /// No acknowledgement arrived for a probe timeout, or the driver reported that the interface is
    /// gone: the path's data moved to other paths.
    Suspect(PathId),
    /// A suspect path answers again, or has moved to other addresses.
    Recovered(PathId),
    /// The peer set a status for the path.
    RemoteStatus(PathId, PathStatus),
    /// The path's four-tuple changed and was validated (NAT rebinding or migration).
    Migrated(PathId, FourTuple),
    /// MAX_PATH_ID rose or connection IDs arrived: `open_path` may succeed now.
    Available,
    /// Client: the list of all further addresses of the server from now on, the best first. Earlier
    /// addresses missing in the list should not be used any more. At most [`ServerAddress::MAX`],
    /// and none in a network that only the client reaches. Only an established path proves that the
    /// address belongs to the server.
    ServerAddresses(Arc<[ServerAddress]>),
}

impl PathEvent {
    /// The path of the event.
    pub fn path(&self) -> Option<PathId> {
        match self {
            Self::Established(path)
            | Self::Abandoned { path, .. }
            | Self::Suspect(path)
            | Self::Recovered(path)
            | Self::RemoteStatus(path, _)
            | Self::Migrated(path, _) => Some(*path),
            Self::Discarded(last) => Some(last.id),
            Self::Available | Self::ServerAddresses(_) => None,
        }
    }
}

/// News of a connection for its endpoint, from [`Connection::poll_endpoint_event`] to
/// [`Endpoint::handle_event`]. The content is opaque, because parts of it are secret.
///
/// [`Connection::poll_endpoint_event`]: crate::Connection::poll_endpoint_event
/// [`Endpoint::handle_event`]: crate::Endpoint::handle_event
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointEvent(pub(crate) RouteChange);

impl EndpointEvent {
    /// The event of a connection that is drained. A driver that drops a connection before passes
    /// this to the endpoint.
    pub fn drained() -> Self {
        Self(RouteChange::Drained)
    }

    /// True if the connection is drained: the endpoint forgets it, and so should the driver.
    pub fn is_drained(&self) -> bool {
        self.0 == RouteChange::Drained
    }
}

impl fmt::Debug for EndpointEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointEvent")
            .field("is_drained", &self.is_drained())
            .finish_non_exhaustive()
    }
}

/// A change of an endpoint's routes to a connection, or a step of the connection.
// Reset tokens are secret, so only tests may print them.
#[cfg_attr(test, derive(Debug))]
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum RouteChange {
    /// Datagrams to this connection ID belong to the connection, on this path.
    ConnectionIdIssued(ConnectionId, PathId),
    /// Datagrams to this connection ID no longer belong to any connection.
    ConnectionIdRetired(ConnectionId),
    /// A datagram ending in this token is a stateless reset of the connection.
    ResetTokenAdded([u8; 16]),
    /// Datagrams that end in this token are no longer a reset of the connection.
    ResetTokenRemoved([u8; 16]),
    /// Server: the handshake is complete.
    HandshakeComplete,
    /// The connection is over; forget it.
    Drained,
}

/// Why a timeout is set; the earliest of them is what `poll_timeout` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeoutReason {
    /// A packet is to be declared lost, or a probe sent.
    LossDetection(PathId),
    /// An acknowledgement is due.
    AckDelay(PathId),
    /// The pacer allows more to be sent.
    Pacing(PathId),
    /// Path validation is to be repeated or has failed.
    PathValidation(PathId),
    /// An abandoned path's state is to be dropped.
    PathDrain(PathId),
    /// A silent path is due a PING.
    KeepAlive(PathId),
    /// The connection idled too long.
    Idle,
    /// The handshake takes too long.
    Handshake,
    /// Closing or draining ends.
    Close,
    /// Old 1-RTT keys or a server's 0-RTT keys are to be dropped.
    KeyDiscard,
    /// The scheduler asked to be called.
    Scheduler,
    /// An idle connection frees memory.
    Trim,
    /// The deadline of a stream or a DATAGRAM.
    Deadline,
}

/// Why a path could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenPathError {
    /// Only clients open paths (MP-070).
    #[error("only the client opens paths")]
    ServerSide,
    /// The handshake is not complete yet.
    #[error("the handshake is not complete yet")]
    HandshakeIncomplete,
    /// The peer does not support multipath.
    #[error("the peer does not support multipath")]
    NotNegotiated,
    /// The peer allows no more path IDs now; retry after [`PathEvent::Available`].
    #[error("the peer allows no more paths now")]
    PathsBlocked,
    /// No connection ID for the path has arrived yet; retry after [`PathEvent::Available`].
    #[error("no connection ID for a new path has arrived yet")]
    NoConnectionId,
    /// The peer accepts no further paths to this address (MP-017).
    #[error("the peer accepts no further paths to this address")]
    AddressForbidden,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

/// Why a path could not move to another local address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The path does not exist, or was abandoned already.
    #[error("no such open path")]
    Closed,
    /// Only clients move.
    #[error("only the client moves a path")]
    ServerSide,
    /// The handshake is not confirmed yet.
    #[error("the handshake is not confirmed yet")]
    NotConfirmed,
    /// The peer does not allow migration at the address used in the handshake (RFC 9000 section
    /// 18.2).
    #[error("the peer does not allow migration at the address of the handshake")]
    AddressForbidden,
    /// The peer has issued no unused connection ID for the path, and the same one must not be sent
    /// from two addresses (RFC 9000 section 9.5). The peer was asked for one.
    #[error("no unused connection ID for the path")]
    NoConnectionId,
}

impl From<ClosedPath> for MigrateError {
    fn from(_: ClosedPath) -> Self {
        Self::Closed
    }
}

/// Why a path was not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClosePathError {
    /// The path does not exist, or was abandoned already.
    #[error("no such open path")]
    NoSuchPath,
    /// No other path is open, and a connection needs at least one.
    #[error("it is the last open path: close the connection")]
    LastPath,
}

/// The path does not exist, or was abandoned already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no such open path")]
pub struct ClosedPath;

/// Counters and measurements of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStats {
    /// The path.
    pub id: PathId,
    /// Its addresses.
    pub four_tuple: FourTuple,
    /// The state of the path.
    pub state: PathState,
    /// Our status of the path, as the peer was told.
    pub status: PathStatus,
    /// The peer's status of the path, if the peer announced one.
    pub peer_status: Option<PathStatus>,
    /// Smoothed RTT, or the assumed one before the first sample.
    pub rtt: Duration,
    /// Smallest RTT.
    pub min_rtt: Duration,
    /// Probe timeout without backoff: after this time without an acknowledgement, the path is
    /// suspect.
    pub probe_timeout: Duration,
    /// Congestion window, bytes; 0 for an abandoned path.
    pub window: u64,
    /// Slow start threshold, in bytes, for a controller with a threshold that was set.
    pub slow_start_threshold: Option<u64>,
    /// Pacing rate, bytes per second, if the congestion controller sets one. Otherwise its window
    /// is spread over a round trip.
    pub pacing_rate: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Whether the path carries ECN marks.
    pub ecn: EcnValidation,
    /// Largest datagram, bytes.
    pub mtu: u16,
    /// Datagram bytes sent.
    pub bytes_sent: u64,
    /// Datagram bytes received.
    pub bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Loss or ECN events that cut the window or began a recovery.
    pub congestion_events: u64,
    /// Probe timeouts.
    pub probe_timeouts: u64,
    /// The outcome of an earlier connection's saved capacity.
    pub resumption: Resumption,
}

impl PathStats {
    /// Statistics of a new path, for tests of code that shows them: 1200 bytes MTU and a window of
    /// ten datagrams, RTT and probe timeout of RFC 9002 section 6.2.2.
    pub fn new(id: PathId, four_tuple: FourTuple) -> Self {
        let rtt = Duration::from_millis(333);
        Self {
            id,
            four_tuple,
            state: PathState::Active,
            status: PathStatus::Available,
            peer_status: None,
            rtt,
            min_rtt: rtt,
            probe_timeout: 3 * rtt,
            window: 12_000,
            slow_start_threshold: None,
            pacing_rate: None,
            in_flight: 0,
            ecn: EcnValidation::Testing,
            mtu: 1200,
            bytes_sent: 0,
            bytes_received: 0,
            packets_sent: 0,
            packets_received: 0,
            packets_lost: 0,
            congestion_events: 0,
            probe_timeouts: 0,
            resumption: Resumption::default(),
        }
    }
}

/// The use of what an earlier connection learnt of a path (Careful Resume, RFC 9959).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resumption {
    /// How far it is.
    pub phase: ResumePhase,
    /// The path has used the saved capacity: it reached the Unvalidated Phase.
    pub used: bool,
    /// The saved capacity was too large, and was forgotten.
    pub retreated: bool,
}

impl Default for Resumption {
    /// No saved capacity.
    fn default() -> Self {
        Self {
            phase: ResumePhase::Normal,
            used: false,
            retreated: false,
        }
    }
}

/// The state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathState {
    /// Being validated.
    Validating,
    /// In use.
    Active,
    /// Validated, but silent for a probe timeout or more.
    Suspect,
    /// PATH_ABANDON was sent or received.
    Abandoned,
}

/// Counters of a connection.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Packets that could not be opened or were malformed.
    pub packets_dropped: u64,
    /// Bytes of packets in flight whose content is sent again on other paths, because the path of
    /// the packets fell silent or closed.
    pub bytes_reinjected: u64,
    /// Bytes of datagrams that repeated what is under way, because the scheduler
    /// ([`Decision::Duplicate`](crate::sched::Decision::Duplicate) and
    /// [`Decision::Reinject`](crate::sched::Decision::Reinject)) or the application wanted copies.
    pub bytes_repeated: u64,
    /// Copies wanted by the application and not made: without a second path, with too many copies
    /// waiting, or beyond
    /// [`TransportOptions::max_redundancy`](crate::config::TransportOptions::max_redundancy).
    pub copies_refused: u64,
    /// Streams that were reset at their deadline.
    pub streams_expired: u64,
    /// DATAGRAMs dropped unsent at their deadline.
    pub datagram_frames_expired: u64,
    /// DATAGRAMs dropped with the abandoned path they were bound to, or as too large for every
    /// path.
    pub datagram_frames_unplaced: u64,
    /// Stream bytes received in vain: they had arrived before, or their stream was over.
    pub bytes_received_again: u64,
    /// How client and server agreed on their secrets; `None` before they have.
    pub key_exchange: Option<KeyExchangeGroup>,
    /// The connection's present memory.
    pub memory: MemoryUse,
    /// Frames sent, repeated ones included.
    pub frames_sent: FrameCounts,
    /// Frames of packets that were received and processed.
    pub frames_received: FrameCounts,
    /// Time from the start of the connection to the arrival of the peer's last packet on any path.
    pub last_received: Duration,
}

/// Why a DATAGRAM was not sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendDatagramError {
    /// The peer does not accept DATAGRAM frames.
    #[error("the peer does not accept datagrams")]
    UnsupportedByPeer,
    /// The DATAGRAM does not fit the packets of every usable path, or of the path it is bound to.
    #[error("the datagram is larger than a packet")]
    TooLarge,
    /// The send buffer is full. [`Event::DatagramsUnblocked`] follows; drivers may offer to wait.
    #[error("the datagram send buffer is full")]
    Blocked,
    /// The DATAGRAM is bound to a path that was never opened, or was abandoned.
    #[error("no such open path")]
    ClosedPath,
    /// The connection ended. Drivers report this error: a [`Connection`](crate::Connection) tells
    /// of its end with [`Event::ConnectionLost`].
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
}

/// The state of 0-RTT (RFC 9001 section 4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZeroRtt {
    /// The connection does not resume a session, or the server did not allow 0-RTT.
    NotOffered,
    /// Client: data written now is sent at once, as 0-RTT.
    Offered,
    /// The server accepted 0-RTT.
    Accepted,
    /// The server rejected 0-RTT: earlier streams are closed, and their data is lost.
    Rejected,
}
