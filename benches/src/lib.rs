//! What the benchmarks of mpquic share; see `benches/` for them and `RESULTS.md` for figures.

mod pipe;
pub mod process;

pub use pipe::{Crypto, Pipe, SharedMemory};

/// Now: the clock is what a benchmark is about.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock is what a benchmark is about"
)]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}
