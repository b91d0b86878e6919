//! Spreads packets over the round trip (RFC 9002 section 7.7).

use std::time::{Duration, Instant};

/// Smallest capacity of the bucket, datagrams: an initial window.
const MIN_BURST: u64 = 10;
/// Largest capacity of the bucket, datagrams.
const MAX_BURST: u64 = 256;
/// The bucket holds the bytes of this time at the pacing rate, because timers may fire this late.
const BURST_TIME: Duration = Duration::from_millis(2);
/// An empty bucket waits for the bytes of this time at the pacing rate, so that one timer serves a
/// batch of datagrams.
const BATCH_TIME: Duration = Duration::from_millis(1);
/// The most datagrams in a batch.
const MAX_BATCH: u64 = 64;

/// A token bucket, filled at the pacing rate.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    /// Bytes that may leave now.
    tokens: u64,
    /// The time up to which tokens were added.
    filled: Instant,
}

impl Pacer {
    /// A full bucket.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            tokens: u64::MAX,
            filled: now,
        }
    }

    /// Bytes that may leave as one train now (at least one `mtu`), or when to ask again. `rate` is
    /// in bytes per second, see [`Recovery::pacing_rate`](super::Recovery::pacing_rate). With
    /// `Some(burst)`, the rate is for the next `burst` bytes only, and the bucket holds no more.
    ///
    /// A train has at most the bytes of [`BATCH_TIME`], or [`MIN_BURST`] datagrams if these have
    /// more bytes. Further trains may follow at once. The kernel's token buckets hold some 15 kB by
    /// default and cut a longer train into datagrams, each of which wakes the receiver.
    pub(crate) fn available(
        &mut self,
        now: Instant,
        rate: u64,
        burst: Option<u64>,
        mtu: u16,
    ) -> Result<u64, Instant> {
        let rate = rate.max(1);
        let mtu = u64::from(mtu.max(1));
        let mut capacity = bytes_in(BURST_TIME, rate).clamp(MIN_BURST * mtu, MAX_BURST * mtu);
        if let Some(burst) = burst {
            // Room for whole datagrams, so that no last datagram waits for a timer alone.
            capacity = capacity.min(burst.max(1).next_multiple_of(mtu));
        }
        let elapsed = now.saturating_duration_since(self.filled);
        let earned = bytes_in(elapsed, rate);
        if self.tokens.saturating_add(earned) >= capacity {
            self.tokens = capacity;
            self.filled = now;
        } else if earned > 0 {
            self.tokens += earned;
            // The next call counts the rest of the time, which makes a fraction of a byte.
            self.filled += time_for(earned, rate).min(elapsed);
        }
        let batch = bytes_in(BATCH_TIME, rate).clamp(mtu, MAX_BATCH * mtu);
        if self.tokens >= mtu {
            let train = batch.max(MIN_BURST * mtu);
            return Ok(self.tokens.min(train));
        }
        let batch = batch.min(capacity);
        // One nanosecond more, because `time_for` rounds down.
        let wait = time_for(batch - self.tokens, rate) + Duration::from_nanos(1);
        Err(self.filled + wait)
    }

    /// A packet that counts as in flight was sent.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(bytes);
    }
}

