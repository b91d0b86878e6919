//! A ClientHello of two datagrams, as X25519MLKEM768 makes it, over a network that does something
//! to either of them. All of it in virtual time.

use std::collections::BTreeMap;

use allocation_counter::measure;
use mpquic_core::crypto::rustls::{KeyExchange, QuicServerConfig};
use mpquic_core::{KeyExchangeGroup, Side};

use super::*;

/// How long a datagram takes.
const DELAY: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
/// Bytes of an Initial packet to a client before its address is proven, for each that came from
/// there (RFC 9000 section 8.1).
const FACTOR: usize = 3;

/// What becomes of a datagram: when each copy of it arrives, after it was sent.
type Fate = Vec<Duration>;

fn lost_on_the_way() -> Fate {
    Vec::new()
}

fn overtaken() -> Fate {
    vec![DELAY + 5 * MS]
}

fn doubled() -> Fate {
    vec![DELAY, DELAY + MS, DELAY + 40 * MS]
}

const FATES: [fn() -> Fate; 3] = [lost_on_the_way, overtaken, doubled];

/// A network between a client and a server.
struct Network<'a> {
    test: &'a mut Test,
    client: Hosted,
    server: Option<Hosted>,
    /// Datagrams under way, by the time of their arrival and their number.
    under_way: BTreeMap<(Instant, usize), (Side, BytesMut)>,
    /// How many there were.
    copies: usize,
    /// How many datagrams each side has sent.
    sent: [usize; 2],
    /// What arrived at the server, and what it sent before the client's address was proven, bytes.
    arrived: usize,
    answered: usize,
    is_proven: bool,
}

impl<'a> Network<'a> {
    fn new(test: &'a mut Test) -> Self {
        Self {
            client: test.connect(),
            server: None,
            under_way: BTreeMap::new(),
            copies: 0,
            sent: [0; 2],
            arrived: 0,
            answered: 0,
            is_proven: false,
            test,
        }
    }

    /// All of it arrives, unless `fate` says otherwise of the datagram of a side with this number.
    fn run(&mut self, limit: Duration, fate: impl Fn(Side, usize) -> Option<Fate>) -> Duration {
        let begin = self.test.now;
        while self.test.now < begin + limit && !self.is_done() {
            self.send(&fate);
            let arrival = self.under_way.first_key_value().map(|((time, _), _)| *time);
            let timer = |hosted: &mut Hosted| Some(hosted.1.poll_timeout()?.0);
            let timers = [
                timer(&mut self.client),
                self.server.as_mut().and_then(timer),
            ];
            let next = timers.into_iter().chain([arrival]).flatten().min();
            self.test.now = self.test.now.max(next.unwrap_or(begin + limit));
            self.arrive();
            for (hosted, timer) in [Some(&mut self.client), self.server.as_mut()]
                .into_iter()
                .zip(timers)
            {
                if let (Some((_, connection)), Some(time)) = (hosted, timer)
                    && time <= self.test.now
                {
                    connection.handle_timeout(self.test.now);
                }
            }
            self.test.events(&mut self.client, &mut self.server);
        }
        self.test.now - begin
    }

    fn is_done(&self) -> bool {
        let is_complete = |hosted: &Hosted| hosted.1.is_handshake_confirmed();
        is_complete(&self.client) && self.server.as_ref().is_some_and(is_complete)
    }

    fn send(&mut self, fate: &impl Fn(Side, usize) -> Option<Fate>) {
        for data in self.test.datagrams(&mut self.client.1) {
            self.put(Side::Client, data, fate);
        }
        let sent = match &mut self.server {
            Some((_, server)) => self.test.datagrams(server),
            None => Vec::new(),
        };
        for data in sent {
            self.put(Side::Server, data, fate);
        }
    }

