//! Each rule of RFC 9959 section 3, on a controller whose window never changes by itself.

use std::time::{Duration, Instant};

use mpquic_core::PathId;
use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, ResumePhase, SavedCapacity,
};

use super::{CarefulResume, Found, Resumable};
use crate::testing::{congestion, rtt, sent, start};
use crate::{Uncoupled, list};

const PATH: PathId = PathId(3);
const MTU: u64 = 1200;
const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(100);
const SAVED: SavedCapacity = SavedCapacity {
    window: 1_000_000,
    rtt: RTT,
};
/// The window of [`Fixed`], bytes.
const OWN: u64 = 12_000;

/// A controller with a constant window that records the results of resuming.
#[derive(Debug, Default)]
struct Fixed<const TOLERANT: bool> {
    found: Vec<Found>,
    closed: Vec<PathId>,
}

impl<const TOLERANT: bool> Controller for Fixed<TOLERANT> {
    fn on_path_opened(&mut self, _: PathId, _: Instant, _: u16) {}
    fn on_path_closed(&mut self, path: PathId) {
        self.closed.push(path);
    }
    fn on_mtu_update(&mut self, _: PathId, _: u16) {}
    fn on_ack(&mut self, _: PathId, _: &Acked) {}
    fn on_congestion_event(&mut self, _: PathId, _: &CongestionEvent) {}
    fn window(&self, _: PathId) -> u64 {
        OWN
    }
    fn name(&self) -> &'static str {
        "fixed"
    }
}

impl<const TOLERANT: bool> Resumable for Fixed<TOLERANT> {
    const TOLERATED_LOSS: f64 = if TOLERANT { 0.02 } else { 0.0 };

    fn adopt(&mut self, _: PathId, found: Found) {
        self.found.push(found);
    }
}

/// A saved path.
struct Flow<const TOLERANT: bool> {
    controller: CarefulResume<Fixed<TOLERANT>>,
    now: Instant,
    in_flight: u64,
    rtt: Duration,
}

impl<const TOLERANT: bool> Flow<TOLERANT> {
    fn new(saved: SavedCapacity) -> Self {
        let mut controller = CarefulResume::default();
        let now = start();
        controller.on_path_opened(PATH, now, MTU as u16);
        controller.resume(PATH, now, saved);
        Self {
            controller,
            now,
            in_flight: 0,
            rtt: RTT,
        }
    }

    /// A flow whose first ten datagrams have arrived.
    fn confirmed(saved: SavedCapacity, round_trip: Duration) -> Self {
        let mut flow = Self::new(saved);
        flow.rtt = round_trip;
        let begin = flow.now;
        flow.send(10);
        flow.now += round_trip;
        flow.ack(10, begin);
        flow
    }

    fn send(&mut self, datagrams: u64) {
        for _ in 0..datagrams {
            self.in_flight += MTU;
            let packet = sent(self.now, MTU, self.in_flight);
            self.controller.on_packet_sent(PATH, &packet);
        }
    }

    /// An acknowledgement of `datagrams`, the last of which left at `sent_at`.
    fn ack(&mut self, datagrams: u64, sent_at: Instant) {
        self.in_flight -= datagrams * MTU;
        let mut ack = Acked::new(self.now, sent_at, datagrams * MTU, rtt(self.rtt));
        ack.in_flight = self.in_flight;
        self.controller.on_ack(PATH, &ack);
    }

    fn congestion(&mut self, kind: CongestionKind, lost: u64) {
        let mut event = congestion(kind, self.now, self.now - self.rtt);
        event.lost_bytes = lost * MTU;
        self.in_flight -= lost * MTU;
        event.in_flight = self.in_flight;
        self.controller.on_congestion_event(PATH, &event);
    }

    fn phase(&self) -> ResumePhase {
        self.controller.resume_phase(PATH)
    }

    fn window(&self) -> u64 {
        self.controller.window(PATH)
    }

    fn found(&self) -> &[Found] {
        &self.controller.inner.found
    }

    /// Sends 200 datagrams in the Unvalidated Phase, the first of which arrives. Returns when the
    /// first and the last of them left.
    fn validating(&mut self) -> [Instant; 2] {
        self.now += MS;
        let first = self.now;
        self.send(100);
        self.now += RTT / 2;
        let last = self.now;
        self.send(100);
        self.now = first + RTT;
        self.ack(1, first);
        assert_eq!(self.phase(), ResumePhase::Validating);
        [first, last]
    }
}

