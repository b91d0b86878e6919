//! Paths: opening, using, abandoning and losing them.

use std::time::Duration;

use mpquic_core::{
    ClosePathError, Event, OpenPathError, PathEvent, PathId, PathState, PathStatus,
    TransportErrorCode,
};
use mpquic_sim::{Backlog, Change, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SIDES: [Side; 2] = [Side::Client, Side::Server];

fn link() -> LinkConfig {
    LinkConfig::new(50.0, 10 * MS)
}

fn topology(count: usize) -> Topology {
    (0..count).fold(Topology::new(), |topology, index| {
        topology.path(&format!("path {index}"), link())
    })
}

fn two_paths() -> Topology {
    Topology::new()
        .path("first", link())
        .path("second", LinkConfig::new(50.0, 20 * MS))
}

/// IP bytes delivered towards the client and the server on a named path.
fn delivered(pair: &Pair, name: &str) -> u64 {
    pair.counters(name)
        .iter()
        .map(|counters| counters.bytes_out)
        .sum()
}

/// How the events of a side say a path was abandoned: code, and whether by the peer.
fn abandoned(pair: &Pair, side: Side, wanted: PathId) -> Option<(TransportErrorCode, bool)> {
    pair.events(side).into_iter().find_map(|event| match event {
        Event::Path(PathEvent::Abandoned {
            path,
            error_code,
            by_peer,
        }) if path == wanted => Some((error_code, by_peer)),
        _ => None,
    })
}

#[test]
fn opening_takes_one_round_trip_and_both_sides_hear_of_it() {
    for setup in [Setup::new(), Setup::new().tls()] {
        let mut pair = Pair::connected(&two_paths(), setup);
        let start = pair.now();
        let path = pair.open_path("second", PathStatus::Available).unwrap();
        assert_eq!(path, PathId(1), "MP-071: the smallest unused ID");
        let stats = pair.client().path_stats(path).unwrap();
        assert_eq!(stats.state, PathState::Validating);
        let established = PathEvent::Established(path);
        pair.run_until(SECOND, |pair| {
            pair.has_path_event(Side::Client, &established)
        })
        .unwrap();
        assert!(pair.now() - start < 45 * MS, "{:?}", pair.now() - start);
        pair.run_until(SECOND, |pair| {
            pair.has_path_event(Side::Server, &established)
        })
        .unwrap();
        for side in SIDES {
            let stats = pair.connection(side).path_stats(path).unwrap();
            assert_eq!(stats.state, PathState::Active);
            let paths: Vec<_> = pair.connection(side).paths().collect();
            assert_eq!(paths, [PathId(0), PathId(1)]);
        }
        let server = pair.server().path_stats(path).unwrap().four_tuple;
        assert_eq!(server.remote, pair.four_tuple(1).local);
        assert_eq!(server.local, pair.four_tuple(1).remote);
        pair.close(Side::Server);
    }
}

#[test]
fn both_paths_carry_a_transfer() {
    for from in SIDES {
        let mut pair = Pair::connected(&two_paths(), Setup::new());
        pair.open_all_paths();
        pair.transfer(from, 20_000_000, 10 * SECOND);
        for name in ["first", "second"] {
            assert!(delivered(&pair, name) > 5_000_000, "{name}");
        }
        pair.close(Side::Client);
    }
}

/// The aggregation that multipath is for: 100 MB over two equal paths of 50 Mbit/s.
#[test]
fn two_equal_paths_carry_a_large_transfer_at_their_joint_rate() {
    let path = LinkConfig::new(50.0, 20 * MS);
    let topology = Topology::new().path("a", path.clone()).path("b", path);
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.open_all_paths();
    let took = pair.transfer(Side::Server, 100_000_000, 60 * SECOND);
    let ideal = Duration::from_secs(8);
    assert!(took < ideal.mul_f64(1.15), "{took:?}");
    let [a, b] = ["a", "b"].map(|name| delivered(&pair, name) as f64);
    assert!((a / b - 1.0).abs() < 0.1, "{a} and {b}");
}

#[test]
fn five_paths_work_together() {
    let topology = topology(5);
    let mut pair = Pair::connected(&topology, Setup::new().tls());
    let ids = pair.open_all_paths();
    assert_eq!(ids, (0..5).map(PathId).collect::<Vec<_>>());
    let took = pair.transfer(Side::Client, 30_000_000, 10 * SECOND);
    // 250 Mbit/s together; a single path would need 4.8 s.
    assert!(took < 2 * SECOND, "{took:?}");
    for name in topology.names() {
        assert!(delivered(&pair, name) > 1_000_000, "{name}");
    }
    pair.close(Side::Server);
}

/// MP-088: path IDs may share a four-tuple.
#[test]
fn two_paths_may_have_the_same_addresses() {
    let topology = Topology::new().path("only", link());
    let mut pair = Pair::connected(&topology, Setup::new());
    let path = pair.open_path("only", PathStatus::Available).unwrap();
    let established = PathEvent::Established(path);
    pair.run_until(SECOND, |pair| {
        SIDES
            .into_iter()
            .all(|side| pair.has_path_event(side, &established))
    })
    .unwrap();
    pair.transfer(Side::Client, 2_000_000, 5 * SECOND);
    pair.close(Side::Client);
}

/// MP-114: a backup path carries no data while an available one works.
#[test]
fn a_backup_path_is_used_only_when_the_other_fails() {
    for from in SIDES {
        let mut pair = Pair::connected(&two_paths(), Setup::new());
        let backup = pair.open_path("second", PathStatus::Backup).unwrap();
        pair.drive(500 * MS);
        let remote_status = PathEvent::RemoteStatus(backup, PathStatus::Backup);
        assert!(pair.has_path_event(Side::Server, &remote_status));
        let idle = delivered(&pair, "second");
        pair.transfer(from, 5_000_000, 5 * SECOND);
        let used = delivered(&pair, "second") - idle;
        assert!(used < 100_000, "{used} bytes on the backup path");

        pair.send(from, 5_000_000);
        pair.drive(200 * MS);
        pair.set_outage("first", true);
        pair.run_transfers(10 * SECOND).unwrap();
        assert!(delivered(&pair, "second") > 2_000_000);
    }
}

/// MP-115: the side that falls back to a backup path tells the other, and takes it back later.
#[test]
fn mp_115_a_backup_that_stands_in_is_announced() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    let backup = pair.open_path("second", PathStatus::Backup).unwrap();
    pair.drive(500 * MS);
    let told = |pair: &mut Pair| pair.server().path_mut(backup).unwrap().status().1;
    assert_eq!(told(&mut pair), Some(PathStatus::Backup));
    pair.send(Side::Client, 5_000_000);
    pair.drive(200 * MS);
    pair.set_outage("first", true);
    pair.run_until(SECOND, |pair| told(pair) == Some(PathStatus::Available))
        .unwrap();
    assert!(pair.has_path_event(Side::Client, &PathEvent::Suspect(PathId::ZERO)));
    pair.set_outage("first", false);
    pair.run_until(10 * SECOND, |pair| told(pair) == Some(PathStatus::Backup))
        .unwrap();
    assert!(pair.has_path_event(Side::Client, &PathEvent::Recovered(PathId::ZERO)));
    pair.run_transfers(10 * SECOND).unwrap();
}

