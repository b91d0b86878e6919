//! Endpoints and connections by hand, datagram by datagram: tokens, Retry, Version Negotiation, and
//! what an attacker on the path may inject.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use mpquic_core::config::{
    AckFrequencyOptions, EndpointConfig, EndpointOptions, TransportConfig, TransportOptions,
};
use mpquic_core::unstable_wire::header::{Header, next_packet};
use mpquic_core::{
    Connection, ConnectionError, ConnectionHandle, Datagram, DatagramEvent, Dir, Endpoint, Event,
    Fault, FourTuple, StreamId, TokenStore, VarInt, Version, ZeroRtt,
};
use mpquic_sim::Tls;

const MS: Duration = Duration::from_millis(1);

fn client_address() -> SocketAddr {
    "198.51.100.1:5000".parse().unwrap()
}

fn server_address() -> SocketAddr {
    "192.0.2.1:443".parse().unwrap()
}

#[derive(Default)]
struct Tokens(Mutex<Vec<(String, Bytes)>>);

impl TokenStore for Tokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        self.0.lock().unwrap().push((server_name.to_owned(), token));
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        let mut tokens = self.0.lock().unwrap();
        let index = tokens.iter().position(|(name, _)| name == server_name)?;
        Some(tokens.remove(index).1)
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
    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    fn new() -> Self {
        let tls = Tls::new(b"test");
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
        let mut config = self.tls.client(self.transport.clone());
        config.token_store = Some(self.tokens.clone());
        let four_tuple = FourTuple::new(client_address(), server_address());
        let connected = self
            .client
            .connect(self.now, config, four_tuple, "server.test");
        connected.unwrap()
    }

    /// The datagrams a connection sends now.
    fn datagrams(&mut self, connection: &mut Connection) -> Vec<BytesMut> {
        let mut datagrams = Vec::new();
        loop {
            self.buf.clear();
            let Some(sent) = connection.poll_transmit(self.now, 10, &mut self.buf) else {
                return datagrams;
            };
            let segment = sent.segment_size.unwrap_or(sent.size);
            datagrams.extend(self.buf.chunks(segment).map(BytesMut::from));
        }
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
            DatagramEvent::StatelessReset(_) => None,
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

#[test]
fn rfc_9000_6_2_version_negotiation_ends_the_attempt() {
    let mut test = Test::new();
    let mut client = test.connect();
    let initial = test.datagrams(&mut client.1).remove(0);
    test.give_client(
        &mut client,
        version_negotiation(&initial, &[0xff00_0020, 0x709a_50c4]),
    );
    assert_eq!(lost(&mut client.1), Some(ConnectionError::VersionMismatch));
    assert!(client.1.is_drained());
    test.events(&mut client, &mut None);
    assert_eq!(test.client.open_connections(), 0);
}

#[test]
fn rfc_9000_6_2_version_negotiation_with_our_version_or_too_late_is_ignored() {
    let mut test = Test::new();
    let mut client = test.connect();
    let mut server = None;
    let initial = test.datagrams(&mut client.1).remove(0);
    test.give_client(&mut client, version_negotiation(&initial, &[7, 1]));
    assert!(test.give_server(&mut server, initial.clone()).is_none());
    let answer = test.datagrams(&mut server.as_mut().unwrap().1).remove(0);
    test.give_client(&mut client, answer);
    test.give_client(&mut client, version_negotiation(&initial, &[7]));
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
    assert_eq!(lost(&mut client.1), None);
}

#[test]
fn rfc_9000_8_1_3_a_token_spares_the_next_connection_the_retry() {
    let mut test = Test::new();
    test.retry = true;
    let retries = |test: &mut Test| {
        test.validated = None;
        test.visit();
        test.validated
    };
    // The second attempt answers the Retry.
    assert_eq!(retries(&mut test), Some(true));
    assert_eq!(test.tokens.0.lock().unwrap().len(), 1);
    test.retry = false;
    let used = test.tokens.0.lock().unwrap()[0].clone();
    assert_eq!(retries(&mut test), Some(true));
    // RFC 9000 section 8.1.4: once.
    *test.tokens.0.lock().unwrap() = vec![used];
    assert_eq!(retries(&mut test), Some(false));
}

#[test]
fn rfc_9000_17_2_5_2_only_one_genuine_retry_is_followed() {
    let mut test = Test::new();
    test.retry = true;
    let mut client = test.connect();
    let mut server = None;
    let initial = test.datagrams(&mut client.1).remove(0);
    let retry = test.give_server(&mut server, initial.clone()).unwrap();

    let mut forged = retry.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    test.give_client(&mut client, forged);
    assert!(test.datagrams(&mut client.1).is_empty());

    test.give_client(&mut client, retry.clone());
    let second = test.datagrams(&mut client.1).remove(0);
    assert_eq!(long_header(&second).0, long_header(&retry).1);
    assert!(second.len() >= 1200);

    // Another genuine one for the first Initial, and one for the second.
    let again = test.give_server(&mut server, initial).unwrap();
    test.give_client(&mut client, again);
    assert!(test.datagrams(&mut client.1).is_empty());

    assert!(test.give_server(&mut server, second).is_none());
    assert_eq!(test.validated, Some(true));
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
}

#[test]
fn rfc_9001_9_2_changed_and_foreign_packets_change_nothing() {
    let mut test = Test::new();
    let mut client = test.connect();
    let mut server = None;
    let mut noise = 0u8;
    for _ in 0..20 {
        test.now += MS;
        for data in test.datagrams(&mut client.1) {
            for at in [0, 1, 5, 7, 20, data.len() / 2, data.len() - 1] {
                let mut changed = data.clone();
                noise = noise.wrapping_add(17);
                changed[at] ^= noise | 1;
                if server.is_some() {
                    test.give_server(&mut server, changed);
                }
            }
            test.give_server(&mut server, data.clone());
            test.give_server(&mut server, data);
            test.events(&mut client, &mut server);
        }
        let sent = test.datagrams(&mut server.as_mut().unwrap().1);
        for data in sent {
            for at in [0, 1, 5, 7, 20, data.len() / 2, data.len() - 1] {
                let mut changed = data.clone();
                noise = noise.wrapping_add(17);
                changed[at] ^= noise | 1;
                test.give_client(&mut client, changed);
            }
            test.give_client(&mut client, data.clone());
            test.give_client(&mut client, data);
            test.events(&mut client, &mut server);
        }
    }
    assert!(!client.1.is_handshaking() && !server.as_ref().unwrap().1.is_handshaking());
    assert_eq!(lost(&mut client.1), None);
    assert_eq!(lost(&mut server.unwrap().1), None);
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

#[test]
fn rfc_9001_4_6_early_data_arrives_with_the_first_flight() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    let text: Vec<u8> = (0..5000).map(|index| index as u8).collect();
    let id = write(&mut client.1, &text);

    let mut server = None;
    let flight = test.datagrams(&mut client.1);
    assert!(flight.len() >= 5);
    for data in flight {
        assert!(test.give_server(&mut server, data).is_none());
    }
    let accepted = &mut server.as_mut().unwrap().1;
    assert!(accepted.is_handshaking());
    assert_eq!(accepted.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(accepted.streams().accept(Dir::Uni), Some(id));
    assert_eq!(read(accepted, id), (text, true));

    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert!(client.1.is_multipath());
    // All of it was acknowledged: nothing was sent twice.
    assert_eq!(
        client
            .1
            .path_stats(mpquic_core::PathId::ZERO)
            .unwrap()
            .packets_lost,
        0
    );
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9001 section 5.6: a client opens no 0-RTT packet, though it has the keys.
#[test]
fn rfc_9001_5_6_a_client_drops_zero_rtt_packets() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    write(&mut client.1, &[7; 3000]);
    let flight = test.datagrams(&mut client.1);
    let before = client.1.stats().packets_dropped;
    // The first datagram begins with an Initial packet, the second with 0-RTT.
    let datagram = Datagram {
        now: test.now,
        four_tuple: FourTuple::new(client_address(), server_address()),
        ecn: None,
        path: mpquic_core::PathId::ZERO,
        data: flight[1].clone(),
    };
    client.1.handle_datagram(datagram);
    assert_eq!(client.1.stats().packets_dropped, before + 1);
    assert_eq!(client.1.streams().accept(Dir::Uni), None);
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9000 section 8.1.3: all Initial packets have the token.
#[test]
fn rfc_9000_8_1_3_repeated_initial_packets_have_the_token_too() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let mut tokens = Vec::new();
    while tokens.len() < 3 {
        for mut datagram in test.datagrams(&mut client.1) {
            if let Ok(Header::Initial { token, .. }) =
                next_packet(&mut datagram, 8).map(|packet| packet.header)
            {
                tokens.push(token);
            }
        }
        (test.now, _) = client.1.poll_timeout().unwrap();
        client.1.handle_timeout(test.now);
    }
    assert!(!tokens[0].is_empty());
    assert!(tokens.iter().all(|token| *token == tokens[0]));
}

/// RFC 9000 section 8.1.3: no two clients get the same token, even at the same time.
#[test]
fn rfc_9000_8_1_3_each_token_is_another_one() {
    let mut test = Test::new();
    let begin = test.now;
    let mut tokens = std::collections::BTreeSet::new();
    for _ in 0..5 {
        test.now = begin;
        test.visit();
        let given = std::mem::take(&mut *test.tokens.0.lock().unwrap());
        assert!(!given.is_empty());
        for (_, token) in given {
            assert!(tokens.insert(token));
        }
    }
}

/// RFC 9001 section 9.2, RFC 8446 section 8: each ticket is good once, so that a first flight that
/// is sent again brings no data again.
#[test]
fn rfc_9001_9_2_replayed_early_data_is_not_taken() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    write(&mut client.1, &[7; 3000]);
    let flight = test.datagrams(&mut client.1);
    for expected in [ZeroRtt::Accepted, ZeroRtt::NotOffered] {
        // Another endpoint with the same tickets, so that nothing but TLS can tell the attempts
        // apart.
        let config = Arc::new(test.tls.server(test.transport.clone()));
        let endpoint = Arc::new(EndpointConfig::new([2; 32]));
        test.server = Endpoint::new(endpoint, Some(config), [5; 32]);
        let mut server = None;
        for data in &flight {
            test.give_server(&mut server, data.clone());
        }
        let accepted = &mut server.as_mut().unwrap().1;
        assert_eq!(accepted.zero_rtt(), expected);
        let stream = accepted.streams().accept(Dir::Uni);
        assert_eq!(stream.is_some(), expected == ZeroRtt::Accepted);
    }
}

/// What arrives while a connection starts waits for it.
#[test]
fn datagrams_that_overtake_the_start_of_their_connection_are_kept() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let text: Vec<u8> = (0..5000).map(|index| index as u8).collect();
    let id = write(&mut client.1, &text);
    let flight = test.datagrams(&mut client.1);
    assert!(flight.len() >= 5);
    let mut flight = flight.into_iter();
    let four_tuple = FourTuple::new(server_address(), client_address());
    let arrive = |test: &mut Test, data| {
        test.server
            .handle_datagram(test.now, four_tuple, None, data, &mut test.buf)
    };

    let first = arrive(&mut test, flight.next().unwrap());
    let Some(DatagramEvent::NewConnection(incoming)) = first else {
        panic!("{first:?}");
    };
    assert!(arrive(&mut test, flight.next().unwrap()).is_none());
    let accepting = test
        .server
        .begin_accept(test.now, incoming, &mut Vec::new())
        .unwrap();
    assert!(arrive(&mut test, flight.next().unwrap()).is_none());
    let (mut connection, accepted) = accepting.start();
    // However long that takes.
    test.now += Duration::from_secs(60);
    assert!(arrive(&mut test, flight.next().unwrap()).is_none());
    let handle = accepted.handle();
    let late = test.server.finish_accept(test.now, accepted);
    assert_eq!(late.len(), 2);
    for datagram in late {
        connection.handle_datagram(datagram);
    }
    for data in flight {
        match arrive(&mut test, data) {
            Some(DatagramEvent::Connection(to, datagram)) => {
                assert_eq!(to, handle);
                connection.handle_datagram(datagram);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(connection.streams().accept(Dir::Uni), Some(id));
    assert_eq!(read(&mut connection, id), (text, true));
    let mut server = Some((handle, connection));
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
    assert_eq!(lost(&mut client.1), None);
}

/// A connection that is given up while it starts, as by a panic, leaves nothing behind.
#[test]
fn a_connection_that_does_not_start_is_forgotten() {
    let mut test = Test::new();
    let mut client = test.connect();
    let initial = test.datagrams(&mut client.1).remove(0);
    let four_tuple = FourTuple::new(server_address(), client_address());
    for is_started in [false, true] {
        let data = initial.clone();
        let event = test
            .server
            .handle_datagram(test.now, four_tuple, None, data, &mut test.buf);
        let Some(DatagramEvent::NewConnection(incoming)) = event else {
            panic!("{event:?}");
        };
        let mut buf = Vec::new();
        let accepting = test.server.begin_accept(test.now, incoming, &mut buf);
        let accepting = accepting.unwrap();
        assert_eq!(test.server.open_connections(), 1);
        if is_started {
            drop(accepting.start());
        } else {
            drop(accepting);
        }
    }
    // The client's next datagram is a new attempt.
    let mut server = None;
    test.give_server(&mut server, initial);
    assert_eq!(test.server.open_connections(), 1);
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
}

#[test]
fn rfc_9001_4_6_lost_early_data_is_sent_again_as_one_rtt() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let id = write(&mut client.1, b"early");
    let mut server = None;
    let initial = test.datagrams(&mut client.1).remove(0);
    test.give_server(&mut server, initial);
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    for _ in 0..3 {
        if let Some((time, _)) = client.1.poll_timeout() {
            test.now = test.now.max(time);
            client.1.handle_timeout(test.now);
        }
        test.exchange(&mut client, &mut server);
    }
    let server = &mut server.as_mut().unwrap().1;
    assert_eq!(read(server, id), (b"early".to_vec(), true));
}

#[test]
fn rfc_9001_4_6_2_rejected_early_data_never_happened() {
    let mut test = Test::new();
    test.visit();
    // Another server with the same name and certificate knows nothing of the ticket.
    let other = Tls::new(b"test").server(test.transport.clone());
    test.server.set_server_config(Some(Arc::new(other)));
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    let id = write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Rejected);
    assert!(!client.1.is_handshaking());
    let path = client.1.path_stats(mpquic_core::PathId::ZERO).unwrap();
    assert_eq!((path.in_flight, path.packets_lost), (0, 0));
    assert!(client.1.send_stream(id).write(b"more").is_err());

    let accepted = &mut server.as_mut().unwrap().1;
    assert_eq!(accepted.zero_rtt(), ZeroRtt::NotOffered);
    assert_eq!(accepted.streams().accept(Dir::Uni), None);
    // The same stream ID is free again.
    assert_eq!(test.write_again(&mut client, &mut server), id);
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9369 sections 4.1 and 5: 0-RTT stays in the version it was begun in; a server that chooses
/// another one does not take the ticket.
#[test]
fn rfc_9369_5_a_change_of_the_version_rejects_early_data() {
    let mut test = Test::new();
    test.visit();
    test.restart_server_with(&[Version::V2, Version::V1]);
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Rejected);
    assert_eq!(client.1.version(), Version::V2);
    assert!(!client.1.is_handshaking());
    let accepted = &mut server.as_mut().unwrap().1;
    assert_eq!(accepted.zero_rtt(), ZeroRtt::NotOffered);
    test.write_again(&mut client, &mut server);
}

/// The same after Version Negotiation.
#[test]
fn rfc_9368_2_1_starting_over_rejects_early_data() {
    let mut test = Test::new();
    test.visit();
    test.restart_server_with(&[Version::V2]);
    let mut client = test.connect();
    let id = write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Rejected);
    assert_eq!(client.1.version(), Version::V2);
    assert_eq!(test.write_again(&mut client, &mut server), id);
    assert_eq!(lost(&mut client.1), None);
}

