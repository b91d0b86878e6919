//! `mpquic advise`: which policy suits a scenario, in plain words.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use mpquic_sim::experiment::{Cell, Experiment, ScenarioResults, Traces, is_lower_better};
use mpquic_sim::scenario::{Contender, UsedPaths};
use serde::Serialize;

use crate::numbers::{short, unit};
use crate::progress::progress_bar;
use crate::results::all_went_well;
use crate::table::aligned;
use crate::terminal::print;
use crate::{Failure, Policies, select};

/// The scheduler and the controller of the tool, for a command line without names.
const DEFAULT: (&str, &str) = ("auto", "coupled-bbr");
/// The least gain, as a share, that counts as a gain.
const NOTICED: f64 = 0.01;
/// The name of all paths together in the output.
const BOTH: &str = "all paths";

/// Find the best scheduler and controller for recorded paths
///
/// FILE is what `mpquic record` wrote, or any other scenario. Its transfer runs in virtual time
/// with each scheduler and controller over all paths, and over each path alone. The result is
/// printed, and written as a policy file. The sender of the data chooses the policy, so use the
/// file with `mpquic serve --policy` for downloads, and with `mpquic put --policy` for uploads.
#[derive(Debug, Args)]
pub struct Advise {
    /// The scenario
    #[arg(value_name = "FILE")]
    scenario: String,
    /// Schedulers to try; the default one is always among them; `all` for all built-in ones
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "auto,lrf,blest,ecf"
    )]
    schedulers: Vec<String>,
    /// Controllers to try; the default one is always among them; `all` for all built-in ones
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "coupled-bbr,olia,cubic,bbr"
    )]
    controllers: Vec<String>,
    /// Repeat each transfer this many times [default: what the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: Option<u64>,
    /// Write the policy to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Number of threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Print a JSON object instead of words
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
}

/// A scheduler and controller of the comparison, with the results of their runs.
#[derive(Debug, Clone, Serialize)]
struct Tried {
    scheduler: String,
    controller: String,
    /// The name of the path, for a run over a single path.
    path: Option<String>,
    median: f64,
    /// The longest time without any arrival, over all runs.
    worst_gap_s: Option<f64>,
    /// Megabytes of datagrams that each path carried, averaged over the runs.
    path_mb: Vec<(String, f64)>,
    /// Runs that did not finish within the time limit or failed.
    late: usize,
    #[serde(skip)]
    contender: usize,
}

#[derive(Debug, Serialize)]
struct Advice {
    metric: String,
    runs: usize,
    /// The scheduler and controller to use.
    policy: Tried,
    /// The only path to use, if all paths together gain no time over the path.
    one_path: Option<String>,
    /// True if the controller of the policy couples the windows of its paths.
    is_coupled: bool,
    default: Tried,
    /// The best result over a single path.
    best_single: Option<Tried>,
    /// All results, the best first.
    tried: Vec<Tried>,
}

impl Advise {
    /// Runs all contenders and prints the advice.
    ///
    /// # Errors
    ///
    /// A [`Failure`] to show to the user.
    pub fn run(&self, policies: &Policies) -> Result<(), Failure> {
        let named = select::scenarios(policies, std::slice::from_ref(&self.scenario))?;
        let Ok([select::Named { mut scenario, .. }]) = <[_; 1]>::try_from(named) else {
            return Err(Failure::usage("name one scenario"));
        };
        let with = |default: &str, mut names: Vec<String>| {
            if !names.iter().any(|name| name == default) {
                names.insert(0, default.to_owned());
            }
            names
        };
        let schedulers = with(DEFAULT.0, select::schedulers(policies, &self.schedulers)?);
        let controllers = with(DEFAULT.1, select::controllers(policies, &self.controllers)?);
        let paths: Vec<_> = scenario.paths.iter().map(|path| &path.name).collect();
        scenario.set_contenders(contenders(&schedulers, &controllers, paths.len()));
        scenario.published.clear();
        if let Some(runs) = self.runs {
            scenario.runs = runs as usize;
        }
        let mut experiment = Experiment::new(scenario);
        experiment.set_traces(Traces::None);
        let bar = progress_bar(experiment.count() as u64, self.quiet);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let results = experiment.run(self.jobs.map_or(cores, usize::from), &|| bar.inc(1));
        bar.finish_and_clear();
        if results.sweeps.len() != 1 {
            return Err(Failure::usage(format!(
                "{}: advice is about one set of paths, but there are lists of values",
                self.scenario
            )));
        }
        let tried = tried(experiment.scenario(), &results);
        let mut advice = Advice::new(&results, tried);
        let controller = &advice.policy.controller;
        advice.is_coupled = policies.single_path(controller) != controller;
        if let Some(file) = &self.output {
            fs::write(file, advice.policy_file(&self.scenario))
                .map_err(|error| Failure::in_file(file, error))?;
        }
        if self.json {
            let json = serde_json::to_string(&advice).map_err(Failure::other)?;
            print(&(json + "\n"))?;
        } else {
            print(&advice.words())?
        }
        all_went_well(&mpquic_sim::experiment::Results {
            scenarios: vec![results],
        })
    }
}

