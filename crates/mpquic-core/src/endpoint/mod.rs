//! The endpoint: routes datagrams to connections and starts new ones.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{ConnectionId, EcnCodepoint};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use thiserror::Error;

use crate::cid::generator::CidSource;
use crate::config::{ClientConfig, EndpointConfig, ServerConfig};
use crate::connection::Connection;
use crate::crypto::Unstarted;
use crate::crypto::tokens::{ResetKey, Token, TokenIssuer, TokenKey};
use crate::error::{ConnectionError, TransportErrorCode};
use crate::event::{Datagram, EndpointEvent, RouteChange};
use crate::handshake::setup::{ClientSetup, ConnectionSetup, Role, ServerSetup, TokenDrawer};
use crate::handshake::{Versions, local_parameters};
use crate::ids::{FourTuple, PathId};
use crate::packet::Transmit;
use crate::qlog::{Unnumbered, UnnumberedKind};
use crate::rate::TokenBucket;
use crate::version::Version;
use crate::wire::header::{self, PacketKind, Peek};
use crate::wire::transport_parameters::PreferredAddress;
use attempts::Attempts;
use incoming::Arrived;
use initial::FirstInitial;
use routes::{InitialRoute, Route, Routes};
use token::{Admission, InvalidToken, UsedTokens};

mod accepting;
mod attempts;
mod cids;
mod incoming;
mod initial;
mod log;
mod reset;
mod routes;
mod token;

pub use accepting::{Accepted, Accepting};
pub use incoming::Incoming;

/// Smallest datagram with an Initial packet (RFC 9000 section 14.1).
const MIN_INITIAL_DATAGRAM: usize = 1200;
/// Shortest destination connection ID a client may make up (RFC 9000 section 7.2).
const MIN_INITIAL_DCID: usize = 8;
/// NEW_TOKEN tokens remembered as used, twice.
const USED_TOKENS: usize = 1 << 16;

/// Names a connection within its endpoint; reused after the connection is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub usize);

/// What became of a datagram.
#[derive(Debug)]
pub enum DatagramEvent {
    /// Give it to this connection.
    Connection(ConnectionHandle, Datagram),
    /// A client wants to connect.
    NewConnection(Incoming),
    /// Send the bytes in `buf`: a Version Negotiation, close or stateless reset.
    Response(Transmit),
    /// The peer of this connection lost its state (RFC 9000 section 10.3): call
    /// [`Connection::handle_stateless_reset`].
    StatelessReset(ConnectionHandle),
}

/// Why a connection could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// The server name is invalid.
    #[error(transparent)]
    InvalidServerName(#[from] crate::crypto::InvalidServerName),
    /// The remote address has no port or is unspecified.
    #[error("{0} is not an address one can connect to")]
    InvalidRemoteAddress(std::net::SocketAddr),
    /// The configured length leaves no connection ID free.
    #[error("connection IDs are exhausted")]
    CidsExhausted,
    /// The endpoint does not speak this version.
    #[error("QUIC {0} is not among the endpoint's supported versions")]
    UnsupportedVersion(Version),
}

/// Why an incoming connection failed at once.
#[derive(Debug)]
pub struct AcceptError {
    /// Why.
    pub cause: ConnectionError,
    /// Send the bytes in `buf`.
    pub response: Option<Transmit>,
}

/// A server configuration and the key made from it.
#[derive(Debug)]
struct Server {
    config: Arc<ServerConfig>,
    token_key: Arc<TokenKey>,
}

impl Server {
    fn new(config: Arc<ServerConfig>) -> Arc<Self> {
        let token_key = Arc::new(TokenKey::new(&config.token_key));
        Arc::new(Self { config, token_key })
    }

    fn token_issuer(&self) -> Option<TokenIssuer> {
        let time_source = self.config.time_source.clone();
        (!self.config.token_lifetime.is_zero())
            .then(|| TokenIssuer::new(self.token_key.clone(), time_source))
    }
}

/// Routes datagrams for any number of connections, client and server.
pub struct Endpoint {
    config: Arc<EndpointConfig>,
    server: Option<Arc<Server>>,
    /// New connections are refused; `server` is what they are refused with.
    is_refusing: bool,
    reset_key: Arc<ResetKey>,
    rng: StdRng,
    cids: CidSource,
    routes: Routes,
    attempts: Attempts,
    used_tokens: UsedTokens,
    reset_limit: TokenBucket,
    log: log::Log,
}

