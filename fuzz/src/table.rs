//! Two endpoints on a table: each datagram can be changed, dropped or forged on its way. Packets
//! are protected by [`NullCrypto`], so that a fuzzer can read and write them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use mpquic_core::config::{ClientConfig, EndpointOptions, ServerConfig, TransportOptions};
use mpquic_core::unstable_wire::header::{Header, next_packet};
use mpquic_core::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint,
    Event, FourTuple, PathId, PathStatus, ReadStreamError, Side, StreamId, TimeSource, VarInt,
};
use mpquic_sim::NullCrypto;

/// A connection that sends more datagrams than this at one instant counts as running away.
const MOST_AT_ONCE: usize = 2000;
/// A connection with more timeouts than this at one instant counts as running away.
const MOST_TIMEOUTS: usize = 100;

/// A number of received bytes whose triple is never sent: for validated addresses.
const UNLIMITED: usize = usize::MAX / 64;

/// Both sides.
pub const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// A datagram on its way.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// Who sent it.
    pub from: Side,
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes to.
    pub destination: SocketAddr,
    /// Its mark.
    pub ecn: Option<EcnCodepoint>,
    /// Its bytes.
    pub data: BytesMut,
}

/// An endpoint with its connections.
pub struct Node {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Connections that are not drained.
    pub connections: BTreeMap<ConnectionHandle, Hosted>,
}

/// A connection, with its events and the bytes that were read from it.
pub struct Hosted {
    /// The connection.
    pub connection: Connection,
    /// Events of the connection, without events of streams.
    pub events: Vec<Event>,
    /// Bytes read from each stream in order.
    pub read: BTreeMap<StreamId, Vec<u8>>,
    /// Bytes received and sent before the peer's address was validated.
    unvalidated: (usize, usize),
    timeouts: (Option<Instant>, usize),
}

impl Hosted {
    fn new(connection: Connection, received: usize) -> Self {
        Self {
            connection,
            events: Vec::new(),
            read: BTreeMap::new(),
            unvalidated: (received, 0),
            timeouts: (None, 0),
        }
    }

    /// Why the connection ended, if it did.
    pub fn lost(&self) -> Option<&ConnectionError> {
        self.events.iter().find_map(|event| match event {
            Event::ConnectionLost { reason } => Some(reason),
            _ => None,
        })
    }

    /// Reads all received data: streams in order, and DATAGRAMs.
    pub fn read_all(&mut self) {
        let connection = &mut self.connection;
        for dir in [Dir::Bi, Dir::Uni] {
            while let Some(id) = connection.streams().accept(dir) {
                self.read.entry(id).or_default();
            }
        }
        for (id, bytes) in &mut self.read {
            loop {
                match connection.recv_stream(*id).read_chunk(usize::MAX, true) {
                    Ok(Some(chunk)) => {
                        assert_eq!(chunk.offset, bytes.len() as u64, "a gap in stream {id}");
                        bytes.extend_from_slice(&chunk.bytes);
                    }
                    Ok(None) | Err(ReadStreamError::Blocked | ReadStreamError::ClosedStream) => {
                        break;
                    }
                    Err(ReadStreamError::Reset(_)) => break,
                    Err(other) => panic!("{other}"),
                }
            }
        }
        while connection.datagrams().recv().is_some() {}
    }

    /// Checks the rules that hold at any time.
    fn check(&self) {
        let connection = &self.connection;
        if connection.is_drained() {
            assert_eq!(connection.poll_timeout(), None);
            return;
        }
        let paths: Vec<PathId> = connection.paths().collect();
        assert!(paths.is_sorted_by(|a, b| a < b));
        for path in paths {
            let stats = connection.path_stats(path).expect("it is listed");
            assert!(stats.packets_lost <= stats.packets_sent, "{stats:?}");
            assert!(stats.mtu >= 1200);
        }
        // RFC 9000 section 8.1
        if connection.side().is_server() && connection.is_handshaking() {
            let (received, sent) = self.unvalidated;
            assert!(
                sent <= received.saturating_mul(3),
                "{sent} bytes for {received}"
            );
        }
    }
}

