//! Tables of the runs, the published claims and all numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mpquic_sim::experiment::{Cell, Results, ScenarioResults, State, is_lower_better};

use super::figures;
use super::svg::escape;
use crate::claims;
use crate::numbers::{short, unit};

/// A summary of the runs.
pub(super) fn summary(results: &Results) -> String {
    let runs = || results.scenarios.iter().flat_map(|scenario| &scenario.runs);
    let late = runs().filter(|run| run.state == State::Unfinished).count();
    let failed = runs()
        .filter(|run| matches!(run.state, State::Failed(_)))
        .count();
    let scenarios = match results.scenarios.len() {
        1 => "1 scenario".to_owned(),
        count => format!("{count} scenarios"),
    };
    format!(
        "<p>{scenarios}, {} runs in virtual time; {late} did not finish within their time limit \
         (they count with the limit), {failed} failed. Bars and lines are means with 95 % \
         confidence intervals, comparisons are of medians. A diamond marks what a paper \
         published: a ratio is applied to our value of what it was compared with.</p>\n",
        runs().count(),
    )
}

/// A table with one row per scenario: the median of each contender relative to the baseline.
pub(super) fn overview(results: &Results) -> String {
    let names = results
        .scenarios
        .iter()
        .flat_map(|scenario| &scenario.contenders);
    let columns = distinct(names);
    let mut html =
        "<details open=\"open\"><summary>Overview: medians relative to the baseline</summary>\n\
         <div class=\"wide\"><table class=\"numbers\">\n\
         <tr><th>scenario</th><th>metric</th><th>baseline</th>"
            .to_owned();
    for name in &columns {
        let _ = write!(html, "<th>{}</th>", escape(name));
    }
    html += "</tr>\n";
    for scenario in &results.scenarios {
        let _ = write!(
            html,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1}</td><td>{2}</td>",
            escape(&scenario.id),
            escape(&scenario.metric),
            escape(&scenario.baseline)
        );
        for name in &columns {
            html += &overview_cell(scenario, name);
        }
        html += "</tr>\n";
    }
    html + "</table></div></details>\n"
}

/// The geometric mean of the ratio to the baseline over all combinations of swept values.
fn overview_cell(scenario: &ScenarioResults, name: &str) -> String {
    let baseline = scenario.contender(&scenario.baseline);
    let (Some(contender), Some(baseline)) = (scenario.contender(name), baseline) else {
        return "<td></td>".into();
    };
    let sweeps = 0..scenario.sweeps.len();
    let has_failed = |contender| {
        let mut cells = sweeps.clone().map(|sweep| Cell { sweep, contender });
        cells.all(|cell| scenario.all_failed(cell))
    };
    if has_failed(contender) {
        return "<td class=\"bad\">failed</td>".into();
    }
    if has_failed(baseline) {
        return "<td>-</td>".into();
    }
    if contender == baseline {
        return "<td>1</td>".into();
    }
    let Some(ratio) = scenario.ratio(contender, baseline, sweeps, &scenario.metric) else {
        return "<td>-</td>".into();
    };
    let gain = if is_lower_better(&scenario.metric) {
        1.0 / ratio
    } else {
        ratio
    };
    let (class, mark) = match gain {
        1.05.. => ("good", " ▲"),
        ..0.952 => ("bad", " ▼"),
        _ => ("same", ""),
    };
    format!("<td class=\"{class}\">{ratio:.2}{mark}</td>")
}

/// A table of the published claims about the scenarios of a figure, beside our results.
pub(super) fn claims(results: &Results, figure: &[&ScenarioResults]) -> String {
    let mut rows = String::new();
    for scenario in figure {
        for claim in claims::rows(results, scenario) {
            let cells = claim.cells().map(|cell| escape(&cell));
            let id = escape(&scenario.id);
            let _ = writeln!(
                rows,
                "<tr><td>{id}</td><td>{}</td></tr>",
                cells.join("</td><td>")
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<div class=\"wide\"><table>\n<tr><th>scenario</th><th>{}</th></tr>\n{rows}</table></div>\n",
        claims::COLUMNS.map(escape).join("</th><th>")
    )
}

/// The reasons why runs failed or did not finish in time.
pub(super) fn failures(scenario: &ScenarioResults) -> String {
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for run in &scenario.runs {
        let reason = match &run.state {
            State::Finished => continue,
            State::Unfinished => "not finished within the time limit",
            State::Failed(reason) => reason,
        };
        let name = &scenario.contenders[run.contender];
        *reasons.entry((name, reason)).or_default() += 1;
    }
    let mut html = String::new();
    for ((name, reason), count) in reasons {
        let _ = writeln!(
            html,
            "<p class=\"warning\">{}: {count} runs: {}</p>",
            escape(name),
            escape(reason)
        );
    }
    html
}

/// A table of all statistics, folded on the page.
pub(super) fn numbers(scenario: &ScenarioResults) -> String {
    let titles = [
        "",
        "contender",
        "metric",
        "runs",
        "mean",
        "±95 %",
        "median",
        "10 %",
        "90 %",
        "to baseline",
    ];
    let mut html =
        "<details><summary>Numbers</summary>\n<div class=\"wide\"><table class=\"numbers\">\n<tr>"
            .to_owned();
    for title in titles {
        let _ = write!(html, "<th>{title}</th>");
    }
    html += "</tr>\n";
    let baseline = scenario.contender(&scenario.baseline);
    for cell in scenario.cells() {
        for metric in scenario.metrics() {
            let s = scenario.summary(cell, metric).statistics;
            let comparison = baseline.and_then(|b| scenario.comparison(cell, b, metric));
            let cells = [
                escape(&figures::sweep_name(scenario, cell.sweep)),
                escape(&scenario.contenders[cell.contender]),
                escape(&format!("{} {}", unit(metric).0, unit(metric).1)),
                s.count.to_string(),
                short(s.mean),
                short(s.confidence),
                short(s.median),
                short(s.tenth),
                short(s.ninetieth),
                comparison.map_or(String::new(), |c| format!("{:.3}", c.ratio)),
            ];
            let _ = writeln!(html, "<tr><td>{}</td></tr>", cells.join("</td><td>"));
        }
    }
    html + "</table></div></details>\n"
}

/// The distinct names, in the order of their first appearance.
pub(super) fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name.as_str()) {
            distinct.push(name);
        }
    }
    distinct
}