/// MP-110 to MP-113: status can change at any time, either way.
#[test]
fn a_status_change_moves_traffic() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    pair.open_all_paths();
    pair.send(Side::Server, 50_000_000);
    pair.drive(SECOND);
    // The client asks the server to treat path 0 as a backup.
    pair.client()
        .path_mut(PathId(0))
        .unwrap()
        .set_status(PathStatus::Backup);
    pair.drive(500 * MS);
    assert_eq!(
        pair.server().path_mut(PathId(0)).unwrap().status(),
        (PathStatus::Available, Some(PathStatus::Backup))
    );
    let before = delivered(&pair, "first");
    pair.drive(SECOND);
    let used = delivered(&pair, "first") - before;
    assert!(used < 300_000, "{used} bytes on a backup path");
    pair.client()
        .path_mut(PathId(0))
        .unwrap()
        .set_status(PathStatus::Available);
    pair.drive(SECOND);
    assert!(delivered(&pair, "first") - before > 2_000_000);
}

#[test]
fn either_side_abandons_a_path_and_both_forget_it() {
    for side in SIDES {
        for path in [PathId(0), PathId(1)] {
            let mut pair = Pair::connected(&two_paths(), Setup::new());
            pair.open_all_paths();
            pair.send(Side::Client, 10_000_000);
            pair.send(Side::Server, 10_000_000);
            pair.drive(300 * MS);
            let now = pair.now();
            let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR;
            pair.connection(side).close_path(now, path, code).unwrap();
            pair.run_transfers(20 * SECOND).unwrap();
            // MP-123: the other side answers with its own PATH_ABANDON.
            assert_eq!(abandoned(&pair, side, path), Some((code, false)));
            let peer = abandoned(&pair, !side, path);
            assert!(matches!(peer, Some((_, true))), "{peer:?}");
            pair.drive(5 * SECOND);
            for side in SIDES {
                assert!(pair.has_discarded(side, path));
                let connection = pair.connection(side);
                assert_eq!(connection.path_stats(path), None);
                assert_eq!(connection.paths().count(), 1);
                let again = connection.close_path(now, path, code);
                assert!(again.is_err(), "it is gone already");
            }
            // MP-121: the path carries no more packets.
            let name = ["first", "second"][path.0 as usize];
            let before = delivered(&pair, name);
            pair.transfer(Side::Client, 1_000_000, 5 * SECOND);
            assert_eq!(delivered(&pair, name), before);
            pair.close(Side::Client);
        }
    }
}

