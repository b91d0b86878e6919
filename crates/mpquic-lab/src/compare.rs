//! `mpquic lab compare`: compares two sets of results, or the contenders of one set.

use std::path::PathBuf;

use clap::Args;
use mpquic_sim::experiment::{Cell, Comparison, Results};

use crate::changes::{Change, Changes, Failed, Line, correct, label, metric};
use crate::numbers::short;
use crate::table::aligned;
use crate::terminal::print;
use crate::{Failure, results};

/// Compare results run by run
///
/// With one set of results, every contender is compared with a baseline. With two, each contender
/// is compared with itself in the other set: before and after a change, for example. Runs with the
/// same values and seed are paired. `lab report --before` draws the same on a page.
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
    /// Fail if the second results are significantly worse than the first, by more than this
    #[arg(long, value_name = "PERCENT", requires = "other")]
    tolerance: Option<f64>,
}

pub(super) fn run(args: &Compare) -> Result<(), Failure> {
    let results = results::read(&args.results)?;
    let Some(other) = &args.other else {
        return contenders(args, &results);
    };
    let other = results::read(other)?;
    let changes = Changes::between(&results, &other, args.metric.as_deref())?;
    print(&text(&changes)?)?;
    let factor = 1.0 + args.tolerance.unwrap_or(f64::INFINITY) / 100.0;
    let is_worse = |line: &&Line| line.change() == Change::Worse && line.worse_by() > factor;
    let worse = changes.lines().filter(is_worse).count();
    let failed = changes.failed().filter(|failed| failed.is_worse()).count();
    match (args.tolerance, worse, failed) {
        (None, ..) | (_, 0, 0) => Ok(()),
        _ => {
            let all = changes.lines().count() + changes.failed().count();
            let problem = format!("{worse} of {all} are worse, {failed} failed in every run");
            Err(Failure::other(problem))
        }
    }
}

/// The table of changes for a terminal.
pub(crate) fn text(changes: &Changes) -> Result<String, Failure> {
    let mut rows = vec![header("first", "second")];
    for scenario in &changes.scenarios {
        rows.extend(scenario.lines.iter().map(row));
        rows.extend(scenario.failed.iter().map(failed_row));
    }
    let mut text = table(&rows)?;
    let mut verdicts = Vec::new();
    for scenario in &changes.scenarios {
        for verdict in &scenario.verdicts {
            let [before, after] = verdict.outcomes;
            verdicts.push(format!(
                "  {}, {} (against {}): {before}, now {after}\n    {}\n    {}\n",
                scenario.id, verdict.published, verdict.against, verdict.found[0], verdict.found[1]
            ));
        }
    }
    if !verdicts.is_empty() {
        text += &format!("verdicts that changed:\n{}", verdicts.concat());
    }
    let alone = changes.alone.iter().zip(["first", "second"]);
    for (ids, which) in alone.filter(|(ids, _)| !ids.is_empty()) {
        text += &format!("only in the {which} results: {}\n", ids.join(", "));
    }
    Ok(text)
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

fn row(line: &Line) -> Vec<String> {
    let Comparison {
        ratio,
        paired,
        paired_interval: (low, high),
        better,
        ..
    } = line.comparison;
    vec![
        line.label.clone(),
        line.contender.clone(),
        short(line.medians[0]),
        short(line.medians[1]),
        format!("{ratio:.3}"),
        format!("{paired:.3}"),
        format!("{low:.3}..{high:.3}"),
        format!("{:.0} %", better * 100.0),
        line.change().word().into(),
    ]
}

fn failed_row(failed: &Failed) -> Vec<String> {
    let [first, second] = failed.words();
    let nothing = || String::new();
    vec![
        failed.label.clone(),
        failed.contender.clone(),
        first,
        second,
        nothing(),
        nothing(),
        nothing(),
        nothing(),
        "failed".into(),
    ]
}

fn table(rows: &[Vec<String>]) -> Result<String, Failure> {
    if rows.len() == 1 {
        return Err(Failure::usage("there is nothing to compare"));
    }
    Ok(aligned(rows))
}

/// Compares every contender with the baseline.
fn contenders(args: &Compare, results: &Results) -> Result<(), Failure> {
    let mut rows = vec![header("baseline", "contender")];
    for scenario in &results.scenarios {
        let metric = metric(args.metric.as_deref(), scenario)?;
        let baseline = args.baseline.as_deref().unwrap_or(&scenario.baseline);
        let Some(baseline) = scenario.contender(baseline) else {
            let names = scenario.contenders.join(", ");
            let problem = format!(
                "{} has no contender `{baseline}`; there are: {names}",
                scenario.id
            );
            return Err(Failure::usage(problem));
        };
        let (mut lines, mut failed) = (Vec::new(), Vec::new());
        for cell in scenario.cells().filter(|cell| cell.contender != baseline) {
            let other = Cell {
                contender: baseline,
                ..cell
            };
            if let Some(one) = Failed::of([(scenario, other), (scenario, cell)], metric) {
                failed.push(one);
                continue;
            }
            let Some(comparison) = scenario.comparison(cell, baseline, metric) else {
                continue;
            };
            let median = |contender| {
                let cell = Cell { contender, ..cell };
                scenario.summary(cell, metric).statistics.median
            };
            let medians = [median(baseline), median(cell.contender)];
            let name = scenario.contenders[cell.contender].clone();
            let label = label(scenario, cell.sweep);
            lines.push(Line::new(label, name, medians, comparison, metric));
        }
        correct(&mut lines);
        rows.extend(lines.iter().map(row));
        rows.extend(failed.iter().map(failed_row));
    }
    print(&table(&rows)?)
}
