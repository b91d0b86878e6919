//! [`Endpoint`], and how it routes datagrams.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{ConnectionId, EcnCodepoint};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::address_validation::{Admission, InvalidToken, SpentProofs};
use super::answers::{Answers, Unproven};
use super::attempts::Attempts;
use super::incoming::Incoming;
use super::initial::FirstInitial;
use super::pressure::{Answer, Answered, Demand, Pressure};
use super::routes::{ConnectionHandle, InitialRoute, Route, RouteCounts, Routes};
use super::server::Server;
use super::stateless_reset::MIN_RESET;
use super::stats::EndpointStats;
use super::unrouted::UnroutedDatagram;
use crate::cid::generator::CidSource;
use crate::config::{EndpointConfig, ServerConfig};
use crate::crypto::tokens::ResetKey;
use crate::error::TransportErrorCode;
use crate::event::{Datagram, EndpointEvent, RouteChange};
use crate::ids::FourTuple;
use crate::memory::EndpointMemory;
use crate::packet::Transmit;
use crate::version::Version;
use crate::wire::buf::{MIN_DATAGRAM, MIN_INITIAL_DCID};
use crate::wire::header::{self, PacketKind, Peek};

/// Half the number of connections, and of networks, whose NEW_TOKEN tokens were used that are
/// remembered.
const SPENT_PROOFS: usize = 1 << 16;

/// The result of handling a received datagram.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatagramEvent {
    /// Give it to this connection.
    Connection(ConnectionHandle, Datagram),
    /// A client wants to connect.
    NewConnection(Incoming),
    /// Send the bytes in `buf`: a Version Negotiation packet, a CONNECTION_CLOSE or a stateless
    /// reset.
    Response(Transmit),
    /// The peer of this connection lost its state (RFC 9000 section 10.3): call
    /// [`Connection::handle_stateless_reset`](crate::Connection::handle_stateless_reset).
    StatelessReset(ConnectionHandle),
}

/// A datagram that needs no action of the caller.
enum Silent {
    /// The datagram is kept until its connection is accepted.
    Kept,
    /// The datagram belongs to no connection and gets no answer.
    Dropped,
}

/// The decision on a client's first datagram.
enum Verdict {
    /// The application decides.
    Take(Admission),
    /// The client has to prove its address first.
    Retry,
    Close(TransportErrorCode),
    Drop,
}

/// Routes datagrams for any number of connections, client and server.
///
/// # Examples
///
/// A client's first datagram reaches a server, which accepts:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Instant;
///
/// use mpquic_core::config::{EndpointConfig, TransportConfig};
/// use mpquic_core::{DatagramEvent, Endpoint, FourTuple};
/// # use mpquic_sim::null_crypto::NullCrypto;
///
/// let transport = TransportConfig::new(mpquic_sched::default(), mpquic_cc::default());
/// # let (transport, crypto) = (Arc::new(transport), NullCrypto::new(b"example"));
/// # let client_config = crypto.clone().client(transport.clone());
/// # let server_config = crypto.server(transport);
/// let config = |key| Arc::new(EndpointConfig::new([key; 32]));
/// let mut client = Endpoint::new(config(1), None, [1; 32]);
/// let mut server = Endpoint::new(config(2), Some(Arc::new(server_config)), [2; 32]);
///
/// let now = Instant::now();
/// let at_client = FourTuple::new("192.0.2.1:5000".parse()?, "192.0.2.2:443".parse()?);
/// let (_, mut connection) = client.connect(now, client_config, at_client, "server.test")?;
/// let mut datagram = Vec::new();
/// let transmit = connection.poll_transmit(now, 1, &mut datagram).ok_or("nothing to send")?;
///
/// let at_server = FourTuple::new(transmit.four_tuple.remote, transmit.four_tuple.local);
/// let mut response = Vec::new();
/// let datagram = datagram[..].into();
/// match server.handle_datagram(now, at_server, None, datagram, &mut response) {
///     Some(DatagramEvent::NewConnection(incoming)) => {
///         let (_, accepted) = server
///             .accept(now, incoming, &mut response)
///             .map_err(|error| error.cause)?;
///         assert!(accepted.is_handshaking());
///     }
///     other => panic!("a new connection, not {other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint {
    pub(super) config: Arc<EndpointConfig>,
    /// The memory of all connections.
    pub(super) memory: Arc<EndpointMemory>,
    pub(super) server: Option<Arc<Server>>,
    /// New connections are refused, with the keys of `server`.
    pub(super) is_refusing: bool,
    pub(super) reset_key: Arc<ResetKey>,
    pub(super) random: StdRng,
    pub(super) cids: CidSource,
    pub(super) routes: Routes,
    pub(super) attempts: Attempts,
    pub(super) spent_proofs: SpentProofs,
    pub(super) pressure: Pressure,
    pub(super) answered: Answered,
    pub(super) answers: Answers,
    pub(super) stats: EndpointStats,
}

