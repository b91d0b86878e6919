//! Spreads packets over the round trip (RFC 9002 section 7.7).

use std::time::{Duration, Instant};

/// Smallest capacity of the bucket, datagrams: an initial window.
const MIN_BURST: u64 = 10;
/// Largest capacity of the bucket, datagrams.
const MAX_BURST: u64 = 256;
/// The bucket holds the bytes of this time at the pacing rate, because timers may fire this late.
const BURST_TIME: Duration = Duration::from_millis(2);
/// Without a send quantum of the controller, an empty bucket waits for the bytes of this time at the
/// pacing rate, so that one timer serves a batch of datagrams.
const BATCH_TIME: Duration = Duration::from_millis(1);
/// The most datagrams in a batch.
const MAX_BATCH: u64 = 64;

/// How a path is paced now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Bytes per second, see [`Recovery::pacing_rate`](super::Recovery::pacing_rate).
    pub(crate) rate: u64,
    /// The rate is for these next bytes only, and the bucket holds no more.
    pub(crate) burst: Option<u64>,
    /// The controller's send quantum, bytes.
    pub(crate) quantum: Option<u64>,
    /// Size of the largest datagram.
    pub(crate) mtu: u16,
}

impl Pace {
    /// Bytes for which an empty bucket waits.
    fn batch(&self) -> u64 {
        let mtu = u64::from(self.mtu.max(1));
        let batch = self
            .quantum
            .unwrap_or_else(|| bytes_in(BATCH_TIME, self.rate));
        batch.clamp(mtu, MAX_BATCH * mtu)
    }

    /// Bytes that the bucket holds at most: those of a late timer, above a batch.
    fn capacity(&self) -> u64 {
        let mtu = u64::from(self.mtu.max(1));
        let late = bytes_in(BURST_TIME - BATCH_TIME, self.rate);
        let capacity = self.batch().saturating_add(late);
        let capacity = capacity.clamp(MIN_BURST * mtu, MAX_BURST * mtu);
        match self.burst {
            // Room for whole datagrams, so that no last datagram waits for a timer alone.
            Some(burst) => capacity.min(burst.max(1).next_multiple_of(mtu)),
            None => capacity,
        }
    }
}

/// A token bucket, filled at the pacing rate.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    /// Bytes that may leave now.
    tokens: u64,
    /// The time up to which tokens were added.
    filled: Instant,
    /// The bucket was emptied, and does not hold a batch again yet. Acknowledgements that arrive
    /// meanwhile do not cut a quantum of the controller into pieces.
    is_filling: bool,
}

