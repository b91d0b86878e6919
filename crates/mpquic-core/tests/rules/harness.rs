//! Two endpoints on a table: every datagram can be read, changed, dropped or forged.
//!
//! Packets are protected by `NullCrypto`, so they are readable as they are; the tag tells key, path
//! and packet number.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use mpquic_core::config::{EndpointOptions, ServerConfig, TransportOptions};
use mpquic_core::knowledge::{Entry, Key, Knowledge, Store};
use mpquic_core::unstable_wire::frame::{Frame, NewConnectionId};
use mpquic_core::unstable_wire::header::{Header, PacketHeader};
use mpquic_core::{
    Connection, ConnectionError, ConnectionHandle, ConnectionId, DatagramEvent, Dir, Endpoint,
    Event, Fault, FourTuple, OpenPathError, PathEvent, PathId, PathStatus, Side, StreamId,
    TimeSource, VarInt, Version,
};
use mpquic_sim::NullCrypto;

use super::packets::{CID_LENGTH, TAG_LENGTH};
pub(crate) use super::packets::{Forgery, Kind, Packet, Sent, path_ack};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// Addresses of the client and the server; each path of a test has its own pair.
pub(crate) fn address(side: Side, index: u8) -> SocketAddr {
    match side {
        Side::Client => ([198, 51, 100, 1 + index], 5000).into(),
        Side::Server => ([192, 0, 2, 1 + index], 443).into(),
    }
}

pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    handle: Option<ConnectionHandle>,
    connection: Option<Connection>,
    pub(crate) events: Vec<Event>,
}

impl Node {
    fn new(options: EndpointOptions, server: Option<ServerConfig>, seed: u8) -> Self {
        let config = options.build().expect("options");
        Self {
            endpoint: Endpoint::new(Arc::new(config), server.map(Arc::new), [seed; 32]),
            handle: None,
            connection: None,
            events: Vec::new(),
        }
    }
}

/// How the two are configured.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) client: TransportOptions,
    pub(crate) server: TransportOptions,
    pub(crate) client_endpoint: EndpointOptions,
    pub(crate) server_endpoint: EndpointOptions,
    pub(crate) migration: bool,
    /// Where the server would rather be used, and whether the client goes there.
    pub(crate) preferred: Option<SocketAddr>,
    pub(crate) use_preferred: bool,
    /// The client asks for further addresses of the server.
    pub(crate) use_alternative: bool,
    /// Of the client's first packet.
    pub(crate) version: Option<Version>,
    /// Encoded transport parameters that the client announces besides.
    pub(crate) client_parameters: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        // The plainest scheduler, for a clear assignment of data to paths.
        let scheduler = mpquic_sched::by_name("lrf").unwrap();
        let mut transport = TransportOptions::new(scheduler, mpquic_cc::default());
        // Tests count acknowledgements, and a request would change their number.
        transport.ack_frequency = None;
        Self {
            client: transport.clone(),
            server: transport,
            client_endpoint: EndpointOptions::new([1; 32]),
            server_endpoint: EndpointOptions::new([2; 32]),
            migration: true,
            preferred: None,
            use_preferred: true,
            use_alternative: false,
            version: None,
            client_parameters: Vec::new(),
        }
    }
}

impl Options {
    /// Changes both sides' transport.
    pub(crate) fn transport(mut self, change: impl Fn(&mut TransportOptions)) -> Self {
        change(&mut self.client);
        change(&mut self.server);
        self
    }
}

/// Address validation tokens a client was given, newest last.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<Vec<(Key, Entry)>>);

impl Tokens {
    /// Takes all of them out.
    pub(crate) fn take_all(&self) -> Vec<(Key, Entry)> {
        std::mem::take(&mut self.0.lock().expect("one thread"))
    }
}

/// The wall clock of a server, which goes as the test lets time pass.
struct WallClock(Mutex<SystemTime>);

impl TimeSource for WallClock {
    fn now(&self) -> SystemTime {
        *self.0.lock().expect("one thread")
    }
}

impl Store for Tokens {
    /// Nothing else than tokens is kept.
    fn load(&self, _: &Key) -> Option<Entry> {
        None
    }