/// The contenders: each scheduler with each controller over all paths, and each controller over
/// each path alone.
fn contenders(schedulers: &[String], controllers: &[String], paths: usize) -> Vec<Contender> {
    let contender = |scheduler: &str, controller: &str, used| {
        let name = match used {
            UsedPaths::Only(path) => format!("{controller} {path}"),
            _ => format!("{scheduler} {controller}"),
        };
        Contender {
            paths: used,
            ..Contender::new(&name, scheduler, controller)
        }
    };
    let mut contenders = Vec::new();
    for controller in controllers {
        let all = schedulers.iter();
        contenders.extend(all.map(|scheduler| contender(scheduler, controller, UsedPaths::All)));
        // Of a single path, the run over all paths is already the run over the path alone.
        let alone = (0..paths).filter(|_| paths > 1).map(UsedPaths::Only);
        contenders.extend(alone.map(|path| contender(DEFAULT.0, controller, path)));
    }
    contenders
}

/// The results of all contenders, the best first.
fn tried(scenario: &mpquic_sim::scenario::Scenario, results: &ScenarioResults) -> Vec<Tried> {
    let each = scenario.contenders.iter().enumerate();
    let mut tried: Vec<_> = each
        .map(|(index, contender)| {
            let cell = Cell {
                sweep: 0,
                contender: index,
            };
            let summary = results.summary(cell, &results.metric);
            let runs = || results.runs_of(cell);
            let gaps = runs().filter_map(|run| run.metrics.get("gap_s").copied());
            let count = runs().count().max(1) as f64;
            let carried = |path: usize| {
                let runs = runs().flat_map(|run| &run.paths);
                let runs = runs.filter(|result| result.path == path);
                runs.map(|result| result.bytes as f64).sum::<f64>() / count / 1e6
            };
            let paths = results.paths.iter().enumerate();
            Tried {
                scheduler: contender.scheduler.clone(),
                controller: contender.controller.clone(),
                path: match contender.paths {
                    UsedPaths::Only(path) => results.paths.get(path).cloned(),
                    _ => None,
                },
                median: summary.statistics.median,
                worst_gap_s: gaps.max_by(f64::total_cmp),
                path_mb: paths
                    .map(|(path, name)| (name.clone(), carried(path)))
                    .collect(),
                late: summary.unfinished + summary.failed,
                contender: index,
            }
        })
        .collect();
    tried.sort_by(|a, b| a.median.total_cmp(&b.median));
    if !is_lower_better(&results.metric) {
        tried.reverse();
    }
    tried
}

impl Advice {
    fn new(results: &ScenarioResults, tried: Vec<Tried>) -> Self {
        let is_default =
            |one: &&Tried| one.path.is_none() && (&*one.scheduler, &*one.controller) == DEFAULT;
        let default = tried.iter().find(is_default).cloned();
        let best = tried.iter().find(|one| one.path.is_none()).cloned();
        let best_single = tried.iter().find(|one| one.path.is_some()).cloned();
        // Both the default policy and the best policy are among the results.
        let default = default.or_else(|| tried.first().cloned());
        let default = default.unwrap_or_else(Tried::nothing);
        let best = best.unwrap_or_else(|| default.clone());
        let cell = Cell {
            sweep: 0,
            contender: best.contender,
        };
        let compared = results.comparison(cell, default.contender, &results.metric);
        let is_better = compared.is_some_and(|compared| {
            compared.is_significant()
                && gain(&results.metric, best.median, default.median) > NOTICED
        });
        let policy = if is_better { best } else { default.clone() };
        let is_enough =
            |single: &&Tried| gain(&results.metric, policy.median, single.median) < NOTICED;
        let one_path = best_single.as_ref().filter(is_enough);
        Self {
            metric: results.metric.clone(),
            runs: results.runs_of(cell).count(),
            is_coupled: false,
            one_path: one_path.and_then(|single| single.path.clone()),
            policy: one_path.cloned().unwrap_or(policy),
            default,
            best_single,
            tried,
        }
    }

    /// The policy as a file of options.
    fn policy_file(&self, scenario: &str) -> String {
        let Tried {
            scheduler,
            controller,
            ..
        } = &self.policy;
        format!(
            "# From `mpquic advise {}`: {}.\n# Options of the side that sends the data.\n\
             scheduler = \"{scheduler}\"\ncc = \"{controller}\"\n",
            scenario.escape_default(),
            self.value(self.policy.median)
        )
    }

    fn value(&self, value: f64) -> String {
        let (_, unit) = unit(&self.metric);
        format!("{} {unit}", short(value)).trim_end().to_owned()
    }

