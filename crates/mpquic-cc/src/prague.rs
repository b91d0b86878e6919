//! Prague (draft-briscoe-iccrg-prague-congestion-control-04): scalable congestion control for L4S
//! queues (RFC 9330 to 9332).
//!
//! ECN-CE marks reduce the window by half of the share of marked packets. So the window settles at
//! one or two marks per round trip: often enough to keep a queue short, and seldom enough to keep a
//! link busy. The draft also has rules for queues that mark according to RFC 3168, where one mark
//! means as much as a loss. These rules are left out: in such a queue Prague takes more than its
//! share beside other controllers. It is meant for networks whose queues are known.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, Sent};

use crate::careful_resume::Found;
use crate::uncoupled::{PathController, PathLimits};
use crate::window::Window;

/// Weight of a round trip in the mean share of marks (section 2.4.2).
const GAIN: f64 = 1.0 / 16.0;
/// The window of a flow with a shorter RTT grows as if the RTT were this long, in seconds. So flows
/// with short RTTs take no more than other flows (section 2.4.4).
const REFERENCE_RTT: f64 = 0.025;
/// [`REFERENCE_RTT`] applies after this many round trips of congestion avoidance. Short flows do
/// not need it.
const YOUNG_ROUNDS: u32 = 500;
/// Factor that a loss leaves of the window.
const LOSS_FACTOR: f64 = 0.5;

/// A window that marks reduce in proportion to the share of marked packets.
#[derive(Debug, Clone)]
pub struct Prague {
    window: Window,
    /// Mean share of marked packets; 1 until the first mark arrives.
    share: f64,
    was_marked: bool,
    round: Round,
    /// Number of round trips in congestion avoidance.
    rounds: u32,
    /// When marks last reduced the window. Marks of packets that were sent earlier are ignored.
    cut_at: Option<Instant>,
    /// Smoothed RTT, seconds; 0 before the first sample.
    smoothed_rtt: f64,
}

/// Packets acknowledged since a round trip began.
#[derive(Debug, Clone, Copy)]
struct Round {
    began: Instant,
    packets: u64,
    marked: u64,
}

impl Round {
    fn new(began: Instant) -> Self {
        Self {
            began,
            packets: 0,
            marked: 0,
        }
    }

    /// The share of marked packets. It is limited to 1, because marks of packets that were
    /// acknowledged earlier may be included.
    fn share(&self) -> f64 {
        (self.marked as f64 / self.packets.max(1) as f64).min(1.0)
    }
}

impl Prague {
    /// True if a short RTT counts as [`REFERENCE_RTT`].
    fn counts_as_longer(&self) -> bool {
        self.rounds >= YOUNG_ROUNDS && self.smoothed_rtt < REFERENCE_RTT
    }

    /// Growth of the window in a round trip without marks, datagrams: 1, or as much less as the
    /// rate needs to grow as with [`REFERENCE_RTT`].
    fn growth(&self) -> f64 {
        if self.counts_as_longer() {
            (self.smoothed_rtt / REFERENCE_RTT).powi(2)
        } else {
            1.0
        }
    }

    /// Ends the round trip if a packet that left in it is acknowledged.
    fn end_round(&mut self, ack: &Acked) {
        let least = if self.counts_as_longer() {
            Duration::from_secs_f64(REFERENCE_RTT)
        } else {
            Duration::ZERO
        };
        if ack.sent_at < self.round.began || ack.now < self.round.began + least {
            return;
        }
        if self.was_marked {
            self.share += GAIN * (self.round.share() - self.share);
        }
        if !self.window.in_slow_start() {
            self.rounds = self.rounds.saturating_add(1);
        }
        self.round = Round::new(ack.now);
    }

    /// Reduces the window because of marks, once per round trip.
    fn cut(&mut self, ack: &Acked) {
        self.was_marked = true;
        if self.cut_at.is_some_and(|at| ack.sent_at <= at) {
            return;
        }
        self.cut_at = Some(ack.now);
        let bytes = self.window.bytes;
        self.window.grow(-bytes * self.share / 2.0);
    }
}

impl PathController for Prague {
    const NAME: &'static str = "prague";

