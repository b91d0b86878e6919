//! Published claims compared with our runs.

use super::is_lower_better;
use super::resample::{MIN_RUNS, bootstrap, share};
use super::results::{Results, ScenarioResults};
use super::statistics::Statistics;
use super::summary::{Cell, Comparison};
use crate::scenario::{Claim, Published};

/// A published ratio agrees with ours if they differ by no more than this.
pub const TOLERANCE: f64 = 0.10;
/// Contenders that differ by less than this count as equal, however significant the difference is.
const NEGLIGIBLE: f64 = 0.01;

/// Whether our runs confirm a published claim. What could be chance at 95 % confidence, and what
/// fewer than six runs say of a number, is [`Self::Open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The claim is in words alone: there is nothing to compare with numbers.
    Words,
    /// A contender or scenario that it mentions was not run.
    NotRun,
    /// Our result agrees: all of the interval is within [`TOLERANCE`] of a ratio or at least a
    /// share, or every pair of an order is as claimed.
    Confirmed,
    /// Part of the claimed order is found here as well; the rest is not, or is undecided.
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
    /// The 95 % interval of [`Self::mean`], for claims of a number or a share.
    pub interval: Option<(f64, f64)>,
    /// The geometric mean of the ratios of single runs, for claims of a ratio: steadier than the
    /// ratio of medians where runs differ much from each other.
    pub paired: Option<f64>,
    /// Pairs of contenders that are as claimed, undecided, and the other way round, for claims
    /// about orders: over all combinations of swept values.
    pub pairs: [usize; 3],
}

/// Values that agree with a claim: from one to another.
type Agreeing = (f64, f64);

impl Finding {
    fn bare(outcome: Outcome) -> Self {
        Self {
            outcome,
            values: Vec::new(),
            interval: None,
            paired: None,
            pairs: [0; 3],
        }
    }

    /// The finding for a number per combination of swept values, of which the mean decides.
    fn of(values: Vec<f64>, interval: Option<(f64, f64)>, runs: usize, agreeing: Agreeing) -> Self {
        let Some(interval) = interval.filter(|_| !values.is_empty()) else {
            return Self::bare(Outcome::NotRun);
        };
        let outcome = match runs < MIN_RUNS {
            true => Outcome::Open,
            false => outcome_of(interval, agreeing),
        };
        Self {
            values,
            interval: Some(interval),
            ..Self::bare(outcome)
        }
    }

    fn of_pairs(pairs: [usize; 3]) -> Self {
        let outcome = match pairs {
            [0, 0, 0] => Outcome::NotRun,
            [0, _, 0] => Outcome::Open,
            [_, 0, 0] => Outcome::Confirmed,
            [0, _, _] => Outcome::Refuted,
            _ => Outcome::InPart,
        };
        Self {
            pairs,
            ..Self::bare(outcome)
        }
    }

    /// The mean of [`Self::values`].
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }
}

/// What an interval says about a claim.
fn outcome_of((low, high): (f64, f64), (least, most): Agreeing) -> Outcome {
    // Slightly more, because decimal fractions are not exact.
    let (least, most) = (least - 1e-9, most + 1e-9);
    if low >= least && high <= most {
        Outcome::Confirmed
    } else if high < least || low > most {
        Outcome::Refuted
    } else {
        Outcome::Open
    }
}

fn near(value: f64) -> Agreeing {
    (value - TOLERANCE, value + TOLERANCE)
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Statistics::of(values).median
}

/// The mean over groups of pairs of the ratios of their medians.
fn mean_ratio(groups: &[Vec<(f64, f64)>]) -> f64 {
    let ratio = |pairs: &Vec<(f64, f64)>| {
        median(pairs.iter().map(|(ours, _)| *ours)) / median(pairs.iter().map(|(_, other)| *other))
    };
    groups.iter().map(ratio).sum::<f64>() / groups.len() as f64
}

impl Results {
    /// Compares a published claim of one of the scenarios with our runs.
    pub fn finding(&self, of: &ScenarioResults, published: &Published) -> Finding {
        let Claim::Change {
            contender,
            scenario,
            ratio,
        } = &published.claim
        else {
            return of.finding(published);
        };
        let other = self.scenarios.iter().find(|other| other.id == *scenario);
        let values = |of: &ScenarioResults| of.values(0, contender, &published.metric);
        let both = other.and_then(|other| Some([values(of)?, values(other)?]));
        let Some(both) = both.filter(|both| both.iter().all(|values| !values.is_empty())) else {
            return Finding::bare(Outcome::NotRun);
        };
        let change = |both: &[Vec<f64>]| median(both[0].clone()) / median(both[1].clone());
        let runs = both.iter().map(Vec::len).min().unwrap_or(0);
        let interval = bootstrap(&both, change);
        Finding::of(vec![change(&both)], interval, runs, near(*ratio))
    }
}