#[test]
fn both_sides_may_abandon_a_path_at_once() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    pair.open_all_paths();
    let now = pair.now();
    for side in SIDES {
        pair.connection(side)
            .close_path(now, PathId(1), TransportErrorCode::NO_ERROR)
            .unwrap();
    }
    pair.drive(5 * SECOND);
    for side in SIDES {
        assert!(pair.has_discarded(side, PathId(1)));
    }
    pair.transfer(Side::Server, 1_000_000, 5 * SECOND);
    pair.close(Side::Client);
}

/// An application without any further path should close the connection instead.
#[test]
fn the_last_path_is_not_closed() {
    let code = TransportErrorCode::NO_ERROR;
    for side in SIDES {
        let mut pair = Pair::connected(&two_paths(), Setup::new());
        let now = pair.now();
        let last = pair.connection(side).close_path(now, PathId(0), code);
        assert_eq!(last, Err(ClosePathError::LastPath));
        let unknown = pair.connection(side).close_path(now, PathId(1), code);
        assert_eq!(unknown, Err(ClosePathError::NoSuchPath));
        pair.open_all_paths();
        let now = pair.now();
        let connection = pair.connection(side);
        assert_eq!(connection.close_path(now, PathId(0), code), Ok(()));
        let last = connection.close_path(now, PathId(1), code);
        assert_eq!(last, Err(ClosePathError::LastPath));
        pair.transfer(side, 100_000, 5 * SECOND);
        pair.close(side);
    }
}

/// MP-128: each side gives up another one of two paths, at the same time.
#[test]
fn a_peer_that_abandons_the_last_path_ends_the_connection() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    pair.open_all_paths();
    let now = pair.now();
    for (side, path) in SIDES.into_iter().zip([PathId(0), PathId(1)]) {
        pair.connection(side)
            .close_path(now, path, TransportErrorCode::NO_ERROR)
            .unwrap();
    }
    pair.run_until_drained(20 * SECOND);
    for side in SIDES {
        let events = pair.events(side);
        let lost = |event: &Event| matches!(event, Event::ConnectionLost { .. });
        assert!(events.iter().any(lost), "{side:?}: {events:?}");
    }
}

