//! `mpquic lab table`: prints published claims beside our results for a document.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use mpquic_sim::experiment::{Results, ScenarioResults, State};
use mpquic_sim::scenario::Claim;

use crate::numbers::unit;
use crate::terminal::print;
use crate::{Failure, claims, figures, results, table, today};

/// The least number of contenders for a table with a row per contender, unless a claim of the
/// scenario has numbers.
const MANY: usize = 8;
const BEGIN: &str = "<!-- begin: mpquic lab table -->\n";
const END: &str = "<!-- end: mpquic lab table -->\n";

/// Print published claims beside our results, as Markdown
#[derive(Debug, Args)]
pub(super) struct Table {
    /// Results: what `mpquic lab run -o` wrote; several are joined
    #[arg(required_unless_present = "check")]
    results: Vec<PathBuf>,
    /// Results of the same scenarios with another --seed, several are joined by commas: verdicts that
    /// differ there are undecided
    #[arg(long, value_name = "RESULTS")]
    other_seed: Vec<String>,
    /// Put the tables into this file, between its marks, instead of printing them; figures in marks
    /// (`<!--lab ..-->1.23<!--/-->`) become those of the tables
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Fill in the marked figures of this document, too
    #[arg(long, value_name = "FILE", requires = "into")]
    prose: Vec<PathBuf>,
    /// Change nothing, and fail if a marked figure is not as in the tables of the file
    #[arg(long, requires = "into", conflicts_with_all = ["results", "other_seed"])]
    check: bool,
}

pub(super) fn run(args: &Table) -> Result<(), Failure> {
    if let (true, Some(file)) = (args.check, &args.into) {
        return check(file, &args.prose);
    }
    let mut results = results::read_all(&args.results)?;
    today::update(&mut results);
    let mut others = Vec::new();
    for paths in &args.other_seed {
        let paths: Vec<_> = paths.split(',').map(PathBuf::from).collect();
        let mut other = results::read_all(&paths)?;
        today::update(&mut other);
        others.push(other);
    }
    let tables = tables(&results, &others);
    let Some(file) = &args.into else {
        return print(&tables);
    };
    let text = read(file)?;
    let (before, _, after) = parts(file, &text)?;
    let text = format!("{before}{BEGIN}\n{tables}{END}{after}");
    write(file, &figures::filled(&text, &tables)?)?;
    for file in &args.prose {
        write(file, &figures::filled(&read(file)?, &tables)?)?;
    }
    Ok(())
}

/// Fails if a marked figure of the documents is not as in the tables of the first one.
fn check(first: &PathBuf, prose: &[PathBuf]) -> Result<(), Failure> {
    let text = read(first)?;
    let (_, tables, _) = parts(first, &text)?;
    for file in std::iter::once(first).chain(prose) {
        let text = read(file)?;
        let filled = figures::filled(&text, tables)?;
        let mut lines = text.lines().zip(filled.lines()).zip(1..);
        if let Some(((line, filled), number)) = lines.find(|((line, filled), _)| line != filled) {
            let problem = format!("line {number} is `{line}`, the tables say `{filled}`");
            return Err(Failure::in_file(file, problem));
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::in_file(file, error))
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure::in_file(file, error))
}

/// The text before the tables, the tables, and the text after them.
fn parts<'a>(file: &Path, text: &'a str) -> Result<(&'a str, &'a str, &'a str), Failure> {
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (tables, after) = rest.split_once(END)?;
        Some((before, tables, after))
    });
    parts.ok_or_else(|| {
        let marks = format!("no lines {} and {}", BEGIN.trim_end(), END.trim_end());
        Failure::in_file(file, marks)
    })
}

