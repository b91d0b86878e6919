//! Endpoints and connections by hand, datagram by datagram.

mod address_validation;
mod crowd;
mod packets;
#[cfg(feature = "aws-lc-rs")]
mod two_datagrams;
mod zero_rtt;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use mpquic_core::config::{
    AckFrequencyOptions, EndpointConfig, EndpointOptions, TransportConfig, TransportOptions,
};
use mpquic_core::knowledge::{Entry, Key, Knowledge, Store};
use mpquic_core::unstable_wire::header::{Header, next_packet};
use mpquic_core::{
    Connection, ConnectionError, ConnectionHandle, Datagram, DatagramEvent, Dir, Endpoint, Event,
    Fault, FourTuple, StdSystemTime, StreamId, TimeSource, VarInt, Version, ZeroRtt,
};
use mpquic_sim::Tls;

const MS: Duration = Duration::from_millis(1);

fn client_address() -> SocketAddr {
    "198.51.100.1:5000".parse().unwrap()
}

fn server_address() -> SocketAddr {
    "192.0.2.1:443".parse().unwrap()
}

/// The texts of the keys, and the tokens. The client learns nothing else.
#[derive(Debug, Default)]
struct Tokens(Mutex<Vec<(String, Bytes)>>);

impl Store for Tokens {
    fn load(&self, _: &Key) -> Option<Entry> {
        None
    }

    fn save(&self, key: Key, entry: Entry) {
        if matches!(key, Key::Token { .. }) {
            self.0.lock().unwrap().push((key.to_string(), entry.value));
        }
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        let (mut tokens, key) = (self.0.lock().unwrap(), key.to_string());
        let index = tokens.iter().position(|(other, _)| *other == key)?;
        Some(Entry::new(tokens.remove(index).1, StdSystemTime.now()))
    }
}

fn built(options: TransportOptions) -> Arc<TransportConfig> {
    Arc::new(options.build().unwrap())
}

/// A client and a server; nothing moves unless told to.
struct Test {
    now: Instant,
    tls: Tls,
    transport: Arc<TransportConfig>,
    tokens: Arc<Tokens>,
    client: Endpoint,
    server: Endpoint,
    retry: bool,
    /// Whether the last attempt came from a proven address.
    validated: Option<bool>,
    buf: Vec<u8>,
}

type Hosted = (ConnectionHandle, Connection);

impl Test {
    fn new() -> Self {
        Self::of(Tls::new(b"test"))
    }

    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    fn of(tls: Tls) -> Self {
        let transport = TransportConfig::new(mpquic_sched::default(), mpquic_cc::default());
        let transport = Arc::new(transport);
        let server = Arc::new(tls.server(transport.clone()));
        let config = |key| Arc::new(EndpointConfig::new([key; 32]));
        Self {
            now: Instant::now(),
            client: Endpoint::new(config(1), None, [1; 32]),
            server: Endpoint::new(config(2), Some(server), [2; 32]),
            tls,
            transport,
            tokens: Arc::default(),
            retry: false,
            validated: None,
            buf: Vec::new(),
        }
    }

    fn connect(&mut self) -> Hosted {
        let mut options = TransportOptions::clone(&self.transport);
        options.knowledge = Some(Knowledge::new(self.tokens.clone()));
        let config = self.tls.client(built(options));
        let four_tuple = FourTuple::new(client_address(), server_address());
        let connected = self
            .client
            .connect(self.now, config, four_tuple, "server.test");
        connected.unwrap()
    }

    /// The datagrams a connection sends now.
    fn datagrams(&mut self, connection: &mut Connection) -> Vec<BytesMut> {
        sent(connection, self.now, &mut self.buf)
    }

    /// Gives a datagram to the client.
    fn give_client(&mut self, client: &mut Hosted, data: BytesMut) {
        let four_tuple = FourTuple::new(client_address(), server_address());
        let event = self
            .client
            .handle_datagram(self.now, four_tuple, None, data, &mut self.buf);
        match event {
            Some(DatagramEvent::Connection(_, datagram)) => client.1.handle_datagram(datagram),
            Some(DatagramEvent::StatelessReset(_)) => client.1.handle_stateless_reset(self.now),
            _ => {}
        }
    }

    /// Gives a datagram to the server; returns what its endpoint answers by itself.
    fn give_server(&mut self, server: &mut Option<Hosted>, data: BytesMut) -> Option<BytesMut> {
        let four_tuple = FourTuple::new(server_address(), client_address());
        let event = self
            .server
            .handle_datagram(self.now, four_tuple, None, data, &mut self.buf);
        match event? {
            DatagramEvent::Connection(_, datagram) => {
                server.as_mut().unwrap().1.handle_datagram(datagram);
                None
            }
            DatagramEvent::NewConnection(incoming) => {
                self.validated = Some(incoming.remote_address_validated());
                if self.retry && !incoming.remote_address_validated() {
                    let sent = self.server.retry(self.now, incoming, &mut self.buf);
                    return Some(BytesMut::from(&self.buf[..sent.unwrap().size]));
                }
                let accepted = self.server.accept(self.now, incoming, &mut self.buf);
                *server = Some(accepted.unwrap());
                None
            }
            DatagramEvent::Response(sent) => Some(BytesMut::from(&self.buf[..sent.size])),
            _ => None,
        }
    }

