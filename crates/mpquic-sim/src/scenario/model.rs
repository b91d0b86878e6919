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
    /// Its name, which is that of its file.
    pub id: String,
    /// What it is about, in a few words.
    pub title: String,
    /// The paper that published the experiment.
    pub paper: String,
    /// The figure or table of the paper that it repeats.
    pub figure: String,
    /// The seed from which everything random is derived.
    pub seed: u64,
    /// Repetitions of each point.
    pub runs: usize,
    /// How drawn parameters get their values.
    pub draw: Draw,
    /// True if swept parameters take their n-th values together, false for all combinations.
    pub zip_sweeps: bool,
    /// Virtual time after which a run counts as unfinished.
    pub limit: Duration,
    /// Virtual time at the start that does not count for throughputs.
    pub warm_up: Duration,
    /// The metric by which contenders are compared; empty for the workload's own.
    pub metric: String,
    /// The contenders: what is compared.
    pub contenders: Vec<Contender>,
    /// The contender that the others are compared with.
    pub baseline: String,
    /// Links that several paths share.
    pub links: Vec<SharedLink>,
    /// The paths.
    pub paths: Vec<PathSpec>,
    /// Paths that swap their links during a run.
    pub swaps: Vec<Swap>,
    /// What is transferred.
    pub workload: Workload,
    /// Competitors: other connections.
    pub competitors: Vec<Competitor>,
    /// Cross traffic.
    pub cross_traffic: Vec<CrossTraffic>,
    /// How the connections behave.
    pub transport: Transport,
    /// The published claims about the experiment.
    pub published: Vec<Published>,
    /// Contenders and those that follow the code which the publication measured in their place.
    pub as_published: Vec<(String, String)>,
    /// The scenario with the same claims of which this is another reading; empty if there is none.
    pub variant_of: String,
    /// Numbers that differ between runs.
    pub parameters: Vec<Parameter>,
    /// The schedulers and controllers that the scenario may name.
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
    /// True if it is a backup, used only while no other path works.
    pub backup: bool,
}

/// Two paths swap their links.
#[derive(Debug, Clone, PartialEq)]
pub struct Swap {
    /// When they do.
    pub time: Duration,
    /// The indices of the two paths.
    pub paths: [usize; 2],
}

/// How connections behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transport {
    /// UDP payload of a full datagram at the start, bytes.
    pub mtu: u16,
    /// Larger datagrams are looked for up to this (RFC 8899); as large as `mtu` unless said otherwise.
    pub max_mtu: u16,
    /// Receive window from the start, bytes; `None` lets it grow as needed.
    pub receive_window: Option<u64>,
    /// Send buffer, bytes.
    pub send_buffer: Option<u64>,
    /// Longest delay of acknowledgements.
    pub max_ack_delay: Duration,
    /// Receivers acknowledge every so many packets at once.
    pub ack_every: u64,
    /// A packet counts as lost when one sent so many packets later was acknowledged,
    pub packet_threshold: u64,
    /// and when it is overdue by so many round trips.
    pub time_threshold: f64,
    /// Whether packets are paced.
    pub pacing: bool,
    /// Acknowledgements travel on another path if that is much shorter.
    pub ack_on_fastest_path: bool,
    /// Show senders what waits on the first link of each path, as if it were their own interface.
    pub show_queues: bool,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            mtu: 1200,
            max_mtu: 1200,
            receive_window: None,
            send_buffer: None,
            max_ack_delay: Duration::from_millis(25),
            ack_every: 2,
            packet_threshold: 3,
            time_threshold: 9.0 / 8.0,
            pacing: true,
            ack_on_fastest_path: true,
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
    /// Compares these contenders instead of the scenario's own, and forgets published forms that are not
    /// among them.
    pub fn set_contenders(&mut self, contenders: Vec<Contender>) {
        if !contenders
            .iter()
            .any(|contender| contender.name == self.baseline)
        {
            self.baseline = default_baseline(&contenders);
        }
        let takes_part = |name: &String| contenders.iter().any(|contender| contender.name == *name);
        self.as_published.retain(|(_, form)| takes_part(form));
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
