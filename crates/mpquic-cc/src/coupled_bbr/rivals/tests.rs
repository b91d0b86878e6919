//! How other flows show in the queue, and the reaction to them. The resulting shares of a
//! bottleneck are tested in the laboratory, `mpquic-sim`.

use super::*;
use crate::testing::start;

mod limits;

const MS: Duration = Duration::from_millis(1);
const MTU: f64 = 1200.0;
/// Delivery rate, bytes per second: 20 Mbit/s.
const RATE: f64 = 2.5e6;
/// Minimum RTT, ms.
const FLOOR_MS: f64 = 40.0;

/// A path that cruises at a constant rate, behind a queue that other flows fill.
struct Path {
    rivals: Rivals,
    now: Instant,
    last_probe: Instant,
    rate: f64,
    strangers: Strangers,
}

impl Path {
    /// A path after ten round trips without a queue, so that the minimum RTT is known.
    fn new() -> Self {
        let mut path = Self {
            rivals: Rivals::default(),
            now: start(),
            last_probe: start(),
            rate: RATE,
            strangers: Strangers::None,
        };
        for _ in 0..10 {
            path.round(FLOOR_MS);
        }
        path.last_probe = path.now;
        path
    }

    /// A round trip of `rtt_ms` milliseconds.
    fn round(&mut self, rtt_ms: f64) {
        let round = self.samples(rtt_ms);
        self.rivals.on_round(&round);
    }

    /// Takes the RTT samples of a round trip, and returns the round trip.
    fn samples(&mut self, rtt_ms: f64) -> Round {
        let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
        for _ in 0..10 {
            self.now += rtt / 10;
            self.rivals.on_rtt(self.now, rtt);
        }
        Round {
            now: self.now,
            is_cruising: true,
            app_limited: false,
            strangers: self.strangers,
            in_flight: 100_000.0,
            rate: self.rate,
            mtu: MTU,
            since_probe: self.now - self.last_probe,
        }
    }

    fn window(&mut self) -> &mut Window {
        match &mut self.rivals.verdict {
            Verdict::LossBased(window) => window,
            other => panic!("no loss-based flow: {other:?}"),
        }
    }

    /// Round trips beside a queue that slowly grows to half a round trip. An inspection shortens
    /// the queue without draining it. Ends when a loss-based flow is found.
    fn grow(&mut self, count: u32) {
        for index in 0..count {
            if self.is_loss_based() {
                return;
            }
            let queue = f64::from(index.min(20));
            self.round_beside(queue);
        }
    }

    /// A round trip beside another flow, with a queue of `queue` milliseconds. During an
    /// inspection, 60 % of the queue remain.
    fn round_beside(&mut self, queue: f64) {
        let left = if self.is_inspecting() { 0.6 } else { 1.0 };
        self.round(FLOOR_MS + left * queue);
    }

    fn is_inspecting(&self) -> bool {
        self.rivals.inspection.is_some()
    }

    fn is_loss_based(&self) -> bool {
        matches!(self.rivals.verdict, Verdict::LossBased(_))
    }

    /// A path at the beginning of its first inspection.
    fn inspecting() -> Self {
        let mut path = Self::new();
        for queue in 0..10 {
            if !path.is_inspecting() {
                path.round(FLOOR_MS + f64::from(queue));
            }
        }
        assert!(path.is_inspecting());
        path
    }

    /// A path beside a loss-based flow, with a bound.
    fn bound() -> Self {
        let mut path = Self::new();
        path.grow(300);
        assert!(path.is_loss_based());
        path.round(FLOOR_MS * 1.5);
        path
    }
}

/// The state of a group beside a loss-based flow.
pub(in crate::coupled_bbr) fn bound() -> Rivals {
    Path::bound().rivals
}

/// The state of a group after a loss-based flow has left.
pub(in crate::coupled_bbr) fn left() -> Rivals {
    let mut path = Path::bound();
    while path.rivals.bound().is_some() {
        path.round(FLOOR_MS * 1.02);
    }
    path.rivals
}

#[test]
fn queue_stands_above_fifteen_percent_of_the_minimum_rtt() {
    let mut rivals = Path::new().rivals;
    rivals.watch.shortest = STANDING * rivals.floor.get();
    assert!(!rivals.has_queue());
    rivals.watch.shortest *= 1.0 + 1e-9;
    assert!(rivals.has_queue());
}

