//! Opening and using paths: numbers, connection IDs, validation, limits.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{
    self, Ack, Frame, NewConnectionId, PathAck, PathNewConnectionId, PathRetireConnectionId,
};
use mpquic_core::{
    ConnectionError, Event, Fault, FourTuple, OpenPathError, PathEvent, PathId, PathStatus, Side,
    SpaceId, TransportErrorCode,
};

use super::harness::{Forgery, Kind, MS, Net, Options, Packet, SECOND, SIDES, Sent, address};

const ONE: PathId = PathId(1);

fn one_rtt(log: &[Sent]) -> impl Iterator<Item = (Side, Packet)> + '_ {
    log.iter().flat_map(|sent| {
        let packets = sent.packets().into_iter();
        let packets = packets.filter(Packet::is_one_rtt);
        packets.map(|packet| (sent.from, packet))
    })
}

fn on_path(log: &[Sent], from: Side, path: PathId) -> Vec<Sent> {
    let of_path = |sent: &&Sent| sent.from == from && sent.path() == Some(path);
    log.iter().filter(of_path).cloned().collect()
}

fn is_multipath(frame: &Frame) -> bool {
    frame.frame_type() >= 0x3e
}

fn is_challenge(frame: &Frame) -> bool {
    matches!(frame, Frame::PathChallenge(_))
}

fn is_response(frame: &Frame) -> bool {
    matches!(frame, Frame::PathResponse(_))
}

fn is_stream(frame: &Frame) -> bool {
    matches!(frame, Frame::Stream(_))
}

#[test]
fn mp_003_mp_061_path_ack_replaces_ack_once_the_handshake_is_complete() {
    let mut net = Net::new(Options::default());
    net.retry = true;
    net.connect();
    // Up to the client's Initial with the token: its address is proven.
    let first = net.take(Side::Client).remove(0);
    let retry = net.give(first.clone()).expect("a Retry");
    net.give(first.answered(retry));
    let second = net.take(Side::Client);
    net.give_all(second);
    net.write(Side::Server, 3000);
    let early = net.take(Side::Server);
    assert!(early.iter().any(|sent| sent.has(is_stream)), "0.5-RTT data");
    // MP-071: the client can open a path right after its handshake.
    let first =
        |frame: &Frame| matches!(frame, Frame::PathNewConnectionId(new) if new.path_id == ONE);
    assert!(early.iter().any(|sent| sent.has(first)));
    let other = |frame: &Frame| is_multipath(frame) && !first(frame);
    assert!(!early.iter().any(|sent| sent.has(other)));
    net.give_all(early);

    let mut log = net.exchange();
    net.write(Side::Client, 30_000);
    net.write(Side::Server, 30_000);
    log.extend(net.wait(SECOND));
    for side in SIDES {
        let packets = || one_rtt(&log).filter(|(from, _)| *from == side);
        let acked = |wanted: fn(&Frame) -> bool| packets().any(|(_, packet)| packet.has(wanted));
        assert!(acked(|frame| matches!(frame, Frame::PathAck(_))));
        assert!(!acked(|frame| matches!(frame, Frame::Ack(_))));
    }
}

#[test]
fn mp_017_no_new_path_to_a_handshake_address_that_takes_no_migration() {
    let options = Options {
        migration: false,
        ..Options::default()
    };
    let mut net = Net::connected(options);
    let (now, handshake) = (net.now, address(Side::Server, 0));
    let same = FourTuple::new(address(Side::Client, 1), handshake);
    let refused = net.client().open_path(now, same, PathStatus::Available);
    assert_eq!(refused, Err(OpenPathError::AddressForbidden));
    // Other addresses of the server are free at once.
    assert_eq!(net.open_path(1), Ok(ONE));
    net.wait(200 * MS);
    assert!(net.has_path_event(Side::Client, &PathEvent::Established(ONE)));
}

#[test]
fn mp_034_each_path_numbers_its_packets_from_zero() {
    let mut net = Net::connected(Options::default());
    net.write(Side::Client, 50_000);
    net.write(Side::Server, 50_000);
    net.wait(SECOND);
    net.open_path(1).unwrap();
    let log = net.wait(SECOND);
    for side in SIDES {
        let mut packets =
            one_rtt(&log).filter(|(from, packet)| (*from, packet.path) == (side, ONE));
        let (_, first) = packets.next().expect("the path is used");
        assert_eq!(first.number, 0, "{side:?}");
        assert!(packets.all(|(_, packet)| packet.number > 0), "none twice");
    }
}

