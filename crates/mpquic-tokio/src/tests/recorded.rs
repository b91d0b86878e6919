//! The driver's behaviour in fixed runs, compared with `recorded_faults.txt` and
//! `recorded_calls.txt`.
//!
//! Other tests say what is right. The test here shows every change, down to a bit on the wire and a
//! nanosecond, so that a person notices a change with side effects and accepts the change on
//! purpose.
//!
//!     tools/accept driver

use std::fmt::Write as _;

use mpquic_sim::record;
use tokio::time::timeout;

use super::{calls, faults};
use crate::testing::{Network, Pair, TestResult};

/// Compares forty runs with the record in a file. On other systems exponentials may differ in their
/// last bit, because the system's library computes them.
async fn compare(name: &str, run: impl AsyncFn(u64, Network) -> TestResult) -> TestResult {
    let mut now =
        String::from("Hashes of all that sockets were asked for and applications were told.\n");
    for seed in 0..40 {
        let network = Network::recorded();
        timeout(faults::LIMIT, run(seed, network.clone())).await??;
        let _ = writeln!(now, "{seed}: {:016x}", network.record());
    }
    let is_here = cfg!(all(
        target_arch = "x86_64",
        target_os = "linux",
        target_env = "gnu"
    ));
    if !is_here {
        return Ok(());
    }
    let file = format!("{}/src/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    Ok(record::compare(file, &now)?)
}

#[tokio::test(start_paused = true)]
async fn runs_with_faults_are_those_recorded() -> TestResult {
    let run =
        async |seed, network| faults::run(seed, |paths| Pair::recorded(&network, paths)).await;
    compare("recorded_faults", run).await
}

#[tokio::test(start_paused = true)]
async fn runs_with_calls_are_those_recorded() -> TestResult {
    let run = async |seed, network| calls::run(seed, |paths| Pair::recorded(&network, paths)).await;
    compare("recorded_calls", run).await
}
