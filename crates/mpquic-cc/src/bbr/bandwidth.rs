//! The rate at which the path delivers: the recent maximum, and lower bounds for a short time
//! (draft-ietf-ccwg-bbr-06 sections 5.5.2 to 5.5.6 and 5.5.10.3).

/// The largest delivery rate of this and the last cycle of probing, bytes per second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MaxBandwidth {
    rates: [f64; 2],
    cycles: u64,
}

impl MaxBandwidth {
    /// Starts with a known rate, at cycle number `cycles`.
    pub(crate) fn starting_from(rate: f64, cycles: u64) -> Self {
        let rates = [rate, 0.0];
        Self { rates, cycles }
    }

    pub(crate) fn get(&self) -> f64 {
        let [current, previous] = self.rates;
        current.max(previous)
    }

    /// Cycles so far.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles
    }

    pub(crate) fn on_sample(&mut self, rate: f64, app_limited: bool) {
        // A rate that the application limited counts only if it is larger all the same.
        if !app_limited || rate >= self.get() {
            self.rates[0] = self.rates[0].max(rate);
        }
    }

    /// A cycle of probing ended: forgets the one before.
    pub(crate) fn advance(&mut self) {
        self.cycles += 1;
        if self.rates[0] > 0.0 {
            self.rates = [0.0, self.rates[0]];
        }
    }

    /// Advances if another, at this number of cycles, did.
    pub(crate) fn follow(&mut self, cycles: u64) {
        if cycles > self.cycles {
            self.advance();
            self.cycles = cycles;
        }
    }
}

/// Whether sending faster still increases the delivery rate (`full_bw` and related variables).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FullPipe {
    baseline: f64,
    flat_rounds: u32,
    /// The rate no longer grows (`full_bw_now`).
    pub(super) is_full: bool,
    /// The rate has once stopped growing (`full_bw_reached`).
    pub(super) was_full: bool,
}

impl FullPipe {
    /// The factor that counts as growth.
    const GROWTH: f64 = 1.25;
    /// After this many round trips without growth, the pipe is full.
    const FLAT_ROUNDS: u32 = 3;

    /// The rate has grown in the last round trip.
    pub(super) fn grows(&self) -> bool {
        self.flat_rounds == 0
    }

    /// Starts to look for the limit again, from a known rate.
    pub(super) fn restart(&mut self, baseline: f64) {
        self.baseline = baseline;
        self.flat_rounds = 0;
        self.is_full = false;
    }

    /// The rate at the end of a round trip in which the application did not limit it.
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

/// The maxima of a round trip: the delivery rate, and the bytes delivered between sending a packet
/// and its acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latest {
    /// Bytes per second.
    pub(super) bandwidth: f64,
    /// Bytes.
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
