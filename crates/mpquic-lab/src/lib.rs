//! mpquic-lab: runs experiments in virtual time from the command line.
//!
//! `mpquic lab` is this crate with the built-in policies. Your own program can add a scheduler
//! that is not part of mpquic:
//!
//! ```no_run
//! use mpquic_lab::Policies;
//! use mpquic_sched::RoundRobin;
//!
//! fn main() -> std::process::ExitCode {
//!     let policies = Policies::built_in()
//!         .with_scheduler("mine", || Box::new(RoundRobin::default()));
//!     mpquic_lab::main(&policies)
//! }
//! ```
//!
//! In your program, `cargo run --release -- run all --add mine -o results` runs every scenario with
//! its own contenders and with `mine`. It writes tables and a report.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mpquic_sim::experiment::{Experiment, Results, Traces, run_all};
use mpquic_sim::scenario::{Contender, Draw, Scenario, with_controllers};

pub use advise::Advise;
pub use failure::Failure;
pub use mpquic_sim::Policies;
use progress::progress_bar;
pub use recording::{PathRecording, recorded};
pub use report::STYLE as PAGE_STYLE;
use results::all_went_well;
use terminal::print;

mod advise;
mod changes;
mod claims;
mod compare;
mod failure;
mod figures;
mod markdown;
mod numbers;
mod output;
mod progress;
mod recording;
mod report;
mod results;
mod select;
mod table;
mod tell;
mod terminal;
mod today;
mod trace;

/// Run experiments in virtual time, and compare and plot their results
///
/// The scenarios of the papers on multipath schedulers come with the tool: `mpquic lab list`. They
/// run the same code as real transfers, on simulated links. Equal seeds give equal results, to the
/// byte.
#[derive(Debug, Args)]
pub struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Run(Run),
    Compare(compare::Compare),
    Table(markdown::Table),
    Report(report::Report),
    Trace(trace::Trace),
}

/// List the scenarios that come with the tool
#[derive(Debug, Args)]
struct List {
    /// List only scenarios whose name, title or paper contains all of these words
    words: Vec<String>,
}

/// Print the file of a scenario, to copy and change
#[derive(Debug, Args)]
struct Show {
    /// The scenario's name
    name: String,
}

/// Run scenarios
#[derive(Debug, Args)]
struct Run {
    /// Names of scenarios (`etc-*` means several), files with scenarios, or `all`
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Compare these schedulers instead of the scenario's own contenders; a scheduler that is one
    /// of these contenders keeps the contender's settings; `all` for all built-in schedulers
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    schedulers: Vec<String>,
    /// Run the contenders with these controllers instead of their own; `all` for all built-in ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<String>,
    /// Compare these schedulers with the scenario's own contenders
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    add: Vec<String>,
    /// Repeat each point this many times; without this and --points, as often as the scenario says,
    /// or less if all published claims are decided before
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    runs: Option<u64>,
    /// Use this many points, each with its own randomly drawn values
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    points: Option<u64>,
    /// Seed from which everything random is derived
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run at most four points and three repetitions
    #[arg(long)]
    quick: bool,
    /// Number of threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Write results.json, runs.csv, summary.csv, traces.csv and report.html to this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Record these runs over time: none, the first of each kind, or all
    #[arg(long, value_name = "WHICH", value_enum, default_value = "first")]
    traces: WhichTraces,
    /// Print all results as one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WhichTraces {
    None,
    First,
    All,
}

impl From<WhichTraces> for Traces {
    fn from(which: WhichTraces) -> Self {
        match which {
            WhichTraces::None => Self::None,
            WhichTraces::First => Self::First,
            WhichTraces::All => Self::All,
        }
    }
}

/// The largest number of points and of repetitions of a quick run.
const QUICK: (usize, usize) = (4, 3);

impl Lab {
    /// Runs the subcommand of the command line.
    ///
    /// # Errors
    ///
    /// A [`Failure`] to show to the user.
    pub fn run(&self, policies: &Policies) -> Result<(), Failure> {
        match &self.command {
            Command::List(args) => list(args),
            Command::Show(args) => print(select::built_in(&args.name)?.text),
            Command::Run(args) => run_scenarios(args, policies),
            Command::Compare(args) => compare::run(args),
            Command::Table(args) => markdown::run(args),
            Command::Report(args) => report::run(args),
            Command::Trace(args) => trace::run(args),
        }
    }
}

/// The command line of a program that consists of the lab only.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Program {
    #[command(flatten)]
    lab: Lab,
}

