//! Faults of network, machines, processes and applications, many at a time: no byte is lost,
//! doubled or altered, each connection ends, for the right reason and in time, and no memory is
//! left.
//!
//! Everything is drawn from a seed. `FAULTS=50000` sets the number of seeds, half of them with TLS;
//! `SEED=n` says which is the first. By default they are few, to be quick.

mod plan;
mod run;
mod verdict;

use std::panic::{AssertUnwindSafe, catch_unwind};

use allocation_counter::measure;
use plan::Plan;
use run::Run;

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable);
    given.map_or(default, |value| value.parse().unwrap())
}

/// Runs a seed. Returns whether it came to a good end, and the bytes of memory that are left.
fn run(seed: u64, tls: bool) -> (bool, i64) {
    let mut is_complete = false;
    let info = measure(|| is_complete = Run::new(Plan::draw(seed, tls)).run());
    (is_complete, info.bytes_current)
}

/// Runs half of the seeds, and says which of them failed.
fn seeds(tls: bool) {
    let (first, count) = (number("SEED", 0), number("FAULTS", 300).div_ceil(2));
    // What is made once and kept, by the first connections of a program that carry data.
    run(0, tls);
    let mut complete = 0;
    let mut failed = Vec::new();
    for seed in first..first + count {
        match catch_unwind(AssertUnwindSafe(|| run(seed, tls))) {
            Ok((is_complete, 0)) => complete += u64::from(is_complete),
            Ok((_, bytes)) => failed.push(format!("{seed}: {bytes} bytes are left")),
            Err(_) => failed.push(format!("{seed}: {:?}", Plan::draw(seed, tls))),
        }
    }
    println!("{count} seeds, {complete} complete");
    assert!(failed.is_empty(), "{} seeds: {failed:#?}", failed.len());
    assert!(count < 100 || complete > count / 4, "faults are too bad");
}

#[test]
fn fault_runs() {
    seeds(false);
}

#[test]
fn fault_runs_with_tls() {
    seeds(true);
}

/// The network was dead, or the server stopped, during the whole handshake, until the server was
/// replaced.
#[test]
fn a_client_that_was_not_connected_goes_on_with_another_server() {
    for seed in [15478, 18126] {
        for tls in [false, true] {
            run(seed, tls);
        }
    }
}
