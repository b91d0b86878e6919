//! The second transfer between the same hosts (Careful Resume, RFC 9959).

use std::time::Duration;

use mpquic_core::{PathId, PathStatus, Resumption};
use mpquic_sim::{Backlog, Change, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn received(pair: &Pair) -> u64 {
    let client = pair.hosted(Side::Client);
    client.map_or(0, |hosted| hosted.application.received())
}

/// The time from the first packet of a new connection until the client has the `bytes` it asks for
/// with its first 1-RTT packet. Further paths are opened as soon as that is possible.
fn download(pair: &mut Pair, bytes: u64) -> Duration {
    download_over(pair, 0, bytes)
}

/// The same with a handshake over one of the paths.
fn download_over(pair: &mut Pair, first: usize, bytes: u64) -> Duration {
    let begin = pair.now();
    pair.connect_over(first);
    let connected = |pair: &mut Pair| !pair.client().is_handshaking();
    pair.run_until(10 * SECOND, connected).unwrap();
    pair.ask(Side::Client, 100, bytes);
    let paths = pair.links().iter().map(|path| path.name.clone());
    let mut unopened: Vec<_> = paths.collect();
    unopened.remove(first);
    while received(pair) < bytes {
        assert!(pair.now() < begin + 60 * SECOND && pair.step());
        if let Some(name) = unopened.last()
            && pair.open_path(name, PathStatus::Available).is_ok()
        {
            unopened.pop();
        }
    }
    pair.now() - begin
}

/// What came of what the server remembered of path 0.
fn resumption(pair: &mut Pair) -> Resumption {
    let stats = pair.server().path_stats(PathId::ZERO);
    stats.unwrap().resumption
}

fn satellite() -> Topology {
    Topology::new()
        .path("long", LinkConfig::new(100.0, 300 * MS))
        .path("short", LinkConfig::new(20.0, 25 * MS))
}

/// 50 Mbit/s and 200 ms, with a queue of a round trip.
fn long() -> Topology {
    let link = LinkConfig::new(50.0, 100 * MS);
    Topology::new().path("long", link.queue(Backlog::time(200 * MS)))
}

#[test]
fn the_second_transfer_over_a_satellite_is_quicker() {
    let mut pair = Pair::new(&satellite(), Setup::new());
    let first = download(&mut pair, 30_000_000);
    assert!(!resumption(&mut pair).used);
    let second = download(&mut pair, 30_000_000);
    assert!(second < first.mul_f64(0.96), "{first:?} {second:?}");
    let resumption = resumption(&mut pair);
    assert!(resumption.used && !resumption.retreated);
    // A client that knows which way is shorter begins there.
    let third = download_over(&mut pair, 1, 30_000_000);
    println!("satellite: {first:?}, then {second:?}, over the short way {third:?}");
    // The server knows the client's other address from its token, and begins there half a second
    // earlier.
    assert!(third < second.mul_f64(0.94), "{second:?} {third:?}");
    assert!(third < 3500 * MS, "{third:?}");
}

/// The controllers that use what is remembered, with a server and a client on the long path.
fn resuming() -> impl Iterator<Item = (&'static str, Setup)> {
    let controllers = mpquic_cc::list().iter().map(|info| info.name);
    let resuming = controllers.filter(|name| *name != "wvegas");
    resuming.map(|name| {
        let controller = mpquic_cc::by_name(name).unwrap();
        (
            name,
            Setup::with_policies(mpquic_sched::default(), controller),
        )
    })
}

#[test]
fn controllers_start_quicker_on_a_path_they_know() {
    for (name, setup) in resuming() {
        let mut pair = Pair::new(&long(), setup);
        let first = download(&mut pair, 3_000_000);
        let second = download(&mut pair, 3_000_000);
        println!("{name}: {first:?}, then {second:?}");
        assert!(resumption(&mut pair).used, "{name}");
        // Trains of packets find the rate in as many round trips as it takes to confirm what is
        // remembered.
        let most = if name == "coupled-bbr" { 1.01 } else { 0.95 };
        assert!(second < first.mul_f64(most), "{name} {first:?} {second:?}");
    }
}

#[test]
fn without_a_memory_all_transfers_are_alike() {
    let setup = Setup::new().transport(|transport| transport.careful_resume = false);
    let mut pair = Pair::new(&long(), setup);
    let first = download(&mut pair, 3_000_000);
    let second = download(&mut pair, 3_000_000);
    assert_eq!(resumption(&mut pair), Resumption::default());
    assert!(second > first.mul_f64(0.9), "{first:?} {second:?}");
}

fn slow_down(pair: &mut Pair) {
    pair.change("long", Change::Rate(5.0));
    pair.change("long", Change::Queue(Backlog::time(200 * MS)));
}

/// The path is ten times slower now: half of what is remembered fills its queue and more. That
/// costs no more than a tenth of the time, and the next transfer knows better.
#[test]
fn a_path_that_became_slower_costs_little_once() {
    for (name, setup) in resuming() {
        let fresh = setup
            .clone()
            .transport(|transport| transport.careful_resume = false);
        let mut fresh = Pair::new(&long(), fresh);
        slow_down(&mut fresh);
        let expected = download(&mut fresh, 3_000_000);
        let mut pair = Pair::new(&long(), setup);
        download(&mut pair, 10_000_000);
        slow_down(&mut pair);
        let misled = download(&mut pair, 3_000_000);
        println!("{name}: 3 MB take {expected:?}, misled {misled:?}");
        let after = resumption(&mut pair);
        assert!(after.used && after.retreated, "{name}");
        assert!(
            misled < expected.mul_f64(1.1),
            "{name} {expected:?} {misled:?}"
        );
        download(&mut pair, 3_000_000);
        assert!(!resumption(&mut pair).retreated, "{name}");
    }
}

/// A route that is five times as short is another one.
#[test]
fn another_round_trip_is_another_path() {
    let mut pair = Pair::new(&long(), Setup::new());
    download(&mut pair, 3_000_000);
    pair.change("long", Change::Delay(10 * MS));
    download(&mut pair, 3_000_000);
    assert!(!resumption(&mut pair).used);
}
