//! [`Pair`]: a client and a server on a topology, ready to connect.

use std::net::{SocketAddr, SocketAddrV4};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use mpquic_core::config::{
    ClientConfig, ConnectionIds, EndpointConfig, EndpointOptions, InvalidOption, ServerConfig,
    TransportOptions,
};
use mpquic_core::knowledge::MemoryStore;
use mpquic_core::{
    Connection, Dir, Endpoint, Event, FourTuple, OpenPathError, PathEvent, PathId, PathStatus,
    RouteCounts, StreamId, TimeSource, VarInt, Version,
};

use crate::agreement;
use crate::host::{AcceptPolicy, Host, Hosted, OnResume};
use crate::lab::{Lab, TimedOut};
use crate::learnt::Learnt;
use crate::link::{Change, Link, LinkCounters};
use crate::network::HostId;
use crate::null_crypto::NullCrypto;
use crate::tls::{SERVER_NAME, Tls};
use crate::topology::{PathLinks, Topology};
use crate::transfers::{Incoming, Outgoing, Transfers};

mod path_manager;
#[cfg(test)]
mod recorded;
#[cfg(test)]
pub(crate) mod tests;

/// UDP port of the client.
const CLIENT_PORT: u16 = 50_000;
/// UDP port of the server.
const SERVER_PORT: u16 = 4433;
const ALPN: &[u8] = b"mpquic-sim";

/// How packets are protected.
#[derive(Debug, Clone, Default)]
pub enum Crypto {
    /// No protection: fast, and enough to study transport behaviour.
    #[default]
    Null,
    /// TLS 1.3 as on the wire. If two pairs get clones of one [`Tls`], the second can resume a
    /// session.
    Tls(Tls),
}

impl Crypto {
    /// TLS with a fresh configuration.
    pub fn tls() -> Self {
        Self::Tls(Tls::new(ALPN))
    }
}

/// The setup of a pair.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How packets are protected.
    pub crypto: Crypto,
    /// The client's transport options.
    pub client: TransportOptions,
    /// The server's transport options.
    pub server: TransportOptions,
    /// How both sides generate connection IDs.
    pub connection_ids: ConnectionIds,
    /// The server's reaction to connection attempts.
    pub accept: AcceptPolicy,
    /// Whether the server accepts address changes of the client.
    pub migration: bool,
    /// QUIC versions of the client, the preferred one first.
    pub client_versions: Vec<Version>,
    /// QUIC versions of the server, the preferred one first.
    pub server_versions: Vec<Version>,
    /// An IPv4 address to which the server asks clients to move. The caller has to add routes to
    /// it.
    pub preferred_address: Option<SocketAddrV4>,
    /// Whether the client's first flight leaves on all paths of the topology.
    pub starts_everywhere: bool,
    /// Whether the invariants of both connections are checked after each event.
    pub checks: bool,
}

impl Setup {
    /// Default scheduler and controller, default transport.
    pub fn new() -> Self {
        Self::with_policies(mpquic_sched::default(), mpquic_cc::default())
    }

    /// Default transport with these policies on both sides.
    pub fn with_policies(
        scheduler: Arc<dyn mpquic_core::sched::SchedulerFactory>,
        controller: Arc<dyn mpquic_core::congestion::ControllerFactory>,
    ) -> Self {
        let mut transport = TransportOptions::new(scheduler, controller);
        transport.knowledge = Some(Learnt::without_tokens(Arc::new(CountedTime::default())));
        Self {
            seed: 1,
            crypto: Crypto::default(),
            client: transport.clone(),
            server: transport,
            connection_ids: ConnectionIds::default(),
            accept: AcceptPolicy::default(),
            migration: true,
            client_versions: Version::ALL.to_vec(),
            server_versions: Version::ALL.to_vec(),
            preferred_address: None,
            starts_everywhere: false,
            checks: true,
        }
    }

