//! ETC: estimated transfer completion time.

use std::time::Duration;

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{carriers, fastest_sendable, lowest_rtt, wait_for};
use crate::papers::choice::{PLANNED, backlog, send_planned};
use crate::plain_cases::PlainCases;

/// Most windows that are simulated for a plan.
const MAX_ROUNDS: usize = 8192;

/// Settings of [`Etc`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EtcConfig {
    /// Bytes planned at once.
    pub unit: u64,
    /// The first simulated window of a path is the free part of its window. The paper assumes that
    /// every path is idle when a plan is made.
    pub model_in_flight: bool,
    /// If all paths with a remaining share are blocked, send on the fastest other path instead of
    /// waiting. The paper does not describe this case; its worked example (Figure 2) waits.
    pub work_conserving: bool,
    /// The shares are weights of a round robin over the paths that have room, packet by packet.
    /// Section 4 of the paper describes this form.
    pub weighted: bool,
}

impl Default for EtcConfig {
    fn default() -> Self {
        Self {
            unit: 4_000_000,
            model_in_flight: false,
            work_conserving: false,
            weighted: false,
        }
    }
}

/// Splits a block of data so that all paths finish their shares at the same time, and sends the
/// shares interleaved. To find the shares, the scheduler simulates the growth of the windows.
///
/// Source: Zeng, Cui, Tso and Zhang, "Optimizing multipath QUIC transmission over heterogeneous
/// paths", Computer Networks 2022. Inputs: smoothed RTT, window, growth of the controller, backlog; losses
/// as congestion events. Constants: blocks of 4 MB.
///
/// Differences from the printed algorithm:
///
/// - The next path to be acknowledged is determined anew in every round. As printed, all data would
///   go to one path.
/// - Path 0 is a path like the others.
/// - The last window is clipped to the block.
/// - Windows are simulated, not approximated in closed form.
/// - Bytes in flight can be taken into account.
/// - A block is also planned again when less data is left than planned.
#[derive(Debug)]
pub struct Etc {
    config: EtcConfig,
    cases: PlainCases,
    shares: Vec<Share>,
    /// The simulated windows, in the form that the controller takes.
    windows: Vec<(PathId, u64)>,
    stale: bool,
}

/// A path's part of the block.
#[derive(Debug, Clone, Copy)]
struct Share {
    path: PathId,
    rtt: Duration,
    /// When the simulated path finishes its bytes.
    finish: Duration,
    /// The window at the start, bytes.
    first: u64,
    planned: u64,
    sent: u64,
    /// Packets that the path still has to get of the round robin.
    credit: f64,
}

impl Share {
    fn left(&self) -> u64 {
        self.planned.saturating_sub(self.sent)
    }

    /// The part of the share that is left, 0 to 1.
    fn part_left(&self) -> f64 {
        self.left() as f64 / self.planned.max(1) as f64
    }
}

impl Etc {
    /// A scheduler with these settings.
    pub fn new(config: EtcConfig) -> Self {
        Self {
            config,
            cases: PlainCases::default(),
            shares: Vec::new(),
            windows: Vec::new(),
            stale: true,
        }
    }

    fn needs_plan(&self, view: &View<'_>) -> bool {
        let left: u64 = if self.config.weighted {
            let planned: u64 = self.shares.iter().map(|share| share.planned).sum();
            planned.saturating_sub(self.shares.iter().map(|share| share.sent).sum())
        } else {
            self.shares.iter().map(Share::left).sum()
        };
        self.stale
            || left == 0
            || backlog(view) < left
            || carriers(view).count() != self.shares.len()
    }

    fn plan(&mut self, view: &View<'_>) {
        self.stale = false;
        self.shares.clear();
        self.windows.clear();
        for path in carriers(view) {
            let first = if self.config.model_in_flight {
                path.available_window()
            } else {
                path.window
            };
            self.shares.push(Share {
                path: path.id,
                rtt: path.rtt.smoothed.max(Duration::from_micros(1)),
                finish: Duration::ZERO,
                first,
                planned: 0,
                sent: 0,
                credit: 0.0,
            });
            self.windows.push((path.id, path.window));
        }
        let mut left = self.config.unit.min(backlog(view));
        for _ in 0..MAX_ROUNDS {
            if left == 0 {
                return;
            }
            left -= self.simulate_round(view, left);
        }
        // After too many rounds with small windows, the path with the largest window takes the
        // rest.
        let widest = (0..self.shares.len()).max_by_key(|index| self.windows[*index].1);
        if let Some(index) = widest {
            self.shares[index].planned += left;
        }
    }

