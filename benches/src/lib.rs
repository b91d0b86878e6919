//! What the benchmarks of mpquic share; see `benches/` for them and `RESULTS.md` for figures.

use mpquic_core::config::TransportOptions;

mod pipe;
pub mod process;

pub use pipe::{Crypto, Pipe, SharedMemory};

/// The default policies without pacing, so that nothing waits for the clock.
pub fn unpaced() -> TransportOptions {
    let mut transport = TransportOptions::new(mpquic_sched::default(), mpquic_cc::default());
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
