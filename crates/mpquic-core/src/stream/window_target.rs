//! [`WindowTarget`]: how large windows should be.

use std::time::{Duration, Instant};

/// The shortest time to measure over, so that a measurement includes several packets even if the
/// round trip is shorter.
const MIN_INTERVAL: Duration = Duration::from_millis(2);

/// The window holds the bytes that arrive in this many round trips.
const ROUND_TRIPS: f64 = 6.0;
/// How often in a round trip the rate is measured: while a path starts, it doubles from one round
/// trip to the next.
const PARTS: u32 = 4;

/// Measures how fast stream bytes arrive, or are acknowledged, on all paths together.
///
/// A window of [`ROUND_TRIPS`] times the bytes of one round trip on the slowest path keeps all
/// paths busy. New credit takes one round trip to reach the peer. The repair of a loss takes
/// another round trip, or two after a second loss; meanwhile later bytes wait at the receiver for
/// the reader, and at the sender for their acknowledgement. The rest lets starting paths double
/// their rate meanwhile.
#[derive(Debug)]
pub(crate) struct WindowTarget {
    start: Instant,
    /// When to look at the bytes again.
    due: Instant,
    bytes: u64,
    target: u64,
}

impl WindowTarget {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            start: now,
            due: now + MIN_INTERVAL,
            bytes: 0,
            target: 0,
        }
    }

    /// The largest target so far; 0 before the first.
    pub(crate) fn target(&self) -> u64 {
        self.target
    }

    /// Stream bytes arrived or were acknowledged; returns a new target in bytes when it has grown.
    #[inline]
    pub(crate) fn on_bytes(
        &mut self,
        bytes: u64,
        now: Instant,
        largest_rtt: impl FnOnce() -> Duration,
    ) -> Option<u64> {
        self.bytes += bytes;
        if now < self.due {
            return None;
        }
        self.measure(now, largest_rtt())
    }

    fn measure(&mut self, now: Instant, round_trip: Duration) -> Option<u64> {
        self.due = self.start + round_trip / PARTS;
        if now < self.due {
            return None;
        }
        let elapsed = now.saturating_duration_since(self.start);
        let interval = round_trip.max(Duration::from_micros(500)).as_secs_f64();
        let rate = self.bytes as f64 / elapsed.as_secs_f64();
        self.start = now;
        self.due = now + MIN_INTERVAL;
        self.bytes = 0;
        let target = (ROUND_TRIPS * rate * interval) as u64;
        (target > self.target).then(|| {
            self.target = target;
            target
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_six_round_trips_of_data_and_never_shrinks() {
        let start = epoch();
        let mut window = WindowTarget::new(start);
        let rtt = || Duration::from_millis(100);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(window.on_bytes(100_000, at(20), rtt), None);
        assert_eq!(window.on_bytes(100_000, at(25), rtt), Some(4_800_000));
        assert_eq!(window.on_bytes(100, at(125), rtt), None);
        assert_eq!(window.on_bytes(4_000_000, at(225), rtt), Some(24_000_000));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "tests need some instant to start from"
    )]
    fn epoch() -> Instant {
        Instant::now()
    }
}
