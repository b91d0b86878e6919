//! Finds out which paths share a bottleneck.
//!
//! RFC 8382 compares statistics of delays and losses that many senders gather over half a minute.
//! One sender with one clock can do better by experiment. A path that probes for bandwidth fills
//! the queue of its bottleneck. RTTs of another path grow as well if its packets wait in the same
//! queue, and do not grow otherwise. A trial takes the few round trips of one probe.

use std::time::{Duration, Instant};

use mpquic_core::PathId;

/// The fewest samples from which a mean is formed.
const MIN_SAMPLES: f64 = 4.0;
/// The queue must grow by at least this much in a conclusive trial, seconds.
const MIN_RISE: f64 = 0.001;
/// The growth must exceed its standard error by this factor.
const SIGNIFICANCE: f64 = 4.0;
/// A share of losses above this shows a full queue even if delays do not grow.
const HEAVY_LOSS: f64 = 0.02;
/// A share of losses below this shows that the queue is not full.
const LIGHT_LOSS: f64 = 0.005;
/// Mean response above which two paths share a bottleneck.
const SHARED: f64 = 0.5;
/// Mean response below which two paths have separate bottlenecks.
const SEPARATE: f64 = 0.25;
/// The fewest trials from which two paths are found to share a bottleneck.
const MIN_TRIALS: u32 = 2;
/// The smallest weight of a new trial in the mean response.
const MIN_WEIGHT: f64 = 0.25;
/// The effects of a probe are over after this time, even on paths with longer round trips.
const LONGEST_AFTERMATH: Duration = Duration::from_secs(1);
/// A trial that takes longer than this is given up: the path fell silent or has nothing to send.
const LONGEST_TRIAL: Duration = Duration::from_secs(10);

/// Mean and spread of RTT samples, seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    count: f64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Samples {
    fn add(&mut self, sample: f64) {
        self.count += 1.0;
        let distance = sample - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (sample - self.mean);
    }

    /// Variance of the mean.
    fn error_squared(&self) -> f64 {
        self.squares / ((self.count - 1.0).max(1.0) * self.count.max(1.0))
    }
}

/// Measurements of one path during a trial.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    /// RTTs before the probe.
    before: Samples,
    /// RTTs after the probe stopped, when the queue is longest.
    after: Samples,
    /// Bytes acknowledged since the probe began.
    acked: f64,
    /// Bytes lost since the probe began.
    lost: f64,
    /// Another event on the path makes the reading useless.
    is_disturbed: bool,
}

impl Reading {
    /// Growth of the queue and its standard error, in seconds, if there are enough samples.
    fn rise(&self) -> Option<(f64, f64)> {
        let enough = self.before.count >= MIN_SAMPLES && self.after.count >= MIN_SAMPLES;
        let error = (self.before.error_squared() + self.after.error_squared()).sqrt();
        enough.then_some((self.after.mean - self.before.mean, error))
    }

    fn loss_share(&self) -> f64 {
        self.lost / (self.lost + self.acked).max(1.0)
    }

    /// The growth of this path relative to the growth of the path that probed, 0 to 1. `None` if
    /// the readings are inconclusive.
    fn response_to(&self, prober: &Self) -> Option<f64> {
        if self.is_disturbed {
            return None;
        }
        let (rise, error) = prober.rise()?;
        if rise >= MIN_RISE && rise >= SIGNIFICANCE * error {
            let (own_rise, own_error) = self.rise()?;
            return (own_error * SIGNIFICANCE <= rise).then(|| (own_rise / rise).clamp(0.0, 1.0));
        }
        if prober.loss_share() < HEAVY_LOSS || self.acked == 0.0 {
            return None;
        }
        match self.loss_share() {
            share if share >= HEAVY_LOSS / 2.0 => Some(1.0),
            share if share <= LIGHT_LOSS => Some(0.0),
            _ => None,
        }
    }
}

/// The stages of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The prober refills: RTTs of this stage are the reference.
    Before,
    /// The prober sends faster than its path delivers.
    Probing,
    /// The prober stopped at this time.
    After(Instant),
}

/// A probe that is being observed.
#[derive(Debug)]
struct Trial {
    prober: PathId,
    began: Instant,
    stage: Stage,
}

/// The result of the trials with two paths.
#[derive(Debug, Clone, Copy)]
struct Pair {
    paths: [PathId; 2],
    /// Mean response of each path to probes of the other.
    response: f64,
    trials: u32,
    is_shared: bool,
}

impl Pair {
    fn on_response(&mut self, response: f64) {
        self.trials = self.trials.saturating_add(1);
        let weight = (1.0 / f64::from(self.trials)).max(MIN_WEIGHT);
        self.response += weight * (response - self.response);
        if self.trials >= MIN_TRIALS && self.response > SHARED {
            self.is_shared = true;
        } else if self.response < SEPARATE {
            self.is_shared = false;
        }
    }
}

/// An acknowledgement on a path, with an RTT sample if it has one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) now: Instant,
    pub(super) rtt: Option<Duration>,
    pub(super) smoothed_rtt: Duration,
    pub(super) acked: u64,
    /// The path cruises or goes down: it does not probe, start or drain.
    pub(super) is_steady: bool,
}

/// Finds out which paths share a bottleneck.
#[derive(Debug, Default)]
pub(super) struct Detector {
    pairs: Vec<Pair>,
    trial: Option<Trial>,
    /// Readings of the current trial, by path.
    readings: Vec<(PathId, Reading)>,
    /// How long the effects of the probe last: the longest smoothed RTT of the observed paths.
    aftermath: Duration,
}

