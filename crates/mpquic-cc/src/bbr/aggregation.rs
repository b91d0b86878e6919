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