/// The plain ACK of a 1-RTT packet on any path speaks of path 0 (MP-060, MP-062).
#[test]
fn mp_062_a_plain_ack_on_any_path_acknowledges_path_0() {
    for carrier in [PathId::ZERO, ONE] {
        let mut net = Net::with_two_paths(Options::default());
        net.client().inject(SpaceId::Data(PathId::ZERO), &[1]);
        let sent = net.take(Side::Client);
        let number = sent[0].packets()[0].number;
        let in_flight = |net: &mut Net| net.client().path_stats(PathId::ZERO).unwrap().in_flight;
        assert!(in_flight(&mut net) > 0);
        let received: RangeSet = std::iter::once(number..number + 1).collect();
        let ack = Frame::Ack(Ack::new(&received, 0, None).unwrap());
        let forged = net.forge(&Forgery::new(
            Side::Server,
            Kind::OneRtt(carrier),
            5000,
            &[ack],
        ));
        net.give(forged);
        assert_eq!(net.fault(Side::Client), None);
        assert_eq!(in_flight(&mut net), 0, "on {carrier}");
    }
}

#[test]
fn mp_070_a_client_takes_no_path_from_its_server() {
    let mut net = Net::connected(Options::default());
    assert!(!net.issued(Side::Client, ONE).is_empty());
    let forged = net.forge(&Forgery::new(
        Side::Server,
        Kind::OneRtt(ONE),
        0,
        &[Frame::Ping],
    ));
    let dropped = net.client().stats().packets_dropped;
    net.give(forged);
    assert_eq!(net.client().stats().packets_dropped, dropped + 1);
    assert_eq!(net.client().paths().collect::<Vec<_>>(), [PathId::ZERO]);
    let sent = net.take(Side::Client);
    assert!(on_path(&sent, Side::Client, ONE).is_empty());
}

/// The first exchange on a path, datagram by datagram: MP-072 and MP-073 (connection IDs), MP-074
/// and MP-077 (challenge and response), MP-079 (sizes), MP-089 (acknowledgement with the response).
#[test]
fn mp_072_to_mp_079_a_path_is_opened_and_validated() {
    let mut net = Net::connected(Options::default());
    net.open_path(1).unwrap();
    let opening = net.take(Side::Client);
    let [first] = &on_path(&opening, Side::Client, ONE)[..] else {
        panic!("{opening:?}");
    };
    let belongs = |net: &Net, issuer, cid| {
        let known = |path| {
            let issued = net.issued(issuer, path);
            issued.iter().any(|new| new.connection_id == cid)
        };
        known(ONE) && !known(PathId::ZERO)
    };
    assert!(belongs(&net, Side::Server, net.dcid(Side::Client, ONE)));
    assert!(first.has(is_challenge));
    assert!(first.data.len() >= 1200, "{}", first.data.len());
    assert_eq!(
        (first.source, first.destination),
        (address(Side::Client, 1), address(Side::Server, 1))
    );

    net.now += 10 * MS;
    net.give(first.clone());
    let answers = net.take(Side::Server);
    let answers = on_path(&answers, Side::Server, ONE);
    assert!(belongs(&net, Side::Client, net.dcid(Side::Server, ONE)));
    let answer = answers.iter().find(|sent| sent.has(is_response)).unwrap();
    let challenge = first.frames().into_iter().find_map(|frame| match frame {
        Frame::PathChallenge(data) => Some(data),
        _ => None,
    });
    let echo = Frame::PathResponse(challenge.unwrap());
    assert!(answer.has(|frame| *frame == echo));
    assert!(answer.has(|frame| matches!(frame, Frame::PathAck(PathAck { path_id: ONE, .. }))));
    assert_eq!(
        (answer.source, answer.destination),
        (address(Side::Server, 1), address(Side::Client, 1))
    );
    for sent in answers.iter().filter(|sent| sent.has(is_challenge)) {
        assert!(sent.data.len() >= 1200, "{}", sent.data.len());
    }
    assert!(answer.data.len() >= 1200, "{}", answer.data.len());
    assert!(answers.iter().any(|sent| sent.has(is_challenge)));

    // Nobody counts on the path before the response has arrived.
    let established = PathEvent::Established(ONE);
    assert!(!net.has_path_event(Side::Client, &established));
    assert!(!net.has_path_event(Side::Server, &established));
    net.now += 10 * MS;
    net.give_all(answers);
    assert!(net.has_path_event(Side::Client, &established));
    let response = net.take(Side::Client);
    assert!(!net.has_path_event(Side::Server, &established));
    net.give_all(response);
    assert!(net.has_path_event(Side::Server, &established));
}