/// The lab as a whole program: reads the command line, and reports errors on standard error.
///
/// The exit code is 0 for success, 1 for a failure, and 2 for a wrong command line or scenario.
pub fn main(policies: &Policies) -> ExitCode {
    match Program::parse().lab.run(policies) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell::say(format_args!("error: {failure}"));
            match failure {
                Failure::Usage(_) => ExitCode::from(2),
                Failure::Failed(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn list(args: &List) -> Result<(), Failure> {
    let mut by_paper: BTreeMap<String, Vec<Scenario>> = BTreeMap::new();
    for scenario in select::all(&Policies::built_in())? {
        let text = format!("{} {} {}", scenario.id, scenario.title, scenario.paper).to_lowercase();
        if args
            .words
            .iter()
            .all(|word| text.contains(&word.to_lowercase()))
        {
            by_paper
                .entry(scenario.paper.clone())
                .or_default()
                .push(scenario);
        }
    }
    if by_paper.is_empty() {
        return Err(Failure::usage(
            "no scenario fits; `mpquic lab list` shows all",
        ));
    }
    let mut text = String::new();
    for (paper, scenarios) in by_paper {
        let _ = writeln!(text, "{paper}");
        for scenario in scenarios {
            let runs = Experiment::new(scenario.clone()).count();
            let (id, title, figure) = (&scenario.id, &scenario.title, &scenario.figure);
            let _ = writeln!(text, "  {id:22} {runs:>5} runs  {title} [{figure}]");
        }
    }
    print(&text)
}

impl Run {
    /// The command line that repeats one of the scenarios.
    fn command(&self, scenario: &str) -> String {
        let mut command = format!("mpquic lab run {}", quoted(scenario));
        let lists = [
            ("schedulers", &self.schedulers),
            ("controllers", &self.controllers),
            ("add", &self.add),
        ];
        for (name, values) in lists.into_iter().filter(|(_, values)| !values.is_empty()) {
            let _ = write!(command, " --{name} {}", values.join(","));
        }
        let numbers = [
            ("runs", self.runs),
            ("points", self.points),
            ("seed", self.seed),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                let _ = write!(command, " --{name} {value}");
            }
        }
        command + if self.quick { " --quick" } else { "" }
    }

    fn change(&self, scenario: &mut Scenario) -> Result<(), Failure> {
        let policies = &scenario.policies;
        if !self.schedulers.is_empty() || !self.controllers.is_empty() {
            let schedulers = select::schedulers(policies, &self.schedulers)?;
            let controllers = select::controllers(policies, &self.controllers)?;
            let own = &scenario.contenders;
            let contender = |name: &String| {
                let known = own.iter().find(|contender| contender.name == *name);
                known.cloned().unwrap_or_else(|| {
                    let controller = own.first().map_or("", |first| &first.controller);
                    Contender::new(name, name, controller)
                })
            };
            let mut contenders = if schedulers.is_empty() {
                own.clone()
            } else {
                schedulers.iter().map(contender).collect()
            };
            if !controllers.is_empty() {
                contenders = with_controllers(&contenders, &controllers);
            }
            scenario.set_contenders(contenders);
        }
        for scheduler in select::schedulers(&scenario.policies, &self.add)? {
            let contenders = &mut scenario.contenders;
            if contenders.iter().all(|other| other.name != scheduler) {
                let controller = contenders[0].controller.clone();
                contenders.push(Contender::new(&scheduler, &scheduler, &controller));
            }
        }
        if let Some(seed) = self.seed {
            scenario.seed = seed;
        }
        if let Some(runs) = self.runs {
            scenario.runs = runs as usize;
        }
        if let (Some(points), Draw::SpaceFilling(_)) = (self.points, scenario.draw) {
            scenario.draw = Draw::SpaceFilling(points as usize);
        }
        if self.quick {
            scenario.runs = scenario.runs.min(QUICK.1);
            if let Draw::SpaceFilling(points) = scenario.draw {
                scenario.draw = Draw::SpaceFilling(points.min(QUICK.0));
            }
        }
        Ok(())
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./+:,@%=".contains(c);
    if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn run_scenarios(args: &Run, policies: &Policies) -> Result<(), Failure> {
    let (mut experiments, mut names) = (Vec::new(), Vec::new());
    for select::Named { name, mut scenario } in select::scenarios(policies, &args.scenarios)? {
        if !results::is_id(&scenario.id) {
            let problem = format!(
                "`{}` is no name of a scenario: {}",
                scenario.id,
                results::ID
            );
            return Err(Failure::usage(problem + "; rename its file"));
        }
        args.change(&mut scenario)?;
        let mut experiment = Experiment::new(scenario);
        experiment.set_traces(args.traces.into());
        if args.runs.is_none() && args.points.is_none() && !args.quick {
            experiment.stop_early();
        }
        experiments.push(experiment);
        names.push(name);
    }
    if let Some(output) = &args.output {
        // Before the runs: a directory that cannot be created costs no time then.
        fs::create_dir_all(output).map_err(|error| Failure::in_file(output, error))?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, usize::from);
    let runs = experiments.iter().map(Experiment::count).sum::<usize>();
    let bar = progress_bar(runs as u64, args.quiet);
    let mut results = Results::default();
    let mut printed = Ok(());
    let progress = |experiment: &Experiment| {
        bar.set_message(experiment.scenario().id.clone());
        bar.inc(1);
    };
    run_all(&experiments, jobs, &progress, &mut |index, mut done| {
        done.command = args.command(&names[index]);
        results.scenarios.push(done);
        if let (false, Ok(()), Some(done)) = (args.json, &printed, results.scenarios.last()) {
            printed = bar.suspend(|| print(&table::scenario(&results, done)));
        }
    });
    bar.finish_and_clear();
    printed?;
    if args.json {
        print(&(results::json(&results)? + "\n"))?;
    }
    if let Some(output) = &args.output {
        output::write(output, &results)?;
    }
    all_went_well(&results)
}
