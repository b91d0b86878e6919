//! `mpquic lab report`: shows results on one HTML page.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use mpquic_sim::experiment::{Results, ScenarioResults};

use crate::changes::Changes;
use crate::terminal::print;
use crate::{Failure, compare, results};
use svg::escape;
use tables::distinct;

mod comparison;
mod figures;
mod gallery;
mod setting;
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
    /// Write a page for each scenario to this directory instead, and index.html, which leads to
    /// them
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    gallery: Option<PathBuf>,
    /// Write each chart to this directory instead, as an SVG file that needs nothing else
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "gallery"])]
    charts: Option<PathBuf>,
    /// Show what has changed since these results instead, and print the same as a table
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["gallery", "charts"])]
    before: Option<PathBuf>,
}

pub(super) fn run(args: &Report) -> Result<(), Failure> {
    let results = results::read_all(&args.results)?;
    if let Some(before) = &args.before {
        return write_comparison(args, &results::read(before)?, &results);
    }
    if let Some(directory) = &args.gallery {
        return write_gallery(directory, results);
    }
    let page = html(&results);
    if let Some(directory) = &args.charts {
        return gallery::write_charts(directory, &page, STYLE);
    }
    if args.output.as_os_str() == "-" {
        return print(&page);
    }
    write_page(&args.output, page)
}

fn write_page(file: &Path, page: String) -> Result<(), Failure> {
    fs::write(file, page).map_err(|error| Failure::in_file(file, error))?;
    crate::tell::say(format_args!("written: {}", file.display()));
    Ok(())
}

/// Writes a page with the changes between two sets of results, and prints the changes as a table.
fn write_comparison(args: &Report, before: &Results, after: &Results) -> Result<(), Failure> {
    let changes = Changes::between(before, after, None)?;
    let text = compare::text(&changes)?;
    let body = comparison::body(before, after, &changes);
    let page = page("mpquic lab: what has changed", &body);
    if args.output.as_os_str() == "-" {
        return print(&page);
    }
    print(&text)?;
    write_page(&args.output, page)
}

/// Writes a page for each scenario, and an index page with links to them.
fn write_gallery(directory: &Path, results: Results) -> Result<(), Failure> {
    let mut ids = results.scenarios.iter().map(|scenario| &scenario.id);
    if let Some(id) = ids.find(|id| id.eq_ignore_ascii_case("index")) {
        let problem =
            format!("the page of the scenario `{id}` would be that of the gallery: rename it");
        return Err(Failure::usage(problem));
    }
    fs::create_dir_all(directory).map_err(|error| Failure::in_file(directory, error))?;
    let write = |name: &str, page: String| {
        let file = directory.join(name);
        fs::write(&file, page).map_err(|error| Failure::in_file(&file, error))
    };
    write("index.html", page("mpquic lab", &gallery::cards(&results)))?;
    for scenario in results.scenarios {
        let title = format!("mpquic lab: {}", scenario.id);
        let name = format!("{}.html", scenario.id);
        let scenarios = vec![scenario];
        let back = "<p><a href=\"index.html\">All scenarios</a></p>\n";
        let body = back.to_owned() + &body(&Results { scenarios });
        write(&name, page(&title, &body))?;
    }
    crate::tell::say(format_args!(
        "written: {}",
        directory.join("index.html").display()
    ));
    Ok(())
}

/// The style sheet of the pages of `mpquic lab report`, for other pages that want the same look.
pub const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The scenarios of one published figure of one paper.
type Figure<'a> = Vec<&'a ScenarioResults>;

/// The figures in the order of their first scenarios. The figures of a paper stand together.
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

/// The whole report as an HTML page.
pub(super) fn html(results: &Results) -> String {
    page("mpquic lab report", &body(results))
}

/// The content of the report.
fn body(results: &Results) -> String {
    let mut body = tables::summary(results);
    body += &tables::overview(results);
    let mut paper = None;
    for figure in &group(results) {
        let first = figure[0];
        if paper != Some(&first.paper) {
            let name = if first.paper.is_empty() {
                "Own scenarios"
            } else {
                &first.paper
            };
            let _ = writeln!(body, "<h2>{}</h2>", escape(name));
            paper = Some(&first.paper);
        }
        body += &section(results, figure);
    }
    body
}

/// An HTML page that needs no other file.
fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
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
    if let [scenario] = figure.as_slice() {
        html += &setting::setting(scenario);
    }
    html += &tables::claims(results, figure);
    html += &legend(&contenders);
    html += "<div class=\"charts\">\n";
    html += &figures::charts(figure, &contenders);
    html += "</div>\n";
    for scenario in figure {
        if figure.len() > 1 {
            let (id, title) = (escape(&scenario.id), escape(&scenario.title));
            let _ = writeln!(html, "<h4 id=\"{id}\">{id}: {title}</h4>");
            html += &setting::setting(scenario);
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
        let _ = write!(
            html,
            "<li><button data-s=\"{index}\" aria-pressed=\"true\">{}{}</button></li>",
            svg::swatch(index),
            escape(name)
        );
    }
    html + "</ul>\n"
}