#[test]
fn closed_path_does_not_resume() {
    let mut flow = Flow::<false>::new(SAVED);
    assert_eq!(flow.phase(), ResumePhase::Reconnaissance);
    flow.controller.on_path_closed(PATH);
    assert_eq!(flow.phase(), ResumePhase::Normal);
    flow.controller.resume(PATH, flow.now, SAVED);
    assert_eq!(flow.phase(), ResumePhase::Normal);
    assert_eq!(flow.controller.inner.closed, [PATH]);
}

#[test]
fn ten_datagrams_have_to_arrive_first() {
    let mut flow = Flow::<false>::new(SAVED);
    let begin = flow.now;
    flow.send(10);
    flow.now += RTT;
    flow.ack(9, begin);
    assert_eq!(flow.phase(), ResumePhase::Reconnaissance);
    assert_eq!(
        (flow.window(), flow.controller.pacing_rate(PATH)),
        (OWN, None)
    );
    flow.ack(1, begin);
    assert_eq!(flow.phase(), ResumePhase::Unvalidated);
}

/// RFC 9002 section 7.2: as many bytes as the initial window has.
#[test]
fn bytes_that_have_to_arrive_first_are_those_of_the_initial_window() {
    for (mtu, needed) in [
        (1200, 12_000),
        (1472, 14_720),
        (1500, 14_720),
        (9000, 18_000),
    ] {
        let mut controller = CarefulResume::<Fixed<false>>::default();
        controller.on_path_opened(PATH, start(), mtu);
        controller.resume(PATH, start(), SAVED);
        for (bytes, phase) in [
            (needed - 1, ResumePhase::Reconnaissance),
            (1, ResumePhase::Unvalidated),
        ] {
            let ack = Acked::new(start() + RTT, start(), bytes, rtt(RTT));
            controller.on_ack(PATH, &ack);
            assert_eq!(controller.resume_phase(PATH), phase, "{mtu}");
        }
    }
}

/// An acknowledgement without an RTT sample does not show whether the path is the saved one.
#[test]
fn resuming_needs_an_rtt_sample() {
    let mut flow = Flow::<false>::new(SAVED);
    flow.send(20);
    let mut ack = Acked::new(flow.now + RTT, flow.now, 15 * MTU, rtt(RTT));
    ack.rtt.samples = 0;
    flow.controller.on_ack(PATH, &ack);
    assert_eq!(flow.phase(), ResumePhase::Reconnaissance);
}

/// Acknowledged bytes count as in flight before the acknowledgement, even if no sent packet was
/// reported.
#[test]
fn acknowledged_bytes_count_as_in_flight_without_a_sent_packet() {
    let mut flow = Flow::<false>::new(SAVED);
    flow.in_flight = 10 * MTU;
    let begin = flow.now;
    flow.now += RTT;
    flow.ack(10, begin);
    let sent_at = flow.now + MS;
    flow.now = sent_at + RTT;
    flow.in_flight = 50 * MTU;
    flow.ack(20, sent_at);
    assert_eq!(flow.found(), [Found::AtLeast(50 * MTU)]);
}

#[test]
fn half_of_the_saved_window_is_used_and_paced_over_a_round_trip() {
    let flow = Flow::<false>::confirmed(SAVED, RTT);
    assert_eq!(flow.window(), 500_000);
    assert_eq!(flow.controller.pacing_rate(PATH), Some(5_000_000));
}

/// If acknowledgements take a shorter return path, the path carries no more bytes than before.
#[test]
fn shorter_rtt_reduces_the_window_but_not_the_rate() {
    let flow = Flow::<false>::confirmed(SAVED, 60 * MS);
    assert_eq!(flow.window(), 300_000);
    assert_eq!(flow.controller.pacing_rate(PATH), Some(5_000_000));
    let flow = Flow::<false>::confirmed(SAVED, 200 * MS);
    assert_eq!(flow.window(), 500_000);
    assert_eq!(flow.controller.pacing_rate(PATH), Some(2_500_000));
}

#[test]
fn rtt_outside_half_to_ten_times_the_saved_one_ends_resuming() {
    let used = |round_trip| {
        let flow = Flow::<false>::confirmed(SAVED, round_trip);
        flow.phase() == ResumePhase::Unvalidated
    };
    assert_eq!([50 * MS, 51 * MS].map(used), [false, true]);
    assert_eq!([999 * MS, 1000 * MS].map(used), [true, false]);
}

