//! A server with many clients, most of them hostile: the limits on half-open and open connections.

use std::collections::{BTreeMap, VecDeque};

use mpquic_core::config::ServerOptions;
use mpquic_core::{EndpointEvent, Incoming, TransportErrorCode};
use mpquic_sim::NullCrypto;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A client with an address of its own.
struct Visitor {
    address: SocketAddr,
    handle: ConnectionHandle,
    connection: Connection,
}

/// What the server does about a datagram.
#[derive(Debug)]
enum Reaction {
    Nothing,
    /// It was for a connection.
    Handled,
    Attempt(Box<Incoming>),
    Answer(BytesMut),
}

impl Reaction {
    fn attempt(self) -> Incoming {
        match self {
            Self::Attempt(incoming) => *incoming,
            other => panic!("no attempt but {other:?}"),
        }
    }

    fn answer(self) -> BytesMut {
        match self {
            Self::Answer(data) => data,
            other => panic!("no answer but {other:?}"),
        }
    }
}

/// A server and any number of clients. Packets are not encrypted, to allow many clients.
struct Crowd {
    now: Instant,
    crypto: Arc<NullCrypto>,
    transport: Arc<TransportConfig>,
    /// The endpoint of all clients.
    clients: Endpoint,
    server: Endpoint,
    /// The server's connections.
    connections: BTreeMap<ConnectionHandle, Connection>,
    visitors: u32,
    buf: Vec<u8>,
}

impl Crowd {
    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    fn new(change: impl Fn(&mut ServerOptions)) -> Self {
        let transport = TransportConfig::new(mpquic_sched::default(), mpquic_cc::default());
        let transport = Arc::new(transport);
        let crypto = NullCrypto::new(b"crowd");
        let server = crypto.clone().server(transport.clone());
        let mut options = server.options().clone();
        change(&mut options);
        let server = Arc::new(options.build().unwrap());
        let config = |key| Arc::new(EndpointConfig::new([key; 32]));
        Self {
            now: Instant::now(),
            crypto,
            transport,
            clients: Endpoint::new(config(1), None, [1; 32]),
            server: Endpoint::new(config(2), Some(server), [2; 32]),
            connections: BTreeMap::new(),
            visitors: 0,
            buf: Vec::new(),
        }
    }

    /// A client that has sent nothing yet.
    fn visitor(&mut self) -> Visitor {
        self.visitors += 1;
        let [_, a, b, c] = self.visitors.to_be_bytes();
        let address = SocketAddr::from(([10, a, b, c], 5000));
        let config = self.crypto.clone().client(self.transport.clone());
        let four_tuple = FourTuple::new(address, server_address());
        let connected = self
            .clients
            .connect(self.now, config, four_tuple, "server.test");
        let (handle, connection) = connected.unwrap();
        Visitor {
            address,
            handle,
            connection,
        }
    }

    /// The first datagram of a client from whom nothing else ever comes.
    fn forged(&mut self) -> (SocketAddr, BytesMut) {
        let mut forger = self.visitor();
        let initial = self.sent(&mut forger.connection).remove(0);
        let drained = EndpointEvent::drained();
        self.clients.handle_event(forger.handle, drained);
        (forger.address, initial)
    }

    /// What a connection sends now.
    fn sent(&mut self, connection: &mut Connection) -> Vec<BytesMut> {
        super::sent(connection, self.now, &mut self.buf)
    }

    /// A datagram arrives at the server.
    fn arrive(&mut self, from: SocketAddr, data: BytesMut) -> Reaction {
        let four_tuple = FourTuple::new(server_address(), from);
        let event = self
            .server
            .handle_datagram(self.now, four_tuple, None, data, &mut self.buf);
        match event {
            Some(DatagramEvent::Connection(handle, datagram)) => {
                let connection = self.connections.get_mut(&handle).unwrap();
                connection.handle_datagram(datagram);
                self.settle(handle);
                Reaction::Handled
            }
            Some(DatagramEvent::NewConnection(incoming)) => Reaction::Attempt(Box::new(incoming)),
            Some(DatagramEvent::Response(sent)) => {
                Reaction::Answer(BytesMut::from(&self.buf[..sent.size]))
            }
            Some(_) | None => Reaction::Nothing,
        }
    }

    fn accept(&mut self, incoming: Incoming) -> ConnectionHandle {
        let accepted = self.server.accept(self.now, incoming, &mut self.buf);
        let (handle, connection) = accepted.unwrap();
        assert!(self.connections.insert(handle, connection).is_none());
        self.settle(handle);
        handle
    }

