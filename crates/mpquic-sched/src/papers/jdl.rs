//! JDL: path selection by joint delay and loss.

use std::time::{Duration, Instant};

use mpquic_core::sched::{Decision, PathView, Scheduler, SchedulerEvent, View};
use mpquic_core::{PathId, PathMap};

use crate::choice::{carriers, fastest_sendable, is_measured, rate, send_batch, wait_for};
use crate::papers::choice::one_way_delay;
use crate::plain_cases::PlainCases;

/// Keeps a path without losses from outweighing all other paths.
const EPSILON: f64 = 1e-4;
/// The set is chosen again after this time.
const RESELECT_AFTER: Duration = Duration::from_secs(1);
/// The set is chosen again when a score changes by this share.
const RESELECT_CHANGE: f64 = 0.25;

/// Requirements of an application for the paths; each bound is optional.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// Bytes per second that the set should deliver together.
    pub bandwidth: Option<u64>,
    /// Longest one-way delay of a path in the set.
    pub delay: Option<Duration>,
    /// Largest mean loss rate of the paths in the set, 0 to 1.
    pub loss: Option<f64>,
}

/// Settings of [`Jdl`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JdlConfig {
    /// Largest number of paths in the set.
    pub paths: usize,
    /// Weight of the delay in a score.
    pub delay_weight: f64,
    /// Weight of the loss rate in a score.
    pub loss_weight: f64,
    /// Requirements for the set.
    pub demand: Demand,
}

impl Default for JdlConfig {
    fn default() -> Self {
        Self {
            paths: 3,
            delay_weight: 0.5,
            loss_weight: 0.5,
            demand: Demand::default(),
        }
    }
}

impl JdlConfig {
    /// Settings from parameters of a name, such as `delay_ms=50`; `None` if one is wrong.
    pub(crate) fn of_parameters<'a>(parameters: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut config = Self::default();
        for parameter in parameters {
            let (key, value) = parameter.split_once('=')?;
            let number = || {
                value
                    .parse::<f64>()
                    .ok()
                    .filter(|n| (1e-6..=1e6).contains(n))
            };
            let demand = &mut config.demand;
            match key {
                "paths" => config.paths = value.parse().ok().filter(|paths| *paths > 0)?,
                "rate_mbit" => demand.bandwidth = Some((number()? * 125_000.0) as u64),
                "delay_ms" => demand.delay = Some(Duration::from_secs_f64(number()? / 1e3)),
                "loss_pct" => demand.loss = Some(number()? / 100.0),
                _ => return None,
            }
        }
        Some(config)
    }
}

/// Sends on a small set of paths with the best scores of delay and loss, in the order of their
/// scores. Paths outside the set stay idle.
///
/// Source: Hu, Lin, Sung et al., "Enhanced Multipath QUIC Protocol with Lower Path Delay and Packet
/// Loss Rate". Inputs: one-way delay, loss rate, delivery rate. Constants: three paths, equal
/// weights. A new choice is made every second, on path events, and when a score changed by a
/// quarter.
///
/// Differences from the paper:
///
/// - Scores divide the bounds of the [`Demand`] by the delay and loss of each path. As printed,
///   scores divide the bounds by values of the whole set, which are equal for all paths.
/// - Without a bound, the lowest value of all paths takes the place of the bound.
/// - A loss rate of 0 counts as 0.01 per cent more, as all loss rates do in a score.
/// - Fewer paths than wanted are not an error.
/// - An exact fit of the bandwidth is a fit.
/// - The paper does not say how a set meets the bound of the mean loss. Here the path with the
///   highest loss rate makes room for the path with the lowest, as in the paper's search for
///   bandwidth, and leaves the set if no path outside loses less.
/// - A swap for bandwidth keeps the bounds.
/// - A bound that no path meets does not count.
///
/// Links that several paths share are left out, because an endpoint cannot see them. The paper does
/// not describe how packets are split within the set; here they are split by score. It does not
/// describe how losses are known either; here a path counts as free of losses until it shows some.
#[derive(Debug)]
pub struct Jdl {
    config: JdlConfig,
    cases: PlainCases,
    /// Paths within the bound of the delay; the first [`Self::chosen`] of them are the set.
    candidates: Vec<Candidate>,
    /// Number of paths in the set.
    chosen: usize,
    /// The scores of all paths at the time of the choice.
    scores: PathMap<f64>,
    chosen_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    path: PathId,
    score: f64,
    delay: f64,
    loss: f64,
    rate: f64,
}

fn mean_loss(set: &[Candidate]) -> f64 {
    set.iter().map(|candidate| candidate.loss).sum::<f64>() / set.len() as f64
}