    fn words(&self) -> String {
        let mut text = String::new();
        let (name, _) = unit(&self.metric);
        let name = name.replace('_', " ");
        let policy = &self.policy;
        let over = policy.path.as_deref().map_or(BOTH.to_owned(), alone);
        let _ = writeln!(
            text,
            "Use the scheduler {} and the controller {} over {over}: {name} {} (median of {} runs).",
            policy.scheduler,
            policy.controller,
            self.value(policy.median),
            self.runs
        );
        text += &self.against_default();
        text += &self.against_single();
        text += &self.gaps();
        if !self.is_coupled && policy.path.is_none() {
            let _ = writeln!(
                text,
                "{} is not coupled: where paths share a bottleneck, it takes the share of several \
                 connections there.",
                policy.controller
            );
        }
        let rows = self.tried.iter().map(|one| self.row(one));
        let header = [
            "scheduler, controller",
            "paths",
            &name,
            "worst gap",
            "not done",
        ];
        let header = header.map(str::to_owned).to_vec();
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        text + "\n" + &aligned(&rows)
    }

    fn row(&self, one: &Tried) -> Vec<String> {
        let gap = one.worst_gap_s.map_or(String::new(), milliseconds);
        let late = if one.late > 0 {
            one.late.to_string()
        } else {
            String::new()
        };
        vec![
            format!("{}, {}", one.scheduler, one.controller),
            one.path.clone().unwrap_or_else(|| "all".to_owned()),
            self.value(one.median),
            gap,
            late,
        ]
    }

    fn against_default(&self) -> String {
        let (policy, default) = (&self.policy, &self.default);
        if policy.contender == default.contender {
            let better = self
                .tried
                .first()
                .map_or(0.0, |best| gain(&self.metric, best.median, default.median));
            return if better > NOTICED {
                "That is the default; what did better did so by chance, as far as these runs \
                         show.\n"
                    .to_owned()
            } else {
                "That is the default, and nothing does better.\n".to_owned()
            };
        }
        let percent = 100.0 * gain(&self.metric, policy.median, default.median);
        format!(
            "The default, {} and {}, over {BOTH}: {}; this is {percent:.0} % better.\n",
            default.scheduler,
            default.controller,
            self.value(default.median)
        )
    }

    fn against_single(&self) -> String {
        let Some(single) = &self.best_single else {
            return String::new();
        };
        let name = single.path.as_deref().unwrap_or_default();
        if self.one_path.is_some() {
            return format!(
                "One path is enough: the others add nothing to {name}. A client uses only this one \
                 if its `--local` names the interface or the address of this path.\n"
            );
        }
        let factor = if is_lower_better(&self.metric) {
            single.median / self.policy.median
        } else {
            self.policy.median / single.median
        };
        let mut text = format!(
            "That is {factor:.2} times as good as the best over a single path, {}: {} with {}.\n",
            alone(name),
            self.value(single.median),
            single.controller
        );
        let total: f64 = self.policy.path_mb.iter().map(|(_, mb)| mb).sum();
        let others = self.policy.path_mb.iter();
        for (path, mb) in others.filter(|(path, _)| path != name) {
            let share = 100.0 * mb / total.max(1e-9);
            let _ = write!(
                text,
                "{path} costs {mb:.1} MB for that, {share:.0} % of all"
            );
            let saved = single.median - self.policy.median;
            let is_time = unit(&self.metric).1 == "s" && is_lower_better(&self.metric);
            if is_time && self.policy.path_mb.len() == 2 && *mb > 0.0 {
                let _ = write!(text, ": each of them saves {}", milliseconds(saved / mb));
            }
            text += ".\n";
        }
        text
    }

    fn gaps(&self) -> String {
        let Some(gap) = self.policy.worst_gap_s else {
            return String::new();
        };
        let mut text = format!(
            "The longest time in which nothing arrived was {}",
            milliseconds(gap)
        );
        let single = self
            .best_single
            .as_ref()
            .filter(|_| self.one_path.is_none());
        if let Some(single) = single
            && let (Some(path), Some(gap)) = (&single.path, single.worst_gap_s)
        {
            let _ = write!(text, ", over {} {}", alone(path), milliseconds(gap));
        }
        text + ".\n"
    }
}

impl Tried {
    fn nothing() -> Self {
        Self {
            scheduler: DEFAULT.0.to_owned(),
            controller: DEFAULT.1.to_owned(),
            path: None,
            median: 0.0,
            worst_gap_s: None,
            path_mb: Vec::new(),
            late: 0,
            contender: 0,
        }
    }
}

fn alone(path: &str) -> String {
    format!("{path} alone")
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", 1e3 * seconds)
}

/// The gain of `value` over `other`, as a share of `other`.
fn gain(metric: &str, value: f64, other: f64) -> f64 {
    let share = (other - value) / other.abs().max(f64::MIN_POSITIVE);
    if is_lower_better(metric) {
        share
    } else {
        -share
    }
}
