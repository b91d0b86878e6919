//! Addresses that change: what RFC 9000 sections 8.2 and 9 ask inside one path.

use std::net::SocketAddr;
use std::time::Instant;

use mpquic_core::unstable_wire::frame::{Frame, PathAck, PathRetireConnectionId};
use mpquic_core::{MigrateError, PathEvent, PathId, Side, SpaceId};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, Sent, address};

const ZERO: PathId = PathId::ZERO;

fn elsewhere() -> SocketAddr {
    ([203, 0, 113, 7], 6000).into()
}

fn from(mut sent: Sent, source: SocketAddr) -> Sent {
    sent.source = source;
    sent
}

fn remote(net: &mut Net) -> SocketAddr {
    net.server().path_stats(ZERO).unwrap().four_tuple.remote
}

fn forged(net: &Net, number: u64, frames: &[Frame]) -> Sent {
    net.forge(&Forgery::new(
        Side::Client,
        Kind::OneRtt(ZERO),
        number,
        frames,
    ))
}

fn to(sent: &[Sent], destination: SocketAddr) -> Vec<Sent> {
    let there = |sent: &&Sent| sent.destination == destination;
    sent.iter().filter(there).cloned().collect()
}

fn is_challenge(frame: &Frame) -> bool {
    matches!(frame, Frame::PathChallenge(_))
}

/// RFC 9000 section 8.2.2: the answer goes where the challenge came from, at once, once, in a full
/// datagram as far as three times what came from there allows. Probing does not move the path
/// (section 9.3).
#[test]
fn rfc_9000_8_2_2_a_challenge_is_answered_at_its_source() {
    for (size, full) in [(1200, true), (60, false)] {
        let mut net = Net::connected(Options::default());
        let mut challenge = forged(&net, 5000, &[Frame::PathChallenge([7; 8])]);
        if full {
            challenge = net.forge(&Forgery {
                size,
                ..Forgery::new(
                    Side::Client,
                    Kind::OneRtt(ZERO),
                    5000,
                    &[Frame::PathChallenge([7; 8])],
                )
            });
        }
        let received = challenge.data.len();
        net.give(from(challenge, elsewhere()));
        let sent = net.take(Side::Server);
        let back = to(&sent, elsewhere());
        let response = Frame::PathResponse([7; 8]);
        let answers = sent
            .iter()
            .filter(|sent| sent.has(|frame| *frame == response));
        assert_eq!(answers.count(), 1);
        assert_eq!(back.len(), 1);
        assert!(back[0].has(|frame| *frame == response));
        if full {
            assert!(back[0].data.len() >= 1200);
        }
        assert!(back[0].data.len() <= 3 * received);
        assert_eq!(remote(&mut net), address(Side::Client, 0));
        let later = net.wait(SECOND);
        assert!(
            !later
                .iter()
                .any(|sent| sent.has(|frame| *frame == response))
        );
    }
}

/// A challenge from an address forgotten meanwhile cannot be answered. It holds up neither the
/// answer to another challenge (RFC 9000 section 8.2.2) nor the validation of a new address
/// (section 9.3).
#[test]
fn rfc_9000_8_2_2_an_answer_that_cannot_be_sent_holds_up_no_other() {
    let mut net = Net::connected(Options::default());
    let third: SocketAddr = ([203, 0, 113, 8], 6000).into();
    let first = forged(&net, 5000, &[Frame::PathChallenge([1; 8]), Frame::Padding]);
    let second = forged(&net, 5001, &[Frame::PathChallenge([2; 8]), Frame::Padding]);
    net.give(from(first, elsewhere()));
    net.give(from(second, third));
    let sent = net.take(Side::Server);
    let response = Frame::PathResponse([2; 8]);
    assert!(
        to(&sent, third)
            .iter()
            .any(|sent| sent.has(|frame| *frame == response))
    );
    let moved = forged(&net, 5002, &[Frame::Ping]);
    net.give(from(moved, third));
    let sent = net.take(Side::Server);
    assert!(to(&sent, third).iter().any(|sent| sent.has(is_challenge)));
}

