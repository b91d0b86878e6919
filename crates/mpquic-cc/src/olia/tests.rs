//! OLIA: test vectors, limits, and the effect of coupling.

use std::time::Duration;

use mpquic_core::PathId;
use mpquic_core::congestion::{CongestionKind, Controller};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::coupled::testing::{assert_close, coupled, growths};
use crate::testing::{acked, congestion, rtt, start};

/// Each path: window in bytes, RTT in µs, loss interval in bytes.
fn olia(paths: &[(u32, u64, u32)]) -> Olia {
    let paths: Vec<_> = paths
        .iter()
        .map(|(window, rtt, interval)| {
            let mut intervals = LossIntervals::default();
            intervals.now.current = f64::from(*interval);
            (*window, *rtt, intervals)
        })
        .collect();
    coupled(&paths)
}

fn alphas(olia: &Olia) -> Vec<f64> {
    let members = olia.members();
    members
        .iter()
        .map(|member| alpha(member.id, members))
        .collect()
}

#[test]
fn t12_the_better_path_with_the_smaller_window_gains() {
    let olia = olia(&[(24_000, 20_000, 100_000), (48_000, 80_000, 300_000)]);
    assert_close(&alphas(&olia), &[0.5, -0.5]);
    assert_close(&growths(&olia, 1200.0), &[56.667, -11.667]);
}

#[test]
fn t13_windows_move_towards_the_longer_loss_interval() {
    let olia = olia(&[(24_000, 50_000, 10_000), (12_000, 50_000, 100_000)]);
    assert_close(&growths(&olia, 1200.0), &[-3.333, 73.333]);
}

/// By interval / RTT² the first path is the best. By interval / RTT the second path would be the
/// best path. It already has the largest window, so no growth would move to it.
#[test]
fn paths_are_ranked_by_the_square_of_the_rtt() {
    let olia = olia(&[(24_000, 10_000, 100_000), (48_000, 40_000, 900_000)]);
    assert_close(&alphas(&olia), &[0.5, -0.5]);
}

/// The growth taken from the largest windows is shared by the best paths with smaller windows.
#[test]
fn several_best_paths_and_several_large_windows_share() {
    let best = (24_000, 20_000, 100_000);
    let (large, neither) = ((96_000, 80_000, 100_000), (24_000, 80_000, 100_000));
    let one = olia(&[best, best, large, neither]);
    assert_close(&alphas(&one), &[0.125, 0.125, -0.25, 0.0]);
    let two = olia(&[best, best, large, neither, large]);
    assert_close(&alphas(&two), &[0.1, 0.1, -0.1, 0.0, -0.1]);
}

#[test]
fn t16_one_path_is_reno() {
    let olia = olia(&[(24_000, 37_000, 5_000)]);
    assert_close(&alphas(&olia), &[0.0]);
    assert_close(&growths(&olia, 1200.0), &[60.0]);
}

#[test]
fn paths_without_an_rtt_sample_and_idle_windows_do_not_count() {
    let mut olia = olia(&[
        (24_000, 20_000, 100_000),
        (240_000, 20_000, 100_000),
        (24_000, 20_000, 100_000),
    ]);
    olia.paths.get_mut(PathId(2)).unwrap().rtt = None;
    olia.paths.get_mut(PathId(1)).unwrap().in_flight = 0;
    // (24000/r²) / ((24000 + 2400)/r)² + 1/(2 * 24000), times 1200²
    assert_close(
        &growths(&olia, 1200.0)[..1],
        &[1200.0 * 1200.0 * (24_000.0 / 26_400f64.powi(2) + 0.5 / 24_000.0)],
    );
}

#[test]
fn a_loss_rotates_the_interval_only_after_progress() {
    let now = start();
    let later = |ms| now + Duration::from_millis(ms);
    let mut olia = olia(&[(24_000, 20_000, 50_000)]);
    let interval = |olia: &Olia| {
        let interval = olia.paths.get(PathId(0)).unwrap().state.now;
        (interval.previous, interval.current)
    };
    olia.on_congestion_event(PathId(0), &congestion(CongestionKind::Loss, now, now));
    assert_eq!(interval(&olia), (50_000.0, 0.0));
    let second = congestion(CongestionKind::Loss, later(20), later(10));
    olia.on_congestion_event(PathId(0), &second);
    assert_eq!(interval(&olia), (50_000.0, 0.0));
    olia.on_ack(PathId(0), &acked(later(40), later(30), 1200));
    assert_eq!(interval(&olia), (50_000.0, 1200.0));

    let third = congestion(CongestionKind::Loss, later(60), later(50));
    olia.on_congestion_event(PathId(0), &third);
    olia.on_ack(PathId(0), &acked(later(80), later(70), 2400));
    assert_eq!(interval(&olia), (1200.0, 2400.0));
    let spurious = congestion(CongestionKind::Spurious, later(90), later(50));
    olia.on_congestion_event(PathId(0), &spurious);
    assert_eq!(interval(&olia), (50_000.0, 3600.0));

    let persistent = congestion(CongestionKind::Persistent, later(200), later(190));
    olia.on_congestion_event(PathId(0), &persistent);
    assert_eq!(interval(&olia), (0.0, 0.0));
    assert_eq!(olia.window(PathId(0)), 2400);
}

