//! `mpquic lab compare`: two sets of results, or the contenders of one.

use std::path::PathBuf;

use clap::Args;
use mpquic_sim::experiment::{
    Cell, Comparison, Results, ScenarioResults, is_lower_better, sweep_label,
};

use crate::numbers::short;
use crate::table::aligned;
use crate::terminal::print;
use crate::{Failure, results};

/// Compare results run by run
///
/// With one set of results, every contender is compared with a baseline. With two, each contender
/// is compared with itself in the other set: before and after a change, for example. Runs with the
/// same values and seed are paired.
#[derive(Debug, Args)]
pub(super) struct Compare {
    /// Results: what `mpquic lab run -o` wrote
    results: PathBuf,
    /// Other results of the same scenarios
    other: Option<PathBuf>,
    /// Compare with this contender instead of the scenario's baseline
    #[arg(long, value_name = "NAME", conflicts_with = "other")]
    baseline: Option<String>,
    /// Compare by this metric instead of the scenario's own
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Fail if the second results are worse than the first by more than this and the difference is
    /// significant
    #[arg(long, value_name = "PERCENT", requires = "other")]
    tolerance: Option<f64>,
}

pub(super) fn run(args: &Compare) -> Result<(), Failure> {
    let results = results::read(&args.results)?;
    let Some(other) = &args.other else {
        return contenders(args, &results);
    };
    let other = results::read(other)?;
    let mut rows = vec![header("first", "second")];
    let mut worse = 0;
    for before in &results.scenarios {
        let Some(after) = other.scenarios.iter().find(|after| after.id == before.id) else {
            continue;
        };
        for pair in between(args, before, after)? {
            let factor = 1.0 + args.tolerance.unwrap_or(f64::INFINITY) / 100.0;
            let ratio = if pair.lower_is_better {
                pair.comparison.paired
            } else {
                1.0 / pair.comparison.paired
            };
            worse += usize::from(ratio > factor && pair.comparison.is_significant());
            rows.push(pair.row());
        }
    }
    finish(&rows)?;
    match worse {
        0 => Ok(()),
        _ => Err(Failure::other(format!(
            "{worse} of {} are worse",
            rows.len() - 1
        ))),
    }
}

/// One line of the comparison.
struct Line {
    label: String,
    contender: String,
    medians: [f64; 2],
    comparison: Comparison,
    lower_is_better: bool,
}

fn header(first: &str, second: &str) -> Vec<String> {
    let columns = [
        "scenario",
        "contender",
        first,
        second,
        "ratio",
        "paired",
        "95 %",
        "better in",
        "",
    ];
    columns.map(str::to_owned).into()
}

impl Line {
    fn row(&self) -> Vec<String> {
        let Comparison {
            ratio,
            paired,
            paired_interval: (low, high),
            better,
        } = self.comparison;
        let verdict = match (
            self.comparison.is_significant(),
            self.lower_is_better == (paired < 1.0),
        ) {
            (false, _) => "same",
            (true, true) => "better",
            (true, false) => "worse",
        };
        vec![
            self.label.clone(),
            self.contender.clone(),
            short(self.medians[0]),
            short(self.medians[1]),
            format!("{ratio:.3}"),
            format!("{paired:.3}"),
            format!("{low:.3}..{high:.3}"),
            format!("{:.0} %", better * 100.0),
            verdict.into(),
        ]
    }
}

fn finish(rows: &[Vec<String>]) -> Result<(), Failure> {
    if rows.len() == 1 {
        return Err(Failure::usage("there is nothing to compare"));
    }
    print(&aligned(rows))
}

fn label(results: &ScenarioResults, sweep: usize) -> String {
    let sweep = sweep_label(&results.sweeps[sweep]);
    format!("{} {sweep}", results.id).trim_end().into()
}

fn metric<'a>(args: &'a Compare, results: &'a ScenarioResults) -> Result<&'a str, Failure> {
    let Some(metric) = args.metric.as_deref() else {
        return Ok(&results.metric);
    };
    let known = results.metrics();
    if known.contains(&metric) {
        return Ok(metric);
    }
    Err(Failure::usage(format!(
        "{} has no metric `{metric}`; there are: {}",
        results.id,
        known.join(", ")
    )))
}

/// Every contender against the baseline.
fn contenders(args: &Compare, results: &Results) -> Result<(), Failure> {
    let mut rows = vec![header("baseline", "contender")];
    for scenario in &results.scenarios {
        let metric = metric(args, scenario)?;
        let baseline = args.baseline.as_deref().unwrap_or(&scenario.baseline);
        let Some(baseline) = scenario.contender(baseline) else {
            let names = scenario.contenders.join(", ");
            let problem = format!(
                "{} has no contender `{baseline}`; there are: {names}",
                scenario.id
            );
            return Err(Failure::usage(problem));
        };
        for cell in scenario.cells().filter(|cell| cell.contender != baseline) {
            let Some(comparison) = scenario.comparison(cell, baseline, metric) else {
                continue;
            };
            let median = |contender| {
                let cell = Cell { contender, ..cell };
                scenario.summary(cell, metric).statistics.median
            };
            let line = Line {
                label: label(scenario, cell.sweep),
                contender: scenario.contenders[cell.contender].clone(),
                medians: [median(baseline), median(cell.contender)],
                comparison,
                lower_is_better: is_lower_better(metric),
            };
            rows.push(line.row());
        }
    }
    finish(&rows)
}

/// Every contender of the second results against itself in the first.
fn between(
    args: &Compare,
    before: &ScenarioResults,
    after: &ScenarioResults,
) -> Result<Vec<Line>, Failure> {
    let metric = metric(args, before)?;
    let mut lines = Vec::new();
    for cell in after.cells() {
        let name = &after.contenders[cell.contender];
        let same_sweep = before
            .sweeps
            .iter()
            .position(|sweep| *sweep == after.sweeps[cell.sweep]);
        let (Some(contender), Some(sweep)) = (before.contender(name), same_sweep) else {
            continue;
        };
        let earlier = Cell { sweep, contender };
        let mut pairs = Vec::new();
        for run in after.runs_of(cell) {
            let same = |other: &&mpquic_sim::experiment::Run| {
                (other.point, other.run) == (run.point, run.run) && other.values == run.values
            };
            let other = before.runs_of(earlier).find(same);
            let values = other
                .and_then(|other| Some((run.metrics.get(metric)?, other.metrics.get(metric)?)));
            pairs.extend(values.map(|(ours, theirs)| (*ours, *theirs)));
        }
        let Some(comparison) = Comparison::of(&pairs, is_lower_better(metric)) else {
            continue;
        };
        lines.push(Line {
            label: label(after, cell.sweep),
            contender: name.clone(),
            medians: [
                before.summary(earlier, metric).statistics.median,
                after.summary(cell, metric).statistics.median,
            ],
            comparison,
            lower_is_better: is_lower_better(metric),
        });
    }
    Ok(lines)
}