impl Pacer {
    /// A full bucket.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            tokens: u64::MAX,
            filled: now,
            is_filling: false,
        }
    }

    /// Bytes that may leave as one train now (at least one `mtu`), or when to ask again.
    ///
    /// A train has at most the bytes of [`BATCH_TIME`], or [`MIN_BURST`] datagrams if these have
    /// more bytes. Further trains may follow at once. The kernel's token buckets hold some 15 kB by
    /// default and cut a longer train into datagrams, each of which wakes the receiver.
    pub(crate) fn available(&mut self, now: Instant, pace: Pace) -> Result<u64, Instant> {
        let pace = Pace {
            rate: pace.rate.max(1),
            ..pace
        };
        let (rate, mtu) = (pace.rate, u64::from(pace.mtu.max(1)));
        let capacity = pace.capacity();
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
        let batch = pace.batch().min(capacity);
        let waits = self.is_filling && pace.quantum.is_some();
        let enough = if waits { batch } else { mtu };
        self.is_filling = self.tokens < enough;
        if !self.is_filling {
            let train = bytes_in(BATCH_TIME, rate).clamp(MIN_BURST * mtu, MAX_BATCH * mtu);
            return Ok(self.tokens.min(train));
        }
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

    fn pace(rate: u64) -> Pace {
        Pace {
            rate,
            burst: None,
            quantum: None,
            mtu: MTU,
        }
    }

    fn limited(rate: u64, burst: u64) -> Pace {
        Pace {
            burst: Some(burst),
            ..pace(rate)
        }
    }

    /// Sends at each allowed time for `seconds`, with timers late by `lateness`. Returns the sent
    /// bytes and the number of waits.
    fn run(rate: u64, seconds: u64, lateness: Duration) -> (u64, u32) {
        let start = start();
        let mut pacer = Pacer::new(start);
        let (mut now, mut sent, mut waits) = (start, 0, 0);
        while now < start + Duration::from_secs(seconds) {
            match pacer.available(now, pace(rate)) {
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
        assert_eq!(pacer.available(start, pace(125_000)), Ok(10_000));
        let later = start + Duration::from_secs(3600);
        assert_eq!(pacer.available(later, pace(125_000)), Ok(10_000));
        assert_eq!(pacer.available(later, pace(125_000_000)), Ok(10_000));
        let later = later + Duration::from_secs(1);
        assert_eq!(burst(&mut pacer.clone(), later, 50_000_000), 100_000);
        assert_eq!(pacer.available(later, pace(50_000_000)), Ok(50_000));
        assert_eq!(burst(&mut pacer.clone(), later, u64::MAX), 100_000);
        let later = later + Duration::from_nanos(1);
        assert_eq!(burst(&mut pacer, later, u64::MAX), 256_000);
    }

    /// Sends all trains that may leave at this time. Returns their bytes.
    fn burst(pacer: &mut Pacer, now: Instant, rate: u64) -> u64 {
        let trains = std::iter::from_fn(|| {
            let train = pacer.available(now, pace(rate)).ok()?;
            pacer.on_sent(train);
            Some(train)
        });
        trains.sum()
    }

    #[test]
    fn trains_hold_ten_datagrams_or_a_millisecond() {
        let train = |rate| Pacer::new(start()).available(start(), pace(rate));
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
        assert_eq!(pacer.available(later, limited(1 << 40, 14_001)), Ok(15_000));
        pacer.on_sent(14_000);
        assert_eq!(pacer.available(later, limited(1 << 40, 1)), Ok(1000));
        pacer.on_sent(1000);
        // No other credit has accumulated.
        assert_eq!(
            pacer.available(later, pace(1_000_000)),
            Err(later + Duration::from_millis(1) + Duration::from_nanos(1))
        );
        // An empty bucket waits for a burst alone, not for a batch.
        let wait = pacer.available(later, limited(128_000_000, 8000));
        let at = wait.unwrap_err();
        assert!(at - later < Duration::from_micros(63), "{:?}", at - later);
        assert_eq!(pacer.available(at, limited(128_000_000, 8000)), Ok(8000));
    }

    #[test]
    fn waits_for_one_packet_at_low_rates_and_a_batch_at_high_ones() {
        let start = start();
        let wait = |rate| {
            let mut pacer = Pacer::new(start);
            while let Ok(budget) = pacer.available(start, pace(rate)) {
                pacer.on_sent(budget);
            }
            pacer.available(start, pace(rate)).unwrap_err() - start
        };
        assert_eq!(wait(1000), Duration::from_secs(1) + Duration::from_nanos(1));
        let batch = Duration::from_millis(1) + Duration::from_nanos(1);
        assert_eq!(wait(10_000_000), batch);
        // The largest batch has 64 datagrams.
        assert_eq!(wait(128_000_000), batch / 2 + Duration::from_nanos(1));
    }

    #[test]
    fn bucket_waits_for_the_quantum_of_the_controller() {
        let start = start();
        let mut pacer = Pacer::new(start);
        let quantum = |quantum| Pace {
            quantum: Some(quantum),
            ..pace(2_000_000)
        };
        burst(&mut pacer, start, 2_000_000);
        let wait = |quantum_bytes| {
            let at = pacer.clone().available(start, quantum(quantum_bytes));
            at.unwrap_err() - start
        };
        let exact = |micros| Duration::from_micros(micros) + Duration::from_nanos(1);
        assert_eq!(wait(8000), exact(4000));
        // At least a datagram, and at most 64.
        assert_eq!(wait(1), exact(500));
        assert_eq!(wait(1 << 40), exact(32_000));
        // A timer that fires a millisecond late loses nothing.
        let late = start + Duration::from_millis(16);
        let mut sent = 0;
        while let Ok(train) = pacer.available(late, quantum(30_000)) {
            pacer.on_sent(train);
            sent += train;
        }
        assert_eq!(sent, 32_000);
    }

    /// Acknowledgements come in the middle of a batch; the batch still leaves as a whole.
    #[test]
    fn an_emptied_bucket_waits_for_a_whole_batch() {
        let start = start();
        let mut pacer = Pacer::new(start);
        burst(&mut pacer, start, 5_000_000);
        let quantum = Pace {
            quantum: Some(10_000),
            ..pace(5_000_000)
        };
        let at = pacer.available(start, quantum).unwrap_err();
        let early = start + Duration::from_micros(1700);
        assert_eq!(pacer.available(early, quantum), Err(at));
        // Without a quantum, each datagram may leave when its time has come.
        assert_eq!(pacer.clone().available(early, pace(5_000_000)), Ok(8500));
        assert_eq!(pacer.available(at, quantum), Ok(10_000));
        // What is left of a batch may leave at any time.
        pacer.on_sent(6000);
        assert_eq!(pacer.available(at, quantum), Ok(4000));
    }
}