/// RFC 9000 section 9.3: only the newest packet moves the path, and only with more than probing
/// frames.
#[test]
fn rfc_9000_9_3_only_the_newest_non_probing_packet_moves_a_path() {
    let mut net = Net::connected(Options::default());
    let newest = forged(&net, 5000, &[Frame::Ping]);
    net.give(newest);
    let older = forged(&net, 4999, &[Frame::Ping]);
    net.give(from(older, elsewhere()));
    assert_eq!(remote(&mut net), address(Side::Client, 0), "reordered");
    let probe = forged(&net, 5001, &[Frame::PathChallenge([1; 8]), Frame::Padding]);
    net.give(from(probe, elsewhere()));
    assert_eq!(remote(&mut net), address(Side::Client, 0), "a probe");
    let newest = forged(&net, 5002, &[Frame::Ping]);
    net.give(from(newest, elsewhere()));
    assert_eq!(remote(&mut net), elsewhere());
}

/// Both addresses are challenged (RFC 9000 sections 9.3 and 9.3.3); the new address gets three
/// times its bytes (9.3.1), and without an answer the path returns (9.3.2).
#[test]
fn rfc_9000_9_3_2_a_spoofed_address_is_left_again() {
    let mut net = Net::connected(Options::default());
    net.write(Side::Server, 200_000);
    let genuine = address(Side::Client, 0);
    let moved = forged(&net, 5000, &[Frame::Ping]);
    let received = moved.data.len();
    net.give(from(moved, elsewhere()));
    let mut sent = net.take(Side::Server);
    assert!(
        to(&sent, elsewhere())
            .iter()
            .any(|sent| sent.has(is_challenge))
    );
    assert!(to(&sent, genuine).iter().any(|sent| sent.has(is_challenge)));
    let end = net.now + 10 * SECOND;
    while remote(&mut net) == elsewhere() && net.now < end {
        // What goes to the genuine address arrives, but the client has nothing to send.
        sent.extend(net.fire(Side::Server));
    }
    assert_eq!(remote(&mut net), genuine);
    let bytes: usize = to(&sent, elsewhere())
        .iter()
        .map(|sent| sent.data.len())
        .sum();
    assert!(bytes <= 3 * received, "{bytes} for {received}");
    assert_eq!(net.lost(Side::Server), None);
    let after = net.wait(5 * SECOND);
    assert!(to(&after, elsewhere()).is_empty());
}

/// RFC 9000 section 9.5: a new address gets its own connection ID. The old address keeps its ID
/// during the challenges; the ID is retired afterwards.
#[test]
fn rfc_9000_9_5_each_address_has_its_own_connection_id() {
    let mut net = Net::connected(Options::default());
    // Something from the server, to know what it uses.
    net.server().inject(SpaceId::Data(ZERO), &[1]);
    net.exchange();
    net.wait(SECOND);
    let before = net.dcid(Side::Server, ZERO);
    let (now, local) = (net.now, address(Side::Client, 3));
    let client_before = net.dcid(Side::Client, ZERO);
    net.client()
        .path_mut(ZERO)
        .unwrap()
        .set_local_address(now, local)
        .unwrap();
    let moved = net.take(Side::Client);
    let destination = |sent: &Sent| *sent.packets()[0].header.dcid();
    for sent in &moved {
        assert_eq!(sent.source, local);
        assert_ne!(destination(sent), client_before, "the client's");
    }
    net.client().inject(SpaceId::Data(ZERO), &[1]);
    let pings = net.take(Side::Client);
    net.give_all(moved);
    net.give_all(pings);
    assert_eq!(remote(&mut net), local);
    let sent = net.take(Side::Server);
    let (new, old) = (to(&sent, local), to(&sent, address(Side::Client, 0)));
    assert!(!new.is_empty() && !old.is_empty());
    assert!(new.iter().all(|sent| destination(sent) != before));
    assert!(old.iter().all(|sent| destination(sent) == before));
    let retired = |frame: &Frame| {
        *frame
            == Frame::PathRetireConnectionId(PathRetireConnectionId {
                path_id: ZERO,
                sequence_number: 0,
            })
    };
    assert!(!sent.iter().any(|sent| sent.has(retired)), "still in use");
    net.give_all(sent);
    let log = net.wait(SECOND);
    assert!(net.has_path_event(
        Side::Server,
        &PathEvent::Migrated(
            ZERO,
            mpquic_core::FourTuple::new(address(Side::Server, 0), local)
        )
    ));
    let by_server = |sent: &&Sent| sent.from == Side::Server;
    assert!(log.iter().filter(by_server).any(|sent| sent.has(retired)));
}

