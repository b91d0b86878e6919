//! The delivery rate of a path: the recent maximum, and lower bounds for a short time
//! (draft-ietf-ccwg-bbr-06 sections 5.5.2 to 5.5.6 and 5.5.10.3).

/// Largest delivery rate of the current probing cycle and the last one, bytes per second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MaxBandwidth {
    rates: [f64; 2],
    cycles: u64,
}

impl MaxBandwidth {
    /// Starts with a known rate, in cycle number `cycles`.
    pub(crate) fn starting_from(rate: f64, cycles: u64) -> Self {
        let rates = [rate, 0.0];
        Self { rates, cycles }
    }

    pub(crate) fn get(&self) -> f64 {
        let [current, previous] = self.rates;
        current.max(previous)
    }

    /// Number of cycles so far.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles
    }

    pub(crate) fn on_sample(&mut self, rate: f64, app_limited: bool) {
        // An application-limited rate counts only if it is not below the maximum.
        if !app_limited || rate >= self.get() {
            self.rates[0] = self.rates[0].max(rate);
        }
    }

    /// A probing cycle ended: forgets the rate of the cycle before it.
    pub(crate) fn advance(&mut self) {
        self.cycles += 1;
        if self.rates[0] > 0.0 {
            self.rates = [0.0, self.rates[0]];
        }
    }

    /// Ends the cycle if another filter, in cycle number `cycles`, is ahead.
    pub(crate) fn follow(&mut self, cycles: u64) {
        if cycles > self.cycles {
            self.advance();
            self.cycles = cycles;
        }
    }
}

/// Whether a higher pacing rate still increases the delivery rate (`full_bw` and related
/// variables).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FullPipe {
    baseline: f64,
    flat_rounds: u32,
    /// The delivery rate no longer grows (`full_bw_now`).
    pub(super) is_full: bool,
    /// The delivery rate has stopped growing once (`full_bw_reached`).
    pub(super) was_full: bool,
}

impl FullPipe {
    /// Factor between two round trips that counts as growth.
    const GROWTH: f64 = 1.25;
    /// After this many round trips without growth, the pipe is full.
    const FLAT_ROUNDS: u32 = 3;

    /// The delivery rate has grown in the last round trip.
    pub(super) fn grows(&self) -> bool {
        self.flat_rounds == 0
    }

    /// Starts to look for the limit again, from a known delivery rate.
    pub(super) fn restart(&mut self, baseline: f64) {
        self.baseline = baseline;
        self.flat_rounds = 0;
        self.is_full = false;
    }

    /// Takes the delivery rate at the end of a round trip that was not application-limited.
    pub(super) fn on_round(&mut self, rate: f64) {
        if self.is_full {
            return;
        }
        if rate >= self.baseline * Self::GROWTH {
            self.restart(rate);
            return;
        }
        self.flat_rounds += 1;
        self.is_full = self.flat_rounds >= Self::FLAT_ROUNDS;
        self.was_full |= self.is_full;
    }
}

/// The maxima of a round trip.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latest {
    /// Delivery rate, bytes per second.
    pub(super) bandwidth: f64,
    /// Bytes delivered between the departure of a packet and its acknowledgement.
    pub(super) in_flight: f64,
}

impl Latest {
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            bandwidth: self.bandwidth.max(other.bandwidth),
            in_flight: self.in_flight.max(other.in_flight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_remembered_for_this_and_the_last_cycle() {
        let mut rates = MaxBandwidth::starting_from(100.0, 7);
        rates.on_sample(80.0, false);
        assert_eq!((rates.get(), rates.cycles()), (100.0, 7));
        rates.advance();
        rates.on_sample(80.0, false);
        assert_eq!((rates.get(), rates.cycles()), (100.0, 8));
        rates.advance();
        assert_eq!(rates.get(), 80.0);
        // A cycle without a rate does not displace an older rate.
        rates.advance();
        assert_eq!((rates.get(), rates.cycles()), (80.0, 10));
    }

    #[test]
    fn application_limited_rate_counts_if_not_below_the_maximum() {
        let mut rates = MaxBandwidth::starting_from(100.0, 0);
        rates.advance();
        rates.on_sample(99.0, true);
        rates.advance();
        assert_eq!(rates.get(), 100.0);
        rates.on_sample(100.0, true);
        rates.advance();
        assert_eq!(rates.get(), 100.0);
        rates.on_sample(101.0, true);
        assert_eq!(rates.get(), 101.0);
    }

    #[test]
    fn following_a_later_cycle_advances_once() {
        let mut rates = MaxBandwidth::starting_from(100.0, 3);
        rates.on_sample(50.0, false);
        rates.follow(3);
        assert_eq!((rates.rates, rates.cycles()), ([100.0, 0.0], 3));
        rates.follow(6);
        assert_eq!((rates.rates, rates.cycles()), ([0.0, 100.0], 6));
    }

    #[test]
    fn a_pipe_is_full_after_three_rounds_without_a_quarter_more() {
        let mut pipe = FullPipe::default();
        pipe.on_round(100.0);
        pipe.on_round(125.0);
        assert!(pipe.grows());
        for rate in [125.0, 156.0, 140.0] {
            assert!(!pipe.is_full && !pipe.was_full);
            pipe.on_round(rate);
            assert!(!pipe.grows());
        }
        assert!(pipe.is_full && pipe.was_full);
        pipe.on_round(1000.0);
        assert!(pipe.is_full, "until it starts to look again");
        pipe.restart(1000.0);
        assert!(!pipe.is_full && pipe.was_full && pipe.grows());
    }
}
