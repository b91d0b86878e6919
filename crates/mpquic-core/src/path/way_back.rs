//! [`WayBack`]: the path on which the acknowledgements of another one travel.
//!
//! A sender on a long path learns sooner what became of its packets if the acknowledgements come
//! back over a short one: with round trips of 600 ms and 50 ms, after 325 ms. RFC 10069 section 5.4
//! allows any path and asks for a stable choice, so a change has to be worth it.

use std::time::{Duration, Instant};

use crate::ids::PathId;

/// Acknowledgements leave their path for one whose round trip is shorter by this factor, and
const WORTH_LEAVING: u32 = 4;
/// return once it is no longer shorter by this one. That is less than half as much, as the peer may
/// do the same, and then a round trip is half of the long path and half of the short one.
const WORTH_STAYING: u32 = 2;
/// After a return they stay at home for this long: what made the short path long or silent may be
/// the acknowledgements themselves.
const REST: Duration = Duration::from_secs(10);

/// On another path they leave at most this often in its round trip: they must not fill a thin link,
/// and their sender, whose round trip is longer, needs no more.
const PER_ROUND_TRIP: u32 = 8;

/// Where the acknowledgements of a path travel.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WayBack {
    /// Another path, or `None` for the path itself.
    over: Option<PathId>,
    rests_until: Option<Instant>,
    /// The next acknowledgement leaves on another path at this time at the earliest.
    next: Option<Instant>,
}

impl WayBack {
    /// The path that carries them, if it is not their own.
    pub(super) fn over(&self) -> Option<PathId> {
        self.over
    }

    /// Chooses again; `round_trips` are those of the path itself and of all others that could
    /// carry its acknowledgements.
    pub(super) fn review(&mut self, now: Instant, own: Duration, others: &[(PathId, Duration)]) {
        let kept = others
            .iter()
            .find(|(id, rtt)| self.over == Some(*id) && *rtt * WORTH_STAYING <= own);
        if kept.is_some() {
            return;
        }
        if self.over.take().is_some() {
            self.rests_until = Some(now + REST);
        }
        if self.rests_until.is_none_or(|until| until <= now) {
            let fast = others.iter().filter(|(_, rtt)| *rtt * WORTH_LEAVING <= own);
            self.over = fast.min_by_key(|(_, rtt)| *rtt).map(|(id, _)| *id);
        }
    }

    /// An acknowledgement is due and leaves on the other path, with this round trip, unless it has
    /// to wait, and until when.
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

    fn reviewed(way: &mut WayBack, at: u64, own: u64, others: &[(PathId, u64)]) -> Option<PathId> {
        let others: Vec<_> = others.iter().map(|(id, rtt)| (*id, ms(*rtt))).collect();
        way.review(start() + ms(at), ms(own), &others);
        way.over()
    }

    #[test]
    fn a_path_a_quarter_as_long_is_taken_and_the_shortest_of_several() {
        let mut way = WayBack::default();
        assert_eq!(reviewed(&mut way, 0, 600, &[(A, 151)]), None);
        assert_eq!(reviewed(&mut way, 1, 600, &[(A, 150), (B, 20)]), Some(B));
    }

    #[test]
    fn it_is_kept_as_long_as_it_is_half_as_long() {
        let mut way = WayBack::default();
        assert_eq!(reviewed(&mut way, 0, 600, &[(A, 150)]), Some(A));
        // Another one is better by now, but a stable choice is worth more.
        assert_eq!(reviewed(&mut way, 1, 375, &[(A, 150), (B, 20)]), Some(A));
        assert_eq!(reviewed(&mut way, 2, 375, &[(A, 188)]), None);
    }

    #[test]
    fn eight_leave_in_a_round_trip() {
        let mut way = WayBack::default();
        let mut left = 0;
        for at in 0..81 {
            let now = start() + ms(at);
            match way.leave(now, ms(80)) {
                None => left += 1,
                Some(until) => assert!(until > now && until <= now + ms(10)),
            }
        }
        assert_eq!(left, 9, "at 0, 10 and so on to 80 ms");
    }

    #[test]
    fn after_a_return_they_stay_on_their_own_path_for_a_while() {
        let mut way = WayBack::default();
        assert_eq!(reviewed(&mut way, 0, 600, &[(A, 50)]), Some(A));
        // It is silent or gone.
        assert_eq!(reviewed(&mut way, 1000, 600, &[]), None);
        assert_eq!(reviewed(&mut way, 10_999, 600, &[(A, 50)]), None);
        assert_eq!(reviewed(&mut way, 11_000, 600, &[(A, 50)]), Some(A));
    }
}
