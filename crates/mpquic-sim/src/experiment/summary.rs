//! Summaries of results: statistics per contender, and comparisons with the baseline.

use std::collections::BTreeSet;

use super::chance;
use super::is_lower_better;
use super::results::{Run, ScenarioResults, State};
use super::statistics::Statistics;

/// One contender with one combination of swept values. The runs of a cell differ only in points and
/// repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Index into [`ScenarioResults::sweeps`].
    pub sweep: usize,
    /// Index into [`ScenarioResults::contenders`].
    pub contender: usize,
}

/// One metric of the runs of one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Unfinished runs count with the time limit: statistics are then bounds.
    pub statistics: Statistics,
    /// Runs that did not finish in time.
    pub unfinished: usize,
    /// Runs that failed.
    pub failed: usize,
}

/// One contender against another one, run by run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The ratio of the medians.
    pub ratio: f64,
    /// The geometric mean of the ratios of single runs.
    pub paired: f64,
    /// Its 95 % confidence interval, by Student's distribution of the logarithms; without bounds for a
    /// single run.
    pub paired_interval: (f64, f64),
    /// How likely a mean this far from 1 is if there is no difference, in either direction; 1 for a
    /// single run.
    pub chance: f64,
    /// The standard error of the mean of the logarithms of the ratios, and how many these are.
    pub(super) error: (f64, usize),
    /// The share of runs in which the contender was better.
    pub better: f64,
}

impl Comparison {
    /// True if the difference is significant, at 95 % confidence.
    pub fn is_significant(&self) -> bool {
        self.paired_interval.0 > 1.0 || self.paired_interval.1 < 1.0
    }

    /// Compares pairs of values: the contender's and the other's.
    pub fn of(pairs: &[(f64, f64)], lower_is_better: bool) -> Option<Self> {
        let ours = Statistics::of(pairs.iter().map(|(ours, _)| *ours));
        let theirs = Statistics::of(pairs.iter().map(|(_, theirs)| *theirs));
        let least = least_of(pairs);
        let logarithms = pairs.iter().map(|(ours, theirs)| match ours == theirs {
            true => 0.0,
            false => (ours.max(least) / theirs.max(least)).ln(),
        });
        let logarithms = Statistics::of(logarithms.filter(|value| value.is_finite()));
        if pairs.is_empty() || logarithms.count == 0 || theirs.median == 0.0 {
            return None;
        }
        let is_better = |pair: &&(f64, f64)| {
            if lower_is_better {
                pair.0 < pair.1
            } else {
                pair.0 > pair.1
            }
        };
        let better = pairs.iter().filter(is_better).count();
        // A single run says nothing about others.
        let half = match logarithms.count {
            1 => f64::INFINITY,
            _ => logarithms.confidence,
        };
        let mean = logarithms.mean;
        let error = logarithms.standard_error();
        let chance = match (logarithms.count, error > 0.0) {
            (1, _) => 1.0,
            (count, true) => chance::student(mean / error, count - 1),
            // All runs agree to the last digit.
            (_, false) => f64::from(u8::from(mean == 0.0)),
        };
        Some(Self {
            ratio: ours.median / theirs.median,
            paired: mean.exp(),
            paired_interval: ((mean - half).exp(), (mean + half).exp()),
            chance,
            error: (error, logarithms.count),
            better: better as f64 / pairs.len() as f64,
        })
    }
}

/// What counts for nothing at all, such as no late message: half of the least that was seen, so that the run is not left out.
fn least_of(pairs: &[(f64, f64)]) -> f64 {
    let values = pairs.iter().flat_map(|(ours, theirs)| [*ours, *theirs]);
    let seen = values.filter(|value| *value > 0.0);
    seen.fold(f64::INFINITY, f64::min) / 2.0
}

impl ScenarioResults {
    /// The runs of a cell, by point and repetition.
    pub fn runs_of(&self, cell: Cell) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.sweep == cell.sweep && run.contender == cell.contender)
    }

    /// All cells, by sweep.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        let contenders = self.contenders.len();
        (0..self.sweeps.len() * contenders).map(move |index| Cell {
            sweep: index / contenders,
            contender: index % contenders,
        })
    }

    /// Names of all metrics, the one that counts first.
    pub fn metrics(&self) -> Vec<&str> {
        let all: BTreeSet<&str> = self
            .runs
            .iter()
            .flat_map(|run| run.metrics.keys().map(String::as_str))
            .collect();
        let first = std::iter::once(self.metric.as_str());
        first
            .chain(all.into_iter().filter(|name| *name != self.metric))
            .collect()
    }

    /// Statistics of a metric in a cell.
    pub fn summary(&self, cell: Cell, metric: &str) -> Summary {
        let values = self.runs_of(cell).filter_map(|run| run.metrics.get(metric));
        let with = |wanted: fn(&State) -> bool| {
            self.runs_of(cell).filter(|run| wanted(&run.state)).count()
        };
        Summary {
            statistics: Statistics::of(values.copied()),
            unfinished: with(|state| *state == State::Unfinished),
            failed: with(|state| matches!(state, State::Failed(_))),
        }
    }

    /// True if there are runs of a cell, and none of them went well enough to say anything.
    pub fn all_failed(&self, cell: Cell) -> bool {
        let mut runs = self.runs_of(cell).peekable();
        runs.peek().is_some() && runs.all(|run| matches!(run.state, State::Failed(_)))
    }

    /// The index of a contender.
    pub fn contender(&self, name: &str) -> Option<usize> {
        self.contenders
            .iter()
            .position(|contender| contender == name)
    }

    /// A metric of two contenders in the same runs.
    pub fn pairs(
        &self,
        sweep: usize,
        contender: usize,
        other: usize,
        metric: &str,
    ) -> Vec<(f64, f64)> {
        let values = |contender| {
            let runs = self.runs_of(Cell { sweep, contender });
            runs.map(|run| run.metrics.get(metric).copied())
        };
        let pairs = values(contender).zip(values(other));
        pairs
            .filter_map(|(ours, theirs)| Some((ours?, theirs?)))
            .collect()
    }

    /// The ratio of two contenders' medians: the geometric mean over combinations of swept values.
    pub fn ratio(
        &self,
        contender: usize,
        other: usize,
        sweeps: impl IntoIterator<Item = usize>,
        metric: &str,
    ) -> Option<f64> {
        let ratios = sweeps.into_iter().filter_map(|sweep| {
            let comparison = self.comparison(Cell { sweep, contender }, other, metric)?;
            Some(comparison.ratio.ln())
        });
        let logarithms = Statistics::of(ratios.filter(|ratio| ratio.is_finite()));
        (logarithms.count > 0).then(|| logarithms.mean.exp())
    }

    /// A contender against another one.
    pub fn comparison(&self, cell: Cell, other: usize, metric: &str) -> Option<Comparison> {
        let pairs = self.pairs(cell.sweep, cell.contender, other, metric);
        Comparison::of(&pairs, is_lower_better(metric))
    }
}
