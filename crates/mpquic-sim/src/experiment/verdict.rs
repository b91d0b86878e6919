//! Published claims compared with our runs.

use super::is_lower_better;
use super::results::{Results, ScenarioResults};
use super::summary::{Cell, Comparison};
use crate::scenario::{Claim, Published};

/// A published ratio agrees with ours if they differ by no more than this.
pub const TOLERANCE: f64 = 0.10;
/// Contenders that differ by less than this count as equal, however significant the difference is.
const NEGLIGIBLE: f64 = 0.01;

/// Whether our runs confirm a published claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The claim is in words alone: there is nothing to compare with numbers.
    Words,
    /// A contender or scenario that it mentions was not run.
    NotRun,
    /// Our result agrees: a ratio within [`TOLERANCE`], the same order, a share at least as large.
    Confirmed,
    /// Part of the claimed order is found here as well.
    InPart,
    /// The difference could be chance, or is negligible.
    Open,
    /// Our result is different.
    Refuted,
}

/// A published claim and the result of our runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Whether it is confirmed.
    pub outcome: Outcome,
    /// Our number, for claims of a number: one per combination of swept values.
    pub values: Vec<f64>,
    /// The geometric mean of the ratios of single runs, for claims of a ratio: steadier than the
    /// ratio of medians where runs differ much from each other.
    pub paired: Option<f64>,
    /// Pairs of contenders that are as claimed, undecided, and the other way round, for claims
    /// about orders: over all combinations of swept values.
    pub pairs: [usize; 3],
}

impl Finding {
    fn bare(outcome: Outcome) -> Self {
        Self {
            outcome,
            values: Vec::new(),
            paired: None,
            pairs: [0; 3],
        }
    }

    /// The finding for a number per combination of swept values, of which the mean decides.
    fn of(values: Vec<f64>, agrees: impl Fn(f64) -> bool) -> Self {
        if values.is_empty() {
            return Self::bare(Outcome::NotRun);
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let outcome = if agrees(mean) {
            Outcome::Confirmed
        } else {
            Outcome::Refuted
        };
        Self {
            outcome,
            values,
            paired: None,
            pairs: [0; 3],
        }
    }

    fn of_pairs(pairs: [usize; 3]) -> Self {
        let outcome = match pairs {
            [0, 0, 0] => Outcome::NotRun,
            [0, _, 0] => Outcome::Open,
            [holds, open, 0] if holds >= open => Outcome::Confirmed,
            [0, _, _] => Outcome::Refuted,
            _ => Outcome::InPart,
        };
        Self {
            outcome,
            values: Vec::new(),
            paired: None,
            pairs,
        }
    }

    /// The mean of [`Self::values`].
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }
}

impl Results {
    /// Compares a published claim of one of the scenarios with our runs.
    pub fn finding(&self, of: &ScenarioResults, published: &Published) -> Finding {
        if let Claim::Change {
            contender,
            scenario,
            ratio,
        } = &published.claim
        {
            let other = self.scenarios.iter().find(|other| other.id == *scenario);
            let value = other.and_then(|other| {
                let median = |of: &ScenarioResults| of.median(contender, &published.metric);
                Some(median(of)? / median(other)?)
            });
            return Finding::of(value.into_iter().collect(), |ours| close(ours, *ratio));
        }
        of.finding(published)
    }
}

fn close(ours: f64, published: f64) -> bool {
    // Slightly more, because decimal fractions are not exact.
    (ours - published).abs() <= TOLERANCE + 1e-9
}

impl ScenarioResults {
    fn median(&self, contender: &str, metric: &str) -> Option<f64> {
        let contender = self.contender(contender)?;
        let cell = Cell {
            sweep: 0,
            contender,
        };
        let statistics = self.summary(cell, metric).statistics;
        (statistics.count > 0).then_some(statistics.median)
    }

    /// The combinations of swept values a claim is about.
    pub fn sweeps_of(&self, published: &Published) -> impl Iterator<Item = usize> {
        let about = |labels: &Vec<(String, String)>| {
            published.at.is_empty()
                || labels
                    .iter()
                    .any(|(name, value)| published.at == format!("{name}={value}"))
        };
        let sweeps = self.sweeps.iter().enumerate();
        sweeps
            .filter(move |(_, labels)| about(labels))
            .map(|(index, _)| index)
    }

    fn compared(&self, sweep: usize, ours: &str, theirs: &str, metric: &str) -> Option<Comparison> {
        let contender = self.contender(ours)?;
        self.comparison(Cell { sweep, contender }, self.contender(theirs)?, metric)
    }

