//! Silent paths, and paths without their interface.

use std::time::Duration;

use mpquic_core::unstable_wire::frame::Frame;
use mpquic_core::{
    Event, Fault, PathEvent, PathId, PathState, PathStatus, Side, SpaceId, TransportErrorCode,
};

use super::harness::{MS, Net, Options, SECOND, SIDES, Sent, address};

const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);
const TWO: PathId = PathId(2);

fn set_usable(net: &mut Net, path: PathId, up: bool) {
    let now = net.now;
    net.client().set_path_usable(now, path, up).unwrap();
}

/// MP-064: acknowledgements move from a suspect path to another one. On the only path, they leave
/// all the same: the peer may hear them, and waits for them.
#[test]
fn mp_064_the_only_path_acknowledges_although_it_is_suspect() {
    let mut net = Net::with_two_paths(Options::default());
    set_usable(&mut net, ONE, false);
    net.wait(SECOND);
    let now = net.now;
    let code = TransportErrorCode::NO_ERROR;
    net.server().close_path(now, ZERO, code).unwrap();
    net.wait(5 * SECOND);
    let state = net.client().path_stats(ONE).unwrap().state;
    assert_eq!(state, PathState::Suspect);
    net.write(Side::Server, 3000);
    let data = net.take(Side::Server);
    net.give_all(data);
    net.now += 25 * MS;
    net.tick(Side::Client);
    let sent = net.take(Side::Client);
    let acknowledges = |sent: &Sent| {
        sent.path() == Some(ONE)
            && sent.has(|frame| matches!(frame, Frame::PathAck(ack) if ack.path_id == ONE))
    };
    assert!(sent.iter().any(acknowledges), "{sent:?}");
}

/// Sends one packet over a network of 20 ms each way. The server's timer, due when the packet has
/// to be acknowledged, fires `late`.
fn lone_packet(net: &mut Net, late: Duration) {
    net.client().inject(SpaceId::Data(ZERO), &[1]);
    let packet = net.take(Side::Client);
    net.now += 20 * MS;
    net.give_all(packet);
    let (due, _) = net.server().poll_timeout().unwrap();
    net.now = due + late;
    net.tick(Side::Server);
    let acknowledgement = net.take(Side::Server);
    let is_ack = |frame: &Frame| matches!(frame, Frame::Ack(_) | Frame::PathAck(_));
    assert!(acknowledgement[0].has(is_ack), "{acknowledgement:?}");
    net.now += 20 * MS;
    net.tick(Side::Client);
    net.give_all(acknowledgement);
    net.take(Side::Client);
}

/// How often the client took path 0 for silent.
fn suspicions(net: &mut Net) -> usize {
    let suspect = Event::Path(PathEvent::Suspect(ZERO));
    let events = net.events(Side::Client).iter();
    events.filter(|event| **event == suspect).count()
}

/// RFC 9000 section 18.2: the announced delay of acknowledgements includes how late timers fire.
/// Round trips without variance leave the peer's probe timeout no other room: without it, the peer
/// takes a path for silent which lost nothing.
#[test]
fn late_timers_make_no_path_suspect() {
    for (lateness, is_suspect) in [(Duration::ZERO, true), (4 * MS, false)] {
        let options = Options::default();
        let options = options.transport(|transport| transport.timer_lateness = lateness);
        let mut net = Net::with_two_paths(options);
        net.wait(SECOND);
        for _ in 0..36 {
            lone_packet(&mut net, Duration::ZERO);
        }
        // The first round trips differ from those of the handshake.
        let before = suspicions(&mut net);
        lone_packet(&mut net, 4 * MS);
        let stats = net.client().path_stats(ZERO);
        assert_eq!(
            suspicions(&mut net) > before,
            is_suspect,
            "{lateness:?}, {stats:?}"
        );
    }
}

