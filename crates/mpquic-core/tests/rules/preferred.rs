//! The server's preferred address: RFC 9000 section 9.6, MP-018.

use std::net::SocketAddr;

use mpquic_core::unstable_wire::frame::{Frame, NewConnectionId, PathRetireConnectionId};
use mpquic_core::{MigrateError, PathEvent, PathId, Side};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, SIDES, Sent, address};
use super::messages::parameters_in;

const ZERO: PathId = PathId::ZERO;

fn preferred() -> SocketAddr {
    ([192, 0, 2, 200], 8443).into()
}

fn original() -> SocketAddr {
    address(Side::Server, 0)
}

fn options() -> Options {
    Options {
        preferred: Some(preferred()),
        ..Options::default()
    }
}

fn remote(net: &mut Net) -> SocketAddr {
    net.client().path_stats(ZERO).unwrap().four_tuple.remote
}

fn local(net: &mut Net) -> SocketAddr {
    net.server().path_stats(ZERO).unwrap().four_tuple.local
}

/// True for the frames that do not move a path (RFC 9000 section 9.1).
fn is_probing(frame: &Frame) -> bool {
    matches!(
        frame,
        Frame::PathChallenge(_) | Frame::PathResponse(_) | Frame::Padding
    )
}

fn involves_preferred(sent: &Sent) -> bool {
    sent.destination == preferred() || sent.source == preferred()
}

/// Connected, with the client's probe of the preferred address taken out of the exchange.
fn about_to_move(options: Options) -> (Net, Vec<Sent>) {
    let mut net = Net::connecting(options);
    net.delivers = |sent| !involves_preferred(sent);
    let log = net.exchange();
    net.delivers = |_| true;
    let probes: Vec<_> = log.into_iter().filter(involves_preferred).collect();
    (net, probes)
}

/// The client probes once the handshake is confirmed, with a connection ID of its own; when the
/// address is proven everything goes there, and the old connection IDs are retired.
#[test]
fn rfc_9000_9_6_1_a_client_moves_to_the_preferred_address() {
    let (mut net, probes) = about_to_move(options());
    assert_eq!(probes.len(), 1, "one probe, after confirmation");
    let probe = &probes[0];
    assert!(probe.data.len() >= 1200);
    assert!(
        probe.frames().iter().all(is_probing),
        "{:?}",
        probe.frames()
    );
    let announced = *probe.packets()[0].header.dcid();
    assert_eq!(remote(&mut net), original());

    // Until the answer, data keeps its old destination.
    let id = net.write(Side::Client, 3000);
    let data = net.take(Side::Client);
    assert!(data.iter().all(|sent| sent.destination == original()));
    net.give_all(data);
    net.give(probe.clone());
    let log = net.wait(SECOND);
    assert_eq!(net.read(Side::Server, id), 3000);
    assert_eq!(
        (remote(&mut net), local(&mut net)),
        (preferred(), preferred())
    );
    for side in SIDES {
        let moved = net.connection(side).path_stats(ZERO).unwrap().four_tuple;
        assert!(net.has_path_event(side, &PathEvent::Migrated(ZERO, moved)));
    }
    assert_eq!(net.dcid(Side::Client, ZERO), announced);
    let retired = Frame::PathRetireConnectionId(PathRetireConnectionId {
        path_id: ZERO,
        sequence_number: 0,
    });
    assert!(log.iter().any(|sent| sent.has(|frame| *frame == retired)));

    let id = net.write(Side::Server, 3000);
    let log = net.exchange();
    assert_eq!(net.read(Side::Client, id), 3000);
    assert!(log.iter().all(involves_preferred));
}

/// RFC 9000 section 21.5.3: a server names no machine that only its client reaches.
#[test]
fn rfc_9000_21_5_3_a_client_sends_nothing_to_its_own_network_for_a_server_elsewhere() {
    let private: [SocketAddr; 4] = [
        ([10, 0, 0, 9], 53).into(),
        ([192, 168, 77, 9], 5353).into(),
        ([169, 254, 0, 1], 80).into(),
        ([127, 0, 0, 1], 6379).into(),
    ];
    for preferred in private {
        let mut net = Net::connected(Options {
            preferred: Some(preferred),
            ..Options::default()
        });
        let log = net.wait(5 * SECOND);
        assert!(log.iter().all(|sent| sent.destination != preferred));
        assert_eq!(remote(&mut net), original());
        net.write(Side::Client, 3000);
        let log = net.wait(SECOND);
        assert!(log.iter().all(|sent| sent.destination != preferred));
    }
}

