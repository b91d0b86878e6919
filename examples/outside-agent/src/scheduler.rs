//! [`AskAgent`]: divides bytes by weights that an agent gives.

use std::time::{Duration, Instant};

use mpquic_core::sched::{Decision, Needs, Scheduler, SchedulerEvent, View};
use mpquic_sched::{SplitRatio, SplitWeights};
use mpquic_sim::experiment::fail_run;

use crate::agent::{Agent, AgentCommand, Observation, PathObservation};

/// Virtual time between two questions to the agent.
const INTERVAL: Duration = Duration::from_millis(50);

/// Divides bytes by weights that an agent gives. Each sender of each connection has an agent of its
/// own. If the agent fails, the run fails.
#[derive(Debug)]
pub struct AskAgent {
    command: AgentCommand,
    weights: SplitWeights,
    split: SplitRatio,
    talk: Option<Talk>,
}

#[derive(Debug)]
struct Talk {
    agent: Agent,
    start: Instant,
    next: Instant,
    seed: u64,
}

impl AskAgent {
    pub fn new(command: AgentCommand) -> Self {
        let weights = SplitWeights::default();
        Self {
            command,
            split: SplitRatio::new(&weights),
            weights,
            talk: None,
        }
    }

    fn ask(&mut self, view: &View<'_>) -> Result<(), String> {
        let talk = match &mut self.talk {
            Some(talk) => talk,
            None => self.talk.insert(Talk {
                agent: Agent::start(&self.command)?,
                start: view.now,
                next: view.now,
                seed: view.random,
            }),
        };
        if view.now < talk.next {
            return Ok(());
        }
        talk.next = view.now + INTERVAL;
        let weights = talk.agent.ask(&talk.observe(view))?;
        self.weights
            .set(view.usable().map(|path| path.id).zip(weights));
        Ok(())
    }
}

impl Talk {
    fn observe(&self, view: &View<'_>) -> Observation {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let paths = view.usable().map(|path| PathObservation {
            id: path.id.0.into(),
            rtt_ms: milliseconds(path.rtt.smoothed),
            min_rtt_ms: milliseconds(path.rtt.min),
            window: path.window,
            in_flight: path.in_flight,
            bytes_sent: path.bytes_sent,
            bytes_acked: path.bytes_acked,
            bytes_lost: path.bytes_lost,
            delivery_rate: path.delivery_rate,
        });
        Observation {
            seconds: (view.now - self.start).as_secs_f64(),
            seed: self.seed,
            unsent: view.queue.unsent,
            paths: paths.collect(),
        }
    }
}

impl Scheduler for AskAgent {
    fn select(&mut self, view: &View<'_>) -> Decision {
        // With one path there is nothing to divide.
        if view.queue.unsent > 0 && view.usable().count() > 1 {
            if let Err(problem) = self.ask(view) {
                fail_run(problem);
            }
        }
        self.split.select(view)
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.split.on_event(event, view);
    }

    fn needs(&self) -> Needs {
        self.split.needs()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.split.next_timeout()
    }

    fn name(&self) -> &'static str {
        "agent"
    }
}
