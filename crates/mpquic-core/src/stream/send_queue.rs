//! [`SendQueue`]: the limit on unsent stream bytes of a connection.

use std::time::{Duration, Instant};

/// The limit before the rate of the paths is known, in bytes, and the least limit that
/// acknowledgements set.
const FIRST: u64 = 64 << 10;
/// The smallest limit, in bytes.
const MIN: u64 = 16 << 10;
/// How often the limit follows the rate of the paths.
const INTERVAL: Duration = Duration::from_millis(10);
/// A starting path doubles its rate in a round trip, so the queue may have the bytes of this many
/// times the rate that acknowledgements show.
const GROWTH: f64 = 2.0;

/// Limits unsent bytes to the bytes that the paths send in a time.
///
/// The rate of the paths is that of their controllers. A starting controller allows more in each
/// round trip until the first loss, several times the rate of a slow link. So the limit also stays
/// within twice the rate of acknowledgements.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// The time in which the paths send the bytes.
    time: Duration,
    limit: u64,
    /// When to look at the rate of the paths again.
    due: Instant,
    acked: Acked,
}

/// The rate of acknowledged bytes, measured over one round trip after the other.
#[derive(Debug)]
struct Acked {
    /// Start of the measurement.
    start: Instant,
    /// Bytes since the start.
    bytes: u64,
    /// Bytes per second of the last two measurements.
    rates: [f64; 2],
}

impl SendQueue {
    /// A queue of the bytes of this time.
    pub(super) fn new(time: Duration, now: Instant) -> Self {
        Self {
            time,
            limit: FIRST,
            due: now,
            acked: Acked {
                start: now,
                bytes: 0,
                rates: [0.0; 2],
            },
        }
    }

    /// The limit, in bytes.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Stream bytes were acknowledged; true if the limit has grown.
    pub(super) fn on_acked(
        &mut self,
        bytes: u64,
        now: Instant,
        (largest_rtt, rate): (impl Fn() -> Duration, impl Fn() -> u64),
    ) -> bool {
        self.acked.bytes += bytes;
        if now < self.due {
            return false;
        }
        self.due = now + INTERVAL;
        let largest_rtt = largest_rtt();
        self.acked.measure(now, largest_rtt);
        self.adapt(rate(), largest_rtt)
    }

    /// Follows the rate of the paths in bytes per second; true if the limit has grown. A path with
    /// a longer delay carries bytes that stand further behind in the queue, so the queue is longer
    /// by the longest round trip.
    fn adapt(&mut self, rate: u64, largest_rtt: Duration) -> bool {
        let seconds = (self.time + largest_rtt).as_secs_f64();
        let of_paths = (rate as f64 * seconds) as u64;
        let of_acked = (GROWTH * self.acked.rate() * seconds) as u64;
        let limit = of_paths.min(of_acked.max(FIRST)).max(MIN);
        let has_grown = limit > self.limit;
        self.limit = limit;
        has_grown
    }
}

impl Acked {
    /// Ends a measurement after a round trip.
    fn measure(&mut self, now: Instant, round_trip: Duration) {
        let elapsed = now.saturating_duration_since(self.start);
        if elapsed < round_trip.max(INTERVAL) {
            return;
        }
        self.rates = [self.bytes as f64 / elapsed.as_secs_f64(), self.rates[0]];
        self.start = now;
        self.bytes = 0;
    }

    /// The larger rate of the last two measurements, in bytes per second: acknowledgements of one
    /// round trip may be late.
    fn rate(&self) -> f64 {
        self.rates[0].max(self.rates[1])
    }
}
