//! Addresses that a client has proven on an earlier connection, and then adds as paths (MP-075,
//! MP-087).

use std::time::Duration;

use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{Ack, Frame, PathAck};
use mpquic_core::{PathEvent, PathId, Side};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, SIDES, Sent};

const ONE: PathId = PathId(1);
/// The controller's first window, in the smallest datagrams.
const FIRST_WINDOW: usize = 32 * 1200;

/// A second connection, whose token is for the addresses 0 and 1; the server has much to send.
fn reconnected() -> Net {
    let mut net = Net::with_two_paths(Options::default());
    net.close(Side::Client);
    net.exchange();
    for side in SIDES {
        net.events(side);
        net.node(side).events.clear();
    }
    net.connect();
    net.exchange();
    net.wait(200 * MS);
    assert_eq!(net.validated, Some(true));
    net.write(Side::Server, 500_000);
    net
}

/// Datagrams of the server on path 1 within `time`; no datagram on any path arrives.
fn sent_on_path_1(net: &mut Net, time: Duration) -> Vec<Sent> {
    let end = net.now + time;
    let mut log = net.take(Side::Server);
    while net.now < end {
        net.now += 5 * MS;
        net.tick(Side::Server);
        log.extend(net.take(Side::Server));
    }
    log.retain(|sent| sent.path() == Some(ONE));
    log
}

/// What the client has to say arrives at the server; returns its bytes.
fn open(net: &mut Net) -> usize {
    let opening = net.take(Side::Client);
    let received = bytes(&opening);
    net.give_all(opening);
    received
}

/// Acknowledges packets of a path over path 0, in a forged packet of this number; does nothing
/// without packets.
fn acknowledge(net: &mut Net, sent: &[Sent], path: PathId, number: u64) {
    let of_path = sent.iter().filter(|sent| sent.path() == Some(path));
    let numbers = of_path.flat_map(Sent::packets);
    let numbers = numbers.map(|packet| packet.number..packet.number + 1);
    if let Some(ack) = Ack::new(&numbers.collect::<RangeSet>(), 0, None) {
        let ack = Frame::PathAck(PathAck { path_id: path, ack });
        let kind = Kind::OneRtt(PathId::ZERO);
        let forged = net.forge(&Forgery::new(Side::Client, kind, number, &[ack]));
        net.give(forged);
    }
}

fn has_data(log: &[Sent]) -> bool {
    let is_stream = |frame: &Frame| matches!(frame, Frame::Stream(_));
    log.iter().any(|sent| sent.has(is_stream))
}

fn bytes(log: &[Sent]) -> usize {
    log.iter().map(|sent| sent.data.len()).sum()
}

/// A first window leaves at once, since the address is the client's, and no more, since
/// acknowledgements can be forged; with the response comes the rest.
#[test]
fn mp_075_an_address_that_was_proven_gets_a_first_window_before_it_answers() {
    let mut net = reconnected();
    assert_eq!(net.open_path(1), Ok(ONE));
    let received = open(&mut net);
    assert!(net.has_path_event(Side::Server, &PathEvent::Established(ONE)));
    let sent = sent_on_path_1(&mut net, SECOND);
    assert!(has_data(&sent));
    let count = bytes(&sent);
    assert!(count > FIRST_WINDOW, "{count}");
    assert!(count <= FIRST_WINDOW + 3 * received, "{count}");

    // Acknowledgements of all packets, over the other path, change nothing.
    acknowledge(&mut net, &sent, ONE, 1000);
    assert!(net.server().path_stats(ONE).unwrap().in_flight < 1200);
    let more = sent_on_path_1(&mut net, SECOND);
    let count = count + bytes(&more);
    assert!(count <= FIRST_WINDOW + 3 * received, "{count}");

    net.give_all(sent);
    net.wait(SECOND);
    let all = net.server().path_stats(ONE).unwrap().bytes_sent;
    assert!(all > 2 * count as u64, "{all}");
}

/// A sender at an address can open any number of paths.
#[test]
fn mp_075_an_earlier_proof_counts_for_one_path() {
    let mut net = reconnected();
    for path in [1, 2] {
        assert_eq!(net.open_path(1), Ok(PathId(path)));
    }
    let received = open(&mut net);
    let mut sent = net.take(Side::Server);
    for _ in 0..400 {
        // All packets are acknowledged, on either path.
        for path in [1, 2].map(PathId) {
            let number = 1000 + sent.len() as u64 * 2 + u64::from(path.0);
            acknowledge(&mut net, &sent, path, number);
        }
        net.now += 5 * MS;
        net.tick(Side::Server);
        sent.extend(net.take(Side::Server));
    }
    sent.retain(|sent| sent.path() != Some(PathId::ZERO));
    assert!(has_data(&sent));
    let count = bytes(&sent);
    assert!(count <= FIRST_WINDOW + 3 * received, "{count}");
}

/// One that no token names has to answer first, on a second connection as on the first.
#[test]
fn mp_075_another_address_has_to_answer_first() {
    let mut net = reconnected();
    assert_eq!(net.open_path(2), Ok(ONE));
    open(&mut net);
    assert!(!has_data(&sent_on_path_1(&mut net, SECOND)));
}

/// A token vouches for proofs on its own connection, not for proofs of the connection before.
#[test]
fn mp_087_a_silent_address_is_in_no_further_token() {
    let mut net = reconnected();
    assert_eq!(net.open_path(1), Ok(ONE));
    open(&mut net);
    assert!(net.has_path_event(Side::Server, &PathEvent::Established(ONE)));
    // No datagram of path 1 arrives any more.
    net.delivers = |sent| sent.path() != Some(ONE);
    net.wait(200 * MS);
    net.delivers = |_| true;
    net.close(Side::Client);
    net.exchange();
    net.connect_from(1);
    net.exchange();
    assert_eq!(net.validated, Some(false));
}

/// RFC 9000 section 8.1.3: a client uses the latest token. An earlier token over a longer path
/// would arrive after it.
#[test]
fn rfc_9000_8_1_3_one_token_follows_the_other() {
    let is_token = |frame: &Frame| matches!(frame, Frame::NewToken(_));
    let has_token = |log: &[Sent]| log.iter().any(|sent| sent.has(is_token));
    let mut net = Net::with_flights(
        Options::default(),
        &[Side::Client, Side::Server, Side::Client],
    );
    let late = net.take(Side::Server);
    assert!(has_token(&late));
    // Meanwhile the second path is validated.
    assert_eq!(net.open_path(1), Ok(ONE));
    for side in [Side::Client, Side::Server, Side::Client, Side::Server] {
        let flight = net.take(side);
        assert!(!has_token(&flight));
        net.give_all(flight);
    }
    assert!(net.has_path_event(Side::Server, &PathEvent::Established(ONE)));
    net.give_all(late);
    assert!(has_token(&net.exchange()));
}
