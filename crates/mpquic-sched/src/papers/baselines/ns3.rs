//! The schedulers of the ns-3 module for multipath QUIC.

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{fastest_sendable, is_measured, seconds, send_batch, wait_for};
use crate::plain_cases::PlainCases;

/// The socket's send buffer in the scripts of the experiments, bytes.
const SEND_BUFFER: f64 = 40e6;
/// BLEST's factor in the scripts of the experiments. The module multiplies bytes by it without
/// scaling.
const LAMBDA: f64 = 200.0;

/// How [`Ns3`] chooses one of the first two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ns3Rule {
    /// The next of all paths.
    RoundRobin,
    /// The path with the lower latest RTT if a byte of its window is free, otherwise the other
    /// path.
    LowestRtt,
    /// Like `LowestRtt`, but if the faster path is full, BLEST's estimate decides between both
    /// paths.
    Blest,
    /// Like `LowestRtt`, but if the faster path is full, ECF's comparison decides between both
    /// paths.
    Ecf,
    /// Like `LowestRtt`, but if the faster path is full, the path that was the slower one when this
    /// happened first gets the turn, now and always.
    Peekaboo,
}

/// Chooses one path when an acknowledgement arrives, and fills the window of that path. All other
/// paths stay idle until the next acknowledgement, even if they have room.
///
/// Source: `mp-quic-scheduler.cc` and `SendPendingData` in `quic-socket-base.cc` of the ns-3 module
/// by Shu et al. (WNS3 2023), which Shu's thesis of 2023 (MSAB) compares with. Properties of that
/// code:
///
/// - All rules but round robin look at two paths.
/// - A path counts as open if a single byte of its window is free, but gets whole packets. So a
///   window that is not a multiple of a packet wastes its turn.
/// - Latest RTTs count, not smoothed RTTs.
/// - ECF divides integers, and its patience grows to twice the RTT, not by a quarter.
/// - BLEST multiplies by 200 without scaling.
/// - Peekaboo multiplies what a path earned by the matrix that it should divide by, and the rewards
///   of all decisions add up to one number. So the path of the first decision has by far the
///   highest score from then on. The first decision is for the slower path, because both scores are
///   equal. Until the paths change roles, Peekaboo decides like lowest RTT; afterwards it waits for
///   the faster path.
///
/// Constants: as in the scripts of the experiments.
///
/// Differences: lost data waits for the next turn like other data, and a path that fails is
/// replaced at once. MSAB of the same code fills all paths in every turn, see
/// [`MsabNs3`](super::MsabNs3).
#[derive(Debug)]
pub struct Ns3 {
    rule: Ns3Rule,
    cases: PlainCases,
    /// The path whose turn it is, until the next acknowledgement.
    turn: Option<PathId>,
    /// A packet was acknowledged or lost since the path was chosen.
    woken: bool,
    /// ECF has decided to wait.
    waiting: bool,
    /// The path that Peekaboo learned to choose.
    learned: Option<PathId>,
}

impl Ns3 {
    /// A scheduler with this rule.
    pub fn new(rule: Ns3Rule) -> Self {
        Self {
            rule,
            cases: PlainCases::without_copies(),
            turn: None,
            woken: true,
            waiting: false,
            learned: None,
        }
    }

    /// The path that gets this turn.
    fn choose(&mut self, view: &View<'_>) -> Option<PathId> {
        let mut usable = view.usable();
        let (first, second) = (usable.next()?, usable.next());
        let Some(second) = second else {
            return Some(first.id);
        };
        if self.rule == Ns3Rule::RoundRobin || (self.rule == Ns3Rule::Ecf && !is_measured(second)) {
            let later = |path: &&PathView| self.turn.is_none_or(|last| path.id > last);
            return Some(view.usable().find(later).unwrap_or(first).id);
        }
        if !is_measured(second) {
            return Some(second.id);
        }
        let (fast, slow) = if first.rtt.latest < second.rtt.latest {
            (first, second)
        } else {
            (second, first)
        };
        let use_fast = fast.available_window() > 0
            || match self.rule {
                Ns3Rule::RoundRobin | Ns3Rule::LowestRtt => false,
                Ns3Rule::Blest => blocks(view, fast, slow),
                Ns3Rule::Ecf => self.waits(view, fast, slow),
                Ns3Rule::Peekaboo => *self.learned.get_or_insert(slow.id) == fast.id,
            };
        Some(if use_fast { fast.id } else { slow.id })
    }

