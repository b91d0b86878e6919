//! Published claims beside our results, as text.

use mpquic_sim::experiment::{
    Cell, Edge, Finding, Outcome, Results, ScenarioResults, Statistics, TOLERANCE, is_lower_better,
};
use mpquic_sim::scenario::{Claim, Published};

use crate::numbers::{short, unit};

/// The verdict that nothing can be said.
const UNDECIDED: &str = "undecided";
/// The verdict on a published gain that our tolerance does not tell from no gain.
const TOO_SMALL: &str = "too small to tell";
/// A contender is shown with its tenth and ninetieth percentile if their ratio exceeds this limit.
const WIDE: f64 = 1.5;
/// The least number of runs that have a tenth and a ninetieth percentile.
const MIN_RUNS: usize = 6;
/// The largest gain that counts as none.
const NO_GAIN: f64 = 0.01;

/// One row of the table: a published claim beside our results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) metric: String,
    pub(super) published: String,
    /// The authors' own figure; empty if no figure is known.
    pub(super) theirs: String,
    /// The verdict on the contenders in the publication's form; `None` if the scenario runs no
    /// contender in the publication's form.
    pub(super) as_published: Option<Verdict>,
    /// The verdict on our own form of the contenders.
    pub(super) ours: Verdict,
}

/// The columns of a table of claims.
pub(super) const COLUMNS: [&str; 9] = [
    "metric",
    "published",
    "their figure",
    "against published forms",
    "verdict",
    "why it differs",
    "against ours",
    "verdict",
    "why it differs",
];

impl Row {
    /// The cells below [`COLUMNS`].
    pub(super) fn cells(self) -> [String; COLUMNS.len()] {
        let cells = |verdict: Verdict| (verdict.found, verdict.outcome.to_owned(), verdict.reason);
        let (forms, forms_outcome, forms_reason) =
            self.as_published.map_or_else(Default::default, cells);
        let (ours, outcome, reason) = cells(self.ours);
        [
            self.metric,
            self.published,
            self.theirs,
            forms,
            forms_outcome,
            forms_reason,
            ours,
            outcome,
            reason,
        ]
    }
}

/// The verdict of our runs on a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) found: String,
    pub(super) outcome: &'static str,
    /// The reason why these contenders differ from the claim; empty if they agree.
    pub(super) reason: String,
    /// True if the verdict is another one with another base seed.
    pub(super) moved: bool,
}

/// The rows for all claims about `scenario`. `results` contain the scenario.
pub(super) fn rows(results: &Results, scenario: &ScenarioResults) -> Vec<Row> {
    let as_published = scenario.published.iter();
    let as_published: Vec<_> = as_published
        .map(|claim| claim.of_published(&scenario.as_published))
        .collect();
    let known: Vec<_> = as_published.iter().flatten().cloned().collect();
    // All claims of a column share a test, so that the confidence holds for the whole column.
    let mut verdicts = verdicts(results, scenario, &known, |claim| &claim.reason_forms).into_iter();
    let ours = self::verdicts(results, scenario, &scenario.published, |claim| {
        &claim.reason
    });
    let claims = scenario.published.iter().zip(as_published).zip(ours);
    let row = |((published, form), ours): ((&Published, Option<Published>), Verdict)| Row {
        metric: published.metric.clone(),
        published: claimed(published),
        theirs: theirs(published),
        as_published: form.and_then(|_| verdicts.next()),
        ours,
    };
    claims.map(row).collect()
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
            row.ours.settle(&other.ours, same.seed, &published.reason);
            if let (Some(verdict), Some(other)) = (&mut row.as_published, &other.as_published) {
                verdict.settle(other, same.seed, &published.reason_forms);
            }
        }
    }
    rows
}

impl Verdict {
    /// Leaves the claim open, for this reason, if another base seed has another verdict.
    fn settle(&mut self, other: &Self, seed: u64, reason: &str) {
        if self.outcome != UNDECIDED && self.outcome != other.outcome {
            self.found += &format!("; {}, with seed {seed} {}", self.outcome, other.outcome);
            self.outcome = UNDECIDED;
            self.reason = reason.to_owned();
            self.moved = true;
        }
    }
}