/// The lowest delay and the lowest loss rate of all paths.
#[derive(Debug, Clone, Copy)]
struct Best {
    delay: f64,
    loss: f64,
}

/// The loss rate of a path, without the losses that the view assumes while few packets are
/// resolved. Because of the assumed losses, an almost unused path would count as lossy, stay out of
/// the set, and never show its true loss rate.
fn loss_rate(path: &PathView) -> f64 {
    let resolved = (path.bytes_acked + path.bytes_lost) / u64::from(path.mtu.max(1));
    let assumed = 0.5 / (resolved.min(1000) + 1) as f64;
    (path.loss_rate - assumed).max(0.0)
}

impl Best {
    fn of(view: &View<'_>) -> Self {
        let none = Self {
            delay: f64::INFINITY,
            loss: f64::INFINITY,
        };
        carriers(view).fold(none, |best, path| Self {
            delay: best.delay.min(one_way_delay(path)),
            loss: best.loss.min(loss_rate(path)),
        })
    }
}

impl Jdl {
    /// A scheduler with these settings.
    pub fn new(config: JdlConfig) -> Self {
        Self {
            config,
            cases: PlainCases::default(),
            candidates: Vec::new(),
            chosen: 0,
            scores: PathMap::default(),
            chosen_at: None,
        }
    }

    /// The score of a path: larger is better.
    fn score(&self, path: &PathView, best: Best) -> f64 {
        let Demand { delay, loss, .. } = self.config.demand;
        let wanted_delay = delay.map_or(best.delay, |delay| delay.as_secs_f64());
        let wanted_loss = loss.unwrap_or(best.loss);
        let delay = wanted_delay / one_way_delay(path);
        let loss = (wanted_loss + EPSILON) / (loss_rate(path) + EPSILON);
        self.config.delay_weight * delay + self.config.loss_weight * loss
    }

    fn needs_choice(&self, view: &View<'_>) -> bool {
        let Some(chosen_at) = self.chosen_at else {
            return true;
        };
        let best = Best::of(view);
        let moved = |path: &PathView| {
            let before = self.scores.get(path.id).copied();
            before.is_none_or(|before| {
                (self.score(path, best) - before).abs() > RESELECT_CHANGE * before
            })
        };
        view.now.saturating_duration_since(chosen_at) >= RESELECT_AFTER || carriers(view).any(moved)
    }

    fn choose(&mut self, view: &View<'_>) {
        self.chosen_at = Some(view.now);
        self.candidates.clear();
        self.scores.clear();
        let best = Best::of(view);
        for path in carriers(view) {
            let candidate = Candidate {
                path: path.id,
                score: self.score(path, best),
                delay: one_way_delay(path),
                loss: loss_rate(path),
                rate: rate(path),
            };
            self.scores.get_or_insert_with(path.id, || candidate.score);
            self.candidates.push(candidate);
        }
        self.keep_near();
        self.candidates
            .sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.path.cmp(&b.path)));
        self.chosen = self.config.paths.min(self.candidates.len());
        self.bound_loss();
        if let Some(bandwidth) = self.config.demand.bandwidth {
            self.meet(bandwidth as f64);
        }
        self.candidates[..self.chosen]
            .sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.path.cmp(&b.path)));
    }

    /// Drops paths with a longer delay than demanded, unless all paths have one.
    fn keep_near(&mut self) {
        let Some(most) = self.config.demand.delay else {
            return;
        };
        let is_near = |candidate: &Candidate| candidate.delay <= most.as_secs_f64();
        if self.candidates.iter().any(is_near) {
            self.candidates.retain(is_near);
        }
    }

    /// The demanded bound of the mean loss rate, if any path is within it.
    fn loss_bound(&self) -> f64 {
        let bound = self.config.demand.loss.unwrap_or(f64::INFINITY);
        let is_within = |candidate: &Candidate| candidate.loss <= bound;
        if self.candidates.iter().any(is_within) {
            bound
        } else {
            f64::INFINITY
        }
    }

    /// Swaps or drops the lossiest paths until the mean loss rate of the set is within the bound.
    fn bound_loss(&mut self) {
        let bound = self.loss_bound();
        let by_loss =
            |(_, a): &(usize, &Candidate), (_, b): &(usize, &Candidate)| a.loss.total_cmp(&b.loss);
        while self.chosen > 1 && mean_loss(&self.candidates[..self.chosen]) > bound
            || self.chosen == 1 && self.candidates[0].loss > bound
        {
            let all = self.candidates.iter().enumerate();
            let (set, rest) = (all.clone().take(self.chosen), all.skip(self.chosen));
            let (Some((worst, out)), least) = (set.max_by(by_loss), rest.min_by(by_loss)) else {
                break;
            };
            match least.filter(|(_, inner)| inner.loss < out.loss) {
                Some((best, _)) => self.candidates.swap(worst, best),
                None => {
                    self.chosen -= 1;
                    self.candidates.swap(worst, self.chosen);
                }
            }
        }
    }

    /// Swaps faster paths into the set until it delivers the demanded bandwidth. If that is
    /// impossible, takes the paths with the lowest delay.
    fn meet(&mut self, bandwidth: f64) {
        let bound = self.loss_bound();
        let by_rate =
            |(_, a): &(usize, &Candidate), (_, b): &(usize, &Candidate)| a.rate.total_cmp(&b.rate);
        loop {
            let (set, rest) = self.candidates.split_at(self.chosen);
            if set.iter().map(|candidate| candidate.rate).sum::<f64>() >= bandwidth {
                break;
            }
            let Some((out, narrowest)) = set.iter().enumerate().min_by(by_rate) else {
                break;
            };
            let others = (set.iter().map(|one| one.loss).sum::<f64>()) - narrowest.loss;
            let keeps_bound = |inner: &Candidate| (others + inner.loss) / set.len() as f64 <= bound;
            let rest = rest
                .iter()
                .enumerate()
                .filter(|(_, inner)| keeps_bound(inner));
            match rest
                .max_by(by_rate)
                .filter(|(_, inner)| inner.rate > narrowest.rate)
            {
                Some((inner, _)) => self.candidates.swap(out, self.chosen + inner),
                None => {
                    self.candidates.sort_unstable_by(|a, b| {
                        a.delay.total_cmp(&b.delay).then(a.path.cmp(&b.path))
                    });
                    self.bound_loss();
                    break;
                }
            }
        }
    }
}