#[test]
fn rfc_9000_17_2_5_3_early_data_is_sent_again_after_a_retry() {
    let mut test = Test::new();
    test.visit();
    test.tokens.0.lock().unwrap().clear();
    test.retry = true;
    let mut client = test.connect();
    let id = write(&mut client.1, &[7; 3000]);
    let mut server = None;
    let flight = test.datagrams(&mut client.1);
    let mut retry = None;
    for data in flight {
        retry = retry.or(test.give_server(&mut server, data));
    }
    test.give_client(&mut client, retry.unwrap());
    let flight = test.datagrams(&mut client.1);
    assert!(flight.len() >= 3);
    for data in flight {
        test.give_server(&mut server, data);
    }
    let accepted = &mut server.as_mut().unwrap().1;
    assert!(accepted.is_handshaking());
    assert_eq!(read(accepted, id), (vec![7; 3000], true));
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(lost(&mut client.1), None);
}

/// A proven address lets the server answer before the handshake is complete.
#[test]
fn rfc_9001_5_7_a_server_may_answer_in_its_first_flight() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    write(&mut client.1, b"question");
    let mut server = None;
    for data in test.datagrams(&mut client.1) {
        test.give_server(&mut server, data);
    }
    assert_eq!(test.validated, Some(true));
    let id = write(&mut server.as_mut().unwrap().1, b"answer");
    for data in test.datagrams(&mut server.as_mut().unwrap().1) {
        test.give_client(&mut client, data);
    }
    assert!(!client.1.is_handshaking());
    assert_eq!(read(&mut client.1, id), (b"answer".to_vec(), true));
}