#[test]
fn group_is_alone_a_minute_after_another_flow_was_seen() {
    let mut rivals = Rivals::default();
    let seen = start();
    assert!(rivals.is_alone(seen));
    rivals.seen = Some(seen);
    assert!(!rivals.is_alone(seen + Duration::from_secs(60)));
    assert!(rivals.is_alone(seen + Duration::from_millis(60_001)));
}

#[test]
fn rounds_of_settling_restart_after_an_inspection() {
    let mut path = Path::inspecting();
    for _ in 0..INSPECTION_ROUNDS {
        path.round(FLOOR_MS + 8.0);
    }
    assert!(!path.is_inspecting());
    assert_eq!(path.rivals.watch.rounds, 0);
}

#[test]
fn loss_based_flow_is_inspected_when_the_window_nears_its_peak() {
    let mut path = Path::bound();
    let window = |path: &mut Path, part: f64| {
        let now = path.now;
        let Verdict::LossBased(window) = &mut path.rivals.verdict else {
            panic!("no loss-based flow");
        };
        window.bytes = part * window.peak;
        window.inspected_at = now;
    };
    window(&mut path, 0.89);
    let from = path.now;
    while path.now < from + INSPECTION_INTERVAL + 200 * MS {
        path.round(FLOOR_MS * 1.5);
        assert!(!path.is_inspecting(), "far below where it was cut");
    }
    window(&mut path, 0.91);
    let from = path.now;
    while path.now < from + INSPECTION_INTERVAL {
        path.round(FLOOR_MS * 1.5);
        assert_eq!(path.is_inspecting(), path.now > from + INSPECTION_INTERVAL);
    }
    path.round(FLOOR_MS * 1.5);
    assert!(path.is_inspecting());
}

#[test]
fn without_a_queue_no_probe_waits() {
    let mut path = Path::new();
    for _ in 0..500 {
        path.round(FLOOR_MS * 1.05);
        assert!(!path.rivals.is_patient());
    }
    assert_eq!(path.rivals.bound(), None);
}

#[test]
fn jitter_does_not_count_as_a_queue() {
    let mut path = Path::new();
    for round in 0..500u32 {
        for sample in 0..20 {
            let late = f64::from((round * 7 + sample * 13) % 20);
            let rtt = Duration::from_secs_f64((FLOOR_MS + late) / 1e3);
            path.rivals.on_rtt(path.now, rtt);
        }
        path.round(FLOOR_MS * 1.25);
        assert!(!path.rivals.is_patient());
    }
}

#[test]
fn slowly_growing_queue_shows_a_loss_based_flow() {
    let mut path = Path::new();
    let began = path.now;
    path.grow(20);
    assert!(path.rivals.is_patient());
    assert_eq!(path.rivals.bound(), None, "too early to say");
    path.grow(200);
    let waited = path.now - began;
    assert!(waited > PATIENCE && waited < PATIENCE * 2, "{waited:?}");
    assert_eq!(path.rivals.bound(), Some(100_000.0 * DECREASE));
}

/// An inspection comes first: it leaves only the bytes in flight that our own rate needs.
#[test]
fn queue_that_drains_in_an_inspection_is_ours() {
    let mut path = Path::inspecting();
    let left = path.rivals.bound().unwrap();
    // Bytes in flight divided by the mean RTT give a lower rate than the last sample here.
    let mean = path.rivals.watch.means[0];
    assert!(100_000.0 / mean < RATE);
    let own = 100_000.0 / mean * FLOOR_MS / 1e3 + SPARE_DATAGRAMS * MTU;
    assert!((left - own).abs() < 1.0, "{left}");
    for _ in 0..INSPECTION_ROUNDS {
        assert!(path.rivals.bound().is_some());
        path.round(FLOOR_MS);
    }
    // Until the next probe, a queue too short to stand changes nothing.
    for _ in 0..200 {
        assert!(!path.rivals.is_patient() && path.rivals.bound().is_none());
        path.round(FLOOR_MS * 1.14);
    }
    path.rivals.on_probe();
    path.round(FLOOR_MS * 1.2);
    assert!(path.is_inspecting());
}