#[test]
fn loss_or_mark_before_the_jump_ends_resuming() {
    for kind in [CongestionKind::Loss, CongestionKind::Ecn] {
        // A single loss is enough, even if the algorithm tolerates some losses later.
        let mut flow = Flow::<true>::new(SAVED);
        let begin = flow.now;
        flow.send(20);
        flow.now += RTT;
        flow.congestion(kind, 1);
        flow.ack(19, begin);
        assert_eq!((flow.phase(), flow.window()), (ResumePhase::Normal, OWN));
        assert_eq!(flow.found(), []);
    }
}

#[test]
fn application_limited_acknowledgement_does_not_start_the_jump() {
    let mut flow = Flow::<false>::new(SAVED);
    let begin = flow.now;
    flow.send(20);
    flow.now += RTT;
    flow.in_flight -= 15 * MTU;
    let mut ack = Acked::new(flow.now, begin, 15 * MTU, rtt(RTT));
    ack.app_limited = true;
    flow.controller.on_ack(PATH, &ack);
    assert_eq!(flow.phase(), ResumePhase::Reconnaissance);
    flow.ack(1, begin);
    assert_eq!(flow.phase(), ResumePhase::Unvalidated);
}

#[test]
fn saved_window_is_not_used_if_half_of_it_is_not_larger_than_the_own() {
    let window = 2 * OWN;
    let flow = Flow::<false>::confirmed(SavedCapacity { window, ..SAVED }, RTT);
    assert_eq!(flow.phase(), ResumePhase::Normal);
}

#[test]
fn window_becomes_the_flight_of_the_jump() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    let [_, last] = flow.validating();
    // The result is the bytes in flight when the first of the packets arrived.
    assert_eq!(flow.found(), [Found::AtLeast(200 * MTU)]);
    assert_eq!(flow.window(), OWN);
    flow.ack(198, last - MS);
    assert_eq!(flow.phase(), ResumePhase::Validating);
    flow.ack(1, last);
    assert_eq!(flow.phase(), ResumePhase::Normal);
    assert_eq!(flow.found().len(), 1);
}

#[test]
fn unvalidated_phase_ends_after_a_round_trip() {
    let mut flow = Flow::<false>::new(SAVED);
    let begin = flow.now;
    flow.send(12);
    flow.now += RTT;
    flow.ack(10, begin);
    flow.send(50);
    // A late acknowledgement of a packet that left before the jump.
    flow.now += RTT;
    flow.ack(1, begin);
    assert_eq!(flow.phase(), ResumePhase::Unvalidated);
    flow.now += MS;
    flow.ack(1, begin);
    assert_eq!(flow.phase(), ResumePhase::Validating);
}

#[test]
fn loss_leaves_half_of_the_arrived_bytes() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    let [_, last] = flow.validating();
    flow.ack(99, last - MS);
    flow.congestion(CongestionKind::Loss, 1);
    assert_eq!(flow.phase(), ResumePhase::SafeRetreat);
    let (window, now) = (50 * MTU, flow.now);
    assert_eq!(flow.found()[1..], [Found::TooMuch { window, now }]);
    // Further losses belong to the same event.
    flow.congestion(CongestionKind::Loss, 50);
    assert_eq!(flow.found().len(), 2);
    flow.ack(49, last);
    assert_eq!(flow.found()[2..], [Found::Arrived(149 * MTU)]);
    assert_eq!(flow.phase(), ResumePhase::Normal);
}

#[test]
fn loss_before_any_acknowledgement_leaves_two_datagrams() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    flow.send(100);
    flow.now += RTT;
    flow.congestion(CongestionKind::Loss, 99);
    let now = flow.now;
    let least = 2 * MTU;
    assert_eq!(flow.found(), [Found::TooMuch { window: least, now }]);
    // The phase ends even if the last packet of the jump is lost.
    let later = flow.now + MS;
    flow.now = later;
    flow.send(1);
    flow.now += RTT;
    flow.ack(2, later);
    assert_eq!(flow.phase(), ResumePhase::Normal);
}

#[test]
fn marks_and_persistent_congestion_count_as_losses() {
    for kind in [CongestionKind::Ecn, CongestionKind::Persistent] {
        let mut flow = Flow::<true>::confirmed(SAVED, RTT);
        flow.validating();
        flow.congestion(kind, 0);
        assert_eq!(flow.phase(), ResumePhase::SafeRetreat);
    }
    let mut flow = Flow::<true>::confirmed(SAVED, RTT);
    flow.validating();
    flow.congestion(CongestionKind::Spurious, 0);
    assert_eq!(flow.phase(), ResumePhase::Validating);
}

