//! An endpoint alone: what it answers, and what it remembers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use quinn_proto::{ConnectionId, TimeSource};

use super::server::Server;
use super::{DatagramEvent, Endpoint, Incoming};
use crate::config::{EndpointConfig, EndpointOptions, ServerOptions, TransportConfig};
use crate::congestion::{Controller, ControllerFactory};
use crate::crypto::tests::{initial_keys, server_config};
use crate::crypto::tokens::{ResetKey, TokenIssuer};
use crate::crypto::{Keys, RetryTokenKey, RetryTokens};
use crate::error::TransportErrorCode;
use crate::event::{EndpointEvent, RouteChange};
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::delivery::Delivery;
use crate::packet::opener;
use crate::sched::{Scheduler, SchedulerFactory};
use crate::version::Version;
use crate::wire::frame::FrameCounts;
use crate::wire::frame::{Close, Frame, FrameIter};
use crate::wire::header::{Header, PacketHeader, next_packet};

#[derive(Debug)]
struct NoPolicy;

impl SchedulerFactory for NoPolicy {
    fn build(&self) -> Box<dyn Scheduler> {
        unreachable!("no connection is made")
    }
}

impl ControllerFactory for NoPolicy {
    fn build(&self) -> Box<dyn Controller> {
        unreachable!("no connection is made")
    }
}

#[derive(Debug)]
struct Clock(Mutex<SystemTime>);

impl TimeSource for Clock {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }
}

struct Test {
    endpoint: Endpoint,
    options: ServerOptions,
    clock: Arc<Clock>,
    now: Instant,
    buf: Vec<u8>,
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn client() -> FourTuple {
    FourTuple::new(address("192.0.2.1:443"), address("198.51.100.1:5000"))
}

fn client_scid() -> ConnectionId {
    ConnectionId::new(&[0xc; 8])
}

fn dcid(number: u8) -> ConnectionId {
    ConnectionId::new(&[number; 8])
}

/// A client's Initial of 1200 bytes.
fn initial(dcid: ConnectionId, token: &[u8]) -> BytesMut {
    initial_of(dcid, token, 1200)
}

fn initial_of(dcid: ConnectionId, token: &[u8], size: usize) -> BytesMut {
    let keys = initial_keys(rustls::Side::Client, &dcid);
    let header = PacketHeader::Initial {
        version: Version::V1,
        dcid,
        scid: client_scid(),
        token: Bytes::copy_from_slice(token),
    };
    let start = PacketStart {
        header: &header,
        space: SpaceId::Initial,
        packet_number: 0,
        largest_acked: None,
        tag_length: 16,
        limit: size,
        clear_quic_bit: false,
    };
    let mut buf = Vec::new();
    let packet = PacketBuilder::start(&mut buf, start).unwrap();
    assert!(
        packet
            .writer(&mut buf, &mut FrameCounts::default())
            .try_write(&Frame::Ping, Delivery::Nothing)
    );
    packet.finish(
        &mut buf,
        &*keys.header.local,
        &*keys.packet.local,
        Some(size),
    );
    BytesMut::from(&buf[..])
}

impl Test {
    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    fn new() -> Self {
        let clock = Arc::new(Clock(Mutex::new(UNIX_EPOCH + Duration::from_secs(1 << 30))));
        let policy = Arc::new(NoPolicy);
        let transport = Arc::new(TransportConfig::new(policy.clone(), policy));
        let mut options = ServerOptions::new(Arc::new(server_config()), transport, [5; 32]);
        options.time_source = clock.clone();
        let config = Arc::new(options.clone().build().unwrap());
        let endpoint = EndpointConfig::new([6; 32]);
        Self {
            endpoint: Endpoint::new(Arc::new(endpoint), Some(config), [7; 32]),
            options,
            clock,
            now: Instant::now(),
            buf: Vec::new(),
        }
    }

    fn set_max_incoming(&mut self, count: usize) {
        self.options.max_incoming = count;
        let config = self.options.clone().build().unwrap();
        self.endpoint.set_server_config(Some(Arc::new(config)));
    }

    fn later(&mut self, duration: Duration) {
        self.now += duration;
        *self.clock.0.lock().unwrap() += duration;
    }