    /// The endpoint takes the events of a server's connection; a drained connection goes away.
    fn settle(&mut self, handle: ConnectionHandle) {
        let connection = self.connections.get_mut(&handle).unwrap();
        while let Some(event) = connection.poll_endpoint_event() {
            self.server.handle_event(handle, event);
        }
        if connection.is_drained() {
            self.connections.remove(&handle);
        }
    }

    /// Time passes for the server's connections, and nothing arrives.
    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let due = self.connections.iter();
            let due = due.filter_map(|(handle, connection)| {
                connection.poll_timeout().map(|(time, _)| (time, *handle))
            });
            let Some((time, handle)) = due.min().filter(|(time, _)| *time <= end) else {
                break;
            };
            self.now = self.now.max(time);
            let mut connection = self.connections.remove(&handle).unwrap();
            connection.handle_timeout(self.now);
            self.sent(&mut connection);
            self.connections.insert(handle, connection);
            self.settle(handle);
        }
        self.now = end;
    }

    /// A datagram arrives at a client.
    fn give(&mut self, visitor: &mut Visitor, data: BytesMut) {
        let four_tuple = FourTuple::new(visitor.address, server_address());
        let event = self
            .clients
            .handle_datagram(self.now, four_tuple, None, data, &mut self.buf);
        if let Some(DatagramEvent::Connection(_, datagram)) = event {
            visitor.connection.handle_datagram(datagram);
        }
    }

    /// A client and the server talk until neither has anything to say. Attempts are accepted.
    fn exchange(&mut self, visitor: &mut Visitor) {
        loop {
            self.now += MS;
            let sent = self.sent(&mut visitor.connection);
            let mut is_quiet = sent.is_empty();
            for data in sent {
                match self.arrive(visitor.address, data) {
                    Reaction::Nothing | Reaction::Handled => {}
                    Reaction::Attempt(incoming) => {
                        self.accept(*incoming);
                    }
                    Reaction::Answer(data) => self.give(visitor, data),
                }
            }
            let handles: Vec<_> = self.connections.keys().copied().collect();
            for handle in handles {
                let mut connection = self.connections.remove(&handle).unwrap();
                let sent = self.sent(&mut connection);
                self.connections.insert(handle, connection);
                is_quiet &= sent.is_empty();
                for data in sent {
                    self.give(visitor, data);
                }
            }
            while let Some(event) = visitor.connection.poll_endpoint_event() {
                self.clients.handle_event(visitor.handle, event);
            }
            if is_quiet {
                return;
            }
        }
    }

    /// What a client and a connection of the server have to say to each other until the handshake
    /// is complete on both sides takes no time.
    fn complete(&mut self, handle: ConnectionHandle, visitor: &mut Visitor) {
        while !visitor.connection.is_handshake_confirmed() {
            let mut connection = self.connections.remove(&handle).unwrap();
            let sent = self.sent(&mut connection);
            self.connections.insert(handle, connection);
            for data in sent {
                self.give(visitor, data);
            }
            for data in self.sent(&mut visitor.connection) {
                self.arrive(visitor.address, data);
            }
        }
    }

    /// A client after the server's Retry, with its next datagram.
    fn proven(&mut self) -> (Visitor, BytesMut) {
        let mut visitor = self.visitor();
        let initial = self.sent(&mut visitor.connection).remove(0);
        let retry = self.arrive(visitor.address, initial).answer();
        self.give(&mut visitor, retry);
        let again = self.sent(&mut visitor.connection).remove(0);
        (visitor, again)
    }
}

/// The code of a CONNECTION_CLOSE.
fn close_code(crowd: &mut Crowd, visitor: &mut Visitor, close: BytesMut) -> TransportErrorCode {
    crowd.give(visitor, close);
    match lost(&mut visitor.connection) {
        Some(ConnectionError::ConnectionClosed(close)) => close.code,
        other => panic!("{other:?}"),
    }
}

