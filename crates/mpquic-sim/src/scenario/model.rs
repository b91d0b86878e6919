//! [`Scenario`]: the content of a scenario file.

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
    /// The name of the scenario, equal to the name of its file.
    pub id: String,
    /// The subject of the scenario in a few words.
    pub title: String,
    /// The paper that published the experiment.
    pub paper: String,
    /// The figure or table of the paper that the scenario repeats.
    pub figure: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of repetitions of each point.
    pub runs: usize,
    /// How drawn parameters get their values.
    pub draw: Draw,
    /// True if each contender meets losses of its own in a run, false if all contenders meet the
    /// same. All contenders of a run have the same drawn values either way.
    pub independent_losses: bool,
    /// True if swept parameters take their n-th values together, false for all combinations.
    pub zip_sweeps: bool,
    /// Virtual time after which a run counts as unfinished.
    pub limit: Duration,
    /// Virtual time at the start that does not count for throughputs.
    pub warm_up: Duration,
    /// The metric that compares contenders; `None` for the workload's own metric.
    pub metric: Option<String>,
    /// The contenders, which the scenario compares with each other.
    pub contenders: Vec<Contender>,
    /// The contender for comparisons with all other contenders.
    pub baseline: String,
    /// Links that several paths share.
    pub links: Vec<SharedLink>,
    /// The paths.
    pub paths: Vec<PathSpec>,
    /// Swaps of the links of two paths during a run.
    pub swaps: Vec<Swap>,
    /// The workload that is transferred.
    pub workload: Workload,
    /// Competitors: other connections.
    pub competitors: Vec<Competitor>,
    /// Cross traffic.
    pub cross_traffic: Vec<CrossTraffic>,
    /// Transport parameters of the connections.
    pub transport: Transport,
    /// The published claims about the experiment.
    pub published: Vec<Published>,
    /// Pairs of contenders: a contender, and its form that follows the code of the publication's
    /// measurements.
    pub as_published: Vec<(String, String)>,
    /// Another scenario with the same claims; this scenario is a different reading of the same
    /// publication.
    pub variant_of: Option<String>,
    /// Numbers that differ between runs.
    pub parameters: Vec<Parameter>,
    /// The schedulers and controllers that the scenario may name.
    pub policies: Policies,
}

/// A link that several paths share.
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
    /// The path's own links.
    pub links: LinkPair,
    /// Indices of shared links behind the path's own links, seen from the client.
    pub via: Vec<usize>,
    /// True if the path is a backup, used only while no other path works.
    pub backup: bool,
    /// The times, from and to, at which the client has no address on the path, because the
    /// interface is gone.
    pub absent: Vec<(Duration, Option<Duration>)>,
}

/// A swap of the links of two paths.
#[derive(Debug, Clone, PartialEq)]
pub struct Swap {
    /// When the paths swap their links.
    pub time: Duration,
    /// The indices of the two paths.
    pub paths: [usize; 2],
}

/// Transport parameters of connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transport {
    /// UDP payload of a full datagram at the start, bytes.
    pub mtu: u16,
    /// Largest UDP payload that path MTU discovery tries (RFC 8899), bytes; by default `mtu`.
    pub max_mtu: u16,
    /// Receive window from the start, bytes; `None` for a window that grows as needed.
    pub receive_window: Option<u64>,
    /// Send buffer, bytes.
    pub send_buffer: Option<u64>,
    /// Longest delay of acknowledgements.
    pub max_ack_delay: Duration,
    /// Receivers send an acknowledgement at once after this many packets.
    pub ack_every: u64,
    /// A packet is lost after the acknowledgement of a packet with a number higher by this
    /// threshold.
    pub packet_threshold: u64,
    /// A packet is lost this many round trips after its sending, once a later packet is
    /// acknowledged.
    pub time_threshold: f64,
    /// Whether packets are paced.
    pub pacing: bool,
    /// Whether acknowledgements take a much shorter path in place of their own.
    pub ack_on_fastest_path: bool,
    /// Senders see the queue of the first link of each path, in place of the queue of their own
    /// interface.
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
    /// Drawn anew in each run.
    Uniform,
    /// Taken from this many points that fill the space of all possible values evenly; every point
    /// serves all repetitions.
    SpaceFilling(usize),
}

impl Scenario {
    /// Replaces the scenario's contenders. Drops published forms without a place among the new
    /// contenders.
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

/// Lowest RTT first if the scenario has the contender, otherwise the first contender.
pub(super) fn default_baseline(contenders: &[Contender]) -> String {
    let lrf = contenders.iter().find(|contender| contender.name == "lrf");
    let baseline = lrf.or(contenders.first());
    baseline
        .map(|contender| contender.name.clone())
        .unwrap_or_default()
}
