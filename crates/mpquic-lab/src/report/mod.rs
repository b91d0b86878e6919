//! `mpquic lab report`: results as one HTML page.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use mpquic_sim::experiment::{Results, ScenarioResults};

use crate::terminal::print;
use crate::{Failure, results};
use svg::escape;
use tables::distinct;

mod figures;
mod svg;
mod tables;
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
    let results = results::read_all(&args.results)?;
    let page = html(&results);
    if args.output.as_os_str() == "-" {
        return print(&page);
    }
    std::fs::write(&args.output, page).map_err(|error| Failure::in_file(&args.output, error))?;
    eprintln!("written: {}", args.output.display());
    Ok(())
}

const STYLE: &str = include_str!("style.css");

/// The scenarios that reproduce one figure of one paper.
type Figure<'a> = Vec<&'a ScenarioResults>;

/// Figures in the order of their first scenarios, those of one paper together.
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
    let papers = distinct(results.scenarios.iter().map(|scenario| &scenario.paper));
    groups.sort_by_key(|figure| papers.iter().position(|paper| *paper == figure[0].paper));
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
    page += &tables::summary(results);
    page += &tables::overview(results);
    let mut paper = None;
    for figure in &group(results) {
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
        page += &section(results, figure);
    }
    page + "</body>\n</html>\n"
}

fn section(results: &Results, figure: &Figure<'_>) -> String {
    let first = figure[0];
    let (name, title) = (escape(&first.figure), escape(&first.title));
    let heading = match (first.figure.as_str(), figure.len()) {
        ("" | "none", _) => title,
        (_, 1) => format!("{name}: {title}"),
        _ => name,
    };
    let mut html = "<section>\n".to_owned();
    let _ = match figure.len() {
        1 => writeln!(html, "<h3 id=\"{}\">{heading}</h3>", escape(&first.id)),
        _ => writeln!(html, "<h3>{heading}</h3>"),
    };
    let names = figure.iter().flat_map(|scenario| &scenario.contenders);
    let contenders = distinct(names);
    html += &tables::claims(results, figure);
    html += &legend(&contenders);
    html += "<div class=\"charts\">\n";
    html += &figures::charts(figure, &contenders);
    html += "</div>\n";
    for scenario in figure {
        if figure.len() > 1 {
            let (id, title) = (escape(&scenario.id), escape(&scenario.title));
            let _ = writeln!(html, "<h4 id=\"{id}\">{id}: {title}</h4>");
        }
        html += &tables::failures(scenario);
        html += &traces::details(scenario, &contenders);
        html += &tables::numbers(scenario);
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
