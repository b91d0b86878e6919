//! Packet-timed round trips (draft-ietf-ccwg-bbr-06 section 5.5.1).

use std::time::Instant;

/// Counts round trips. A round trip ends when a packet that was sent after its beginning is
/// acknowledged. The draft compares delivered bytes; sending times grow in the same order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rounds {
    began: Option<Instant>,
    /// Number of round trips so far.
    pub(super) count: u64,
    /// The current acknowledgement ended a round trip.
    pub(super) just_ended: bool,
}

impl Rounds {
    /// Begins a new round trip without counting the current one.
    pub(super) fn restart(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// An acknowledgement at `now`, whose newest packet left at `sent_at`.
    pub(super) fn on_ack(&mut self, now: Instant, sent_at: Instant) {
        self.just_ended = self.began.is_none_or(|began| sent_at >= began);
        if self.just_ended {
            self.began = Some(now);
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::start;

    #[test]
    fn a_round_ends_with_a_packet_that_left_after_it_began() {
        let mut rounds = Rounds::default();
        let at = |ms| start() + Duration::from_millis(ms);
        let mut ends = |now, sent_at| {
            rounds.on_ack(at(now), at(sent_at));
            (rounds.just_ended, rounds.count)
        };
        assert_eq!(ends(20, 0), (true, 1));
        assert_eq!(ends(21, 19), (false, 1));
        assert_eq!(ends(40, 20), (true, 2));
        rounds.restart(at(50));
        rounds.on_ack(at(60), at(49));
        assert_eq!((rounds.just_ended, rounds.count), (false, 2));
    }
}
