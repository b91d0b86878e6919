//! [`AckCarrier`]: the path that carries the acknowledgements of another path.
//!
//! A sender on a long path learns sooner of losses if its acknowledgements come back over a short
//! path: with round trips of 600 ms and 50 ms, after 325 ms. RFC 10069 section 5.4 allows any path
//! and asks for a stable choice, so a change has to be worth it.

use std::time::{Duration, Instant};

use crate::ids::PathId;

/// Acknowledgements leave their own path for a path whose round trip is shorter by this factor.
const WORTH_LEAVING: u32 = 4;
/// Acknowledgements stay on the other path while its round trip is shorter by this factor. If the
/// peer does the same, the longer round trip becomes half of the long path and half of the short
/// one: a factor of 4 turns into 2.5.
const WORTH_STAYING: u32 = 2;
/// After a return, acknowledgements stay on their own path for this time: perhaps they filled or
/// silenced the other path.
const REST: Duration = Duration::from_secs(10);

/// Most acknowledgements per round trip of the other path. More would fill a thin link, and the
/// peer's longer round trip needs no more.
const PER_ROUND_TRIP: u32 = 8;

/// The choice of a path for the acknowledgements of one path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AckCarrier {
    /// Another path, or `None` for the path itself.
    path: Option<PathId>,
    /// No other path is chosen before this time.
    rests_until: Option<Instant>,
    /// Earliest time of the next acknowledgement on another path.
    next: Option<Instant>,
}

impl AckCarrier {
    /// The path that carries the acknowledgements; `None` for their own path.
    pub(super) fn path(&self) -> Option<PathId> {
        self.path
    }

    /// Chooses again: `own` is the round trip of the path itself, `others` are the round trips of
    /// paths that could carry its acknowledgements.
    pub(super) fn review(&mut self, now: Instant, own: Duration, others: &[(PathId, Duration)]) {
        let kept = others
            .iter()
            .find(|(id, rtt)| self.path == Some(*id) && *rtt * WORTH_STAYING <= own);
        if kept.is_some() {
            return;
        }
        if self.path.take().is_some() {
            self.rests_until = Some(now + REST);
        }
        if self.rests_until.is_none_or(|until| until <= now) {
            let fast = others.iter().filter(|(_, rtt)| *rtt * WORTH_LEAVING <= own);
            self.path = fast.min_by_key(|(_, rtt)| *rtt).map(|(id, _)| *id);
        }
    }

    /// An acknowledgement is due on the other path, with this round trip. Returns the earliest time
    /// for the acknowledgement, or `None` for now.
    pub(super) fn leave(&mut self, now: Instant, round_trip: Duration) -> Option<Instant> {
        let wait = self.next.filter(|next| *next > now);
        if wait.is_none() {
            self.next = Some(now + round_trip / PER_ROUND_TRIP);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::testing::{ms, start};

    const A: PathId = PathId(1);
    const B: PathId = PathId(2);

    fn reviewed(
        carrier: &mut AckCarrier,
        at: u64,
        own: u64,
        others: &[(PathId, u64)],
    ) -> Option<PathId> {
        let others: Vec<_> = others.iter().map(|(id, rtt)| (*id, ms(*rtt))).collect();
        carrier.review(start() + ms(at), ms(own), &others);
        carrier.path()
    }

    #[test]
    fn the_shortest_path_is_chosen_if_a_quarter_as_long() {
        let mut carrier = AckCarrier::default();
        assert_eq!(reviewed(&mut carrier, 0, 600, &[(A, 151)]), None);
        assert_eq!(
            reviewed(&mut carrier, 1, 600, &[(A, 150), (B, 20)]),
            Some(B)
        );
    }

    #[test]
    fn a_carrier_is_kept_while_half_as_long() {
        let mut carrier = AckCarrier::default();
        assert_eq!(reviewed(&mut carrier, 0, 600, &[(A, 150)]), Some(A));
        // Path B is shorter by now, but a stable choice is worth more.
        assert_eq!(
            reviewed(&mut carrier, 1, 375, &[(A, 150), (B, 20)]),
            Some(A)
        );
        assert_eq!(reviewed(&mut carrier, 2, 375, &[(A, 188)]), None);
    }

    #[test]
    fn eight_acknowledgements_leave_in_a_round_trip() {
        let mut carrier = AckCarrier::default();
        let mut left = 0;
        for at in 0..81 {
            let now = start() + ms(at);
            match carrier.leave(now, ms(80)) {
                None => left += 1,
                Some(until) => assert!(until > now && until <= now + ms(10)),
            }
        }
        assert_eq!(left, 9, "at 0, 10 and so on to 80 ms");
    }

    #[test]
    fn no_carrier_is_chosen_for_ten_seconds_after_a_return() {
        let mut carrier = AckCarrier::default();
        assert_eq!(reviewed(&mut carrier, 0, 600, &[(A, 50)]), Some(A));
        // Path A is silent or gone.
        assert_eq!(reviewed(&mut carrier, 1000, 600, &[]), None);
        assert_eq!(reviewed(&mut carrier, 10_999, 600, &[(A, 50)]), None);
        assert_eq!(reviewed(&mut carrier, 11_000, 600, &[(A, 50)]), Some(A));
    }
}
