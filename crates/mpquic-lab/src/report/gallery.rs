//! Writes a directory of pages: a page per scenario, and an index page with links to the pages.
//! Also writes charts as separate files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use mpquic_sim::experiment::{Cell, Results, ScenarioResults, is_lower_better};

use super::setting;
use super::svg::escape;
use super::tables::distinct;
use crate::Failure;
use crate::numbers::{short, unit};

/// The number of contenders that a card names.
const NAMED: usize = 3;
/// The longest name of a file without its extension, characters.
const MAX_NAME: usize = 90;

/// A card for each scenario, grouped by paper.
pub(super) fn cards(results: &Results) -> String {
    let mut html = String::new();
    for paper in distinct(results.scenarios.iter().map(|scenario| &scenario.paper)) {
        let name = if paper.is_empty() {
            "Own scenarios"
        } else {
            paper
        };
        let _ = writeln!(html, "<h2>{}</h2>\n<div class=\"cards\">", escape(name));
        let of_paper = results.scenarios.iter();
        for scenario in of_paper.filter(|scenario| scenario.paper == paper) {
            html += &card(scenario);
        }
        html += "</div>\n";
    }
    html
}

fn card(scenario: &ScenarioResults) -> String {
    let (id, title) = (escape(&scenario.id), escape(&scenario.title));
    let (metric, unit) = unit(&scenario.metric);
    let ranked = ranked(scenario);
    let named = ranked.iter().take(NAMED);
    let named: Vec<_> = named
        .map(|(name, median)| format!("{} {} {unit}", escape(name), short(*median)))
        .collect();
    format!(
        "<article>\n<h3><a href=\"{id}.html\">{id}</a></h3>\n<p>{title}</p>\n{}\
         <p>{} (best medians of {}): {}</p>\n</article>\n",
        setting::network(scenario),
        escape(&metric.replace('_', " ")),
        ranked.len(),
        named.join(", ")
    )
}

/// The contenders with their medians, the best first, for the first combination of swept values.
fn ranked(scenario: &ScenarioResults) -> Vec<(&str, f64)> {
    let contenders = scenario.contenders.iter().enumerate();
    let mut ranked: Vec<_> = contenders
        .map(|(contender, name)| {
            let summary = scenario.summary(
                Cell {
                    sweep: 0,
                    contender,
                },
                &scenario.metric,
            );
            (name.as_str(), summary.statistics.median)
        })
        .collect();
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    if !is_lower_better(&scenario.metric) {
        ranked.reverse();
    }
    ranked
}

/// Writes each chart of a page to a separate SVG file that needs no other file.
pub(super) fn write_charts(directory: &Path, page: &str, style: &str) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| Failure::in_file(directory, error))?;
    let mut names = BTreeSet::new();
    for figure in page.split("<figure><figcaption>").skip(1) {
        let Some((caption, svg)) = figure.split_once("</figcaption>\n<svg ") else {
            continue;
        };
        let Some((attributes, rest)) = svg.split_once(">\n") else {
            continue;
        };
        let Some((content, _)) = rest.split_once("</svg>") else {
            continue;
        };
        let mut name = slug(caption);
        while !names.insert(name.clone()) {
            name += "-";
        }
        let chart = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes}>\n<style>\n{style}</style>\n{content}</svg>\n"
        );
        let file = directory.join(name + ".svg");
        fs::write(&file, chart).map_err(|error| Failure::in_file(&file, error))?;
    }
    Ok(())
}

/// A name for a file, made of a caption.
fn slug(caption: &str) -> String {
    let parts = caption.split(|c: char| !c.is_ascii_alphanumeric());
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let name = parts.join("-").to_lowercase();
    name.chars().take(MAX_NAME).collect()
}
