//! `mpquic lab report`: results as one HTML page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use mpquic_sim::experiment::{Cell, Results, ScenarioResults, State, is_lower_better};

use super::claims;
use super::table::{short, unit};
use crate::Failure;
use svg::escape;

mod figures;
mod svg;
mod traces;

/// Plot results on one self-contained HTML page
#[derive(Debug, Args)]
pub(super) struct Report {
    /// Results: what `mpquic lab run -o` wrote; several are joined
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Where to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

pub(super) fn run(args: &Report) -> Result<(), Failure> {
    let results = crate::read_all(&args.results)?;
    let page = html(&results);
    if args.output.as_os_str() == "-" {
        return crate::print(&page);
    }
    std::fs::write(&args.output, page).map_err(|error| Failure::in_file(&args.output, error))?;
    eprintln!("written: {}", args.output.display());
    Ok(())
}

const STYLE: &str = include_str!("style.css");

/// Scenarios that answer one figure of one paper.
type Figure<'a> = Vec<&'a ScenarioResults>;

/// Figures in the order of their first scenarios.
fn group(results: &Results) -> Vec<Figure<'_>> {
    let mut groups: Vec<Figure<'_>> = Vec::new();
    for scenario in &results.scenarios {
        let same = |group: &&mut Figure<'_>| {
            let first = group[0];
            (&first.paper, &first.figure) == (&scenario.paper, &scenario.figure)
        };
        match groups.iter_mut().find(same) {
            Some(group) if !scenario.figure.is_empty() && scenario.figure != "none" => {
                group.push(scenario);
            }
            _ => groups.push(vec![scenario]),
        }
    }
    groups
}

/// The page.
pub(super) fn html(results: &Results) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n\
         <title>mpquic lab report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>mpquic lab report</h1>\n"
    );
    page += &summary(results);
    page += &overview(results);
    let mut paper = None;
    for (index, figure) in group(results).iter().enumerate() {
        let first = figure[0];
        if paper != Some(&first.paper) {
            let name = if first.paper.is_empty() {
                "Own scenarios"
            } else {
                &first.paper
            };
            let _ = writeln!(page, "<h2>{}</h2>", escape(name));
            paper = Some(&first.paper);
        }
        page += &section(results, index, figure);
    }
    page + "</body>\n</html>\n"
}

fn summary(results: &Results) -> String {
    let runs = || results.scenarios.iter().flat_map(|scenario| &scenario.runs);
    let late = runs().filter(|run| run.state == State::Unfinished).count();
    let failed = runs()
        .filter(|run| matches!(run.state, State::Failed(_)))
        .count();
    format!(
        "<p>{} scenarios, {} runs in virtual time; {late} did not finish within their time limit \
         (they count with the limit), {failed} failed. Bars and lines are means with 95 % \
         confidence intervals, comparisons are of medians. A diamond marks what a paper \
         published: a ratio is applied to our value of what it was compared with.</p>\n",
        results.scenarios.len(),
        runs().count(),
    )
}

/// Every scenario in a row: each contender's median against the baseline's.
fn overview(results: &Results) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for name in results
        .scenarios
        .iter()
        .flat_map(|scenario| &scenario.contenders)
    {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut html =
        "<details open=\"open\"><summary>Overview: medians relative to the baseline</summary>\n\
         <div class=\"wide\"><table>\n<tr><th>scenario</th><th>metric</th><th>baseline</th>"
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

/// The geometric mean over all combinations of swept values.
fn overview_cell(scenario: &ScenarioResults, name: &str) -> String {
    let baseline = scenario.contender(&scenario.baseline);
    let (Some(contender), Some(baseline)) = (scenario.contender(name), baseline) else {
        return "<td></td>".into();
    };
    if contender == baseline {
        return "<td>1</td>".into();
    }
    let ratios = (0..scenario.sweeps.len()).filter_map(|sweep| {
        let cell = Cell { sweep, contender };
        let comparison = scenario.comparison(cell, baseline, &scenario.metric)?;
        Some(comparison.ratio.ln()).filter(|ratio| ratio.is_finite())
    });
    let ratios: Vec<f64> = ratios.collect();
    if ratios.is_empty() {
        return "<td>-</td>".into();
    }
    let ratio = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
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

fn section(results: &Results, index: usize, figure: &Figure<'_>) -> String {
    let first = figure[0];
    let mut html = format!("<section id=\"figure-{index}\">\n");
    let title = match (first.figure.as_str(), figure.len()) {
        ("" | "none", _) => escape(&first.title),
        (name, 1) => format!("{}: {}", escape(name), escape(&first.title)),
        (name, _) => escape(name),
    };
    let _ = writeln!(html, "<h3>{title}</h3>");
    let names = figure.iter().flat_map(|scenario| &scenario.contenders);
    let mut contenders: Vec<&str> = Vec::new();
    for name in names {
        if !contenders.contains(&name.as_str()) {
            contenders.push(name);
        }
    }
    html += &legend(&contenders);
    html += "<div class=\"charts\">\n";
    html += &figures::charts(figure, &contenders);
    html += "</div>\n";
    for scenario in figure {
        html += &scenario_details(results, scenario, &contenders);
    }
    html + "</section>\n"
}

fn legend(names: &[&str]) -> String {
    let mut html = "<ul class=\"legend\">".to_owned();
    for (index, name) in names.iter().enumerate() {
        let _ = write!(html, "<li>{}{}</li>", svg::swatch(index), escape(name));
    }
    html + "</ul>\n"
}

/// Claims, numbers and traces of one scenario.
fn scenario_details(results: &Results, scenario: &ScenarioResults, contenders: &[&str]) -> String {
    let mut html = format!(
        "<h4 id=\"{0}\">{0}: {1}</h4>\n",
        escape(&scenario.id),
        escape(&scenario.title)
    );
    let claims = claims::rows(results, scenario);
    if !claims.is_empty() {
        html += "<table>\n<tr><th>metric</th><th>published</th><th>here</th><th></th><th>why it differs</th></tr>\n";
        for claim in claims {
            let outcome = claim.outcome.to_owned();
            let cells = [
                claim.metric,
                claim.published,
                claim.ours,
                outcome,
                claim.reason,
            ];
            let cells = cells.map(|cell| escape(&cell));
            let _ = writeln!(html, "<tr><td>{}</td></tr>", cells.join("</td><td>"));
        }
        html += "</table>\n";
    }
    html += &failures(scenario);
    html += &traces::details(scenario, contenders);
    html += "<details><summary>Numbers</summary>\n<div class=\"wide\">";
    html += &numbers(scenario);
    html + "</div></details>\n"
}

fn failures(scenario: &ScenarioResults) -> String {
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

fn numbers(scenario: &ScenarioResults) -> String {
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
    let mut html = "<table>\n<tr>".to_owned();
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
    html + "</table>\n"
}