    /// Gives a window of bytes to the path whose next acknowledgement comes first. Returns the
    /// bytes.
    fn simulate_round(&mut self, view: &View<'_>, left: u64) -> u64 {
        let earliest = (0..self.shares.len()).min_by_key(|index| {
            let share = &self.shares[*index];
            (share.finish + share.rtt, share.rtt, share.path)
        });
        let Some(index) = earliest else {
            return left;
        };
        let share = &mut self.shares[index];
        let window = if share.finish.is_zero() {
            share.first
        } else {
            self.windows[index].1
        };
        let bytes = window.min(left);
        share.planned += bytes;
        share.finish += share.rtt;
        let id = share.path;
        self.windows[index].1 = view.controller.window_after_round(id, &self.windows);
        bytes
    }

    /// The next packet of the round robin. Paths without room get no credit.
    fn next_by_weight(&mut self, view: &View<'_>) -> Option<Decision> {
        let ready = |share: &Share| {
            let path = view.path(share.path).filter(|path| path.can_send());
            path.filter(|_| share.planned > 0)
        };
        let all = self.shares.iter().filter(|share| ready(share).is_some());
        let total: u64 = all.map(|share| share.planned).sum();
        let mut next: Option<&mut Share> = None;
        for share in &mut self.shares {
            if ready(share).is_some() {
                share.credit += share.planned as f64 / total as f64;
                if next.as_ref().is_none_or(|best| share.credit > best.credit) {
                    next = Some(share);
                }
            }
        }
        let next = next?;
        next.credit -= 1.0;
        ready(next).map(|path| send_planned(path, path.mtu.into()))
    }

    fn unfinished<'a>(&self, view: &View<'a>) -> impl Iterator<Item = (&Share, &'a PathView)> {
        self.shares
            .iter()
            .filter(|share| share.left() > 0)
            .filter_map(|share| Some((share, view.path(share.path)?)))
    }
}

impl Default for Etc {
    fn default() -> Self {
        Self::new(EtcConfig::default())
    }
}