/// RFC 9000 section 9.5: the answer to a probe from another address has its own connection ID,
/// which the path keeps after a move there.
#[test]
fn rfc_9000_9_5_an_address_that_probes_has_its_own_connection_id() {
    let mut net = Net::connected(Options::default());
    net.server().inject(SpaceId::Data(ZERO), &[1]);
    net.exchange();
    net.wait(SECOND);
    let before = net.dcid(Side::Server, ZERO);
    let destination = |sent: &Sent| *sent.packets()[0].header.dcid();
    let probes = [5000, 5001].map(|number| {
        let probe = forged(&net, number, &[Frame::PathChallenge([7; 8])]);
        net.give(from(probe, elsewhere()));
        let sent = net.take(Side::Server);
        let back = to(&sent, elsewhere());
        assert_eq!(back.len(), 1);
        let answer = destination(&back[0]);
        assert_ne!(answer, before);
        answer
    });
    assert_eq!(probes[0], probes[1], "it is the same address");
    let ping = forged(&net, 5002, &[Frame::Ping]);
    net.give(from(ping, elsewhere()));
    assert_eq!(remote(&mut net), elsewhere());
    let sent = net.take(Side::Server);
    let (new, old) = (to(&sent, elsewhere()), to(&sent, address(Side::Client, 0)));
    assert!(!new.is_empty() && !old.is_empty());
    assert!(new.iter().all(|sent| destination(sent) == probes[0]));
    assert!(old.iter().all(|sent| destination(sent) == before));
}

/// RFC 9000 sections 9 and 9.5: not before the handshake is confirmed, and not without a connection
/// ID to spare.
#[test]
fn rfc_9000_9_a_client_moves_only_with_permission() {
    let local = address(Side::Client, 3);
    let mut net = Net::connecting(Options::default());
    let now = net.now;
    let early = net
        .client()
        .path_mut(ZERO)
        .unwrap()
        .set_local_address(now, local);
    assert_eq!(early, Err(MigrateError::NotConfirmed));
    net.exchange();
    net.wait(SECOND);
    let now = net.now;
    let by_server = net
        .server()
        .path_mut(ZERO)
        .unwrap()
        .set_local_address(now, local);
    assert_eq!(by_server, Err(MigrateError::ServerSide));
    // The spare one, and then none until the server issues another.
    assert_eq!(
        net.client()
            .path_mut(ZERO)
            .unwrap()
            .set_local_address(now, local),
        Ok(())
    );
    let again = address(Side::Client, 4);
    let refused = net
        .client()
        .path_mut(ZERO)
        .unwrap()
        .set_local_address(now, again);
    assert_eq!(refused, Err(MigrateError::NoConnectionId));
    let sent = net.take(Side::Client);
    assert!(sent.iter().all(|sent| sent.source == local));
    net.give_all(sent);
    net.wait(SECOND);
    let now = net.now;
    assert_eq!(
        net.client()
            .path_mut(ZERO)
            .unwrap()
            .set_local_address(now, again),
        Ok(())
    );

    // RFC 9000 section 18.2
    let mut net = Net::connected(Options {
        migration: false,
        ..Options::default()
    });
    let now = net.now;
    let forbidden = net
        .client()
        .path_mut(ZERO)
        .unwrap()
        .set_local_address(now, local);
    assert_eq!(forbidden, Err(MigrateError::AddressForbidden));
}

/// RFC 9000 section 9: a server that takes no migration drops such packets, without a stateless
/// reset.
#[test]
fn rfc_9000_9_an_unwanted_migration_gets_no_reset() {
    let mut net = Net::connected(Options {
        migration: false,
        ..Options::default()
    });
    let moved = forged(&net, 5000, &[Frame::Ping]);
    let dropped = net.server().stats().packets_dropped;
    assert_eq!(net.give(from(moved.clone(), elsewhere())), None);
    assert_eq!(net.server().stats().packets_dropped, dropped + 1);
    assert!(net.wait(SECOND).is_empty());
    // Where it belongs, the packet is new.
    net.give(moved);
    assert_eq!(net.server().stats().packets_dropped, dropped + 1);
    assert_eq!(remote(&mut net), address(Side::Client, 0));
}