impl Endpoint {
    /// An endpoint; without `server` it accepts no connections. All its randomness is derived from
    /// `seed`.
    pub fn new(
        config: Arc<EndpointConfig>,
        server: Option<Arc<ServerConfig>>,
        seed: [u8; 32],
    ) -> Self {
        let reset_key = Arc::new(ResetKey::new(&config.reset_key));
        let mut random = StdRng::from_seed(seed);
        Self {
            answers: Answers::new(random.random(), reset_key.clone()),
            reset_key,
            memory: Arc::new(EndpointMemory::new(config.memory_limit)),
            cids: config.connection_ids.source(random.random()),
            config,
            server: server.map(Server::new),
            is_refusing: false,
            random,
            routes: Routes::default(),
            attempts: Attempts::new(),
            spent_proofs: SpentProofs::new(SPENT_PROOFS),
            pressure: Pressure::default(),
            answered: Answered::default(),
            stats: EndpointStats::default(),
        }
    }

    /// Routes a datagram. Responses are written to `buf`, which is cleared first.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        buf.clear();
        let unrouted = UnroutedDatagram {
            four_tuple,
            ecn,
            data,
        };
        match self.route(now, unrouted, buf) {
            Ok(event) => Some(event),
            Err(Silent::Kept) => None,
            Err(Silent::Dropped) => {
                self.stats.datagrams_dropped += 1;
                None
            }
        }
    }

    fn route(
        &mut self,
        now: Instant,
        datagram: UnroutedDatagram,
        buf: &mut Vec<u8>,
    ) -> Result<DatagramEvent, Silent> {
        let data = &datagram.data;
        let Some(peek) = header::peek(data, self.config.connection_ids.length()) else {
            return self.find_reset(data).ok_or(Silent::Dropped);
        };
        if !self.speaks(&peek) {
            return match self.find_reset(data) {
                Some(reset) => Ok(reset),
                None => self.negotiate_version(now, &datagram, &peek, buf),
            };
        }
        // RFC 9000 section 17.2, RFC 9287
        if !peek.has_fixed_bit && !self.config.grease_quic_bit {
            return self.find_reset(data).ok_or(Silent::Dropped);
        }
        let route = self.routes.route(peek.dcid);
        if let Some(Route::Path(handle, path)) = route {
            let datagram = Datagram {
                path,
                ..datagram.into_datagram(now)
            };
            return Ok(DatagramEvent::Connection(handle, datagram));
        }
        if let Some(reset) = self.find_reset(data) {
            return Ok(reset);
        }
        let (kind, dcid) = (peek.kind, ConnectionId::new(peek.dcid));
        match kind {
            PacketKind::Initial | PacketKind::ZeroRtt => {
                self.route_initial(now, kind, dcid, datagram, buf)
            }
            PacketKind::OneRtt if route.is_none() => {
                self.reset(now, dcid, &datagram, buf).ok_or(Silent::Dropped)
            }
            PacketKind::OneRtt
            | PacketKind::Handshake
            | PacketKind::Retry
            | PacketKind::VersionNegotiation
            | PacketKind::UnsupportedVersion => Err(Silent::Dropped),
        }
    }

    /// False for packets of versions that are not known or not configured.
    fn speaks(&self, peek: &Peek<'_>) -> bool {
        match Version::from_u32(peek.version) {
            Some(version) => self.config.supported_versions.contains(&version),
            None => peek.kind != PacketKind::UnsupportedVersion,
        }
    }

    /// A datagram that ends with a reset token is a stateless reset, however it begins (RFC 9000
    /// section 10.3).
    fn find_reset(&self, data: &[u8]) -> Option<DatagramEvent> {
        if data.len() < MIN_RESET {
            return None;
        }
        self.routes.reset(data).map(DatagramEvent::StatelessReset)
    }

    /// Routes an Initial or 0-RTT packet whose destination connection ID is not one of ours.
    fn route_initial(
        &mut self,
        now: Instant,
        kind: PacketKind,
        dcid: ConnectionId,
        datagram: UnroutedDatagram,
        buf: &mut Vec<u8>,
    ) -> Result<DatagramEvent, Silent> {
        self.forget_abandoned(now);
        match self.routes.initial(&dcid) {
            Some(InitialRoute::Connection(handle)) => {
                let datagram = datagram.into_datagram(now);
                Ok(DatagramEvent::Connection(handle, datagram))
            }
            Some(InitialRoute::Attempt(key)) => {
                if self.attempts.keep(key, &datagram) {
                    Err(Silent::Kept)
                } else {
                    Err(Silent::Dropped)
                }
            }
            None if kind == PacketKind::Initial => self.meet(now, dcid, datagram, buf),
            None => Err(Silent::Dropped),
        }
    }

    /// Handles a datagram that may be a client's first. Under pressure, a datagram that is turned
    /// away is not even opened.
    fn meet(
        &mut self,
        now: Instant,
        dcid: ConnectionId,
        datagram: UnroutedDatagram,
        buf: &mut Vec<u8>,
    ) -> Result<DatagramEvent, Silent> {
        let server = self.server.clone().ok_or(Silent::Dropped)?;
        // RFC 9000 section 14.1
        if datagram.data.len() < MIN_DATAGRAM {
            return Err(Silent::Dropped);
        }
        let demand = self.demand(now, &server.config);
        if demand == Demand::Patience {
            self.stats.dropped_at_max_attempt_lag += 1;
            return Err(Silent::Dropped);
        }
        let peek = header::peek(&datagram.data, 0);
        let tokenless = peek.filter(Peek::is_initial_without_token);
        // RFC 9000 section 7.2; after a Retry the connection ID is one of ours
        if tokenless.is_some() && dcid.len() < MIN_INITIAL_DCID {
            return Err(Silent::Dropped);
        }
        let demand = if self.answered.contains(&dcid) {
            demand.max(Demand::Proof)
        } else {
            demand
        };
        if demand == Demand::Proof
            && self.has_room(&server.config)
            && let Some(peek) = tokenless
            && let Some(version) = Version::from_u32(peek.version)
        {
            let client = Unproven {
                server: &server,
                version,
                dcid,
                scid: ConnectionId::new(peek.scid),
                four_tuple: datagram.four_tuple,
            };
            let retry = self.retry_on_demand(now, &client, buf);
            return retry.map(DatagramEvent::Response).ok_or(Silent::Dropped);
        }
        self.take_attempt(now, &server, datagram, demand, buf)
    }

    /// Opens a datagram that may be the first one of a client, and decides about the client.
    fn take_attempt(
        &mut self,
        now: Instant,
        server: &Arc<Server>,
        datagram: UnroutedDatagram,
        demand: Demand,
        buf: &mut Vec<u8>,
    ) -> Result<DatagramEvent, Silent> {
        let first = datagram.detached();
        let four_tuple = datagram.four_tuple;
        let opened = FirstInitial::open(datagram.data, &*server.config.crypto);
        let (initial, token) = opened.ok_or(Silent::Dropped)?;
        let dcid = initial.dcid;
        let remote = four_tuple.remote;
        let admission = Admission::new(&initial, &token, remote, server, &mut self.spent_proofs);
        let answer = match self.judge(&server.config, dcid, admission, demand) {
            Verdict::Take(admission) => {
                let place = self.attempts.insert(now, dcid);
                self.routes.insert_attempt(dcid, place.key());
                return Ok(DatagramEvent::NewConnection(Incoming {
                    place,
                    first,
                    initial,
                    admission,
                    server: server.clone(),
                }));
            }
            Verdict::Retry => {
                let client = Unproven {
                    server,
                    version: initial.version,
                    dcid,
                    scid: initial.scid,
                    four_tuple,
                };
                self.retry_on_demand(now, &client, buf)
            }
            Verdict::Close(code) => self.close(&initial, four_tuple, code, buf),
            Verdict::Drop => None,
        };
        answer.map(DatagramEvent::Response).ok_or(Silent::Dropped)
    }

    /// Decides whether there is room for an attempt, and counts attempts without room.
    fn judge(
        &mut self,
        config: &ServerConfig,
        dcid: ConnectionId,
        admission: Result<Admission, InvalidToken>,
        demand: Demand,
    ) -> Verdict {
        let Ok(admission) = admission else {
            self.stats.invalid_tokens += 1;
            return Verdict::Close(TransportErrorCode::INVALID_TOKEN);
        };
        if !self.has_room(config) {
            if self.answered.insert(dcid, Answer::Refusal) {
                self.stats.refused_handshakes += 1;
                self.stats.refused_at_max_connections += u64::from(self.are_all_open(config));
                self.stats.refused_at_memory_limit += u64::from(self.memory.is_full());
            }
            return Verdict::Close(TransportErrorCode::CONNECTION_REFUSED);
        }
        if !admission.address_validated && demand != Demand::Nothing {
            return Verdict::Retry;
        }
        if self.half_open_connections() >= config.max_half_open_connections {
            self.stats.dropped_at_max_half_open += 1;
            return Verdict::Drop;
        }
        Verdict::Take(admission)
    }

    /// The present condition for accepting a new client.
    fn demand(&mut self, now: Instant, config: &ServerConfig) -> Demand {
        let half_open = self.half_open_connections();
        let completed = self.routes.completed();
        let demand = self.pressure.demand(now, config, half_open, completed);
        if self.memory.is_short() {
            demand.max(Demand::Proof)
        } else {
            demand
        }
    }

    /// False while all clients are refused.
    fn has_room(&self, config: &ServerConfig) -> bool {
        let is_waiting_full = self.attempts.waiting() >= config.max_incoming;
        let is_full = is_waiting_full || self.are_all_open(config) || self.memory.is_full();
        !self.is_refusing && !is_full
    }

    fn are_all_open(&self, config: &ServerConfig) -> bool {
        self.routes.accepted() + self.attempts.waiting() >= config.max_connections
    }

    /// Asks a client to prove its address, if a connection ID is free.
    fn retry_on_demand(
        &mut self,
        now: Instant,
        client: &Unproven<'_>,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let retry_scid = self.new_cid()?;
        self.answered.insert(client.dcid, Answer::Retry);
        self.stats.retries += 1;
        self.stats.retries_on_demand += 1;
        Some(self.answers.retry(now, client, retry_scid, buf))
    }

    /// Handles what a connection tells its endpoint.
    pub fn handle_event(&mut self, connection: ConnectionHandle, event: EndpointEvent) {
        self.routes.on_change(connection, event.0);
    }

    /// Number of connections that are not drained yet, or are being accepted.
    pub fn open_connections(&self) -> usize {
        self.routes.len()
    }

    /// Numbers of entries in the routing tables, counted in time proportional to the number of
    /// connections.
    pub fn routes(&self) -> RouteCounts {
        self.routes.counts()
    }

    /// Number of connection attempts that wait for a decision, and of accepted connections that are
    /// not drained yet and whose handshake is not complete.
    pub fn half_open_connections(&self) -> usize {
        self.attempts.waiting() + self.routes.half_open()
    }

    /// False after a decision that took too long: the client has given up, the endpoint has
    /// forgotten the attempt, and no decision is necessary any more.
    pub fn is_waiting(&self, incoming: &Incoming) -> bool {
        self.attempts.is_waiting(&incoming.place)
    }

    /// Counters since the endpoint was made.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats {
            memory: self.memory.total() + self.attempts.memory(),
            ..self.stats
        }
    }

    /// Tells the endpoint how much memory the driver's buffers keep, bytes: they count towards
    /// [`memory_limit`](crate::config::EndpointOptions::memory_limit).
    pub fn set_buffer_memory(&mut self, bytes: u64) {
        self.memory.set_buffers(bytes);
    }

    /// Tells the endpoint for how long the oldest attempt to connect has waited for the application
    /// to take it, while datagrams of connections went first: so long the driver lags behind. See
    /// [`retry_attempt_lag`](crate::config::ServerOptions::retry_attempt_lag).
    pub fn set_lag(&mut self, lag: Duration) {
        self.pressure.lag = lag;
    }

    /// Replaces the server configuration; `None` refuses new connections from now on.
    pub fn set_server_config(&mut self, server: Option<Arc<ServerConfig>>) {
        self.is_refusing = server.is_none();
        if let Some(server) = server {
            self.server = Some(Server::new(server));
        }
    }

    /// Drops attempts without a decision in time, or with a dropped value.
    pub(super) fn forget_abandoned(&mut self, now: Instant) {
        while let Some(abandoned) = self.attempts.take_abandoned(now) {
            self.routes
                .remove_attempt(&abandoned.initial_dcid, abandoned.key);
            match abandoned.handle {
                Some(handle) => self.routes.on_change(handle, RouteChange::Drained),
                None => self.stats.ignored_handshakes += 1,
            }
        }
    }

    /// Closes a client's attempt.
    pub(super) fn close(
        &mut self,
        initial: &FirstInitial,
        four_tuple: FourTuple,
        code: TransportErrorCode,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        // No packet will answer this connection ID, so a collision with a used ID is harmless.
        let server_cid = self.cids.generate(|_| false)?;
        initial.close(four_tuple, server_cid, code, buf)
    }

    /// Answers a packet of another version, if it could begin a connection.
    fn negotiate_version(
        &mut self,
        now: Instant,
        datagram: &UnroutedDatagram,
        peek: &Peek<'_>,
        buf: &mut Vec<u8>,
    ) -> Result<DatagramEvent, Silent> {
        // RFC 9000 sections 5.2.2 and 14.1: no answer if we are no server or the datagram is too
        // small
        let server = self.server.as_ref();
        let server = server.filter(|_| datagram.data.len() >= MIN_DATAGRAM);
        let server = server.ok_or(Silent::Dropped)?;
        let supported = &self.config.supported_versions;
        self.answers
            .negotiate_version(now, server, supported, peek, buf);
        self.stats.version_negotiations += 1;
        let answer = Transmit::without_connection(datagram.four_tuple, buf);
        Ok(DatagramEvent::Response(answer))
    }

    /// Answers a packet of a connection that is not known here.
    fn reset(
        &mut self,
        now: Instant,
        dcid: ConnectionId,
        datagram: &UnroutedDatagram,
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        let (size, four_tuple) = (datagram.data.len(), datagram.four_tuple);
        let reset = self
            .answers
            .stateless_reset(now, dcid, size, four_tuple, buf)?;
        self.stats.stateless_resets += 1;
        Some(DatagramEvent::Response(reset))
    }

    pub(super) fn new_cid(&mut self) -> Option<ConnectionId> {
        self.cids.generate(|cid| self.routes.is_issued(cid))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("connections", &self.routes.len())
            .field("waiting", &self.attempts.waiting())
            .finish_non_exhaustive()
    }
}
