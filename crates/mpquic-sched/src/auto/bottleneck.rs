//! The rate of a path's bottleneck, as far as a queue in front of the bottleneck shows the rate.

use std::time::{Duration, Instant};

use mpquic_core::sched::PathView;

use crate::choice::seconds;

/// The ratio of RTT to minimum RTT above which a path has a queue.
pub(super) const QUEUED: f64 = 1.5;
/// The least part of the window in use that makes a queue our own queue.
const USED: f64 = 0.25;
/// Shortest time over which the drain rate of a queue is measured.
const MEASURED: Duration = Duration::from_millis(10);

/// The delivery rate, bytes per second, if a queue proves the delivery rate to be the bottleneck's
/// rate.
pub(super) fn bottleneck(path: &PathView) -> Option<f64> {
    let round_trip = seconds(path.rtt.smoothed);
    let queued = round_trip > QUEUED * seconds(path.rtt.min);
    let rate = path.delivery_rate.filter(|rate| queued && *rate > 0)? as f64;
    // A fast path with little traffic has a low delivery rate. Its queue then holds packets of
    // other flows, or data of the peer on the return path.
    (rate * round_trip >= USED * path.window as f64).then_some(rate)
}

/// Measures how fast the queue of a path drains, because a link may have become slower after its
/// largest delivery rate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Drain {
    /// When the current measurement began, and the bytes acknowledged by then.
    since: Option<(Instant, u64)>,
    /// The last two measurements, bytes per second.
    rates: [f64; 2],
}

impl Drain {
    /// The drain rate, bytes per second, of a queue that has stood for long enough.
    pub(super) fn update(&mut self, path: &PathView, now: Instant) -> Option<f64> {
        let is_queued = seconds(path.rtt.latest) > QUEUED * seconds(path.rtt.min);
        if !is_queued || path.in_flight == 0 {
            *self = Self::default();
            return None;
        }
        let (since, acked) = *self.since.get_or_insert((now, path.bytes_acked));
        let elapsed = now.saturating_duration_since(since);
        let drained = path.bytes_acked.saturating_sub(acked);
        if drained > 0 && elapsed >= path.rtt.min.max(MEASURED) {
            let rate = drained as f64 / elapsed.as_secs_f64();
            self.rates = [rate, self.rates[0]];
            self.since = Some((now, path.bytes_acked));
        }
        let largest = self.rates[0].max(self.rates[1]);
        Some(largest).filter(|rate| *rate > 0.0)
    }
}
