//! What the benchmarks of mpquic share; see `benches/` for them and `RESULTS.md` for figures.

use mpquic_core::config::TransportOptions;

mod pipe;
pub mod process;

pub use pipe::{Crypto, Pipe, SharedMemory};

/// Without pacing, and with a controller that answers losses only: nothing waits for the clock, and
/// counts do not depend on it, as they would with rates.
///
/// # Panics
///
/// If there is no such controller.
pub fn unpaced() -> TransportOptions {
    let controller = mpquic_cc::by_name("olia").expect("a built-in controller");
    let mut transport = TransportOptions::new(mpquic_sched::default(), controller);
    transport.pacing = false;
    transport
}

/// Now: the clock is what a benchmark is about.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock is what a benchmark is about"
)]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}