/// MP-037, MP-097, MP-131: IDs are never used again, and the limit rises as paths close.
#[test]
fn path_ids_grow_as_paths_come_and_go() {
    let setup = Setup::new().transport(|transport| transport.max_concurrent_paths = 3);
    let mut pair = Pair::connected(&topology(2), setup);
    for round in 1..=30 {
        let mut opened = Err(OpenPathError::Closed);
        pair.run_until(10 * SECOND, |pair| {
            opened = pair.open_path("path 1", PathStatus::Available);
            opened.is_ok()
        })
        .unwrap_or_else(|_| panic!("round {round}: {opened:?}"));
        let path = opened.unwrap();
        assert_eq!(path, PathId(round));
        let established = PathEvent::Established(path);
        pair.run_until(SECOND, |pair| {
            SIDES
                .into_iter()
                .all(|side| pair.has_path_event(side, &established))
        })
        .unwrap();
        pair.transfer(Side::Client, 50_000, 5 * SECOND);
        let side = SIDES[round as usize % 2];
        let now = pair.now();
        pair.connection(side)
            .close_path(now, path, TransportErrorCode::NO_ERROR)
            .unwrap();
    }
    pair.drive(5 * SECOND);
    for side in SIDES {
        assert_eq!(pair.connection(side).paths().count(), 1);
        // Two connection IDs for path 0, one for each of two possible paths, and at most as many
        // tokens; a server's first ID has none.
        let routes = pair.routes(side);
        assert_eq!(routes.connection_ids, 4, "{side:?}: {routes:?}");
        assert!(routes.reset_tokens <= 4, "{side:?}: {routes:?}");
        assert!(routes.retired_connection_ids <= 32, "{side:?}: {routes:?}");
    }
    pair.close(Side::Server);
}

#[test]
fn more_paths_than_allowed_must_wait() {
    let setup = Setup::new().transport(|transport| transport.max_concurrent_paths = 2);
    let mut pair = Pair::connected(&topology(3), setup);
    pair.drive(100 * MS);
    pair.open_path("path 1", PathStatus::Available).unwrap();
    pair.drive(SECOND);
    let refused = pair.open_path("path 2", PathStatus::Available);
    assert_eq!(refused, Err(OpenPathError::PathsBlocked));
    let now = pair.now();
    pair.client()
        .close_path(now, PathId(1), TransportErrorCode::NO_ERROR)
        .unwrap();
    pair.drive(2 * SECOND);
    assert!(pair.has_path_event(Side::Client, &PathEvent::Available));
    pair.open_path("path 2", PathStatus::Available).unwrap();
    pair.drive(SECOND);
    assert!(pair.has_path_event(Side::Server, &PathEvent::Established(PathId(2))));
}

/// MP-084: validation that fails ends in PATH_ABANDON; the ID is spent.
#[test]
fn a_path_that_cannot_be_validated_is_abandoned() {
    let dead = LinkConfig::new(50.0, 10 * MS).outage(Duration::ZERO, 3600 * SECOND);
    let topology = two_paths().path("dead", dead);
    let mut pair = Pair::connected(&topology, Setup::new());
    let path = pair.open_path("dead", PathStatus::Available).unwrap();
    pair.run_until(20 * SECOND, |pair| pair.has_discarded(Side::Client, path))
        .unwrap();
    assert!(abandoned(&pair, Side::Client, path).is_some());
    pair.transfer(Side::Server, 1_000_000, 5 * SECOND);
    let next = pair.open_path("second", PathStatus::Available).unwrap();
    assert!(next > path);
    pair.drive(SECOND);
    assert!(pair.has_path_event(Side::Server, &PathEvent::Established(next)));
    pair.close(Side::Client);
}

/// A silent path's data moves to the others within a few probe timeouts.
#[test]
fn a_black_hole_costs_little_and_the_path_comes_back() {
    for from in SIDES {
        for dead in ["first", "second"] {
            let mut pair = Pair::connected(&two_paths(), Setup::new());
            let ids = pair.open_all_paths();
            let path = ids[pair.index_of(dead)];
            pair.send(from, 40_000_000);
            pair.drive(SECOND);
            let received = |pair: &Pair| pair.hosted(!from).unwrap().application.received();
            pair.set_outage(dead, true);
            // The stream flows on after at most a second, however much was lost.
            pair.drive(SECOND);
            let before = received(&pair);
            pair.drive(SECOND);
            let flowed = received(&pair) - before;
            assert!(flowed > 4_000_000, "{from:?} {dead}: {flowed} bytes/s");
            assert!(pair.has_path_event(from, &PathEvent::Suspect(path)));
            assert_eq!(pair.client().paths().count(), 2, "still open");

            pair.set_outage(dead, false);
            pair.run_until(10 * SECOND, |pair| {
                pair.has_path_event(from, &PathEvent::Recovered(path))
            })
            .unwrap();
            let before = delivered(&pair, dead);
            pair.run_transfers(20 * SECOND).unwrap();
            let used = delivered(&pair, dead) - before;
            assert!(used > 2_000_000, "{from:?} {dead}: {used} bytes after");
            pair.close(Side::Client);
        }
    }
}