    /// Sets the seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Uses real TLS.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.crypto = Crypto::tls();
        self
    }

    /// Changes the transport options of both sides.
    #[must_use]
    pub fn transport(mut self, change: impl Fn(&mut TransportOptions)) -> Self {
        change(&mut self.client);
        change(&mut self.server);
        self
    }

    /// Sets the versions of both sides, the preferred one first.
    #[must_use]
    pub fn versions(mut self, client: &[Version], server: &[Version]) -> Self {
        self.client_versions = client.to_vec();
        self.server_versions = server.to_vec();
        self
    }

    pub(crate) fn endpoint_config(&self, side: Side) -> EndpointConfig {
        let (reset_key, versions) = match side {
            Side::Client => (1, &self.client_versions),
            Side::Server => (2, &self.server_versions),
        };
        let mut options = EndpointOptions::new([reset_key; 32]);
        options.connection_ids = self.connection_ids.clone();
        options.supported_versions = versions.clone();
        valid(options.build())
    }

    pub(crate) fn client_config(&self) -> ClientConfig {
        let transport = Arc::new(valid(self.client.clone().build()));
        match &self.crypto {
            Crypto::Null => NullCrypto::new(ALPN).client(transport),
            Crypto::Tls(tls) => tls.client(transport),
        }
    }

    pub(crate) fn server_config(&self) -> ServerConfig {
        let transport = Arc::new(valid(self.server.clone().build()));
        let config = match &self.crypto {
            Crypto::Null => NullCrypto::new(ALPN).server(transport),
            Crypto::Tls(tls) => tls.server(transport),
        };
        let mut options = config.options().clone();
        options.migration = self.migration;
        options.time_source = Arc::new(CountedTime::default());
        options.preferred_address_v4 = self.preferred_address;
        valid(options.build())
    }
}

/// The time of day of tokens, and of entries that connections leave for later ones: a fixed day,
/// and a millisecond later at each reading.
///
/// Equal seeds give equal bytes, and an address that is proven again has a later proof.
#[derive(Default)]
struct CountedTime {
    readings: AtomicU64,
}

impl TimeSource for CountedTime {
    fn now(&self) -> SystemTime {
        let readings = self.readings.fetch_add(1, Ordering::Relaxed);
        let day = Duration::from_secs(1_800_000_000);
        SystemTime::UNIX_EPOCH + day + Duration::from_millis(readings)
    }
}

/// Unwraps built options. Pairs are for tests and experiments, so wrong options are a mistake
/// there.
fn valid<T>(built: Result<T, InvalidOption>) -> T {
    built.unwrap_or_else(|error| panic!("{error}"))
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// True if the receiver has all data of a stream.
fn is_delivered(outgoing: &Outgoing, incoming: &Incoming) -> bool {
    if incoming.finished.is_some() {
        return incoming.received == outgoing.size;
    }
    incoming.is_over()
}

/// One side of a pair.
pub use mpquic_core::Side;

/// A client host and a server host, joined by the paths of a topology.
///
/// A pair dereferences to its [`Lab`], which has the methods for time and network.
pub struct Pair {
    lab: Lab<Transfers>,
    setup: Setup,
    client_host: HostId,
    server_host: HostId,
    paths: Vec<PathLinks>,
    client: Option<usize>,
    restarts: u8,
    /// The client's token.
    token: Arc<MemoryStore>,
    clock: Arc<CountedTime>,
}

impl Deref for Pair {
    type Target = Lab<Transfers>;

    fn deref(&self) -> &Self::Target {
        &self.lab
    }
}

impl DerefMut for Pair {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.lab
    }
}

impl Pair {
    /// Both hosts, not yet connected.
    pub fn new(topology: &Topology, setup: Setup) -> Self {
        let mut lab = Lab::new(setup.seed);
        let mut client = Host::new(
            setup.endpoint_config(Side::Client),
            None,
            setup.seed.wrapping_mul(2) + 1,
            Transfers::default,
        );
        let mut server = Host::new(
            setup.endpoint_config(Side::Server),
            Some(setup.server_config()),
            setup.seed.wrapping_mul(2) + 2,
            Transfers::default,
        );
        client.set_checks(setup.checks);
        server.set_checks(setup.checks);
        server.set_accept_policy(setup.accept);
        let client_host = lab.add_host(client);
        let server_host = lab.add_host(server);
        let paths = topology.build(&mut lab.network, client_host, server_host, 0);
        Self {
            lab,
            setup,
            client_host,
            server_host,
            paths,
            client: None,
            restarts: 0,
            token: Arc::new(MemoryStore::new(1)),
            clock: Arc::default(),
        }
    }

    /// Both hosts, connected over the first path of the topology, with a confirmed handshake.
    pub fn connected(topology: &Topology, setup: Setup) -> Self {
        let mut pair = Self::new(topology, setup);
        pair.connect();
        if let Err(error) = pair.run_until_confirmed(Duration::from_secs(60)) {
            panic!("not connected: {error}; {:?}", pair.events(Side::Client));
        }
        pair
    }

