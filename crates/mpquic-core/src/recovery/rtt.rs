//! Round-trip time of one path (RFC 9002 section 5).

use std::time::{Duration, Instant};

use crate::congestion::RttSnapshot;

/// Timer granularity: the shortest time any timer is set for (RFC 9002 section 6.1.2).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// Latest, smoothed and smallest RTT, and the variation.
#[derive(Debug, Clone)]
pub(crate) struct RttEstimator {
    latest: Duration,
    smoothed: Duration,
    variance: Duration,
    min: Duration,
    samples: u64,
    first_sample: Option<Instant>,
    /// All samples so far were upper bounds.
    is_bound: bool,
}

impl RttEstimator {
    /// No sample yet: `initial` is assumed (RFC 9002 section 6.2.2).
    pub(crate) fn new(initial: Duration) -> Self {
        Self {
            latest: initial,
            smoothed: initial,
            variance: initial / 2,
            min: initial,
            samples: 0,
            first_sample: None,
            is_bound: false,
        }
    }

    /// Takes a sample that is only an upper bound, with an unknown wait in it. The first exact
    /// sample replaces everything.
    pub(crate) fn on_bound(&mut self, now: Instant, sample: Duration) {
        if self.first_sample.is_none() || self.is_bound {
            self.on_sample(now, sample, Duration::ZERO);
            self.is_bound = true;
        }
    }

    /// Takes a sample. `ack_delay` is the peer's report, already limited to its `max_ack_delay`
    /// where the limit applies.
    pub(crate) fn on_sample(&mut self, now: Instant, sample: Duration, ack_delay: Duration) {
        self.latest = sample;
        self.samples += 1;
        if self.first_sample.is_none() || std::mem::take(&mut self.is_bound) {
            // RFC 9002 section 5.3: the first sample sets everything.
            self.first_sample = Some(now);
            self.min = sample;
            self.smoothed = sample;
            self.variance = sample / 2;
            return;
        }
        self.min = self.min.min(sample);
        // RFC 9002 section 5.3: the delay is not subtracted if the result would be below min_rtt.
        let adjusted = match sample.checked_sub(ack_delay) {
            Some(adjusted) if adjusted >= self.min => adjusted,
            _ => sample,
        };
        let deviation = self.smoothed.abs_diff(adjusted);
        self.variance = (self.variance * 3 + deviation) / 4;
        self.smoothed = (self.smoothed * 7 + adjusted) / 8;
    }

    /// Restarts the minimum with the latest sample: after persistent congestion (RFC 9002 section
    /// 5.2), or when acknowledgements come over another path (MP-154).
    pub(crate) fn restart_min(&mut self) {
        self.min = self.latest;
    }

    /// The newest sample, or the assumed RTT.
    pub(crate) fn latest(&self) -> Duration {
        self.latest
    }

    /// The smoothed RTT, or the assumed RTT.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The smallest sample, or the assumed RTT.
    pub(crate) fn min(&self) -> Duration {
        self.min
    }

    /// When the first sample was taken.
    pub(crate) fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    /// The probe timeout without the peer's delay and without backoff (RFC 9002 section 6.2.1).
    pub(crate) fn pto_base(&self) -> Duration {
        self.smoothed + (self.variance * 4).max(GRANULARITY)
    }

    /// All values, for controllers and schedulers.
    pub(crate) fn snapshot(&self) -> RttSnapshot {
        RttSnapshot {
            latest: self.latest,
            smoothed: self.smoothed,
            variance: self.variance,
            min: self.min,
            samples: self.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::testing::{ms, start};

    #[test]
    fn initial_values_give_one_second() {
        // RFC 9002 section 6.2.2: 333 ms make the first timeout about 1 s, as TCP's
        let rtt = RttEstimator::new(ms(333));
        assert_eq!(rtt.pto_base(), ms(999));
        assert_eq!(rtt.snapshot().samples, 0);
    }

    #[test]
    fn follows_section_5_3() {
        let mut rtt = RttEstimator::new(ms(333));
        rtt.on_sample(start(), ms(100), ms(50));
        // The first sample sets everything; its delay does not matter.
        assert_eq!((rtt.smoothed(), rtt.variance), (ms(100), ms(50)));
        rtt.on_sample(start(), ms(180), ms(0));
        // rttvar = 3/4 * 50 + 1/4 * |100 - 180|, smoothed = 7/8 * 100 + 1/8 * 180
        assert_eq!(
            (rtt.smoothed(), rtt.variance),
            (ms(110), Duration::from_micros(57_500))
        );
        rtt.on_sample(start(), ms(160), ms(20));
        // The delay is subtracted: adjusted is 140.
        assert_eq!(rtt.smoothed(), Duration::from_micros(113_750));
        assert_eq!(rtt.variance, Duration::from_micros(50_625));
        assert_eq!((rtt.min(), rtt.latest()), (ms(100), ms(160)));
    }

    #[test]
    fn ack_delay_never_undercuts_the_minimum() {
        // RFC 9002 section 5.3: MUST NOT subtract if the result is below min_rtt
        let mut rtt = RttEstimator::new(ms(333));
        rtt.on_sample(start(), ms(100), ms(0));
        rtt.on_sample(start(), ms(108), ms(9));
        assert_eq!(rtt.smoothed(), ms(101));
        rtt.on_sample(start(), ms(60), Duration::from_secs(1 << 40));
        assert_eq!(rtt.min(), ms(60));
        rtt.on_sample(start(), ms(200), ms(0));
        rtt.restart_min();
        assert_eq!(rtt.min(), ms(200));
    }

    #[test]
    fn the_longest_initial_rtt_does_not_overflow() {
        let mut options = crate::config::TransportOptions::without_policies();
        options.initial_rtt = Duration::from_secs(3600);
        let rtt = RttEstimator::new(options.build().unwrap().initial_rtt);
        assert!(rtt.pto_base() < Duration::from_secs(4 * 3600));
    }
}