    fn put(&mut self, from: Side, data: BytesMut, fate: &impl Fn(Side, usize) -> Option<Fate>) {
        if from == Side::Server && !self.is_proven {
            self.answered += data.len();
            assert!(
                self.answered <= FACTOR * self.arrived,
                "{} bytes for {}",
                self.answered,
                self.arrived
            );
        }
        let count = &mut self.sent[from as usize];
        for delay in fate(from, *count).unwrap_or(vec![DELAY]) {
            self.copies += 1;
            let at = (self.test.now + delay, self.copies);
            self.under_way.insert(at, (from, data.clone()));
        }
        *count += 1;
    }

    fn arrive(&mut self) {
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.test.now
        {
            let (from, data) = entry.remove();
            if from == Side::Server {
                self.test.give_client(&mut self.client, data);
                continue;
            }
            self.arrived += data.len();
            self.is_proven |= has_handshake_packet(data.clone());
            if let Some(answer) = self.test.give_server(&mut self.server, data) {
                self.put(Side::Server, answer, &|_, _| None);
            }
            self.is_proven |= self.test.validated == Some(true);
            self.test.events(&mut self.client, &mut self.server);
        }
    }

    /// Both sides agree on the hybrid, and neither has anything to complain of.
    fn check(&mut self) {
        let hybrid = Some(KeyExchangeGroup::X25519MLKEM768);
        self.agreed_on(hybrid);
    }

    fn agreed_on(&mut self, group: Option<KeyExchangeGroup>) {
        assert!(self.is_done());
        for hosted in [&mut self.client, self.server.as_mut().unwrap()] {
            assert_eq!(lost(&mut hosted.1), None);
            assert_eq!(hosted.1.stats().key_exchange, group);
            let data = hosted.1.handshake_data().unwrap();
            assert_eq!(data.key_exchange, group);
            assert_eq!(data.protocol.as_deref(), Some(&b"test"[..]));
        }
    }
}

fn has_handshake_packet(mut data: BytesMut) -> bool {
    let packets = std::iter::from_fn(|| next_packet(&mut data, 8).ok());
    packets
        .map(|packet| packet.header)
        .any(|header| matches!(header, Header::Handshake { .. }))
}

/// Bytes of CRYPTO frames cannot be seen, but a ClientHello that leaves room has padding behind it.
fn first_flight(test: &mut Test) -> (Hosted, Vec<BytesMut>) {
    let mut client = test.connect();
    let flight = test.datagrams(&mut client.1);
    assert_eq!(flight.len(), 2, "a ClientHello of two datagrams");
    (client, flight)
}

/// RFC 9000 section 14.1: each of them is full, and no larger than what every path carries.
#[test]
fn a_client_hello_with_the_hybrid_takes_two_full_datagrams() {
    let mut test = Test::new();
    let (_, flight) = first_flight(&mut test);
    assert!(flight.iter().all(|data| data.len() == 1200));
    test.tls = test.tls.key_exchange(KeyExchange::Classical).unwrap();
    let mut client = test.connect();
    assert_eq!(test.datagrams(&mut client.1).len(), 1);
}

/// Whatever happens to one of the first datagrams of either side, or to both, costs some round
/// trips and no more: a server acknowledges the half that it has, so that the client need not wait
/// for a whole first probe timeout.
#[test]
fn whatever_happens_to_either_datagram_the_handshake_completes() {
    for (side, retry) in [
        (Side::Client, false),
        (Side::Client, true),
        (Side::Server, false),
    ] {
        for (number, fate) in (0..3).flat_map(|number| FATES.map(|fate| (number, fate))) {
            let mut test = Test::new();
            test.retry = retry;
            let mut network = Network::new(&mut test);
            // After a Retry, the datagrams that count are the third and the fourth.
            let first = 2 * usize::from(retry);
            let took = network.run(60 * SECOND, |from, sent| {
                (from == side && sent == first + number).then(fate)
            });
            network.check();
            let case = format!("{side:?} {number} {:?} {retry}", fate());
            assert!(took < 250 * MS, "{case}: {took:?}");
        }
    }
}