    /// Starts a connection over the first path. A second call starts another connection, and the
    /// methods of this type then refer to that connection.
    pub fn connect(&mut self) {
        self.connect_over(0);
    }

    /// The setup of further connections. Changes to the server's options have no effect any more.
    pub fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    /// Starts a connection over a path of the topology.
    pub fn connect_over(&mut self, path: usize) {
        let four_tuple = self.four_tuple(path);
        let mut setup = self.setup.clone();
        if let Some(others) = setup.client.knowledge.take() {
            let known = Learnt::with_token(self.token.clone(), others, self.clock.clone());
            setup.client.knowledge = Some(known);
        }
        let mut config = setup.client_config();
        if setup.starts_everywhere {
            let others = (0..self.paths.len()).filter(|other| *other != path);
            config.first_flight_from = others.map(|other| self.four_tuple(other)).collect();
        }
        let now = self.lab.now();
        let client = self.lab.host_mut(self.client_host);
        match client.connect(now, config, four_tuple, SERVER_NAME) {
            Ok(index) => self.client = Some(index),
            Err(error) => panic!("cannot connect: {error}"),
        }
    }

    /// The four-tuple of a path, from the client's point of view.
    pub fn four_tuple(&self, path: usize) -> FourTuple {
        let path = &self.paths[path];
        FourTuple::new(
            SocketAddr::new(path.client, CLIENT_PORT),
            SocketAddr::new(path.server, SERVER_PORT),
        )
    }

    /// The paths of the topology.
    pub fn links(&self) -> &[PathLinks] {
        &self.paths
    }

    /// The position of a named path in the topology.
    pub fn index_of(&self, name: &str) -> usize {
        let index = self.paths.iter().position(|path| path.name == name);
        index.unwrap_or_else(|| panic!("the topology has no path {name}"))
    }

    /// Changes both links of a named path now.
    pub fn change(&mut self, name: &str, change: Change) {
        let links = self.paths[self.index_of(name)].links();
        for link in links {
            self.lab.network.change_link(link, &change);
        }
    }

    /// Makes a named path a black hole, or ends the black hole.
    pub fn set_outage(&mut self, name: &str, outage: bool) {
        self.change(name, Change::Outage(outage));
    }

    /// Rebinds the NAT box of a named path to another port, or also to another IP.
    pub fn rebind(&mut self, name: &str, other_ip: bool) {
        let path = &self.paths[self.index_of(name)];
        let Some((nat, outside)) = &path.nat else {
            panic!("path {name} has no NAT box");
        };
        let nat = self.lab.network.nat(*nat);
        if other_ip {
            nat.rebind_to(outside[1]);
        } else {
            nat.rebind();
        }
    }

    /// Counters of both links of a named path: from the client, and to the client.
    pub fn counters(&self, name: &str) -> [&LinkCounters; 2] {
        let links = self.paths[self.index_of(name)].links();
        links.map(|link| self.lab.network.link(link).counters())
    }

    /// Number of packets that links, including shared links, dropped or corrupted.
    pub fn damaged(&self) -> u64 {
        let links = self.lab.network.links().iter().map(Link::counters);
        links.map(|link| link.dropped() + link.corrupted).sum()
    }

    /// Largest number of consecutive packets that a link lost at random.
    pub fn longest_loss(&self) -> u64 {
        let links = self.lab.network.links().iter().map(Link::counters);
        links.map(|link| link.longest_loss).max().unwrap_or(0)
    }

    /// The ID of a side's host.
    pub fn host_id(&self, side: Side) -> HostId {
        match side {
            Side::Client => self.client_host,
            Side::Server => self.server_host,
        }
    }

    /// The time on a side's clock, as its connection must be told.
    pub fn time(&self, side: Side) -> Instant {
        self.lab.host(self.host_id(side)).time(self.lab.now())
    }

    /// Stops a side's process until [`Self::resume`].
    pub fn stop(&mut self, side: Side) {
        let host = self.host_id(side);
        self.lab.host_mut(host).stop();
    }

    /// Resumes a side's stopped process.
    pub fn resume(&mut self, side: Side, first: OnResume) {
        let host = self.host_id(side);
        self.lab.resume(host, first);
    }

    /// Moves a side's clock forward.
    pub fn jump_clock(&mut self, side: Side, by: Duration) {
        let host = self.host_id(side);
        self.lab.host_mut(host).jump_clock(by);
    }