/// MP-075: nothing but validation, acknowledgements and path management on a path the server has
/// not validated, however much waits and whatever happens to the other path.
#[test]
fn mp_075_a_server_sends_no_data_on_a_path_it_has_not_validated() {
    for other_path_works in [true, false] {
        let mut net = Net::connected(Options::default());
        net.open_path(1).unwrap();
        let opening = net.take(Side::Client);
        net.give_all(opening);
        net.write(Side::Server, 500_000);
        let mut sent = Vec::new();
        let end = net.now + 10 * SECOND;
        while net.now < end {
            let flight = net.take(Side::Server);
            for datagram in &flight {
                if other_path_works && datagram.path() == Some(PathId::ZERO) {
                    net.give(datagram.clone());
                }
            }
            sent.extend(flight);
            for back in net.take(Side::Client) {
                if other_path_works && back.path() == Some(PathId::ZERO) {
                    net.give(back);
                }
            }
            net.now += 5 * MS;
            let flight = net.fire(Side::Server);
            sent.extend(flight);
        }
        assert!(sent.iter().any(|datagram| datagram.has(is_stream)));
        let unvalidated = on_path(&sent, Side::Server, ONE);
        assert!(unvalidated.len() > 2, "challenges are repeated");
        assert!(!unvalidated.iter().any(|datagram| datagram.has(is_stream)));
    }
}

/// MP-076: three times the bytes received on this path alone. MP-078: the path opens even with a
/// first packet without a challenge.
#[test]
fn mp_076_mp_078_a_small_first_packet_gets_a_small_answer() {
    let mut net = Net::connected(Options::default());
    let forged = net.forge(&Forgery::new(
        Side::Client,
        Kind::OneRtt(ONE),
        0,
        &[Frame::Ping],
    ));
    let received = forged.data.len();
    net.give(forged);
    assert_eq!(
        net.server().paths().collect::<Vec<_>>(),
        [PathId::ZERO, ONE]
    );
    let mut sent = net.take(Side::Server);
    let end = net.now + 10 * SECOND;
    while net.now < end {
        sent.extend(net.fire(Side::Server));
    }
    let back: Vec<_> = sent
        .iter()
        .filter(|sent| sent.destination == address(Side::Client, 1))
        .collect();
    assert!(back.iter().any(|sent| sent.has(is_challenge)));
    let bytes: usize = back.iter().map(|sent| sent.data.len()).sum();
    assert!(bytes <= 3 * received, "{bytes} for {received}");
}

fn is_client_id_of_path_1(frame: &Frame) -> bool {
    matches!(frame, Frame::PathNewConnectionId(new) if new.path_id == ONE)
}

/// Connected, but no connection ID of the client for path 1 has arrived, or does.
fn without_client_ids_of_path_1() -> Net {
    let mut net = Net::connecting(Options::default());
    net.delivers = |sent| sent.from == Side::Server || !sent.has(is_client_id_of_path_1);
    // They shared a datagram with the end of the handshake, which a probe repeats without them.
    net.wait(SECOND);
    net
}

/// MP-083, MP-035: without a connection ID to answer with, a server lets the path wait, and answers
/// once it has one: nothing need be repeated.
#[test]
fn mp_083_a_server_without_connection_ids_answers_later() {
    let mut net = without_client_ids_of_path_1();
    net.open_path(1).unwrap();
    let opening = net.take(Side::Client);
    assert_eq!(on_path(&opening, Side::Client, ONE).len(), 1);
    net.give_all(opening.into_iter().filter(net.delivers));
    let sent = net.take(Side::Server);
    assert!(on_path(&sent, Side::Server, ONE).is_empty());
    assert_eq!(net.server().paths().collect::<Vec<_>>(), [PathId::ZERO]);
    assert_eq!(net.fault(Side::Server), None);
    net.give_all(sent);
    net.delivers = |_| true;
    let log = net.wait(2 * SECOND);
    for side in SIDES {
        assert!(net.has_path_event(side, &PathEvent::Established(ONE)));
    }
    let repeated = on_path(&log, Side::Client, ONE);
    assert!(!repeated.iter().any(|sent| sent.has(is_challenge)));
}

