//! The lab of mpquic with one more scheduler; docs/own-scheduler.md explains this program.

use std::process::ExitCode;

use mpquic_lab::Policies;
use patient::Patient;

mod patient;

fn policies() -> Policies {
    Policies::built_in().with_scheduler("patient", || Box::new(Patient::default()))
}

fn main() -> ExitCode {
    mpquic_lab::main(&policies())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpquic_sim::experiment::{Experiment, State};
    use mpquic_sim::scenario::Scenario;

    #[test]
    fn the_slow_path_does_not_hold_up_a_small_file() {
        let text = include_str!("../uneven.toml");
        let mut scenario = Scenario::parse_with(&policies(), "uneven.toml", text).unwrap();
        scenario.runs = 2;
        let results = Experiment::new(scenario).run(1, &|| ());
        let finished = |run: &&mpquic_sim::experiment::Run| run.state == State::Finished;
        assert_eq!(
            results.runs.iter().filter(finished).count(),
            results.runs.len()
        );
        let [patient, turns] = ["patient", "round-robin"].map(|name| {
            let contender = results.contender(name).unwrap();
            let cell = mpquic_sim::experiment::Cell {
                sweep: 0,
                contender,
            };
            results.summary(cell, &results.metric).statistics.mean
        });
        assert!(patient < turns, "{patient} s, {turns} s");
    }

    #[test]
    fn the_walk_through_shows_this_code() {
        let shown = include_str!("../../../docs/own-scheduler.md");
        let code = [include_str!("main.rs"), include_str!("patient.rs")].concat();
        let blocks: Vec<_> = shown.split("\n```rust\n").skip(1).collect();
        assert!(blocks.len() > 2);
        for block in blocks {
            let block = block.split("```").next().unwrap();
            assert!(code.contains(block), "not in the example:\n{block}");
        }
        assert!(shown.contains(include_str!("../Cargo.toml").split("\n\n").nth(1).unwrap()));
    }
}
