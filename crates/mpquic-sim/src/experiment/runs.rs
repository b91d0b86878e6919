//! [`Experiment`]: a scenario with all its runs, and each of them by itself.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::case::Case;
use super::results::{Run, ScenarioResults, State, Trace};
use super::stage::Stage;
use super::trace::Tracer;
use super::{failure, measure};
use crate::scenario::{Points, Position, Scenario, default_metric, is_lower_better};

/// Into how many parts the repetitions of an experiment fall that stops early.
pub(super) const PARTS: usize = 3;

/// How often a run checks whether its workload is done.
const SLICE: Duration = Duration::from_millis(20);

/// Runs by index, each with its trace if one was recorded.
pub(super) type Outcomes = BTreeMap<usize, (Run, Option<Trace>)>;

/// A scenario with all its runs.
#[derive(Debug, Clone)]
pub struct Experiment {
    scenario: Scenario,
    points: Points,
    traces: Traces,
    stops_early: bool,
}

/// Which runs of an experiment are recorded over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Traces {
    /// None.
    None,
    /// The first of each contender and combination of swept values.
    #[default]
    First,
    /// All.
    All,
}

impl Experiment {
    /// All runs of a scenario.
    pub fn new(scenario: Scenario) -> Self {
        let points = Points::new(&scenario);
        Self {
            scenario,
            points,
            traces: Traces::default(),
            stops_early: false,
        }
    }

    /// Stops after a third or two thirds of the repetitions if all published claims of the scenario
    /// are decided by then, with 99.5 % confidence; and goes on to the end if it makes none that its
    /// own runs could decide. The results are the same for any number of threads.
    pub fn stop_early(&mut self) {
        self.stops_early = true;
    }

    /// Records these runs over time.
    pub fn set_traces(&mut self, traces: Traces) {
        self.traces = traces;
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How many runs there are.
    pub fn count(&self) -> usize {
        let contenders = self.scenario.contenders.len();
        self.points.sweeps() * self.points.points() * self.scenario.runs * contenders
    }

    /// The runs of a part of the repetitions: all of them are in the first, unless it stops early. A
    /// part has every third repetition, because points that follow each other are near each other.
    pub(super) fn part(&self, part: usize) -> impl Iterator<Item = usize> {
        let contenders = self.scenario.contenders.len();
        let repetitions = self.points.points() * self.scenario.runs;
        let belongs = move |index: usize| match self.stops_early {
            true => index / contenders % repetitions % PARTS == part,
            false => part == 0,
        };
        (0..self.count()).filter(move |index| belongs(*index))
    }

    /// True if these runs decide all claims.
    pub(super) fn is_decided(&self, outcomes: &Outcomes) -> bool {
        let runs = outcomes.values().map(|(run, _)| run.clone());
        self.results(runs.collect(), Vec::new()).is_decided()
    }

    /// The run with this index. Runs that differ only in the contender have consecutive indices.
    pub(super) fn case(&self, index: usize) -> Case {
        let contenders = self.scenario.contenders.len();
        let (index, contender) = (index / contenders, index % contenders);
        let (index, run) = (index / self.scenario.runs, index % self.scenario.runs);
        let points = self.points.points();
        Case {
            contender,
            position: Position {
                sweep: index / points,
                point: index % points,
                run,
            },
        }
    }

    pub(super) fn run_case(&self, case: Case) -> (Run, Option<Trace>) {
        // A broken invariant ends one run, not all of them.
        let result = catch_unwind(AssertUnwindSafe(|| self.simulate(case)));
        let reason = match result {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(reason)) => reason,
            Err(panic) => failure::reason(&*panic),
        };
        // A failed run counts with the worst value, so that statistics do not leave it out.
        let metric = self.metric();
        let worst = if is_lower_better(&metric) {
            self.scenario.limit.as_secs_f64()
        } else {
            0.0
        };
        let run = Run {
            contender: case.contender,
            sweep: case.position.sweep,
            point: case.position.point,
            run: case.position.run,
            state: State::Failed(reason),
            values: self.points.values(case.position),
            metrics: BTreeMap::from([(metric, worst)]),
            paths: Vec::new(),
            flows: Vec::new(),
        };
        (run, None)
    }