/// MP-083: after leaving all other paths, a client can send the connection ID on that path alone.
#[test]
fn mp_083_the_connection_id_to_answer_with_may_come_on_the_path_itself() {
    let mut net = without_client_ids_of_path_1();
    net.open_path(1).unwrap();
    net.delivers = |sent| sent.from == Side::Server || sent.path() == Some(ONE);
    let (now, code) = (net.now, TransportErrorCode::NO_ERROR);
    net.client().close_path(now, PathId::ZERO, code).unwrap();
    net.wait(5 * SECOND);
    for side in SIDES {
        assert!(net.has_path_event(side, &PathEvent::Established(ONE)));
    }
}

/// MP-083, MP-095
#[test]
fn mp_083_a_connection_id_on_its_own_path_is_judged_as_on_others() {
    let mut net = without_client_ids_of_path_1();
    let frame = Frame::PathNewConnectionId(PathNewConnectionId {
        path_id: ONE,
        new_connection_id: NewConnectionId {
            sequence_number: 0,
            retire_prior_to: 0,
            connection_id: net.dcid(Side::Server, PathId::ZERO),
            stateless_reset_token: [9; 16],
        },
    });
    let frame_type = frame.frame_type();
    let kind = Kind::OneRtt(ONE);
    let forged = net.forge(&Forgery::new(Side::Client, kind, 0, &[Frame::Ping, frame]));
    net.give(forged);
    let on_two_paths = (Fault::ConnectionIdOnTwoPaths, frame_type);
    assert_eq!(net.fault(Side::Server), Some(on_two_paths));
}

#[test]
fn mp_086_a_client_takes_nothing_from_an_address_it_did_not_choose() {
    let mut net = Net::connected(Options::default());
    let id = net.write(Side::Server, 100);
    let sent = net.take(Side::Server);
    let elsewhere: SocketAddr = ([203, 0, 113, 9], 443).into();
    for datagram in &sent {
        let mut moved = datagram.clone();
        moved.source = elsewhere;
        net.give(moved);
    }
    assert_eq!(net.read(Side::Client, id), 0);
    let back = net.take(Side::Client);
    assert!(back.iter().all(|sent| sent.destination != elsewhere));
    net.give_all(sent);
    assert_eq!(net.read(Side::Client, id), 100);
}

#[test]
fn mp_087_a_token_is_good_for_every_address_validated() {
    for (index, proven) in [(0, true), (1, true), (2, false)] {
        let mut net = Net::with_two_paths(Options::default());
        net.close(Side::Client);
        net.exchange();
        net.connect_from(index);
        net.exchange();
        assert_eq!(net.validated, Some(proven), "address {index}");
    }
}

/// MP-093: a connection ID for each ID both sides allow, a spare one on path 0. MP-096: none above
/// the peer's limit.
#[test]
fn mp_093_mp_096_connection_ids_are_issued_up_to_both_limits() {
    for (ours, peers) in [(8, 8), (2, 8), (8, 3), (1, 8)] {
        let mut options = Options::default();
        options.client.max_concurrent_paths = ours;
        options.server.max_concurrent_paths = peers;
        let net = Net::connected(options);
        for side in SIDES {
            for path in 0..8 {
                let issued = net.issued(side, PathId(path)).len();
                if path == 0 {
                    assert_eq!(issued, 1, "beside the handshake's");
                } else if path < ours.min(peers) {
                    assert!((1..=2).contains(&issued), "{side:?} {path}: {issued}");
                } else {
                    assert_eq!(issued, 0, "{side:?} {path}");
                }
            }
        }
    }
}

#[test]
fn mp_100_a_retired_connection_id_is_replaced() {
    let mut net = Net::connected(Options::default());
    let before = net.issued(Side::Server, PathId::ZERO).len();
    let (now, local) = (net.now, address(Side::Client, 3));
    net.client()
        .path_mut(PathId::ZERO)
        .unwrap()
        .set_local_address(now, local)
        .unwrap();
    let log = net.wait(SECOND);
    let retired = |frame: &Frame| {
        *frame
            == Frame::PathRetireConnectionId(PathRetireConnectionId {
                path_id: PathId::ZERO,
                sequence_number: 0,
            })
    };
    assert!(log.iter().any(|sent| sent.has(retired)));
    let issued = net.issued(Side::Server, PathId::ZERO);
    assert_eq!(issued.len(), before + 1);
    assert_eq!(
        issued[before].sequence_number,
        issued[before - 1].sequence_number + 1
    );
}

