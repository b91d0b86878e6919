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
use crate::testing::{Error, Network, Pair, TestResult};

/// Compares a record with its file. `lines` are its runs. Elsewhere, exponentials may differ in their last bit:
/// they are those of the system's library.
fn compare(name: &str, lines: &[u64]) -> TestResult {
    let is_here = cfg!(all(
        target_arch = "x86_64",
        target_os = "linux",
        target_env = "gnu"
    ));
    if !is_here {
        return Ok(());
    }
    let mut now =
        String::from("Hashes of all that sockets were asked for and applications were told.\n");
    for (seed, hash) in lines.iter().enumerate() {
        let _ = writeln!(now, "{seed}: {hash:016x}");
    }
    let file = format!("{}/src/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    Ok(record::compare(file, "ACCEPT_DRIVER", &now)?)
}

/// The hash of a run that uses this network.
async fn hash(network: Network, run: impl Future<Output = TestResult>) -> Result<u64, Error> {
    timeout(faults::LIMIT, run).await??;
    Ok(network.record())
}

#[tokio::test(start_paused = true)]
async fn runs_with_faults_are_those_recorded() -> TestResult {
    let mut lines = Vec::new();
    for seed in 0..40 {
        let network = Network::recorded();
        let run = faults::run(seed, |paths| Pair::recorded(&network, paths));
        lines.push(hash(network.clone(), run).await?);
    }
    compare("recorded_faults", &lines)
}

#[tokio::test(start_paused = true)]
async fn runs_with_calls_are_those_recorded() -> TestResult {
    let mut lines = Vec::new();
    for seed in 0..40 {
        let network = Network::recorded();
        let run = calls::run(seed, |paths| Pair::recorded(&network, paths));
        lines.push(hash(network.clone(), run).await?);
    }
    compare("recorded_calls", &lines)
}
