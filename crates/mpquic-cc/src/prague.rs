//! Prague (draft-briscoe-iccrg-prague-congestion-control-04): scalable, for L4S queues (RFC 9330 to 9332).
//!
//! The window falls by half of the share of packets that came with ECN-CE marks, so that it settles where
//! there are one or two of these in a round trip: often enough to keep a queue short, and seldom enough to
//! keep a link busy. Left out is what the draft asks for against queues that mark as RFC 3168 says, which take
//! one mark for a loss: beside flows of other controllers in such a queue, it takes more than its part. It is for networks whose
//! queues are known.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, Sent};

use crate::careful_resume::Found;
use crate::uncoupled::{PathController, PathLimits};
use crate::window::Window;

/// How much the share of marks in a round trip counts in the mean (section 2.4.2).
const GAIN: f64 = 1.0 / 16.0;
/// Flows with shorter round trips grow as if theirs were this long, seconds: they take no more than
/// others do (section 2.4.4).
const REFERENCE_RTT: f64 = 0.025;
/// They do so after this many round trips of congestion avoidance: short flows need not.
const YOUNG_ROUNDS: u32 = 500;
/// What a loss leaves of the window.
const LOSS_FACTOR: f64 = 0.5;

/// A window that falls in proportion to the share of marked packets.
#[derive(Debug, Clone)]
pub struct Prague {
    window: Window,
    /// The mean share of marked packets; 1 until the first mark has come.
    share: f64,
    was_marked: bool,
    round: Round,
    /// Round trips of congestion avoidance.
    rounds: u32,
    /// When marks last cut the window: those of packets sent before say the same.
    cut_at: Option<Instant>,
    /// Seconds; 0 before there is a sample.
    smoothed_rtt: f64,
}

/// What was acknowledged since a round trip began.
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

    /// The share of marked packets. Marks of packets acknowledged before may be among them.
    fn share(&self) -> f64 {
        (self.marked as f64 / self.packets.max(1) as f64).min(1.0)
    }
}

impl Prague {
    /// Whether a short round trip counts as a long one.
    fn counts_as_longer(&self) -> bool {
        self.rounds >= YOUNG_ROUNDS && self.smoothed_rtt < REFERENCE_RTT
    }

    /// Datagrams by which the window grows in a round trip without marks: 1, or less so that the rate
    /// grows as with the reference's round trip.
    fn growth(&self) -> f64 {
        match self.counts_as_longer() {
            true => (self.smoothed_rtt / REFERENCE_RTT).powi(2),
            false => 1.0,
        }
    }

    /// Ends the round trip if packets that left in it are acknowledged.
    fn end_round(&mut self, ack: &Acked) {
        let least = match self.counts_as_longer() {
            true => Duration::from_secs_f64(REFERENCE_RTT),
            false => Duration::ZERO,
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

    /// Cuts the window for marks, once in a round trip.
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
        // What came with a mark does not let the window grow.
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
        // Marks come with the acknowledgements, which say how many there are.
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
            // Bursts would be marked, though the rate is right.
            let windows = match self.window.in_slow_start() {
                true => 2.0,
                false => 1.0,
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

    /// Acknowledges a window's packets one by one, the marked ones as `is_marked` says.
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

    /// In congestion avoidance with a window of so many datagrams, and a share of marks.
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
        // What the marked packet adds in slow start is cut with the rest.
        assert_eq!(prague.window.bytes, 6.0 * MTU);
        // Another mark of the same round trip says nothing new.
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
        // The first mark cuts by 10 %; 90 packets without one then add nearly one datagram to 90.
        let datagrams = prague.window.bytes / MTU;
        assert!((datagrams - 91.0).abs() < 0.02, "{datagrams}");
        let share = 0.2 + (0.1 - 0.2) / 16.0;
        assert!((prague.share - share).abs() < 1e-9, "{}", prague.share);
    }

    #[test]
    fn marked_packets_do_not_let_the_window_grow() {
        let grown = |marked| {
            let (mut prague, now) = steady(100.0, 0.2);
            // It has been cut in this round trip already.
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
    fn short_round_trips_grow_as_long_ones_do_once_a_flow_is_old() {
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
            // A datagram for what has no mark, and half of the share of the window for what has.
            let expected = 2.0 * (1.0 - share) / share;
            assert!(
                (mean / expected - 1.0).abs() < 0.15,
                "{share}: {mean}, not {expected}"
            );
        }
    }

    #[test]
    fn without_a_round_trip_there_is_no_rate_of_its_own() {
        let mut prague = Prague::new(start(), 1200);
        assert_eq!(prague.limits().pacing_rate, None);
        prague.smoothed_rtt = 0.05;
        let in_slow_start = 2 * 12_000 * 20;
        assert_eq!(prague.limits().pacing_rate, Some(in_slow_start));
        prague.window.slow_start_threshold = 12_000.0;
        assert_eq!(prague.limits().pacing_rate, Some(in_slow_start / 2));
    }

    #[test]
    fn an_old_flow_counts_round_trips_of_the_reference_at_least() {
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
    fn it_fills_a_link_that_marks_from_a_millisecond_on_and_keeps_the_queue_there() {
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