/// The configuration of both endpoints.
#[derive(Clone)]
pub struct Options {
    /// The client's transport.
    pub client: TransportOptions,
    /// The server's transport.
    pub server: TransportOptions,
    /// Whether the server answers unproven addresses with a Retry.
    pub retry: bool,
}

impl Default for Options {
    fn default() -> Self {
        let mut transport = TransportOptions::new(mpquic_sched::default(), mpquic_cc::default());
        // The fuzzer has to see each panic.
        transport.contain_panics = false;
        Self {
            client: transport.clone(),
            server: transport,
            retry: false,
        }
    }
}

/// The server's wall clock, which goes with [`Table::now`].
struct WallClock(Mutex<SystemTime>);

impl TimeSource for WallClock {
    fn now(&self) -> SystemTime {
        *self.0.lock().expect("one thread")
    }
}

/// A client, a server, and nothing between them but the fuzz target.
pub struct Table {
    /// The time, which only [`Table::wait`] and [`Table::exchange`] move.
    pub now: Instant,
    /// The client's node.
    pub client: Node,
    /// The server's node.
    pub server: Node,
    /// Sent datagrams that have not arrived.
    pub in_flight: Vec<Datagram>,
    /// The configuration of the client's connections.
    pub client_config: ClientConfig,
    /// Whether [`Table::exchange`] delivers a datagram.
    pub delivers: Box<dyn FnMut(&Datagram) -> bool>,
    begin: Instant,
    wall_clock: Arc<WallClock>,
    retry: bool,
    buffer: Vec<u8>,
}

/// True with a Handshake packet, which proves the address of its sender (RFC 9000 section 8.1).
fn has_handshake_packet(datagram: &[u8]) -> bool {
    let mut rest = BytesMut::from(datagram);
    while let (false, Ok(packet)) = (rest.is_empty(), next_packet(&mut rest, 8)) {
        if matches!(packet.header, Header::Handshake { .. }) {
            return true;
        }
    }
    false
}

/// The address of a side, one of several.
pub fn address(side: Side, index: u8) -> SocketAddr {
    match side {
        Side::Client => ([198, 51, 100, 1 + index], 5000).into(),
        Side::Server => ([192, 0, 2, 1 + index], 443).into(),
    }
}

impl Table {
    /// Two endpoints that speak [`NullCrypto`].
    pub fn new(options: Options) -> Self {
        let crypto = NullCrypto::new(b"fuzz");
        let transport = |options: TransportOptions| Arc::new(options.build().expect("options"));
        let server = crypto.clone().server(transport(options.server));
        let mut client = crypto.client(transport(options.client));
        client.use_alternative_addresses = true;
        Self::with_configs(client, server, options.retry)
    }

    /// The same with other configurations.
    pub fn with_configs(client: ClientConfig, server: ServerConfig, retry: bool) -> Self {
        let node = |key: u8, server| {
            let options = EndpointOptions::new([key; 32]);
            let config = options.build().expect("options");
            Node {
                endpoint: Endpoint::new(Arc::new(config), server, [key; 32]),
                connections: BTreeMap::new(),
            }
        };
        let wall_clock = Arc::new(WallClock(Mutex::new(SystemTime::UNIX_EPOCH)));
        let mut server = server.options().clone();
        server.time_source = wall_clock.clone();
        let server = server.build().expect("only the clock is another one");
        let now = Instant::now();
        let mut table = Self {
            now,
            begin: now,
            wall_clock,
            delivers: Box::new(|_| true),
            client: node(1, None),
            server: node(2, Some(Arc::new(server))),
            in_flight: Vec::new(),
            client_config: client,
            retry,
            buffer: Vec::with_capacity(1 << 16),
        };
        table.set_wall_clock();
        table
    }

    fn set_wall_clock(&mut self) {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        *self.wall_clock.0.lock().expect("one thread") = start + (self.now - self.begin);
    }

