//! One connection.

#![allow(clippy::todo, unused_variables, reason = "skeleton: bodies follow")]

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::{ConnectionId, Dir, EcnCodepoint, Side, StreamId, VarInt};
use thiserror::Error;

use crate::crypto::HandshakeData;
use crate::error::{ConnectionError, TransportErrorCode};
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::packet::Transmit;
use crate::stream::{RecvStream, SendStream, StreamEvent};

pub(crate) mod setup;

use setup::ConnectionSetup;

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
    /// Nothing was heard for a probe timeout; its data moved to other paths (decision D12).
    Suspect(PathId),
    /// A suspect path was heard of again.
    Recovered(PathId),
    /// The peer set a status for the path.
    RemoteStatus(PathId, PathStatus),
    /// The path's four-tuple changed and was validated (NAT rebinding or migration).
    Migrated(PathId, FourTuple),
    /// MAX_PATH_ID rose or connection IDs arrived: `open_path` may succeed now.
    Available,
}

/// What an endpoint must know to route datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointEvent {
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
    /// Old 1-RTT keys are to be dropped.
    KeyDiscard,
    /// The scheduler asked to be called.
    Scheduler,
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
    /// Congestion window, bytes.
    pub window: u64,
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

/// A QUIC connection with any number of paths.
pub struct Connection {}

impl Connection {
    pub(crate) fn new(setup: ConnectionSetup) -> Self {
        todo!()
    }
    /// Takes a datagram.
    pub fn handle_datagram(&mut self, datagram: Datagram) {
        todo!()
    }
    /// Takes the endpoint's word that the peer sent a stateless reset.
    pub fn handle_stateless_reset(&mut self, now: Instant) {
        todo!()
    }
    /// Call when the time of [`Self::poll_timeout`] has come; harmless otherwise.
    pub fn handle_timeout(&mut self, now: Instant) {
        todo!()
    }
    /// Fills `buf` (cleared by the caller) with datagrams for one four-tuple: up to `max_datagrams`
    /// of the same size, the last one possibly smaller. Call until it returns `None`.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        todo!()
    }
    /// The next time [`Self::handle_timeout`] must be called, and why. Ask again after every other call.
    pub fn poll_timeout(&self) -> Option<(Instant, TimeoutReason)> {
        todo!()
    }
    /// The next event for the application.
    pub fn poll(&mut self) -> Option<Event> {
        todo!()
    }
    /// The next event for the endpoint. Drain after every other call, before sending.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        todo!()
    }
    /// Opens a stream if the peer's limit allows.
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        todo!()
    }
    /// The next stream the peer opened.
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        todo!()
    }
    /// Lends the sending half of a stream.
    pub fn send_stream(&mut self, id: StreamId) -> SendStream<'_> {
        todo!()
    }
    /// Lends the receiving half of a stream.
    pub fn recv_stream(&mut self, id: StreamId) -> RecvStream<'_> {
        todo!()
    }
    /// Queues a DATAGRAM.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        todo!()
    }
    /// The next received DATAGRAM.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        todo!()
    }
    /// Largest DATAGRAM payload that fits the largest packet of every usable path; `None` if the
    /// peer takes none.
    pub fn max_datagram_size(&self) -> Option<usize> {
        todo!()
    }
    /// Ends the connection; the peer's application gets the code and reason.
    pub fn close(&mut self, now: Instant, error_code: VarInt, reason: Bytes) {
        todo!()
    }
    /// Opens a path (client only). It carries data once [`PathEvent::Established`] was reported.
    pub fn open_path(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        status: PathStatus,
    ) -> Result<PathId, OpenPathError> {
        todo!()
    }
    /// Abandons a path. Abandoning the last one closes the connection.
    pub fn close_path(
        &mut self,
        now: Instant,
        path: PathId,
        error_code: TransportErrorCode,
    ) -> Result<(), ClosedPath> {
        todo!()
    }
    /// Tells the peer how to treat the path, and treats it so ourselves.
    pub fn set_path_status(&mut self, path: PathId, status: PathStatus) -> Result<(), ClosedPath> {
        todo!()
    }
    /// Our status of the path and the peer's, if it sent one.
    pub fn path_status(
        &self,
        path: PathId,
    ) -> Result<(PathStatus, Option<PathStatus>), ClosedPath> {
        todo!()
    }
    /// Tells a client that its local address for a path changed (an interface came back with
    /// another one): the path migrates to it.
    pub fn set_local_address(
        &mut self,
        now: Instant,
        path: PathId,
        local: std::net::SocketAddr,
    ) -> Result<(), ClosedPath> {
        todo!()
    }
    /// Hint from the driver: the path's socket or interface is gone (`up` false) or back. A path
    /// that is down counts as suspect at once.
    pub fn set_path_usable(
        &mut self,
        now: Instant,
        path: PathId,
        up: bool,
    ) -> Result<(), ClosedPath> {
        todo!()
    }
    /// Sends a PING on the path.
    pub fn ping_path(&mut self, path: PathId) -> Result<(), ClosedPath> {
        todo!()
    }
    /// Paths that are not discarded, in order of ID.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        std::iter::empty()
    }
    /// Statistics of a path.
    pub fn path_stats(&self, path: PathId) -> Option<PathStats> {
        todo!()
    }
    /// Statistics of the connection.
    pub fn stats(&self) -> ConnectionStats {
        todo!()
    }
    /// Starts a key update (RFC 9001 section 6); false if one is not allowed yet.
    pub fn initiate_key_update(&mut self) -> bool {
        todo!()
    }
    /// ALPN and server name, once known.
    pub fn handshake_data(&self) -> Option<HandshakeData> {
        todo!()
    }
    /// The peer's certificates, once the handshake is complete.
    pub fn peer_certificates(&self) -> Option<Vec<rustls::pki_types::CertificateDer<'static>>> {
        todo!()
    }
    /// Which side we are.
    pub fn side(&self) -> Side {
        todo!()
    }
    /// True until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        todo!()
    }
    /// True once `close` was called or the connection was lost.
    pub fn is_closed(&self) -> bool {
        todo!()
    }
    /// True once nothing more will be sent or received.
    pub fn is_drained(&self) -> bool {
        todo!()
    }
    /// True if both sides support multipath; known once connected.
    pub fn is_multipath(&self) -> bool {
        todo!()
    }
}