/// The verdicts of our runs on the claims of one test. `reason` is the reason of a verdict that does
/// not agree.
fn verdicts(
    results: &Results,
    scenario: &ScenarioResults,
    claims: &[Published],
    reason: fn(&Published) -> &String,
) -> Vec<Verdict> {
    let findings = results.findings(scenario, claims);
    let verdict = |(published, finding): (&Published, Finding)| {
        let agrees = matches!(finding.outcome, Outcome::Confirmed | Outcome::NotRun)
            && !is_too_small(&published.claim, &finding);
        Verdict {
            found: ours(scenario, published, &finding) + &edge(&finding),
            outcome: outcome(&published.claim, &finding),
            reason: if agrees {
                String::new()
            } else {
                reason(published).clone()
            },
            moved: false,
        }
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

/// The authors' own figure: read off a plot, or the stated number of the claim.
fn theirs(published: &Published) -> String {
    let stated = match &published.claim {
        Claim::Value { value: number, .. }
        | Claim::Ratio { ratio: number, .. }
        | Claim::Change { ratio: number, .. }
        | Claim::Better { share: number, .. } => Some(*number),
        _ => None,
    };
    let scaled = |number: f64| match published.claim {
        Claim::Better { .. } => format!("{:.0} %", number * 100.0),
        Claim::Value { .. } => with_unit(&number.to_string(), &published.metric),
        _ => format!("{number:.3}"),
    };
    let Some(theirs) = &published.theirs else {
        return stated.map_or_else(String::new, |number| scaled(number) + ", stated");
    };
    let mut medians: Vec<_> = theirs.medians.iter().collect();
    medians.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    if !is_lower_better(&published.metric) {
        medians.reverse();
    }
    let medians = medians
        .iter()
        .map(|(name, median)| format!("{name} {median}"));
    let medians = medians.collect::<Vec<_>>().join(sign(&published.metric));
    let mut text = if medians.is_empty() {
        let number = theirs.number.or(stated);
        number.map(scaled).unwrap_or_default()
    } else {
        with_unit(&medians, &published.metric)
    };
    if theirs.error > 0.0 {
        let error = match published.claim {
            Claim::Better { .. } => format!("{:.0} %", theirs.error * 100.0),
            _ => theirs.error.to_string(),
        };
        text += &format!(" ± {error}");
    }
    format!("{text}; {}", theirs.source)
}

fn with_unit(numbers: &str, metric: &str) -> String {
    format!("{numbers} {}", unit(metric).1)
        .trim_end()
        .to_owned()
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
/// Over several combinations of swept values, the medians are relative to the baseline. Contenders
/// whose runs scatter widely are shown with the tenth and the ninetieth percentile.
fn medians(scenario: &ScenarioResults, published: &Published) -> String {
    let metric = &published.metric;
    let sweeps: Vec<usize> = scenario.sweeps_of(published).collect();
    let baseline = scenario.contender(&scenario.baseline);
    let statistics = |sweep, contender| {
        let cell = Cell { sweep, contender };
        scenario.summary(cell, metric).statistics
    };
    let value = |contender: usize| match sweeps.as_slice() {
        [sweep] => {
            let statistics = statistics(*sweep, contender);
            (statistics.count > 0).then_some(statistics.median)
        }
        sweeps => scenario.ratio(contender, baseline?, sweeps.iter().copied(), metric),
    };
    // The percentiles of all runs; over several swept values, each run relative to the baseline.
    let scattered = |contender: usize| {
        let relative = |sweep: usize| match sweeps.len() {
            1 => Some(1.0),
            _ => Some(statistics(sweep, baseline?).median).filter(|median| *median > 0.0),
        };
        let values = sweeps.iter().filter_map(|sweep| {
            let (sweep, by) = (*sweep, relative(*sweep)?);
            let runs = scenario.runs_of(Cell { sweep, contender });
            Some(runs.filter_map(move |run| Some(run.metrics.get(metric)? / by)))
        });
        let all = Statistics::of(values.flatten());
        let is_wide = all.count >= MIN_RUNS && all.ninetieth > WIDE * all.tenth;
        is_wide.then(|| format!(" ({} to {})", short(all.tenth), short(all.ninetieth)))
    };
    let named = published.claim.contenders();
    let contenders = scenario.contenders.iter().enumerate();
    let mut values: Vec<(usize, &str, f64)> = contenders
        .filter(|(_, name)| named.is_empty() || named.contains(&name.as_str()))
        .filter_map(|(index, name)| Some((index, name.as_str(), value(index)?)))
        .collect();
    values.sort_by(|(.., a), (.., b)| a.total_cmp(b));
    if !is_lower_better(metric) {
        values.reverse();
    }
    let list = values.iter().map(|(contender, name, value)| {
        let spread = scattered(*contender).unwrap_or_default();
        format!("{name} {}{spread}", short(*value))
    });
    let list = list.collect::<Vec<_>>().join(sign(metric));
    match sweeps.len() {
        1 => with_unit(&list, metric),
        _ => format!("{list} times {}", scenario.baseline),
    }
}

#[cfg(test)]
mod tests;
