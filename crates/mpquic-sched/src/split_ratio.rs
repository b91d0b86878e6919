//! A split that is set from outside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mpquic_core::sched::{
    Decision, PathView, Scheduler, SchedulerEvent, SchedulerFactory, View, factory,
};
use mpquic_core::{PathId, PathMap};

use crate::choice::{fastest_sendable, send_batch};
use crate::fair_share::FairShare;
use crate::plain_cases::PlainCases;

/// The weights of paths. All clones share the same weights. An agent can set the weights at any
/// time and from any thread, and the schedulers of these weights follow.
///
/// ```
/// use mpquic_core::PathId;
/// use mpquic_sched::{SplitRatio, SplitWeights};
///
/// let weights = SplitWeights::default();
/// let factory = SplitRatio::factory(&weights);
/// weights.set([(PathId(0), 0.8), (PathId(1), 0.2)]);
/// # assert_eq!(factory.build().name(), "split-ratio");
/// ```
#[derive(Debug, Clone, Default)]
pub struct SplitWeights(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Grows with every change.
    version: AtomicU64,
    weights: Mutex<Vec<(PathId, f64)>>,
}

impl SplitWeights {
    /// Replaces all weights. Only their ratio counts. A path without a positive, finite weight
    /// carries data only when no other path can send. Without any weights, all paths get the same
    /// number of bytes.
    pub fn set(&self, weights: impl IntoIterator<Item = (PathId, f64)>) {
        let mut shared = self
            .0
            .weights
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shared.clear();
        shared.extend(weights);
        self.0.version.fetch_add(1, Ordering::Release);
    }
}

/// Divides the bytes among the paths by the weights of an outside agent, for example a trained
/// model. The agent may change the weights at any time. A full path is passed over.
///
/// Source: the interface of ReLeS (Zhang, Li, Gao et al., "ReLeS: A Neural Adaptive Multipath
/// Scheduler based on Deep Reinforcement Learning", INFOCOM 2019). The neural network behind the
/// weights is not part of this crate; the network reads the statistics of the connection. Inputs:
/// weights, bytes sent. Constants: none.
#[derive(Debug, Default)]
pub struct SplitRatio {
    shared: SplitWeights,
    /// The version of the last read weights.
    version: u64,
    weights: PathMap<f64>,
    cases: PlainCases,
    share: FairShare,
}

impl SplitRatio {
    /// A scheduler that follows these weights.
    pub fn new(weights: &SplitWeights) -> Self {
        Self {
            shared: weights.clone(),
            ..Self::default()
        }
    }

    /// A factory of schedulers that follow these weights.
    pub fn factory(weights: &SplitWeights) -> Arc<dyn SchedulerFactory> {
        let weights = weights.clone();
        factory("split-ratio", move || Box::new(Self::new(&weights)))
    }

    /// Reads the weights if they changed.
    fn read(&mut self) {
        let version = self.shared.0.version.load(Ordering::Acquire);
        if version == self.version {
            return;
        }
        self.version = version;
        self.weights.clear();
        let shared = &self.shared.0.weights;
        for (path, weight) in &*shared.lock().unwrap_or_else(PoisonError::into_inner) {
            if weight.is_finite() && *weight > 0.0 {
                self.weights.insert(*path, *weight);
            }
        }
    }
}

impl Scheduler for SplitRatio {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        self.read();
        let (weights, equal) = (&self.weights, self.weights.is_empty());
        let weight = |path: &PathView| match weights.get(path.id) {
            Some(weight) => *weight,
            None => f64::from(u8::from(equal)),
        };
        match self.share.next(view, weight) {
            Some(path) => Decision::send(path.id),
            None => fastest_sendable(view).map_or(Decision::Blocked, send_batch),
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        self.share.on_event(event);
    }

    fn name(&self) -> &'static str {
        "split-ratio"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, chosen, path};

    fn packets(scheduler: &mut SplitRatio, scene: &mut Scene) -> [u32; 2] {
        let mut packets = [0, 0];
        for _ in 0..100 {
            let id = chosen(&scheduler.select(&scene.view())).expect("both have room") as usize;
            packets[id] += 1;
            scene.paths[id].bytes_sent += 1200;
        }
        packets
    }

    #[test]
    fn the_split_follows_the_weights_as_they_change() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 100)]);
        let weights = SplitWeights::default();
        let mut scheduler = SplitRatio::new(&weights);
        assert_eq!(packets(&mut scheduler, &mut scene), [50, 50]);
        weights.set([(PathId(0), 0.8), (PathId(1), 0.2)]);
        let split = packets(&mut scheduler, &mut scene);
        assert!(split[0].abs_diff(80) <= 1, "{split:?}");
        for nonsense in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            weights.set([(PathId(0), nonsense), (PathId(1), 3.0)]);
            assert_eq!(packets(&mut scheduler, &mut scene), [0, 100], "{nonsense}");
        }
    }
}
