//! Compares published claims with our runs.

use super::chance::{self, EARLY_LEVEL, LEVEL, corrected};
use super::is_lower_better;
use super::resample::{MIN_RUNS, Resampled, bootstrap, share};
use super::results::{Results, ScenarioResults};
use super::statistics::{Statistics, median};
use super::summary::{Cell, Comparison};
use crate::scenario::{Claim, Published};

#[cfg(test)]
mod tests;

/// A published ratio agrees with our ratio up to this difference.
pub const TOLERANCE: f64 = 0.10;
/// The difference up to which contenders count as equal, even with a significant difference.
const NEGLIGIBLE: f64 = 0.01;
/// The chance above which a decided verdict is near its edge.
const SURE: f64 = 0.01;

/// Whether our runs confirm a published claim. A result is [`Self::Open`] if the result could be
/// chance, at 95 % confidence for all claims of a test together, or if a number comes from fewer
/// than six runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The claim has no numbers for a comparison.
    Words,
    /// The runs lack a contender or scenario of the claim.
    NotRun,
    /// Our result agrees. A ratio is within [`TOLERANCE`], a share is at least as large, or every
    /// pair of an order follows the claim.
    Confirmed,
    /// Our runs confirm a part of the claimed order; the rest is undecided or reversed.
    InPart,
    /// The difference could be chance, or is negligible.
    Open,
    /// Our result is different.
    Refuted,
}

/// A published claim, compared with our runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Whether the claim is confirmed.
    pub outcome: Outcome,
    /// Our number, for claims of a number: one per combination of swept values.
    pub values: Vec<f64>,
    /// The number that decides; `None` for the mean of [`Self::values`].
    pub number: Option<f64>,
    /// The 95 % interval of [`Self::mean`], for claims of a number or a share. The interval belongs
    /// to this claim alone. The verdict holds for all claims together and may need a wider
    /// interval.
    pub interval: Option<(f64, f64)>,
    /// The geometric mean of the ratios of single runs, for claims of a ratio. With very different
    /// runs, the geometric mean is steadier than the ratio of medians.
    pub paired: Option<f64>,
    /// For claims of an order, the number of confirmed, undecided, and reversed pairs of
    /// contenders, over all combinations of swept values.
    pub pairs: [usize; 3],
    /// How certain the verdict is, for claims of a number or a share.
    pub edge: Edge,
}

/// The distance of a verdict from its edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// More runs would not change the verdict, or the verdict cannot change.
    Far,
    /// The verdict is decided with 95 % confidence, but not with 99 %.
    Near,
    /// The verdict is undecided. About this many runs would decide the verdict, if further runs
    /// resembled the present runs.
    Runs(usize),
    /// The verdict is undecided, and no reasonable number of runs would decide the verdict.
    On,
}

/// Least and greatest value that agrees with a claim.
type Agreeing = (f64, f64);
/// Turns the pairs of each combination of swept values into one ratio.
type Statistic = fn(&[Vec<(f64, f64)>]) -> f64;

/// The result of one comparison of a claim.
#[derive(Debug, Clone, Copy)]
struct Test {
    /// True if the result agrees with the claim, false if the result contradicts the claim. `None`
    /// for too few runs, or for a negligible difference.
    says: Option<bool>,
    /// The difference is too small to matter; `chance` is the chance of a larger difference.
    is_negligible: bool,
    /// The probability of this result for a true value on the edge.
    chance: f64,
    runs: usize,
}

impl Test {
    fn is_decided(&self, corrected: f64) -> Option<bool> {
        self.says.filter(|_| corrected <= LEVEL)
    }

    /// True if more runs would not change the result.
    fn is_settled(&self, corrected: f64) -> bool {
        // A few runs may all lie on one side by chance, even if resampling gives a clear result.
        let by_sign = 0.5_f64.powi(self.runs.saturating_sub(1).min(1_000) as i32);
        let is_decided = self.says.is_some() && corrected.max(by_sign) <= EARLY_LEVEL;
        is_decided || self.is_negligible && corrected <= EARLY_LEVEL
    }
}