/// With the defaults: clients that cannot answer take no more than a fixed number of connections,
/// and other clients get in after one more round trip.
#[test]
fn a_flood_from_forged_addresses_keeps_nobody_out() {
    const FLOOD: u64 = 10_000;
    /// `retry_min_half_open`.
    const MOST: u64 = 64;
    /// For a handshake that has completed.
    const MORE: u64 = 2;
    let mut crowd = Crowd::new(|_| {});
    let mut honest = None;
    for number in 0..FLOOD {
        let (address, initial) = crowd.forged();
        let size = initial.len();
        match crowd.arrive(address, initial) {
            Reaction::Attempt(incoming) => {
                crowd.accept(*incoming);
            }
            Reaction::Answer(retry) => assert!(number >= MOST && retry.len() < size / 3),
            other => panic!("{other:?}"),
        }
        assert!(crowd.server.half_open_connections() as u64 <= MOST + MORE);
        if number == FLOOD / 2 {
            let mut visitor = crowd.visitor();
            crowd.exchange(&mut visitor);
            assert!(visitor.connection.is_handshake_confirmed());
            honest = Some(visitor);
        }
    }
    let stats = crowd.server.stats();
    assert_eq!(stats.accepted_handshakes, MOST + 1 + MORE);
    assert_eq!(stats.retries_on_demand, FLOOD - MOST + 1 - MORE);
    assert_eq!(stats.retries, stats.retries_on_demand);
    assert_eq!(crowd.server.half_open_connections() as u64, MOST + MORE);
    assert_eq!(crowd.server.open_connections() as u64, MOST + MORE + 1);

    // The connections end on their own, and make room for as many again.
    crowd.wait(20 * SECOND);
    assert_eq!(crowd.server.half_open_connections(), 0);
    assert_eq!(crowd.server.open_connections(), 1);
    assert_eq!(lost(&mut honest.unwrap().connection), None);
    let (address, initial) = crowd.forged();
    let incoming = crowd.arrive(address, initial).attempt();
    assert!(!incoming.remote_address_validated());
}

/// The more handshakes complete, the more half-open connections are allowed before clients must
/// prove their addresses: far more than arrive in a round trip.
#[test]
fn clients_with_complete_handshakes_need_no_proof() {
    const ROUND_TRIP: usize = 400;
    let mut crowd = Crowd::new(|_| {});
    let mut under_way = VecDeque::new();
    let mut most = 0;
    for millisecond in 0..4000 {
        crowd.now += MS;
        // 100 a second, and then 500.
        if millisecond % 10 == 0 || (millisecond >= 2000 && millisecond % 2 == 0) {
            let mut visitor = crowd.visitor();
            let initial = crowd.sent(&mut visitor.connection).remove(0);
            let incoming = crowd.arrive(visitor.address, initial).attempt();
            let handle = crowd.accept(incoming);
            under_way.push_back((millisecond + ROUND_TRIP, handle, visitor));
        }
        most = most.max(crowd.server.half_open_connections());
        if under_way.front().is_some_and(|(at, ..)| *at <= millisecond)
            && let Some((_, handle, mut visitor)) = under_way.pop_front()
        {
            crowd.complete(handle, &mut visitor);
        }
    }
    assert!(most > 190, "{most} at a time");
    assert_eq!(crowd.server.stats().retries, 0);
}

/// While the driver lags behind, clients have to prove their addresses, and later they get no
/// answer. Once it has caught up, they come in again. A few are always let in.
#[test]
fn a_server_that_lags_behind_lets_fewer_in() {
    const FEW: usize = 8;
    const MANY: usize = 20;
    let lags = [0, 19, 20, 99].map(|lag| lag * MS);
    let mut crowd = Crowd::new(|options| {
        options.retry_min_half_open = FEW;
        // Only the lag decides.
        options.retry_attempt_lag = 20 * MS;
        options.max_attempt_lag = 100 * MS;
    });
    // Some handshakes complete, to allow many half-open connections.
    for _ in 0..MANY {
        let mut visitor = crowd.visitor();
        let initial = crowd.sent(&mut visitor.connection).remove(0);
        let incoming = crowd.arrive(visitor.address, initial).attempt();
        let handle = crowd.accept(incoming);
        crowd.complete(handle, &mut visitor);
    }
    crowd.server.set_lag(SECOND);
    for _ in 0..FEW {
        let (address, initial) = crowd.forged();
        let incoming = crowd.arrive(address, initial).attempt();
        crowd.accept(incoming);
    }
    let (honest, proven) = {
        crowd.server.set_lag(lags[3]);
        crowd.proven()
    };
    let mut reactions = Vec::new();
    for lag in [lags[0], lags[1], lags[2], lags[3], 100 * MS] {
        crowd.server.set_lag(lag);
        let (address, initial) = crowd.forged();
        reactions.push(match crowd.arrive(address, initial) {
            Reaction::Attempt(incoming) => {
                crowd.server.ignore(*incoming);
                "let in"
            }
            Reaction::Answer(_) => "Retry",
            _ => "nothing",
        });
    }
    let expected = ["let in", "let in", "Retry", "Retry", "nothing"];
    assert_eq!(reactions, expected);
    // Not even clients with proven addresses.
    let reaction = crowd.arrive(honest.address, proven.clone());
    assert!(matches!(reaction, Reaction::Nothing), "{reaction:?}");
    assert_eq!(crowd.server.stats().dropped_at_max_attempt_lag, 2);
    crowd.server.set_lag(lags[3]);
    let incoming = crowd.arrive(honest.address, proven).attempt();
    assert!(incoming.remote_address_validated());
}

