//! Each rule of RFC 9959 section 3, on a controller whose window never changes by itself.

use super::*;
use crate::testing::{congestion, rtt, sent, start};
use crate::{Uncoupled, list};

const PATH: PathId = PathId(3);
const MTU: u64 = 1200;
const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(100);
const SAVED: SavedPath = SavedPath {
    window: 1_000_000,
    rtt: RTT,
};
/// The window of [`Fixed`] at first.
const OWN: u64 = 12_000;

/// What was found, instead of a window.
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

/// A path that is remembered.
struct Flow<const TOLERANT: bool> {
    controller: CarefulResume<Fixed<TOLERANT>>,
    now: Instant,
    in_flight: u64,
    rtt: Duration,
}

impl<const TOLERANT: bool> Flow<TOLERANT> {
    fn new(saved: SavedPath) -> Self {
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

    /// Ten datagrams arrived.
    fn confirmed(saved: SavedPath, round_trip: Duration) -> Self {
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

    /// The acknowledgement of datagrams, the last of which left at `sent_at`.
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

    /// 200 datagrams are sent in the Unvalidated Phase, and the first of them arrives. Returns when the
    /// first and the last left.
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
fn a_path_that_was_closed_resumes_nothing() {
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

/// RFC 9002 section 7.2: as much as the initial window has.
#[test]
fn of_large_datagrams_fewer_have_to_arrive() {
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

/// An acknowledgement without an RTT sample does not tell which path it is.
#[test]
fn a_round_trip_has_to_be_known_first() {
    let mut flow = Flow::<false>::new(SAVED);
    flow.send(20);
    let mut ack = Acked::new(flow.now + RTT, flow.now, 15 * MTU, rtt(RTT));
    ack.rtt.samples = 0;
    flow.controller.on_ack(PATH, &ack);
    assert_eq!(flow.phase(), ResumePhase::Reconnaissance);
}

/// A packet that nobody saw leave is not in flight.
#[test]
fn what_arrives_is_in_flight_even_if_it_was_not_seen_to_leave() {
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
fn half_of_what_is_remembered_is_used_and_paced_over_a_round_trip() {
    let flow = Flow::<false>::confirmed(SAVED, RTT);
    assert_eq!(flow.window(), 500_000);
    assert_eq!(flow.controller.pacing_rate(PATH), Some(5_000_000));
}

/// Acknowledgements that take a shorter way back do not make the path hold more.
#[test]
fn in_a_shorter_round_trip_less_is_in_flight_at_the_same_rate() {
    let flow = Flow::<false>::confirmed(SAVED, 60 * MS);
    assert_eq!(flow.window(), 300_000);
    assert_eq!(flow.controller.pacing_rate(PATH), Some(5_000_000));
    let flow = Flow::<false>::confirmed(SAVED, 200 * MS);
    assert_eq!(flow.window(), 500_000);
    assert_eq!(flow.controller.pacing_rate(PATH), Some(2_500_000));
}

#[test]
fn a_path_with_another_round_trip_is_another_path() {
    let used = |round_trip| {
        let flow = Flow::<false>::confirmed(SAVED, round_trip);
        flow.phase() == ResumePhase::Unvalidated
    };
    assert_eq!([50 * MS, 51 * MS].map(used), [false, true]);
    assert_eq!([999 * MS, 1000 * MS].map(used), [true, false]);
}

#[test]
fn a_loss_or_a_mark_before_ends_it() {
    for kind in [CongestionKind::Loss, CongestionKind::Ecn] {
        // A single loss, even where some are tolerated later.
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
fn it_waits_for_an_application_that_has_little_to_send() {
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
fn what_is_no_more_than_the_own_window_is_not_used() {
    let window = 2 * OWN;
    let flow = Flow::<false>::confirmed(SavedPath { window, ..SAVED }, RTT);
    assert_eq!(flow.phase(), ResumePhase::Normal);
}

#[test]
fn what_arrives_is_kept() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    let [_, last] = flow.validating();
    // What was in flight when the first of it arrived, and no more.
    assert_eq!(flow.found(), [Found::AtLeast(200 * MTU)]);
    assert_eq!(flow.window(), OWN);
    flow.ack(198, last - MS);
    assert_eq!(flow.phase(), ResumePhase::Validating);
    flow.ack(1, last);
    assert_eq!(flow.phase(), ResumePhase::Normal);
    assert_eq!(flow.found().len(), 1);
}

#[test]
fn it_is_unvalidated_for_a_round_trip_only() {
    let mut flow = Flow::<false>::new(SAVED);
    let begin = flow.now;
    flow.send(12);
    flow.now += RTT;
    flow.ack(10, begin);
    flow.send(50);
    // A late acknowledgement of what had left before.
    flow.now += RTT;
    flow.ack(1, begin);
    assert_eq!(flow.phase(), ResumePhase::Unvalidated);
    flow.now += MS;
    flow.ack(1, begin);
    assert_eq!(flow.phase(), ResumePhase::Validating);
}

#[test]
fn a_loss_leaves_half_of_what_arrived() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    let [_, last] = flow.validating();
    flow.ack(99, last - MS);
    flow.congestion(CongestionKind::Loss, 1);
    assert_eq!(flow.phase(), ResumePhase::SafeRetreat);
    let (window, now) = (50 * MTU, flow.now);
    assert_eq!(flow.found()[1..], [Found::TooMuch { window, now }]);
    // Further losses are of the same event.
    flow.congestion(CongestionKind::Loss, 50);
    assert_eq!(flow.found().len(), 2);
    flow.ack(49, last);
    assert_eq!(flow.found()[2..], [Found::Arrived(149 * MTU)]);
    assert_eq!(flow.phase(), ResumePhase::Normal);
}

#[test]
fn a_loss_before_anything_arrived_leaves_little() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    flow.send(100);
    flow.now += RTT;
    flow.congestion(CongestionKind::Loss, 99);
    let now = flow.now;
    let least = 2 * MTU;
    assert_eq!(flow.found(), [Found::TooMuch { window: least, now }]);
    // Its end is noticed even if the last of it is lost.
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
fn what_the_algorithm_tolerates_at_its_start_is_tolerated() {
    let mut flow = Flow::<true>::confirmed(SAVED, RTT);
    flow.validating();
    // Of 200 that were sent.
    flow.congestion(CongestionKind::Loss, 4);
    assert_eq!(flow.phase(), ResumePhase::Validating);
    flow.congestion(CongestionKind::Loss, 1);
    assert_eq!(flow.phase(), ResumePhase::SafeRetreat);
}

#[test]
fn a_path_that_moves_starts_over() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    flow.controller.on_path_opened(PATH, flow.now, MTU as u16);
    assert_eq!((flow.phase(), flow.window()), (ResumePhase::Normal, OWN));
    flow.controller.resume(PATH, flow.now, SAVED);
    assert_eq!(flow.phase(), ResumePhase::Reconnaissance);
    flow.controller.on_path_closed(PATH);
    assert_eq!(flow.phase(), ResumePhase::Normal);
}

/// Half of what arrived, until that is over; and all of it is more than the initial window.
#[test]
fn controllers_go_on_with_what_was_found() {
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
fn without_anything_remembered_nothing_changes() {
    let mut controller = CarefulResume::<Uncoupled<crate::NewReno>>::default();
    let now = start();
    controller.on_path_opened(PATH, now, MTU as u16);
    controller.on_packet_sent(PATH, &sent(now, MTU, OWN));
    controller.on_ack(PATH, &crate::testing::acked(now + RTT, now, OWN));
    assert_eq!(controller.window(PATH), 2 * OWN);
    assert_eq!(controller.resume_phase(PATH), ResumePhase::Normal);
    assert_eq!(controller.name(), "newreno");
}

/// A server that waits for a path to be validated has a little to send meanwhile, which is no sign that all of the
/// rest arrives.
#[test]
fn what_the_algorithm_would_have_sent_by_itself_confirms_nothing() {
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
fn what_is_not_used_for_a_round_trip_is_not_used_any_more() {
    let mut flow = Flow::<false>::confirmed(SAVED, RTT);
    flow.now += MS;
    let little = flow.now;
    flow.send(2);
    flow.now += RTT + MS;
    flow.ack(2, little);
    assert_eq!(flow.phase(), ResumePhase::Validating);
}