impl Endpoint {
    /// An endpoint; without `server` it takes no incoming connections. Everything random derives
    /// from `seed`.
    pub fn new(
        config: Arc<EndpointConfig>,
        server: Option<Arc<ServerConfig>>,
        seed: [u8; 32],
    ) -> Self {
        let mut config = config;
        if config.supported_versions.is_empty() {
            Arc::make_mut(&mut config).supported_versions = vec![Version::V1];
        }
        let mut rng = StdRng::from_seed(seed);
        Self {
            reset_key: Arc::new(ResetKey::new(&config.reset_key)),
            cids: config.connection_ids.source(rng.random()),
            config,
            server: server.map(Server::new),
            is_refusing: false,
            rng,
            routes: Routes::default(),
            attempts: Attempts::new(),
            used_tokens: UsedTokens::new(USED_TOKENS),
            reset_limit: reset::limit(),
            log: log::Log::default(),
        }
    }

    /// Starts a connection.
    pub fn connect(
        &mut self,
        now: Instant,
        config: ClientConfig,
        four_tuple: FourTuple,
        server_name: &str,
    ) -> Result<(ConnectionHandle, Connection), ConnectError> {
        let remote = four_tuple.remote;
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectError::InvalidRemoteAddress(remote));
        }
        let supported = &self.config.supported_versions;
        let version = config.version.or(supported.iter().min().copied());
        let version = version.unwrap_or_default();
        if !supported.contains(&version) {
            return Err(ConnectError::UnsupportedVersion(version));
        }
        let local_cid = self.new_cid().ok_or(ConnectError::CidsExhausted)?;
        let random = self.rng.random();
        let mut local_parameters =
            local_parameters(&self.config, &config.transport, local_cid, random);
        let versions = Versions::new(&self.config, version, self.rng.random());
        local_parameters.version_information = Some(versions.information());
        let session = config.crypto.clone();
        let session = session.start_session(version, server_name, &local_parameters)?;
        let initial_dcid = ConnectionId::new(&self.rng.random::<[u8; MIN_INITIAL_DCID]>());
        let tokens = TokenDrawer::new(config.token_store, server_name);
        let token = tokens.take(version);
        let handle = self.routes.insert(local_cid);
        let connection = Connection::new(ConnectionSetup {
            now,
            four_tuple,
            endpoint: self.config.clone(),
            transport: config.transport,
            session,
            local_parameters,
            initial_keys: config.crypto.initial_keys(version, &initial_dcid),
            versions,
            initial_dcid,
            local_cid,
            peer_cid: initial_dcid,
            reset_key: self.reset_key.clone(),
            seed: self.rng.random(),
            role: Role::Client(Box::new(ClientSetup {
                crypto: config.crypto,
                server_name: server_name.into(),
                tokens,
                use_preferred_address: config.use_preferred_address,
                token,
            })),
        });
        Ok((handle, connection))
    }

    /// Finds out whose a datagram is. Responses are written to `buf`, which is cleared first.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        buf.clear();
        let Some(peek) = header::peek(&data, self.config.connection_ids.length()) else {
            return self.stateless_reset(&data);
        };
        if !self.speaks(&peek) {
            let reset = self.stateless_reset(&data);
            let arrived = (now, data.len(), four_tuple);
            return reset.or_else(|| self.negotiate_version(&peek, arrived, buf));
        }
        // RFC 9000 section 17.2, RFC 9287
        if !peek.has_fixed_bit && !self.config.grease_quic_bit {
            return self.stateless_reset(&data);
        }
        let route = self.routes.route(peek.dcid);
        if let Some(Route::Path(handle, path)) = route {
            let datagram = Datagram {
                now,
                four_tuple,
                ecn,
                path,
                data,
            };
            return Some(DatagramEvent::Connection(handle, datagram));
        }
        let (kind, dcid) = (peek.kind, ConnectionId::new(peek.dcid));
        if let Some(reset) = self.stateless_reset(&data) {
            return Some(reset);
        }
        match kind {
            PacketKind::Initial | PacketKind::ZeroRtt => {
                let arrived = Arrived {
                    four_tuple,
                    ecn,
                    data,
                };
                self.handle_initial(now, kind, dcid, arrived, buf)
            }
            PacketKind::OneRtt if route == Some(Route::Retired) => None,
            PacketKind::OneRtt => self.reset(now, dcid, data.len(), four_tuple, buf),
            PacketKind::Handshake
            | PacketKind::Retry
            | PacketKind::VersionNegotiation
            | PacketKind::UnsupportedVersion => None,
        }
    }

    /// False for packets of versions that are not ours, or not configured.
    fn speaks(&self, peek: &Peek<'_>) -> bool {
        match Version::from_u32(peek.version) {
            Some(version) => self.config.supported_versions.contains(&version),
            None => peek.kind != PacketKind::UnsupportedVersion,
        }
    }

    /// Whatever ends in a reset token is a reset, however it begins (RFC 9000 section 10.3).
    fn stateless_reset(&self, data: &[u8]) -> Option<DatagramEvent> {
        if data.len() < reset::MIN_RESET {
            return None;
        }
        self.routes.reset(data).map(DatagramEvent::StatelessReset)
    }

    /// Takes an Initial or 0-RTT packet to a connection ID that is not ours.
    fn handle_initial(
        &mut self,
        now: Instant,
        kind: PacketKind,
        dcid: ConnectionId,
        arrived: Arrived,
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        self.forget_abandoned(now);
        match self.routes.initial(&dcid) {
            Some(InitialRoute::Connection(handle)) => {
                let datagram = arrived.into_datagram(now);
                Some(DatagramEvent::Connection(handle, datagram))
            }
            Some(InitialRoute::Pending(key)) => {
                self.attempts.buffer(key, &arrived);
                None
            }
            None if kind == PacketKind::Initial => self.handle_first(now, dcid, arrived, buf),
            None => None,
        }
    }

    /// Takes what may be the first Initial of a client.
    fn handle_first(
        &mut self,
        now: Instant,
        dcid: ConnectionId,
        arrived: Arrived,
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        let server = self.server.clone()?;
        // RFC 9000 section 14.1
        if arrived.data.len() < MIN_INITIAL_DATAGRAM {
            return None;
        }
        let first = arrived.clone_alone();
        let four_tuple = arrived.four_tuple;
        let (initial, token) = FirstInitial::open(arrived.data, &*server.config.crypto)?;
        // RFC 9000 section 7.2; after a Retry the connection ID is one of ours
        if dcid.len() < MIN_INITIAL_DCID && token.is_empty() {
            return None;
        }
        let admission = Admission::new(
            (initial.version, dcid),
            &token,
            four_tuple.remote,
            (&server.config, &server.token_key),
            &mut self.used_tokens,
        );
        let is_full = self.attempts.waiting() >= server.config.max_incoming;
        let admission = match admission {
            Ok(admission) if !self.is_refusing && !is_full => admission,
            refused => {
                let code = match refused {
                    Ok(_) => TransportErrorCode::CONNECTION_REFUSED,
                    Err(InvalidToken) => TransportErrorCode::INVALID_TOKEN,
                };
                return self
                    .close(&initial, four_tuple, code, buf)
                    .map(DatagramEvent::Response);
            }
        };
        let place = self.attempts.insert(now, dcid);
        self.routes.insert_pending(dcid, place.key());
        Some(DatagramEvent::NewConnection(Incoming {
            place,
            first,
            initial,
            admission,
            server,
        }))
    }

    /// Accepts: the connection has already processed what the client has sent so far.
    ///
    /// A driver whose other tasks wait for the endpoint takes the three steps of this one at a
    /// time, as TLS takes long: [`Self::begin_accept`], [`Accepting::start`] and
    /// [`Self::finish_accept`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::begin_accept`].
    #[expect(clippy::result_large_err, reason = "rare, and moved once")]
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<(ConnectionHandle, Connection), AcceptError> {
        let (mut connection, accepted) = self.begin_accept(now, incoming, buf)?.start();
        let handle = accepted.handle();
        for datagram in self.finish_accept(now, accepted) {
            connection.handle_datagram(datagram);
        }
        Ok((handle, connection))
    }

    /// The first step of [`Self::accept`]: reserves what the connection needs of the endpoint. What
    /// the client sends before the last step, the endpoint keeps, within bounds.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::CidsExhausted`] if no connection ID is free, with an answer in `buf` that
    /// refuses the client.
    #[expect(clippy::result_large_err, reason = "rare, and moved once")]
    pub fn begin_accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<Accepting, AcceptError> {
        buf.clear();
        let config = incoming.server.config.clone();
        let Some(local_cid) = self.new_cid() else {
            self.forget(&incoming);
            let code = TransportErrorCode::CONNECTION_REFUSED;
            return Err(AcceptError {
                cause: ConnectionError::CidsExhausted,
                response: self.close(&incoming.initial, incoming.four_tuple(), code, buf),
            });
        };
        let random = self.rng.random();
        let mut local_parameters =
            local_parameters(&self.config, &config.transport, local_cid, random);
        local_parameters.original_destination_connection_id =
            Some(incoming.admission.original_dcid);
        local_parameters.retry_source_connection_id = incoming.admission.retry_scid;
        local_parameters.stateless_reset_token = Some(self.reset_key.token(&local_cid));
        local_parameters.disable_active_migration = !config.migration;
        // MP-010
        if incoming.initial.scid.is_empty() {
            local_parameters.initial_max_path_id = None;
        }
        let versions = Versions::new(&self.config, incoming.initial.version, self.rng.random());
        let handle = self.routes.insert(local_cid);
        local_parameters.preferred_address =
            self.preferred_address(handle, &config, incoming.four_tuple().local);
        let late = self
            .attempts
            .start(now, &incoming.place, incoming.initial.dcid, handle);
        // It may have expired.
        self.routes
            .insert_pending(incoming.initial.dcid, incoming.place.key());
        Ok(Accepting {
            setup: ConnectionSetup {
                now,
                four_tuple: incoming.first.four_tuple,
                endpoint: self.config.clone(),
                transport: config.transport.clone(),
                session: Box::new(Unstarted),
                local_parameters,
                initial_keys: incoming.initial.keys,
                versions,
                initial_dcid: incoming.initial.dcid,
                local_cid,
                peer_cid: incoming.initial.scid,
                reset_key: self.reset_key.clone(),
                seed: self.rng.random(),
                role: Role::Server(ServerSetup {
                    config,
                    address_validated: incoming.admission.address_validated,
                    token_issuer: incoming.server.token_issuer(),
                }),
            },
            datagrams: std::iter::once(incoming.first).chain(late).collect(),
            reserved: Accepted {
                place: incoming.place,
                handle,
                initial_dcid: incoming.initial.dcid,
            },
        })
    }

    /// The last step of [`Self::accept`]: datagrams are routed to the connection from now on.
    /// Returns those that have arrived since the first step, for the connection to handle.
    pub fn finish_accept(&mut self, now: Instant, accepted: Accepted) -> Vec<Datagram> {
        self.routes
            .set_initial(accepted.handle, accepted.initial_dcid);
        let datagrams = self.attempts.finish(&accepted.place).into_iter();
        datagrams.map(|kept| kept.into_datagram(now)).collect()
    }

    /// Where a client is to move, with a connection ID for it; `None` if it is there already.
    fn preferred_address(
        &mut self,
        handle: ConnectionHandle,
        config: &ServerConfig,
        local: SocketAddr,
    ) -> Option<PreferredAddress> {
        let (ipv4, ipv6) = (config.preferred_address_v4, config.preferred_address_v6);
        let (v4, v6) = (ipv4.map(SocketAddr::V4), ipv6.map(SocketAddr::V6));
        let is_there = [v4, v6].contains(&Some(local));
        if v4.or(v6).is_none() || is_there {
            return None;
        }
        let connection_id = self.new_cid()?;
        let issued = RouteChange::ConnectionIdIssued(connection_id, PathId::ZERO);
        self.routes.on_change(handle, issued);
        Some(PreferredAddress {
            ipv4,
            ipv6,
            connection_id,
            stateless_reset_token: self.reset_key.token(&connection_id),
        })
    }

    /// Refuses with CONNECTION_REFUSED.
    pub fn refuse(&mut self, incoming: Incoming, buf: &mut Vec<u8>) -> Transmit {
        buf.clear();
        self.forget(&incoming);
        let (four_tuple, code) = (
            incoming.four_tuple(),
            TransportErrorCode::CONNECTION_REFUSED,
        );
        self.close(&incoming.initial, four_tuple, code, buf)
            .unwrap_or_else(|| response(four_tuple, buf))
    }

    /// Asks the client to prove its address.
    ///
    /// # Errors
    ///
    /// Gives the attempt back if its client has answered a Retry already, or no connection ID is
    /// free.
    #[expect(
        clippy::result_large_err,
        reason = "the attempt goes back to its owner"
    )]
    pub fn retry(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<Transmit, Incoming> {
        self.forget_abandoned(now);
        // RFC 9000 section 17.2.5.1
        if !incoming.may_retry() {
            return Err(incoming);
        }
        let Some(retry_scid) = self.new_cid() else {
            return Err(incoming);
        };
        buf.clear();
        self.forget(&incoming);
        let Server { config, token_key } = &*incoming.server;
        let FirstInitial {
            version,
            dcid,
            scid,
            ..
        } = incoming.initial;
        let token = Token::Retry {
            version,
            address: incoming.four_tuple().remote,
            original_dcid: dcid,
            retry_scid,
            issued: config.time_source.now(),
        };
        let token = token.seal(token_key, self.rng.random());
        header::encode_retry(buf, version, &scid, &retry_scid, &token);
        let tag = config.crypto.retry_tag(version, &dcid, buf);
        buf.extend_from_slice(&tag);
        let packet = Unnumbered {
            destination: &scid,
            source: &retry_scid,
            original_dcid: &dcid,
            size: buf.len(),
            kind: UnnumberedKind::Retry {
                version,
                token: &token,
            },
        };
        self.log.sent(now, &incoming.server, &packet);
        Ok(response(incoming.four_tuple(), buf))
    }

    /// Forgets the attempt silently.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.forget(&incoming);
    }

    /// Takes what a connection tells its endpoint.
    pub fn handle_event(&mut self, connection: ConnectionHandle, event: EndpointEvent) {
        self.routes.on_change(connection, event.0);
    }

    /// Connections not yet drained.
    pub fn open_connections(&self) -> usize {
        self.routes.len()
    }

    /// Replaces the server configuration; `None` refuses new connections from now on.
    pub fn set_server_config(&mut self, server: Option<Arc<ServerConfig>>) {
        self.is_refusing = server.is_none();
        if let Some(server) = server {
            self.server = Some(Server::new(server));
        }
    }

    fn forget(&mut self, incoming: &Incoming) {
        self.routes
            .remove_pending(&incoming.initial.dcid, incoming.place.key());
        self.attempts.remove(&incoming.place);
    }

    /// Forgets attempts that nobody decided on in time, or that were dropped.
    fn forget_abandoned(&mut self, now: Instant) {
        while let Some(abandoned) = self.attempts.take_abandoned(now) {
            self.routes
                .remove_pending(&abandoned.initial_dcid, abandoned.key);
            if let Some(handle) = abandoned.handle {
                self.routes.on_change(handle, RouteChange::Drained);
            }
        }
    }

    fn close(
        &mut self,
        initial: &FirstInitial,
        four_tuple: FourTuple,
        code: TransportErrorCode,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        // Nothing comes back to it, so that it may be in use.
        let server_cid = self.cids.generate(|_| false)?;
        initial.close(four_tuple, server_cid, code, buf)
    }

    /// Answers a packet of another version (RFC 9000 section 6).
    fn negotiate_version(
        &mut self,
        peek: &Peek<'_>,
        (now, size, four_tuple): (Instant, usize, FourTuple),
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        // RFC 9000 sections 5.2.2 and 14.1: no answer to what would be no connection attempt
        let server = self.server.as_ref();
        let server = server.filter(|_| size >= MIN_INITIAL_DATAGRAM)?;
        let offered = self.config.supported_versions.iter();
        let mut versions: Vec<_> = offered.map(|version| version.to_u32()).collect();
        // RFC 9000 section 6.3: a version nobody speaks, other than the client's
        let reserved = Version::reserved(self.rng.random());
        versions.push(match reserved == peek.version {
            true => reserved ^ 0x1000_0000,
            false => reserved,
        });
        header::encode_version_negotiation(buf, peek.scid, peek.dcid, &versions);
        let packet = Unnumbered {
            destination: peek.scid,
            source: peek.dcid,
            original_dcid: peek.dcid,
            size: buf.len(),
            kind: UnnumberedKind::VersionNegotiation {
                versions: &versions,
                spoken: &self.config.supported_versions,
                chosen: None,
            },
        };
        self.log.sent(now, server, &packet);
        Some(DatagramEvent::Response(response(four_tuple, buf)))
    }

    /// Answers a packet of a connection that is not known here.
    fn reset(
        &mut self,
        now: Instant,
        dcid: ConnectionId,
        trigger: usize,
        four_tuple: FourTuple,
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        let size = reset::reset_size(trigger, &mut self.rng)?;
        if !self.reset_limit.take(now) {
            return None;
        }
        let token = self.reset_key.token(&dcid);
        reset::write_reset(buf, size, token, &mut self.rng);
        Some(DatagramEvent::Response(response(four_tuple, buf)))
    }

    fn new_cid(&mut self) -> Option<ConnectionId> {
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

/// A datagram without a connection: all of `buf`.
fn response(four_tuple: FourTuple, buf: &[u8]) -> Transmit {
    Transmit {
        path: None,
        four_tuple,
        ecn: None,
        size: buf.len(),
        segment_size: None,
    }
}

#[cfg(test)]
mod tests;
