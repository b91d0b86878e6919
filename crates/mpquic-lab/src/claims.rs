//! Published claims beside our results, as text.

use mpquic_sim::experiment::{
    Cell, Edge, Finding, Outcome, Results, ScenarioResults, TOLERANCE, is_lower_better,
};
use mpquic_sim::scenario::{Claim, Published};

use crate::numbers::{short, unit};

/// The verdict that nothing can be said.
const UNDECIDED: &str = "undecided";
/// The verdict on a published gain that our tolerance does not tell from no gain.
const TOO_SMALL: &str = "too small to tell";
/// The largest gain that counts as none.
const NO_GAIN: f64 = 0.01;

/// One row of the table: a published claim beside our results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) metric: String,
    pub(super) published: String,
    /// The verdict on the contenders in the publication's form; `None` if the scenario runs no
    /// contender in the publication's form.
    pub(super) as_published: Option<Verdict>,
    /// The verdict on our own form of the contenders.
    pub(super) ours: Verdict,
    /// The reason why our results differ from the claim; empty if our results agree.
    pub(super) reason: String,
}

/// The verdict of our runs on a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) found: String,
    pub(super) outcome: &'static str,
    /// True if the verdict needs a reason.
    differs: bool,
}

/// The rows for all claims about `scenario`. `results` contain the scenario.
pub(super) fn rows(results: &Results, scenario: &ScenarioResults) -> Vec<Row> {
    let as_published = scenario.published.iter();
    let as_published: Vec<_> = as_published
        .map(|claim| claim.of_published(&scenario.as_published))
        .collect();
    let known: Vec<_> = as_published.iter().flatten().cloned().collect();
    // All claims of a column share a test, so that the confidence holds for the whole column.
    let mut verdicts = verdicts(results, scenario, &known).into_iter();
    let ours = self::verdicts(results, scenario, &scenario.published);
    let mut rows = Vec::new();
    for ((published, form), ours) in scenario.published.iter().zip(as_published).zip(ours) {
        let as_published = form.and_then(|_| verdicts.next());
        let differs = ours.differs || as_published.as_ref().is_some_and(|v| v.differs);
        rows.push(Row {
            metric: published.metric.clone(),
            published: claimed(published),
            as_published,
            ours,
            reason: if differs {
                published.reason.clone()
            } else {
                String::new()
            },
        });
    }
    rows
}

/// The same rows, but a verdict that runs with another base seed contradict is undecided. `others`
/// are results with other base seeds.
pub(super) fn settled_rows(
    results: &Results,
    scenario: &ScenarioResults,
    others: &[Results],
) -> Vec<Row> {
    let mut rows = rows(results, scenario);
    for other in others {
        let same = other.scenarios.iter().find(|other| other.id == scenario.id);
        let Some(same) = same.filter(|same| same.published == scenario.published) else {
            continue;
        };
        for ((row, other), published) in rows
            .iter_mut()
            .zip(self::rows(other, same))
            .zip(&scenario.published)
        {
            let mut moved = row.ours.settle(&other.ours, same.seed);
            if let (Some(verdict), Some(other)) = (&mut row.as_published, &other.as_published) {
                moved |= verdict.settle(other, same.seed);
            }
            if moved {
                row.reason.clone_from(&published.reason);
            }
        }
    }
    rows
}

impl Verdict {
    /// Leaves the claim open if another base seed has another verdict. Returns true if the verdict
    /// moved.
    fn settle(&mut self, other: &Self, seed: u64) -> bool {
        let moved = self.outcome != UNDECIDED && self.outcome != other.outcome;
        if moved {
            self.found += &format!("; {}, with seed {seed} {}", self.outcome, other.outcome);
            self.outcome = UNDECIDED;
            self.differs = true;
        }
        moved
    }
}

