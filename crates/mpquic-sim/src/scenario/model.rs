//! [`Scenario`]: what a scenario file says.

use std::time::Duration;

use super::contender::{Competitor, Contender, CrossTraffic};
use super::links::LinkPair;
use super::number::Parameter;
use super::published::Published;
use super::workload::Workload;
use crate::policies::Policies;

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is called: the name of its file.
    pub id: String,
    /// What it is about, in a few words.
    pub title: String,
    /// The paper it repeats an experiment of.
    pub paper: String,
    /// The figure or table of the paper it answers.
    pub figure: String,
    /// Everything random derives from it.
    pub seed: u64,
    /// Repetitions of each point.
    pub runs: usize,
    /// How drawn parameters get their values.
    pub draw: Draw,
    /// Swept parameters go through their values together instead of in all combinations.
    pub zip_sweeps: bool,
    /// Virtual time after which a run counts as unfinished.
    pub limit: Duration,
    /// Virtual time that throughputs leave out at the start.
    pub warm_up: Duration,
    /// What counts: the name of a metric; empty for the workload's own.
    pub metric: String,
    /// What is compared.
    pub contenders: Vec<Contender>,
    /// Whom the others are compared with.
    pub baseline: String,
    /// Links that several paths share.
    pub links: Vec<SharedLink>,
    /// The paths.
    pub paths: Vec<PathSpec>,
    /// Paths that change places.
    pub swaps: Vec<Swap>,
    /// What is transferred.
    pub workload: Workload,
    /// Other connections.
    pub competitors: Vec<Competitor>,
    /// Other traffic.
    pub cross_traffic: Vec<CrossTraffic>,
    /// How the connections behave.
    pub transport: Transport,
    /// What was published.
    pub published: Vec<Published>,
    /// Numbers that differ between runs.
    pub parameters: Vec<Parameter>,
    /// What the names of schedulers and controllers mean.
    pub policies: Policies,
}

/// A link that several paths go through.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedLink {
    /// Its name.
    pub name: String,
    /// Both directions.
    pub links: LinkPair,
}

/// A path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSpec {
    /// Its name.
    pub name: String,
    /// Its own links.
    pub links: LinkPair,
    /// Shared links behind them, seen from the client.
    pub via: Vec<usize>,
    /// It is only for when the others fail.
    pub backup: bool,
}

/// Two paths change places.
#[derive(Debug, Clone, PartialEq)]
pub struct Swap {
    /// When.
    pub time: Duration,
    /// Which.
    pub paths: [usize; 2],
}

/// How connections behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transport {
    /// UDP payload of a full datagram, bytes.
    pub mtu: u16,
    /// Receive window from the start, bytes; `None` lets it grow as needed.
    pub receive_window: Option<u64>,
    /// Send buffer, bytes.
    pub send_buffer: Option<u64>,
    /// Longest delay of acknowledgements.
    pub max_ack_delay: Duration,
    /// Pace packets.
    pub pacing: bool,
    /// Show senders what waits on the first link of each path, as if it were their own interface.
    pub show_queues: bool,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            mtu: 1200,
            receive_window: None,
            send_buffer: None,
            max_ack_delay: Duration::from_millis(25),
            pacing: true,
            show_queues: false,
        }
    }
}

/// How drawn parameters get their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// Anew in each run.
    Uniform,
    /// From this many points that lie evenly in the space of all possible values; every point
    /// serves all runs.
    SpaceFilling(usize),
}

impl Scenario {
    /// Compares these instead.
    pub fn set_contenders(&mut self, contenders: Vec<Contender>) {
        if !contenders
            .iter()
            .any(|contender| contender.name == self.baseline)
        {
            self.baseline = default_baseline(&contenders);
        }
        self.contenders = contenders;
    }
}

/// Lowest RTT first if it takes part, otherwise the first.
pub(super) fn default_baseline(contenders: &[Contender]) -> String {
    let lrf = contenders.iter().find(|contender| contender.name == "lrf");
    let baseline = lrf.or(contenders.first());
    baseline
        .map(|contender| contender.name.clone())
        .unwrap_or_default()
}
