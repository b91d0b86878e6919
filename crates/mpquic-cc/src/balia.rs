//! BALIA, the balanced linked adaptation algorithm (Peng et al., IEEE/ACM Transactions on
//! Networking 2016; draft-walid-mptcp-congestion-control-04).

use mpquic_core::PathId;

use crate::coupled::{Coupled, Coupling, Member, Members};

/// A loss halves the window of the fastest path. A slower path loses at most this multiple of a
/// half of its window.
const MAX_PENALTY: f64 = 1.5;

/// Coupled congestion avoidance between LIA and OLIA: friendlier to other flows than LIA, and
/// quicker to follow changes than OLIA. A loss halves the window of the fastest path, and reduces
/// the windows of slower paths by up to three quarters.
pub type Balia = Coupled<BalancedLinkedAdaptation>;

/// The rules of [`Balia`].
#[derive(Debug)]
pub enum BalancedLinkedAdaptation {}

fn rate(member: &Member<'_, ()>) -> f64 {
    member.effective_window / member.rtt
}

/// Rate of the fastest path relative to `path`, at least 1. Linux rounds down to a whole number, so
/// that a path up to twice as slow loses half of its window, like the fastest path.
fn slowness(path: &Member<'_, ()>, members: Members<'_, BalancedLinkedAdaptation>) -> f64 {
    let own = path.window / path.rtt;
    let fastest = members
        .iter()
        .map(|member| rate(&member))
        .fold(own, f64::max);
    fastest / own
}

impl Coupling for BalancedLinkedAdaptation {
    const NAME: &'static str = "balia";
    type State = ();

    fn growth(path: &Member<'_, ()>, acked: f64, members: Members<'_, Self>) -> f64 {
        let total: f64 = members.iter().map(|member| rate(&member)).sum();
        let slowness = slowness(path, members);
        let linked = path.window / (path.rtt * path.rtt) / (total * total);
        let balance = (1.0 + slowness) / 2.0 * ((4.0 + slowness) / 5.0);
        acked * path.mtu * linked * balance
    }

    fn loss_factor(path: PathId, members: Members<'_, Self>) -> f64 {
        let slowness = members
            .get(path)
            .map_or(1.0, |path| slowness(&path, members));
        1.0 - slowness.min(MAX_PENALTY) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::congestion::{CongestionKind, Controller};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::coupled::testing::{assert_close, coupled, growths};
    use crate::testing::{congestion, start};

    fn balia(paths: &[(u32, u64)]) -> Balia {
        let paths: Vec<_> = paths.iter().map(|(w, rtt)| (*w, *rtt, ())).collect();
        coupled(&paths)
    }

    #[test]
    fn t15_slower_paths_grow_less_and_lose_more() {
        let mut balia = balia(&[(24_000, 20_000), (48_000, 80_000)]);
        let members = balia.members();
        let slowness: Vec<_> = members
            .iter()
            .map(|path| slowness(&path, members))
            .collect();
        assert_close(&slowness, &[1.0, 2.0]);
        assert_close(&growths(&balia, 1200.0), &[26.667, 6.0]);
        let now = start();
        for (path, left) in [(PathId(1), 12_000), (PathId(0), 12_000)] {
            balia.on_congestion_event(path, &congestion(CongestionKind::Loss, now, now));
            assert_eq!(balia.slow_start_threshold(path), Some(left));
        }
    }

    /// At a slowness for which Linux still halves the window.
    #[test]
    fn the_cut_grows_steadily_with_slowness() {
        let mut balia = balia(&[(24_000, 20_000), (20_000, 20_000)]);
        let now = start();
        balia.on_congestion_event(PathId(1), &congestion(CongestionKind::Loss, now, now));
        // A slowness of 1.2 costs 0.6 of 20000 bytes.
        assert_eq!(balia.slow_start_threshold(PathId(1)), Some(8_000));
    }

    #[test]
    fn t16_one_path_is_reno() {
        let mut balia = balia(&[(24_000, 37_000)]);
        assert_close(&growths(&balia, 1200.0), &[60.0]);
        let now = start();
        balia.on_congestion_event(PathId(0), &congestion(CongestionKind::Loss, now, now));
        assert_eq!(balia.slow_start_threshold(PathId(0)), Some(12_000));
    }

    proptest! {
        #[test]
        fn growth_and_cuts_stay_in_bounds(
            paths in vec((2400u32..4_000_000, 100u64..900_000), 1..8),
        ) {
            let balia = balia(&paths);
            for (member, growth) in balia.members().iter().zip(growths(&balia, 1200.0)) {
                prop_assert!(growth.is_finite() && growth > 0.0);
                let factor = BalancedLinkedAdaptation::loss_factor(member.id, balia.members());
                prop_assert!((0.25..=0.5).contains(&factor), "{factor}");
            }
        }
    }
}
