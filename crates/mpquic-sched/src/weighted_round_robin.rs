//! Weighted round robin.

use mpquic_core::sched::{Decision, PathView, Scheduler, SchedulerEvent, View};
use mpquic_core::{PathId, PathMap};

use crate::choice::{batch_bytes, fastest_sendable, is_measured, rate, send_batch};
use crate::fair_share::FairShare;
use crate::plain_cases::PlainCases;

/// Datagrams per turn.
const TURN: u64 = 10;

/// Gives every usable path turns so that the bytes of the paths follow weights. A path that cannot
/// send loses its turn, and may make up for at most a window later.
///
/// Source: weighted fair queueing applied to paths; round robin as in Paasch et al., "Experimental
/// Evaluation of Multipath TCP Schedulers", CSWS 2014, with weights. Inputs: window, bytes sent,
/// delivery rate. Constants: turns of ten datagrams. A late path starts level with the other paths,
/// and does not catch up with their earlier bytes.
#[derive(Debug, Default)]
pub struct WeightedRoundRobin {
    /// Fixed weights; empty if the weights follow the rates of the paths.
    weights: PathMap<f64>,
    cases: PlainCases,
    share: FairShare,
}

impl WeightedRoundRobin {
    /// Weights follow the delivery rates of the paths.
    pub fn by_rate() -> Self {
        Self::default()
    }

    /// Fixed weights. A path without a weight has weight 1. A path of weight 0 carries data only
    /// when no other path can send.
    pub fn with_weights(weights: impl IntoIterator<Item = (PathId, u32)>) -> Self {
        let mut scheduler = Self::default();
        for (path, weight) in weights {
            scheduler.weights.insert(path, f64::from(weight));
        }
        scheduler
    }
}

impl Scheduler for WeightedRoundRobin {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        let weights = &self.weights;
        let fixed = !weights.is_empty();
        let weight = |path: &PathView| match weights.get(path.id) {
            Some(weight) => *weight,
            None if fixed => 1.0,
            None if is_measured(path) => rate(path),
            None => 0.0,
        };
        match self.share.next(view, weight) {
            Some(path) => {
                let turn = TURN * u64::from(path.mtu);
                Decision::send_up_to(path.id, batch_bytes(path).min(turn))
            }
            None => fastest_sendable(view).map_or(Decision::Blocked, send_batch),
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        self.share.on_event(event);
    }

    fn name(&self) -> &'static str {
        "weighted-round-robin"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, chosen, full, path};

    /// Lets the scheduler send this many turns. Returns the bytes of each path.
    fn run(scheduler: &mut WeightedRoundRobin, scene: &mut Scene, turns: usize) -> Vec<u64> {
        let before: Vec<_> = scene.paths.iter().map(|path| path.bytes_sent).collect();
        for _ in 0..turns {
            let decision = scheduler.select(&scene.view());
            let id = chosen(&decision).expect("a path can send");
            scene.paths[id as usize].bytes_sent += 12_000;
        }
        let sent = scene.paths.iter().zip(before);
        sent.map(|(path, before)| path.bytes_sent - before)
            .collect()
    }

    #[test]
    fn bytes_follow_the_weights() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10), path(2, 10)]);
        let weights = [(PathId(0), 3), (PathId(2), 0)];
        let mut scheduler = WeightedRoundRobin::with_weights(weights);
        assert_eq!(run(&mut scheduler, &mut scene, 40), [360_000, 120_000, 0]);
    }

    #[test]
    fn bytes_follow_the_rates() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 40)]);
        let mut scheduler = WeightedRoundRobin::by_rate();
        assert_eq!(run(&mut scheduler, &mut scene, 50), [480_000, 120_000]);
    }

    #[test]
    fn blocked_or_late_path_catches_up_by_at_most_a_window() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10)]);
        let mut scheduler = WeightedRoundRobin::with_weights([(PathId(0), 1), (PathId(1), 1)]);
        scene.paths[1] = full(scene.paths[1]);
        run(&mut scheduler, &mut scene, 100);
        scene.paths[1] = path(1, 10);
        scene.paths.push(path(2, 10));
        let sent = run(&mut scheduler, &mut scene, 31);
        // Path 1 may make up for one window, and path 2 starts level with path 1.
        for late in &sent[1..] {
            assert!(late - sent[0] <= 24_000, "{sent:?}");
        }
    }
}
