//! How bursty acknowledgements are (draft-ietf-ccwg-bbr-06 section 5.5.9).

use std::time::Instant;

/// Half of the ten round trips an excess is remembered for.
const ROUNDS_PER_SLOT: u64 = 5;

/// How many more bytes were acknowledged at once than the bandwidth explains; the maximum of the
/// last ten round trips. So many more may be in flight, to bridge the silence between bursts of
/// acknowledgements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aggregation {
    since: Instant,
    delivered: f64,
    /// The most in the current and the previous half of the time.
    slots: [f64; 2],
    slot_began: u64,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            delivered: 0.0,
            slots: [0.0; 2],
            slot_began: 0,
        }
    }

    pub(super) fn excess(&self) -> f64 {
        let [current, previous] = self.slots;
        current.max(previous)
    }

    /// The path was idle, so no acknowledgements were expected.
    pub(super) fn restart(&mut self, now: Instant) {
        self.since = now;
        self.delivered = 0.0;
    }

    /// `acked` bytes at a `bandwidth` in bytes per second, in round trip number `round`. During
    /// startup only one round trip is remembered.
    pub(super) fn on_ack(&mut self, now: Instant, acked: f64, bandwidth: f64, round: Round) {
        let interval = now.saturating_duration_since(self.since);
        let mut expected = bandwidth * interval.as_secs_f64();
        if self.delivered <= expected {
            self.restart(now);
            expected = 0.0;
        }
        self.delivered += acked;
        let length = if round.is_starting {
            1
        } else {
            ROUNDS_PER_SLOT
        };
        if round.count >= self.slot_began + length {
            let previous = if round.is_starting {
                0.0
            } else {
                self.slots[0]
            };
            self.slots = [0.0, previous];
            self.slot_began = round.count;
        }
        let excess = (self.delivered - expected).min(round.window);
        self.slots[0] = self.slots[0].max(excess);
    }
}

/// The round trip an acknowledgement belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) count: u64,
    pub(super) is_starting: bool,
    /// The window, bytes; no excess is larger.
    pub(super) window: f64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::start;

    /// Bytes per second.
    const BANDWIDTH: f64 = 100_000.0;

    fn round(count: u64) -> Round {
        Round {
            count,
            is_starting: false,
            window: 5_000.0,
        }
    }

    /// So many bytes are acknowledged after so many milliseconds.
    fn ack(aggregation: &mut Aggregation, ms: u64, acked: f64, round: Round) -> f64 {
        let now = start() + Duration::from_millis(ms);
        aggregation.on_ack(now, acked, BANDWIDTH, round);
        aggregation.excess()
    }

    #[test]
    fn what_comes_faster_than_the_bandwidth_is_in_excess_up_to_a_window() {
        let mut aggregation = Aggregation::new(start());
        assert_eq!(ack(&mut aggregation, 0, 1000.0, round(0)), 1000.0);
        assert_eq!(ack(&mut aggregation, 5, 1000.0, round(0)), 1500.0);
        assert_eq!(ack(&mut aggregation, 15, 500.0, round(0)), 1500.0);
        assert_eq!(ack(&mut aggregation, 20, 9000.0, round(0)), 5000.0);
    }

    #[test]
    fn it_is_counted_anew_once_the_bandwidth_explains_it_and_after_a_pause() {
        let mut aggregation = Aggregation::new(start());
        ack(&mut aggregation, 0, 1000.0, round(0));
        // 10 ms explain what came so far.
        assert_eq!(ack(&mut aggregation, 10, 1400.0, round(0)), 1400.0);
        aggregation.restart(start() + Duration::from_millis(11));
        assert_eq!(ack(&mut aggregation, 11, 1300.0, round(0)), 1400.0);
        assert_eq!(ack(&mut aggregation, 11, 1300.0, round(0)), 2600.0);
    }

    #[test]
    fn it_is_remembered_for_five_to_ten_round_trips() {
        let mut aggregation = Aggregation::new(start());
        ack(&mut aggregation, 0, 3000.0, round(1));
        for (count, excess) in [(4, 3000.0), (5, 3000.0), (9, 3000.0), (10, 100.0)] {
            let ms = 1000 * count;
            let round = round(count);
            assert_eq!(ack(&mut aggregation, ms, 100.0, round), excess, "{count}");
        }
    }

    #[test]
    fn at_the_start_it_is_remembered_for_a_round_trip() {
        let mut aggregation = Aggregation::new(start());
        let starting = |count| Round {
            is_starting: true,
            ..round(count)
        };
        assert_eq!(ack(&mut aggregation, 0, 3000.0, starting(0)), 3000.0);
        assert_eq!(ack(&mut aggregation, 1000, 100.0, starting(0)), 3000.0);
        assert_eq!(ack(&mut aggregation, 2000, 100.0, starting(1)), 100.0);
    }
}
