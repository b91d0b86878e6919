//! The OLIA of mp-quic, as a baseline.

use mpquic_core::PathId;
use mpquic_core::congestion::Acked;

use crate::coupled::{Coupled, Coupling, Member, Members};
use crate::olia::LossIntervals;
use crate::window::{Reaction, Window};

/// Factor that a loss leaves of a window. In mp-quic a path counts as two connections, one of which
/// backs off to 0.7.
const LOSS_FACTOR: f64 = 0.85;

/// OLIA as mp-quic implements it. The ETC and PStream papers measured on it. It is a baseline for
/// their results, not meant for use.
///
/// Source: `congestion/olia.go` and `olia_sender.go` of github.com/qdeconinck/mp-quic (2017 to
/// 2021). Differences from [`Olia`](crate::Olia):
///
/// - A loss leaves 85 % of the window.
/// - A window starts with 32 datagrams and holds at most 2500.
/// - Bytes acknowledged in a recovery period do not count for the interval between losses.
/// - Whole windows are coupled, whether they are used or not.
/// - Products of intervals and squared RTTs in nanoseconds wrap around 64 bits. With more than a
///   few kB between losses, chance decides which path counts as the best.
///
/// Slow start, recovery periods, the reaction to a spurious loss and the fractions of windows are
/// not those of mp-quic, but those of the other controllers here.
pub type OliaMpquic = Coupled<WrappingIncreases>;

/// The rules of [`OliaMpquic`].
#[derive(Debug)]
pub enum WrappingIncreases {}

type OliaMember<'a> = Member<'a, LossIntervals>;

/// The larger loss interval in bytes, and the squared RTT in nanoseconds; mp-quic compares these.
fn terms(member: &OliaMember<'_>) -> (i64, i64) {
    let nanoseconds = (member.rtt * 1e9).round() as i64;
    let interval = member.state.longest() as i64;
    (interval, nanoseconds.wrapping_mul(nanoseconds))
}

/// The comparison "at least as good" of mp-quic, with its overflow.
fn is_as_good((interval, rtt): (i64, i64), (best_interval, best_rtt): (i64, i64)) -> bool {
    interval.wrapping_mul(best_rtt) >= best_interval.wrapping_mul(rtt)
}

fn packets(member: &OliaMember<'_>) -> u64 {
    (member.window / member.mtu) as u64
}

/// The share of growth moved to or from `path`.
fn alpha(path: &OliaMember<'_>, members: Members<'_, WrappingIncreases>) -> f64 {
    let (mut best, mut largest, mut count) = ((0, 0), 0, 0.0);
    for member in members.iter() {
        largest = largest.max(packets(&member));
        count += 1.0;
        if is_as_good(terms(&member), best) {
            best = terms(&member);
        }
    }
    let is_largest = |member: &OliaMember<'_>| packets(member) == largest;
    let is_collected =
        |member: &OliaMember<'_>| !is_largest(member) && is_as_good(terms(member), best);
    let number = |of: &dyn Fn(&OliaMember<'_>) -> bool| {
        members.iter().filter(|member| of(member)).count() as f64
    };
    let collected = number(&is_collected);
    if collected == 0.0 {
        0.0
    } else if is_collected(path) {
        1.0 / (count * collected)
    } else if is_largest(path) {
        -1.0 / (count * number(&is_largest))
    } else {
        0.0
    }
}

impl Coupling for WrappingIncreases {
    const NAME: &'static str = "olia-mpquic";
    const INITIAL_DATAGRAMS: Option<f64> = Some(32.0);
    const MAX_DATAGRAMS: f64 = 2500.0;
    type State = LossIntervals;

    fn on_ack(state: &mut LossIntervals, window: &mut Window, ack: &Acked) {
        if !window.in_recovery() {
            state.count(ack.bytes);
        }
    }