/// A finding before Holm's correction for the number of comparisons.
struct Draft {
    finding: Finding,
    tests: Vec<Test>,
    is_number: bool,
}

impl Draft {
    fn bare(outcome: Outcome) -> Self {
        Self {
            finding: Finding {
                outcome,
                values: Vec::new(),
                number: None,
                interval: None,
                paired: None,
                pairs: [0; 3],
                edge: Edge::Far,
            },
            tests: Vec::new(),
            is_number: false,
        }
    }

    /// A number per combination of swept values; the mean of the numbers decides.
    fn number(values: Vec<f64>, interval: (f64, f64), test: Test) -> Self {
        let mut draft = Self::bare(Outcome::Open);
        draft.finding.values = values;
        draft.finding.interval = Some(interval);
        draft.tests.push(test);
        draft.is_number = true;
        draft
    }

    fn pairs(tests: Vec<Test>) -> Self {
        let outcome = if tests.is_empty() {
            Outcome::NotRun
        } else {
            Outcome::Open
        };
        Self {
            tests,
            ..Self::bare(outcome)
        }
    }

    /// The finding, with chances corrected for all tests together.
    fn finished(mut self, corrected: &[f64]) -> Finding {
        let decided = self.tests.iter().zip(corrected);
        let decided: Vec<_> = decided
            .map(|(test, chance)| test.is_decided(*chance))
            .collect();
        match (self.is_number, self.tests.as_slice(), decided.as_slice()) {
            (true, [test], [decided]) => {
                self.finding.outcome = match decided {
                    Some(true) => Outcome::Confirmed,
                    Some(false) => Outcome::Refuted,
                    None => Outcome::Open,
                };
                self.finding.edge = edge(test, corrected[0], decided.is_some());
            }
            (_, [], _) => {}
            _ => {
                for decided in decided {
                    self.finding.pairs[match decided {
                        Some(true) => 0,
                        None => 1,
                        Some(false) => 2,
                    }] += 1;
                }
                self.finding.outcome = match self.finding.pairs {
                    [0, _, 0] => Outcome::Open,
                    [_, 0, 0] => Outcome::Confirmed,
                    [0, _, _] => Outcome::Refuted,
                    _ => Outcome::InPart,
                };
            }
        }
        self.finding
    }
}

fn edge(test: &Test, corrected: f64, decided: bool) -> Edge {
    if decided {
        return if corrected > SURE {
            Edge::Near
        } else {
            Edge::Far
        };
    }
    match chance::runs_to_decide(test.runs, test.chance, corrected) {
        Some(runs) => Edge::Runs(runs.max(MIN_RUNS)),
        None => Edge::On,
    }
}

impl Finding {
    /// The mean of [`Self::values`], or the best of them if the claim is about the best.
    pub fn mean(&self) -> f64 {
        let mean = || self.values.iter().sum::<f64>() / self.values.len() as f64;
        self.number.unwrap_or_else(mean)
    }
}

/// Tests a number by resampled runs.
fn test(resampled: &Resampled, runs: usize, agreeing: Agreeing) -> Test {
    let (agrees, chance) = resampled.is_within(agreeing);
    Test {
        says: (runs >= MIN_RUNS).then_some(agrees),
        is_negligible: false,
        chance,
        runs,
    }
}

fn near(value: f64) -> Agreeing {
    (value - TOLERANCE, value + TOLERANCE)
}

/// The values within a margin of `value`, or better than the margin if `value` is a bound.
fn bounded(value: f64, margin: f64, or_better: bool, metric: &str) -> Agreeing {
    let (least, most) = (value - margin, value + margin);
    match (or_better, is_lower_better(metric)) {
        (false, _) => (least, most),
        (true, true) => (f64::NEG_INFINITY, most),
        (true, false) => (least, f64::INFINITY),
    }
}