    /// Compares a claim that concerns only this scenario with its runs.
    pub fn finding(&self, published: &Published) -> Finding {
        let metric = &published.metric;
        let sweeps = || self.sweeps_of(published);
        match &published.claim {
            Claim::Words => Finding::bare(Outcome::Words),
            Claim::Change { .. } => Finding::bare(Outcome::NotRun),
            Claim::Value { contender, value } => {
                let medians = sweeps().filter_map(|sweep| {
                    let contender = self.contender(contender)?;
                    let statistics = self.summary(Cell { sweep, contender }, metric).statistics;
                    (statistics.count > 0).then_some(statistics.median)
                });
                Finding::of(medians.collect(), |ours| close(ours / value, 1.0))
            }
            Claim::Ratio {
                contender,
                against,
                ratio,
                or_better,
            } => {
                let sign = if is_lower_better(metric) { -1.0 } else { 1.0 };
                let agrees =
                    |ours: f64| close(ours, *ratio) || (*or_better && sign * (ours - ratio) > 0.0);
                let found = |sweep| self.compared(sweep, contender, against, metric);
                let found: Vec<_> = sweeps().filter_map(found).collect();
                let logarithms = found.iter().map(|comparison| comparison.paired.ln());
                let mean = logarithms.sum::<f64>() / found.len() as f64;
                let ratios = found.iter().map(|comparison| comparison.ratio);
                Finding {
                    paired: (!found.is_empty()).then(|| mean.exp()),
                    ..Finding::of(ratios.collect(), agrees)
                }
            }
            Claim::Better {
                contender,
                against,
                share,
                by,
            } => {
                let shares = sweeps().filter_map(|sweep| {
                    self.share_better(sweep, [contender, against], metric, *by)
                });
                Finding::of(shares.collect(), |ours| ours >= *share)
            }
            Claim::Order(groups) => {
                let pairs = sweeps().flat_map(|sweep| self.ordered(sweep, groups, metric));
                count(pairs)
            }
            Claim::Equal(names) => {
                let pairs = sweeps().flat_map(|sweep| self.equal(sweep, names, metric));
                count(pairs)
            }
        }
    }

    /// The share of runs in which the first is better than the second by this much.
    fn share_better(&self, sweep: usize, of: [&str; 2], metric: &str, by: f64) -> Option<f64> {
        let [ours, theirs] = of.map(|name| self.contender(name));
        let pairs = self.pairs(sweep, ours?, theirs?, metric);
        let gain = |(ours, theirs): &(f64, f64)| match is_lower_better(metric) {
            true => theirs / ours - 1.0,
            false => ours / theirs - 1.0,
        };
        let better = |pair: &&(f64, f64)| gain(pair) > by || (by > 0.0 && gain(pair) >= by);
        let count = pairs.iter().filter(better).count();
        (!pairs.is_empty()).then(|| count as f64 / pairs.len() as f64)
    }

    /// For each pair of contenders from different groups: as claimed (0), undecided (1), the other
    /// way round (2).
    fn ordered(&self, sweep: usize, groups: &[Vec<String>], metric: &str) -> Vec<usize> {
        let sign = if is_lower_better(metric) { 1.0 } else { -1.0 };
        let mut pairs = Vec::new();
        for (index, better) in groups.iter().enumerate() {
            let worse = groups[index + 1..].iter().flatten();
            for (better, worse) in worse.flat_map(|worse| better.iter().map(move |b| (b, worse))) {
                let Some(comparison) = self.compared(sweep, better, worse, metric) else {
                    continue;
                };
                let difference = sign * comparison.paired.ln();
                let decided = comparison.is_significant() && difference.abs() > NEGLIGIBLE;
                pairs.push(match decided {
                    false => 1,
                    true if difference < 0.0 => 0,
                    true => 2,
                });
            }
        }
        pairs
    }

    /// For each pair with the first: equal (0) or not (2).
    fn equal(&self, sweep: usize, names: &[String], metric: &str) -> Vec<usize> {
        let Some((first, others)) = names.split_first() else {
            return Vec::new();
        };
        let compared = others
            .iter()
            .filter_map(|other| self.compared(sweep, other, first, metric));
        compared
            .map(|comparison| if close(comparison.ratio, 1.0) { 0 } else { 2 })
            .collect()
    }
}

