//! [`Experiment`]: a scenario with all its runs, and the simulation of a single run.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::case::Case;
use super::results::{Run, ScenarioResults, State, Trace};
use super::stage::Stage;
use super::trace::Tracer;
use super::{failure, measure};
use crate::scenario::{Points, Position, Scenario, default_metric, is_lower_better};

/// Number of parts of the repetitions of an experiment that may stop early.
pub(super) const PARTS: usize = 3;

/// Virtual time between two checks whether the workload is done.
const SLICE: Duration = Duration::from_millis(20);

/// Finished runs by index, with their traces if recorded.
pub(super) type Outcomes = BTreeMap<usize, (Run, Option<Trace>)>;

/// A scenario with all its runs.
#[derive(Debug, Clone)]
pub struct Experiment {
    scenario: Scenario,
    points: Points,
    traces: Traces,
    stops_early: bool,
}

/// The runs of an experiment that are recorded over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Traces {
    /// None.
    None,
    /// The first run of each contender and combination of swept values.
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

    /// Stops after a third or two thirds of the repetitions if the runs so far decide all published
    /// claims of the scenario, with 99.5 % confidence. Without claims that its own runs can decide,
    /// the experiment runs to the end. The results are the same for any number of threads.
    pub fn stop_early(&mut self) {
        self.stops_early = true;
    }

    /// Selects the runs that are recorded over time.
    pub fn set_traces(&mut self, traces: Traces) {
        self.traces = traces;
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The number of runs.
    pub fn count(&self) -> usize {
        let contenders = self.scenario.contenders.len();
        self.points.sweeps() * self.points.points() * self.scenario.runs * contenders
    }

    /// The runs of a part of the repetitions. Unless the experiment stops early, all runs are in
    /// the first part. A part has every third repetition, because consecutive points are close to
    /// each other.
    pub(super) fn part(&self, part: usize) -> impl Iterator<Item = usize> {
        let contenders = self.scenario.contenders.len();
        let repetitions = self.points.points() * self.scenario.runs;
        let belongs = move |index: usize| {
            if self.stops_early {
                index / contenders % repetitions % PARTS == part
            } else {
                part == 0
            }
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
        // A broken invariant ends one run, not the experiment.
        let result = catch_unwind(AssertUnwindSafe(|| self.simulate(case)));
        let reason = match result {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(reason)) => reason,
            Err(panic) => failure::reason(&*panic),
        };
        // A failed run counts with the worst value, so that statistics include the run.
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

    /// The seed of a run's network and hosts. All contenders of one position meet the same network,
    /// unless the scenario asks for independent losses.
    fn seed(&self, case: Case) -> u64 {
        let Position { sweep, point, run } = case.position;
        let own = self.scenario.independent_losses.then_some(case.contender);
        let mut seed = self.scenario.seed;
        for index in [sweep, point, run].into_iter().chain(own) {
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
        let seed = self.seed(case);
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

    /// How a run has ended; `None` for a running run.
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
        let given = self.scenario.metric.clone();
        given.unwrap_or_else(|| default_metric(&self.scenario.workload.kind))
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
            variant_of: scenario.variant_of.clone().unwrap_or_default(),
            metric,
            runs,
            traces,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = \"T\"\npaper = \"P\"\nfigure = \"F\"\nseed = 5\nruns = 3\nlimit_s = 7\n\
        variant_of = \"v\"\nschedulers = [\"etc\", \"lrf\"]\nas_published = [[\"lrf\", \"etc\"]]\n\
        workload = { kind = \"file\", size_kb = 1 }\n\
        [[published]]\ntext = \"x\"\n[[published]]\ntext = \"y\"\nmetric = \"gap_s\"\n\
        [[path]]\nname = \"p\"\nrate_mbit = [1, 2]\nowd_ms = 4\nloss_pct = \"0..1\"\n\
        [[competitor]]\nname = \"other\"\n";

    fn experiment(more: &str) -> Experiment {
        let scenario = Scenario::parse("x.toml", &format!("{more}\n{TEXT}"));
        Experiment::new(scenario.unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn results_describe_the_experiment() {
        let results = experiment("").results(Vec::new(), Vec::new());
        let texts = [
            &results.id,
            &results.title,
            &results.paper,
            &results.figure,
            &results.variant_of,
            &results.baseline,
            &results.command,
            &results.metric,
        ];
        let expected = ["x", "T", "P", "F", "v", "lrf", "", "completion_s"];
        assert_eq!(texts, expected);
        assert_eq!(results.version, env!("CARGO_PKG_VERSION"));
        assert_eq!((results.seed, results.limit_s), (5, 7.0));
        assert_eq!(results.contenders, ["etc", "lrf"]);
        assert_eq!(
            (&results.paths[..], &results.competitors[..]),
            (&["p".to_owned()][..], &["other".to_owned()][..])
        );
        assert_eq!(results.parameters.len(), 2);
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let sweep = |rate| vec![pair("p.rate_mbit", rate)];
        assert_eq!(results.sweeps, [sweep("1"), sweep("2")]);
        assert_eq!(results.as_published, [pair("lrf", "etc")]);
        let metrics: Vec<_> = results
            .published
            .iter()
            .map(|claim| &claim.metric[..])
            .collect();
        assert_eq!(metrics, ["completion_s", "gap_s"]);
        assert_eq!(results.words.paths.len(), 1);
        let other = experiment("metric = \"delay_ms\"").results(Vec::new(), Vec::new());
        assert_eq!(other.metric, "delay_ms");
        assert_eq!(other.published[0].metric, "delay_ms");
    }

    #[test]
    fn runs_are_counted_by_sweep_point_repetition_and_contender() {
        let filling = experiment("draw = \"space-filling\"\npoints = 4");
        assert_eq!(filling.count(), 2 * 4 * 3 * 2);
        let at = |index| {
            let case = filling.case(index);
            let Position { sweep, point, run } = case.position;
            (sweep, point, run, case.contender)
        };
        assert_eq!(
            [at(0), at(1), at(2), at(6)],
            [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0)]
        );
        assert_eq!([at(24), at(47)], [(1, 0, 0, 0), (1, 3, 2, 1)]);
        let mut experiment = experiment("");
        let part = |experiment: &Experiment, part| experiment.part(part).collect::<Vec<_>>();
        assert_eq!(part(&experiment, 0), (0..12).collect::<Vec<_>>());
        assert_eq!(part(&experiment, 1), []);
        experiment.stop_early();
        // Each third repetition, with both contenders, in both sweeps.
        assert_eq!(part(&experiment, 0), [0, 1, 6, 7]);
        assert_eq!(part(&experiment, 2), [4, 5, 10, 11]);
        assert_eq!(part(&experiment, 3), []);
    }

    #[test]
    fn seed_depends_on_the_position_but_not_on_the_contender() {
        let experiment = experiment("");
        let seeds = |experiment: &Experiment| -> Vec<u64> {
            let seeds = (0..12).map(|index| experiment.seed(experiment.case(index)));
            seeds.collect()
        };
        let own = seeds(&self::experiment("independent_losses = true"));
        assert!(own.chunks(2).all(|pair| pair[0] != pair[1]));
        let seeds = seeds(&experiment);
        assert!(seeds.chunks(2).all(|pair| pair[0] == pair[1]));
        let mut distinct = seeds.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 6);
        assert!(seeds.iter().all(|seed| *seed < 1 << 56));
    }

    #[test]
    fn a_run_that_fails_counts_with_the_worst_value() {
        let failed = |metric: &str| {
            let mut experiment = experiment(&format!("metric = \"{metric}\""));
            experiment.scenario.contenders[1].scheduler = "unknown".into();
            experiment.scenario.limit = Duration::from_secs(100);
            let (run, trace) = experiment.run_case(experiment.case(3));
            let State::Failed(reason) = run.state else {
                panic!("{:?}", run.state);
            };
            assert!(reason.contains("unknown"), "{reason}");
            assert_eq!((run.contender, run.sweep, run.point, run.run), (1, 0, 0, 1));
            assert!(trace.is_none() && run.paths.is_empty());
            assert_eq!(run.values.len(), 2);
            run.metrics
        };
        let metrics = |name: &str, value| BTreeMap::from([(name.to_owned(), value)]);
        assert_eq!(failed("gap_s"), metrics("gap_s", 100.0));
        assert_eq!(failed("goodput_mbit"), metrics("goodput_mbit", 0.0));
    }

    #[test]
    fn traces_are_kept_of_the_selected_runs() {
        let kept = |traces| {
            let mut experiment = experiment("");
            experiment.set_traces(traces);
            let kept = |index: &usize| experiment.run_case(experiment.case(*index)).1.is_some();
            (0..12).filter(kept).collect::<Vec<_>>()
        };
        assert_eq!(kept(Traces::None), []);
        assert_eq!(kept(Traces::First), [0, 1, 6, 7]);
        assert_eq!(kept(Traces::All), (0..12).collect::<Vec<_>>());
    }
}