    fn new(now: Instant, mtu: u16) -> Self {
        Self {
            window: Window::new(mtu),
            share: 1.0,
            was_marked: false,
            round: Round::new(now),
            rounds: 0,
            cut_at: None,
            smoothed_rtt: 0.0,
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.window.on_mtu_update(mtu);
    }

    fn on_packet_sent(&mut self, sent: &Sent) {
        self.window.on_packet_sent(sent);
    }

    fn on_ack(&mut self, ack: &Acked) {
        self.smoothed_rtt = ack.rtt.smoothed.as_secs_f64();
        self.round.packets += ack.packets;
        self.round.marked += ack.marked;
        // Marked packets do not let the window grow.
        if let Some(acked) = self.window.on_ack(ack) {
            let unmarked = ack.packets.saturating_sub(ack.marked) as f64;
            let acked = acked * unmarked / ack.packets.max(1) as f64;
            let growth = self.growth() * self.window.mtu() * acked / self.window.bytes;
            self.window.grow(growth);
        }
        if ack.marked > 0 {
            self.cut(ack);
        }
        self.end_round(ack);
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        // Marks are handled with acknowledgements, which tell their number.
        if event.kind != CongestionKind::Ecn {
            self.window.on_congestion_event(event, LOSS_FACTOR);
        }
    }

    fn adopt(&mut self, found: Found) {
        self.window.adopt(found);
    }

    fn limits(&self) -> PathLimits {
        let mut limits = self.window.limits();
        if self.smoothed_rtt > 0.0 {
            // Bursts would be marked even at the right rate.
            let windows = if self.window.in_slow_start() {
                2.0
            } else {
                1.0
            };
            limits.pacing_rate = Some((windows * self.window.bytes / self.smoothed_rtt) as u64);
        }
        limits
    }

    fn window_after_round(&self, window: u64) -> u64 {
        let window = window as f64;
        let next = self.window.slow_start_round(window);
        next.unwrap_or(window + self.growth() * self.window.mtu()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{congestion, rtt, start};
    use crate::testing_link::Flow;

    const MTU: f64 = 1200.0;

    /// Acknowledges the packets of a window one by one. `is_marked` decides for each packet whether
    /// it is marked.
    fn round(
        prague: &mut Prague,
        now: &mut Instant,
        trip: Duration,
        mut is_marked: impl FnMut() -> bool,
    ) {
        let packets = (prague.window.bytes / MTU).round() as u32;
        for _ in 0..packets {
            *now += trip / packets;
            let mut ack = Acked::new(*now, *now - trip, 1200, rtt(trip));
            ack.marked = u64::from(is_marked());
            prague.on_ack(&ack);
        }
    }

    /// A controller in congestion avoidance with a window of `datagrams` and a mean share of marks.
    fn steady(datagrams: f64, share: f64) -> (Prague, Instant) {
        let now = start();
        let mut prague = Prague::new(now, 1200);
        prague.window.set(datagrams * MTU);
        prague.window.slow_start_threshold = prague.window.bytes;
        (prague.share, prague.was_marked) = (share, true);
        let now = now + Duration::from_secs(1);
        prague.round = Round::new(now);
        (prague, now)
    }

    #[test]
    fn the_first_mark_ends_slow_start_and_halves_the_window() {
        let now = start();
        let mut prague = Prague::new(now, 1200);
        let at = now + Duration::from_millis(20);
        let mut ack = Acked::new(at, now, 1200, rtt(Duration::from_millis(20)));
        prague.on_ack(&ack);
        assert!(prague.window.in_slow_start());
        assert_eq!(prague.window.bytes, 11.0 * MTU);
        ack.marked = 1;
        prague.on_ack(&ack);
        assert!(!prague.window.in_slow_start());
        // In slow start the marked packet still grows the window, and the reduction includes that
        // growth.
        assert_eq!(prague.window.bytes, 6.0 * MTU);
        // A second mark in the same round trip changes nothing.
        prague.on_ack(&ack);
        assert_eq!(prague.window.bytes, 6.0 * MTU);
    }

    #[test]
    fn a_cut_is_half_of_the_mean_share_and_the_mean_follows_by_a_sixteenth() {
        let (mut prague, mut now) = steady(100.0, 0.2);
        let trip = Duration::from_millis(50);
        let mut left = 10;
        round(&mut prague, &mut now, trip, || {
            left -= 1;
            left >= 0
        });
        // The first mark reduces the window by 10 %; then 90 packets without a mark add nearly one
        // datagram.
        let datagrams = prague.window.bytes / MTU;
        assert!((datagrams - 91.0).abs() < 0.02, "{datagrams}");
        let share = 0.2 + (0.1 - 0.2) / 16.0;
        assert!((prague.share - share).abs() < 1e-9, "{}", prague.share);
    }

    #[test]
    fn marked_packets_do_not_let_the_window_grow() {
        let grown = |marked| {
            let (mut prague, now) = steady(100.0, 0.2);
            // The first acknowledgement reduces the window for this round trip.
            let mut ack = Acked::new(now, now, 12_000, rtt(Duration::from_millis(50)));
            (ack.packets, ack.marked) = (10, 1);
            prague.on_ack(&ack);
            let before = prague.window.bytes;
            ack.marked = marked;
            prague.on_ack(&ack);
            prague.window.bytes - before
        };
        let all = grown(0);
        assert!((all / MTU - 10.0 / 90.0).abs() < 0.002, "{all}");
        assert!((grown(4) / all - 0.6).abs() < 0.002);
        assert_eq!(grown(10), 0.0);
    }

    #[test]
    fn old_flow_with_short_rtt_grows_as_with_the_reference_rtt() {
        for (trip, rounds, growth) in [
            (50, 1000, 1.0),
            (25, 1000, 1.0),
            (10, 1000, 0.16),
            (5, 500, 0.04),
            (5, 499, 1.0),
        ] {
            let (mut prague, mut now) = steady(100.0, 0.0);
            let trip = Duration::from_millis(trip);
            prague.round = Round::new(now + 10 * trip);
            prague.rounds = rounds;
            round(&mut prague, &mut now, trip, || false);
            let grown = prague.window.bytes / MTU - 100.0;
            assert!((grown - growth).abs() < 0.01, "{trip:?}: {grown}");
        }
    }

    #[test]
    fn the_window_settles_at_two_datagrams_per_share_of_marks() {
        for share in [0.02, 0.05, 0.1, 0.2] {
            let (mut prague, mut now) = steady(30.0, 0.5);
            let mut sum = 0.0;
            let mut mean = 0.0;
            for turn in 0..3000 {
                round(&mut prague, &mut now, Duration::from_millis(40), || {
                    sum += share;
                    let marked = sum >= 1.0;
                    sum -= f64::from(u8::from(marked));
                    marked
                });
                if turn >= 1000 {
                    mean += prague.window.bytes / MTU / 2000.0;
                }
            }
            // Unmarked packets add a datagram per round trip; marks take half of their share of the
            // window.
            let expected = 2.0 * (1.0 - share) / share;
            assert!(
                (mean / expected - 1.0).abs() < 0.15,
                "{share}: {mean}, not {expected}"
            );
        }
    }

    #[test]
    fn pacing_rate_needs_an_rtt_sample() {
        let mut prague = Prague::new(start(), 1200);
        assert_eq!(prague.limits().pacing_rate, None);
        prague.smoothed_rtt = 0.05;
        let in_slow_start = 2 * 12_000 * 20;
        assert_eq!(prague.limits().pacing_rate, Some(in_slow_start));
        prague.window.slow_start_threshold = 12_000.0;
        assert_eq!(prague.limits().pacing_rate, Some(in_slow_start / 2));
    }

    #[test]
    fn round_trip_of_an_old_flow_lasts_at_least_the_reference_rtt() {
        for (rounds, after, ends) in [(499, 5, true), (500, 24, false), (500, 25, true)] {
            let (mut prague, now) = steady(100.0, 0.0);
            (prague.rounds, prague.smoothed_rtt) = (rounds, 0.005);
            let at = now + Duration::from_millis(after);
            let ack = Acked::new(at, now, 1200, rtt(Duration::from_millis(5)));
            prague.end_round(&ack);
            assert_eq!(prague.rounds > rounds, ends, "{rounds} {after}");
        }
    }

    #[test]
    fn a_loss_halves_the_window_whatever_the_marks_say() {
        let (mut prague, now) = steady(100.0, 0.01);
        prague.on_congestion_event(&congestion(CongestionKind::Ecn, now, now));
        assert_eq!(prague.window.bytes, 100.0 * MTU);
        prague.on_congestion_event(&congestion(CongestionKind::Loss, now, now));
        assert_eq!(prague.window.bytes, 50.0 * MTU);
        assert!(prague.limits().in_recovery);
    }

    #[test]
    fn link_that_marks_above_a_millisecond_is_filled_with_a_short_queue() {
        let mut flow = Flow::<Prague>::new(40.0, 20, 5.0);
        flow.mark_above = Some(Duration::from_millis(1));
        flow.run(Duration::from_secs(5));
        flow.longest_queue = Duration::ZERO;
        let rate = flow.run(Duration::from_secs(20));
        assert!(rate * 8.0 > 0.95 * 40e6, "{} Mbit/s", rate * 8e-6);
        let queue = flow.longest_queue;
        assert!(queue < Duration::from_millis(3), "{queue:?}");
        assert_eq!(flow.lost, 0);
    }
}