/// RFC 9001 section 5.7: 1-RTT packets wait for the end of the handshake; they need not be sent
/// again only because they overtook it.
#[test]
fn rfc_9001_5_7_packets_that_overtake_the_handshake_are_kept() {
    let mut test = Test::new();
    let mut client = test.connect();
    let mut server = None;
    for data in test.datagrams(&mut client.1) {
        test.give_server(&mut server, data);
    }
    for data in test.datagrams(&mut server.as_mut().unwrap().1) {
        test.give_client(&mut client, data);
    }
    assert!(!client.1.is_handshaking());
    let finished = test.datagrams(&mut client.1);
    let id = write(&mut client.1, b"early bird");
    let overtaking = test.datagrams(&mut client.1);
    for data in overtaking.into_iter().chain(finished) {
        test.give_server(&mut server, data);
    }
    let accepted = &mut server.as_mut().unwrap().1;
    assert_eq!(accepted.streams().accept(Dir::Uni), Some(id));
    assert_eq!(read(accepted, id), (b"early bird".to_vec(), true));
}

/// MP-012: what the earlier connection said about paths counts for nothing.
#[test]
fn mp_012_the_path_limit_is_not_remembered() {
    let mut test = Test::new();
    test.visit();
    // The same server, without multipath by now.
    let mut transport = test.transport.options().clone();
    transport.max_concurrent_paths = 0;
    let server = test.tls.server(built(transport));
    test.server.set_server_config(Some(Arc::new(server)));
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    assert!(!client.1.is_multipath());
    write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert!(!client.1.is_multipath() && !server.unwrap().1.is_multipath());
    assert_eq!(lost(&mut client.1), None);
}