#[test]
fn shrinking_does_not_restart_slow_start() {
    let now = start();
    let mut olia = olia(&[(24_000, 20_000, 100_000), (48_000, 80_000, 300_000)]);
    let mut ack = acked(now, now, 12_000);
    ack.rtt = rtt(Duration::from_millis(80));
    olia.on_ack(PathId(1), &ack);
    let shrunk = olia.window(PathId(1));
    assert!(shrunk < 48_000);
    assert_eq!(olia.slow_start_threshold(PathId(1)), Some(shrunk));
}

#[test]
fn closed_paths_leave_no_trace() {
    let mut olia = olia(&[(24_000, 20_000, 100_000), (48_000, 80_000, 300_000)]);
    olia.on_path_closed(PathId(1));
    assert_eq!(olia.window(PathId(1)), 0);
    assert_close(&growths(&olia, 1200.0), &[60.0]);
}

#[test]
fn window_after_round_couples_the_given_windows() {
    let olia = olia(&[(24_000, 20_000, 100_000), (24_000, 20_000, 100_000)]);
    let windows = [(PathId(0), 24_000), (PathId(1), 24_000)];
    // Two equal paths share the growth of one Reno flow: a quarter of a datagram each.
    assert_eq!(olia.window_after_round(PathId(0), &windows), 24_300);
    let alone = [(PathId(0), 24_000), (PathId(1), 0)];
    assert!(olia.window_after_round(PathId(0), &alone) >= 24_590);
}

proptest! {
    #[test]
    fn alphas_sum_to_zero(paths in vec((2400u32..4_000_000, 100u64..900_000, 0u32..1 << 30), 1..8)) {
        let olia = olia(&paths);
        let sum: f64 = alphas(&olia).iter().sum();
        prop_assert!(sum.abs() < 1e-9, "{sum}");
        for (member, growth) in olia.members().iter().zip(growths(&olia, 1200.0)) {
            let limit = 1200.0 * 1200.0 / member.window;
            let n = paths.len() as f64;
            prop_assert!(growth >= -limit / n - 1e-6 && growth <= limit * (1.0 + 1.0 / n) + 1e-6);
        }
    }

    #[test]
    fn windows_stay_finite_and_at_least_two_datagrams(
        events in vec((0u32..3, 0u8..8, 1u64..100_000, 0u64..500), 1..200),
    ) {
        let mut now = start();
        let mut olia = Olia::default();
        for id in 0..3 {
            olia.on_path_opened(PathId(id), now, 1200);
        }
        for (id, what, bytes, ms) in events {
            let (path, sent_at) = (PathId(id), now);
            now += Duration::from_millis(ms);
            let mut ack = acked(now, sent_at, bytes);
            ack.rtt = rtt(Duration::from_millis(ms));
            ack.in_flight = bytes / 2;
            ack.app_limited = what == 7;
            match what {
                0 => olia.on_congestion_event(path, &congestion(CongestionKind::Loss, now, sent_at)),
                1 => olia.on_congestion_event(path, &congestion(CongestionKind::Ecn, now, sent_at)),
                2 => olia.on_congestion_event(path, &congestion(CongestionKind::Persistent, now, sent_at)),
                3 => olia.on_congestion_event(path, &congestion(CongestionKind::Spurious, now, sent_at)),
                _ => olia.on_ack(path, &ack),
            }
            for (id, state) in olia.paths.iter() {
                prop_assert!(state.window.bytes.is_finite() && state.window.bytes >= 2400.0);
                prop_assert!(olia.window_after_round(id, &[(id, olia.window(id))]) >= 2400);
            }
        }
    }

    /// With one path, every event gives the window that NewReno has.
    #[test]
    fn one_path_equals_new_reno(events in vec((0u8..8, 1u64..20_000, 1u64..200), 1..100)) {
        use crate::uncoupled::PathController;
        let mut now = start();
        let mut olia = Olia::default();
        olia.on_path_opened(PathId(0), now, 1200);
        let mut reno = crate::NewReno::new(now, 1200);
        for (what, bytes, ms) in events {
            let sent_at = now;
            now += Duration::from_millis(ms);
            let kind = if what == 0 { CongestionKind::Loss } else { CongestionKind::Spurious };
            if what < 2 {
                let event = congestion(kind, now, sent_at);
                olia.on_congestion_event(PathId(0), &event);
                reno.on_congestion_event(&event);
            } else {
                let ack = acked(now, sent_at, bytes);
                olia.on_ack(PathId(0), &ack);
                reno.on_ack(&ack);
            }
            prop_assert!(olia.window(PathId(0)).abs_diff(reno.limits().window) <= 1);
        }
    }
}
