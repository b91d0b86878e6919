//! Bytes at a rate, spread over time.

use std::time::Duration;

use tokio::time::Instant;

use crate::rate::Rate;

/// Who moved nothing for a while may move what it missed of this time at once.
const BURST: Duration = Duration::from_millis(100);
/// How long a piece should take: the finer, the smoother, but timers are no finer than a millisecond.
const PIECE_MS: u64 = 10;
/// The smallest piece that is worth the effort, bytes.
const LEAST_PIECE: usize = 1200;

/// When all that was moved would have been moved at the rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter(Instant);

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self(now)
    }

    /// Counts bytes, and tells when they may be moved.
    pub(crate) fn add(&mut self, bytes: usize, rate: Rate, now: Instant) -> Instant {
        let time = bytes as f64 / rate.bytes_per_second().max(1) as f64;
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        self.0 = self.0.max(earliest) + Duration::from_secs_f64(time);
        self.0
    }
}

/// The most bytes that should be moved at a time, for an even flow.
pub(crate) fn piece(rate: Rate) -> usize {
    let bytes = usize::try_from(rate.bytes_in(PIECE_MS)).unwrap_or(usize::MAX);
    bytes.max(LEAST_PIECE)
}
