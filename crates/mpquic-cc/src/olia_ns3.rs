//! The OLIA of the ns-3 module, as a baseline.

use mpquic_core::PathId;
use mpquic_core::congestion::Acked;

use crate::coupled::{Coupled, Coupling, Member, Members};
use crate::window::{Reaction, Window};

/// OLIA as the ns-3 module for multipath QUIC implements it. The thesis about MSAB measured on it.
/// It is a baseline for these results, not meant for use.
///
/// Source: `mp-quic-congestion-ops.cc` and `GetOliaAlpha` in `quic-socket-base.cc` of
/// github.com/ssjShirley/mpquic-ns3, branch `mpquic-msab` (2023). Differences from
/// [`Olia`](crate::Olia):
///
/// - A window starts with 2 datagrams.
/// - In congestion avoidance a window grows once per acknowledgement, however many packets the
///   acknowledgement covers.
/// - The increase counts with its absolute value, so that no window shrinks without a loss.
/// - Every path whose window is larger than those of all paths before it counts as a path with the
///   largest window; the best paths are found in the same way.
/// - Latest RTTs and whole datagrams count, and whole windows, whether they are used or not.
/// - Every loss ends an interval between losses, also in a recovery period.
///
/// Slow start, recovery periods and the reaction to a spurious loss are not those of the module,
/// but those of the other controllers here.
pub type OliaNs3 = Coupled<AbsoluteIncreases>;

/// The rules of [`OliaNs3`].
#[derive(Debug)]
pub enum AbsoluteIncreases {}

/// What the module knows about a path beside its window.
#[derive(Debug, Clone, Copy, Default)]
pub struct LatestRtt {
    /// Bytes between the last two losses.
    previous: f64,
    /// Bytes since the last loss, or since the start.
    current: f64,
    /// The latest RTT, seconds; 0 before the first sample.
    latest: f64,
}

type OliaMember<'a> = Member<'a, LatestRtt>;

/// The window in whole datagrams.
fn datagrams(member: &OliaMember<'_>) -> f64 {
    (member.window / member.mtu).floor()
}

fn rtt(member: &OliaMember<'_>) -> f64 {
    if member.state.latest > 0.0 {
        member.state.latest
    } else {
        member.rtt
    }
}

fn quality(member: &OliaMember<'_>) -> f64 {
    member.state.previous.max(member.state.current) / rtt(member).powi(2)
}

/// The share of growth moved to or from a path.
fn alpha(path: PathId, members: Members<'_, AbsoluteIncreases>) -> f64 {
    let (mut largest, mut best) = (0.0, 0.0);
    let (mut largest_count, mut collected_count) = (0.0, 0.0);
    let (mut is_largest, mut is_collected) = (false, false);
    for member in members.iter() {
        let has_largest = member.window > largest;
        let is_best = quality(&member) > best;
        if has_largest {
            largest = member.window;
            largest_count += 1.0;
        }
        if is_best {
            best = quality(&member);
        }
        if is_best && !has_largest {
            collected_count += 1.0;
        }
        if member.id == path {
            (is_largest, is_collected) = (has_largest, is_best && !has_largest);
        }
    }
    // The module divides by two paths, however many there are.
    if is_collected {
        0.5 / collected_count
    } else if is_largest && collected_count > 0.0 {
        -0.5 / largest_count
    } else {
        0.0
    }
}

impl Coupling for AbsoluteIncreases {
    const NAME: &'static str = "olia-ns3";
    const INITIAL_DATAGRAMS: Option<f64> = Some(2.0);
    type State = LatestRtt;

    fn on_ack(state: &mut LatestRtt, _: &mut Window, ack: &Acked) {
        state.current += ack.bytes as f64;
        if ack.rtt.samples > 0 {
            state.latest = ack.rtt.latest.as_secs_f64();
        }
    }

    fn growth(path: &OliaMember<'_>, _: f64, members: Members<'_, Self>) -> f64 {
        let rates = members
            .iter()
            .map(|member| datagrams(&member) / rtt(&member));
        let rate: f64 = rates.sum();
        let window = datagrams(path);
        let coupled = window / rtt(path).powi(2) / (rate * rate);
        (coupled + alpha(path.id, members) / window).abs() * path.mtu
    }