#[test]
fn losses_within_the_tolerance_of_the_algorithm_are_ignored() {
    let mut flow = Flow::<true>::confirmed(SAVED, RTT);
    flow.validating();
    // Four of the 200 sent datagrams are lost.
    flow.congestion(CongestionKind::Loss, 4);
    assert_eq!(flow.phase(), ResumePhase::Validating);
    flow.congestion(CongestionKind::Loss, 1);
    assert_eq!(flow.phase(), ResumePhase::SafeRetreat);
}

#[test]
fn reopened_path_starts_over() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    flow.controller.on_path_opened(PATH, flow.now, MTU as u16);
    assert_eq!((flow.phase(), flow.window()), (ResumePhase::Normal, OWN));
    flow.controller.resume(PATH, flow.now, SAVED);
    assert_eq!(flow.phase(), ResumePhase::Reconnaissance);
    flow.controller.on_path_closed(PATH);
    assert_eq!(flow.phase(), ResumePhase::Normal);
}

/// Each controller goes on with the flight of the jump. After a loss, its window is half of the
/// acknowledged bytes until the retreat ends. Both numbers exceed the initial window.
#[test]
fn all_controllers_adopt_the_results_of_resuming() {
    for info in list().iter().filter(|info| info.name != "wvegas") {
        for is_lost in [false, true] {
            let mut controller = (info.make)();
            let now = start();
            controller.on_path_opened(PATH, now, MTU as u16);
            controller.resume(PATH, now, SAVED);
            let acked = |sent_at: Instant, bytes, in_flight| {
                let mut ack = Acked::new(sent_at + RTT, sent_at, bytes, rtt(RTT));
                ack.in_flight = in_flight;
                ack
            };
            controller.on_packet_sent(PATH, &sent(now, MTU, 40 * MTU));
            controller.on_ack(PATH, &acked(now, 40 * MTU, 0));
            assert_eq!(controller.window(PATH), 500_000, "{}", info.name);
            let jumped = now + RTT + MS;
            controller.on_packet_sent(PATH, &sent(jumped, MTU, 480_000));
            controller.on_ack(PATH, &acked(jumped, 120_000, 360_000));
            let window = controller.window(PATH);
            assert!(
                (480_000..=720_000).contains(&window),
                "{} {window}",
                info.name
            );
            if !is_lost {
                continue;
            }
            let mut event = congestion(CongestionKind::Loss, jumped + RTT, jumped);
            (event.lost_bytes, event.in_flight) = (240_000, 120_000);
            controller.on_congestion_event(PATH, &event);
            assert_eq!(controller.resume_phase(PATH), ResumePhase::SafeRetreat);
            assert_eq!(controller.window(PATH), 60_000, "{}", info.name);
        }
    }
}

#[test]
fn path_without_a_saved_window_starts_as_usual() {
    let mut controller = CarefulResume::<Uncoupled<crate::NewReno>>::default();
    let now = start();
    controller.on_path_opened(PATH, now, MTU as u16);
    controller.on_packet_sent(PATH, &sent(now, MTU, OWN));
    controller.on_ack(PATH, &crate::testing::acked(now + RTT, now, OWN));
    assert_eq!(controller.window(PATH), 2 * OWN);
    assert_eq!(controller.resume_phase(PATH), ResumePhase::Normal);
    assert_eq!(controller.name(), "newreno");
}

/// A server that waits for the validation of a path sends little data meanwhile. The arrival of
/// this data does not prove that later packets arrive as well.
#[test]
fn packets_within_the_own_window_do_not_confirm_the_jump() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    flow.now += MS;
    let little = flow.now;
    flow.send(2);
    flow.now += RTT / 2;
    let first = flow.now;
    flow.send(200);
    flow.now = little + RTT;
    flow.ack(2, little);
    assert_eq!(flow.phase(), ResumePhase::Unvalidated);
    flow.now = first + RTT;
    flow.ack(1, first);
    assert_eq!(flow.phase(), ResumePhase::Validating);
    assert_eq!(flow.found(), [Found::AtLeast(200 * MTU)]);
}

/// RFC 9959 section 3.3
#[test]
fn jump_ends_if_unused_for_a_round_trip() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    flow.now += MS;
    let little = flow.now;
    flow.send(2);
    flow.now += RTT + MS;
    flow.ack(2, little);
    assert_eq!(flow.phase(), ResumePhase::Validating);
}
