//! Ends a run from inside a policy.

use std::any::Any;
use std::panic::resume_unwind;

/// The payload of the panic by which [`fail_run`] unwinds.
struct Reason(String);

/// Ends the current run as [`State::Failed`](super::State::Failed) with this reason. For schedulers
/// and controllers that cannot go on and whose results must not count, for example after the exit
/// of an external program behind the scheduler.
///
/// Unwinds the stack, so a call is allowed only in runs of an [`Experiment`](super::Experiment).
pub fn fail_run(reason: impl Into<String>) -> ! {
    resume_unwind(Box::new(Reason(reason.into())))
}

/// The reason for which a run unwound.
pub(super) fn reason(panic: &(dyn Any + Send)) -> String {
    if let Some(Reason(reason)) = panic.downcast_ref() {
        return reason.clone();
    }
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use mpquic_core::sched::{Decision, Scheduler, View};

    use super::super::{Experiment, State};
    use super::*;
    use crate::policies::Policies;
    use crate::scenario::Scenario;

    /// A scheduler that sends its first packets, then gives up.
    #[derive(Debug, Default)]
    struct GivesUp {
        sent: usize,
    }

    impl Scheduler for GivesUp {
        fn select(&mut self, view: &View<'_>) -> Decision {
            self.sent += 1;
            if self.sent > 20 {
                fail_run("the oracle is silent");
            }
            view.sendable()
                .next()
                .map_or(Decision::Blocked, |path| Decision::send(path.id))
        }

        fn name(&self) -> &'static str {
            "gives-up"
        }
    }

    #[test]
    fn one_run_fails_with_its_reason_and_the_others_go_on() {
        let policies =
            Policies::built_in().with_scheduler("gives-up", || Box::<GivesUp>::default());
        let text = "schedulers = [\"gives-up\", \"lrf\"]\n\
                    workload = { kind = \"file\", size_kb = 100 }\n\
                    [[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5";
        let scenario = Scenario::parse_with(&policies, "test.toml", text).unwrap();
        let results = Experiment::new(scenario).run(1, &|| ());
        let states: Vec<_> = results.runs.iter().map(|run| run.state.clone()).collect();
        let failed = State::Failed("the oracle is silent".into());
        assert_eq!(states, [failed, State::Finished]);
    }
}
