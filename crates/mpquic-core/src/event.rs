//! What a connection tells: events for the application and the endpoint, errors, statistics.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{ConnectionId, EcnCodepoint};
use thiserror::Error;

use crate::error::{ConnectionError, TransportErrorCode};
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::stream::StreamEvent;

/// A datagram that an endpoint found to belong to a connection.
#[derive(Debug)]
pub struct Datagram {
    /// When it arrived.
    pub now: Instant,
    /// Between which addresses.
    pub four_tuple: FourTuple,
    /// Its ECN codepoint.
    pub ecn: Option<EcnCodepoint>,
    /// The path its destination connection ID was issued for.
    pub path: PathId,
    /// Its bytes.
    pub data: BytesMut,
}

/// Something the application should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// ALPN and server name are known.
    HandshakeDataReady,
    /// The handshake is complete.
    Connected {
        /// Both sides support multipath.
        multipath: bool,
    },
    /// The handshake is confirmed (RFC 9001 section 4.1.2): the client may open paths.
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

/// Something happened to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// All state of an abandoned path is gone.
    Discarded(PathId),
    /// Nothing was heard for a probe timeout, or the driver said that the interface is gone: the
    /// path's data moved to other paths.
    Suspect(PathId),
    /// A suspect path was heard of again, or has other addresses now.
    Recovered(PathId),
    /// The peer set a status for the path.
    RemoteStatus(PathId, PathStatus),
    /// The path's four-tuple changed and was validated (NAT rebinding or migration).
    Migrated(PathId, FourTuple),
    /// MAX_PATH_ID rose or connection IDs arrived: `open_path` may succeed now.
    Available,
}

/// What a connection tells its endpoint, from [`Connection::poll_endpoint_event`] to
/// [`Endpoint::handle_event`]. What it says is theirs alone: some of it is secret.
///
/// [`Connection::poll_endpoint_event`]: crate::Connection::poll_endpoint_event
/// [`Endpoint::handle_event`]: crate::Endpoint::handle_event
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointEvent(pub(crate) RouteChange);

impl EndpointEvent {
    /// The event of a connection that is over. A driver that gives a connection up before it says so
    /// itself tells the endpoint with this.
    pub fn drained() -> Self {
        Self(RouteChange::Drained)
    }

    /// True if the connection is over: the endpoint forgets it, and so should the driver.
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

/// How the routes of an endpoint to one of its connections change.
// No log shall tell reset tokens; tests may.
#[cfg_attr(test, derive(Debug))]
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum RouteChange {
    /// Datagrams to this connection ID belong to the connection, on this path.
    ConnectionIdIssued(ConnectionId, PathId),
    /// Datagrams to this connection ID belong to nobody any more.
    ConnectionIdRetired(ConnectionId),
    /// A datagram ending in this token is a stateless reset of the connection.
    ResetTokenAdded([u8; 16]),
    /// It no longer is.
    ResetTokenRemoved([u8; 16]),
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
    /// The pacer opens.
    Pacing(PathId),
    /// Path validation is to be repeated or has failed.
    PathValidation(PathId),
    /// An abandoned path's state is to be dropped.
    PathDrain(PathId),
    /// A silent path is due a PING.
    KeepAlive(PathId),
    /// The connection idled too long.
    Idle,
    /// Closing or draining ends.
    Close,
    /// Old 1-RTT keys or a server's 0-RTT keys are to be dropped.
    KeyDiscard,
    /// The scheduler asked to be called.
    Scheduler,
    /// An idle connection gives memory back.
    Rest,
}

/// Why a path could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OpenPathError {
    /// Only clients open paths (MP-070).
    #[error("only the client opens paths")]
    ServerSide,
    /// The handshake is not confirmed yet.
    #[error("the handshake is not confirmed yet")]
    NotConfirmed,
    /// The peer does not support multipath.
    #[error("the peer does not support multipath")]
    NotNegotiated,
    /// The peer allows no more path IDs now; retry after [`PathEvent::Available`].
    #[error("the peer allows no more paths now")]
    PathsBlocked,
    /// No connection ID for the path has arrived yet; retry after [`PathEvent::Available`].
    #[error("no connection ID for a new path has arrived yet")]
    NoConnectionId,
    /// The peer does not take further paths to this address (MP-017).
    #[error("the peer does not take further paths to this address")]
    AddressForbidden,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

/// Why a path could not move to another local address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
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
    /// The peer takes no other address of ours at this address of its own (RFC 9000 section 18.2).
    #[error("the peer does not take another address at its handshake address")]
    AddressForbidden,
    /// The peer has issued no unused connection ID for the path, and one may not be sent from two
    /// addresses (RFC 9000 section 9.5). One was asked for.
    #[error("no unused connection ID for the path")]
    NoConnectionId,
}

/// Why a path was not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClosePathError {
    /// The path does not exist, or was abandoned already.
    #[error("no such open path")]
    NoSuchPath,
    /// No other path is open: without any there is no connection.
    #[error("it is the last open path: close the connection")]
    LastPath,
}

/// The path does not exist, or was abandoned already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no such open path")]
pub struct ClosedPath;

/// Counters and measurements of one path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathStats {
    /// The path.
    pub id: PathId,
    /// Its addresses.
    pub four_tuple: FourTuple,
    /// Where it is in its life.
    pub state: PathState,
    /// Smoothed RTT, or the assumed one before the first sample.
    pub rtt: Duration,
    /// Smallest RTT.
    pub min_rtt: Duration,
    /// Congestion window, bytes; 0 of an abandoned path.
    pub window: u64,
    /// Window, bytes, above which it grows slowly, if the congestion controller has such a threshold
    /// and has reached it once.
    pub slow_start_threshold: Option<u64>,
    /// Bytes per second at which packets leave, if the congestion controller sets a rate of its own
    /// rather than spread its window over a round trip.
    pub pacing_rate: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
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
    /// Loss or ECN events that cut the window.
    pub congestion_events: u64,
    /// Probe timeouts.
    pub probe_timeouts: u64,
}

/// Where a path is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Stream bytes sent again on another path before they were lost.
    pub bytes_reinjected: u64,
}

/// Why DATAGRAM was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SendDatagramError {
    /// The peer takes no DATAGRAM frames.
    #[error("the peer takes no datagrams")]
    UnsupportedByPeer,
    /// Larger than any usable path carries now.
    #[error("the datagram is larger than a packet")]
    TooLarge,
    /// The send buffer is full; a [`Event::DatagramsUnblocked`] will follow.
    #[error("the datagram send buffer is full")]
    Blocked,
}

/// What became of 0-RTT (RFC 9001 section 4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroRtt {
    /// The connection resumes nothing, or the server takes no 0-RTT.
    NotOffered,
    /// Client: data written now leaves at once, as 0-RTT.
    Offered,
    /// The server takes it.
    Accepted,
    /// The server did not take it: the streams opened early are closed, and what was written to
    /// them is lost.
    Rejected,
}
