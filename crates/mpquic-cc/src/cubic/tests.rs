//! CUBIC: the cubic curve, the Reno-friendly region, and interruptions of the growth.

use mpquic_core::congestion::CongestionKind;

use super::*;
use crate::testing::{acked, congestion, start};

/// A path of RTT `rtt`. Its whole window is sent and acknowledged, datagram by datagram.
struct Flow {
    cubic: Cubic,
    now: Instant,
    rtt: Duration,
}

impl Flow {
    fn with_window(bytes: f64, rtt: Duration) -> Self {
        let now = start();
        let mut cubic = Cubic::new(now, 1200);
        cubic.window.set(bytes);
        cubic.window.slow_start_threshold = bytes;
        Self { cubic, now, rtt }
    }

    fn round(&mut self) {
        let packets = self.cubic.window.rounded() / 1200;
        let sent_at = self.now;
        for index in 1..=packets as u32 {
            let now = sent_at + self.rtt + self.rtt * index / packets as u32;
            let mut ack = acked(now, sent_at + self.rtt * index / packets as u32, 1200);
            ack.rtt = crate::testing::rtt(self.rtt);
            self.cubic.on_ack(&ack);
        }
        self.now += self.rtt;
    }

    fn lose(&mut self) {
        let event = congestion(
            CongestionKind::Loss,
            self.now + self.rtt,
            self.now + self.rtt,
        );
        self.cubic.on_congestion_event(&event);
        self.now += self.rtt;
    }
}

#[test]
fn window_returns_to_its_old_size_after_k_seconds() {
    // 1000 datagrams at 100 ms: Reno would take far longer to grow back.
    let mut flow = Flow::with_window(1_200_000.0, Duration::from_millis(100));
    flow.lose();
    assert_eq!(flow.cubic.window.rounded(), 840_000);
    // K = cbrt(300 / 0.4) = 9.086 s
    let mut windows = Vec::new();
    for _ in 0..120 {
        flow.round();
        windows.push(flow.cubic.window.rounded());
    }
    let at = |seconds: f64| windows[(seconds * 10.0) as usize];
    assert!(at(4.5).abs_diff(1_157_000) < 15_000, "{}", at(4.5));
    assert!(at(9.1).abs_diff(1_200_000) < 3_000, "{}", at(9.1));
    // Beyond the old window: 0.4 * 2.8^3 = 8.8 datagrams above it after 11.9 s.
    let last = windows[118];
    assert!((1_205_000..1_216_000).contains(&last), "{last}");
    assert!(windows.is_sorted());
}

/// RFC 9438 section 4.2: a round trip adds at most half of the current window, however large the
/// old window was.
#[test]
fn round_trip_adds_at_most_half_of_the_window() {
    let mut flow = Flow::with_window(12_000.0, Duration::from_secs(2));
    flow.cubic.curve.w_max = 1_200_000.0;
    flow.round();
    let window = flow.cubic.window.rounded();
    assert!((17_000..=18_000).contains(&window), "{window}");
}

#[test]
fn growth_on_short_paths_is_that_of_reno() {
    let mut flow = Flow::with_window(24_000.0, Duration::from_millis(10));
    flow.lose();
    let before = flow.cubic.window.rounded();
    for _ in 0..40 {
        flow.round();
    }
    // 0.53 datagrams per round for the first 6, then one per round: 34.7 if windows were
    // acknowledged as a whole.
    let grown = (flow.cubic.window.rounded() - before) / 1200;
    assert!((31..=35).contains(&grown), "{grown}");
}

#[test]
fn second_loss_below_w_max_lowers_w_max() {
    let mut flow = Flow::with_window(1_200_000.0, Duration::from_millis(100));
    flow.lose();
    assert_eq!(flow.cubic.curve.w_max, 1_200_000.0);
    flow.round();
    let bytes = flow.cubic.window.bytes;
    flow.lose();
    assert!((flow.cubic.curve.w_max - bytes * 0.85).abs() < 1.0);
}