/// The verdicts of our runs on the claims of one test.
fn verdicts(results: &Results, scenario: &ScenarioResults, claims: &[Published]) -> Vec<Verdict> {
    let findings = results.findings(scenario, claims);
    let verdict = |(published, finding): (&Published, Finding)| Verdict {
        found: ours(scenario, published, &finding) + &edge(&finding),
        outcome: outcome(&published.claim, &finding),
        differs: is_too_small(&published.claim, &finding)
            || matches!(
                finding.outcome,
                Outcome::Refuted | Outcome::InPart | Outcome::Open | Outcome::Words
            ),
    };
    claims.iter().zip(findings).map(verdict).collect()
}

/// The remark on a finding near the edge between two verdicts.
fn edge(finding: &Finding) -> String {
    match finding.edge {
        Edge::Far => String::new(),
        Edge::Near => "; near the edge: decided with 95 %, not with 99 % confidence".into(),
        Edge::Runs(runs) => format!("; about {runs} runs would decide"),
        Edge::On => "; on the edge: more runs would hardly decide".into(),
    }
}

/// The number of claims per outcome: its name, the count against published forms, and the count
/// against ours. Only claims for which the scenario ran a published form have a verdict in the first
/// count.
pub(super) fn counts(rows: &[Row]) -> Vec<(&'static str, usize, usize)> {
    let names = [
        "within 0.10",
        "confirmed",
        "in part",
        TOO_SMALL,
        UNDECIDED,
        "differs",
        "refuted",
    ];
    let count = |name: &'static str| {
        let ours = rows.iter().filter(|row| row.ours.outcome == name).count();
        let published = rows.iter().filter_map(|row| row.as_published.as_ref());
        let published = published.filter(|verdict| verdict.outcome == name);
        (name, published.count(), ours)
    };
    names.map(count).into()
}

/// True for a published gain of at most 0.10 beside a result that may be no gain: a result within
/// 0.10 of the gain says nothing then.
fn is_too_small(claim: &Claim, finding: &Finding) -> bool {
    let (Claim::Ratio {
        ratio,
        or_better: false,
        ..
    }
    | Claim::Change { ratio, .. }) = claim
    else {
        return false;
    };
    let published = ratio - 1.0;
    // A published gain of 0.5 per cent or less claims equality.
    let is_small = (0.005..=TOLERANCE + 1e-9).contains(&published.abs());
    let ours = finding.mean() - 1.0;
    let (low, high) = finding.interval.unwrap_or_default();
    let may_be_none = (low..=high).contains(&1.0) || ours * published.signum() <= NO_GAIN;
    finding.outcome == Outcome::Confirmed && is_small && may_be_none
}

fn outcome(claim: &Claim, finding: &Finding) -> &'static str {
    let is_number = match claim {
        Claim::Ratio { or_better, .. } | Claim::Value { or_better, .. } => !or_better,
        Claim::Change { .. } => true,
        _ => false,
    };
    match finding.outcome {
        Outcome::Confirmed if is_too_small(claim, finding) => TOO_SMALL,
        Outcome::Words => "",
        Outcome::NotRun => "not run",
        Outcome::Confirmed if is_number => "within 0.10",
        Outcome::Confirmed => "confirmed",
        Outcome::InPart => "in part",
        Outcome::Open => UNDECIDED,
        Outcome::Refuted if is_number => "differs",
        Outcome::Refuted => "refuted",
    }
}

fn sign(metric: &str) -> &'static str {
    if is_lower_better(metric) {
        " < "
    } else {
        " > "
    }
}