/// MP-115: a backup path stands in when no available path answers, not when one of them does not.
#[test]
fn mp_115_a_backup_waits_until_no_available_path_answers() {
    let mut net = Net::with_two_paths(Options::default());
    assert_eq!(net.open_path(2), Ok(TWO));
    net.wait(SECOND);
    let mut backup = net.client().path_mut(TWO).unwrap();
    backup.set_status(PathStatus::Backup);
    net.wait(SECOND);
    let told = |net: &mut Net| net.server().path_mut(TWO).unwrap().status().1;
    assert_eq!(told(&mut net), Some(PathStatus::Backup));
    set_usable(&mut net, ONE, false);
    net.wait(SECOND);
    assert_eq!(told(&mut net), Some(PathStatus::Backup), "path 0 answers");
    set_usable(&mut net, ZERO, false);
    net.wait(SECOND);
    assert_eq!(told(&mut net), Some(PathStatus::Available));
}

/// What a silent path carried moves to another path once, however many probe timeouts pass.
#[test]
fn data_of_a_silent_path_moves_once() {
    let mut net = Net::with_two_paths(Options::default());
    net.write(Side::Server, 60_000);
    let on_one = |log: &[Sent]| {
        let sent = log.iter().filter(|sent| sent.from.is_server());
        let sent = sent.filter(|sent| sent.path() == Some(ONE));
        sent.map(|sent| sent.data.len()).sum::<usize>()
    };
    let flight = net.take(Side::Server);
    let lost = on_one(&flight);
    assert!(lost > 5_000, "path 0 is full");
    net.give_all(flight.into_iter().filter(|sent| sent.path() == Some(ZERO)));
    net.delivers = |sent| sent.path() != Some(ONE);
    let log = net.wait(20 * SECOND);
    let stats = net.server().path_stats(ONE).unwrap();
    assert!(stats.probe_timeouts >= 5, "{stats:?}");
    // Probes have no data to move, but are counted as well.
    let most = lost + on_one(&log);
    let moved = net.server().stats().bytes_reinjected as usize;
    assert!(
        (lost..=most).contains(&moved),
        "{moved} of {lost} to {most}"
    );
}

/// A path is abandoned after failed validation. The application learns that it did not close the
/// last path itself. Here a NAT box leads to a place where only small datagrams come back: the
/// client is heard, and no challenge arrives.
#[test]
fn mp_128_a_last_path_that_fails_is_no_local_close() {
    let mut net = Net::connected(Options::default());
    net.wait(SECOND);
    net.rewrite = |sent| match sent.from {
        Side::Client => sent.source = ([203, 0, 113, 7], 6000).into(),
        Side::Server => sent.destination = address(Side::Client, 0),
    };
    net.delivers = |sent| sent.from.is_client() || sent.data.len() < 1200;
    let end = net.now + 20 * SECOND;
    while net.fault(Side::Server).is_none() && net.now < end {
        net.client().path_mut(ZERO).unwrap().ping();
        net.wait(100 * MS);
    }
    assert_eq!(net.fault(Side::Server), Some((Fault::NoPathLeft, 0)));
}

/// RFC 10069 section 4.3: status frames are for peers that have negotiated multipath; to others
/// they are an error.
#[test]
fn a_peer_without_multipath_is_told_no_status() {
    for alone in SIDES {
        let mut options = Options::default();
        match alone {
            Side::Client => options.client.max_concurrent_paths = 0,
            Side::Server => options.server.max_concurrent_paths = 0,
        }
        let mut net = Net::connecting(options);
        let set = |net: &mut Net, side, status| {
            let mut path = net.connection(side).path_mut(ZERO).unwrap();
            path.set_status(status);
        };
        set(&mut net, Side::Client, PathStatus::Backup);
        let mut log = net.wait(SECOND);
        set(&mut net, Side::Client, PathStatus::Available);
        set(&mut net, Side::Server, PathStatus::Backup);
        log.extend(net.wait(SECOND));
        let tells = |frame: &Frame| matches!(frame, Frame::PathStatus(_));
        assert!(
            !log.iter().any(|sent| sent.has(tells)),
            "{alone:?} is alone"
        );
        assert_eq!(SIDES.map(|side| net.lost(side)), [None, None]);
    }
}