    fn save(&self, key: Key, entry: Entry) {
        if matches!(key, Key::Token { .. }) {
            self.0.lock().expect("one thread").push((key, entry));
        }
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        let mut tokens = self.0.lock().expect("one thread");
        let index = tokens.iter().rposition(|(other, _)| other == key)?;
        Some(tokens.remove(index).1)
    }
}

/// A client, a server, and nothing between them but the test.
pub(crate) struct Net {
    pub(crate) now: Instant,
    begin: Instant,
    wall_clock: Arc<WallClock>,
    pub(crate) tokens: Arc<Tokens>,
    /// The server asks clients to prove their address.
    pub(crate) retry: bool,
    /// Whether the last attempt came from a proven address.
    pub(crate) validated: Option<bool>,
    /// Whether `exchange` delivers a datagram.
    pub(crate) delivers: fn(&Sent) -> bool,
    /// What `exchange` makes of a datagram before.
    pub(crate) rewrite: fn(&mut Sent),
    /// Connection IDs each side announced for each path, in the order of their first frames.
    pub(crate) issued: BTreeMap<(Side, PathId), Vec<NewConnectionId>>,
    client: Node,
    server: Node,
    client_config: mpquic_core::config::ClientConfig,
    /// Bytes of the connection IDs a forged client uses.
    pub(crate) client_cid_length: usize,
    server_cid_length: usize,
    /// What each side last sent to in 1-RTT packets, on each path, and in Initial packets.
    dcids: BTreeMap<(Side, PathId), ConnectionId>,
    initial_dcids: BTreeMap<Side, ConnectionId>,
    scids: BTreeMap<Side, ConnectionId>,
    /// What Initial keys derive from.
    initial_dcid: ConnectionId,
    buf: Vec<u8>,
}