/// A datagram that belongs to nobody and ends in a token.
fn reset(token: [u8; 16], destination: SocketAddr, source: SocketAddr) -> Sent {
    let mut data = vec![0x55; 40];
    data.extend_from_slice(&token);
    Sent {
        from: Side::Server,
        source,
        destination,
        ecn: None,
        data: BytesMut::from(&data[..]),
        cid_length: 8,
    }
}

/// MP-108: the token of the connection ID in use on any path ends the connection; those of
/// connection IDs never used or retired do not.
#[test]
fn mp_108_a_reset_token_of_any_path_in_use_ends_the_connection() {
    let mut net = Net::with_two_paths(Options::default());
    let in_use = net.dcid(Side::Client, ONE);
    let issued = net.issued(Side::Server, ONE);
    let unused = issued
        .iter()
        .find(|new| new.connection_id != in_use)
        .unwrap();
    let (to, from) = (address(Side::Client, 1), address(Side::Server, 1));
    net.give(reset(unused.stateless_reset_token, to, from));
    assert_eq!(net.lost(Side::Client), None);

    let used = issued
        .iter()
        .find(|new| new.connection_id == in_use)
        .unwrap();
    net.give(reset(used.stateless_reset_token, to, from));
    assert_eq!(net.lost(Side::Client), Some(ConnectionError::Reset));
    // RFC 9000 section 10.3.1: draining, so no packet leaves any more.
    assert!(net.take(Side::Client).is_empty());
}

/// The token of a retired connection ID no longer counts.
#[test]
fn mp_108_a_retired_reset_token_is_forgotten() {
    let mut net = Net::with_two_paths(Options::default());
    let before = net.dcid(Side::Client, ONE);
    let (now, local) = (net.now, address(Side::Client, 3));
    let mut path = net.client().path_mut(ONE).unwrap();
    path.set_local_address(now, local).unwrap();
    net.wait(2 * SECOND);
    let after = net.dcid(Side::Client, ONE);
    assert_ne!(before, after);
    let token = |net: &Net, cid| {
        let mut issued = net.issued(Side::Server, ONE).into_iter();
        let found = issued.find(|new| new.connection_id == cid).unwrap();
        found.stateless_reset_token
    };
    let (retired, in_use) = (token(&net, before), token(&net, after));
    let from = address(Side::Server, 1);
    net.give(reset(retired, local, from));
    assert_eq!(net.lost(Side::Client), None);
    net.give(reset(in_use, local, from));
    assert_eq!(net.lost(Side::Client), Some(ConnectionError::Reset));
}

#[test]
fn mp_113_a_status_may_come_before_its_path() {
    let mut net = Net::connected(Options::default());
    let mut early = Vec::new();
    Frame::PathStatus(frame::PathStatus {
        path_id: ONE,
        status: PathStatus::Backup,
        sequence_number: 5,
    })
    .encode(&mut early);
    net.client().inject(SpaceId::Data(PathId::ZERO), &early);
    net.wait(50 * MS);
    net.open_path(1).unwrap();
    net.wait(200 * MS);
    let (_, status) = net.server().path_mut(ONE).unwrap().status();
    assert_eq!(status, Some(PathStatus::Backup));
}

/// MP-150: each path keeps to its own window.
#[test]
fn mp_150_no_path_has_more_in_flight_than_its_window() {
    for controller in mpquic_cc::list() {
        let controller = mpquic_cc::by_name(controller.name).unwrap();
        let options = Options::default();
        let options = options.transport(|transport| transport.controller = controller.clone());
        let mut net = Net::with_two_paths(options);
        net.write(Side::Server, 1_000_000);
        let (mut most, end) = (0, net.now + SECOND);
        while net.now < end {
            let sent = net.take(Side::Server);
            for path in [PathId::ZERO, ONE] {
                let stats = net.server().path_stats(path).unwrap();
                assert!(stats.in_flight <= stats.window, "{controller:?}: {stats:?}");
                most = most.max(stats.in_flight);
            }
            net.now += 20 * MS;
            net.give_all(sent);
            let back = net.take(Side::Client);
            net.now += 20 * MS;
            net.give_all(back);
        }
        assert!(most > 10_000, "{controller:?}: {most}");
    }
}

