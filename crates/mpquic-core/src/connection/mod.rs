//! One connection: joins handshake, paths and streams.
//!
//! Input: [`Connection::handle_datagram`], [`Connection::handle_timeout`] and what the application
//! calls. Output: `poll_transmit`, `poll_timeout`, `poll` and `poll_endpoint_event`. Nothing is
//! sent from inside a handler; `now` never goes backwards.

use std::sync::Arc;
use std::time::Instant;

use quinn_proto::{Side, StreamId};
use rustls::pki_types::CertificateDer;

use crate::account;
use crate::config::{EndpointConfig, TransportConfig};
use crate::connection_state::State;
use crate::crypto::{ExportError, HandshakeData};
use crate::error::TransportErrorCode;
use crate::event::{
    ClosePathError, ClosedPath, ConnectionStats, EndpointEvent, Event, OpenPathError, PathStats,
    ZeroRtt,
};
use crate::handshake::Handshake;
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::outbox::Outbox;
#[cfg(feature = "testing")]
use crate::packet::injected::Injected;
use crate::path::handle::PathMut;
use crate::path::set::Paths;
use crate::random::SeededRandom;
use crate::recovery::AckOutcome;
use crate::scheduling::host::SchedulerHost;
use crate::scheduling::policies::Policies;
use crate::server_address::{AnnounceError, ServerAddress};
use crate::stream::datagrams::DatagramQueues;
use crate::stream::set::StreamSet;
use crate::stream::{RecvStream, SendStream, Streams};
use crate::version::Version;

mod close_packets;
mod closing;
mod datagrams;
mod egress;
mod handshake;
mod handshake_packets;
mod idle;
mod ingress;
#[cfg(feature = "testing")]
mod inject;
mod settle;
mod start;
mod timers;

pub use datagrams::Datagrams;
use idle::IdleTimer;

/// A QUIC connection with any number of paths.
///
/// A connection does no input or output of its own and never reads a clock. Its owner, the driver,
/// passes inputs to the connection, and then asks for outputs. Time (`now`) never goes backwards.
///
/// The inputs:
///
/// - An arriving datagram: [`Endpoint::handle_datagram`](crate::Endpoint::handle_datagram) names
///   the connection, and [`Self::handle_datagram`] takes the datagram.
/// - The end of the time from [`Self::poll_timeout`]: [`Self::handle_timeout`].
/// - A call of the application, such as writing to a stream.
///
/// After one input, or after several at once, the driver
///
/// 1. gives [`Self::poll_endpoint_event`] to
///    [`Endpoint::handle_event`](crate::Endpoint::handle_event), until it returns `None`. This step
///    comes before sending, to route answers to the connection;
/// 2. calls [`Self::poll_transmit`] and sends the written datagrams, until it returns `None`;
/// 3. calls [`Self::poll`] and tells the application, until it returns `None`. Calls of the
///    application are new inputs: back to the first step;
/// 4. sets a timer for [`Self::poll_timeout`]; any of the calls above may have changed the time.
///
/// Handlers never send, so the order of inputs does not matter otherwise. Once [`Self::is_drained`]
/// is true, the connection can be dropped after its last endpoint event.
///
/// # Examples
///
/// The outputs after an input:
///
/// ```
/// use std::time::Instant;
///
/// use mpquic_core::{Connection, ConnectionHandle, Endpoint, Event, Transmit};
///
/// /// Returns when `handle_timeout` is to be called.
/// fn drive(
///     now: Instant,
///     endpoint: &mut Endpoint,
///     (handle, connection): (ConnectionHandle, &mut Connection),
///     send: impl Fn(&Transmit, &[u8]),
///     tell: impl Fn(Event),
/// ) -> Option<Instant> {
///     while let Some(event) = connection.poll_endpoint_event() {
///         endpoint.handle_event(handle, event);
///     }
///     let mut datagrams = Vec::new();
///     while let Some(transmit) = connection.poll_transmit(now, 10, &mut datagrams) {
///         send(&transmit, &datagrams);
///         datagrams.clear();
///     }
///     while let Some(event) = connection.poll() {
///         tell(event);
///     }
///     connection.poll_timeout().map(|(time, _reason)| time)
/// }
/// ```
pub struct Connection {
    side: Side,
    config: Arc<TransportConfig>,
    endpoint_config: Arc<EndpointConfig>,
    random: SeededRandom,
    handshake: Handshake,
    paths: Paths,
    streams: StreamSet,
    datagrams: DatagramQueues,
    scheduling: SchedulerHost,
    state: State,
    idle: IdleTimer,
    outbox: Outbox,
    /// Memory for the result of processing an acknowledgement, kept for reuse.
    outcome: Option<Box<AckOutcome>>,
    #[cfg(feature = "testing")]
    injected: Injected,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("side", &self.side)
            .field("paths", &self.paths.iter().count())
            .field("closing", &self.state)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// The next event for the application.
    pub fn poll(&mut self) -> Option<Event> {
        self.outbox
            .next_event()
            .or_else(|| self.streams.poll().map(Event::Stream))
    }