/// Returns one table per paper. `others` are results with other base seeds.
pub(super) fn tables(results: &Results, others: &[Results]) -> String {
    let mut papers: Vec<(&str, Vec<&ScenarioResults>)> = Vec::new();
    for scenario in &results.scenarios {
        match papers
            .iter_mut()
            .find(|(paper, _)| *paper == scenario.paper)
        {
            Some((_, scenarios)) => scenarios.push(scenario),
            None => papers.push((&scenario.paper, vec![scenario])),
        }
    }
    let mut text = counted(results, others);
    for (paper, scenarios) in papers {
        let name = if paper.is_empty() { "Own" } else { paper };
        let _ = writeln!(text, "### {name}\n");
        let is_long = |scenario: &&&ScenarioResults| {
            let mut claims = scenario.published.iter().map(|published| &published.claim);
            scenario.contenders.len() >= MANY && claims.all(|claim| *claim == Claim::Words)
        };
        let claims = scenarios.iter().filter(|scenario| !is_long(scenario));
        let claims: String = claims
            .map(|scenario| rows(results, scenario, others))
            .collect();
        if !claims.is_empty() {
            let columns = claims::COLUMNS;
            let _ = writeln!(text, "| scenario | {} |", columns.join(" | "));
            let _ = writeln!(text, "| --- |{}", " --- |".repeat(columns.len()));
            text += &claims;
            text.push('\n');
        }
        for scenario in scenarios.iter().filter(is_long) {
            text += &contenders(scenario);
        }
    }
    text
}

/// A table with the number of claims per outcome. A scenario that reads an experiment differently
/// counts only without the first reading among the results.
fn counted(results: &Results, others: &[Results]) -> String {
    let is_there = |id: &str| results.scenarios.iter().any(|scenario| scenario.id == id);
    let first = results.scenarios.iter();
    let first = first.filter(|scenario| !is_there(&scenario.variant_of));
    let rows: Vec<_> = first
        .flat_map(|scenario| claims::settled_rows(results, scenario, others))
        .collect();
    let counts = claims::counts(&rows);
    if counts
        .iter()
        .all(|(_, published, ours)| published + ours == 0)
    {
        return String::new();
    }
    let mut text = String::from(
        "| claims, each experiment once | against published forms | against ours |\n| --- | --- | --- |\n",
    );
    for (name, published, ours) in counts {
        let _ = writeln!(text, "| {name} | {published} | {ours} |");
    }
    text + &moved(&rows, others.len()) + "\n"
}

/// The number of verdicts that moved with other base seeds; empty without other base seeds.
fn moved(rows: &[claims::Row], seeds: usize) -> String {
    if seeds == 0 {
        return String::new();
    }
    let forms: Vec<_> = rows
        .iter()
        .filter_map(|row| row.as_published.as_ref())
        .collect();
    let of_forms = forms.iter().filter(|verdict| verdict.moved).count();
    let of_ours = rows.iter().filter(|row| row.ours.moved).count();
    format!(
        "\n{of_forms} of {} verdicts against published forms and {of_ours} of {} against ours move with the base \
         seed (of {} base seeds); they count as undecided.\n",
        forms.len(),
        rows.len(),
        seeds + 1,
    )
}

/// A table of all contenders of a scenario, one per row.
fn contenders(scenario: &ScenarioResults) -> String {
    let unit = unit(&scenario.metric);
    let mut text = format!(
        "`{}`: {}; {} in {}\n\n",
        scenario.id, scenario.title, unit.0, unit.1
    );
    for sweep in 0..scenario.sweeps.len() {
        let rows = table::contenders(scenario, sweep);
        for (index, row) in rows.into_iter().enumerate() {
            let columns = row.len();
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if index == 0 {
                let _ = writeln!(text, "|{}", " --- |".repeat(columns));
            }
        }
        text.push('\n');
    }
    text
}

fn rows(results: &Results, scenario: &ScenarioResults, others: &[Results]) -> String {
    let late = scenario.runs.iter();
    let late = late.filter(|run| run.state != State::Finished).count();
    let mut text = String::new();
    for (index, row) in claims::settled_rows(results, scenario, others)
        .into_iter()
        .enumerate()
    {
        let mut name = match index {
            0 => format!("`{}`, {}", scenario.id, scenario.figure),
            _ => String::new(),
        };
        if index == 0 && late > 0 {
            let _ = write!(name, "; {late} of {} runs late", scenario.runs.len());
        }
        let cells = row.cells().map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text
}
