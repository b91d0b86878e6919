//! Acknowledgements of a long path that travel on a short one (RFC 10069 section 5.4).

use std::time::Duration;

use mpquic_core::{PathEvent, PathId, PathStats};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LONG: PathId = PathId(0);
const SHORT: PathId = PathId(1);

/// A satellite and a terrestrial link.
fn downloading(ack_on_fastest_path: bool, up: LinkConfig) -> Pair {
    seeded(7, ack_on_fastest_path, up)
}

fn seeded(seed: u64, ack_on_fastest_path: bool, up: LinkConfig) -> Pair {
    let setup = Setup::new().seed(seed).transport(|transport| {
        transport.ack_on_fastest_path = ack_on_fastest_path;
    });
    let topology = Topology::new()
        .path("long", LinkConfig::new(100.0, 300 * MS))
        .asymmetric_path("short", up, LinkConfig::new(20.0, 25 * MS));
    let mut pair = Pair::connected(&topology, setup);
    pair.open_all_paths();
    pair.send(Side::Server, 30_000_000);
    pair
}

fn terrestrial() -> LinkConfig {
    LinkConfig::new(20.0, 25 * MS)
}

fn stats(pair: &mut Pair, path: PathId) -> PathStats {
    pair.server().path_stats(path).unwrap()
}

fn received(pair: &Pair) -> u64 {
    let client = pair.hosted(Side::Client);
    client.map_or(0, |hosted| hosted.application.received())
}

/// Until the application has everything.
fn completion(pair: &mut Pair, limit: Duration) -> Duration {
    let begin = pair.now();
    while received(pair) < 30_000_000 {
        assert!(
            pair.now() < begin + limit && pair.step(),
            "{}",
            received(pair)
        );
    }
    pair.now() - begin
}

#[test]
fn a_sender_on_a_long_path_learns_over_the_short_one() {
    let mut pair = downloading(true, terrestrial());
    pair.drive(1500 * MS);
    let rtt = stats(&mut pair, LONG).rtt;
    assert!(rtt > 320 * MS && rtt < 400 * MS, "{rtt:?}");
    let mut pair = downloading(false, terrestrial());
    pair.drive(1500 * MS);
    let rtt = stats(&mut pair, LONG).rtt;
    assert!(rtt >= 600 * MS, "{rtt:?}");
}

#[test]
fn a_long_path_is_filled_sooner() {
    let fast = completion(&mut downloading(true, terrestrial()), 60 * SECOND);
    let slow = completion(&mut downloading(false, terrestrial()), 60 * SECOND);
    // A start with trains takes few round trips, so that shorter ones save less than they did.
    assert!(fast < slow.mul_f64(0.97), "{fast:?} {slow:?}");
}

/// The path that speaks for another one dies: that one goes on, and is never thought silent.
#[test]
fn when_the_short_path_dies_the_long_one_speaks_for_itself() {
    let mut pair = downloading(true, terrestrial());
    pair.drive(1500 * MS);
    let before = stats(&mut pair, LONG);
    assert!(before.rtt < 400 * MS);
    pair.set_outage("short", true);
    pair.drive(2 * SECOND);
    let after = stats(&mut pair, LONG);
    assert_eq!(after.packets_lost, before.packets_lost);
    assert_eq!(after.probe_timeouts, before.probe_timeouts);
    assert!(after.bytes_sent > before.bytes_sent + 5_000_000);
    assert!(after.rtt > 450 * MS, "{:?}", after.rtt);
    assert!(pair.has_path_event(Side::Server, &PathEvent::Suspect(SHORT)));
}

/// Where the short path's uplink is thin, acknowledgements of the long one do not add to what fills
/// it (most of its own are lost there already). Single runs take up to a fifth more or less than
/// others, so this is the sum of several.
#[test]
fn a_thin_uplink_is_not_filled_with_acknowledgements() {
    let total = |ack_on_fastest_path| {
        let thin = LinkConfig::new(0.1, 25 * MS);
        let (mut packets, mut took) = (0, Duration::ZERO);
        for seed in 1..=8 {
            let mut pair = seeded(seed, ack_on_fastest_path, thin.clone());
            took += completion(&mut pair, 60 * SECOND);
            packets += pair.counters("short")[0].packets_in;
        }
        (packets, took)
    };
    let (with, without) = (total(true), total(false));
    println!("{with:?} {without:?}");
    assert!(with.0 * 10 <= without.0 * 12, "{with:?} {without:?}");
    assert!(with.1 <= without.1.mul_f64(1.1), "{with:?} {without:?}");
}