impl Detector {
    /// Bytes of memory on the heap.
    pub(super) fn memory(&self) -> u64 {
        let readings = self.readings.capacity() * size_of::<(PathId, Reading)>();
        (readings + self.pairs.capacity() * size_of::<Pair>()) as u64
    }

    /// True if trials showed that the two paths share a bottleneck.
    pub(super) fn is_shared(&self, a: PathId, b: PathId) -> bool {
        self.find(a, b).is_some_and(|pair| pair.is_shared)
    }

    /// True if there were too few trials to tell whether the two paths share a bottleneck.
    pub(super) fn is_open(&self, a: PathId, b: PathId) -> bool {
        self.find(a, b).is_none_or(|pair| pair.trials < MIN_TRIALS)
    }

    /// The path whose probe is being observed.
    pub(super) fn prober(&self) -> Option<PathId> {
        self.trial.as_ref().map(|trial| trial.prober)
    }

    fn find(&self, a: PathId, b: PathId) -> Option<&Pair> {
        let paths = [a.min(b), a.max(b)];
        self.pairs.iter().find(|pair| pair.paths == paths)
    }

    fn pair_mut(&mut self, a: PathId, b: PathId) -> &mut Pair {
        let paths = [a.min(b), a.max(b)];
        let index = self.pairs.iter().position(|pair| pair.paths == paths);
        let index = index.unwrap_or_else(|| {
            self.pairs.push(Pair {
                paths,
                response: 0.0,
                trials: 0,
                is_shared: false,
            });
            self.pairs.len() - 1
        });
        &mut self.pairs[index]
    }

    fn reading_mut(&mut self, path: PathId) -> &mut Reading {
        let index = self.readings.iter().position(|(id, _)| *id == path);
        let index = index.unwrap_or_else(|| {
            self.readings.push((path, Reading::default()));
            self.readings.len() - 1
        });
        &mut self.readings[index].1
    }

    /// Pretends that trials showed a shared bottleneck of the two paths.
    #[cfg(test)]
    pub(super) fn assume_shared(&mut self, a: PathId, b: PathId) {
        for _ in 0..MIN_TRIALS {
            self.pair_mut(a, b).on_response(1.0);
        }
    }

    /// Forgets a path.
    pub(super) fn remove(&mut self, path: PathId) {
        self.pairs.retain(|pair| !pair.paths.contains(&path));
        self.readings.retain(|(id, _)| *id != path);
        if self.prober() == Some(path) {
            self.trial = None;
        }
    }

    /// A path refills before it probes alone. Starts a trial, unless another one is running.
    pub(super) fn begin(&mut self, prober: PathId, now: Instant) {
        if self.trial.is_none() {
            self.readings.clear();
            self.aftermath = Duration::ZERO;
            self.trial = Some(Trial {
                prober,
                began: now,
                stage: Stage::Before,
            });
        }
    }

    /// A path begins to send faster than it delivers.
    pub(super) fn on_up(&mut self, path: PathId) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.prober == path) {
            trial.stage = Stage::Probing;
        }
    }

    /// A path stopped its probe.
    pub(super) fn on_down(&mut self, path: PathId, now: Instant) {
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.prober == path) else {
            return;
        };
        if trial.stage == Stage::Probing {
            trial.stage = Stage::After(now);
        } else if trial.stage == Stage::Before {
            self.trial = None;
        }
    }

    /// An event on a path makes its reading useless. A trial of this path is given up.
    pub(super) fn on_disturbed(&mut self, path: PathId) {
        match &self.trial {
            Some(trial) if trial.prober == path => self.trial = None,
            Some(_) => self.reading_mut(path).is_disturbed = true,
            None => {}
        }
    }

    /// An acknowledgement on a path. Returns true if it concluded a trial.
    pub(super) fn on_ack(&mut self, path: PathId, seen: &Observation) -> bool {
        let Some(trial) = &self.trial else {
            return false;
        };
        let (prober, stage) = (trial.prober, trial.stage);
        if seen.now > trial.began + LONGEST_TRIAL {
            self.trial = None;
            return false;
        }
        if let Stage::After(since) = stage
            && seen.now > since + self.aftermath
        {
            self.conclude(prober);
            return true;
        }
        self.aftermath = self.aftermath.max(seen.smoothed_rtt).min(LONGEST_AFTERMATH);
        let reading = self.reading_mut(path);
        reading.is_disturbed |= path != prober && !seen.is_steady;
        let sample = seen.rtt.map(|rtt| rtt.as_secs_f64());
        match (stage, sample) {
            (Stage::Before, Some(sample)) => reading.before.add(sample),
            (Stage::After(_), Some(sample)) => reading.after.add(sample),
            _ => {}
        }
        if stage != Stage::Before {
            reading.acked += seen.acked as f64;
        }
        false
    }

    /// Bytes were lost on a path.
    pub(super) fn on_loss(&mut self, path: PathId, bytes: u64) {
        let is_probed = self.trial.as_ref().map(|trial| trial.stage);
        if is_probed.is_some_and(|stage| stage != Stage::Before) {
            self.reading_mut(path).lost += bytes as f64;
        }
    }

    fn conclude(&mut self, prober: PathId) {
        self.trial = None;
        let probed = *self.reading_mut(prober);
        for index in 0..self.readings.len() {
            let (path, reading) = self.readings[index];
            if path != prober
                && let Some(response) = reading.response_to(&probed)
            {
                self.pair_mut(prober, path).on_response(response);
            }
        }
    }
}

#[cfg(test)]
mod tests;
