//! Every scheduler, with real connections over simulated paths: nothing hangs, whatever happens to
//! the paths, and the receiver checks every byte.

use std::time::Duration;

use mpquic_sched::{by_name, list, published, reinjections};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn names() -> Vec<String> {
    let policies: Vec<_> = reinjections().iter().map(|info| info.name).collect();
    let all = list().iter().chain(published());
    let mut names: Vec<_> = all.map(|info| info.name.to_string()).collect();
    for inner in ["lrf", "blest", "pstream", "msab", "dems"] {
        names.push(format!("{inner}+{}", policies.join("+")));
    }
    names
}

fn setup(name: &str) -> Setup {
    let scheduler = by_name(name).expect("a listed name");
    Setup::new().transport(|transport| transport.scheduler = scheduler.clone())
}

fn topology() -> Topology {
    Topology::new()
        .path("fast", LinkConfig::new(20.0, 10 * MS))
        .path("slow", LinkConfig::new(8.0, 60 * MS).loss(0.005))
        .path("slower", LinkConfig::new(4.0, 120 * MS))
}

#[test]
fn streams_of_all_sizes_arrive() {
    for name in names() {
        let mut pair = Pair::connected(&topology(), setup(&name));
        pair.open_all_paths();
        for size in [0, 1, 1_000, 30_000, 1_500_000] {
            pair.send(Side::Server, size);
            pair.send(Side::Client, size / 2);
        }
        let took = pair.run_transfers(30 * SECOND);
        let took = took.unwrap_or_else(|_| panic!("{name}: {}", pair.progress(Side::Server)));
        // The fastest path alone needs 0.6 seconds and slow start.
        assert!(took < 2 * SECOND, "{name} took {took:?}");
    }
}

#[test]
fn the_best_path_may_fail() {
    for name in names() {
        let mut pair = Pair::connected(&topology(), setup(&name));
        pair.open_all_paths();
        pair.send(Side::Server, 1_000_000);
        pair.send(Side::Server, 20_000);
        pair.drive(200 * MS);
        pair.set_outage("fast", true);
        let took = pair.run_transfers(60 * SECOND);
        let took = took.unwrap_or_else(|_| panic!("{name}: {}", pair.progress(Side::Server)));
        assert!(took < 25 * SECOND, "{name} took {took:?}");
    }
}

#[test]
fn flow_control_may_be_tight() {
    for name in names() {
        let setup = setup(&name).transport(|transport| {
            transport.initial_stream_receive_window = 40_000;
            transport.initial_receive_window = 64_000;
            transport.max_receive_window = 64_000;
        });
        let mut pair = Pair::connected(&topology(), setup);
        pair.open_all_paths();
        for _ in 0..3 {
            pair.send(Side::Server, 300_000);
        }
        let took = pair.run_transfers(60 * SECOND);
        let took = took.unwrap_or_else(|_| panic!("{name}: {}", pair.progress(Side::Server)));
        assert!(took < 8 * SECOND, "{name} took {took:?}");
    }
}

/// Bytes that the links of all paths carried from the server for one small transfer.
fn carried(name: &str) -> Vec<u64> {
    let mut pair = Pair::connected(&topology(), setup(name));
    pair.open_all_paths();
    pair.drive(2 * SECOND);
    let bytes =
        |pair: &Pair| ["fast", "slow", "slower"].map(|path| pair.counters(path)[1].bytes_out);
    let before = bytes(&pair);
    pair.transfer(Side::Server, 8_000, 5 * SECOND);
    pair.drive(2 * SECOND);
    bytes(&pair)
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

#[test]
fn redundancy_puts_copies_on_other_paths() {
    assert!(carried("lrf")[1..].iter().all(|bytes| *bytes < 2_000));
    for name in ["redundant", "nine-tails"] {
        let bytes = carried(name);
        assert!(bytes.iter().all(|bytes| *bytes > 8_000), "{name} {bytes:?}");
    }
    // A small budget pays for a small object: two paths carry copies of some of it at most.
    let bytes = carried("auto");
    assert!(bytes[1] + bytes[2] < 16_000, "auto {bytes:?}");
    // Only one other path gets a copy.
    let bytes = carried("lrf+after-schedule");
    assert!(bytes[1] > 8_000 && bytes[2] < 2_000, "{bytes:?}");
}