    /// Drops the connections and the network, and returns the endpoints of client and server.
    pub fn into_endpoints(self) -> [Endpoint; 2] {
        let mut endpoints = self.lab.into_hosts().into_iter().map(Host::into_endpoint);
        // The client's host was added first.
        match (endpoints.next(), endpoints.next()) {
            (Some(client), Some(server)) => [client, server],
            _ => unreachable!("a pair has two hosts"),
        }
    }

    /// The index of the current connection on its host, once it exists. On the server, connections
    /// appear in the order in which their Initials arrive. A client whose first attempt timed out
    /// is accepted again.
    fn index(&self, side: Side) -> Option<usize> {
        let client = self.client?;
        if side == Side::Client {
            return Some(client);
        }
        let server = self.lab.host(self.host_id(side));
        let newest = server.connections().len().checked_sub(1)?;
        (newest >= client).then_some(newest)
    }

    /// A side's connection with its application, if it exists.
    pub fn hosted(&self, side: Side) -> Option<&Hosted<Transfers>> {
        let index = self.index(side)?;
        Some(&self.lab.host(self.host_id(side)).connections()[index])
    }

    /// Like [`Self::hosted`], to call methods on.
    pub fn hosted_mut(&mut self, side: Side) -> &mut Hosted<Transfers> {
        let Some(index) = self.index(side) else {
            panic!("the {side:?} has no connection yet");
        };
        self.lab.host_mut(self.host_id(side)).connection_mut(index)
    }

    /// A side's connection.
    pub fn connection(&mut self, side: Side) -> &mut Connection {
        &mut self.hosted_mut(side).connection
    }

    /// The client's connection.
    pub fn client(&mut self) -> &mut Connection {
        self.connection(Side::Client)
    }

    /// The server's connection.
    pub fn server(&mut self) -> &mut Connection {
        self.connection(Side::Server)
    }

    /// The events that a side's connection has reported, without stream activity.
    pub fn events(&self, side: Side) -> Vec<Event> {
        let events = self.hosted(side).map(Hosted::events).unwrap_or_default();
        events.iter().map(|(_, event)| event.clone()).collect()
    }

    /// True if a side's connection has reported this event.
    pub fn has_event(&self, side: Side, wanted: &Event) -> bool {
        let events = self.hosted(side).map(Hosted::events).unwrap_or_default();
        events.iter().any(|(_, event)| event == wanted)
    }

    /// True if a side's connection has discarded a path.
    pub fn has_discarded(&self, side: Side, path: PathId) -> bool {
        let events = self.hosted(side).map(Hosted::events).unwrap_or_default();
        events.iter().any(|(_, event)| {
            matches!(event, Event::Path(PathEvent::Discarded(last)) if last.id == path)
        })
    }

    /// True if a side's connection has reported this path event.
    pub fn has_path_event(&self, side: Side, wanted: &PathEvent) -> bool {
        self.has_event(side, &Event::Path(wanted.clone()))
    }

