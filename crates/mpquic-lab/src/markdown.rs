//! `mpquic lab table`: prints published claims beside our results for a document.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use mpquic_sim::experiment::{Results, ScenarioResults, State};
use mpquic_sim::scenario::Claim;

use crate::numbers::unit;
use crate::terminal::print;
use crate::{Failure, claims, results, table};

/// The least number of contenders for a table with a row per contender, unless a claim of the
/// scenario has numbers.
const MANY: usize = 8;
const HEADER: &str = "| scenario | metric | published | against published forms | | against ours | | why it differs |\n\
                      | --- | --- | --- | --- | --- | --- | --- | --- |\n";
const BEGIN: &str = "<!-- begin: mpquic lab table -->\n";
const END: &str = "<!-- end: mpquic lab table -->\n";

/// Print published claims beside our results, as Markdown
#[derive(Debug, Args)]
pub(super) struct Table {
    /// Results: what `mpquic lab run -o` wrote; several are joined
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Results of the same scenarios with another --seed: verdicts that differ there are undecided
    #[arg(long, value_name = "RESULTS")]
    other_seed: Vec<PathBuf>,
    /// Put the tables into this file, between its marks, instead of printing them
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

pub(super) fn run(args: &Table) -> Result<(), Failure> {
    let results = results::read_all(&args.results)?;
    let others: Result<Vec<_>, _> = args
        .other_seed
        .iter()
        .map(|path| results::read_all(std::slice::from_ref(path)))
        .collect();
    let tables = tables(&results, &others?);
    let Some(file) = &args.into else {
        return print(&tables);
    };
    let text = fs::read_to_string(file).map_err(|error| Failure::in_file(file, error))?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        let marks = format!("no lines {} and {}", BEGIN.trim_end(), END.trim_end());
        return Err(Failure::in_file(file, marks));
    };
    let text = format!("{before}{BEGIN}\n{tables}{END}{after}");
    fs::write(file, text).map_err(|error| Failure::in_file(file, error))
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
            text += HEADER;
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
    text + "\n"
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
        let (found, outcome) = row.as_published.map_or_else(Default::default, |verdict| {
            (verdict.found, verdict.outcome.to_owned())
        });
        let cells = [
            name,
            row.metric,
            row.published,
            found,
            outcome,
            row.ours.found,
            row.ours.outcome.into(),
            row.reason,
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}