    /// The seed of a run's network and hosts: contenders of one position meet the same network.
    fn seed(&self, position: Position) -> u64 {
        let mut seed = self.scenario.seed;
        for index in [position.sweep, position.point, position.run] {
            seed = (seed ^ (index as u64 + 1))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(23);
        }
        seed >> 8
    }

    fn simulate(&self, case: Case) -> Result<(Run, Option<Trace>), String> {
        let Case {
            contender,
            position,
        } = case;
        let scenario = &self.scenario;
        let values = self.points.values(position);
        let seed = self.seed(position);
        let mut stage = Stage::new(scenario, &scenario.contenders[contender], &values, seed)?;
        let mut tracer = Tracer::new(scenario);
        let mut before = measure::received(&stage);
        let mut warm = scenario.warm_up.is_zero();
        let state = loop {
            let mut end = (stage.elapsed() + SLICE).min(scenario.limit);
            if !warm {
                end = end.min(scenario.warm_up);
            }
            stage.run_until(end)?;
            if !warm && stage.elapsed() >= scenario.warm_up {
                warm = true;
                before = measure::received(&stage);
            }
            tracer.sample(&mut stage);
            if let Some(state) = self.state(&mut stage) {
                break state;
            }
        };
        let flows = measure::throughputs(&stage, scenario.warm_up, &before);
        let mut metrics = measure::metrics(scenario, &stage, &flows);
        metrics.extend(tracer.metrics(scenario));
        let run = Run {
            contender,
            sweep: position.sweep,
            point: position.point,
            run: position.run,
            state,
            values,
            metrics,
            paths: measure::paths(&stage),
            flows,
        };
        let is_kept = match self.traces {
            Traces::None => false,
            Traces::First => position.point == 0 && position.run == 0,
            Traces::All => true,
        };
        Ok((run, is_kept.then(|| tracer.finish(case))))
    }

    /// How a run has ended, if it has.
    fn state(&self, stage: &mut Stage) -> Option<State> {
        if measure::is_done(stage) {
            return Some(State::Finished);
        }
        if let Some(reason) = stage.lost() {
            return Some(State::Failed(reason));
        }
        let over = stage.elapsed() >= self.scenario.limit || stage.is_over();
        over.then_some(State::Unfinished)
    }

    /// The metric by which contenders are compared.
    fn metric(&self) -> String {
        if self.scenario.metric.is_empty() {
            default_metric(&self.scenario.workload.kind)
        } else {
            self.scenario.metric.clone()
        }
    }

    pub(super) fn results(&self, runs: Vec<Run>, traces: Vec<Trace>) -> ScenarioResults {
        let scenario = &self.scenario;
        let metric = self.metric();
        let published = scenario.published.iter().map(|published| {
            let mut published = published.clone();
            if published.metric.is_empty() {
                published.metric.clone_from(&metric);
            }
            published
        });
        ScenarioResults {
            id: scenario.id.clone(),
            title: scenario.title.clone(),
            paper: scenario.paper.clone(),
            figure: scenario.figure.clone(),
            seed: scenario.seed,
            words: scenario.words(),
            command: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            limit_s: scenario.limit.as_secs_f64(),
            baseline: scenario.baseline.clone(),
            contenders: scenario.contenders.iter().map(|c| c.name.clone()).collect(),
            paths: scenario
                .paths
                .iter()
                .map(|path| path.name.clone())
                .collect(),
            competitors: scenario
                .competitors
                .iter()
                .map(|c| c.name.clone())
                .collect(),
            parameters: self.points.names().map(str::to_owned).collect(),
            sweeps: (0..self.points.sweeps())
                .map(|sweep| self.points.labels(sweep))
                .collect(),
            published: published.collect(),
            as_published: scenario.as_published.clone(),
            variant_of: scenario.variant_of.clone(),
            metric,
            runs,
            traces,
        }
    }
}