    /// Steps until `done` holds. Returns the virtual time until then.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if `done` does not hold within `limit`, or can never hold.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<Duration, TimedOut> {
        let start = self.now();
        while !done(self) {
            match self.next_event() {
                Some(time) if time <= start + limit => self.step(),
                _ => return Err(TimedOut { limit }),
            };
        }
        Ok(self.now() - start)
    }

    /// Advances to the next event and handles all events at that instant. False if no event will
    /// come.
    ///
    /// # Panics
    ///
    /// - If a stream did not deliver exactly the bytes that its sender wrote.
    /// - If a reset, a stop or a numbered DATAGRAM does not match the other side's actions.
    /// - If an invariant does not hold.
    pub fn step(&mut self) -> bool {
        let stepped = self.lab.step();
        self.compare();
        stepped
    }

    /// Compares the events of each side with the actions of the other side.
    fn compare(&mut self) {
        for side in [Side::Client, Side::Server] {
            let Some(index) = self.index(side) else {
                continue;
            };
            let there = self.hosted(!side).map(|hosted| &hosted.application);
            let numbered = there.is_some_and(Transfers::numbers_datagrams);
            let host = self.host_id(side);
            let here = self.lab.host_mut(host).application_mut(index);
            if let Some((id, offset)) = here.corruption() {
                panic!("the {side:?} read wrong bytes on stream {id} from offset {offset}");
            }
            let news = here.take_news();
            let noted = news.iter().filter(|_| numbered);
            let again: u64 = noted.map(|news| agreement::note(news, here)).sum();
            let all_again = here.note_again(again);
            let mut result = Ok(());
            if let Some(there) = self.hosted(!side).filter(|_| again > 0) {
                let repeated = there.connection.stats().bytes_repeated;
                result = agreement::check_copies(all_again, repeated);
            }
            if let (Some(here), Some(there)) = (self.hosted(side), self.hosted(!side)) {
                for news in &news {
                    let agrees = agreement::check(news, &here.application, &there.application);
                    result = result.and(agrees);
                }
            }
            if let Err(error) = result {
                panic!("the {side:?}: {error}");
            }
        }
    }

    /// Lets virtual time pass.
    pub fn drive(&mut self, duration: Duration) {
        let end = self.now() + duration;
        while self.next_event().is_some_and(|time| time <= end) {
            self.step();
        }
        self.lab.drive(end - self.now());
    }

    /// Runs until the client may open paths.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if that takes longer than `limit`.
    pub fn run_until_confirmed(&mut self, limit: Duration) -> Result<Duration, TimedOut> {
        self.run_until(limit, |pair| {
            pair.has_event(Side::Client, &Event::HandshakeConfirmed)
        })
    }

    /// Opens a named path of the topology.
    ///
    /// # Errors
    ///
    /// The error of [`Connection::open_path`].
    pub fn open_path(&mut self, name: &str, status: PathStatus) -> Result<PathId, OpenPathError> {
        let four_tuple = self.four_tuple(self.index_of(name));
        let now = self.time(Side::Client);
        self.client().open_path(now, four_tuple, status)
    }

    /// Opens all further paths of the topology, and waits until all paths are established on both
    /// sides. If the peer does not allow a path yet, waits for it. If the validation of a path
    /// fails on a bad network, opens the path again with another ID. Returns the IDs of all paths,
    /// including path 0.
    ///
    /// # Panics
    ///
    /// If that takes longer than a minute.
    pub fn open_all_paths(&mut self) -> Vec<PathId> {
        let limit = Duration::from_secs(60);
        let names: Vec<_> = self.paths.iter().map(|path| path.name.clone()).collect();
        let mut ids = vec![None; names.len()];
        ids[0] = Some(PathId::ZERO);
        let result = self.run_until(limit, |pair| {
            for (id, name) in ids.iter_mut().zip(&names) {
                let is_gone = |id: &mut PathId| pair.client().path_stats(*id).is_none();
                if id.as_mut().is_none_or(is_gone) {
                    *id = pair.open_path(name, PathStatus::Available).ok();
                }
            }
            ids.iter()
                .all(|id| id.is_some_and(|id| pair.is_established(id)))
        });
        let Ok(_) = result else {
            panic!("paths cannot be opened: {}", self.progress(Side::Client));
        };
        ids.into_iter().flatten().collect()
    }

    /// True if both sides have reported the path as established.
    pub fn is_established(&self, path: PathId) -> bool {
        let established = PathEvent::Established(path);
        path == PathId::ZERO
            || [Side::Client, Side::Server]
                .into_iter()
                .all(|side| self.has_path_event(side, &established))
    }

    /// Opens a bidirectional stream from a side and sends `size` generated bytes on it. The other
    /// side answers with `answer` bytes.
    pub fn ask(&mut self, from: Side, size: u64, answer: u64) -> Option<StreamId> {
        let now = self.time(from);
        let number = self.hosted_mut(from).application.asked();
        let id = StreamId::new(from, Dir::Bi, number);
        self.hosted_mut(!from).application.answer(id, answer);
        let hosted = self.hosted_mut(from);
        hosted.application.ask(now, &mut hosted.connection, size)
    }

    /// Starts a transfer of `size` generated bytes from one side to the other.
    pub fn send(&mut self, from: Side, size: u64) -> Option<StreamId> {
        let now = self.time(from);
        let hosted = self.hosted_mut(from);
        hosted.application.send(now, &mut hosted.connection, size)
    }

    /// Runs until each side has read all streams of the other side to their end, or to a reset or
    /// stop. Returns the virtual time until then.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if that takes longer than `limit`.
    pub fn run_transfers(&mut self, limit: Duration) -> Result<Duration, TimedOut> {
        self.run_until(limit, |pair| {
            pair.is_delivered(Side::Client) && pair.is_delivered(Side::Server)
        })
    }

    /// True if the other side has read all streams of a side: every byte and the end, or the reset
    /// of a stream that was reset. Stopped streams do not count.
    pub fn is_delivered(&self, from: Side) -> bool {
        let (Some(sender), Some(receiver)) = (self.hosted(from), self.hosted(!from)) else {
            return false;
        };
        sender.application.is_all_opened()
            && sender.application.outgoing().iter().all(|(id, outgoing)| {
                let incoming = receiver.application.incoming().get(id);
                incoming.is_some_and(|incoming| is_delivered(outgoing, incoming))
            })
    }

    /// Sends `size` bytes from a side. Returns the virtual time until the last byte was read.
    ///
    /// # Panics
    ///
    /// If that takes longer than `limit`.
    pub fn transfer(&mut self, from: Side, size: u64, limit: Duration) -> Duration {
        self.send(from, size);
        match self.run_transfers(limit) {
            Ok(took) => took,
            Err(error) => panic!(
                "transfer from {from:?}: {error}; client {:?}; server {:?}",
                self.progress(Side::Client),
                self.progress(Side::Server)
            ),
        }
    }

    /// Describes the connection of a side, for error messages.
    pub fn progress(&self, side: Side) -> String {
        let Some(hosted) = self.hosted(side) else {
            return "no connection".into();
        };
        let connection = &hosted.connection;
        let paths: Vec<_> = connection
            .paths()
            .filter_map(|path| connection.path_stats(path))
            .collect();
        format!(
            "sent {:?}, received {} bytes, events {:?}, next {:?}, paths {paths:#?}",
            hosted.application.outgoing(),
            hosted.application.received(),
            hosted.events(),
            connection
                .poll_timeout()
                .map(|(time, reason)| (time.saturating_duration_since(self.lab.now()), reason)),
        )
    }

    /// Closes a side's connection with code 0 and runs until both endpoints have forgotten it.
    ///
    /// # Panics
    ///
    /// If an endpoint still has state after a minute.
    pub fn close(&mut self, side: Side) {
        let now = self.time(side);
        self.connection(side)
            .close(now, VarInt::from_u32(0), bytes::Bytes::new());
        self.run_until_drained(Duration::from_secs(60));
    }

    /// Runs until both endpoints have forgotten the connection. Then checks that no state is left.
    ///
    /// # Panics
    ///
    /// If that takes longer than `limit`.
    pub fn run_until_drained(&mut self, limit: Duration) {
        let drained = |pair: &mut Self, side| pair.hosted(side).is_none_or(Hosted::is_drained);
        let result = self.run_until(limit, |pair| {
            drained(pair, Side::Client) && drained(pair, Side::Server)
        });
        if let Err(error) = result {
            let client = self.progress(Side::Client);
            panic!(
                "state is left: {error}; {client}; {}",
                self.progress(Side::Server)
            );
        }
        self.compare();
        for side in [Side::Client, Side::Server] {
            let Some(hosted) = self.hosted(side) else {
                continue;
            };
            let connection = &hosted.connection;
            assert!(connection.is_drained(), "{side:?} is not drained");
            assert_eq!(connection.poll_timeout(), None, "{side:?} has a timer");
            let routes = self.routes(side);
            let is_empty = routes == RouteCounts::default();
            assert!(is_empty || routes.connections > 0, "{side:?}: {routes:?}");
        }
    }

    /// Number of connections that a side's endpoint still has.
    pub fn open_connections(&mut self, side: Side) -> usize {
        let host = self.host_id(side);
        self.lab.host_mut(host).endpoint().open_connections()
    }

    /// Counts of the records that a side's endpoint has of its connections.
    pub fn routes(&self, side: Side) -> RouteCounts {
        self.lab.host(self.host_id(side)).routes()
    }

    /// Drops all of the server's state, including session tickets. Its certificate and reset key
    /// stay. The new server accepts packets at once.
    pub fn restart_server(&mut self) {
        if let Crypto::Tls(tls) = &mut self.setup.crypto {
            *tls = tls.with_fresh_server(ALPN);
        }
        self.restarts += 1;
        let mut seed = [0xee; 32];
        seed[0] = self.restarts;
        let endpoint = Endpoint::new(
            Arc::new(self.setup.endpoint_config(Side::Server)),
            Some(Arc::new(self.setup.server_config())),
            seed,
        );
        let host = self.server_host;
        self.lab.host_mut(host).restart(endpoint);
    }
}
