//! Results as text for a terminal.

use std::fmt::Write as _;

use mpquic_sim::experiment::{Cell, Results, ScenarioResults, is_lower_better, sweep_label};

use crate::claims;
use crate::numbers::{short, unit};

/// Formats a table with columns of the width of their content. The first column is left-aligned.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, cell) in row.iter().enumerate() {
            let width = widths[index];
            let _ = if index == 0 {
                write!(line, "  {cell:width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The results of a scenario, and the published claims about the scenario.
pub(super) fn scenario(all: &Results, results: &ScenarioResults) -> String {
    let (name, unit_name) = unit(&results.metric);
    let better = if is_lower_better(&results.metric) {
        "lower"
    } else {
        "higher"
    };
    let mut text = format!("{}: {}\n", results.id, results.title);
    if !results.paper.is_empty() {
        let _ = writeln!(text, "  {}, {}", results.paper, results.figure);
    }
    let _ = writeln!(
        text,
        "  {} [{unit_name}], {better} is better",
        name.replace('_', " ")
    );
    for sweep in 0..results.sweeps.len() {
        text += &aligned(&contenders(results, sweep));
    }
    for row in claims::rows(all, results) {
        let _ = writeln!(text, "  published: {}", row.published);
        let forms = row
            .as_published
            .iter()
            .map(|verdict| ("its forms", verdict));
        for (against, verdict) in forms.chain([("     here", &row.ours)]) {
            let separator = if verdict.outcome.is_empty() { "" } else { ": " };
            let claims::Verdict { outcome, found, .. } = verdict;
            let _ = writeln!(text, "  {against}: {outcome}{separator}{found}");
        }
    }
    text + "\n"
}

/// The rows of a combination of swept values: a header, and a row per contender.
pub(super) fn contenders(results: &ScenarioResults, sweep: usize) -> Vec<Vec<String>> {
    let baseline = results.contender(&results.baseline);
    let label = results.sweeps.get(sweep).map(|labels| sweep_label(labels));
    let mut rows = vec![header(&label.unwrap_or_default(), &results.baseline)];
    for contender in 0..results.contenders.len() {
        rows.push(row(results, Cell { sweep, contender }, baseline));
    }
    rows
}

fn header(sweep: &str, baseline: &str) -> Vec<String> {
    let titles = [sweep, "runs", "mean", "+-95%", "median", "p10", "p90"];
    let mut header: Vec<String> = titles.map(str::to_owned).into();
    header.push(format!("/{baseline}"));
    header.extend(["better in", "not done"].map(str::to_owned));
    header
}

fn row(results: &ScenarioResults, cell: Cell, baseline: Option<usize>) -> Vec<String> {
    let summary = results.summary(cell, &results.metric);
    let s = summary.statistics;
    // Unfinished runs count with the time limit, so the mean is only a bound.
    let bound = if summary.unfinished + summary.failed > 0 {
        ">="
    } else {
        ""
    };
    let comparison = baseline.filter(|baseline| *baseline != cell.contender);
    let comparison = comparison.and_then(|b| results.comparison(cell, b, &results.metric));
    let mut row = vec![
        results.contenders[cell.contender].clone(),
        s.count.to_string(),
        format!("{bound}{}", short(s.mean)),
        short(s.confidence),
        short(s.median),
        short(s.tenth),
        short(s.ninetieth),
    ];
    row.push(comparison.map_or(String::new(), |c| {
        let mark = if c.is_significant() { "" } else { "~" };
        format!("{mark}{:.3}", c.ratio)
    }));
    row.push(comparison.map_or(String::new(), |c| format!("{:.0} %", c.better * 100.0)));
    row.push(match summary.unfinished + summary.failed {
        0 => String::new(),
        _ if summary.failed == 0 => format!("{} late", summary.unfinished),
        _ => format!("{} late, {} failed", summary.unfinished, summary.failed),
    });
    row
}