    /// Starts a connection from one of the client's addresses.
    pub fn connect(&mut self, index: u8) -> ConnectionHandle {
        let four_tuple = FourTuple::new(address(Side::Client, index), address(Side::Server, 0));
        let config = self.client_config.clone();
        let endpoint = &mut self.client.endpoint;
        let connected = endpoint.connect(self.now, config, four_tuple, "server.test");
        let (handle, connection) = connected.expect("a client can be made");
        let hosted = Hosted::new(connection, 0);
        self.client.connections.insert(handle, hosted);
        handle
    }

    /// The node of a side.
    pub fn node(&mut self, side: Side) -> &mut Node {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// The oldest connection of a side that is not drained.
    pub fn hosted(&mut self, side: Side) -> Option<&mut Hosted> {
        self.node(side).connections.values_mut().next()
    }

    /// Opens a path of the oldest connection.
    pub fn open_path(&mut self, index: u8) -> bool {
        let four_tuple = FourTuple::new(address(Side::Client, index), address(Side::Server, index));
        let now = self.now;
        let Some(hosted) = self.hosted(Side::Client) else {
            return false;
        };
        let opened = hosted
            .connection
            .open_path(now, four_tuple, PathStatus::Available);
        opened.is_ok()
    }

    /// Takes the events of all connections of a side, and removes drained connections.
    pub fn settle(&mut self, side: Side) {
        let node = self.node(side);
        let mut drained = Vec::new();
        for (handle, hosted) in &mut node.connections {
            while let Some(event) = hosted.connection.poll_endpoint_event() {
                if event.is_drained() {
                    drained.push(*handle);
                }
                node.endpoint.handle_event(*handle, event);
            }
            while let Some(event) = hosted.connection.poll() {
                if !matches!(event, Event::Stream(_) | Event::DatagramReceived) {
                    hosted.events.push(event);
                }
            }
            hosted.check();
        }
        for handle in drained {
            node.connections.remove(&handle);
        }
    }

    /// Adds the datagrams that a side sends now to the datagrams in flight.
    pub fn take(&mut self, from: Side) {
        self.settle(from);
        let now = self.now;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut sent = Vec::new();
        for hosted in self.node(from).connections.values_mut() {
            let start = sent.len();
            loop {
                buffer.clear();
                let transmit = hosted.connection.poll_transmit(now, 10, &mut buffer);
                let Some(transmit) = transmit else {
                    break;
                };
                assert_eq!(transmit.size, buffer.len());
                hosted.unvalidated.1 += buffer.len();
                let segment = transmit.segment_size.unwrap_or(transmit.size);
                sent.extend(buffer.chunks(segment).map(|data| Datagram {
                    from,
                    source: transmit.four_tuple.local,
                    destination: transmit.four_tuple.remote,
                    ecn: transmit.ecn,
                    data: BytesMut::from(data),
                }));
                assert!(sent.len() - start < MOST_AT_ONCE, "it sends without end");
            }
        }
        self.buffer = buffer;
        self.in_flight.append(&mut sent);
        self.settle(from);
    }

    /// A datagram arrives at the side that did not send it.
    pub fn give(&mut self, datagram: Datagram) {
        let to = !datagram.from;
        let now = self.now;
        self.set_wall_clock();
        let retry = self.retry;
        let size = datagram.data.len();
        let proves = has_handshake_packet(&datagram.data);
        let four_tuple = FourTuple::new(datagram.destination, datagram.source);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let node = self.node(to);
        let endpoint = &mut node.endpoint;
        let event =
            endpoint.handle_datagram(now, four_tuple, datagram.ecn, datagram.data, &mut buffer);
        let response = match event {
            Some(DatagramEvent::Connection(handle, datagram)) => {
                if let Some(hosted) = node.connections.get_mut(&handle) {
                    let more = if proves { UNLIMITED } else { size };
                    hosted.unvalidated.0 = hosted.unvalidated.0.saturating_add(more);
                    hosted.connection.handle_datagram(datagram);
                }
                None
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                buffer.clear();
                if retry && !incoming.remote_address_validated() {
                    endpoint.retry(now, incoming, &mut buffer).ok()
                } else {
                    let size = if incoming.remote_address_validated() {
                        UNLIMITED
                    } else {
                        size
                    };
                    match endpoint.accept(now, incoming, &mut buffer) {
                        Ok((handle, connection)) => {
                            let hosted = Hosted::new(connection, size);
                            node.connections.insert(handle, hosted);
                            None
                        }
                        Err(error) => error.response,
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => Some(transmit),
            Some(DatagramEvent::StatelessReset(handle)) => {
                if let Some(hosted) = node.connections.get_mut(&handle) {
                    hosted.connection.handle_stateless_reset(now);
                }
                None
            }
            Some(other) => panic!("{other:?} is not known here"),
            None => None,
        };
        if let Some(transmit) = response {
            assert_eq!(transmit.size, buffer.len());
            // RFC 9000 sections 8.1 and 10.3.3: nobody without a connection gets more than he sent.
            assert!(
                transmit.size <= 3 * size,
                "{} bytes for {size}",
                transmit.size
            );
            self.in_flight.push(Datagram {
                from: to,
                source: transmit.four_tuple.local,
                destination: transmit.four_tuple.remote,
                ecn: transmit.ecn,
                data: BytesMut::from(&buffer[..]),
            });
        }
        self.buffer = buffer;
        self.settle(to);
    }

    /// Moves datagrams in both directions, a millisecond each way, until no datagram is in flight
    /// or half a second has passed: a peer that breaks rules may keep datagrams going for ever.
    pub fn exchange(&mut self) {
        for _ in 0..500 {
            SIDES.into_iter().for_each(|side| self.take(side));
            if self.in_flight.is_empty() {
                return;
            }
            self.now += Duration::from_millis(1);
            for datagram in std::mem::take(&mut self.in_flight) {
                if (self.delivers)(&datagram) {
                    self.give(datagram);
                }
            }
            self.read_all();
        }
    }

    /// All applications read all received data.
    pub fn read_all(&mut self) {
        for side in SIDES {
            for hosted in self.node(side).connections.values_mut() {
                hosted.read_all();
            }
        }
    }

    /// When the next timer of a side's connections fires.
    fn next_timeout(&self) -> Option<Instant> {
        let nodes = [&self.client, &self.server].into_iter();
        let all = nodes.flat_map(|node| node.connections.values());
        let times = all.filter_map(|hosted| hosted.connection.poll_timeout());
        times.map(|(time, _)| time).min()
    }

    /// Lets time pass: timers fire and datagrams arrive.
    pub fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.exchange();
        while let Some(time) = self.next_timeout().filter(|time| *time <= end) {
            self.now = self.now.max(time);
            self.fire();
            self.exchange();
        }
        self.now = self.now.max(end);
    }

    /// Timers that are due fire.
    fn fire(&mut self) {
        let now = self.now;
        self.set_wall_clock();
        for side in SIDES {
            for hosted in self.node(side).connections.values_mut() {
                let due = hosted.connection.poll_timeout();
                if due.is_none_or(|(time, _)| time > now) {
                    continue;
                }
                let (last, count) = &mut hosted.timeouts;
                *count = if *last == Some(now) { *count + 1 } else { 0 };
                *last = Some(now);
                assert!(*count < MOST_TIMEOUTS, "{due:?} fires without end");
                hosted.connection.handle_timeout(now);
            }
            self.settle(side);
        }
    }

    /// Closes all connections, and checks that no state of them is left.
    pub fn finish(&mut self) {
        let now = self.now;
        for side in SIDES {
            for hosted in self.node(side).connections.values_mut() {
                hosted
                    .connection
                    .close(now, VarInt::from_u32(0), bytes::Bytes::new());
                assert!(hosted.connection.is_closed());
            }
        }
        // Twice the idle timeout of a side that missed the close.
        self.wait(Duration::from_secs(300));
        for side in SIDES {
            let node = self.node(side);
            assert!(
                node.connections.is_empty(),
                "a connection of the {side:?} is left"
            );
            assert_eq!(node.endpoint.open_connections(), 0);
            let routes = node.endpoint.routes();
            assert_eq!(
                (routes.connections, routes.connection_ids),
                (0, 0),
                "{routes:?}"
            );
            assert_eq!(routes.reset_tokens, 0, "{routes:?}");
        }
    }
}