    /// The next event for the endpoint. Call it until it returns `None` after every other call,
    /// before sending.
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.outbox.next_endpoint_event()
    }

    /// The streams: to open and accept them, and to change their limits.
    #[inline]
    pub fn streams(&mut self) -> Streams<'_> {
        Streams::new(&mut self.streams, self.state.is_open())
    }

    /// The sending half of a stream.
    pub fn send_stream(&mut self, id: StreamId) -> SendStream<'_> {
        self.streams.send_stream(id)
    }

    /// The receiving half of a stream.
    pub fn recv_stream(&mut self, id: StreamId) -> RecvStream<'_> {
        self.streams.recv_stream(id)
    }

    /// The DATAGRAMs.
    #[inline]
    pub fn datagrams(&mut self) -> Datagrams<'_> {
        Datagrams::new(&mut self.datagrams, &self.paths)
    }

    /// Opens a path (client only). The path carries data after
    /// [`PathEvent::Established`](crate::PathEvent::Established).
    ///
    /// # Errors
    ///
    /// [`OpenPathError::ServerSide`] on a server, [`OpenPathError::HandshakeIncomplete`] during the
    /// handshake, [`OpenPathError::NotNegotiated`] for a peer without multipath, and
    /// [`OpenPathError::AddressForbidden`] for an address to which the peer takes no further path.
    /// [`OpenPathError::PathsBlocked`] and [`OpenPathError::NoConnectionId`] until the peer allows
    /// more paths: try again after [`PathEvent::Available`](crate::PathEvent::Available).
    /// [`OpenPathError::Closed`] on a closed connection.
    pub fn open_path(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        status: PathStatus,
    ) -> Result<PathId, OpenPathError> {
        self.outbox.set_time(now);
        if !self.state.is_open() {
            return Err(OpenPathError::Closed);
        }
        self.paths
            .open_path(now, four_tuple, status, &mut self.outbox)
    }

    /// Abandons a path. Its data in flight is sent again on other paths.
    ///
    /// # Errors
    ///
    /// [`ClosePathError::NoSuchPath`] for an unknown or abandoned path.
    /// [`ClosePathError::LastPath`] for the only open path: use [`Self::close`] to end the
    /// connection. (A peer may abandon the last path, which also ends the connection.)
    pub fn close_path(
        &mut self,
        now: Instant,
        path: PathId,
        error_code: TransportErrorCode,
    ) -> Result<(), ClosePathError> {
        self.paths.may_close(path)?;
        self.outbox.set_time(now);
        let outbox = &mut self.outbox;
        let abandonment = self.paths.abandon(path, error_code, false, outbox);
        self.after_abandonment(now, abandonment);
        Ok(())
    }

    /// An open path.
    ///
    /// # Errors
    ///
    /// [`ClosedPath`] for an unknown or abandoned path.
    #[inline]
    pub fn path_mut(&mut self, path: PathId) -> Result<PathMut<'_>, ClosedPath> {
        PathMut::new(path, &mut self.paths, &mut self.outbox)
    }

    /// Hint from the driver: the path's socket or interface is gone (`up` false) or back. A down
    /// path is suspect at once.
    ///
    /// # Errors
    ///
    /// [`ClosedPath`] for an unknown or abandoned path.
    pub fn set_path_usable(
        &mut self,
        now: Instant,
        path: PathId,
        up: bool,
    ) -> Result<(), ClosedPath> {
        self.outbox.set_time(now);
        self.paths.set_interface_up(path, up, &mut self.outbox)?;
        self.repeat_frames();
        Ok(())
    }

    /// Server: announces all of its addresses besides the one that the client connected to, the
    /// best first; what is missing is withdrawn. Only clients that asked for them are told.
    ///
    /// # Errors
    ///
    /// The errors of [`ServerAddress::check_all`], and an error on a client or a closed connection.
    pub fn announce_addresses(&mut self, addresses: &[ServerAddress]) -> Result<(), AnnounceError> {
        if !self.state.is_open() {
            return Err(AnnounceError::Closed);
        }
        self.paths.announce_addresses(addresses)
    }

    /// The scheduler and the congestion controller.
    pub fn policies(&mut self) -> Policies<'_> {
        let (host, outbox) = (&mut self.scheduling, &mut self.outbox);
        Policies::new(&self.config, host, &self.paths, outbox)
    }

    /// Paths that are not discarded, in order of ID.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.paths.existing()
    }

    /// Statistics of a path.
    pub fn path_stats(&self, path: PathId) -> Option<PathStats> {
        self.paths.stats(path, &self.outbox.controller)
    }

    /// Statistics of the connection.
    pub fn stats(&self) -> ConnectionStats {
        let (handshake, outbox) = (&self.handshake, &self.outbox);
        let (streams, datagrams) = (&self.streams, &self.datagrams);
        let counts = datagrams.counts();
        ConnectionStats {
            streams_expired: streams.expired(),
            datagram_frames_expired: counts.expired,
            datagram_frames_unplaced: counts.unplaced,
            bytes_repeated: outbox.stats.bytes_repeated + counts.copied,
            memory: account::memory(handshake, &self.paths, streams, datagrams, outbox),
            bytes_received_again: streams.received_again,
            last_received: self.idle.last_received(),
            ..self.outbox.stats.clone()
        }
    }

    /// Application protocol (ALPN) and server name, once they are known.
    pub fn handshake_data(&self) -> Option<HandshakeData> {
        self.handshake.data()
    }

    /// The peer's certificates, once the handshake is complete.
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.handshake.peer_certificates()
    }

    /// Fills `output` with keying material that only the two sides of this connection can make:
    /// equal on both for equal `label` and `context`, and unrelated to the material of other
    /// connections (RFC 5705, RFC 8446 section 7.5). It can be exported until the connection is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`ExportError::HandshakeIncomplete`] before [`Event::Connected`], even with 0-RTT. All other
    /// errors mean a length of `label` or `output` that TLS forbids; `output` may have changed
    /// then.
    pub fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.handshake
            .export_keying_material(output, label, context)
    }

    /// The version of QUIC in use. A client knows it once the handshake is complete; until then the
    /// server may choose another one.
    pub fn version(&self) -> Version {
        self.handshake.version()
    }

    /// Whether data written before the end of the handshake was sent as 0-RTT. An attacker can
    /// replay 0-RTT data: send only what may safely arrive twice.
    pub fn zero_rtt(&self) -> ZeroRtt {
        self.handshake.zero_rtt_state()
    }

    /// Starts a key update (RFC 9001 section 6). Returns false if an update is not allowed yet.
    pub fn initiate_key_update(&mut self, now: Instant) -> bool {
        self.outbox.set_time(now);
        self.handshake.initiate_key_update(now, &mut self.outbox)
    }

    /// Makes new connection IDs for all paths and asks the peer to retire those it has, for example
    /// because the key that encrypts them has changed (RFC 9000 section 5.1.2). What is under way
    /// to the old ones arrives.
    pub fn replace_connection_ids(&mut self) {
        self.paths.replace_cids();
        if self.handshake.is_complete() && !self.is_closed() {
            self.paths.issue_cids(&mut self.outbox);
        }
    }

    /// Whether we are client or server.
    pub fn side(&self) -> Side {
        self.side
    }

    /// True until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        !self.handshake.is_complete()
    }

    /// True once `close` was called or the connection was lost.
    pub fn is_closed(&self) -> bool {
        !self.state.is_open()
    }

    /// True once nothing more will be sent or received.
    pub fn is_drained(&self) -> bool {
        self.state.is_drained()
    }

    /// True if both sides support multipath; known once connected.
    pub fn is_multipath(&self) -> bool {
        self.paths.ids.is_multipath()
    }

    /// True once the handshake is confirmed (RFC 9001 section 4.1.2): a client may move paths from
    /// then on.
    pub fn is_handshake_confirmed(&self) -> bool {
        self.handshake.is_confirmed()
    }
}