    fn receive_from(&mut self, remote: &str, data: BytesMut) -> Option<DatagramEvent> {
        let four_tuple = FourTuple::new(client().local, address(remote));
        self.endpoint
            .handle_datagram(self.now, four_tuple, None, data, &mut self.buf)
    }

    fn receive(&mut self, data: impl AsRef<[u8]>) -> Option<DatagramEvent> {
        self.receive_from("198.51.100.1:5000", BytesMut::from(data.as_ref()))
    }

    fn incoming(&mut self, data: BytesMut) -> Incoming {
        match self.receive(data) {
            Some(DatagramEvent::NewConnection(incoming)) => incoming,
            other => panic!("{other:?}"),
        }
    }

    /// The code of the close that answered an Initial to `dcid`.
    fn close_code(&self, dcid: ConnectionId) -> TransportErrorCode {
        let keys = initial_keys(rustls::Side::Client, &dcid);
        let Keys { header, packet } = &keys;
        let mut received = next_packet(&mut BytesMut::from(&self.buf[..]), 8).unwrap();
        assert_eq!(*received.header.dcid(), client_scid());
        let unprotected = opener::unprotect(&mut received, &*header.remote, 0).unwrap();
        let payload = opener::open(&mut received, &unprotected, &*packet.remote, PathId::ZERO);
        match FrameIter::new(payload.unwrap(), false).next() {
            Some(Ok(Frame::ConnectionClose(Close::Connection(close)))) => close.code,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a Retry; returns the client's next Initial.
    fn retry(&mut self, incoming: Incoming) -> (ConnectionId, Bytes) {
        let original = incoming.initial.dcid;
        let sent = self.endpoint.retry(self.now, incoming, &mut self.buf);
        assert_eq!(sent.unwrap().size, self.buf.len());
        let packet = next_packet(&mut BytesMut::from(&self.buf[..]), 8).unwrap();
        let Header::Retry {
            dcid,
            scid,
            token,
            tag,
            ..
        } = packet.header
        else {
            panic!("{:?}", packet.header);
        };
        assert_eq!(dcid, client_scid());
        let unsealed = &self.buf[..self.buf.len() - 16];
        assert_eq!(
            tag,
            crate::crypto::tokens::retry_tag(Version::V1, &original, unsealed)
        );
        (scid, token)
    }

    /// The issuer of the tokens of one connection.
    fn issuer(&self) -> TokenIssuer {
        let server = Server::new(Arc::new(self.options.clone().build().unwrap()));
        server.token_issuer().unwrap()
    }

    fn new_token(&mut self, addresses: &[&str], nonce: u8) -> Vec<u8> {
        token_of(&mut self.issuer(), addresses, nonce)
    }

    fn is_validated(&mut self, number: u8, token: &[u8]) -> bool {
        let incoming = self.incoming(initial(dcid(number), token));
        let validated = incoming.remote_address_validated();
        assert!(incoming.may_retry());
        self.endpoint.ignore(incoming);
        validated
    }
}

fn token_of(issuer: &mut TokenIssuer, addresses: &[&str], nonce: u8) -> Vec<u8> {
    let port = client().remote.port();
    let addresses = addresses
        .iter()
        .map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
    issuer.token(Version::V1, addresses, [nonce; 16])
}

#[test]
fn rfc_9000_6_version_negotiation_echoes_any_connection_id() {
    let mut test = Test::new();
    let mut datagram = vec![0x80, 0xab, 0xcd, 0xef, 0x01, 200];
    datagram.extend_from_slice(&[1; 200]);
    datagram.push(0);
    datagram.resize(1199, 9);
    assert!(test.receive(&datagram).is_none());
    datagram.push(9);
    let Some(DatagramEvent::Response(transmit)) = test.receive(&datagram) else {
        panic!("no answer");
    };
    assert_eq!(
        (transmit.size, transmit.four_tuple),
        (test.buf.len(), client())
    );
    assert_eq!(test.buf[1..7], [0, 0, 0, 0, 0, 200]);
    assert_eq!(test.buf[7..207], [1; 200]);
    assert!(
        test.buf[207..]
            .chunks(4)
            .any(|version| version == [0, 0, 0, 1])
    );
    assert!(test.buf.len() < datagram.len());

    test.endpoint = Endpoint::new(test.endpoint.config.clone(), None, [1; 32]);
    assert!(test.receive(&datagram).is_none());
}

#[test]
fn rfc_9000_14_1_datagrams_other_than_attempts_are_dropped() {
    let mut test = Test::new();
    assert!(test.receive(initial_of(dcid(1), b"", 1199)).is_none());
    assert!(
        test.receive(initial(ConnectionId::new(&[1; 7]), b""))
            .is_none()
    );
    let mut forged = initial(dcid(1), b"");
    forged[1150] ^= 1;
    assert!(test.receive(forged).is_none());
    let mut zero_rtt = initial(dcid(1), b"");
    zero_rtt[0] |= 0x10;
    assert!(test.receive(zero_rtt).is_none());
    assert_eq!(test.endpoint.attempts.waiting(), 0);
    assert!(test.endpoint.routes.is_empty());
}

#[test]
fn repeated_initials_belong_to_one_attempt() {
    let mut test = Test::new();
    let incoming = test.incoming(initial(dcid(1), b""));
    assert_eq!(incoming.four_tuple(), client());
    assert!(!incoming.remote_address_validated() && incoming.may_retry());
    for _ in 0..1000 {
        assert!(test.receive(initial(dcid(1), b"")).is_none());
    }
    let other = test.incoming(initial(dcid(2), b""));
    let kept = test.endpoint.attempts.remove(&incoming.place);
    assert_eq!(kept.len(), (32 << 10) / 1200);
    test.endpoint.ignore(incoming);
    test.endpoint.ignore(other);
    assert!(test.endpoint.routes.is_empty());
    // Forgotten: the same Initial is a new attempt.
    let again = test.incoming(initial(dcid(1), b""));
    test.endpoint.ignore(again);
}

#[test]
fn attempts_are_bounded_and_expire() {
    let mut test = Test::new();
    test.set_max_incoming(2);
    let first = test.incoming(initial(dcid(1), b""));
    let second = test.incoming(initial(dcid(2), b""));
    let third = test.receive(initial(dcid(3), b""));
    assert!(matches!(third, Some(DatagramEvent::Response(_))));
    assert_eq!(
        test.close_code(dcid(3)),
        TransportErrorCode::CONNECTION_REFUSED
    );

    test.later(Duration::from_secs(31));
    // Another client: one that was refused goes by that answer.
    let third = test.incoming(initial(dcid(4), b""));
    assert_eq!(test.endpoint.attempts.waiting(), 1);
    // Deciding late is harmless.
    test.endpoint.ignore(first);
    test.endpoint.refuse(second, &mut test.buf);
    assert_eq!(
        test.close_code(dcid(2)),
        TransportErrorCode::CONNECTION_REFUSED
    );
    test.endpoint.ignore(third);
    assert!(test.endpoint.routes.is_empty());
}

/// Clients prove their addresses with many half-open connections; with a driver that lags far
/// behind as well, no client gets an answer.
#[test]
fn under_pressure_clients_prove_their_addresses_and_then_have_to_come_again() {
    let mut test = Test::new();
    test.options.retry_min_half_open = 2;
    test.set_max_incoming(10);
    let _waiting = [1, 2].map(|number| test.incoming(initial(dcid(number), b"")));
    // Without a token, and with one of somebody else.
    for (retries, token) in [(1, &b""[..]), (2, b"of another server")] {
        let answer = test.receive(initial(dcid(3), token));
        assert!(matches!(answer, Some(DatagramEvent::Response(_))));
        let stats = test.endpoint.stats();
        assert_eq!((stats.retries, stats.retries_on_demand), (retries, retries));
    }
    let packet = next_packet(&mut BytesMut::from(&test.buf[..]), 8).unwrap();
    let Header::Retry { scid, token, .. } = packet.header else {
        panic!("{:?}", packet.header);
    };
    test.endpoint.set_lag(test.options.max_attempt_lag);
    assert!(test.receive(initial(scid, &token)).is_none());
    assert_eq!(test.endpoint.stats().dropped_at_max_attempt_lag, 1);
    test.endpoint.set_lag(Duration::ZERO);
    let proven = test.incoming(initial(scid, &token));
    assert!(proven.remote_address_validated());
}

#[test]
fn half_open_connections_are_bounded_even_with_proofs() {
    let mut test = Test::new();
    test.options.max_half_open_connections = 1;
    test.set_max_incoming(10);
    let (scid, token) = {
        let incoming = test.incoming(initial(dcid(1), b""));
        test.retry(incoming)
    };
    let waiting = test.incoming(initial(dcid(2), b""));
    assert!(test.receive(initial(scid, &token)).is_none());
    assert_eq!(test.endpoint.stats().dropped_at_max_half_open, 1);
    test.endpoint.ignore(waiting);
    let proven = test.incoming(initial(scid, &token));
    assert!(proven.remote_address_validated());
}

/// Datagrams kept for waiting attempts are bounded, for each attempt and in all.
#[test]
fn datagrams_of_attempts_are_bounded() {
    let mut test = Test::new();
    let cid = |number: u16| {
        let [high, low] = number.to_be_bytes();
        ConnectionId::new(&[high, low, 0, 0, 0, 0, 0, 0])
    };
    // 8 MiB, in pieces of 32 KiB, the limit of one attempt.
    let pieces = 256;
    // No client must prove its address.
    test.options.retry_min_half_open = 1000;
    test.set_max_incoming(1000);
    let mut waiting = Vec::new();
    for number in 0..=pieces {
        waiting.push(test.incoming(initial(cid(number), b"")));
    }
    let kept = |test: &mut Test, number: u16, size: usize| {
        let dropped = test.endpoint.stats().datagrams_dropped;
        let mut datagram = initial(cid(number), b"");
        datagram.resize(size, 0);
        assert!(test.receive(datagram).is_none());
        test.endpoint.stats().datagrams_dropped == dropped
    };
    assert!(!kept(&mut test, 0, (32 << 10) + 1));
    for number in 0..pieces {
        assert!(kept(&mut test, number, 32 << 10), "{number}");
        assert!(!kept(&mut test, number, 1200), "{number}");
    }
    assert!(!kept(&mut test, pieces, 1200));
    test.endpoint.ignore(waiting.swap_remove(0));
    assert!(kept(&mut test, pieces, 32 << 10));
}

#[test]
fn an_attempt_tells_its_client_and_takes_another_configuration() {
    let mut test = Test::new();
    let mut incoming = test.incoming(initial(dcid(1), b""));
    assert_eq!(incoming.four_tuple(), client());
    assert_eq!(incoming.version(), Version::V1);
    assert_eq!(incoming.original_destination(), dcid(1));
    assert!(incoming.may_retry() && !incoming.remote_address_validated());
    assert!(format!("{incoming:?}").contains("198.51.100.1:5000"));
    test.options.max_connections = 7;
    let config = Arc::new(test.options.clone().build().unwrap());
    assert_ne!(incoming.server_config().max_connections, 7);
    incoming.set_server_config(config);
    assert_eq!(incoming.server_config().max_connections, 7);
}

/// An attempt without a decision does not keep others out.
#[test]
fn a_dropped_attempt_makes_room() {
    let mut test = Test::new();
    test.set_max_incoming(1);
    for number in 1..10 {
        drop(test.incoming(initial(dcid(number), b"")));
    }
    // The client's next try is a new attempt.
    let again = test.incoming(initial(dcid(9), b""));
    assert_eq!(test.endpoint.attempts.waiting(), 1);
    test.endpoint.ignore(again);
    assert!(test.endpoint.routes.is_empty());
}

#[test]
fn without_configuration_attempts_are_refused() {
    let mut test = Test::new();
    test.endpoint.set_server_config(None);
    let answer = test.receive(initial(dcid(1), b""));
    assert!(matches!(answer, Some(DatagramEvent::Response(_))));
    assert_eq!(
        test.close_code(dcid(1)),
        TransportErrorCode::CONNECTION_REFUSED
    );
    assert!(test.endpoint.routes.is_empty());
}

#[test]
fn rfc_9000_8_1_2_retry_validates_the_address() {
    let mut test = Test::new();
    let incoming = test.incoming(initial(dcid(1), b""));
    // What the buffer had before is gone.
    test.buf.extend_from_slice(b"before");
    let (retry_scid, token) = test.retry(incoming);
    assert!(test.endpoint.routes.is_empty());
    let answered = test.incoming(initial(retry_scid, &token));
    assert!(answered.remote_address_validated());
    assert_eq!(answered.admission.original_dcid, dcid(1));
    assert_eq!(answered.admission.retry_scid, Some(retry_scid));
    // RFC 9000 section 17.2.5.2: one Retry is enough
    let answered = test.endpoint.retry(test.now, answered, &mut test.buf);
    test.endpoint.ignore(answered.unwrap_err());
}

#[test]
fn a_token_that_claims_to_be_of_a_shared_retry_has_to_be_good() {
    let mut test = Test::new();
    let key = RetryTokenKey {
        sequence: 3,
        key: [1; 16],
        iv: [2; 12],
    };
    test.options.retry_tokens = Some(Arc::new(RetryTokens::new(&[key]).unwrap()));
    let config = test.options.clone().build().unwrap();
    test.endpoint.set_server_config(Some(Arc::new(config)));
    for (number, token) in [(1, [3; 60]), (2, [9; 60])] {
        let answer = test.receive_from("198.51.100.1:5000", initial(dcid(number), &token));
        assert!(matches!(answer, Some(DatagramEvent::Response(_))));
        let code = test.close_code(dcid(number));
        assert_eq!(code, TransportErrorCode::INVALID_TOKEN);
    }
    // A token with another first bit is of a NEW_TOKEN frame, perhaps another server's.
    let answered = test.incoming(initial(dcid(3), &[0x83; 60]));
    assert!(!answered.remote_address_validated());
}

#[test]
fn rfc_9000_8_1_3_bad_retry_tokens_close() {
    let mut test = Test::new();
    let incoming = test.incoming(initial(dcid(1), b""));
    let (retry_scid, token) = test.retry(incoming);

    let mut refused = |remote: &str, dcid: ConnectionId, after: Duration| {
        test.later(after);
        let answer = test.receive_from(remote, initial(dcid, &token));
        assert!(
            matches!(answer, Some(DatagramEvent::Response(_))),
            "{answer:?}"
        );
        assert_eq!(test.close_code(dcid), TransportErrorCode::INVALID_TOKEN);
    };
    refused("198.51.100.2:5000", retry_scid, Duration::ZERO);
    refused("198.51.100.1:5001", retry_scid, Duration::ZERO);
    refused("198.51.100.1:5000", dcid(1), Duration::ZERO);
    refused("198.51.100.1:5000", retry_scid, Duration::from_secs(16));
}

#[test]
fn rfc_9000_8_1_4_new_token_is_good_once_from_its_addresses() {
    let mut test = Test::new();
    let token = test.new_token(&["203.0.113.1", "198.51.100.1"], 1);
    assert!(test.is_validated(1, &token));
    assert!(!test.is_validated(2, &token));

    let other = test.new_token(&["203.0.113.1"], 2);
    assert!(!test.is_validated(3, &other));

    let old = test.new_token(&["198.51.100.1"], 3);
    test.later(test.options.token_lifetime + Duration::from_secs(1));
    assert!(!test.is_validated(4, &old));

    // What cannot be read counts as no token.
    assert!(!test.is_validated(5, &[1; 60]));
    assert!(!test.is_validated(6, b"short"));
}

/// Each validated address brings another token, and an address that fell silent since is in all
/// tokens.
#[test]
fn rfc_9000_8_1_4_all_tokens_of_a_connection_are_good_once() {
    let mut test = Test::new();
    let mut issuer = test.issuer();
    let first = token_of(&mut issuer, &["198.51.100.1"], 1);
    let second = token_of(&mut issuer, &["198.51.100.1", "203.0.113.1"], 2);
    assert!(test.is_validated(1, &first));
    test.later(Duration::from_secs(1));
    assert!(!test.is_validated(2, &second));
    let third = token_of(&mut issuer, &["198.51.100.1", "203.0.113.2"], 3);
    assert!(!test.is_validated(3, &third));
    // The connection has proven it again since.
    token_of(&mut issuer, &["203.0.113.2"], 4);
    let fifth = token_of(&mut issuer, &["198.51.100.1"], 5);
    assert!(test.is_validated(4, &fifth));
    // Another connection of the client.
    let other = test.new_token(&["198.51.100.1"], 6);
    assert!(test.is_validated(5, &other));
}

/// MP-075: where a client has received not long ago it need not prove it again for further paths.
/// The token itself is good for longer.
#[test]
fn mp_075_for_ten_minutes_a_token_vouches_for_further_addresses() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    for (age, vouches) in [
        (minutes(10), true),
        (minutes(10) + Duration::from_secs(1), false),
    ] {
        let mut test = Test::new();
        let token = test.new_token(&["198.51.100.1", "203.0.113.1"], 1);
        test.later(age);
        let incoming = test.incoming(initial(dcid(1), &token));
        assert!(incoming.remote_address_validated());
        let expected: &[_] = if vouches {
            &[address("198.51.100.1:5000"), address("203.0.113.1:5000")]
        } else {
            &[]
        };
        assert_eq!(incoming.admission.proven, expected);
        test.endpoint.ignore(incoming);
        // It is spent.
        let again = test.incoming(initial(dcid(2), &token));
        assert!(again.admission.proven.is_empty());
        test.endpoint.ignore(again);
    }
}

/// The clocks of servers with the same key differ a little. A clock set back by more must not make
/// tokens good for longer.
#[test]
fn rfc_9000_8_1_3_tokens_from_the_future_are_not_good() {
    let second = Duration::from_secs(1);
    for (back, is_good) in [(5 * second, true), (6 * second, false)] {
        let mut test = Test::new();
        let incoming = test.incoming(initial(dcid(1), b""));
        let (retry_scid, from_retry) = test.retry(incoming);
        let new_token = test.new_token(&["198.51.100.1"], 1);
        *test.clock.0.lock().unwrap() -= back;
        assert_eq!(test.is_validated(2, &new_token), is_good, "{back:?}");
        match test.receive(initial(retry_scid, &from_retry)) {
            Some(DatagramEvent::NewConnection(incoming)) if is_good => {
                assert!(incoming.remote_address_validated());
            }
            Some(DatagramEvent::Response(_)) if !is_good => {
                let code = test.close_code(retry_scid);
                assert_eq!(code, TransportErrorCode::INVALID_TOKEN);
            }
            other => panic!("{back:?}: {other:?}"),
        }
    }
}

#[test]
fn rfc_9000_10_3_unknown_packets_are_answered_with_a_reset() {
    let mut test = Test::new();
    let mut packet = vec![0x41; 60];
    packet[1..9].copy_from_slice(&[8; 8]);
    let Some(DatagramEvent::Response(transmit)) = test.receive(&packet) else {
        panic!("no reset");
    };
    assert_eq!(transmit.size, test.buf.len());
    assert!((42..60).contains(&transmit.size));
    let token = ResetKey::new(&[6; 32]).token(&ConnectionId::new(&[8; 8]));
    assert!(test.buf.ends_with(&token));
    // Resets of resets get smaller until they stop.
    let mut rounds = 0;
    let mut last = std::mem::take(&mut test.buf);
    while test.receive(&last).is_some() {
        assert!(test.buf.len() < last.len());
        last = std::mem::take(&mut test.buf);
        rounds += 1;
    }
    assert!(rounds < 60 && last.len() >= 21);
}

#[test]
fn connections_are_routed_by_connection_id_and_reset_token() {
    let mut test = Test::new();
    let handle = test.endpoint.routes.insert_accepted(dcid(1));
    test.endpoint.routes.set_initial(handle, dcid(2));
    let short = |cid: u8| {
        let mut packet = [0x40; 50];
        packet[1..9].copy_from_slice(&[cid; 8]);
        packet
    };
    let path_of = |test: &mut Test, cid: u8| match test.receive(short(cid)) {
        Some(DatagramEvent::Connection(to, datagram)) => {
            assert_eq!(to, handle);
            Some(datagram.path)
        }
        _ => None,
    };
    assert_eq!(path_of(&mut test, 1), Some(PathId(0)));
    // The client's choice routes only packets of an allowed type.
    assert_eq!(path_of(&mut test, 2), None);
    assert!(matches!(
        test.receive(initial(dcid(2), b"")),
        Some(DatagramEvent::Connection(_, _))
    ));

    let mut tell = |change| test.endpoint.handle_event(handle, EndpointEvent(change));
    tell(RouteChange::ConnectionIdIssued(dcid(3), PathId(1)));
    tell(RouteChange::ConnectionIdRetired(dcid(1)));
    tell(RouteChange::ResetTokenAdded([0xaa; 16]));
    tell(RouteChange::ResetTokenAdded([0xbb; 16]));
    tell(RouteChange::ResetTokenRemoved([0xbb; 16]));
    assert_eq!(path_of(&mut test, 3), Some(PathId(1)));
    assert_eq!(path_of(&mut test, 1), None);
    let mut reset = short(9);
    reset[34..].fill(0xaa);
    let event = test.receive(reset);
    assert!(matches!(event, Some(DatagramEvent::StatelessReset(to)) if to == handle));
    // Whatever it looks like (RFC 9000 section 10.3): a long header, of our version or another.
    for start in [
        &[0xe0, 0, 0, 0, 1, 8][..],
        &[0xc0, 1, 2, 3, 4, 0, 0],
        &[0xc0, 0, 0, 0, 1, 200],
        &[0; 7],
    ] {
        let mut other = reset;
        other[..start.len()].copy_from_slice(start);
        let event = test.receive(other);
        assert!(matches!(event, Some(DatagramEvent::StatelessReset(to)) if to == handle));
    }
    // RFC 9000 section 10.3: of 21 bytes at least.
    let event = test.receive(&reset[29..]);
    assert!(matches!(event, Some(DatagramEvent::StatelessReset(to)) if to == handle));
    assert!(test.receive(&reset[30..]).is_none(), "too short");
    reset[34..].fill(0xbb);
    let event = test.receive(reset);
    assert!(!matches!(event, Some(DatagramEvent::StatelessReset(_))));

    // RFC 9000 section 11: late packets to retired connection IDs get no stateless reset.
    assert!(test.receive(short(1)).is_none());
    assert!(test.receive(short(8)).is_some());
    for cid in 10..60 {
        let mut tell = |change| test.endpoint.handle_event(handle, EndpointEvent(change));
        tell(RouteChange::ConnectionIdIssued(dcid(cid), PathId(1)));
        tell(RouteChange::ConnectionIdRetired(dcid(cid)));
    }
    assert!(test.receive(short(59)).is_none());
    assert!(test.receive(short(10)).is_some(), "memory is bounded");

    // A second connection cannot take over the first one's ID.
    let other = test.endpoint.routes.insert_accepted(dcid(4));
    let mut tell = |change| test.endpoint.handle_event(other, EndpointEvent(change));
    tell(RouteChange::ConnectionIdIssued(dcid(3), PathId(0)));
    tell(RouteChange::ResetTokenAdded([0xaa; 16]));
    tell(RouteChange::ConnectionIdRetired(dcid(3)));
    tell(RouteChange::Drained);
    assert_eq!(path_of(&mut test, 3), Some(PathId(1)));

    assert_eq!(test.endpoint.open_connections(), 1);
    test.endpoint.handle_event(handle, EndpointEvent::drained());
    test.endpoint.handle_event(handle, EndpointEvent::drained());
    assert!(test.endpoint.routes.is_empty());
}

/// Reset tokens are secrets: whoever logs events must not log them.
#[test]
fn events_for_the_endpoint_show_no_secret() {
    let event = EndpointEvent(RouteChange::ResetTokenAdded([0xab; 16]));
    assert!(!event.is_drained() && EndpointEvent::drained().is_drained());
    let text = format!("{event:?}");
    assert!(!text.contains("171") && !text.contains("ab"), "{text}");
}

#[test]
fn rfc_9287_clear_quic_bit_is_an_option() {
    for (grease, expected) in [(true, 1), (false, 0)] {
        let mut test = Test::new();
        let mut options = EndpointOptions::new([6; 32]);
        options.grease_quic_bit = grease;
        test.endpoint.config = Arc::new(options.build().unwrap());
        test.endpoint.routes.insert_accepted(dcid(1));
        let mut packet = [0; 50];
        packet[1..9].copy_from_slice(&[1; 8]);
        assert_eq!(test.receive(packet).iter().count(), expected);
    }
}

proptest! {
    #[test]
    fn noise_is_harmless(
        datagrams in prop::collection::vec(
            (any::<u8>(), prop::bool::ANY, prop::collection::vec(any::<u8>(), 0..1300)),
            1..10,
        ),
    ) {
        let mut test = Test::new();
        for (first, is_version_1, mut datagram) in datagrams {
            if is_version_1 && datagram.len() > 5 {
                datagram[..5].copy_from_slice(&[first | 0x80, 0, 0, 0, 1]);
            }
            match test.receive(&datagram) {
                Some(DatagramEvent::Response(_)) => prop_assert!(test.buf.len() < datagram.len()),
                event => prop_assert!(event.is_none()),
            }
        }
        prop_assert!(test.endpoint.routes.is_empty());
    }
}