/// What the keys of Initial packets to this connection ID have in common.
fn salt(initial_dcid: &[u8]) -> u32 {
    initial_dcid.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// What all keys of a version have in common.
pub(crate) fn version_salt(version: Version) -> u32 {
    match version {
        Version::V1 => 0,
        _ => version.to_u32(),
    }
}

impl Net {
    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    pub(crate) fn new(options: Options) -> Self {
        let crypto = NullCrypto::new(b"rules");
        let (v4, v6) = match options.preferred {
            Some(SocketAddr::V4(v4)) => (Some(v4), None),
            Some(SocketAddr::V6(v6)) => (None, Some(v6)),
            None => (None, None),
        };
        let transport = |options: TransportOptions| Arc::new(options.build().expect("options"));
        let server_config = crypto.clone().server(transport(options.server));
        let mut server_options = server_config.options().clone();
        server_options.migration = options.migration;
        server_options.preferred_address_v4 = v4;
        server_options.preferred_address_v6 = v6;
        let wall_clock = Arc::new(WallClock(Mutex::new(SystemTime::UNIX_EPOCH)));
        server_options.time_source = wall_clock.clone();
        let server_config = server_options.build().expect("options");
        let crypto = crypto.announcing(&options.client_parameters);
        let tokens = Arc::new(Tokens::default());
        let mut client_options = options.client;
        client_options.knowledge = Some(Knowledge::new(tokens.clone()));
        let mut client_config = crypto.client(transport(client_options));
        client_config.version = options.version;
        client_config.use_preferred_address = options.use_preferred;
        client_config.use_alternative_addresses = options.use_alternative;
        let now = Instant::now();
        Self {
            now,
            begin: now,
            wall_clock,
            tokens,
            retry: false,
            validated: None,
            delivers: |_| true,
            rewrite: |_| {},
            issued: BTreeMap::new(),
            client_cid_length: options.client_endpoint.connection_ids.length(),
            server_cid_length: options.server_endpoint.connection_ids.length(),
            client: Node::new(options.client_endpoint, None, 1),
            server: Node::new(options.server_endpoint, Some(server_config), 2),
            client_config,
            dcids: BTreeMap::new(),
            initial_dcids: BTreeMap::new(),
            scids: BTreeMap::new(),
            initial_dcid: ConnectionId::new(&[]),
            buf: Vec::with_capacity(1 << 16),
        }
    }

    /// A client that wants to connect.
    pub(crate) fn connecting(options: Options) -> Self {
        let mut net = Self::new(options);
        net.connect();
        net
    }

    /// The first flights of these sides, one after the other, have arrived.
    pub(crate) fn with_flights(options: Options, from: &[Side]) -> Self {
        let mut net = Self::connecting(options);
        for side in from {
            let flight = net.take(*side);
            net.give_all(flight);
        }
        net
    }

    /// Connected, and nothing is under way.
    pub(crate) fn connected(options: Options) -> Self {
        let mut net = Self::connecting(options);
        net.exchange();
        net.wait(200 * MS);
        assert!(net.client().is_multipath() || !net.client().is_handshaking());
        for side in SIDES {
            assert!(!net.connection(side).is_handshaking(), "{side:?}");
        }
        net
    }

    /// Connected with two paths.
    pub(crate) fn with_two_paths(options: Options) -> Self {
        let mut net = Self::connected(options);
        assert_eq!(net.open_path(1), Ok(PathId(1)));
        net.wait(200 * MS);
        for side in SIDES {
            assert!(net.has_path_event(side, &PathEvent::Established(PathId(1))));
        }
        net
    }

    pub(crate) fn connect(&mut self) {
        self.connect_from(0);
    }

    /// The version further connections begin with.
    pub(crate) fn begin_with(&mut self, version: Version) {
        self.client_config.version = Some(version);
    }

    /// Starts a connection from one of the client's addresses; the methods below then mean it.
    pub(crate) fn connect_from(&mut self, index: u8) {
        let four_tuple = FourTuple::new(address(Side::Client, index), address(Side::Server, 0));
        let config = self.client_config.clone();
        let connected = self
            .client
            .endpoint
            .connect(self.now, config, four_tuple, "server.test");
        let (handle, connection) = connected.expect("a client can be made");
        self.client.handle = Some(handle);
        self.client.connection = Some(connection);
    }

    /// Opens a path between the addresses with this index.
    pub(crate) fn open_path(&mut self, index: u8) -> Result<PathId, OpenPathError> {
        self.open_path_from(address(Side::Client, index), index)
    }

    /// Opens a path from there to the server's address with this index.
    pub(crate) fn open_path_from(
        &mut self,
        local: SocketAddr,
        index: u8,
    ) -> Result<PathId, OpenPathError> {
        let four_tuple = FourTuple::new(local, address(Side::Server, index));
        let now = self.now;
        let opened = self
            .client()
            .open_path(now, four_tuple, PathStatus::Available);
        self.settle(Side::Client);
        opened
    }

    pub(crate) fn node(&mut self, side: Side) -> &mut Node {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    pub(crate) fn connection(&mut self, side: Side) -> &mut Connection {
        let connection = self.node(side).connection.as_mut();
        connection.expect("the connection exists")
    }

    pub(crate) fn client(&mut self) -> &mut Connection {
        self.connection(Side::Client)
    }

    pub(crate) fn server(&mut self) -> &mut Connection {
        self.connection(Side::Server)
    }

    pub(crate) fn has_server(&self) -> bool {
        self.server.connection.is_some()
    }

    pub(crate) fn events(&mut self, side: Side) -> &[Event] {
        self.settle(side);
        &self.node(side).events
    }

    /// Forgets what a side was told of streams and DATAGRAMs, and the memory for it.
    pub(crate) fn forget_data_events(&mut self, side: Side) {
        let events = &mut self.node(side).events;
        events.retain(|event| !matches!(event, Event::Stream(_) | Event::DatagramReceived));
        events.shrink_to_fit();
    }

    /// Drops a side's connection.
    pub(crate) fn forget_connection(&mut self, side: Side) {
        self.node(side).connection = None;
    }

    /// The first flight of another client, whose connection is dropped.
    pub(crate) fn other_client(&mut self) -> Vec<Sent> {
        let mut node = Node::new(EndpointOptions::new([3; 32]), None, 3);
        std::mem::swap(&mut self.client, &mut node);
        self.connect_from(7);
        let flight = self.take(Side::Client);
        std::mem::swap(&mut self.client, &mut node);
        flight
    }

    pub(crate) fn has_path_event(&mut self, side: Side, wanted: &PathEvent) -> bool {
        let wanted = Event::Path(wanted.clone());
        self.events(side).contains(&wanted)
    }

    /// True if a side has discarded a path.
    pub(crate) fn has_discarded(&mut self, side: Side, path: PathId) -> bool {
        self.events(side).iter().any(
            |event| matches!(event, Event::Path(PathEvent::Discarded(last)) if last.id == path),
        )
    }

    /// Why a side's connection ended, if it did.
    pub(crate) fn lost(&mut self, side: Side) -> Option<ConnectionError> {
        self.events(side).iter().find_map(|event| match event {
            Event::ConnectionLost { reason } => Some(reason.clone()),
            _ => None,
        })
    }

    /// The fault of its peer that a side closed for, and the frame type.
    pub(crate) fn fault(&mut self, side: Side) -> Option<(Fault, u64)> {
        match self.lost(side)? {
            ConnectionError::TransportError(error) => Some((error.fault, error.frame_type)),
            other => panic!("{other}"),
        }
    }

    /// Tells endpoint and test what a connection has to tell.
    fn settle(&mut self, side: Side) {
        let node = self.node(side);
        if let (Some(connection), Some(handle)) = (&mut node.connection, node.handle) {
            while let Some(event) = connection.poll_endpoint_event() {
                node.endpoint.handle_event(handle, event);
            }
            node.events.extend(std::iter::from_fn(|| connection.poll()));
        }
    }

    /// The datagrams a side sends now.
    pub(crate) fn take(&mut self, from: Side) -> Vec<Sent> {
        let now = self.now;
        let cid_length = match from {
            Side::Client => self.server_cid_length,
            Side::Server => self.client_cid_length,
        };
        let mut taken = Vec::new();
        self.settle(from);
        loop {
            let mut buf = std::mem::take(&mut self.buf);
            buf.clear();
            let sent = match &mut self.node(from).connection {
                Some(connection) => connection.poll_transmit(now, 10, &mut buf),
                None => None,
            };
            if let Some(sent) = sent {
                let segment = sent.segment_size.unwrap_or(sent.size);
                taken.extend(buf.chunks(segment).map(|data| Sent {
                    from,
                    source: sent.four_tuple.local,
                    destination: sent.four_tuple.remote,
                    ecn: sent.ecn,
                    data: BytesMut::from(data),
                    cid_length,
                }));
            }
            self.buf = buf;
            if sent.is_none() {
                break;
            }
        }
        self.settle(from);
        for packet in taken.iter().flat_map(Sent::packets) {
            self.note(from, &packet);
        }
        taken
    }

    fn note(&mut self, from: Side, packet: &Packet) {
        match &packet.header {
            Header::Initial {
                version,
                dcid,
                scid,
                ..
            } => {
                let salted = packet.key ^ u32::from(from.is_server()) ^ version_salt(*version);
                if from.is_client() && salt(dcid) == salted {
                    self.initial_dcid = *dcid;
                }
                self.initial_dcids.insert(from, *dcid);
                self.scids.insert(from, *scid);
            }
            Header::Short { dcid } => {
                self.dcids.insert((from, packet.path), *dcid);
            }
            _ => {}
        }
        for frame in &packet.frames {
            let (path, new) = match frame {
                Frame::NewConnectionId(new) => (PathId::ZERO, *new),
                Frame::PathNewConnectionId(new) => (new.path_id, new.new_connection_id),
                _ => continue,
            };
            let issued = self.issued.entry((from, path)).or_default();
            if !issued.contains(&new) {
                issued.push(new);
            }
        }
    }

    /// The connection IDs a side announced for a path.
    pub(crate) fn issued(&self, from: Side, path: PathId) -> Vec<NewConnectionId> {
        self.issued.get(&(from, path)).cloned().unwrap_or_default()
    }

    /// The destination connection ID a side used last on a path.
    pub(crate) fn dcid(&self, from: Side, path: PathId) -> ConnectionId {
        self.dcids[&(from, path)]
    }

    /// Delivers a datagram; returns what the receiving endpoint answers by itself. The first
    /// Initial of a client becomes the server's connection.
    pub(crate) fn give(&mut self, sent: Sent) -> Option<BytesMut> {
        let to = !sent.from;
        let now = self.now;
        self.set_wall_clock();
        let four_tuple = FourTuple::new(sent.destination, sent.source);
        let mut buf = std::mem::take(&mut self.buf);
        let (retry, mut validated) = (self.retry, self.validated);
        let node = self.node(to);
        let event = node
            .endpoint
            .handle_datagram(now, four_tuple, sent.ecn, sent.data, &mut buf);
        let mut answer = None;
        match event {
            Some(DatagramEvent::Connection(handle, datagram)) if Some(handle) == node.handle => {
                if let Some(connection) = &mut node.connection {
                    connection.handle_datagram(datagram);
                }
            }
            Some(DatagramEvent::NewConnection(incoming))
                if retry && !incoming.remote_address_validated() =>
            {
                let sent = node.endpoint.retry(now, incoming, &mut buf);
                answer = Some(BytesMut::from(&buf[..sent.expect("the first").size]));
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                validated = Some(incoming.remote_address_validated());
                let accepted = node.endpoint.accept(now, incoming, &mut buf);
                let (handle, connection) = accepted.expect("attempts are accepted");
                node.handle = Some(handle);
                node.connection = Some(connection);
            }
            Some(DatagramEvent::StatelessReset(handle)) if Some(handle) == node.handle => {
                if let Some(connection) = &mut node.connection {
                    connection.handle_stateless_reset(now);
                }
            }
            Some(DatagramEvent::Response(sent)) => {
                answer = Some(BytesMut::from(&buf[..sent.size]));
            }
            Some(_) | None => {}
        }
        self.buf = buf;
        self.validated = validated;
        self.settle(to);
        answer
    }

    pub(crate) fn give_all(&mut self, sent: impl IntoIterator<Item = Sent>) {
        for sent in sent {
            self.give(sent);
        }
    }

    /// Delivers all datagrams, a millisecond each way, until neither side sends any more; returns
    /// the sent datagrams.
    pub(crate) fn exchange(&mut self) -> Vec<Sent> {
        let mut log = Vec::new();
        loop {
            let mut flight: Vec<_> = SIDES.into_iter().flat_map(|side| self.take(side)).collect();
            flight.iter_mut().for_each(self.rewrite);
            if flight.is_empty() {
                return log;
            }
            self.now += MS;
            for sent in &flight {
                if !(self.delivers)(sent) {
                    continue;
                }
                if let Some(data) = self.give(sent.clone()) {
                    self.give(sent.answered(data));
                }
            }
            log.extend(flight);
        }
    }

    /// Lets time pass, timers fire and datagrams arrive; returns what was sent.
    pub(crate) fn wait(&mut self, duration: Duration) -> Vec<Sent> {
        let end = self.now + duration;
        let mut log = self.exchange();
        while let Some(time) = self.next_timeout().filter(|time| *time <= end) {
            self.now = self.now.max(time);
            for side in SIDES {
                self.handle_timeout(side);
            }
            log.extend(self.exchange());
        }
        self.now = self.now.max(end);
        log
    }

    fn set_wall_clock(&self) {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        *self.wall_clock.0.lock().expect("one thread") = start + (self.now - self.begin);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let nodes = [&self.client, &self.server].into_iter();
        let connections = nodes.filter_map(|node| node.connection.as_ref());
        let times = connections.filter_map(|connection| connection.poll_timeout());
        times.map(|(time, _)| time).min()
    }

    fn handle_timeout(&mut self, side: Side) {
        let now = self.now;
        self.set_wall_clock();
        if let Some(connection) = &mut self.node(side).connection {
            connection.handle_timeout(now);
        }
        self.settle(side);
    }

    /// Lets a side's timers fire that are due by now.
    pub(crate) fn tick(&mut self, side: Side) {
        self.handle_timeout(side);
    }

    /// Goes to a side's next timeout and lets it happen; returns what the side then sends.
    pub(crate) fn fire(&mut self, side: Side) -> Vec<Sent> {
        let (time, _) = self
            .connection(side)
            .poll_timeout()
            .expect("a timer is set");
        self.now = self.now.max(time);
        self.handle_timeout(side);
        self.take(side)
    }

    /// Makes a packet that the other side takes for one of `from`'s, on its handshake addresses.
    pub(crate) fn forge(&self, forgery: &Forgery) -> Sent {
        let Forgery { from, kind, .. } = *forgery;
        let path = match kind {
            Kind::OneRtt(path) => path,
            Kind::Initial | Kind::Handshake => PathId::ZERO,
        };
        let known = || {
            let used = self.dcids.get(&(from, path)).copied();
            let issued = self.issued(!from, path);
            let scid = self.scids.get(&!from).copied();
            match kind {
                Kind::Initial => self.initial_dcids.get(&from).copied().or(scid),
                Kind::Handshake => scid,
                Kind::OneRtt(PathId::ZERO) => used.or(scid),
                Kind::OneRtt(_) => used.or(issued.first().map(|new| new.connection_id)),
            }
        };
        let dcid = forgery.dcid.or_else(known).expect("the peer is known");
        let scid = forgery.scid.or(self.scids.get(&from).copied());
        let scid = scid.unwrap_or_else(|| ConnectionId::new(&[9; CID_LENGTH]));
        let version = forgery.version;
        let header = match kind {
            Kind::Initial => PacketHeader::Initial {
                version,
                dcid,
                scid,
                token: forgery.token.clone(),
            },
            Kind::Handshake => PacketHeader::Handshake {
                version,
                dcid,
                scid,
            },
            Kind::OneRtt(_) => PacketHeader::Short {
                dcid,
                spin: false,
                key_phase: forgery.generation % 2 == 1,
            },
        };
        let sender = u32::from(from.is_server());
        let key = match kind {
            Kind::Initial => salt(&forgery.initial_dcid.unwrap_or(self.initial_dcid)) ^ sender,
            Kind::Handshake => 1 << 1 | sender,
            Kind::OneRtt(_) => (2 + forgery.generation) << 1 | sender,
        };
        let key = key ^ version_salt(version);
        let mut data = Vec::new();
        let encoded = header.encode(&mut data, forgery.number, 4);
        data.extend_from_slice(&forgery.frames);
        data.resize((data.len() + TAG_LENGTH).max(forgery.size) - TAG_LENGTH, 0);
        data.extend_from_slice(&key.to_be_bytes());
        data.extend_from_slice(&path.0.to_be_bytes());
        data.extend_from_slice(&forgery.number.to_be_bytes());
        let end = data.len();
        encoded.set_length(&mut data, end);
        let index = path.0 as u8;
        Sent {
            from,
            source: address(from, index),
            destination: address(!from, index),
            ecn: None,
            data: BytesMut::from(&data[..]),
            cid_length: CID_LENGTH,
        }
    }

    /// Opens a stream and writes `size` bytes to it.
    pub(crate) fn write(&mut self, from: Side, size: usize) -> StreamId {
        let connection = self.connection(from);
        let id = connection.streams().open(Dir::Uni).expect("a stream");
        let mut stream = connection.send_stream(id);
        assert_eq!(stream.write(&vec![7; size]), Ok(size));
        stream.finish().expect("open");
        id
    }

    /// Bytes a side can read of a stream now.
    pub(crate) fn read(&mut self, side: Side, id: StreamId) -> usize {
        let mut stream = self.connection(side).recv_stream(id);
        let mut bytes = 0;
        while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, true) {
            bytes += chunk.bytes.len();
        }
        bytes
    }

    pub(crate) fn close(&mut self, side: Side) {
        let now = self.now;
        self.connection(side)
            .close(now, VarInt::from_u32(3), Bytes::from_static(b"words"));
        self.settle(side);
    }
}