/// MP-150: events on one path move the window of that path only. In slow start every round trip
/// opens the window; a controller by rate opens it after finding more bandwidth.
#[test]
fn mp_150_each_window_opens_by_itself() {
    let options = Options::default()
        .transport(|transport| transport.controller = mpquic_cc::by_name("olia").unwrap());
    let mut net = Net::with_two_paths(options);
    net.write(Side::Server, 1_000_000);
    let window = |net: &mut Net, path| net.server().path_stats(path).unwrap().window;
    for round in 0..6 {
        let before = window(&mut net, ONE);
        let sent = net.take(Side::Server);
        for path in [PathId::ZERO, ONE] {
            let stats = net.server().path_stats(path).unwrap();
            assert!(stats.in_flight <= stats.window, "{stats:?}");
            assert!(stats.in_flight > 10_000, "{stats:?}");
        }
        net.now += 20 * MS;
        // In the last round nothing of path 1 arrives.
        let is_last = round == 5;
        let arrives = |sent: &Sent| !is_last || sent.path() == Some(PathId::ZERO);
        net.give_all(sent.into_iter().filter(arrives));
        net.now += 20 * MS;
        let other = window(&mut net, PathId::ZERO);
        let back = net.take(Side::Client);
        net.give_all(back);
        assert!(window(&mut net, PathId::ZERO) > other, "it opens");
        assert_eq!(window(&mut net, ONE) > before, !is_last);
    }
}

/// MP-153: acknowledgements stay on the path they speak of.
#[test]
fn mp_153_a_path_is_acknowledged_on_itself() {
    let mut net = Net::with_two_paths(Options::default());
    for path in [PathId::ZERO, ONE] {
        for _ in 0..2 {
            net.server().inject(SpaceId::Data(path), &[1]);
        }
        let pings = net.take(Side::Server);
        assert_eq!(on_path(&pings, Side::Server, path).len(), 2);
        net.give_all(pings);
        let acks = net.take(Side::Client);
        let carried: Vec<_> = one_rtt(&acks)
            .filter(|(_, packet)| {
                packet.has(|frame| matches!(frame, Frame::PathAck(frame) if frame.path_id == path))
            })
            .map(|(_, packet)| packet.path)
            .collect();
        assert_eq!(carried, [path]);
        net.give_all(acks);
    }
}

/// MP-153: or on a path four times as fast, which then has to answer itself.
#[test]
fn mp_153_a_long_path_is_acknowledged_on_a_short_one() {
    for faster in [true, false] {
        let options = Options::default().transport(|transport| {
            transport.ack_on_fastest_path = faster;
        });
        let mut net = Net::with_two_paths(options);
        // The client takes path 1 for a long one.
        net.client().path_mut(ONE).unwrap().ping();
        let ping = net.take(Side::Client);
        net.now += 400 * MS;
        net.give_all(ping);
        let answer = net.take(Side::Server);
        net.give_all(answer);
        for _ in 0..2 {
            net.server().inject(SpaceId::Data(ONE), &[1]);
        }
        let pings = net.take(Side::Server);
        net.give_all(pings);
        let acks = net.take(Side::Client);
        let speaks_of_one =
            |frame: &Frame| matches!(frame, Frame::PathAck(frame) if frame.path_id == ONE);
        let mut carriers = one_rtt(&acks).filter(|(_, packet)| packet.has(speaks_of_one));
        let (_, carrier) = carriers.next().expect("an acknowledgement");
        let expected = if faster { PathId::ZERO } else { ONE };
        assert_eq!(carrier.path, expected);
        assert_eq!(carrier.has(|frame| *frame == Frame::Ping), faster);
        assert!(carriers.next().is_none());
    }
}

