//! Writes results as JSON, and reads them back.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use mpquic_sim::experiment::{Results, Run, ScenarioResults, State, Trace};

use crate::Failure;

/// The name of the file that holds all results.
pub(crate) const FILE: &str = "results.json";

/// The rule of [`is_id`] for names of scenarios, for error messages.
pub(crate) const ID: &str = "names are letters, digits, `.`, `-` and `_`, with no dot in front";

/// True if the name of a scenario can be part of the name of a file or link.
pub(crate) fn is_id(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || ".-_".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

/// Fails if any run failed. The message has the reason of the first failed run.
pub(crate) fn all_went_well(results: &Results) -> Result<(), Failure> {
    let runs = || results.scenarios.iter().flat_map(|scenario| &scenario.runs);
    let mut reasons = runs().filter_map(|run| match &run.state {
        State::Failed(reason) => Some(reason),
        State::Finished | State::Unfinished => None,
    });
    let Some(first) = reasons.next() else {
        return Ok(());
    };
    let failed = 1 + reasons.count();
    let problem = format!("{failed} of {} runs failed: {first}", runs().count());
    Err(Failure::other(problem))
}

/// Results as one JSON object.
pub(crate) fn json(results: &Results) -> Result<String, Failure> {
    serde_json::to_string(results).map_err(Failure::other)
}

/// Reads results from a file, or from the directory that a run wrote.
pub(crate) fn read(path: &Path) -> Result<Results, Failure> {
    let file = if path.is_dir() {
        path.join(FILE)
    } else {
        path.to_owned()
    };
    let wrong = |problem: String| {
        let file = file.display();
        Err(Failure::Usage(format!("{file}: {problem}")))
    };
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = if path.is_dir() || path.extension().is_none() {
                path
            } else {
                path.parent().unwrap_or(path)
            };
            return wrong(format!(
                "there is no such file; `mpquic lab run SCENARIO -o {}` makes results",
                directory.display()
            ));
        }
        Err(error) => return wrong(error.to_string()),
    };
    let results: Results = match serde_json::from_str(&text) {
        Ok(results) => results,
        Err(error) => {
            return wrong(format!(
                "not the {FILE} that `mpquic lab run -o` of this version writes ({error}); run it again"
            ));
        }
    };
    let scenarios = &results.scenarios;
    if let Some(scenario) = scenarios.iter().find(|scenario| !is_id(&scenario.id)) {
        return wrong(format!("`{}` is no name of a scenario: {ID}", scenario.id));
    }
    if let Some(scenario) = scenarios.iter().find(|scenario| scenario.runs.is_empty()) {
        return wrong(format!("{} has no runs; run it again", scenario.id));
    }
    if let Some(scenario) = scenarios.iter().find(|scenario| !fits_together(scenario)) {
        return wrong(format!("{} is damaged; run it again", scenario.id));
    }
    if scenarios.is_empty() {
        return wrong("no scenario was run".into());
    }
    Ok(results)
}

/// True if all indices of runs and traces point to existing entries.
fn fits_together(scenario: &ScenarioResults) -> bool {
    let is_cell = |contender: usize, sweep: usize| {
        contender < scenario.contenders.len() && sweep < scenario.sweeps.len()
    };
    let paths = scenario.paths.len();
    let is_run = |run: &Run| {
        is_cell(run.contender, run.sweep) && run.paths.iter().all(|path| path.path < paths)
    };
    let is_trace = |trace: &Trace| {
        let samples = trace.received.first().map_or(0, Vec::len);
        let counters = [
            &trace.received,
            &trace.path_bytes,
            &trace.window,
            &trace.lost,
        ];
        let counters = counters.into_iter().flatten().chain(&trace.queue);
        let mut lengths = counters.map(Vec::len);
        is_cell(trace.contender, trace.sweep)
            && lengths.all(|length| length == samples)
            && trace.rtt_ms.iter().all(|values| values.len() == samples)
            && trace.silent.iter().all(|values| values.len() == samples)
            && [
                trace.path_bytes.len(),
                trace.window.len(),
                trace.rtt_ms.len(),
                trace.lost.len(),
                trace.silent.len(),
            ] == [paths; 5]
            && [0, paths].contains(&trace.queue.len())
    };
    scenario.runs.iter().all(is_run) && scenario.traces.iter().all(is_trace)
}

/// Reads several sets of results and joins them.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Results, Failure> {
    let mut all = Results::default();
    for path in paths {
        for scenario in read(path)?.scenarios {
            if all.scenarios.iter().any(|other| other.id == scenario.id) {
                return Err(Failure::usage(format!(
                    "{}: {} is in other results, too; `mpquic lab compare` tells them apart",
                    path.display(),
                    scenario.id
                )));
            }
            all.scenarios.push(scenario);
        }
    }
    Ok(all)
}