/// One direction dead: data arrives, but no acknowledgement or no data comes back on that path.
#[test]
fn a_path_that_works_one_way_does_not_stop_a_transfer() {
    for from in SIDES {
        for dead_up in [false, true] {
            let mut pair = Pair::connected(&two_paths(), Setup::new());
            pair.open_all_paths();
            pair.send(from, 20_000_000);
            pair.drive(500 * MS);
            let links = &pair.links()[0];
            let link = if dead_up { links.up } else { links.down };
            pair.network.change_link(link, &Change::Outage(true));
            let took = pair.run_transfers(30 * SECOND).unwrap();
            assert!(took < 8 * SECOND, "{from:?} up {dead_up}: {took:?}");
        }
    }
}

#[test]
fn all_paths_dead_for_a_while_is_survived() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    pair.open_all_paths();
    pair.send(Side::Server, 20_000_000);
    pair.drive(500 * MS);
    pair.set_outage("first", true);
    pair.set_outage("second", true);
    pair.drive(8 * SECOND);
    pair.set_outage("first", false);
    pair.set_outage("second", false);
    let took = pair.run_transfers(30 * SECOND).unwrap();
    assert!(took < 15 * SECOND, "{took:?}");
    pair.close(Side::Client);
}

/// The driver's hint that an interface is gone.
#[test]
fn a_path_declared_unusable_is_left_at_once() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    pair.open_all_paths();
    pair.send(Side::Client, 30_000_000);
    pair.drive(500 * MS);
    pair.set_outage("first", true);
    let now = pair.now();
    pair.client()
        .set_path_usable(now, PathId(0), false)
        .unwrap();
    let before = pair.hosted(Side::Server).unwrap().application.received();
    pair.drive(500 * MS);
    let received = pair.hosted(Side::Server).unwrap().application.received() - before;
    assert!(received > 1_500_000, "{received}");
    pair.set_outage("first", false);
    let now = pair.now();
    pair.client().set_path_usable(now, PathId(0), true).unwrap();
    let before = delivered(&pair, "first");
    pair.drive(SECOND);
    assert!(delivered(&pair, "first") - before > 1_000_000);
}

/// A smaller MTU appears in mid transfer: larger packets vanish (RFC 8899 section 4.3).
#[test]
fn a_shrinking_mtu_is_survived() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    pair.open_all_paths();
    pair.transfer(Side::Client, 10_000_000, 10 * SECOND);
    let mtu = pair.client().path_stats(PathId(0)).unwrap().mtu;
    assert!(mtu > 1400, "{mtu}");
    pair.change("first", Change::Mtu(1300));
    pair.transfer(Side::Client, 10_000_000, 20 * SECOND);
    pair.run_until(20 * SECOND, |pair| {
        pair.client().path_stats(PathId(0)).unwrap().mtu <= 1272
    })
    .unwrap();
    pair.close(Side::Client);
}

/// RFC 9000 section 14.2: a path without room for 1200 bytes carries only probes.
#[test]
fn a_path_whose_mtu_falls_below_1200_is_only_probed() {
    let slow = |delay| LinkConfig::new(10.0, delay);
    let topology = Topology::new()
        .path("first", slow(10 * MS))
        .path("second", slow(20 * MS));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.open_all_paths();
    pair.send(Side::Client, 30_000_000);
    pair.drive(2 * SECOND);
    pair.change("first", Change::Mtu(1000));
    pair.drive(2 * SECOND);
    let sent = |pair: &mut Pair, path| pair.client().path_stats(PathId(path)).unwrap().bytes_sent;
    let before = [0, 1].map(|path| sent(&mut pair, path));
    pair.drive(10 * SECOND);
    let [first, second] = [0, 1].map(|path| sent(&mut pair, path) - before[path as usize]);
    // A probe every second, of up to two datagrams.
    assert!((1..=11 * 2 * 1200).contains(&first), "{first}");
    assert!(second > 8_000_000, "{second}");
    pair.change("first", Change::Mtu(1500));
    pair.run_transfers(20 * SECOND).unwrap();
    assert!(sent(&mut pair, 0) > before[0] + 500_000);
}

