//! LIA, the linked increases algorithm (RFC 6356).

use crate::coupled::{Coupled, Coupling, Member, Members};

/// Coupled congestion avoidance (RFC 6356). All paths together reach the rate of one Reno flow on
/// the best path, and no path exceeds the rate of a Reno flow on it. Slow start and the reaction to
/// losses are those of Reno on each path.
pub type Lia = Coupled<LinkedIncreases>;

/// The rules of [`Lia`].
#[derive(Debug)]
pub enum LinkedIncreases {}

/// Aggressiveness of all paths together (RFC 6356 section 3). It is computed for each
/// acknowledgement, because it takes only a few additions. The RFC allows to compute it once per
/// round trip.
fn alpha(total: f64, members: Members<'_, LinkedIncreases>) -> f64 {
    let (mut best, mut rate) = (0.0f64, 0.0);
    for member in members.iter() {
        best = best.max(member.effective_window / (member.rtt * member.rtt));
        rate += member.effective_window / member.rtt;
    }
    total * best / (rate * rate)
}

fn total_window(members: Members<'_, LinkedIncreases>) -> f64 {
    members.iter().map(|member| member.effective_window).sum()
}

impl Coupling for LinkedIncreases {
    const NAME: &'static str = "lia";
    type State = ();

    fn growth(path: &Member<'_, ()>, acked: f64, members: Members<'_, Self>) -> f64 {
        let total = total_window(members);
        let alpha = alpha(total, members);
        acked * path.mtu * (alpha / total).min(1.0 / path.window)
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;
    use mpquic_core::congestion::{CongestionKind, Controller};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::coupled::testing::{assert_close, coupled, growths};
    use crate::testing::{congestion, start};

    fn lia(paths: &[(u32, u64)]) -> Lia {
        let paths: Vec<_> = paths.iter().map(|(w, rtt)| (*w, *rtt, ())).collect();
        coupled(&paths)
    }

    #[test]
    fn t14_all_paths_grow_by_the_same_amount() {
        let lia = lia(&[(24_000, 20_000), (48_000, 80_000)]);
        let members = lia.members();
        assert_close(&[alpha(total_window(members), members)], &[1.3333]);
        assert_close(&growths(&lia, 1200.0), &[26.667, 26.667]);
    }

    #[test]
    fn t16_one_path_is_reno() {
        assert_close(&growths(&lia(&[(24_000, 37_000)]), 1200.0), &[60.0]);
    }

    #[test]
    fn a_loss_halves_the_window_of_its_path_alone() {
        let now = start();
        let mut lia = lia(&[(24_000, 20_000), (48_000, 80_000)]);
        lia.on_congestion_event(PathId(1), &congestion(CongestionKind::Loss, now, now));
        assert_eq!(lia.slow_start_threshold(PathId(1)), Some(24_000));
        assert_eq!(lia.window(PathId(0)), 24_000);
    }

    #[test]
    fn a_window_that_idles_does_not_count() {
        let mut lia = lia(&[(24_000, 20_000), (240_000, 20_000)]);
        lia.paths.get_mut(PathId(1)).unwrap().in_flight = 0;
        // The idle path counts with two datagrams. So alpha is 24000 / 26400, the share of the busy
        // path in the total.
        let expected = 1200.0 * 1200.0 * 24_000.0 / 26_400f64.powi(2);
        assert_close(&growths(&lia, 1200.0)[..1], &[expected]);
    }

    proptest! {
        /// RFC 6356 section 2, goals 1 and 2.
        #[test]
        fn never_faster_than_reno_on_a_path_or_than_reno_on_the_best(
            paths in vec((2400u32..4_000_000, 100u64..900_000), 1..8),
        ) {
            let lia = lia(&paths);
            let mut rate = 0.0;
            for (member, growth) in lia.members().iter().zip(growths(&lia, 1200.0)) {
                prop_assert!(growth > 0.0 && growth <= 1200.0 * 1200.0 / member.window + 1e-9);
                // Growth of the rate, bytes per second per second.
                rate += growth * member.window / 1200.0 / (member.rtt * member.rtt);
            }
            let shortest = paths.iter().map(|path| path.1).min().unwrap() as f64 / 1e6;
            prop_assert!(rate <= 1200.0 / (shortest * shortest) * (1.0 + 1e-9));
        }
    }
}