/// MP-018, RFC 9000 section 5.1.1: its connection ID is number 1 of path 0, and the next is 2.
#[test]
fn mp_018_the_connection_id_of_the_preferred_address_is_number_one() {
    let mut net = Net::with_flights(options(), &[Side::Client]);
    let flight = net.take(Side::Server);
    let frames: Vec<_> = flight.iter().flat_map(Sent::frames).collect();
    let announced = parameters_in(&frames, 11, Side::Server).unwrap();
    let announced = announced.preferred_address.unwrap();
    assert_eq!(announced.ipv4.map(SocketAddr::V4), Some(preferred()));
    assert_eq!(announced.ipv6, None);
    net.give_all(flight);
    net.wait(SECOND);
    assert_eq!(net.dcid(Side::Client, ZERO), announced.connection_id);
    let issued = net.issued(Side::Server, ZERO);
    let lowest = issued
        .iter()
        .map(|new: &NewConnectionId| new.sequence_number)
        .min();
    assert_eq!(lowest, Some(2));
}

/// RFC 9000 section 9.6.2: an address without an answer is given up, and no data is lost.
#[test]
fn rfc_9000_9_6_2_a_client_stays_if_the_address_does_not_answer() {
    let mut net = Net::connecting(options());
    net.delivers = |sent| sent.destination != preferred();
    let log = net.wait(5 * SECOND);
    let probes = log.iter().filter(|sent| involves_preferred(sent));
    assert!(probes.clone().count() >= 3, "repeated");
    let id = net.write(Side::Client, 3000);
    let log = net.wait(SECOND);
    assert!(!log.iter().any(involves_preferred));
    assert_eq!(net.read(Side::Server, id), 3000);
    assert_eq!(
        (remote(&mut net), local(&mut net)),
        (original(), original())
    );
    for side in SIDES {
        assert_eq!(net.lost(side), None);
    }
}