#[test]
fn idle_and_application_limited_time_does_not_count() {
    let mut busy = Flow::with_window(1_200_000.0, Duration::from_millis(100));
    busy.lose();
    let mut idle = Flow::with_window(1_200_000.0, Duration::from_millis(100));
    idle.lose();
    for _ in 0..5 {
        busy.round();
        idle.round();
    }
    idle.now += Duration::from_secs(10);
    idle.cubic
        .on_packet_sent(&Sent::new(idle.now + idle.rtt, 0, 1200, 1200));
    let mut slow = acked(idle.now + Duration::from_secs(2), idle.now + idle.rtt, 1200);
    slow.app_limited = true;
    idle.cubic.on_ack(&slow);
    idle.now += Duration::from_secs(2) - idle.rtt;
    busy.round();
    idle.round();
    let difference = busy
        .cubic
        .window
        .rounded()
        .abs_diff(idle.cubic.window.rounded());
    assert!(difference < 12_000, "{difference}");
}

/// The time is not counted either if the window is the limit again from the first packet after the
/// pause.
#[test]
fn a_pause_between_two_rounds_does_not_count() {
    let after = |pause: Duration, in_flight: u64| {
        let mut flow = Flow::with_window(1_200_000.0, Duration::from_millis(100));
        flow.lose();
        flow.round();
        flow.now += pause;
        let first = Sent::new(flow.now + flow.rtt, 0, 1200, in_flight);
        flow.cubic.on_packet_sent(&first);
        flow.round();
        flow.cubic.window.rounded()
    };
    let seconds = Duration::from_secs(3);
    assert_eq!(after(seconds, 1200), after(Duration::ZERO, 1200));
    assert!(after(seconds, 1201) > after(Duration::ZERO, 1201) + 60_000);
}

#[test]
fn stage_after_persistent_congestion_starts_at_the_level_part() {
    let mut flow = Flow::with_window(1_200_000.0, Duration::from_millis(100));
    let event = congestion(CongestionKind::Persistent, flow.now, flow.now);
    flow.cubic.on_congestion_event(&event);
    assert_eq!(flow.cubic.window.rounded(), 2_400);
    assert_eq!(flow.cubic.limits().slow_start_threshold, Some(840_000));
    while flow.cubic.window.rounded() < 840_000 {
        flow.round();
    }
    assert_eq!(flow.cubic.curve.stage.map(|stage| stage.k), Some(0.0));
}

#[test]
fn a_spurious_loss_restores_the_curve() {
    let mut flow = Flow::with_window(600_000.0, Duration::from_millis(50));
    flow.lose();
    for _ in 0..10 {
        flow.round();
    }
    let (window, w_max) = (flow.cubic.window.rounded(), flow.cubic.curve.w_max);
    flow.lose();
    let at = flow.now;
    let spurious = congestion(CongestionKind::Spurious, at + flow.rtt, at);
    flow.cubic.on_congestion_event(&spurious);
    assert_eq!(flow.cubic.window.rounded(), window);
    assert_eq!(flow.cubic.curve.w_max, w_max);
    assert!(flow.cubic.curve.stage.is_some());
}

#[test]
fn window_after_round_equals_the_window_one_round_later() {
    let mut flow = Flow::with_window(1_200_000.0, Duration::from_millis(100));
    assert_eq!(flow.cubic.window_after_round(600_000), 1_200_000);
    flow.lose();
    for _ in 0..20 {
        flow.round();
        let predicted = flow.cubic.window_after_round(flow.cubic.window.rounded());
        let mut next = Flow {
            cubic: flow.cubic.clone(),
            ..flow
        };
        next.round();
        let actual = next.cubic.window.rounded();
        assert!(predicted.abs_diff(actual) < 6_000, "{predicted} {actual}");
    }
}