#[test]
fn a_lost_first_flight_is_sent_again_as_a_whole() {
    for also in [None, Some(0), Some(1)] {
        let mut test = Test::new();
        let mut network = Network::new(&mut test);
        // Both, and one of those that repeat them.
        let took = network.run(60 * SECOND, |from, sent| {
            let is_lost = sent < 2 || also.is_some_and(|also| sent == 2 + also);
            (from == Side::Client && is_lost).then(lost_on_the_way)
        });
        network.check();
        // The first probe timeout is a second (RFC 9002 section 6.2.2).
        assert!((SECOND..1300 * MS).contains(&took), "{also:?}: {took:?}");
    }
}

/// The second half is what the server hears of the client first, and for long.
#[test]
fn the_second_half_may_come_first() {
    let mut test = Test::new();
    let mut network = Network::new(&mut test);
    let took = network.run(60 * SECOND, |from, sent| {
        (from == Side::Client && sent == 0).then(|| vec![DELAY + 300 * MS])
    });
    network.check();
    // The client has repeated it meanwhile.
    assert!(took < 250 * MS, "{took:?}");
}

/// RFC 9000 section 8.1: of whoever has sent one half only, a server knows nothing yet, and owes it
/// little.
#[test]
fn rfc_9000_8_1_half_a_client_hello_gets_acknowledgements_and_no_more() {
    for half in [0, 1] {
        let mut test = Test::new();
        let mut network = Network::new(&mut test);
        // The client sends nothing else that arrives, and hears nothing.
        network.run(25 * SECOND, |from, sent| {
            let arrives = from == Side::Client && sent == half;
            (!arrives).then(lost_on_the_way)
        });
        let (arrived, answered) = (network.arrived, network.answered);
        assert!(!network.is_proven && arrived == 1200, "{arrived}");
        assert!((1..100).contains(&answered), "{answered}");
        assert_eq!(network.sent[1], 1, "an acknowledgement");
        assert_eq!(network.test.server.half_open_connections(), 0);
    }
}

/// The halves come again and again, and the answers are all lost.
#[test]
fn rfc_9000_8_1_a_client_that_is_not_heard_does_not_get_more_than_three_times_its_bytes() {
    let mut test = Test::new();
    let mut network = Network::new(&mut test);
    let deaf = |from, _| (from == Side::Server).then(lost_on_the_way);
    network.run(15 * SECOND, deaf);
    assert!(!network.is_proven && network.arrived > 4 * 1200);
    assert!(network.answered > 4 * 1200, "{}", network.answered);
}

/// RFC 8446 section 4.1.4: a server that takes only what the client has sent no key for. The
/// ClientHello comes in two datagrams, and then once more in one.
#[test]
fn a_hello_retry_request_costs_a_round_trip_whatever_is_lost() {
    let group = KeyExchangeGroup(0x17);
    let tls = || {
        let mut provider = mpquic_core::crypto::rustls::provider();
        let groups = &mut provider.kx_groups;
        groups.retain(|taken| u16::from(taken.name()) == group.0);
        let (certificate, key) = mpquic_sim::tls::certificate();
        let chain = vec![certificate];
        let server = QuicServerConfig::with_provider(Arc::new(provider), chain, key, &[b"test"]);
        Tls::new(b"test").with_server(Arc::new(server.unwrap()))
    };
    let none = [(None, lost_on_the_way as fn() -> Fate)];
    let cases = (0..4).flat_map(|number| FATES.map(|fate| (Some(number), fate)));
    for (number, fate) in none.into_iter().chain(cases) {
        for retry in [false, true] {
            let mut test = Test::of(tls());
            test.retry = retry;
            let mut network = Network::new(&mut test);
            let took = network.run(60 * SECOND, |from, sent| {
                (from == Side::Client && Some(sent) == number).then(fate)
            });
            network.agreed_on(Some(group));
            assert!(took < 1300 * MS, "{number:?} {retry}: {took:?}");
            if number.is_none() {
                // Handshake, HelloRetryRequest, confirmation.
                let round_trips = 3 + u32::from(retry);
                assert!(took <= round_trips * 2 * DELAY + DELAY, "{took:?}");
            }
        }
    }
}