impl Default for Jdl {
    fn default() -> Self {
        Self::new(JdlConfig::default())
    }
}

impl Scheduler for Jdl {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        if self.needs_choice(view) {
            self.choose(view);
        }
        let set = &self.candidates[..self.chosen.min(self.candidates.len())];
        let paths = || set.iter().filter_map(|candidate| view.path(candidate.path));
        if let Some(path) = paths().find(|path| path.can_send() && is_measured(path)) {
            return send_batch(path);
        }
        let wait = paths().find_map(wait_for);
        wait.or_else(|| fastest_sendable(view).map(send_batch))
            .unwrap_or(Decision::Blocked)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::PathAdded(_)
            | SchedulerEvent::PathRemoved(_)
            | SchedulerEvent::PathStatus(..)
            | SchedulerEvent::PathSuspect(_)
            | SchedulerEvent::PathRecovered(_) => self.chosen_at = None,
            _ => {}
        }
    }

    fn name(&self) -> &'static str {
        "jdl"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, chosen, full, path};

    /// One-way delays of 10, 30 and 50 ms; loss rates of 1, 0.01 and 0.1 per cent.
    fn three_paths() -> Scene {
        let mut scene = Scene::new(vec![path(0, 20), path(1, 60), path(2, 100)]);
        for (path, loss) in scene.paths.iter_mut().zip([0.01, 0.0001, 0.001]) {
            path.bytes_acked = 1000 * u64::from(path.mtu);
            path.loss_rate = (1000.0 * loss + 0.5) / 1001.0;
        }
        scene
    }

    #[test]
    fn t17_scores_weigh_delay_and_loss_of_the_path_itself() {
        let scene = three_paths();
        let jdl = Jdl::default();
        let best = Best::of(&scene.view());
        let scores: Vec<_> = scene
            .paths
            .iter()
            .map(|path| (jdl.score(path, best) * 1000.0).round())
            .collect();
        assert_eq!(scores, [510.0, 667.0, 191.0]);
    }

    #[test]
    fn sends_by_score_within_the_set_and_not_outside() {
        let mut scene = three_paths();
        let mut jdl = Jdl::new(JdlConfig {
            paths: 2,
            ..JdlConfig::default()
        });
        assert_eq!(chosen(&jdl.select(&scene.view())), Some(1));
        scene.paths[1] = full(scene.paths[1]);
        assert_eq!(chosen(&jdl.select(&scene.view())), Some(0));
        scene.paths[0] = full(scene.paths[0]);
        let (on, until) = (PathId(1), None);
        assert_eq!(jdl.select(&scene.view()), Decision::Wait { on, until });
    }

    /// The chosen paths, the best first.
    fn set(scene: &Scene, paths: usize, demand: Demand) -> Vec<u32> {
        let mut jdl = Jdl::new(JdlConfig {
            paths,
            demand,
            ..JdlConfig::default()
        });
        jdl.choose(&scene.view());
        let ids = jdl.candidates[..jdl.chosen].iter().map(|c| c.path.0);
        ids.collect()
    }

    fn bounds(delay_ms: Option<u64>, loss: Option<f64>) -> Demand {
        Demand {
            bandwidth: None,
            delay: delay_ms.map(Duration::from_millis),
            loss,
        }
    }

    /// Equation 19 with a demand of 50 ms and 1 %: 3.0, 25.8 and 5.1.
    #[test]
    fn scores_weigh_the_bounds_of_the_demand() {
        let scene = three_paths();
        let demand = bounds(Some(50), Some(0.01));
        assert_eq!(set(&scene, 2, demand), [1, 2]);
        assert_eq!(set(&scene, 2, Demand::default()), [1, 0]);
    }

    /// Equations 14 and 17.
    #[test]
    fn the_mean_loss_of_the_set_is_bounded() {
        let mut scene = Scene::new(vec![path(0, 20), path(1, 20), path(2, 20)]);
        for (path, loss) in scene.paths.iter_mut().zip([0.005, 0.001, 0.02]) {
            path.bytes_acked = 1000 * u64::from(path.mtu);
            path.loss_rate = (1000.0 * loss + 0.5) / 1001.0;
        }
        let within = |loss| set(&scene, 3, bounds(None, Some(loss)));
        assert_eq!(within(0.01), [1, 0, 2]);
        assert_eq!(within(0.004), [1, 0]);
        assert_eq!(within(0.0029), [1]);
        assert_eq!(within(0.0009), [1, 0, 2], "no path meets this bound");
        // A path outside the set takes the place of a lossy one.
        scene.paths[2].rtt.smoothed = Duration::from_millis(2);
        assert_eq!(set(&scene, 2, Demand::default()), [1, 2]);
        assert_eq!(set(&scene, 2, bounds(None, Some(0.004))), [1, 0]);
    }

    #[test]
    fn bounds_leave_paths_out_and_bandwidth_swaps_them_in() {
        let mut scene = three_paths();
        for (path, rate) in scene.paths.iter_mut().zip([1, 2, 8]) {
            path.delivery_rate = Some(rate * 1_000_000);
        }
        assert_eq!(set(&scene, 3, bounds(Some(40), None)), [0, 1]);
        let demand = |bandwidth, loss| Demand {
            bandwidth: Some(bandwidth),
            ..bounds(None, loss)
        };
        let bandwidth = |bandwidth| set(&scene, 2, demand(bandwidth, None));
        assert_eq!(bandwidth(3_000_000), [1, 0]);
        assert_eq!(bandwidth(10_000_000), [1, 2]);
        // No set delivers that much, so the paths with the lowest delays are taken.
        assert_eq!(bandwidth(20_000_000), [1, 0]);
        // Path 2 would raise the mean loss rate above the bound.
        let demand = demand(8_000_000, Some(0.0004));
        assert_eq!(set(&scene, 1, demand), [1]);
    }

    #[test]
    fn parameters_of_a_name_become_settings() {
        let read = |text: &str| JdlConfig::of_parameters(text.split(':'));
        let config = JdlConfig {
            paths: 2,
            demand: Demand {
                bandwidth: Some(2_500_000),
                ..bounds(Some(50), Some(0.01))
            },
            ..JdlConfig::default()
        };
        let text = "paths=2:rate_mbit=20:delay_ms=50:loss_pct=1";
        assert_eq!(read(text), Some(config));
        let wrong = "paths=0 paths=x delay_ms=0 delay_ms=NaN loss_pct=-1 rate_mbit delay=5 =";
        for text in wrong.split(' ') {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn unused_path_does_not_count_as_lossy() {
        let mut scene = three_paths();
        let unused = &mut scene.paths[1];
        (unused.bytes_acked, unused.loss_rate) = (1200, 0.25);
        let mut jdl = Jdl::new(JdlConfig {
            paths: 1,
            ..JdlConfig::default()
        });
        assert_eq!(chosen(&jdl.select(&scene.view())), Some(1));
    }

    #[test]
    fn the_set_is_chosen_anew_when_a_score_moves() {
        let mut scene = three_paths();
        let mut jdl = Jdl::default();
        jdl.select(&scene.view());
        assert!(!jdl.needs_choice(&scene.view()));
        scene.paths[1].loss_rate = 0.01;
        assert!(jdl.needs_choice(&scene.view()));
        jdl.select(&scene.view());
        assert!(!jdl.needs_choice(&scene.view()));
        scene.now += RESELECT_AFTER;
        assert!(jdl.needs_choice(&scene.view()));
    }
}
