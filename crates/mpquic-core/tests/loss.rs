//! Handshake, transfer over two paths, a switch of paths and the close, under loss, duplication
//! and reordering: every byte is checked by the receiver, and no state is left.

use std::time::Duration;

use mpquic_core::{PathId, TransportErrorCode};
use mpquic_sim::{AcceptPolicy, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn bad_link(rate: f64, delay: Duration) -> LinkConfig {
    LinkConfig::new(rate, delay)
        .loss(0.1)
        .duplicate(0.1)
        .reorder(0.1, 15 * MS)
        .jitter(3 * MS)
}

fn run(seed: u64) {
    let topology = Topology::new()
        .path("first", bad_link(20.0, 10 * MS))
        .path("second", bad_link(10.0, 25 * MS));
    let setup = Setup::new().seed(seed);
    // Most runs without cryptography, to be quick; the rest as on the wire.
    let setup = if seed.is_multiple_of(4) {
        setup.tls()
    } else {
        setup
    };
    let mut pair = Pair::connected(&topology, setup);
    pair.send(Side::Client, 60_000);
    pair.send(Side::Server, 60_000);
    let ids = pair.open_all_paths();
    pair.run_transfers(120 * SECOND).unwrap();

    // Leave the first path in mid transfer, from either side.
    pair.send(Side::Client, 60_000);
    pair.send(Side::Server, 60_000);
    pair.drive(30 * MS);
    let side = if seed.is_multiple_of(2) {
        Side::Client
    } else {
        Side::Server
    };
    let now = pair.now();
    pair.connection(side)
        .close_path(now, PathId::ZERO, TransportErrorCode::NO_ERROR)
        .unwrap();
    pair.run_transfers(120 * SECOND).unwrap();
    pair.run_until(120 * SECOND, |pair| {
        [Side::Client, Side::Server]
            .into_iter()
            .all(|side| pair.has_discarded(side, PathId::ZERO))
    })
    .unwrap();
    for side in [Side::Client, Side::Server] {
        let paths: Vec<_> = pair.connection(side).paths().collect();
        assert_eq!(paths, ids[1..]);
    }
    pair.run_until(120 * SECOND, |pair| {
        [Side::Client, Side::Server]
            .into_iter()
            .all(|side| pair.hosted(side).unwrap().application.is_all_acknowledged())
    })
    .unwrap();
    pair.close(!side);
    for side in [Side::Client, Side::Server] {
        assert_eq!(pair.open_connections(side), 0);
    }
    assert_eq!(pair.next_event(), None, "something is still going on");
}

/// Runs a share of the 200 seeds, so that the test harness spreads them over the cores.
fn run_seeds(share: u64) {
    for seed in (share..200).step_by(4) {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn two_hundred_seeds_first_quarter() {
    run_seeds(0);
}

#[test]
fn two_hundred_seeds_second_quarter() {
    run_seeds(1);
}

#[test]
fn two_hundred_seeds_third_quarter() {
    run_seeds(2);
}

#[test]
fn two_hundred_seeds_fourth_quarter() {
    run_seeds(3);
}

#[test]
fn bursts_of_loss_do_not_stop_a_transfer() {
    for seed in 0..10 {
        let topology = Topology::new()
            .path("a", LinkConfig::new(20.0, 10 * MS).burst_loss(0.05, 8.0))
            .path("b", LinkConfig::new(20.0, 40 * MS).burst_loss(0.05, 30.0));
        let mut pair = Pair::connected(&topology, Setup::new().seed(seed));
        pair.open_all_paths();
        pair.transfer(Side::Server, 500_000, 120 * SECOND);
        pair.close(Side::Client);
    }
}

/// Whatever a flipped bit hits, from version to tag, the packet counts as lost and no more
/// (RFC 9000 section 21.4 and RFC 9001 section 9.5: nothing unauthenticated changes state).
#[test]
fn corrupted_packets_do_no_harm() {
    for seed in 0..100 {
        let topology = Topology::new()
            .path("a", LinkConfig::new(20.0, 10 * MS).corrupt(0.1))
            .path("b", LinkConfig::new(20.0, 20 * MS).corrupt(0.1));
        let mut setup = Setup::new().tls().seed(seed);
        if seed.is_multiple_of(2) {
            setup.accept = AcceptPolicy::Retry;
        }
        let mut pair = Pair::connected(&topology, setup);
        pair.open_all_paths();
        pair.send(Side::Client, 100_000);
        pair.send(Side::Server, 100_000);
        pair.run_transfers(120 * SECOND).unwrap();
        pair.close(Side::Client);
    }
}

/// A packet that arrives twice is opened once (RFC 9000 section 12.3).
#[test]
fn duplicates_change_nothing() {
    let link = LinkConfig::new(50.0, 10 * MS);
    let run = |link: LinkConfig| {
        let topology = Topology::new().path("only", link);
        let mut pair = Pair::connected(&topology, Setup::new());
        let took = pair.transfer(Side::Server, 3_000_000, 20 * SECOND);
        let stats = pair.client().stats();
        (took, stats.packets_dropped, stats.bytes_received)
    };
    let once = run(link.clone());
    let twice = run(link.duplicate(1.0));
    assert!(twice.0 < once.0.mul_f64(1.2), "{once:?} {twice:?}");
    assert!(twice.2 > once.2 * 18 / 10);
}