    /// ECF's comparison, in whole windows.
    fn waits(&mut self, view: &View<'_>, fast: &PathView, slow: &PathView) -> bool {
        let rounds = |path: &PathView| (view.queue.unsent / path.window.max(1)) as f64;
        let (fast_rtt, slow_rtt) = (seconds(fast.rtt.latest), seconds(slow.rtt.latest));
        let margin = fast.rtt.variance.max(slow.rtt.variance).as_secs_f64();
        let patience = if self.waiting { 2.0 } else { 1.0 };
        if (1.0 + rounds(fast)) * fast_rtt >= patience * (slow_rtt + margin) {
            self.waiting = false;
            return false;
        }
        let waits = rounds(slow) * slow_rtt >= 2.0 * fast_rtt + margin;
        self.waiting |= waits;
        waits
    }
}

/// BLEST's estimate: true if the slow path should stay idle.
fn blocks(view: &View<'_>, fast: &PathView, slow: &PathView) -> bool {
    let mtu = f64::from(fast.mtu.max(1));
    let ratio = seconds(slow.rtt.latest) / seconds(fast.rtt.latest);
    let window = (fast.window / u64::from(fast.mtu.max(1))) as f64;
    let sent_on_fast = mtu * (window + (ratio - 1.0) / 2.0) * ratio;
    let room = SEND_BUFFER - view.queue.unsent as f64 - slow.in_flight as f64 - mtu;
    sent_on_fast * LAMBDA > room
}

impl Scheduler for Ns3 {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        let is_usable = |id| view.path(id).is_some_and(|path| path.usable);
        if std::mem::take(&mut self.woken) || !self.turn.is_some_and(is_usable) {
            self.turn = self.choose(view);
        }
        let turn = self.turn.and_then(|id| view.path(id));
        let decision = turn.and_then(|path| {
            if path.can_send() {
                Some(send_batch(path))
            } else {
                wait_for(path)
            }
        });
        // A path that can neither send nor be waited for must not block the others.
        decision
            .or_else(|| fastest_sendable(view).map(send_batch))
            .unwrap_or(Decision::Blocked)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        if let SchedulerEvent::Acked(..) | SchedulerEvent::Lost(_) = event {
            self.woken = true;
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_packet_events()
    }

