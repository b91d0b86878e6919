//! Published claims beside our results, in words.

use mpquic_sim::experiment::{Cell, Finding, Outcome, Results, ScenarioResults, is_lower_better};
use mpquic_sim::scenario::{Claim, Published};

use crate::numbers::{short, unit};

/// A published claim beside our result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) metric: String,
    pub(super) published: String,
    pub(super) ours: String,
    pub(super) outcome: &'static str,
    /// Why our result differs; empty if it does not.
    pub(super) reason: String,
}

/// All claims about `scenario`, which is one of `results`.
pub(super) fn rows(results: &Results, scenario: &ScenarioResults) -> Vec<Row> {
    let row = |published: &Published| {
        let finding = results.finding(scenario, published);
        let differs = matches!(
            finding.outcome,
            Outcome::Refuted | Outcome::InPart | Outcome::Open | Outcome::Words
        );
        Row {
            metric: published.metric.clone(),
            published: claimed(published),
            ours: ours(scenario, published, &finding),
            outcome: outcome(&published.claim, finding.outcome),
            reason: if differs {
                published.reason.clone()
            } else {
                String::new()
            },
        }
    };
    scenario.published.iter().map(row).collect()
}

fn outcome(claim: &Claim, outcome: Outcome) -> &'static str {
    let is_number = match claim {
        Claim::Ratio { or_better, .. } => !or_better,
        Claim::Value { .. } | Claim::Change { .. } => true,
        _ => false,
    };
    match outcome {
        Outcome::Words => "",
        Outcome::NotRun => "not run",
        Outcome::Confirmed if is_number => "within 0.10",
        Outcome::Confirmed => "confirmed",
        Outcome::InPart => "in part",
        Outcome::Open => "undecided",
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
        Claim::Value { contender, value } => format!("{contender} {}", short(*value)),
        Claim::Ratio {
            contender,
            against,
            ratio,
            or_better,
        } => {
            let bound = if *or_better { " or better" } else { "" };
            format!("{contender}/{against} {ratio:.3}{bound}")
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

/// The medians of all contenders from the best to the worst; over several combinations of swept
/// values, relative to the baseline.
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
    let contenders = scenario.contenders.iter().enumerate();
    let mut values: Vec<(&str, f64)> = contenders
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
