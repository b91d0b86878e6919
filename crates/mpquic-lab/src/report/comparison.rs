//! Shows two sets of results on one page.

use std::fmt::Write as _;

use mpquic_sim::experiment::Results;

use super::svg::{Range, escape, ranges};
use super::tables::distinct;
use crate::changes::{Change, Changes, Failed, Line, Scenario, Verdict};
use crate::numbers::{short, unit};

/// The CSS class with the colour of a change.
fn class(change: Change) -> &'static str {
    match change {
        Change::Same => "same",
        Change::Better => "good",
        Change::Worse => "bad",
    }
}

/// The content of a page with the changes between two sets of results.
pub(super) fn body(before: &Results, after: &Results, changes: &Changes) -> String {
    let count = |change| changes.count(change);
    let mut html = format!(
        "<p>First {}; second {}.</p>\n<p>Of {} contenders in {} scenarios, {} are better in the \
         second results, {} worse, {} the same: with 95 % confidence for all of a scenario \
         together. Ratios are of single runs with equal values and seeds, second to first. {} failed in \
         every run of one of the results.</p>\n",
        made_by(before),
        made_by(after),
        changes.lines().count() + changes.failed().count(),
        changes.scenarios.len(),
        count(Change::Better),
        count(Change::Worse),
        count(Change::Same),
        changes.failed().count(),
    );
    for (ids, which) in changes.alone.iter().zip(["first", "second"]) {
        if !ids.is_empty() {
            let ids = escape(&ids.join(", "));
            let _ = writeln!(html, "<p>Only in the {which} results: {ids}.</p>");
        }
    }
    html += &verdicts(changes);
    html += "<h2>Scenarios</h2>\n";
    for one in &changes.scenarios {
        html += &scenario(one);
    }
    html
}

/// The versions and seeds of a set of results, and the number of its runs.
fn made_by(results: &Results) -> String {
    let versions = distinct(results.scenarios.iter().map(|scenario| &scenario.version));
    let seeds = results
        .scenarios
        .iter()
        .map(|scenario| scenario.seed.to_string());
    let seeds: Vec<_> = seeds.collect();
    let runs: usize = results
        .scenarios
        .iter()
        .map(|scenario| scenario.runs.len())
        .sum();
    format!(
        "by mpquic {}, seed {}, {runs} runs",
        escape(&versions.join(", ")),
        distinct(seeds.iter()).join(", ")
    )
}

fn verdicts(changes: &Changes) -> String {
    let rows = changes.scenarios.iter();
    let rows = rows.flat_map(|scenario| scenario.verdicts.iter().map(move |v| (scenario, v)));
    let rows: String = rows
        .map(|(scenario, verdict)| row(scenario, verdict))
        .collect();
    if rows.is_empty() {
        return "<p>No verdict about a published claim has changed.</p>\n".into();
    }
    format!(
        "<h2>Verdicts that changed</h2>\n<div class=\"wide\"><table>\n<tr><th>scenario</th>\
         <th>published</th><th>against</th><th>before</th><th></th><th>after</th><th></th></tr>\n\
         {rows}</table></div>\n"
    )
}

fn row(scenario: &Scenario, verdict: &Verdict) -> String {
    let [before, after] = &verdict.found;
    let cells = [verdict.published.as_str(), verdict.against];
    let found = [before, verdict.outcomes[0], after, verdict.outcomes[1]];
    let cells: Vec<_> = cells.into_iter().chain(found).map(escape).collect();
    let id = escape(&scenario.id);
    format!(
        "<tr><td><a href=\"#{id}\">{id}</a></td><td>{}</td></tr>\n",
        cells.join("</td><td>")
    )
}

fn scenario(scenario: &Scenario) -> String {
    let (id, title) = (escape(&scenario.id), escape(&scenario.title));
    let mut html = format!("<section>\n<h3 id=\"{id}\">{id}: {title}</h3>\n");
    if !scenario.alone.is_empty() {
        let names = escape(&scenario.alone.join(", "));
        let _ = writeln!(html, "<p>Only in one of the results: {names}.</p>");
    }
    html.extend(scenario.failed.iter().map(failed));
    if scenario.lines.is_empty() && !scenario.failed.is_empty() {
        return html + "</section>\n";
    }
    if scenario.lines.is_empty() {
        return html
            + "<p>There are no runs with equal values and seeds to compare.</p>\n</section>\n";
    }
    let (metric, unit) = unit(&scenario.metric);
    let metric = metric.replace('_', " ");
    let label = format!("{metric}, second to first");
    let all: Vec<_> = scenario
        .lines
        .iter()
        .map(|line| range(line, scenario))
        .collect();
    let caption = format!("{}: {label}, with 95 % intervals", scenario.id);
    let chart = ranges(&caption, &label, &all);
    let caption = escape(&caption);
    let _ = writeln!(
        html,
        "<div class=\"charts\"><figure><figcaption>{caption}</figcaption>\n{chart}</figure></div>"
    );
    let _ = write!(
        html,
        "<details><summary>Numbers</summary>\n<div class=\"wide\"><table class=\"numbers\">\n\
         <tr><th></th><th>contender</th><th>first [{unit}]</th><th>second [{unit}]</th>\
         <th>run by run</th><th>95 %</th><th></th></tr>\n"
    );
    for line in &scenario.lines {
        let (low, high) = line.comparison.paired_interval;
        let cells = [
            escape(&line.label),
            escape(&line.contender),
            short(line.medians[0]),
            short(line.medians[1]),
            format!("{:.3}", line.comparison.paired),
            format!("{low:.3} to {high:.3}"),
        ];
        let change = line.change();
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"{}\">{}</td></tr>",
            cells.join("</td><td>"),
            class(change),
            change.word()
        );
    }
    html + "</table></div></details>\n</section>\n"
}

/// A warning about a contender that failed in all runs.
fn failed(failed: &Failed) -> String {
    let [first, second] = failed.words();
    format!(
        "<p class=\"warning\">{}, {}: first {first}, second {second}</p>\n",
        escape(&failed.label),
        escape(&failed.contender)
    )
}

fn range(line: &Line, scenario: &Scenario) -> Range {
    let sweep = line.label.strip_prefix(&scenario.id).unwrap_or_default();
    Range {
        name: format!("{}{sweep}", line.contender),
        ratio: line.comparison.paired,
        interval: line.comparison.paired_interval,
        class: class(line.change()),
    }
}