/// The delay is a longer route, or jitter.
#[test]
fn delay_unmoved_by_an_inspection_is_not_a_queue() {
    let mut path = Path::inspecting();
    for _ in 0..INSPECTION_ROUNDS {
        path.round(FLOOR_MS * 1.3);
    }
    let found = path.now;
    while !path.is_inspecting() {
        assert!(!path.rivals.is_patient());
        path.round(FLOOR_MS * 1.3);
    }
    assert!(path.now - found > REST);
}

/// Our own probes cause many losses, so losses do not show another flow.
#[test]
fn losses_without_a_queue_change_nothing() {
    let mut path = Path::new();
    for _ in 0..500 {
        assert!(!path.rivals.on_loss(path.now, path.now - 10 * MS));
        path.round(FLOOR_MS * 1.1);
        assert!(!path.rivals.is_patient() && path.rivals.bound().is_none());
    }
}

#[test]
fn bound_ends_when_the_queue_drains_or_stays_empty() {
    let mut path = Path::bound();
    while !path.is_inspecting() {
        path.round(FLOOR_MS * 1.5);
    }
    for _ in 0..INSPECTION_ROUNDS {
        assert!(path.rivals.bound().is_some());
        path.round(FLOOR_MS);
    }
    assert_eq!(path.rivals.bound(), None);
    assert!(path.rivals.is_probe_due() && !path.rivals.is_patient());
    path.rivals.on_probe();
    assert!(!path.rivals.is_probe_due());

    // If the queue stays empty by itself, no inspection is necessary.
    let mut path = Path::bound();
    for _ in 0..=EMPTY_ROUNDS {
        assert!(path.rivals.bound().is_some());
        path.round(FLOOR_MS * 1.02);
    }
    assert!(path.rivals.bound().is_none() && path.rivals.is_probe_due());
}

#[test]
fn jump_of_the_queue_shows_a_probing_flow() {
    let mut path = Path::new();
    path.grow(20);
    assert!(path.rivals.is_patient());
    path.round(FLOOR_MS * 2.0);
    // Our own probe is due at once, and we go on as usual.
    assert!(path.rivals.is_probe_due() && !path.rivals.is_patient());
    path.rivals.on_probe();
    path.last_probe = path.now;
    path.grow(100);
    assert!(!path.rivals.is_patient() && path.rivals.bound().is_none());
    // The probing flow is forgotten after [`MEMORY`].
    path.grow(400);
    assert!(path.rivals.bound().is_some());
}

#[test]
fn jump_of_the_queue_ends_the_bound() {
    let mut path = Path::bound();
    for _ in 0..20 {
        path.round(FLOOR_MS * 1.5);
    }
    assert!(path.is_loss_based());
    path.round(FLOOR_MS * 1.8);
    assert!(path.rivals.bound().is_none() && path.rivals.is_probe_due());
}

#[test]
fn deep_queue_or_few_datagrams_per_round_change_nothing() {
    let mut deep = Path::new();
    let mut thin = Path::new();
    // Fifteen datagrams in a round trip.
    thin.rate = 15.0 * MTU / (FLOOR_MS / 1e3);
    for index in 0..400 {
        let slowly = FLOOR_MS + 2.0 * f64::from(index);
        deep.round(slowly.min(FLOOR_MS * 3.0));
        thin.round(slowly.min(FLOOR_MS * 1.5));
        // The queue becomes deep only after some round trips.
        if index > 40 {
            assert!(!deep.rivals.is_patient() && deep.rivals.bound().is_none());
        }
        assert!(!thin.rivals.is_patient() && thin.rivals.bound().is_none());
    }
}

#[test]
fn window_grows_half_a_datagram_per_round_and_shrinks_once_per_overflow() {
    let mut path = Path::bound();
    let before = path.rivals.bound().unwrap();
    // Acknowledgements of a round trip, from any path of the group. Application-limited
    // acknowledgements do not count.
    for _ in 0..10 {
        path.rivals.on_ack(before / 10.0, MTU, false);
        path.rivals.on_ack(before, MTU, true);
    }
    let grown = path.rivals.bound().unwrap();
    assert!(
        ((grown - before) / MTU - INCREASE).abs() < 0.01,
        "{before} {grown}"
    );
    path.round(FLOOR_MS * 1.5);
    let sent_at = path.now;
    path.now += 40 * MS;
    assert!(path.rivals.on_loss(path.now, sent_at));
    assert_eq!(path.rivals.bound(), Some(grown * DECREASE));
    // A second loss in the same round trip does not shrink the window.
    assert!(!path.rivals.on_loss(path.now, sent_at));
    // A loss without a queue does not shrink the window.
    path.round(FLOOR_MS * 1.1);
    assert!(!path.rivals.on_loss(path.now, path.now));
    assert_eq!(path.rivals.bound(), Some(grown * DECREASE));
}