/// MP-157: each path has its own MTU, and looks for a larger one again ten minutes after a black
/// hole (RFC 8899 section 5.1.1).
#[test]
fn an_mtu_that_fell_grows_again_and_concerns_one_path() {
    let setup = Setup::new().transport(|transport| {
        transport.keep_alive_interval = Some(10 * SECOND);
    });
    let mut pair = Pair::connected(&two_paths(), setup);
    pair.open_all_paths();
    pair.transfer(Side::Client, 10_000_000, 10 * SECOND);
    let mtu = |pair: &mut Pair, path| pair.client().path_stats(PathId(path)).unwrap().mtu;
    let full = mtu(&mut pair, 1);
    assert!(full > 1400, "{full}");
    pair.change("first", Change::Mtu(1300));
    pair.transfer(Side::Client, 10_000_000, 20 * SECOND);
    pair.run_until(20 * SECOND, |pair| mtu(pair, 0) <= 1272)
        .unwrap();
    pair.drive(2 * SECOND);
    let small = mtu(&mut pair, 0);
    assert!((1256..=1272).contains(&small), "{small}");
    assert_eq!(mtu(&mut pair, 1), full);
    pair.change("first", Change::Mtu(1500));
    pair.drive(580 * SECOND);
    assert_eq!(mtu(&mut pair, 0), small);
    pair.drive(40 * SECOND);
    assert_eq!(mtu(&mut pair, 0), full);
    pair.transfer(Side::Client, 10_000_000, 10 * SECOND);
    pair.close(Side::Client);
}

/// RFC 9000 section 13.4 and MP-056: marks instead of losses, counted per path.
#[test]
fn congestion_marks_keep_queues_short_without_loss() {
    let plain = LinkConfig::new(20.0, 20 * MS);
    let marked = plain.clone().ecn(Backlog::time(5 * MS));
    let topology = Topology::new().path("marked", marked).path("plain", plain);
    // One answers losses, one goes by rate.
    for controller in ["olia", "coupled-bbr"] {
        let controller = mpquic_cc::by_name(controller).unwrap();
        let setup = Setup::with_policies(mpquic_sched::default(), controller.clone());
        let mut pair = Pair::connected(&topology, setup);
        pair.open_all_paths();
        pair.transfer(Side::Client, 10_000_000, 20 * SECOND);
        let stats = pair.client().path_stats(PathId(0)).unwrap();
        assert!(stats.congestion_events > 0, "{controller:?}: {stats:?}");
        let [up, _] = pair.counters("marked");
        assert!(up.ce_marked > 0, "{controller:?}");
        assert_eq!(up.dropped_queue, 0, "{controller:?}");
    }
}

/// Even with a slow stream, whose packets restart the probe timeout (RFC 9002 section 6.2.1) and
/// would fill the window only after seconds.
#[test]
fn a_steady_trickle_leaves_a_dead_path_within_two_probe_timeouts() {
    let topology = Topology::new()
        .path("fast", LinkConfig::new(50.0, 10 * MS))
        .path("slow", LinkConfig::new(50.0, 30 * MS));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.open_all_paths();
    let mut gap = Duration::ZERO;
    let (mut received, mut last) = (0, pair.now());
    for turn in 0..200 {
        if turn == 100 {
            pair.set_outage("fast", true);
        }
        let payload = vec![1; 100].into();
        pair.client().datagrams().send(payload).unwrap();
        for _ in 0..20 {
            pair.drive(MS);
            let server = pair.hosted(Side::Server).unwrap();
            let count = server.application.datagrams().len();
            if count > received {
                gap = gap.max(pair.now() - last);
                (received, last) = (count, pair.now());
            }
        }
    }
    // The RTT is 20 ms, and acknowledgements may be late by 25 ms.
    assert!(gap < 200 * MS, "{gap:?}");
    assert!(received > 190, "{received}");
}