fn count(kinds: impl Iterator<Item = usize>) -> Finding {
    let mut pairs = [0; 3];
    for kind in kinds {
        pairs[kind] += 1;
    }
    Finding::of_pairs(pairs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::{Run, State};

    const METRIC: &str = "completion_s";

    /// Two combinations of swept values; each contender's times in the runs of both.
    fn results(times: [(&str, [[f64; 3]; 2]); 3]) -> ScenarioResults {
        let mut runs = Vec::new();
        for (contender, (_, by_sweep)) in times.iter().enumerate() {
            for (sweep, times) in by_sweep.iter().enumerate() {
                runs.extend(times.iter().enumerate().map(|(run, time)| Run {
                    contender,
                    sweep,
                    point: 0,
                    run,
                    state: State::Finished,
                    values: Vec::new(),
                    metrics: BTreeMap::from([(METRIC.to_owned(), *time)]),
                    paths: Vec::new(),
                    flows: Vec::new(),
                }));
            }
        }
        let text = "schedulers = \"lrf\"\nworkload = { kind = \"file\", size_mb = 1 }\n\
                    [[path]]\nname = \"a\"\nrate_mbit = 1\nowd_ms = [1, 2]\n";
        let scenario = crate::scenario::Scenario::parse("x.toml", text).unwrap();
        let mut results = crate::experiment::Experiment::new(scenario).results(runs, Vec::new());
        results.contenders = times.map(|(name, _)| name.to_owned()).to_vec();
        results
    }

    fn three() -> ScenarioResults {
        results([
            ("a", [[1.0, 1.1, 1.05], [2.0, 2.1, 2.0]]),
            ("b", [[2.0, 2.2, 2.1], [2.0, 2.05, 2.05]]),
            ("c", [[4.0, 4.4, 4.2], [1.0, 1.0, 1.0]]),
        ])
    }

    fn finding(at: &str, claim: Claim) -> Finding {
        three().finding(&Published {
            text: String::new(),
            metric: METRIC.into(),
            at: at.into(),
            reason: String::new(),
            claim,
        })
    }

    fn order(names: &[&[&str]]) -> Claim {
        let group = |names: &&[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Claim::Order(names.iter().map(group).collect())
    }

    #[test]
    fn ratios_are_means_over_the_swept_values_or_of_one() {
        let ratio = |ratio| Claim::Ratio {
            contender: "a".into(),
            against: "b".into(),
            ratio,
            or_better: false,
        };
        let all = finding("", ratio(0.65));
        assert_eq!(all.outcome, Outcome::Confirmed);
        assert!((all.mean() - (0.5 + 2.0 / 2.05) / 2.0).abs() < 1e-9);
        assert!((all.paired.unwrap() - 0.7070).abs() < 1e-3, "{all:?}");
        let first = finding("a.owd_ms=1", ratio(0.65));
        assert_eq!((first.outcome, first.mean()), (Outcome::Refuted, 0.5));
        assert_eq!(finding("a.owd_ms=9", ratio(1.0)).outcome, Outcome::NotRun);
        let mut bound = ratio(0.65);
        if let Claim::Ratio { or_better, .. } = &mut bound {
            *or_better = true;
        }
        let first = finding("a.owd_ms=1", bound);
        assert_eq!(first.outcome, Outcome::Confirmed);
    }

    #[test]
    fn orders_are_decided_pair_by_pair() {
        let claim = order(&[&["a"], &["b"], &["c"]]);
        assert_eq!(
            finding("a.owd_ms=1", claim.clone()),
            Finding::of_pairs([3, 0, 0])
        );
        // In the second combination a and b are too close, c is the best.
        let all = finding("", claim);
        assert_eq!((all.pairs, all.outcome), ([3, 1, 2], Outcome::InPart));
        let refuted = finding("", order(&[&["c"], &["a", "b"]]));
        assert_eq!(refuted.pairs, [2, 0, 2]);
        let open = finding("a.owd_ms=2", order(&[&["a"], &["b"]]));
        assert_eq!(open.outcome, Outcome::Open);
        let unknown = finding("", order(&[&["x"], &["y"]]));
        assert_eq!(unknown.outcome, Outcome::NotRun);
    }

    #[test]
    fn shares_and_equality() {
        let better = |share, by| Claim::Better {
            contender: "a".into(),
            against: "b".into(),
            share,
            by,
        };
        assert_eq!(finding("", better(0.5, 0.2)).outcome, Outcome::Confirmed);
        assert_eq!(finding("a.owd_ms=1", better(0.9, 1.0)).mean(), 1.0);
        assert_eq!(finding("", better(0.9, 1.1)).mean(), 0.0);
        let equal = |names: &[&str]| Claim::Equal(names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(
            finding("a.owd_ms=2", equal(&["a", "b"])).outcome,
            Outcome::Confirmed
        );
        assert_eq!(finding("", equal(&["a", "b"])).outcome, Outcome::InPart);
        assert_eq!(
            finding("a.owd_ms=1", equal(&["a", "b", "c"])).outcome,
            Outcome::Refuted
        );
    }

    #[test]
    fn a_change_is_measured_against_another_scenario() {
        let (mut fast, slow) = (three(), three());
        fast.id = "fast".into();
        for run in &mut fast.runs {
            run.metrics.values_mut().for_each(|value| *value *= 0.5);
        }
        let published = Published {
            text: String::new(),
            metric: METRIC.into(),
            at: String::new(),
            reason: String::new(),
            claim: Claim::Change {
                contender: "a".into(),
                scenario: "x".into(),
                ratio: 0.5,
            },
        };
        let results = Results {
            scenarios: vec![slow, fast.clone()],
        };
        let found = results.finding(&fast, &published);
        assert_eq!((found.outcome, found.mean()), (Outcome::Confirmed, 0.5));
        assert_eq!(fast.finding(&published).outcome, Outcome::NotRun);
    }
}