/// The bytes of `time` at `rate` bytes per second, rounded down.
fn bytes_in(time: Duration, rate: u64) -> u64 {
    let bytes = time.as_nanos() * u128::from(rate) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The time for `bytes` at `rate` bytes per second, rounded down.
fn time_for(bytes: u64, rate: u64) -> Duration {
    // One datagram at one byte per second takes less than a day; larger values are cut off there.
    const LONGEST: u128 = 86_400 * 1_000_000_000;
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(nanos.min(LONGEST) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::testing::start;

    const MTU: u16 = 1000;

    /// Sends at each allowed time for `seconds`, with timers late by `lateness`. Returns the sent
    /// bytes and the number of waits.
    fn run(rate: u64, seconds: u64, lateness: Duration) -> (u64, u32) {
        let start = start();
        let mut pacer = Pacer::new(start);
        let (mut now, mut sent, mut waits) = (start, 0, 0);
        while now < start + Duration::from_secs(seconds) {
            match pacer.available(now, rate, None, MTU) {
                Ok(budget) => {
                    let bytes = budget.min(64 * u64::from(MTU));
                    pacer.on_sent(bytes);
                    sent += bytes;
                }
                Err(at) => {
                    assert!(at > now);
                    now = at + lateness;
                    waits += 1;
                }
            }
        }
        (sent, waits)
    }

    #[test]
    fn sender_keeps_the_rate_also_with_late_timers() {
        for rate in [1_000, 125_000, 12_500_000, 125_000_000, 1_250_000_000] {
            for lateness in [Duration::ZERO, Duration::from_micros(900)] {
                let (sent, waits) = run(rate, 10, lateness);
                // The rate, and one burst at the start; the last batch may fall beyond the end.
                let burst = (rate / 500).clamp(10_000, 256_000);
                let expected = rate * 10;
                if rate <= 125_000_000 {
                    assert!(sent + 2000 >= expected, "{rate}: {sent} is too little");
                }
                assert!(sent <= expected + burst, "{rate}: {sent} is too much");
                // At most one wait per millisecond, per datagram or per 64 datagrams.
                let batch = (rate / 1000).clamp(1000, 64_000);
                assert!(
                    u64::from(waits) <= expected / batch + 1,
                    "{rate}: {waits} waits"
                );
            }
        }
    }

    #[test]
    fn bursts_are_bounded_after_idling() {
        let start = start();
        let mut pacer = Pacer::new(start);
        assert_eq!(pacer.available(start, 125_000, None, MTU), Ok(10_000));
        let later = start + Duration::from_secs(3600);
        assert_eq!(pacer.available(later, 125_000, None, MTU), Ok(10_000));
        assert_eq!(pacer.available(later, 125_000_000, None, MTU), Ok(10_000));
        let later = later + Duration::from_secs(1);
        assert_eq!(burst(&mut pacer.clone(), later, 50_000_000), 100_000);
        assert_eq!(pacer.available(later, 50_000_000, None, MTU), Ok(50_000));
        assert_eq!(burst(&mut pacer.clone(), later, u64::MAX), 100_000);
        let later = later + Duration::from_nanos(1);
        assert_eq!(burst(&mut pacer, later, u64::MAX), 256_000);
    }

    /// Sends all trains that may leave at this time. Returns their bytes.
    fn burst(pacer: &mut Pacer, now: Instant, rate: u64) -> u64 {
        let trains = std::iter::from_fn(|| {
            let train = pacer.available(now, rate, None, MTU).ok()?;
            pacer.on_sent(train);
            Some(train)
        });
        trains.sum()
    }

    #[test]
    fn trains_hold_ten_datagrams_or_a_millisecond() {
        let train = |rate| Pacer::new(start()).available(start(), rate, None, MTU);
        assert_eq!(train(1000), Ok(10_000));
        assert_eq!(train(10_000_000), Ok(10_000));
        assert_eq!(train(30_000_000), Ok(30_000));
        assert_eq!(train(u64::MAX), Ok(64_000));
    }

    #[test]
    fn no_more_than_a_burst_leaves_at_its_rate() {
        let start = start();
        let mut pacer = Pacer::new(start);
        let later = start + Duration::from_secs(1);
        // The burst is rounded up to whole datagrams, however long the pause was.
        assert_eq!(
            pacer.available(later, 1 << 40, Some(14_001), MTU),
            Ok(15_000)
        );
        pacer.on_sent(14_000);
        assert_eq!(pacer.available(later, 1 << 40, Some(1), MTU), Ok(1000));
        pacer.on_sent(1000);
        // No other credit has accumulated.
        assert_eq!(
            pacer.available(later, 1_000_000, None, MTU),
            Err(later + Duration::from_millis(1) + Duration::from_nanos(1))
        );
        // An empty bucket waits for a burst alone, not for a batch.
        let wait = pacer.available(later, 128_000_000, Some(8000), MTU);
        let at = wait.unwrap_err();
        assert!(at - later < Duration::from_micros(63), "{:?}", at - later);
        assert_eq!(pacer.available(at, 128_000_000, Some(8000), MTU), Ok(8000));
    }

    #[test]
    fn waits_for_one_packet_at_low_rates_and_a_batch_at_high_ones() {
        let start = start();
        let wait = |rate| {
            let mut pacer = Pacer::new(start);
            while let Ok(budget) = pacer.available(start, rate, None, MTU) {
                pacer.on_sent(budget);
            }
            pacer.available(start, rate, None, MTU).unwrap_err() - start
        };
        assert_eq!(wait(1000), Duration::from_secs(1) + Duration::from_nanos(1));
        let batch = Duration::from_millis(1) + Duration::from_nanos(1);
        assert_eq!(wait(10_000_000), batch);
        // The largest batch has 64 datagrams.
        assert_eq!(wait(128_000_000), batch / 2 + Duration::from_nanos(1));
    }
}