/// A server that has no hybrid takes the key of X25519 that the ClientHello brings besides.
#[test]
fn a_server_without_the_hybrid_needs_no_second_client_hello() {
    let tls = Tls::new(b"test");
    let classical = tls.key_exchange(KeyExchange::Classical).unwrap();
    let mut test = Test::of(classical.with_client_of(&tls));
    let mut network = Network::new(&mut test);
    let took = network.run(SECOND, |_, _| None);
    network.agreed_on(Some(KeyExchangeGroup::X25519));
    assert!(took <= 5 * DELAY, "{took:?}");
}

/// RFC 9001 section 5.7: early data that comes before the rest of the ClientHello waits for it.
#[test]
fn early_data_survives_what_happens_to_either_datagram() {
    for (number, fate) in (0..3).flat_map(|number| FATES.map(|fate| (number, fate))) {
        let mut test = Test::new();
        test.visit();
        let mut network = Network::new(&mut test);
        assert_eq!(network.client.1.zero_rtt(), ZeroRtt::Offered);
        let text: Vec<u8> = (0..5000).map(|index| index as u8).collect();
        let id = write(&mut network.client.1, &text);
        let took = network.run(60 * SECOND, |from, sent| {
            (from == Side::Client && sent == number).then(fate)
        });
        network.check();
        let case = format!("{number} {:?}", fate());
        assert!(took < 250 * MS, "{case}: {took:?}");
        assert_eq!(network.client.1.zero_rtt(), ZeroRtt::Accepted, "{case}");
        network
            .test
            .exchange(&mut network.client, &mut network.server);
        let server = &mut network.server.as_mut().unwrap().1;
        assert_eq!(read(server, id), (text, true), "{case}");
        if number < 2 {
            // What came while a half was missing was kept: nothing but that half is sent again.
            let path = network.client.1.path_stats(mpquic_core::PathId::ZERO);
            let lost = path.unwrap().packets_lost;
            assert!(lost <= 1, "{case}: {lost}");
        }
    }
}