/// RFC 9000 section 9.6.2: the server answers and sends probes from the preferred address, and
/// nothing else, until the client uses it.
#[test]
fn rfc_9000_9_6_2_a_server_follows_when_the_client_uses_the_address() {
    let (mut net, probes) = about_to_move(options());
    net.give_all(probes);
    net.write(Side::Server, 50_000);
    let sent = net.take(Side::Server);
    let (from_preferred, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(involves_preferred);
    assert!(!others.is_empty());
    let frames: Vec<_> = from_preferred.iter().flat_map(Sent::frames).collect();
    assert!(frames.iter().all(is_probing), "{frames:?}");
    let has = |wanted: fn(&Frame) -> bool| frames.iter().any(wanted);
    assert!(has(|frame| matches!(frame, Frame::PathResponse(_))));
    assert!(has(|frame| matches!(frame, Frame::PathChallenge(_))));
    net.give_all(from_preferred);
    // The client moves, but its packets are late, all but the answer to the server's probe.
    net.give_all(others);
    let (probes, uses): (Vec<_>, Vec<_>) = net
        .take(Side::Client)
        .into_iter()
        .partition(|sent| sent.frames().iter().all(is_probing));
    assert_eq!(remote(&mut net), preferred());
    net.give_all(probes);
    assert_eq!(local(&mut net), original(), "proven, but not used yet");
    net.give_all(uses);
    assert_eq!(local(&mut net), preferred());
}

/// RFC 9000 section 9.6.2: whoever copies a client's packets to the preferred address does not move
/// the server, as long as the client does not answer.
#[test]
fn rfc_9000_9_6_2_copied_packets_move_no_server() {
    let mut net = Net::connected(Options {
        use_preferred: false,
        ..options()
    });
    net.client().path_mut(ZERO).unwrap().ping();
    for sent in net.take(Side::Client) {
        net.give(Sent {
            destination: preferred(),
            ..sent
        });
    }
    let log = net.wait(5 * SECOND);
    assert!(log.iter().any(|sent| sent.source == preferred()), "probed");
    assert_eq!(local(&mut net), original());
    let id = net.write(Side::Server, 3000);
    net.wait(SECOND);
    assert_eq!(net.read(Side::Client, id), 3000);
}

/// Once the server has moved, the old address is left for good.
#[test]
fn rfc_9000_9_6_2_packets_at_the_old_address_do_not_move_it_back() {
    let mut net = Net::connected(options());
    assert_eq!(local(&mut net), preferred());
    let newest = net.forge(&Forgery::new(
        Side::Client,
        Kind::OneRtt(ZERO),
        5000,
        &[Frame::Ping],
    ));
    assert_eq!(newest.destination, original());
    net.give(newest);
    net.wait(200 * MS);
    assert_eq!(local(&mut net), preferred());
}

#[test]
fn rfc_9000_9_6_the_move_is_the_clients_choice() {
    let mut net = Net::connected(Options {
        use_preferred: false,
        ..options()
    });
    net.wait(SECOND);
    assert_eq!(remote(&mut net), original());
    // No client is asked to move to its current address, or to another family.
    for address in [original(), "[2001:db8::1]:443".parse().unwrap()] {
        let mut net = Net::connected(Options {
            preferred: Some(address),
            ..Options::default()
        });
        let log = net.wait(SECOND);
        assert_eq!(remote(&mut net), original());
        assert!(!log.iter().any(|sent| sent.destination == address) || address == original());
    }
}

/// RFC 9000 section 18.2: disable_active_migration is about the handshake's address. From the
/// preferred one a client may go on with another address of its own.
#[test]
fn rfc_9000_18_2_a_client_may_migrate_once_it_has_moved() {
    let other = address(Side::Client, 7);
    for (use_preferred, allowed) in [(false, Err(MigrateError::AddressForbidden)), (true, Ok(()))] {
        let mut net = Net::connected(Options {
            migration: false,
            use_preferred,
            ..options()
        });
        net.wait(SECOND);
        let now = net.now;
        assert_eq!(
            net.client()
                .path_mut(ZERO)
                .unwrap()
                .set_local_address(now, other),
            allowed
        );
        net.wait(SECOND);
        let seen = net.server().path_stats(ZERO).unwrap().four_tuple;
        let expected = if use_preferred {
            (preferred(), other)
        } else {
            (original(), address(Side::Client, 0))
        };
        assert_eq!((seen.local, seen.remote), expected);
    }
}

/// RFC 9000 section 9.6.3: a client with a new address of its own proves both of the server's from
/// there, and prefers the preferred one, with enough connection IDs.
#[test]
fn rfc_9000_9_6_3_the_client_may_change_its_address_meanwhile() {
    for (limit, expected) in [(4, preferred()), (3, original())] {
        let options = options().transport(|transport| {
            transport.active_connection_id_limit = limit;
        });
        let (mut net, probes) = about_to_move(options);
        assert_eq!(probes.len(), 1);
        let other = address(Side::Client, 7);
        let now = net.now;
        net.client()
            .path_mut(ZERO)
            .unwrap()
            .set_local_address(now, other)
            .unwrap();
        let sent = net.take(Side::Client);
        let challenged = |destination| {
            let mut there = sent.iter().filter(|sent| sent.destination == destination);
            let is_challenge = |frame: &Frame| matches!(frame, Frame::PathChallenge(_));
            there.any(|sent| sent.source == other && sent.has(is_challenge))
        };
        assert!(challenged(original()) && challenged(expected));
        let cids = sent.iter().map(|sent| *sent.packets()[0].header.dcid());
        let cids: std::collections::BTreeSet<_> = cids.collect();
        assert_eq!(cids.len(), if limit == 4 { 2 } else { 1 });
        net.give_all(sent);
        net.wait(2 * SECOND);
        let seen = net.server().path_stats(ZERO).unwrap().four_tuple;
        assert_eq!((seen.local, seen.remote), (expected, other));
        let id = net.write(Side::Server, 3000);
        net.wait(SECOND);
        assert_eq!(net.read(Side::Client, id), 3000);
    }
}