    /// A receiver acknowledges every second datagram.
    fn growth_per_round(path: &OliaMember<'_>, members: Members<'_, Self>) -> f64 {
        Self::growth(path, 0.0, members) * datagrams(path) / 2.0
    }

    fn on_reaction(state: &mut LatestRtt, reaction: Reaction) {
        if reaction != Reaction::Restored {
            (state.previous, state.current) = (state.current, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::congestion::{CongestionKind, Controller};

    use super::*;
    use crate::coupled::testing::{assert_close, coupled, growths};
    use crate::testing::{acked, congestion, start};

    const PATH: PathId = PathId(0);

    /// Paths with a window in datagrams, an RTT in ms and the bytes since the last loss.
    fn olia(paths: &[(u32, u64, f64)]) -> OliaNs3 {
        let path = |(window, rtt, current): &(u32, u64, f64)| {
            let state = LatestRtt {
                current: *current,
                ..LatestRtt::default()
            };
            (1200 * window, 1000 * rtt, state)
        };
        coupled(&paths.iter().map(path).collect::<Vec<_>>())
    }

    fn alphas(olia: &OliaNs3) -> Vec<f64> {
        let members = olia.members();
        members
            .iter()
            .map(|member| alpha(member.id, members))
            .collect()
    }

    /// 40 datagrams at 80 ms and 20 at 20 ms: rates of 500 and 1000 datagrams a second.
    #[test]
    fn an_increase_below_zero_makes_the_window_grow() {
        let olia = olia(&[(40, 80, 1e5), (20, 20, 1e5)]);
        assert_close(&alphas(&olia), &[-0.5, 0.5]);
        // 1/360 - 1/80 and 1/45 + 1/40 datagrams.
        let growth = [1.0 / 80.0 - 1.0 / 360.0, 1.0 / 45.0 + 1.0 / 40.0].map(|part| 1200.0 * part);
        assert_close(&growths(&olia, 1200.0), &growth);
        // The same for an acknowledgement of ten datagrams.
        assert_close(&growths(&olia, 12_000.0), &growth);
    }

    #[test]
    fn every_new_maximum_counts_as_the_largest() {
        // The windows grow from path to path, so all count as the largest, and none is collected.
        assert_close(&alphas(&olia(&[(10, 20, 1e5), (20, 20, 2e5)])), &[0.0, 0.0]);
        // The second path is the best, but the first counts as one of the best, too.
        let three = olia(&[(30, 20, 1e5), (10, 20, 2e5), (20, 20, 3e5)]);
        assert_close(&alphas(&three), &[-0.5, 0.25, 0.25]);
        // Equal windows: the first counts as the largest.
        assert_close(
            &alphas(&olia(&[(10, 20, 1e5), (10, 20, 2e5)])),
            &[-0.5, 0.5],
        );
    }

    #[test]
    fn windows_start_with_two_datagrams_and_whole_datagrams_count() {
        let mut olia = OliaNs3::default();
        olia.on_path_opened(PATH, start(), 1200);
        assert_eq!(olia.window(PATH), 2400);
        let mut one = self::olia(&[(10, 20, 0.0)]);
        let path = one.paths.get_mut(PATH).unwrap();
        path.window.set(12_000.0 + 1_199.0);
        path.window.slow_start_threshold = 1.0;
        assert_close(&growths(&one, 1200.0), &[120.0]);
        assert_eq!(one.window_after_round(PATH, &[(PATH, 12_000)]), 12_600);
    }

    #[test]
    fn every_loss_ends_an_interval() {
        let mut olia = olia(&[(20, 20, 5e4)]);
        let now = start();
        let intervals = |olia: &OliaNs3| {
            let state = olia.paths.get(PATH).unwrap().state;
            (state.previous, state.current)
        };
        let loss = congestion(CongestionKind::Loss, now, now);
        olia.on_congestion_event(PATH, &loss);
        assert_eq!(intervals(&olia), (5e4, 0.0));
        assert_eq!(olia.slow_start_threshold(PATH), Some(12_000));
        olia.on_ack(PATH, &acked(now, now, 1200));
        assert_eq!(intervals(&olia), (5e4, 1200.0));
        // A second loss in the same recovery period.
        olia.on_congestion_event(PATH, &loss);
        assert_eq!(intervals(&olia), (1200.0, 0.0));
    }
}