impl ScenarioResults {
    /// A metric of a contender in all runs with one combination of swept values.
    fn values(&self, sweep: usize, contender: &str, metric: &str) -> Option<Vec<f64>> {
        let contender = self.contender(contender)?;
        let runs = self.runs_of(Cell { sweep, contender });
        let values = runs.filter_map(|run| run.metrics.get(metric).copied());
        Some(values.collect())
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

    /// A metric of two contenders in the same runs, for each combination of swept values that a
    /// claim is about and that has any.
    fn pairs_of(&self, published: &Published, ours: &str, theirs: &str) -> Vec<Vec<(f64, f64)>> {
        let (Some(ours), Some(theirs)) = (self.contender(ours), self.contender(theirs)) else {
            return Vec::new();
        };
        let pairs = |sweep| self.pairs(sweep, ours, theirs, &published.metric);
        let groups = self.sweeps_of(published).map(pairs);
        groups.filter(|pairs| !pairs.is_empty()).collect()
    }

    /// Compares a claim that concerns only this scenario with its runs.
    pub fn finding(&self, published: &Published) -> Finding {
        let metric = &published.metric;
        let sweeps = || self.sweeps_of(published);
        match &published.claim {
            Claim::Words => Finding::bare(Outcome::Words),
            Claim::Change { .. } => Finding::bare(Outcome::NotRun),
            Claim::Value { contender, value } => self.found_value(published, contender, *value),
            Claim::Ratio {
                contender,
                against,
                ratio,
                or_better,
            } => {
                let (mut least, mut most) = near(*ratio);
                match (or_better, is_lower_better(metric)) {
                    (false, _) => {}
                    (true, true) => least = f64::NEG_INFINITY,
                    (true, false) => most = f64::INFINITY,
                }
                self.found_ratio(published, [contender, against], (least, most))
            }
            Claim::Better {
                contender,
                against,
                share,
                by,
            } => self.found_share(published, [contender, against], *share, *by),
            Claim::Order(groups) => {
                let pairs = sweeps().flat_map(|sweep| self.ordered(sweep, groups, metric));
                count(pairs)
            }
            Claim::Equal(names) => count(self.equal(published, names).into_iter()),
        }
    }

    fn found_value(&self, published: &Published, contender: &str, value: f64) -> Finding {
        let sweeps = self.sweeps_of(published);
        let groups = sweeps.filter_map(|sweep| self.values(sweep, contender, &published.metric));
        let groups: Vec<_> = groups.filter(|values| !values.is_empty()).collect();
        let medians = groups.iter().map(|values| median(values.iter().copied()));
        let mean = |groups: &[Vec<f64>]| {
            let medians = groups.iter().map(|values| median(values.iter().copied()));
            medians.sum::<f64>() / groups.len() as f64
        };
        let runs = groups.iter().map(Vec::len).sum();
        let margin = TOLERANCE * value.abs();
        let agreeing = (value - margin, value + margin);
        Finding::of(medians.collect(), bootstrap(&groups, mean), runs, agreeing)
    }

    fn found_ratio(&self, published: &Published, of: [&str; 2], agreeing: Agreeing) -> Finding {
        let groups = self.pairs_of(published, of[0], of[1]);
        let ratios = groups.chunks(1).map(mean_ratio).collect();
        let runs = groups.iter().map(Vec::len).sum();
        let logarithm = |pairs: &Vec<(f64, f64)>| {
            let is_lower_better = is_lower_better(&published.metric);
            Some(Comparison::of(pairs, is_lower_better)?.paired.ln())
        };
        let paired = Statistics::of(groups.iter().filter_map(logarithm));
        Finding {
            paired: (paired.count > 0).then(|| paired.mean.exp()),
            ..Finding::of(ratios, bootstrap(&groups, mean_ratio), runs, agreeing)
        }
    }

    /// The share of runs in which the first is better than the second by this much.
    fn found_share(&self, published: &Published, of: [&str; 2], wanted: f64, by: f64) -> Finding {
        let groups = self.pairs_of(published, of[0], of[1]);
        let gain = |(ours, theirs): &(f64, f64)| match is_lower_better(&published.metric) {
            true => theirs / ours - 1.0,
            false => ours / theirs - 1.0,
        };
        let better = |pair: &&(f64, f64)| gain(pair) > by || (by > 0.0 && gain(pair) >= by);
        let hits = |pairs: &Vec<(f64, f64)>| pairs.iter().filter(better).count();
        let shares = groups
            .iter()
            .map(|pairs| hits(pairs) as f64 / pairs.len() as f64);
        let runs = groups.iter().map(Vec::len).sum();
        let interval = share(groups.iter().map(hits).sum(), runs);
        Finding::of(shares.collect(), interval, runs, (wanted, 1.0))
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

    /// For each pair with the first: equal (0), undecided (1), or not equal (2).
    fn equal(&self, published: &Published, names: &[String]) -> Vec<usize> {
        let Some((first, others)) = names.split_first() else {
            return Vec::new();
        };
        let kind = |pairs: Vec<(f64, f64)>| {
            let runs = pairs.len();
            let groups = [pairs];
            let interval = bootstrap(&groups, mean_ratio);
            let found = Finding::of(vec![mean_ratio(&groups)], interval, runs, near(1.0));
            match found.outcome {
                Outcome::Confirmed => 0,
                Outcome::Refuted => 2,
                _ => 1,
            }
        };
        let groups = others
            .iter()
            .flat_map(|other| self.pairs_of(published, other, first));
        groups.map(kind).collect()
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

    /// Two combinations of swept values; each contender's times in the runs of both, each twice.
    fn results(times: [(&str, [[f64; 3]; 2]); 3]) -> ScenarioResults {
        let mut runs = Vec::new();
        for (contender, (_, by_sweep)) in times.iter().enumerate() {
            for (sweep, times) in by_sweep.iter().enumerate() {
                let twice = times.iter().chain(times);
                runs.extend(twice.enumerate().map(|(run, time)| Run {
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

    fn published(at: &str, claim: Claim) -> Published {
        Published {
            text: String::new(),
            metric: METRIC.into(),
            at: at.into(),
            reason: String::new(),
            claim,
        }
    }

    fn finding(at: &str, claim: Claim) -> Finding {
        three().finding(&published(at, claim))
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
        let all = finding("", ratio(0.70));
        assert_eq!(all.outcome, Outcome::Confirmed);
        assert!((all.mean() - (0.5 + 2.0 / 2.05) / 2.0).abs() < 1e-9);
        assert!((all.paired.unwrap() - 0.7070).abs() < 1e-3, "{all:?}");
        let (low, high) = all.interval.unwrap();
        assert!(low <= all.mean() && all.mean() <= high && low < high);
        // 0.738 is within 0.10 of this, but not the whole interval.
        assert_eq!(finding("", ratio(0.64)).outcome, Outcome::Open);
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
        // One pair as claimed is not the order: the other one is undecided.
        let half = finding("", order(&[&["a"], &["b"]]));
        assert_eq!((half.pairs, half.outcome), ([1, 1, 0], Outcome::InPart));
    }

    #[test]
    fn shares_and_equality() {
        let better = |share, by| Claim::Better {
            contender: "a".into(),
            against: "b".into(),
            share,
            by,
        };
        // All of six, half of twelve, and none of six runs.
        for (at, outcome) in [
            ("a.owd_ms=1", Outcome::Confirmed),
            ("", Outcome::Open),
            ("a.owd_ms=2", Outcome::Refuted),
        ] {
            assert_eq!(finding(at, better(0.5, 0.2)).outcome, outcome);
        }
        // Six of six may be luck where nine of ten are claimed.
        let nearly = finding("a.owd_ms=1", better(0.9, 0.2));
        assert_eq!((nearly.mean(), nearly.outcome), (1.0, Outcome::Open));
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
    fn a_few_runs_decide_nothing() {
        let mut few = three();
        few.runs.retain(|run| run.run < MIN_RUNS - 1);
        let value = Claim::Value {
            contender: "a".into(),
            value: 1.05,
        };
        let of = |results: &ScenarioResults| {
            let claim = published("a.owd_ms=1", value.clone());
            results.finding(&claim).outcome
        };
        assert_eq!(
            (of(&few), of(&three())),
            (Outcome::Open, Outcome::Confirmed)
        );
        // Nor does one run decide an order, however far apart its times are.
        few.runs.retain(|run| run.run == 0);
        let claim = published("", order(&[&["a"], &["c"]]));
        assert_eq!(few.finding(&claim).pairs, [0, 2, 0]);
    }

    #[test]
    fn claims_can_be_held_against_the_published_forms() {
        let forms = vec![("b".to_owned(), "c".to_owned())];
        let claim = published("a.owd_ms=2", order(&[&["b"], &["a"]]));
        assert_eq!(three().finding(&claim).outcome, Outcome::Open);
        let claim = claim.of_published(&forms).unwrap();
        assert_eq!(claim.claim, order(&[&["c"], &["a"]]));
        assert_eq!(three().finding(&claim).outcome, Outcome::Confirmed);
        let other = published("", order(&[&["x"], &["a"]]));
        assert_eq!(other.of_published(&forms), None);
    }

    #[test]
    fn a_change_is_measured_against_another_scenario() {
        let (mut fast, slow) = (three(), three());
        fast.id = "fast".into();
        for run in &mut fast.runs {
            run.metrics.values_mut().for_each(|value| *value *= 0.5);
        }
        let change = Claim::Change {
            contender: "a".into(),
            scenario: "x".into(),
            ratio: 0.5,
        };
        let published = published("", change);
        let results = Results {
            scenarios: vec![slow, fast.clone()],
        };
        let found = results.finding(&fast, &published);
        assert_eq!((found.outcome, found.mean()), (Outcome::Confirmed, 0.5));
        assert_eq!(fast.finding(&published).outcome, Outcome::NotRun);
    }
}