fn claimed(published: &Published) -> String {
    let numbers = match &published.claim {
        Claim::Words => String::new(),
        Claim::Value {
            contender,
            value,
            or_better,
        } => {
            let bound = if *or_better { " or better" } else { "" };
            format!("{contender} {}{bound}", short(*value))
        }
        Claim::Ratio {
            contender,
            against,
            ratio,
            or_better,
            best,
        } => {
            let bound = if *or_better { " or better" } else { "" };
            let best = if *best { " at best" } else { "" };
            format!("{contender}/{against} {ratio:.3}{best}{bound}")
        }
        Claim::Change {
            contender,
            scenario,
            ratio,
        } => format!("{contender} {ratio:.3} of {scenario}"),
        Claim::Better {
            contender,
            against,
            share,
            by,
        } => {
            let percent = |share: f64| format!("{:.0} %", share * 100.0);
            let by = if *by > 0.0 {
                format!(" by {} or more", percent(*by))
            } else {
                String::new()
            };
            format!(
                "{contender} better than {against}{by} in {}",
                percent(*share)
            )
        }
        Claim::Order(groups) => {
            let groups: Vec<_> = groups.iter().map(|names| names.join(", ")).collect();
            groups.join(sign(&published.metric))
        }
        Claim::Equal(names) => names.join(" = "),
    };
    let parts = [numbers.as_str(), published.at.as_str(), &published.text];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("; ")
}

fn ours(scenario: &ScenarioResults, published: &Published, finding: &Finding) -> String {
    if finding.outcome == Outcome::NotRun {
        return "not run".into();
    }
    let scale = |value: f64| match published.claim {
        Claim::Better { .. } => format!("{:.0} %", value * 100.0),
        Claim::Value { .. } => short(value),
        _ => format!("{value:.3}"),
    };
    match &published.claim {
        Claim::Order(_) => {
            let [holds, open, against] = finding.pairs;
            let mut text = medians(scenario, published);
            if holds + open + against > 1 {
                text += &format!(
                    "; of {} pairs {holds} as claimed, {against} the other way",
                    holds + open + against
                );
            }
            text
        }
        Claim::Words | Claim::Equal(_) => medians(scenario, published),
        _ => {
            let least = finding.values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = finding.values.iter().copied().fold(0.0, f64::max);
            let mut text = scale(finding.mean());
            if let Some((low, high)) = finding.interval {
                text += &format!(" [{}, {}]", scale(low), scale(high));
            }
            if finding.values.len() > 1 {
                text += &format!(" ({} to {})", scale(least), scale(most));
            }
            if let Some(paired) = finding.paired {
                text += &format!("; run by run {paired:.3}");
            }
            text
        }
    }
}

/// The medians of the contenders that a claim names, from the best to the worst. A claim without
/// names takes all contenders.
///
/// Over several combinations of swept values, the medians are relative to the baseline.
fn medians(scenario: &ScenarioResults, published: &Published) -> String {
    let metric = &published.metric;
    let sweeps: Vec<usize> = scenario.sweeps_of(published).collect();
    let baseline = scenario.contender(&scenario.baseline);
    let value = |contender: usize| match sweeps.as_slice() {
        [sweep] => {
            let cell = Cell {
                sweep: *sweep,
                contender,
            };
            let statistics = scenario.summary(cell, metric).statistics;
            (statistics.count > 0).then_some(statistics.median)
        }
        sweeps => scenario.ratio(contender, baseline?, sweeps.iter().copied(), metric),
    };
    let named = published.claim.contenders();
    let contenders = scenario.contenders.iter().enumerate();
    let mut values: Vec<(&str, f64)> = contenders
        .filter(|(_, name)| named.is_empty() || named.contains(&name.as_str()))
        .filter_map(|(index, name)| Some((name.as_str(), value(index)?)))
        .collect();
    values.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    if !is_lower_better(metric) {
        values.reverse();
    }
    let list = values
        .iter()
        .map(|(name, value)| format!("{name} {}", short(*value)));
    let list = list.collect::<Vec<_>>().join(sign(metric));
    match (sweeps.len(), unit(metric).1) {
        (1, "") => list,
        (1, unit) => format!("{list} {unit}"),
        _ => format!("{list} times {}", scenario.baseline),
    }
}

#[cfg(test)]
mod tests;
