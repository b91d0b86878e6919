//! Parts that the benchmarks of mpquic share. `benches/` has the benchmarks, and `RESULTS.md` the
//! figures.

use mpquic_core::config::TransportOptions;

pub mod decisions;
mod pipe;
pub mod process;

pub use pipe::{Crypto, Pipe, SharedMemory};

/// Options without pacing, with the plainest scheduler, and with a controller that answers losses
/// only: no packet waits for the clock, and counts of instructions do not depend on the clock.
pub fn unpaced() -> TransportOptions {
    unpaced_with("lrf")
}

/// The same options with another scheduler.
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

/// The current time: benchmarks measure the clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock is what a benchmark is about"
)]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}
