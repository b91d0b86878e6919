//! What the driver does in runs that are always the same, as it was recorded in `recorded_faults.txt` and
//! `recorded_calls.txt`.
//!
//! The other tests say what is right; this one says whether anything is different, down to a bit that is
//! sent and a nanosecond: who changes one thing sees that others change with it, and accepts that on
//! purpose.
//!
//!     ACCEPT_DRIVER=1 cargo test -p mpquic-tokio --lib recorded

use std::fmt::Write as _;

use mpquic_sim::record;
use tokio::time::timeout;

use super::{calls, faults};
use crate::testing::{Network, Pair, TestResult};

/// Compares forty runs with the record in a file. Elsewhere, exponentials may differ in their last bit: they are
/// those of the system's library.
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
    Ok(record::compare(file, "ACCEPT_DRIVER", &now)?)
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
