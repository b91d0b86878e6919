//! Results of experiments, in the form of result files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scenario::{Published, Words};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The whole workload was transferred.
    Finished,
    /// The virtual time limit came first: times are lower bounds.
    Unfinished,
    /// The connection failed, for this reason.
    Failed(String),
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Index into [`ScenarioResults::contenders`].
    pub contender: usize,
    /// Index into [`ScenarioResults::sweeps`].
    pub sweep: usize,
    /// Index of the space-filling point.
    pub point: usize,
    /// Index of the repetition.
    pub run: usize,
    /// How the run ended.
    pub state: State,
    /// The values of the parameters, in the order of [`ScenarioResults::parameters`].
    pub values: Vec<f64>,
    /// The measured values by metric; the end of a metric's name is its unit.
    pub metrics: BTreeMap<String, f64>,
    /// Measurements of each path that the contender used.
    pub paths: Vec<PathResult>,
    /// Throughput of each connection from the warm-up on, Mbit/s: first the measured connection,
    /// then the competitors.
    pub flows: Vec<f64>,
}

/// Measurements of one path in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// Index into [`ScenarioResults::paths`].
    pub path: usize,
    /// Bytes of datagrams sent on the path.
    pub bytes: u64,
    /// Packets that the sender declared lost.
    pub lost: u64,
    /// Packets that the link dropped because of its queue, including packets of other connections.
    pub dropped_queue: u64,
    /// Packets that the link lost at random, including packets of other connections.
    pub dropped_loss: u64,
    /// Mean time that packets waited in the queue, ms.
    pub queue_ms: f64,
    /// Smoothed RTT at the end, ms.
    pub rtt_ms: f64,
}

/// A run over time: samples at equal intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Index into [`ScenarioResults::contenders`].
    pub contender: usize,
    /// Index into [`ScenarioResults::sweeps`].
    pub sweep: usize,
    /// The space-filling point.
    pub point: usize,
    /// The repetition.
    pub run: usize,
    /// Time between samples, seconds. The first sample is at the start.
    pub interval_s: f64,
    /// Stream bytes received up to each sample, per connection.
    pub received: Vec<Vec<u64>>,
    /// Datagram bytes received up to each sample, per path.
    pub path_bytes: Vec<Vec<u64>>,
    /// Congestion window in bytes, per path.
    pub window: Vec<Vec<u64>>,
    /// Smoothed RTT in ms, per path.
    pub rtt_ms: Vec<Vec<f64>>,
    /// Packets that the sender had declared lost up to each sample, per path.
    pub lost: Vec<Vec<u64>>,
    /// Whether the sender suspected the path for its silence, per path.
    pub silent: Vec<Vec<bool>>,
    /// Bytes in the queues of the links of each path, including shared links and packets of other
    /// connections. Empty in results of versions without a record of queues.
    #[serde(default)]
    pub queue: Vec<Vec<u64>>,
}

/// All runs of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResults {
    /// The name of the scenario.
    pub id: String,
    /// The title of the scenario.
    pub title: String,
    /// The paper that published the experiment.
    pub paper: String,
    /// The figure or table of the paper that the scenario repeats.
    pub figure: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// A description of the scenario in words.
    pub words: Words,
    /// The command that repeats the experiment; empty for an experiment without a command.
    pub command: String,
    /// The version of mpquic that ran the experiment.
    pub version: String,
    /// Virtual time after which a run counted as unfinished, seconds.
    pub limit_s: f64,
    /// The metric by which contenders are compared.
    pub metric: String,
    /// The contender that the others are compared with.
    pub baseline: String,
    /// Names of the compared contenders.
    pub contenders: Vec<String>,
    /// Names of the paths.
    pub paths: Vec<String>,
    /// Names of the competitors.
    pub competitors: Vec<String>,
    /// Names of the parameters: numbers that differ between runs.
    pub parameters: Vec<String>,
    /// The combinations of swept values, each a list of name and label.
    pub sweeps: Vec<Vec<(String, String)>>,
    /// The published claims about the experiment.
    pub published: Vec<Published>,
    /// Pairs of contenders: a contender, and its form that follows the code of the publication's
    /// measurements.
    pub as_published: Vec<(String, String)>,
    /// Another scenario with the same claims, if this scenario is a different reading of the same
    /// publication; otherwise empty.
    pub variant_of: String,
    /// The runs, by sweep, point, repetition, contender.
    pub runs: Vec<Run>,
    /// Traces, in the order of runs. By default, only the first run of each contender and sweep has
    /// a trace.
    pub traces: Vec<Trace>,
}

/// The results of several scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Results {
    /// One entry per scenario.
    pub scenarios: Vec<ScenarioResults>,
}