impl Scheduler for Etc {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        if self.needs_plan(view) {
            self.plan(view);
        }
        if self.config.weighted
            && let Some(decision) = self.next_by_weight(view)
        {
            return decision;
        }
        let next = self
            .unfinished(view)
            .filter(|(_, path)| path.can_send())
            .max_by(|(a, _), (b, _)| {
                let order = a.part_left().total_cmp(&b.part_left());
                order.then_with(|| (b.rtt, b.path).cmp(&(a.rtt, a.path)))
            });
        if let Some((share, path)) = next {
            return send_planned(path, share.left());
        }
        let waited = lowest_rtt(self.unfinished(view).map(|(_, path)| path)).and_then(wait_for);
        if let Some(wait) = waited.filter(|_| !self.config.work_conserving) {
            return wait;
        }
        fastest_sendable(view).map_or(Decision::Blocked, |path| send_planned(path, u64::MAX))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::Sent(packet) if packet.tag == PLANNED => {
                let share = self.shares.iter_mut().find(|s| s.path == packet.path);
                if let Some(share) = share {
                    share.sent += packet.bytes;
                }
            }
            SchedulerEvent::PathRemoved(id) => {
                self.shares.retain(|share| share.path != *id);
                self.stale = true;
            }
            SchedulerEvent::PathAdded(_)
            | SchedulerEvent::PathStatus(..)
            | SchedulerEvent::PathSuspect(_)
            | SchedulerEvent::PathRecovered(_)
            | SchedulerEvent::Congestion(..) => self.stale = true,
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_packet_events()
    }

    fn name(&self) -> &'static str {
        if self.config.weighted {
            "etc-weighted"
        } else if self.config.work_conserving {
            "etc-greedy"
        } else {
            "etc"
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Growth, Scene, full, path, sends, sent};

    /// Plans `unit` bytes for two paths. Returns the shares, the number of rounds and the time of
    /// the last acknowledgement in milliseconds.
    fn planned(unit: u64, rtts: [u64; 2], window: u64, growth: Growth) -> ([u64; 2], u32, u128) {
        let mut scene = Scene::new(vec![path(0, rtts[0]), path(1, rtts[1])]);
        scene.controller = growth;
        scene.queue.unsent = unit;
        for path in &mut scene.paths {
            path.window = window;
            path.mtu = 1;
        }
        let mut etc = Etc::default();
        etc.plan(&scene.view());
        let rounds = |share: &Share| (share.finish.as_nanos() / share.rtt.as_nanos()) as u32;
        (
            [etc.shares[0].planned, etc.shares[1].planned],
            etc.shares.iter().map(rounds).sum(),
            etc.shares
                .iter()
                .map(|s| s.finish)
                .max()
                .unwrap()
                .as_millis(),
        )
    }

    #[test]
    fn t1_plans_in_congestion_avoidance() {
        let plan = planned(200, [10, 35], 10, Growth::Additive(1));
        assert_eq!(plan, ([167, 33], 15, 120));
    }

    #[test]
    fn t3_plans_megabytes() {
        let plan = planned(4_000_000, [20, 150], 120_000, Growth::Additive(1200));
        assert_eq!((plan.0, plan.1), ([3_636_400, 363_600], 30));
    }

    #[test]
    fn t2_plans_in_slow_start() {
        let plan = planned(400_000, [10, 35], 12_000, Growth::Double);
        assert_eq!((plan.0, plan.2), ([388_000, 12_000], 60));
    }

    /// Shares of 3,636,400 and 363,600 bytes are weights of 10 to 1. A full path is passed over.
    #[test]
    fn shares_are_weights_of_a_round_robin() {
        let mut scene = Scene::new(vec![path(0, 20), path(1, 150)]);
        scene.controller = Growth::Additive(1200);
        scene.queue.unsent = 100_000_000;
        for path in &mut scene.paths {
            path.window = 120_000;
        }
        let mut etc = Etc::new(EtcConfig {
            weighted: true,
            ..EtcConfig::default()
        });
        let mut packets = |scene: &Scene, count: usize| {
            let mut packets = [0, 0];
            for _ in 0..count {
                let (path, bytes) = sends(&etc.select(&scene.view())).unwrap();
                etc.on_event(&sent(path, bytes, PLANNED), &scene.view());
                packets[path.0 as usize] += 1;
            }
            packets
        };
        assert_eq!(packets(&scene, 1100), [1000, 100]);
        scene.paths[0] = full(scene.paths[0]);
        assert_eq!(packets(&scene, 100), [0, 100]);
    }

    #[test]
    fn path_with_the_largest_window_takes_the_rest_after_many_rounds() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10), path(2, 10)]);
        scene.queue.unsent = 1 << 20;
        for (path, window) in scene.paths.iter_mut().zip([1, 2, 1]) {
            (path.window, path.mtu) = (window, 1);
        }
        let mut etc = Etc::default();
        etc.plan(&scene.view());
        let planned = [0, 1, 2].map(|index| etc.shares[index].planned);
        assert_eq!(planned.iter().sum::<u64>(), 1 << 20);
        let rounds = MAX_ROUNDS as u64;
        assert!(planned[0] <= rounds && planned[2] <= rounds, "{planned:?}");
        assert!(planned[1] > (1 << 20) - 2 * rounds, "{planned:?}");
    }

    #[test]
    fn bytes_in_flight_shorten_the_first_round() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10)]);
        scene.paths[1].in_flight = 9_000;
        scene.queue.unsent = 15_000;
        let mut etc = Etc::new(EtcConfig {
            model_in_flight: true,
            ..EtcConfig::default()
        });
        etc.plan(&scene.view());
        assert_eq!(
            (etc.shares[0].planned, etc.shares[1].planned),
            (12_000, 3_000)
        );
    }

    #[test]
    fn shares_are_kept_by_waiting_unless_work_conserving() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 35)]);
        scene.queue.unsent = 24_000;
        let mut etc = Etc::default();
        let mut bytes = [0, 0];
        while bytes.iter().sum::<u64>() < 24_000 {
            let Decision::Send { path, tag, .. } = etc.select(&scene.view()) else {
                panic!("a path has room");
            };
            bytes[path.0 as usize] += 1200;
            scene.queue.unsent -= 1200;
            etc.on_event(&sent(path, 1200, tag), &scene.view());
        }
        // Two rounds of the fast path end before one round of the slow path.
        assert_eq!(bytes, [24_000, 0]);
        scene.queue.unsent = 24_000;
        scene.paths[0] = full(scene.paths[0]);
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(etc.select(&scene.view()), wait);
        etc.config.work_conserving = true;
        assert!(matches!(
            etc.select(&scene.view()),
            Decision::Send {
                path: PathId(1),
                ..
            }
        ));
    }

    #[test]
    fn a_lost_packet_or_a_changed_path_makes_a_new_plan() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 35)]);
        let mut etc = Etc::default();
        etc.select(&scene.view());
        assert!(!etc.needs_plan(&scene.view()));
        scene.paths[0].usable = false;
        assert!(etc.needs_plan(&scene.view()));
        scene.paths[0].usable = true;
        let kind = mpquic_core::congestion::CongestionKind::Loss;
        etc.on_event(&SchedulerEvent::Congestion(PathId(1), kind), &scene.view());
        assert!(etc.needs_plan(&scene.view()));
    }

    proptest! {
        /// The plan covers exactly the waiting data, for any paths.
        #[test]
        fn shares_sum_up_to_the_block(
            windows in proptest::collection::vec((2u64..1000, 0u64..500), 1..8),
            unsent in 0u64..10_000_000,
        ) {
            let paths = windows.iter().zip(0u32..);
            let paths = paths.map(|(&(window, rtt), id)| {
                let mut path = path(id, rtt);
                path.window = window * 1200;
                path
            });
            let mut scene = Scene::new(paths.collect());
            scene.queue.unsent = unsent;
            scene.controller = Growth::Additive(1200);
            let mut etc = Etc::default();
            etc.plan(&scene.view());
            let planned: u64 = etc.shares.iter().map(|share| share.planned).sum();
            prop_assert_eq!(planned, unsent.min(4_000_000));
        }
    }
}