/// Nobody can tell yet whether it is genuine, or will ever be wanted.
#[test]
fn early_data_without_a_whole_client_hello_is_bounded() {
    const MOST: u64 = 16;
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let id = write(&mut client.1, &[7; 3000]);
    let mut flight = test.datagrams(&mut client.1);
    let first_half = flight.remove(0);
    let mut server = None;
    let early = flight.pop().unwrap();
    let early_packets = flight.len() as u64 - 1 + 40;
    for data in flight.into_iter().chain((0..40).map(|_| early.clone())) {
        test.give_server(&mut server, data);
    }
    let dropped = server.as_ref().unwrap().1.stats().packets_dropped;
    assert_eq!(dropped, early_packets - MOST);
    // What was kept is good all the same.
    test.give_server(&mut server, first_half);
    let accepted = &mut server.as_mut().unwrap().1;
    assert_eq!(accepted.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(read(accepted, id), (vec![7; 3000], true));
}

/// A token leaves each datagram little room: the ClientHello takes as many as it needs, and all
/// have the token.
#[test]
fn a_long_token_makes_a_client_hello_of_many_datagrams() {
    for retry in [false, true] {
        for missing in [None, Some(0), Some(1), Some(5)] {
            let mut test = Test::new();
            test.retry = retry;
            let token = Bytes::from(vec![7; 1000]);
            *test.tokens.0.lock().unwrap() = vec![("token v1 server.test".to_owned(), token)];
            let mut network = Network::new(&mut test);
            let took = network.run(60 * SECOND, |from, sent| {
                (from == Side::Client && Some(sent) == missing).then(lost_on_the_way)
            });
            network.check();
            assert!(network.sent[0] > 10, "{:?}", network.sent);
            assert!(took < 300 * MS, "{retry} {missing:?}: {took:?}");
        }
    }
}

/// Between both datagrams, the server may find that it has room again: a connection for the second
/// half would only take room, since its client follows the Retry that answered the first.
#[test]
fn client_asked_for_a_proof_is_asked_with_both_datagrams() {
    let mut test = Test::new();
    let server = test.tls.server(test.transport.clone());
    let mut strict = server.options().clone();
    strict.retry_threshold = 0;
    test.server
        .set_server_config(Some(Arc::new(strict.build().unwrap())));
    let (mut client, flight) = first_flight(&mut test);
    let mut server_side = None;
    let mut retries = Vec::new();
    for data in flight {
        retries.extend(test.give_server(&mut server_side, data));
        test.server
            .set_server_config(Some(Arc::new(server.options().clone().build().unwrap())));
    }
    assert_eq!(retries.len(), 2);
    assert_eq!(test.server.half_open_connections(), 0);
    for retry in retries {
        test.give_client(&mut client, retry);
    }
    test.exchange(&mut client, &mut server_side);
    assert!(!client.1.is_handshaking());
    assert_eq!(test.server.open_connections(), 1);
    assert_eq!(test.validated, Some(true));
}

/// The application decides about a client once.
#[test]
fn refused_client_does_not_return_with_its_second_datagram() {
    let mut test = Test::new();
    let (mut client, flight) = first_flight(&mut test);
    let four_tuple = FourTuple::new(server_address(), client_address());
    let arrive = |test: &mut Test, half: usize| {
        let data = flight[half].clone();
        (test.server).handle_datagram(test.now, four_tuple, None, data, &mut test.buf)
    };
    let Some(DatagramEvent::NewConnection(incoming)) = arrive(&mut test, 0) else {
        panic!("no attempt");
    };
    let close = test.server.refuse(incoming, &mut test.buf).unwrap();
    let close = BytesMut::from(&test.buf[..close.size]);
    let second = arrive(&mut test, 1);
    assert!(
        matches!(second, Some(DatagramEvent::Response(_))),
        "{second:?}"
    );
    assert_eq!(test.server.stats().refused_handshakes, 1);
    assert_eq!(test.server.half_open_connections(), 0);
    test.give_client(&mut client, close);
    assert!(matches!(
        lost(&mut client.1),
        Some(ConnectionError::ConnectionClosed(_))
    ));
}

/// RFC 9369 section 4.1: the version is chosen when the whole ClientHello is there; until then the
/// server answers in that of the client.
#[test]
fn the_version_may_change_after_half_a_client_hello() {
    for (number, fate) in (0..2).flat_map(|number| FATES.map(|fate| (number, fate))) {
        let mut test = Test::new();
        test.restart_server_with(&[Version::V2, Version::V1]);
        let mut network = Network::new(&mut test);
        let took = network.run(60 * SECOND, |from, sent| {
            (from == Side::Client && sent == number).then(fate)
        });
        network.check();
        assert_eq!(network.client.1.version(), Version::V2);
        assert!(took < 250 * MS, "{number} {:?}: {took:?}", fate());
    }
}

/// What docs/memory.md says of it. The server keeps no more for an unproven address.
#[test]
fn a_half_open_connection_keeps_little_of_half_a_client_hello_and_of_all() {
    for halves in [1, 2] {
        let mut test = Test::new();
        let (_client, flight) = first_flight(&mut test);
        let mut server = None;
        let kept = measure(|| {
            for data in &flight[..halves] {
                test.give_server(&mut server, data.clone());
            }
            let (_, server) = server.as_mut().unwrap();
            test.datagrams(server);
        });
        let counted = test.server.stats().memory;
        let kept = u64::try_from(kept.bytes_current).unwrap();
        // Of half a ClientHello, TLS knows nothing yet.
        let most = [16 << 10, 28 << 10][halves - 1];
        assert!(kept < most, "{halves}: {kept}");
        assert!(counted * 3 / 2 > kept, "{halves}: {counted} of {kept}");
    }
}
