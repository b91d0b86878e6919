//! The measurements of one short run of every built-in scenario. `recorded.txt` holds the results
//! of an earlier run.
//!
//! Other tests check that results are right. This test shows whether any result changed. So a
//! change to the reading, playing or measuring of scenarios shows all scenarios that it affects,
//! and the new results have to be accepted on purpose. The record also changes with the core,
//! schedulers and controllers.
//!
//!     tools/accept scenarios
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// Logarithms and roots come from the library of the system, and may differ in the last bit
// elsewhere.

use std::fmt::Write as _;
use std::time::Duration;

use super::*;
use crate::record::{self, Hash};
use crate::scenario::{Points, Scenario, built_in};

/// Virtual time of a run.
const LIMIT: Duration = Duration::from_secs(1);

fn hash(text: &str) -> u64 {
    let mut hash = Hash::default();
    hash.add_bytes(text.as_bytes());
    hash.value()
}

/// A line of the record.
fn line(index: usize, id: &str, text: &str) -> String {
    let mut scenario = Scenario::parse(id, text).unwrap();
    let read = hash(&format!("{scenario:?}"));
    let words = hash(&format!("{:?}", scenario.words()));
    let points = Points::new(&scenario);
    let drawn = format!(
        "{:?} {:?}",
        points.labels(0),
        points.names().collect::<Vec<_>>()
    );
    scenario.limit = scenario.limit.min(LIMIT);
    scenario.warm_up = scenario.warm_up.min(LIMIT / 4);
    scenario.runs = 1;
    let mut experiment = Experiment::new(scenario);
    experiment.set_traces(Traces::All);
    // Another contender and another point in each scenario.
    let count = experiment.count();
    let case = experiment.case(index * 7 % count);
    let (run, trace) = experiment.run_case(case);
    let mut line = format!(
        "{id}: read {read:016x}, words {words:016x}, of {count} runs: {:?}",
        run.state
    );
    for (metric, value) in run.metrics.iter().take(3) {
        let _ = write!(line, " {metric} {value}");
    }
    let results = Results {
        scenarios: vec![experiment.results(vec![run], trace.into_iter().collect())],
    };
    let of = &results.scenarios[0];
    let findings = format!("{:?}", results.findings(of, &of.published));
    let all = [
        drawn,
        results.runs_csv(),
        results.summary_csv(),
        results.traces_csv(),
        findings,
    ];
    let _ = writeln!(line, " {:016x}", hash(&all.concat()));
    line
}

#[test]
fn scenarios_are_those_recorded() {
    let mut now = String::from(
        "Hashes of what was read and of its words, some metrics, and a hash of all results.\n",
    );
    for (index, scenario) in built_in().iter().enumerate() {
        now += &line(index, scenario.id, scenario.text);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/experiment/recorded.txt");
    let compared = record::compare(file, &now);
    compared.unwrap_or_else(|changes| panic!("{changes}"));
}