/// MP-147: what arrives on any path keeps the connection; silence on all of them ends it.
#[test]
fn mp_147_any_path_keeps_the_connection_from_idling() {
    let options = Options::default().transport(|transport| {
        transport.max_idle_timeout = Some(3 * SECOND);
    });
    let mut net = Net::with_two_paths(options);
    for _ in 0..10 {
        net.client().path_mut(ONE).unwrap().ping();
        let log = net.wait(SECOND);
        assert!(log.iter().all(|sent| sent.path() == Some(ONE)));
    }
    for side in SIDES {
        assert_eq!(net.lost(side), None);
    }
    net.wait(4 * SECOND);
    for side in SIDES {
        assert_eq!(net.lost(side), Some(ConnectionError::TimedOut));
    }
}

/// MP-148: however short the idle timeout, the slowest path's three probe timeouts come first.
#[test]
fn mp_148_an_idle_timeout_waits_for_three_probe_timeouts() {
    let options = Options::default().transport(|transport| {
        transport.max_idle_timeout = Some(10 * MS);
    });
    let mut net = Net::connecting(options);
    // Half a second each way.
    for _ in 0..6 {
        for side in SIDES {
            let flight = net.take(side);
            net.now += 500 * MS;
            for side in SIDES {
                let now = net.now;
                if side == Side::Client || net.has_server() {
                    net.connection(side).handle_timeout(now);
                }
            }
            net.give_all(flight);
        }
    }
    for side in SIDES {
        assert_eq!(net.lost(side), None);
        assert!(net.events(side).contains(&Event::HandshakeConfirmed));
    }
}

#[test]
fn forged_packets_are_taken_for_genuine_ones() {
    let mut net = Net::connected(Options::default());
    let frames = [Frame::Datagram(Bytes::from_static(b"hello"))];
    for (from, number) in [(Side::Client, 4000), (Side::Server, 4000)] {
        let kind = Kind::OneRtt(PathId::ZERO);
        let forged = net.forge(&Forgery::new(from, kind, number, &frames));
        net.give(forged);
        let received = net.connection(!from).datagrams().recv();
        assert_eq!(received.as_deref(), Some(&b"hello"[..]));
    }
}

/// MP-057: a frame's path says nothing about the path or stream in the frame; only PATH_CHALLENGE
/// and PATH_RESPONSE belong to a path.
#[test]
fn mp_057_any_open_path_carries_frames_about_another() {
    for (side, carrier) in SIDES.into_iter().flat_map(|side| [(side, 0), (side, 1)]) {
        let (carrier, other) = (PathId(carrier), PathId(1 - carrier));
        let mut net = Net::with_two_paths(Options::default());
        let status = Frame::PathStatus(frame::PathStatus {
            path_id: other,
            status: PathStatus::Backup,
            sequence_number: 9,
        });
        let spare = net.issued(side, other).pop().unwrap();
        let retire = Frame::PathRetireConnectionId(PathRetireConnectionId {
            path_id: other,
            sequence_number: spare.sequence_number,
        });

        // What arrives on this path changes the other one.
        let peer = net.connection(!side);
        for frame in [status, retire] {
            let mut frames = Vec::new();
            frame.encode(&mut frames);
            peer.inject(SpaceId::Data(carrier), &frames);
        }
        let mut challenge = Vec::new();
        Frame::PathChallenge([7; 8]).encode(&mut challenge);
        peer.inject(SpaceId::Data(other), &challenge);
        let sent = net.take(!side);
        assert_eq!(on_path(&sent, !side, carrier).len(), 2);
        assert_eq!(on_path(&sent, !side, other).len(), 1);
        net.give_all(sent);
        let backup = net.connection(side).path_mut(other).unwrap().status().1;
        assert_eq!(backup, Some(PathStatus::Backup));

        // The other path is a backup now: frames about it leave here as well, but the response
        // stays.
        net.connection(side)
            .path_mut(other)
            .unwrap()
            .set_status(PathStatus::Backup);
        net.write(side, 100);
        let sent = net.take(side);
        let carried = |wanted: &dyn Fn(&Frame) -> bool| -> Vec<_> {
            let packets = one_rtt(&sent).filter(|(_, packet)| packet.has(wanted));
            packets.map(|(_, packet)| packet.path).collect()
        };
        assert_eq!(carried(&is_stream), [carrier]);
        let is_about_other = |frame: &Frame| match frame {
            Frame::PathStatus(frame) => frame.path_id == other,
            Frame::PathNewConnectionId(frame) => frame.path_id == other,
            _ => false,
        };
        assert_eq!(carried(&is_about_other), [carrier]);
        assert_eq!(carried(&is_response), [other]);
    }
}
