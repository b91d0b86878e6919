//! How bursty acknowledgements are (draft-ietf-ccwg-bbr-06 section 5.5.9).

use std::time::Instant;

/// Round trips per slot: half of the ten for which an excess is remembered.
const ROUNDS_PER_SLOT: u64 = 5;

/// The excess of acknowledgements: bytes acknowledged at once beyond those that the bandwidth
/// explains, as the maximum of the last ten round trips. The window grows by this excess, to bridge
/// the silence between bursts of acknowledgements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aggregation {
    since: Instant,
    delivered: f64,
    /// Largest excess in the current slot, and in the previous one, bytes.
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

    /// `acked` bytes were acknowledged in round trip `round`, at a `bandwidth` in bytes per second.
    /// During startup an excess is remembered for only one round trip.
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

/// The round trip of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) count: u64,
    pub(super) is_starting: bool,
    /// The window, bytes; an excess cannot be larger.
    pub(super) window: f64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::start;

    /// Bandwidth, bytes per second.
    const BANDWIDTH: f64 = 100_000.0;

    fn round(count: u64) -> Round {
        Round {
            count,
            is_starting: false,
            window: 5_000.0,
        }
    }

    /// `acked` bytes are acknowledged `ms` milliseconds after the start. Returns the excess.
    fn ack(aggregation: &mut Aggregation, ms: u64, acked: f64, round: Round) -> f64 {
        let now = start() + Duration::from_millis(ms);
        aggregation.on_ack(now, acked, BANDWIDTH, round);
        aggregation.excess()
    }

    #[test]
    fn excess_is_bytes_beyond_the_bandwidth_up_to_a_window() {
        let mut aggregation = Aggregation::new(start());
        assert_eq!(ack(&mut aggregation, 0, 1000.0, round(0)), 1000.0);
        assert_eq!(ack(&mut aggregation, 5, 1000.0, round(0)), 1500.0);
        assert_eq!(ack(&mut aggregation, 15, 500.0, round(0)), 1500.0);
        assert_eq!(ack(&mut aggregation, 20, 9000.0, round(0)), 5000.0);
    }

    #[test]
    fn excess_restarts_after_a_pause_and_once_bandwidth_explains_all_bytes() {
        let mut aggregation = Aggregation::new(start());
        ack(&mut aggregation, 0, 1000.0, round(0));
        // The bandwidth explains all bytes so far after 10 ms.
        assert_eq!(ack(&mut aggregation, 10, 1400.0, round(0)), 1400.0);
        aggregation.restart(start() + Duration::from_millis(11));
        assert_eq!(ack(&mut aggregation, 11, 1300.0, round(0)), 1400.0);
        assert_eq!(ack(&mut aggregation, 11, 1300.0, round(0)), 2600.0);
    }

    #[test]
    fn excess_is_remembered_for_five_to_ten_round_trips() {
        let mut aggregation = Aggregation::new(start());
        ack(&mut aggregation, 0, 3000.0, round(1));
        for (count, excess) in [(4, 3000.0), (5, 3000.0), (9, 3000.0), (10, 100.0)] {
            let ms = 1000 * count;
            let round = round(count);
            assert_eq!(ack(&mut aggregation, ms, 100.0, round), excess, "{count}");
        }
    }

    #[test]
    fn excess_is_remembered_for_one_round_trip_in_startup() {
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