    fn name(&self) -> &'static str {
        match self.rule {
            Ns3Rule::RoundRobin => "round-robin-ns3",
            Ns3Rule::LowestRtt => "lrf-ns3",
            Ns3Rule::Blest => "blest-ns3",
            Ns3Rule::Ecf => "ecf-ns3",
            Ns3Rule::Peekaboo => "peekaboo-ns3",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{Scene, chosen, full, packet, path, unmeasured};

    fn acknowledge(scheduler: &mut Ns3, scene: &Scene) {
        let acked = SchedulerEvent::Acked(packet(PathId(0), 0), None);
        scheduler.on_event(&acked, &scene.view());
    }

    /// The paths of the next decisions, with an acknowledgement before each; `None` for a wait.
    fn turns(scheduler: &mut Ns3, scene: &Scene, count: usize) -> Vec<Option<u32>> {
        let next = |_| {
            acknowledge(scheduler, scene);
            chosen(&scheduler.select(&scene.view()))
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn one_path_has_the_turn_until_the_next_acknowledgement() {
        let mut scene = Scene::new(vec![path(0, 50), path(1, 10), path(2, 5)]);
        let mut ns3 = Ns3::new(Ns3Rule::RoundRobin);
        assert_eq!(turns(&mut ns3, &scene, 4), [0, 1, 2, 0].map(Some));
        // The path with the turn keeps it, and no other path sends when its window is full.
        assert_eq!(chosen(&ns3.select(&scene.view())), Some(0));
        scene.paths[0] = full(path(0, 50));
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(ns3.select(&scene.view()), wait);
        acknowledge(&mut ns3, &scene);
        assert_eq!(chosen(&ns3.select(&scene.view())), Some(1));
    }

    #[test]
    fn a_byte_of_room_on_the_fast_path_keeps_the_slow_one_idle() {
        let mut scene = Scene::new(vec![path(0, 50), full(path(1, 10))]);
        let mut ns3 = Ns3::new(Ns3Rule::LowestRtt);
        assert_eq!(turns(&mut ns3, &scene, 1), [Some(0)]);
        scene.paths[1].in_flight -= 1;
        assert_eq!(turns(&mut ns3, &scene, 1), [None]);
    }

    #[test]
    fn a_third_path_is_never_used() {
        let scene = Scene::new(vec![path(0, 50), full(path(1, 40)), path(2, 5)]);
        for rule in [
            Ns3Rule::LowestRtt,
            Ns3Rule::Blest,
            Ns3Rule::Ecf,
            Ns3Rule::Peekaboo,
        ] {
            assert_eq!(turns(&mut Ns3::new(rule), &scene, 3), [Some(0); 3]);
        }
    }

    #[test]
    fn peekaboo_repeats_its_first_answer() {
        let mut scene = Scene::new(vec![path(0, 50), full(path(1, 10))]);
        let mut ns3 = Ns3::new(Ns3Rule::Peekaboo);
        assert_eq!(turns(&mut ns3, &scene, 2), [Some(0); 2]);
        // The fast path is used whenever it has a byte of room.
        scene.paths[1] = path(1, 10);
        assert_eq!(turns(&mut ns3, &scene, 1), [Some(1)]);
        // The paths change roles: the first answer was path 0, which is now full and waited for.
        scene.paths = vec![full(path(0, 10)), path(1, 50)];
        assert_eq!(turns(&mut ns3, &scene, 2), [None; 2]);
        let mut afresh = Ns3::new(Ns3Rule::Peekaboo);
        assert_eq!(turns(&mut afresh, &scene, 1), [Some(1)]);
    }

    #[test]
    fn data_on_unmeasured_paths_is_not_copied() {
        let scene = Scene::new(vec![unmeasured(0), unmeasured(1)]);
        let decision = Ns3::new(Ns3Rule::LowestRtt).select(&scene.view());
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
    }

    #[test]
    fn the_latest_rtt_counts() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 50)]);
        scene.paths[1].rtt.latest = Duration::from_millis(5);
        let mut ns3 = Ns3::new(Ns3Rule::LowestRtt);
        assert_eq!(turns(&mut ns3, &scene, 1), [Some(1)]);
    }

    #[test]
    fn ecf_counts_whole_windows_and_doubles_its_patience() {
        let mut scene = Scene::new(vec![path(0, 50), full(path(1, 10))]);
        let mut ns3 = Ns3::new(Ns3Rule::Ecf);
        // A backlog below one window counts as no round, so the slow path never looks too slow.
        scene.queue.unsent = 11_999;
        assert_eq!(turns(&mut ns3, &scene, 1), [Some(0)]);
        // Three windows: 4 * 10 ms against 50 ms, and 3 * 50 ms against 20 ms: wait.
        scene.queue.unsent = 36_000;
        assert_eq!(turns(&mut ns3, &scene, 1), [None]);
        // Eight windows, 9 * 10 ms: not less than 50 ms, but still less than twice 50 ms.
        scene.queue.unsent = 108_000 - 12_000;
        assert_eq!(turns(&mut ns3, &scene, 1), [None]);
        scene.queue.unsent = 108_000;
        assert_eq!(turns(&mut ns3, &scene, 1), [Some(0)]);
        scene.queue.unsent = 48_000;
        assert_eq!(turns(&mut ns3, &scene, 1), [Some(0)]);
    }

    #[test]
    fn ecf_waits_where_the_slow_path_takes_two_fast_round_trips_and_the_variation() {
        let decide = |fast_rtt, variance, window| {
            let mut scene = Scene::new(vec![path(0, 50), full(path(1, fast_rtt))]);
            scene.paths[0].window = window;
            scene.paths[0].rtt.variance = Duration::from_millis(variance);
            scene.queue.unsent = 12_000;
            turns(&mut Ns3::new(Ns3Rule::Ecf), &scene, 1)
        };
        // One window is one round of 50 ms on the slow path; the fast path takes two, 48 ms.
        assert_eq!(decide(24, 2, 12_000), [None]);
        assert_eq!(decide(24, 3, 12_000), [Some(0)]);
        // The slow path's own window counts.
        assert_eq!(decide(24, 2, 12_001), [Some(0)]);
        // A window of 0 bytes counts as one byte.
        assert_eq!(decide(24, 2, 0), [None]);
    }

    #[test]
    fn blest_multiplies_bytes_by_200() {
        // 10 packets, RTTs of 5 to 1: 1200 * (10 + 2) * 5 * 200 = 14.4 MB.
        let mut scene = Scene::new(vec![path(0, 50), full(path(1, 10))]);
        let mut ns3 = Ns3::new(Ns3Rule::Blest);
        scene.queue.unsent = 40_000_000 - 14_400_000 - 1_200;
        assert_eq!(turns(&mut ns3, &scene, 1), [Some(0)]);
        scene.queue.unsent += 1;
        assert_eq!(turns(&mut ns3, &scene, 1), [None]);
    }
}