/// The window of a new path.
fn initial_window(now: Instant) -> u64 {
    let mut controller = mpquic_cc::default().build();
    controller.on_path_opened(ZERO, now, 1200);
    controller.window(ZERO)
}

/// RFC 9000 section 9.4: another address starts congestion control and RTT over; another port of
/// the same host does not.
#[test]
fn rfc_9000_9_4_another_host_starts_over_and_another_port_does_not() {
    for (source, starts_over) in [
        (elsewhere(), true),
        (([198, 51, 100, 1], 7777).into(), false),
    ] {
        let mut net = Net::connected(Options::default());
        let first = initial_window(net.now);
        net.write(Side::Server, 1_000_000);
        net.wait(SECOND);
        let before = net.server().path_stats(ZERO).unwrap();
        assert!(
            before.window > 3 * first / 2 && before.rtt < 50 * MS,
            "{before:?}"
        );
        let moved = forged(&net, 5000, &[Frame::Ping]);
        net.give(from(moved, source));
        let after = net.server().path_stats(ZERO).unwrap();
        assert_eq!(after.four_tuple.remote, source);
        assert_eq!(after.window == first, starts_over, "{after:?}");
        assert_eq!(after.rtt > 300 * MS, starts_over, "{after:?}");
    }
}

/// RFC 9000 section 8.2.3: an acknowledgement of a challenge proves nothing, nor does a response to
/// no challenge; a response proves the path wherever it arrives.
#[test]
fn rfc_9000_8_2_3_only_the_right_response_validates() {
    let mut net = Net::connected(Options::default());
    let moved = forged(&net, 5000, &[Frame::Ping]);
    net.give(from(moved, elsewhere()));
    let sent = net.take(Side::Server);
    let there = to(&sent, elsewhere());
    let challenge = there.iter().find(|sent| sent.has(is_challenge)).unwrap();
    let number = challenge.packets()[0].number;
    let data = challenge
        .frames()
        .into_iter()
        .find_map(|frame| match frame {
            Frame::PathChallenge(data) => Some(data),
            _ => None,
        });
    let migrated = PathEvent::Migrated(
        ZERO,
        mpquic_core::FourTuple::new(address(Side::Server, 0), elsewhere()),
    );
    let received = std::iter::once(number..number + 1).collect();
    let ack = mpquic_core::unstable_wire::frame::Ack::new(&received, 0, None).unwrap();
    let proofless = forged(
        &net,
        5001,
        &[
            Frame::PathAck(PathAck { path_id: ZERO, ack }),
            Frame::PathResponse([0; 8]),
        ],
    );
    net.give(from(proofless, elsewhere()));
    assert!(!net.has_path_event(Side::Server, &migrated));
    // The challenge was small, so a second one follows; either way the address is proven.
    let answer = forged(&net, 4000, &[Frame::PathResponse(data.unwrap())]);
    net.give(answer);
    assert!(net.has_path_event(Side::Server, &migrated));
}

/// RFC 9000 section 8.2.1: challenges do not repeat themselves.
#[test]
fn rfc_9000_8_2_1_every_challenge_is_new_and_fills_a_datagram() {
    let mut net = Net::connected(Options::default());
    net.open_path(1).unwrap();
    let mut sent = net.take(Side::Client);
    for _ in 0..6 {
        sent.extend(net.fire(Side::Client));
    }
    let challenges: Vec<_> = sent
        .iter()
        .filter(|sent| sent.has(is_challenge))
        .inspect(|sent| assert!(sent.data.len() >= 1200))
        .flat_map(Sent::frames)
        .filter(is_challenge)
        .collect();
    assert!(challenges.len() >= 3);
    let distinct = |(index, challenge)| !challenges[..index].contains(challenge);
    assert!(challenges.iter().enumerate().all(distinct));
}