/// Attempts that wait for the application are half-open, too: it may accept them all at once.
#[test]
fn attempts_nobody_decides_on_count_as_half_open() {
    let mut crowd = Crowd::new(|options| options.retry_threshold = 3);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let (address, initial) = crowd.forged();
        waiting.push(crowd.arrive(address, initial).attempt());
    }
    assert_eq!(crowd.server.half_open_connections(), 3);
    let (address, initial) = crowd.forged();
    crowd.arrive(address, initial).answer();
    assert_eq!(crowd.server.stats().retries_on_demand, 1);
    for incoming in waiting {
        crowd.accept(incoming);
    }
    assert_eq!(crowd.server.half_open_connections(), 3);
}

/// Clients with their own addresses that never complete a handshake. Clients without room get no
/// answer, and get in with a later try.
#[test]
fn half_open_connections_are_bounded_for_proven_addresses_too() {
    let mut crowd = Crowd::new(|options| {
        options.retry_threshold = 0;
        options.max_half_open_connections = 3;
    });
    let mut first = None;
    for _ in 0..3 {
        let (visitor, initial) = crowd.proven();
        let incoming = crowd.arrive(visitor.address, initial).attempt();
        assert!(incoming.remote_address_validated());
        crowd.accept(incoming);
        first.get_or_insert(visitor);
    }
    let (late, initial) = crowd.proven();
    for tries in 1..3 {
        let reaction = crowd.arrive(late.address, initial.clone());
        assert!(matches!(reaction, Reaction::Nothing), "{reaction:?}");
        assert_eq!(crowd.server.stats().dropped_at_max_half_open, tries);
    }
    assert_eq!(crowd.server.half_open_connections(), 3);
    let mut first = first.unwrap();
    crowd.exchange(&mut first);
    assert!(first.connection.is_handshake_confirmed());
    assert_eq!(crowd.server.half_open_connections(), 2);
    assert_eq!(crowd.server.open_connections(), 3);
    let incoming = crowd.arrive(late.address, initial).attempt();
    assert!(incoming.remote_address_validated());
}

#[test]
fn open_connections_are_bounded() {
    let mut crowd = Crowd::new(|options| options.max_connections = 2);
    let mut visitors = [crowd.visitor(), crowd.visitor()];
    for visitor in &mut visitors {
        crowd.exchange(visitor);
        assert!(visitor.connection.is_handshake_confirmed());
    }
    let mut late = crowd.visitor();
    let initial = crowd.sent(&mut late.connection).remove(0);
    let close = crowd.arrive(late.address, initial).answer();
    assert_eq!(
        close_code(&mut crowd, &mut late, close),
        TransportErrorCode::CONNECTION_REFUSED
    );
    let stats = crowd.server.stats();
    assert_eq!(
        (stats.refused_at_max_connections, stats.refused_handshakes),
        (1, 1)
    );
    assert_eq!(crowd.server.open_connections(), 2);

    let [first, _] = &mut visitors;
    first
        .connection
        .close(crowd.now, VarInt::from_u32(0), Bytes::new());
    crowd.exchange(first);
    crowd.wait(5 * SECOND);
    assert_eq!(crowd.server.open_connections(), 1);
    let mut next = crowd.visitor();
    crowd.exchange(&mut next);
    assert!(next.connection.is_handshake_confirmed());
}

/// Connections started by this endpoint do not keep clients out.
#[test]
fn connections_of_clients_are_no_accepted_ones() {
    let mut crowd = Crowd::new(|options| {
        options.max_connections = 1;
        options.max_half_open_connections = 1;
    });
    let config = crowd.crypto.clone().client(crowd.transport.clone());
    let four_tuple = FourTuple::new(server_address(), client_address());
    let started = crowd
        .server
        .connect(crowd.now, config, four_tuple, "server.test");
    let (handle, connection) = started.unwrap();
    crowd.connections.insert(handle, connection);
    assert_eq!(crowd.server.half_open_connections(), 0);
    let mut visitor = crowd.visitor();
    crowd.exchange(&mut visitor);
    assert!(visitor.connection.is_handshake_confirmed());
}