/// The ratio of each group's medians.
fn ratios(groups: &[Vec<(f64, f64)>]) -> impl Iterator<Item = f64> {
    groups
        .iter()
        .map(|pairs| mean_ratio(std::slice::from_ref(pairs)))
}

fn least_ratio(groups: &[Vec<(f64, f64)>]) -> f64 {
    ratios(groups).fold(f64::INFINITY, f64::min)
}

fn largest_ratio(groups: &[Vec<(f64, f64)>]) -> f64 {
    ratios(groups).fold(f64::NEG_INFINITY, f64::max)
}

/// The mean, over groups of pairs, of the ratios of their medians.
fn mean_ratio(groups: &[Vec<(f64, f64)>]) -> f64 {
    let ratio = |pairs: &Vec<(f64, f64)>| {
        median(pairs.iter().map(|(ours, _)| *ours)) / median(pairs.iter().map(|(_, other)| *other))
    };
    groups.iter().map(ratio).sum::<f64>() / groups.len() as f64
}

impl Results {
    /// Compares published claims about a scenario with our runs. All claims share the risk of the
    /// test: with 95 % confidence, every verdict is right.
    pub fn findings(&self, of: &ScenarioResults, claims: &[Published]) -> Vec<Finding> {
        let drafts: Vec<_> = claims.iter().map(|claim| self.draft(of, claim)).collect();
        let tests = drafts.iter().flat_map(|draft| &draft.tests);
        let chances: Vec<_> = tests.map(|test| test.chance).collect();
        let corrected = corrected(&chances);
        let mut left = corrected.as_slice();
        let finish = |draft: Draft| {
            let (own, others) = left.split_at(draft.tests.len());
            left = others;
            draft.finished(own)
        };
        drafts.into_iter().map(finish).collect()
    }