/// draft-ietf-quic-reliable-stream-reset-11 section 3: remembered, so that 0-RTT may use it.
#[test]
fn a_reset_after_the_beginning_may_be_early_data() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let id = client.1.streams().open(Dir::Uni).unwrap();
    let mut stream = client.1.send_stream(id);
    stream.write(b"early words").unwrap();
    stream.reset_at(VarInt::from_u32(4), 5).unwrap();
    let mut server = None;
    let first = test.datagrams(&mut client.1);
    for data in first {
        test.give_server(&mut server, data);
    }
    let (_, accepted) = server.as_mut().unwrap();
    assert!(accepted.is_handshaking());
    let mut stream = accepted.recv_stream(id);
    let chunk = stream.read_chunk(100, true).unwrap().unwrap();
    assert_eq!(chunk.bytes[..], b"early"[..]);
    let reset = mpquic_core::ReadStreamError::Reset(VarInt::from_u32(4));
    assert_eq!(stream.read_chunk(100, true).map(|_| ()), Err(reset));
}

/// draft-ietf-quic-ack-frequency-14 section 3: whether a server takes requests is not remembered.
#[test]
fn the_smallest_acknowledgement_delay_is_not_remembered() {
    let mut test = Test::new();
    let mut transport = test.transport.options().clone();
    transport.ack_frequency = Some(AckFrequencyOptions::default());
    test.transport = built(transport.clone());
    test.visit();
    // The same server does not know the frames any more: it would close at the first.
    transport.min_ack_delay = None;
    let server = test.tls.server(built(transport));
    test.server.set_server_config(Some(Arc::new(server)));
    let mut client = test.connect();
    write(&mut client.1, &[7; 3000]);
    test.exchange(&mut client, &mut None);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9000 section 7.4.1: a server that takes 0-RTT may not lower what the client relied on.
#[test]
fn rfc_9000_7_4_1_lower_limits_after_early_data_are_a_violation() {
    type Change = fn(&mut TransportOptions);
    let lower: [Change; 6] = [
        |transport| transport.initial_receive_window -= 1,
        |transport| transport.initial_stream_receive_window -= 1,
        |transport| transport.max_concurrent_bidi_streams -= 1,
        |transport| transport.max_concurrent_uni_streams -= 1,
        |transport| transport.active_connection_id_limit -= 1,
        // draft-ietf-quic-reliable-stream-reset-11 section 3
        |transport| transport.reset_stream_at = false,
    ];
    let unchanged: Change = |_| {};
    for change in lower.into_iter().chain([unchanged]) {
        let mut test = Test::new();
        test.visit();
        let mut transport = test.transport.options().clone();
        change(&mut transport);
        let is_lower = transport.initial_receive_window < test.transport.initial_receive_window
            || transport.initial_stream_receive_window
                < test.transport.initial_stream_receive_window
            || transport.max_concurrent_bidi_streams < test.transport.max_concurrent_bidi_streams
            || transport.max_concurrent_uni_streams < test.transport.max_concurrent_uni_streams
            || transport.active_connection_id_limit < test.transport.active_connection_id_limit
            || !transport.reset_stream_at;
        let server = test.tls.server(built(transport));
        test.server.set_server_config(Some(Arc::new(server)));
        let mut client = test.connect();
        write(&mut client.1, b"early");
        test.exchange(&mut client, &mut None);
        assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
        match lost(&mut client.1) {
            Some(ConnectionError::TransportError(error)) => {
                assert!(is_lower);
                assert_eq!(error.fault, Fault::ZeroRttLimitsReduced);
            }
            other => assert!(!is_lower && other.is_none(), "{other:?}"),
        }
    }
}
