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
    /// Statistics of the metric. Unfinished runs count with the time limit, so the statistics are
    /// then bounds.
    pub statistics: Statistics,
    /// Number of runs that did not finish in time.
    pub unfinished: usize,
    /// Number of runs that failed.
    pub failed: usize,
}

/// One contender compared with another, run by run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The ratio of the medians.
    pub ratio: f64,
    /// The geometric mean of the ratios of single runs.
    pub paired: f64,
    /// The 95 % confidence interval of `paired`, by Student's distribution of the logarithms;
    /// without bounds for a single run.
    pub paired_interval: (f64, f64),
    /// The probability of a mean at least this far from 1, in either direction, if there is no
    /// difference; 1 for a single run.
    pub chance: f64,
    /// The standard error of the mean of the logarithms of the ratios, and the number of ratios.
    pub(super) error: (f64, usize),
    /// The share of runs in which the contender was better.
    pub better: f64,
}

impl Comparison {
    /// True if the difference is significant at 95 % confidence.
    pub fn is_significant(&self) -> bool {
        self.paired_interval.0 > 1.0 || self.paired_interval.1 < 1.0
    }

    /// Compares pairs of values: first the contender's, then the other's.
    pub fn of(pairs: &[(f64, f64)], lower_is_better: bool) -> Option<Self> {
        let ours = Statistics::of(pairs.iter().map(|(ours, _)| *ours));
        let theirs = Statistics::of(pairs.iter().map(|(_, theirs)| *theirs));
        let least = least_of(pairs);
        let logarithms = pairs.iter().map(|(ours, theirs)| {
            if ours == theirs {
                0.0
            } else {
                (ours.max(least) / theirs.max(least)).ln()
            }
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
        // A single run shows no spread.
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

/// The replacement for zeros (such as runs without late messages), for a ratio with zero is
/// undefined: half of the smallest positive value.
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

    /// Names of all metrics, the scenario's own metric first.
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

    /// True for a cell whose runs, at least one, have failed without exception.
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

    /// One contender compared with another.
    pub fn comparison(&self, cell: Cell, other: usize, metric: &str) -> Option<Comparison> {
        let pairs = self.pairs(cell.sweep, cell.contender, other, metric);
        Comparison::of(&pairs, is_lower_better(metric))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_matches_a_calculation_by_hand() {
        // Half the time in three runs, and a third more in one.
        let pairs = [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0), (4.0, 3.0)];
        let compared = Comparison::of(&pairs, true).unwrap();
        assert_eq!((compared.ratio, compared.better), (2.5 / 3.5, 0.75));
        let logarithms = [
            0.5_f64.ln(),
            0.5_f64.ln(),
            0.5_f64.ln(),
            (4.0_f64 / 3.0).ln(),
        ];
        let mean = logarithms.iter().sum::<f64>() / 4.0;
        let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / 3.0 / 4.0).sqrt();
        assert!((compared.paired - mean.exp()).abs() < 1e-12);
        let (low, high) = compared.paired_interval;
        assert!((low - (mean - 3.182 * error).exp()).abs() < 1e-9, "{low}");
        assert!((high - (mean + 3.182 * error).exp()).abs() < 1e-9, "{high}");
        assert!((compared.error.0 - error).abs() < 1e-12 && compared.error.1 == 4);
        assert_eq!(compared.chance, chance::student(mean / compared.error.0, 3));
        assert_eq!(Comparison::of(&pairs, false).unwrap().better, 0.25);
    }

    #[test]
    fn single_run_and_equal_runs_are_special_cases() {
        let one = Comparison::of(&[(1.0, 2.0)], true).unwrap();
        assert_eq!((one.chance, one.is_significant()), (1.0, false));
        assert_eq!(one.paired_interval, (0.0, f64::INFINITY));
        // All runs agree to the last digit: without a difference, or with the same difference.
        let equal = Comparison::of(&[(2.0, 2.0); 3], true).unwrap();
        assert_eq!((equal.chance, equal.paired, equal.better), (1.0, 1.0, 0.0));
        assert!(!equal.is_significant());
        let twice = Comparison::of(&[(4.0, 2.0); 3], true).unwrap();
        assert_eq!((twice.chance, twice.is_significant()), (0.0, true));
        assert!((twice.paired_interval.0 - 2.0).abs() < 1e-12);
        let half = Comparison::of(&[(1.0, 2.0); 3], true).unwrap();
        assert!(half.is_significant());
        assert_eq!(Comparison::of(&[], true), None);
        assert_eq!(Comparison::of(&[(1.0, 0.0), (1.0, 0.0)], true), None);
        // Zero counts as half of the smallest positive value.
        assert_eq!(least_of(&[(0.0, 3.0), (2.0, 0.0)]), 1.0);
        let some = Comparison::of(&[(0.0, 2.0), (2.0, 2.0)], true).unwrap();
        assert!((some.paired - 0.5_f64.sqrt()).abs() < 1e-12);
    }

    /// Two contenders with two combinations of swept values and two runs each.
    fn results() -> ScenarioResults {
        let text = "schedulers = [\"lrf\", \"etc\"]\nworkload = { kind = \"file\", size_mb = 1 }\nruns = 2\n\
                    [[path]]\nname = \"a\"\nrate_mbit = 1\nowd_ms = [1, 2]\n";
        let scenario = crate::scenario::Scenario::parse("x.toml", text).unwrap();
        let experiment = crate::experiment::Experiment::new(scenario);
        let run = |index: usize| {
            let (contender, run, sweep) = (index % 2, index / 2 % 2, index / 4);
            let value = [1.0, 4.0][contender] * (1 + run + 2 * sweep) as f64;
            let name = |name: &str| name.to_owned();
            Run {
                contender,
                sweep,
                point: 0,
                run,
                state: match index {
                    0 => State::Unfinished,
                    4 | 6 => State::Failed("x".into()),
                    _ => State::Finished,
                },
                values: Vec::new(),
                metrics: [(name("completion_s"), value), (name("a_s"), 1.0)].into(),
                paths: Vec::new(),
                flows: Vec::new(),
            }
        };
        experiment.results((0..8).map(run).collect(), Vec::new())
    }

    #[test]
    fn cells_are_summed_up() {
        let results = results();
        let cells: Vec<_> = results
            .cells()
            .map(|cell| (cell.sweep, cell.contender))
            .collect();
        assert_eq!(cells, [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(results.metrics(), ["completion_s", "a_s"]);
        let summary = |sweep, contender| {
            let summary = results.summary(Cell { sweep, contender }, "completion_s");
            let statistics = summary.statistics;
            (
                statistics.count,
                statistics.mean,
                summary.unfinished,
                summary.failed,
            )
        };
        assert_eq!(summary(0, 0), (2, 1.5, 1, 0));
        assert_eq!(summary(0, 1), (2, 6.0, 0, 0));
        assert_eq!(summary(1, 0), (2, 3.5, 0, 2));
        let failed = |sweep, contender| results.all_failed(Cell { sweep, contender });
        assert!(failed(1, 0) && !failed(0, 0) && !failed(1, 1));
        assert!(!failed(2, 0), "there are no runs");
        assert_eq!(results.contender("etc"), Some(1));
        assert_eq!(results.contender("x"), None);
        let pairs = results.pairs(1, 1, 0, "completion_s");
        assert_eq!(pairs, [(12.0, 3.0), (16.0, 4.0)]);
        assert_eq!(results.pairs(1, 1, 0, "gap_s"), []);
        let ratio = |sweeps: &[usize]| results.ratio(1, 0, sweeps.iter().copied(), "completion_s");
        assert!((ratio(&[0, 1]).unwrap() - 4.0).abs() < 1e-9);
        assert_eq!(ratio(&[]), None);
        let cell = Cell {
            sweep: 0,
            contender: 1,
        };
        let compared = results.comparison(cell, 0, "completion_s").unwrap();
        assert_eq!((compared.ratio, compared.better), (4.0, 0.0));
    }
}
