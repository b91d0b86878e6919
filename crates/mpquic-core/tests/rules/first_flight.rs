//! A client's first flight that leaves on several paths.

use std::time::Duration;

use mpquic_core::{PathEvent, PathId, Side, ZeroRtt};
use mpquic_sim::{AcceptPolicy, LinkConfig, Pair, Setup, Topology};

use super::harness::{MS, SECOND};

/// A pair whose client has sent its first flight everywhere, over the path `slow` first.
fn connecting(topology: &Topology, setup: Setup) -> Pair {
    let mut pair = Pair::new(topology, setup);
    pair.connect();
    pair
}

fn everywhere() -> Setup {
    let mut setup = Setup::new().tls();
    setup.starts_everywhere = true;
    setup
}

fn slow_and_fast() -> Topology {
    Topology::new()
        .path("slow", LinkConfig::new(10.0, 300 * MS))
        .path("fast", LinkConfig::new(10.0, 10 * MS))
}

/// Checks that path 0 runs between these addresses on both sides, and carries data.
fn assert_begins_at(pair: &mut Pair, path: usize) {
    let four_tuple = pair.four_tuple(path);
    for side in [Side::Client, Side::Server] {
        let first = pair.connection(side).path_stats(PathId::ZERO).unwrap();
        let seen = first.four_tuple;
        let (local, remote) = match side {
            Side::Client => (four_tuple.local, four_tuple.remote),
            Side::Server => (four_tuple.remote, four_tuple.local),
        };
        assert_eq!((seen.local, seen.remote), (local, remote), "{side:?}");
    }
    assert_eq!(pair.open_connections(Side::Server), 1);
    pair.transfer(Side::Server, 100_000, 10 * SECOND);
}

#[test]
fn path_0_begins_where_the_server_answers_first() {
    for topology in [slow_and_fast(), slow_and_fast().single_server_address()] {
        let mut pair = connecting(&topology, everywhere());
        let elapsed = pair.run_until_confirmed(10 * SECOND).unwrap();
        assert!(elapsed < 50 * MS, "{elapsed:?}");
        let moved = PathEvent::Migrated(PathId::ZERO, pair.four_tuple(1));
        assert!(pair.has_path_event(Side::Client, &moved));
        assert_begins_at(&mut pair, 1);
        let rtt = pair.client().path_stats(PathId::ZERO).unwrap().rtt;
        assert!(rtt < 50 * MS, "{rtt:?}");
        // The slow copies arrive now, and change nothing.
        pair.drive(SECOND);
        assert_begins_at(&mut pair, 1);
    }
}

#[test]
fn path_0_stays_where_it_is_if_the_first_answer_comes_there() {
    let topology = Topology::new()
        .path("fast", LinkConfig::new(10.0, 10 * MS))
        .path("slow", LinkConfig::new(10.0, 300 * MS));
    let mut pair = connecting(&topology, everywhere());
    pair.run_until_confirmed(10 * SECOND).unwrap();
    let moved = PathEvent::Migrated(PathId::ZERO, pair.four_tuple(0));
    assert!(!pair.has_path_event(Side::Client, &moved));
    assert_begins_at(&mut pair, 0);
}

#[test]
fn a_dead_first_link_costs_nothing() {
    let dead = LinkConfig::new(10.0, 10 * MS).outage(Duration::ZERO, 3600 * SECOND);
    let topology = Topology::new()
        .path("dead", dead)
        .path("alive", LinkConfig::new(10.0, 10 * MS));
    let mut pair = connecting(&topology, everywhere());
    let elapsed = pair.run_until_confirmed(10 * SECOND).unwrap();
    assert!(elapsed < 50 * MS, "{elapsed:?}");
    assert_begins_at(&mut pair, 1);
}

/// The token of a Retry packet holds for the address to which the packet went.
#[test]
fn path_0_begins_where_the_first_retry_arrives() {
    let mut setup = everywhere();
    setup.accept = AcceptPolicy::Retry;
    let mut pair = connecting(&slow_and_fast(), setup);
    let elapsed = pair.run_until_confirmed(10 * SECOND).unwrap();
    assert!(elapsed < 80 * MS, "{elapsed:?}");
    assert_begins_at(&mut pair, 1);
}

/// Each repetition of the first flight goes everywhere too, until the server answers.
#[test]
fn losses_delay_the_first_answer_and_do_no_harm() {
    for seed in 1..=40 {
        let lossy = |delay| LinkConfig::new(10.0, delay).loss(0.4);
        let topology = Topology::new()
            .path("slow", lossy(100 * MS))
            .path("fast", lossy(10 * MS));
        let mut pair = connecting(&topology, everywhere().seed(seed));
        let confirmed = pair.run_until_confirmed(20 * SECOND);
        assert!(confirmed.is_ok(), "seed {seed}");
        assert_eq!(pair.open_connections(Side::Server), 1, "seed {seed}");
        pair.transfer(Side::Server, 10_000, 60 * SECOND);
    }
}

/// Data of a first flight must not reach two servers.
#[test]
fn no_copy_leaves_with_early_data() {
    let mut setup = everywhere();
    setup.server.knowledge = None;
    let mut pair = connecting(&slow_and_fast(), setup);
    pair.run_until_confirmed(10 * SECOND).unwrap();
    pair.drive(SECOND);
    pair.close(Side::Client);
    pair.run_until_drained(10 * SECOND);
    let before = pair.counters("fast")[0].packets_in;
    pair.connect();
    assert_ne!(pair.client().zero_rtt(), ZeroRtt::NotOffered);
    pair.drive(5 * MS);
    assert_eq!(pair.counters("fast")[0].packets_in, before);
    pair.run_until_confirmed(10 * SECOND).unwrap();
    assert_begins_at(&mut pair, 0);
}