#[test]
fn single_long_rtt_does_not_hide_losses() {
    let mut path = Path::bound();
    for _ in 0..20 {
        path.round(FLOOR_MS * 1.5);
    }
    // One long RTT among ten others moves the mean by less than a jump.
    path.rivals
        .on_rtt(path.now, Duration::from_secs_f64(FLOOR_MS * 2.6 / 1e3));
    for _ in 0..2 {
        path.round(FLOOR_MS * 1.5);
    }
    let before = path.rivals.bound().unwrap();
    assert!(path.rivals.on_loss(path.now + MS, path.now));
    assert_eq!(path.rivals.bound(), Some(before * DECREASE));
}

#[test]
fn no_probe_waits_while_another_path_may_share_the_bottleneck() {
    let mut path = Path::new();
    path.strangers = Strangers::Open;
    path.grow(200);
    assert!(!path.rivals.is_patient() && path.rivals.bound().is_none());
    path.strangers = Strangers::Separate;
    path.grow(300);
    assert!(path.is_loss_based());
    // A queue on another path as well makes the result of the trials doubtful.
    path.strangers = Strangers::Open;
    path.round(FLOOR_MS * 1.4);
    assert!(!path.rivals.is_patient() && path.rivals.bound().is_none());
}

#[test]
fn loss_based_verdict_ends_after_its_term() {
    let mut path = Path::bound();
    let began = path.now;
    let mut inspections = 0;
    while path.is_loss_based() {
        let before = path.is_inspecting();
        path.round_beside(0.5 * FLOOR_MS);
        inspections += u32::from(path.is_inspecting() && !before);
        assert!(path.now - began < TERM * 2);
    }
    assert!((2..=12).contains(&inspections), "{inspections}");
    assert!(!path.rivals.is_probe_due());
}

/// A drained queue was ours if it stays away. If it comes back while we only cruise, a small flow
/// beside ours was hidden: its packets fit into the bytes in flight that our own rate needs.
#[test]
fn queue_that_returns_after_an_inspection_shows_another_flow() {
    for (returned, is_patient) in [(0.0, false), (0.1, false), (0.2, true)] {
        let mut path = Path::inspecting();
        for _ in 0..INSPECTION_ROUNDS {
            path.round(FLOOR_MS);
        }
        assert!(matches!(path.rivals.verdict, Verdict::Alone(None)));
        for round in 1..=RETURNED_ROUNDS {
            assert!(!path.rivals.is_patient(), "{returned} {round}");
            path.round(FLOOR_MS * (1.0 + returned));
        }
        assert_eq!(path.rivals.is_patient(), is_patient, "{returned}");
        assert_eq!(
            matches!(path.rivals.verdict, Verdict::Somebody(_)),
            is_patient,
            "{returned}"
        );
        if !is_patient {
            continue;
        }
        // If a second inspection drains the queue as well, the probe no longer waits.
        while !path.is_inspecting() {
            assert!(path.now < path.last_probe + PATIENCE * 2);
            path.round(FLOOR_MS * (1.0 + returned));
        }
        for _ in 0..INSPECTION_ROUNDS {
            path.round(FLOOR_MS);
        }
        assert!(!path.rivals.is_patient());
    }
}

/// When our own bytes in flight grow, the queue follows for some round trips. This growth is not a
/// probe of another flow.
#[test]
fn growth_of_an_unsettled_queue_is_not_a_jump() {
    for (settled, jumps) in [(6, false), (7, false), (8, true)] {
        let mut path = Path::new();
        path.rivals.watch.rounds = 0;
        for _ in 0..settled {
            path.round(FLOOR_MS * 1.1);
        }
        path.round(FLOOR_MS * 1.3);
        let is_prober = matches!(path.rivals.verdict, Verdict::Prober(_));
        assert_eq!(is_prober, jumps, "{settled}");
    }
}