    fn events(&mut self, client: &mut Hosted, server: &mut Option<Hosted>) {
        while let Some(event) = client.1.poll_endpoint_event() {
            self.client.handle_event(client.0, event);
        }
        if let Some((handle, server)) = server {
            while let Some(event) = server.poll_endpoint_event() {
                self.server.handle_event(*handle, event);
            }
        }
    }

    /// Lets both talk until neither has anything to say.
    fn exchange(&mut self, client: &mut Hosted, server: &mut Option<Hosted>) {
        for _ in 0..20 {
            self.now += MS;
            for data in self.datagrams(&mut client.1) {
                if let Some(answer) = self.give_server(server, data) {
                    self.give_client(client, answer);
                }
                self.events(client, server);
            }
            let sent = match server {
                Some((_, server)) => self.datagrams(server),
                None => Vec::new(),
            };
            for data in sent {
                self.give_client(client, data);
            }
            self.events(client, server);
        }
    }

    /// Starts the server anew, with the same tickets, speaking these versions.
    fn restart_server_with(&mut self, versions: &[Version]) {
        let mut options = EndpointOptions::new([2; 32]);
        options.supported_versions = versions.to_vec();
        let config = options.build().unwrap();
        let server = Arc::new(self.tls.server(self.transport.clone()));
        self.server = Endpoint::new(Arc::new(config), Some(server), [3; 32]);
    }

    /// Writes on a new stream of the client, and checks that it arrives.
    fn write_again(&mut self, client: &mut Hosted, server: &mut Option<Hosted>) -> StreamId {
        let id = write(&mut client.1, b"again");
        self.exchange(client, server);
        let accepted = &mut server.as_mut().unwrap().1;
        assert_eq!(read(accepted, id), (b"again".to_vec(), true));
        id
    }

    /// Connects and closes again.
    fn visit(&mut self) {
        let mut client = self.connect();
        let mut server = None;
        self.exchange(&mut client, &mut server);
        assert!(!client.1.is_handshaking());
        client.1.close(self.now, VarInt::from_u32(0), Bytes::new());
        self.exchange(&mut client, &mut server);
        for (handle, mut connection) in [client, server.unwrap()] {
            while let Some((time, _)) = connection.poll_timeout() {
                self.now = self.now.max(time);
                connection.handle_timeout(self.now);
            }
            assert!(connection.is_drained());
            let endpoint = match connection.side() {
                mpquic_core::Side::Client => &mut self.client,
                mpquic_core::Side::Server => &mut self.server,
            };
            while let Some(event) = connection.poll_endpoint_event() {
                endpoint.handle_event(handle, event);
            }
        }
        assert_eq!(
            self.client.open_connections() + self.server.open_connections(),
            0
        );
    }
}

fn lost(connection: &mut Connection) -> Option<ConnectionError> {
    std::iter::from_fn(|| connection.poll()).find_map(|event| match event {
        Event::ConnectionLost { reason } => Some(reason),
        _ => None,
    })
}

/// The connection IDs of a long header: destination, source.
fn long_header(datagram: &[u8]) -> (Bytes, Bytes) {
    let (dcid, rest) = datagram[6..].split_at(datagram[5].into());
    let scid = &rest[1..][..rest[0].into()];
    (Bytes::copy_from_slice(dcid), Bytes::copy_from_slice(scid))
}

fn version_negotiation(initial: &[u8], versions: &[u32]) -> BytesMut {
    let (dcid, scid) = long_header(initial);
    let mut packet = vec![0xc0, 0, 0, 0, 0];
    for cid in [scid, dcid] {
        packet.push(cid.len() as u8);
        packet.extend_from_slice(&cid);
    }
    for version in versions {
        packet.extend_from_slice(&version.to_be_bytes());
    }
    BytesMut::from(&packet[..])
}

/// Everything a stream has to read now, and whether it ended.
fn read(connection: &mut Connection, id: StreamId) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut stream = connection.recv_stream(id);
    loop {
        match stream.read_chunk(usize::MAX, true) {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
            Ok(None) => return (bytes, true),
            Err(_) => return (bytes, false),
        }
    }
}

/// Opens a stream and writes to it.
fn write(connection: &mut Connection, bytes: &[u8]) -> StreamId {
    let id = connection.streams().open(Dir::Uni).unwrap();
    let mut stream = connection.send_stream(id);
    assert_eq!(stream.write(bytes), Ok(bytes.len()));
    stream.finish().unwrap();
    id
}

/// The datagrams a connection sends now.
fn sent(connection: &mut Connection, now: Instant, buf: &mut Vec<u8>) -> Vec<BytesMut> {
    let mut datagrams = Vec::new();
    loop {
        buf.clear();
        let Some(sent) = connection.poll_transmit(now, 10, buf) else {
            return datagrams;
        };
        let segment = sent.segment_size.unwrap_or(sent.size);
        datagrams.extend(buf.chunks(segment).map(BytesMut::from));
    }
}
