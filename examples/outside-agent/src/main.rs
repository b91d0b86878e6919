//! The lab of mpquic with a scheduler that asks another program; docs/own-scheduler.md explains
//! both.

use std::process::ExitCode;
use std::time::Duration;

use agent::AgentCommand;
use mpquic_lab::Policies;
use scheduler::AskAgent;

mod agent;
mod scheduler;

/// The command that starts the agent; arguments are separated by spaces.
const VARIABLE: &str = "MPQUIC_AGENT";
const DEFAULT: &str = concat!("python3 ", env!("CARGO_MANIFEST_DIR"), "/agent.py");
/// The longest time for an answer: learning takes time, but a run must end.
const DEADLINE: Duration = Duration::from_secs(60);

fn policies(command: AgentCommand) -> Policies {
    Policies::built_in().with_scheduler("agent", move || Box::new(AskAgent::new(command.clone())))
}

fn main() -> ExitCode {
    let command = std::env::var(VARIABLE).unwrap_or_else(|_| DEFAULT.into());
    mpquic_lab::main(&policies(AgentCommand {
        words: command.split_whitespace().map(str::to_owned).collect(),
        deadline: DEADLINE,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpquic_sim::experiment::{Experiment, ScenarioResults, State};
    use mpquic_sim::scenario::Scenario;

    fn run(command: &str, threads: usize) -> ScenarioResults {
        let policies = policies(AgentCommand {
            words: command.split_whitespace().map(str::to_owned).collect(),
            deadline: DEADLINE,
        });
        let text = include_str!("../changing.toml");
        let mut scenario = Scenario::parse_with(&policies, "changing.toml", text).unwrap();
        scenario
            .contenders
            .retain(|contender| contender.name == "agent");
        scenario.runs = 2;
        Experiment::new(scenario).run(threads, &|| ())
    }

    #[test]
    fn equal_seeds_give_equal_runs() {
        let first = run(DEFAULT, 1);
        assert!(
            first.runs.iter().all(|run| run.state == State::Finished),
            "{first:?}"
        );
        assert_eq!(first, run(DEFAULT, 2));
    }

    #[test]
    fn a_run_whose_agent_dies_fails_and_says_so() {
        let results = run("python3 -c pass", 1);
        for run in &results.runs {
            let State::Failed(reason) = &run.state else {
                panic!("{run:?}");
            };
            assert!(
                reason.contains("`python3 -c pass` ended too early"),
                "{reason}"
            );
        }
    }

    #[test]
    fn the_walk_through_shows_this_agent() {
        let shown = include_str!("../../../docs/own-scheduler.md");
        let block = shown.split("\n```python\n").nth(1).unwrap();
        assert_eq!(
            block.split("```").next().unwrap(),
            include_str!("../agent.py")
        );
    }
}