    fn growth(path: &OliaMember<'_>, acked: f64, members: Members<'_, Self>) -> f64 {
        let rates = members.iter().map(|member| member.window / member.rtt);
        let rate: f64 = rates.sum();
        let coupled = path.window / (path.rtt * path.rtt) / (rate * rate);
        acked * path.mtu * (coupled + alpha(path, members) / path.window)
    }

    fn loss_factor(_: PathId, _: Members<'_, Self>) -> f64 {
        LOSS_FACTOR
    }

    fn on_reaction(state: &mut LossIntervals, reaction: Reaction) {
        state.on_reaction(reaction);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::congestion::{CongestionKind, Controller};

    use super::*;
    use crate::coupled::testing::{assert_close, coupled};
    use crate::testing::{acked, congestion, start};

    const PATH: PathId = PathId(0);

    fn olia(paths: &[(u32, u64, u32)]) -> OliaMpquic {
        let paths: Vec<_> = paths
            .iter()
            .map(|(window, rtt, interval)| {
                let mut intervals = LossIntervals::default();
                intervals.count(u64::from(*interval));
                (*window, *rtt, intervals)
            })
            .collect();
        coupled(&paths)
    }

    fn alphas(olia: &OliaMpquic) -> Vec<f64> {
        let members = olia.members();
        let alphas = members.iter().map(|member| alpha(&member, members));
        alphas.collect()
    }

    #[test]
    fn windows_start_with_32_datagrams_and_a_loss_leaves_85_percent() {
        let mut olia = OliaMpquic::default();
        olia.on_path_opened(PATH, start(), 1200);
        assert_eq!(olia.window(PATH), 38_400);
        olia.paths.get_mut(PATH).unwrap().window.set(2_000_000.0);
        let loss = congestion(CongestionKind::Loss, start(), start());
        olia.on_congestion_event(PATH, &loss);
        assert_eq!(olia.slow_start_threshold(PATH), Some(1_700_000));
    }

    #[test]
    fn windows_end_at_2500_datagrams() {
        let mut olia = olia(&[(2_999_000, 20_000, 0)]);
        let now = start();
        for _ in 0..3 {
            olia.on_ack(PATH, &acked(now, now, 1_200_000));
        }
        assert_eq!(olia.window(PATH), 3_000_000);
    }

    #[test]
    fn small_intervals_rank_without_overflow() {
        // Interval over squared RTT: 2000 / 20² against 3000 / 80² ms. The products stay below
        // 2^63.
        let olia = olia(&[(24_000, 20_000, 500), (48_000, 80_000, 600)]);
        assert_close(&alphas(&olia), &[0.5, -0.5]);
    }

    #[test]
    fn large_intervals_overflow_and_swap_the_ranks() {
        // 100 kB * (80 ms)² is 6.4e20, more than 600 kB * (20 ms)², and both are far beyond 2^63.
        let overflowing = olia(&[(24_000, 20_000, 100_000), (48_000, 80_000, 600_000)]);
        let members = overflowing.members();
        let all: Vec<_> = members.iter().map(|member| terms(&member)).collect();
        let (first, second) = (all[0], all[1]);
        let wide = |(a, _): (i64, i64), (_, b): (i64, i64)| i128::from(a) * i128::from(b);
        assert!(wide(first, second) > wide(second, first));
        assert!(!is_as_good(first, second));
        // The path that counts as the best already has the largest window, so no growth moves.
        assert_close(&alphas(&overflowing), &[0.0, 0.0]);
    }

    #[test]
    fn bytes_of_a_recovery_period_do_not_count() {
        let mut olia = olia(&[(24_000, 20_000, 0)]);
        let now = start();
        let loss = congestion(CongestionKind::Loss, now, now);
        olia.on_congestion_event(PATH, &loss);
        olia.on_ack(PATH, &acked(now + Duration::from_millis(1), now, 1200));
        let longest = |olia: &OliaMpquic| olia.paths.get(PATH).unwrap().state.longest();
        assert_eq!(longest(&olia), 0.0);
    }
}