    fn draft(&self, of: &ScenarioResults, published: &Published) -> Draft {
        let Claim::Change {
            contender,
            scenario,
            ratio,
        } = &published.claim
        else {
            return of.draft(published);
        };
        let other = self.scenarios.iter().find(|other| other.id == *scenario);
        let values = |of: &ScenarioResults| of.values(0, contender, &published.metric);
        let Some(both) = other.and_then(|other| Some([values(of)?, values(other)?])) else {
            return Draft::bare(Outcome::NotRun);
        };
        let change = |both: &[Vec<f64>]| median(both[0].clone()) / median(both[1].clone());
        let runs = both.iter().map(Vec::len).min().unwrap_or(0);
        match bootstrap(&both, change).filter(|_| runs > 0) {
            Some(resampled) => Draft::number(
                vec![change(&both)],
                resampled.interval(),
                test(&resampled, runs, near(*ratio)),
            ),
            None => Draft::bare(Outcome::NotRun),
        }
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

    /// The combinations of swept values that a claim covers.
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

    /// Two contenders compared run by run, and the number of runs.
    fn compared(
        &self,
        sweep: usize,
        ours: &str,
        theirs: &str,
        metric: &str,
    ) -> Option<(Comparison, usize)> {
        let pairs = self.pairs(
            sweep,
            self.contender(ours)?,
            self.contender(theirs)?,
            metric,
        );
        Some((
            Comparison::of(&pairs, is_lower_better(metric))?,
            pairs.len(),
        ))
    }

    /// A metric of two contenders in the same runs, for each combination of swept values with runs
    /// that the claim covers.
    fn pairs_of(&self, published: &Published, ours: &str, theirs: &str) -> Vec<Vec<(f64, f64)>> {
        let (Some(ours), Some(theirs)) = (self.contender(ours), self.contender(theirs)) else {
            return Vec::new();
        };
        let pairs = |sweep| self.pairs(sweep, ours, theirs, &published.metric);
        let groups = self.sweeps_of(published).map(pairs);
        groups.filter(|pairs| !pairs.is_empty()).collect()
    }

    /// True if the scenario's own runs can decide its claims, and the present runs decide every
    /// claim: further runs would not change a verdict.
    pub(super) fn is_decided(&self) -> bool {
        let forms = self.published.iter();
        let forms = forms.filter_map(|claim| claim.of_published(&self.as_published));
        let columns = [self.published.clone(), forms.collect()];
        let is_settled = |claims: &Vec<Published>| {
            let drafts: Vec<_> = claims.iter().map(|claim| self.draft(claim)).collect();
            // No run decides a claim about an absent contender.
            let says_nothing =
                |draft: &Draft| draft.tests.is_empty() && draft.finding.outcome != Outcome::Words;
            if drafts.iter().any(says_nothing) {
                return false;
            }
            let tests: Vec<Test> = drafts.into_iter().flat_map(|draft| draft.tests).collect();
            let chances: Vec<_> = tests.iter().map(|test| test.chance).collect();
            let mut all = tests.iter().zip(corrected(&chances));
            all.all(|(test, chance)| test.is_settled(chance))
        };
        let of_itself = |claim: &Published| match claim.claim {
            Claim::Words => None,
            Claim::Change { .. } => Some(false),
            _ => Some(true),
        };
        let kinds: Vec<_> = self.published.iter().filter_map(of_itself).collect();
        let enough = |cell| self.runs_of(cell).count() >= MIN_RUNS;
        let is_own = !kinds.is_empty() && kinds.into_iter().all(|own| own);
        // Claims about absent contenders stay undecided.
        let is_open = |claim: &Published| self.draft(claim).finding.outcome == Outcome::NotRun;
        is_own
            && !self.published.iter().any(is_open)
            && self.cells().all(enough)
            && columns.iter().all(is_settled)
    }

    /// Compares a claim about this scenario alone with the scenario's runs.
    fn draft(&self, published: &Published) -> Draft {
        let metric = &published.metric;
        match &published.claim {
            Claim::Words => Draft::bare(Outcome::Words),
            Claim::Change { .. } => Draft::bare(Outcome::NotRun),
            Claim::Value {
                contender,
                value,
                or_better,
            } => {
                let margin = if *or_better { 0.0 } else { TOLERANCE * value };
                let agreeing = bounded(*value, margin, *or_better, metric);
                self.found_value(published, contender, agreeing)
            }
            Claim::Ratio {
                contender,
                against,
                ratio,
                or_better,
                best,
            } => {
                let agreeing = bounded(*ratio, TOLERANCE, *or_better, metric);
                let statistic = match (best, is_lower_better(metric)) {
                    (false, _) => mean_ratio,
                    (true, true) => least_ratio,
                    (true, false) => largest_ratio,
                };
                self.found_ratio(published, [contender, against], agreeing, statistic)
            }
            Claim::Better {
                contender,
                against,
                share,
                by,
            } => self.found_share(published, [contender, against], *share, *by),
            Claim::Order(groups) => {
                let sweeps = self.sweeps_of(published);
                let pairs = sweeps.flat_map(|sweep| self.ordered(sweep, groups, metric));
                Draft::pairs(pairs.collect())
            }
            Claim::Equal(names) => Draft::pairs(self.equal(published, names)),
        }
    }

    fn found_value(&self, published: &Published, contender: &str, agreeing: Agreeing) -> Draft {
        let sweeps = self.sweeps_of(published);
        let groups = sweeps.filter_map(|sweep| self.values(sweep, contender, &published.metric));
        let groups: Vec<_> = groups.filter(|values| !values.is_empty()).collect();
        let medians = groups.iter().map(|values| median(values.iter().copied()));
        let mean = |groups: &[Vec<f64>]| {
            let medians = groups.iter().map(|values| median(values.iter().copied()));
            medians.sum::<f64>() / groups.len() as f64
        };
        let Some(resampled) = bootstrap(&groups, mean) else {
            return Draft::bare(Outcome::NotRun);
        };
        let runs = groups.iter().map(Vec::len).sum();
        let test = test(&resampled, runs, agreeing);
        Draft::number(medians.collect(), resampled.interval(), test)
    }

    fn found_ratio(
        &self,
        published: &Published,
        of: [&str; 2],
        agreeing: Agreeing,
        statistic: Statistic,
    ) -> Draft {
        let groups = self.pairs_of(published, of[0], of[1]);
        let ratios = groups.chunks(1).map(mean_ratio).collect();
        let Some(resampled) = bootstrap(&groups, statistic) else {
            return Draft::bare(Outcome::NotRun);
        };
        let runs = groups.iter().map(Vec::len).sum();
        let logarithm = |pairs: &Vec<(f64, f64)>| {
            let is_lower_better = is_lower_better(&published.metric);
            Some(Comparison::of(pairs, is_lower_better)?.paired.ln())
        };
        let paired = Statistics::of(groups.iter().filter_map(logarithm));
        let test = test(&resampled, runs, agreeing);
        let mut draft = Draft::number(ratios, resampled.interval(), test);
        draft.finding.number = Some(statistic(&groups));
        draft.finding.paired = (paired.count > 0).then(|| paired.mean.exp());
        draft
    }

    /// The share of runs in which the first contender is better than the second by at least `by`.
    fn found_share(&self, published: &Published, of: [&str; 2], wanted: f64, by: f64) -> Draft {
        let groups = self.pairs_of(published, of[0], of[1]);
        let gain = |(ours, theirs): &(f64, f64)| {
            if is_lower_better(&published.metric) {
                theirs / ours - 1.0
            } else {
                ours / theirs - 1.0
            }
        };
        let better = |pair: &&(f64, f64)| gain(pair) > by || (by > 0.0 && gain(pair) >= by);
        let hits = |pairs: &Vec<(f64, f64)>| pairs.iter().filter(better).count();
        let shares = groups
            .iter()
            .map(|pairs| hits(pairs) as f64 / pairs.len() as f64);
        let runs = groups.iter().map(Vec::len).sum();
        let all = groups.iter().map(hits).sum();
        let Some(interval) = share(all, runs) else {
            return Draft::bare(Outcome::NotRun);
        };
        let agrees = all as f64 / runs as f64 >= wanted;
        let test = Test {
            says: (runs >= MIN_RUNS).then_some(agrees),
            is_negligible: false,
            chance: chance::of_share(all, runs, wanted),
            runs,
        };
        Draft::number(shares.collect(), interval, test)
    }

    /// Tests each pair of contenders from different groups for the claimed order.
    fn ordered(&self, sweep: usize, groups: &[Vec<String>], metric: &str) -> Vec<Test> {
        let sign = if is_lower_better(metric) { 1.0 } else { -1.0 };
        let mut pairs = Vec::new();
        for (index, better) in groups.iter().enumerate() {
            let worse = groups[index + 1..].iter().flatten();
            for (better, worse) in worse.flat_map(|worse| better.iter().map(move |b| (b, worse))) {
                let Some((comparison, runs)) = self.compared(sweep, better, worse, metric) else {
                    continue;
                };
                let difference = sign * comparison.paired.ln();
                let is_negligible = difference.abs() <= NEGLIGIBLE;
                let (error, count) = comparison.error;
                pairs.push(Test {
                    says: (!is_negligible).then_some(difference < 0.0),
                    is_negligible,
                    chance: if is_negligible {
                        chance::beyond(difference, error, count, NEGLIGIBLE)
                    } else {
                        comparison.chance
                    },
                    runs,
                });
            }
        }
        pairs
    }

    /// Tests each contender for equality with the first.
    fn equal(&self, published: &Published, names: &[String]) -> Vec<Test> {
        let Some((first, others)) = names.split_first() else {
            return Vec::new();
        };
        let equal = |pairs: Vec<(f64, f64)>| {
            let runs = pairs.len();
            let resampled = bootstrap(&[pairs], mean_ratio)?;
            Some(test(&resampled, runs, near(1.0)))
        };
        let groups = others
            .iter()
            .flat_map(|other| self.pairs_of(published, other, first));
        groups.filter_map(equal).collect()
    }
}
