//! What the benchmarks of mpquic share; see `benches/` for them and `RESULTS.md` for figures.

use mpquic_core::config::TransportOptions;

mod pipe;
pub mod process;

pub use pipe::{Crypto, Pipe, SharedMemory};

/// Without pacing, with the plainest scheduler, and with a controller that answers losses only:
/// nothing waits for the clock, and counts do not depend on it, as they would with rates.
pub fn unpaced() -> TransportOptions {
    unpaced_with("lrf")
}

/// The same with another scheduler.
///
/// # Panics
///
/// If there is no such scheduler.
pub fn unpaced_with(scheduler: &str) -> TransportOptions {
    let scheduler = mpquic_sched::by_name(scheduler).expect("a built-in scheduler");
    let controller = mpquic_cc::by_name("olia").expect("a built-in controller");
    let mut transport = TransportOptions::new(scheduler, controller);
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