/// How an attempt, or a connection before its handshake is complete, may end.
#[derive(Debug, Clone, Copy)]
enum End {
    Refused,
    Ignored,
    Retried,
    /// Nobody decides.
    Forgotten,
    AttemptDropped,
    DroppedBeforeStart,
    DroppedAfterStart,
    TimedOut,
    ClosedByServer,
    ClosedByClient,
    /// The driver drops the connection.
    Abandoned,
    /// Once complete, the client closes it.
    Complete,
}

impl End {
    const ALL: [Self; 12] = [
        Self::Refused,
        Self::Ignored,
        Self::Retried,
        Self::Forgotten,
        Self::AttemptDropped,
        Self::DroppedBeforeStart,
        Self::DroppedAfterStart,
        Self::TimedOut,
        Self::ClosedByServer,
        Self::ClosedByClient,
        Self::Abandoned,
        Self::Complete,
    ];

    /// Lets an attempt end this way.
    fn happen(self, crowd: &mut Crowd, visitor: &mut Visitor, incoming: Incoming) {
        let (now, mut buf) = (crowd.now, Vec::new());
        let code = VarInt::from_u32(0);
        match self {
            Self::Refused => assert!(crowd.server.refuse(incoming, &mut buf).is_some()),
            Self::Ignored => crowd.server.ignore(incoming),
            Self::Retried => assert!(crowd.server.retry(now, incoming, &mut buf).is_ok()),
            Self::Forgotten => crowd.now += 30 * SECOND,
            Self::AttemptDropped => drop(incoming),
            Self::DroppedBeforeStart | Self::DroppedAfterStart => {
                let accepting = crowd.server.begin_accept(now, incoming, &mut buf).unwrap();
                if matches!(self, Self::DroppedAfterStart) {
                    drop(accepting.start());
                }
            }
            Self::TimedOut => {
                crowd.accept(incoming);
                crowd.wait(20 * SECOND);
            }
            Self::ClosedByServer => {
                let handle = crowd.accept(incoming);
                let connection = crowd.connections.get_mut(&handle).unwrap();
                connection.close(now, code, Bytes::new());
                crowd.wait(5 * SECOND);
            }
            Self::ClosedByClient => {
                crowd.accept(incoming);
                visitor.connection.close(now, code, Bytes::new());
                let close = crowd.sent(&mut visitor.connection).remove(0);
                assert!(matches!(
                    crowd.arrive(visitor.address, close),
                    Reaction::Handled
                ));
                crowd.wait(5 * SECOND);
            }
            Self::Abandoned => {
                let handle = crowd.accept(incoming);
                crowd.connections.remove(&handle);
                crowd.server.handle_event(handle, EndpointEvent::drained());
            }
            Self::Complete => {
                crowd.accept(incoming);
                crowd.exchange(visitor);
                assert!(visitor.connection.is_handshake_confirmed());
                assert_eq!(crowd.server.half_open_connections(), 0);
                visitor.connection.close(crowd.now, code, Bytes::new());
                crowd.exchange(visitor);
                crowd.wait(5 * SECOND);
            }
        }
    }
}

/// After any end, the next client gets the place.
#[test]
fn every_end_makes_room() {
    for end in End::ALL {
        let mut crowd = Crowd::new(|options| {
            options.max_connections = 1;
            options.max_half_open_connections = 1;
        });
        for _ in 0..3 {
            let mut visitor = crowd.visitor();
            let initial = crowd.sent(&mut visitor.connection).remove(0);
            let incoming = crowd.arrive(visitor.address, initial).attempt();
            assert_eq!(crowd.server.half_open_connections(), 1, "{end:?}");
            let (address, other) = crowd.forged();
            crowd.arrive(address, other).answer();
            end.happen(&mut crowd, &mut visitor, incoming);
        }
        // The endpoint looks at its attempts when another one comes.
        let (address, initial) = crowd.forged();
        let incoming = crowd.arrive(address, initial).attempt();
        crowd.server.ignore(incoming);
        assert_eq!(crowd.server.half_open_connections(), 0, "{end:?}");
        assert_eq!(crowd.server.open_connections(), 0, "{end:?}");
    }
}
