//! All schedulers by name.

use std::sync::Arc;

use mpquic_core::sched::{Scheduler, SchedulerFactory, factory};
use thiserror::Error;

use crate::auto::Auto;
use crate::backup_only::BackupOnly;
use crate::baselines::{Ns3, Ns3Rule, SocketRule, Sockets};
use crate::blest::{Blest, BlestForm};
use crate::daps::Daps;
use crate::dems::Dems;
use crate::ecf::{Ecf, EcfForm};
use crate::etc::{Etc, EtcConfig};
use crate::fstream::FStream;
use crate::jdl::Jdl;
use crate::lowest_rtt_first::{LowestRttFirst, Unmeasured};
use crate::msab::{Msab, MsabMode};
use crate::nine_tails::NineTails;
use crate::otias::Otias;
use crate::peekaboo::Peekaboo;
use crate::priority_bucket::PriorityBucket;
use crate::pstream::PStream;
use crate::qaware::{QAware, QAwareForm};
use crate::redundant::Redundant;
use crate::reinjection::{reinjections, with_reinjections};
use crate::round_robin::RoundRobin;
use crate::sa_ecf::SaEcf;
use crate::split_ratio::SplitRatio;
use crate::stms::Stms;
use crate::sttf::Sttf;
use crate::weighted_round_robin::WeightedRoundRobin;

/// A built-in scheduler, described for lists.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerInfo {
    /// The name to pass to [`by_name`].
    pub name: &'static str,
    /// A description of one line.
    pub description: &'static str,
    /// The publication or system that the scheduler comes from.
    pub source: &'static str,
    make: fn() -> Box<dyn Scheduler>,
}

const LRF: &str =
    "De Coninck and Bonaventure, \"Multipath QUIC: Design and Evaluation\", CoNEXT 2017";
const ROUND_ROBIN: &str =
    "Paasch et al., \"Experimental Evaluation of Multipath TCP Schedulers\", CSWS 2014";
const BLEST: &str = "Ferlin et al., \"BLEST: Blocking Estimation-based MPTCP Scheduler for \
                     Heterogeneous Networks\", IFIP Networking 2016";
const ECF: &str = "Lim et al., \"ECF: An MPTCP Path Scheduler to Manage Heterogeneous Paths\", \
                   CoNEXT 2017";
const QAWARE: &str = "Shreedhar et al., \"QAware: A Cross-Layer Approach to MPTCP Scheduling\", \
                      IFIP Networking 2018";
const ETC: &str = "Zeng et al., \"Optimizing Multipath QUIC Transmission over Heterogeneous \
                   Paths\", 2022";
const MSAB: &str = "Shu, \"Multipath QUIC Implementation and Scheduling with Adversarial \
                    Multi-Armed Bandits\", 2023";

const NS3: &str =
    "mp-quic-scheduler.cc of the ns-3 module by Shu et al., WNS3 2023 (baselines of MSAB)";

/// A list of schedulers: name, constructor, source and description of each.
macro_rules! schedulers {
    ($($name:literal => $make:expr, $source:expr, $description:literal;)*) => {
        &[$(SchedulerInfo {
            name: $name,
            description: $description,
            source: $source,
            make: || Box::new($make),
        }),*]
    };
}

static SCHEDULERS: &[SchedulerInfo] = schedulers! {
    "auto" => Auto::default(),
        "our own, with ideas of OTIAS, STMS, STTF, ECF, BLEST, QAware and Nine Tails",
        "every path carries what it delivers in time for its turn in the queue (the default)";
    "lrf" => LowestRttFirst::default(), LRF,
        "lowest RTT first: the fastest path with room in its window";
    "lrf-assume" => LowestRttFirst::new(Unmeasured::Assume), LRF,
        "lowest RTT first; unmeasured paths count with the initial RTT";
    "lrf-probe" => LowestRttFirst::new(Unmeasured::ProbeOnly), LRF,
        "lowest RTT first; no data on unmeasured paths while a measured one can carry it";
    "round-robin" => RoundRobin::default(), ROUND_ROBIN,
        "every path in turn, a short burst each";
    "weighted-round-robin" => WeightedRoundRobin::by_rate(), ROUND_ROBIN,
        "every path in turn, in proportion to what it delivers";
    "backup" => BackupOnly::default(), "RFC 8684 section 3.3.8 (backup subflows of Multipath TCP)",
        "one path at a time, the one with the lowest RTT; others only when it fails";
    "redundant" => Redundant, "mptcp_redundant.c of Multipath TCP",
        "everything on every path";
    "etc" => Etc::default(), ETC,
        "shares of a block that all paths finish together, by simulating their windows";
    "etc-greedy" => Etc::new(EtcConfig { work_conserving: true, ..EtcConfig::default() }), ETC,
        "ETC that uses another path where the paper's version waits for a planned one";
    "jdl" => Jdl::default(),
        "Hu et al., \"Enhanced Multipath QUIC Protocol with Lower Path Delay and Packet Loss Rate\"",
        "the paths with the best joint score of delay and loss";
    "blest" => Blest::new(BlestForm::Kernel), BLEST,
        "leaves a slow path idle that could block the connection's window, as in Linux";
    "blest-paper" => Blest::new(BlestForm::Paper), BLEST,
        "leaves a slow path idle that could block the connection's window, as published";
    "ecf" => Ecf::new(EcfForm::Paper), ECF,
        "waits for the fastest path if that delivers the backlog earlier";
    "ecf-kernel" => Ecf::new(EcfForm::Kernel), ECF,
        "the same, counting every backlog as at least one window, as in Linux";
    "qaware" => QAware::new(QAwareForm::Additive), QAWARE,
        "the least sum of local queueing and network delay";
    "qaware-paper" => QAware::new(QAwareForm::Paper), QAWARE,
        "the least product of local queue and service time";
    "sa-ecf" => SaEcf::default(),
        "Rabitsch et al., \"A Stream-Aware Multipath QUIC Scheduler for Heterogeneous Paths\", EPIQ 2018",
        "earliest completion of the stream whose turn it is by weight";
    "pstream" => PStream::default(),
        "Shi et al., \"PStream: Priority-Based Stream Scheduling for Heterogeneous Paths\", ICCCN 2020",
        "splits every stream by priority and size so that its parts finish together";
    "pstream-windowed" => PStream::new(true),
        "our own answer to rates that windows do not allow yet",
        "the same, with no path faster than a window per round trip";
    "fstream" => FStream::default(),
        "Shi et al., \"FStream: Flexible Stream Scheduling and Prioritizing\", ICPADS 2019",
        "every stream as a whole on the path that finishes it first";
    "priority-bucket" => PriorityBucket::default(), "Shi et al., \"PriorityBucket\", e-Energy 2020",
        "streams in strict order of priority classes, on the fastest path with room";
    "daps" => Daps::default(),
        "Kuhn et al., \"DAPS: Intelligent Delay-Aware Packet Scheduling\", ICC 2014",
        "paths in turn by a schedule of their delays, so that packets arrive in order";
    "otias" => Otias::default(),
        "Yang et al., \"Out-of-order Transmission for In-order Arrival Scheduling\", WAINA 2014",
        "every packet on the path where it arrives first, even if that is full now";
    "sttf" => Sttf::default(),
        "Hurtig et al., \"Low-Latency Scheduling in MPTCP\", IEEE/ACM ToN 2019",
        "every packet where its transfer ends first, with windows simulated";
    "dems" => Dems::default(),
        "Guo et al., \"Accelerating Multipath Transport Through Balanced Subflow Completion\", MobiCom 2017",
        "sends a chunk of data from its front on the fast path, from its end on the others";
    "stms" => Stms::default(),
        "Shi et al., \"STMS: Improving MPTCP Throughput Under Heterogeneous Networks\", ATC 2018",
        "data further ahead on slower paths, so that everything arrives in order";
    "msab" => Msab::new(MsabMode::Sample), MSAB,
        "an adversarial bandit draws a path for every packet";
    "msab-split" => Msab::new(MsabMode::Split), MSAB,
        "an adversarial bandit splits the packets in proportion";
    "peekaboo" => Peekaboo::default(),
        "Wu et al., \"Peekaboo: Learning-Based Multipath Scheduling\", IEEE JSAC 2020",
        "learns when to wait for the fast path and when to use a slow one";
    "nine-tails" => NineTails::default(),
        "Vu and Walker, \"On the Latency of Multipath-QUIC in Real-time Applications\", WiMob 2020",
        "lowest RTT first; repeats the end of a transfer on other paths";
    "split-ratio" => SplitRatio::default(),
        "Zhang et al., \"ReLeS: A Neural Adaptive Multipath Scheduler\", INFOCOM 2019",
        "divides the bytes by weights set from outside (equally by default)";
};

static PUBLISHED: &[SchedulerInfo] = schedulers! {
    "round-robin-packet" => RoundRobin::new(1),
        "De Coninck et al., \"Pluginizing QUIC\", SIGCOMM 2019 (baseline of JDL)",
        "a published baseline: every path in turn, one datagram each";
    "lrf-ns3" => Ns3::new(Ns3Rule::LowestRtt), NS3,
        "a published baseline: lowest RTT of two paths, one path per acknowledgement";
    "round-robin-ns3" => Ns3::new(Ns3Rule::RoundRobin), NS3,
        "a published baseline: the next path with each acknowledgement";
    "blest-ns3" => Ns3::new(Ns3Rule::Blest), NS3,
        "a published baseline: BLEST of two paths, one path per acknowledgement";
    "ecf-ns3" => Ns3::new(Ns3Rule::Ecf), NS3,
        "a published baseline: ECF of two paths, one path per acknowledgement";
    "lrf-sockets" => Sockets::new(SocketRule::LowestRtt), QAWARE,
        "a published baseline: lowest RTT, packets handed to independent TCP sockets";
    "ecf-sockets" => Sockets::new(SocketRule::Ecf), QAWARE,
        "a published baseline: ECF, packets handed to independent TCP sockets";
    "qaware-sockets" => Sockets::new(SocketRule::QAware), QAWARE,
        "as simulated: QAware, packets handed to independent TCP sockets";
};

/// The schedulers of this crate for general use, the default first.
pub fn list() -> &'static [SchedulerInfo] {
    SCHEDULERS
}

/// Schedulers exactly as publications ran them, as baselines for published gains. [`by_name`] finds
/// them, too. They are deliberately slower than the schedulers of [`list`].
///
/// ```
/// let names: Vec<_> = mpquic_sched::published().iter().map(|info| info.name).collect();
/// assert!(names.contains(&"lrf-ns3"));
/// ```
pub fn published() -> &'static [SchedulerInfo] {
    PUBLISHED
}

/// No scheduler has the requested name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "no scheduler is called `{name}`; there are: {}; after a +: {}; published baselines: {}",
    names(list()),
    policies(),
    names(published())
)]
pub struct UnknownScheduler {
    /// The requested name.
    pub name: String,
}

fn names(infos: &[SchedulerInfo]) -> String {
    let names: Vec<_> = infos.iter().map(|info| info.name).collect();
    names.join(", ")
}

fn policies() -> String {
    let names: Vec<_> = reinjections().iter().map(|info| info.name).collect();
    names.join(", ")
}

/// The scheduler with this name (see [`list`] and [`published`]). Names of re-injection policies
/// may follow, each after a `+` (see [`reinjections`]).
///
/// ```
/// let factory = mpquic_sched::by_name("ecf+deadline")?;
/// # assert_eq!(factory.build().name(), "ecf");
/// # Ok::<(), mpquic_sched::UnknownScheduler>(())
/// ```
///
/// # Errors
///
/// [`UnknownScheduler`] if no scheduler or policy has this name. The message lists all names.
pub fn by_name(name: &str) -> Result<Arc<dyn SchedulerFactory>, UnknownScheduler> {
    let unknown = || UnknownScheduler { name: name.into() };
    let mut parts = name.split('+');
    let first = parts.next();
    let mut all = SCHEDULERS.iter().chain(PUBLISHED);
    let info = all.find(|info| Some(info.name) == first);
    let info = info.ok_or_else(unknown)?;
    with_reinjections(factory(info.name, info.make), parts).ok_or_else(unknown)
}

/// The default scheduler, `auto`.
pub fn default() -> Arc<dyn SchedulerFactory> {
    let info = &SCHEDULERS[0];
    factory(info.name, info.make)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_builds_a_scheduler_of_that_name() {
        for info in list().iter().chain(published()) {
            assert_eq!(by_name(info.name).unwrap().build().name(), info.name);
        }
        assert_eq!(default().build().name(), "auto");
    }

    /// A view that was not asked for costs nothing; a view that is needed but not asked for is
    /// empty.
    #[test]
    fn schedulers_ask_for_the_parts_of_the_view_they_use() {
        let asking = |asks: fn(&mpquic_core::sched::Needs) -> bool| -> Vec<&str> {
            let names = list().iter().chain(published()).map(|info| info.name);
            let needs = |name: &&str| asks(&by_name(name).unwrap().build().needs());
            let mut names: Vec<_> = names.filter(needs).collect();
            names.sort_unstable();
            names
        };
        let queue = asking(|needs| needs.local_queue);
        assert_eq!(queue, ["qaware", "qaware-paper", "qaware-sockets"]);
        let unacked = asking(|needs| needs.unacked);
        assert_eq!(unacked, ["auto", "dems", "nine-tails"]);
        let streams = "auto daps dems ecf-sockets fstream lrf-sockets otias priority-bucket pstream \
            pstream-windowed qaware-sockets sa-ecf stms sttf";
        assert_eq!(asking(|needs| needs.streams).join(" "), streams);
        let events = "blest-ns3 ecf-ns3 etc etc-greedy lrf-ns3 msab msab-split peekaboo round-robin-ns3 stms";
        assert_eq!(asking(|needs| needs.packet_events).join(" "), events);
        assert_eq!(asking(|needs| needs.choices_only), ["auto"]);
    }

    #[test]
    fn error_for_an_unknown_name_lists_all_names() {
        let error = by_name("fastest").unwrap_err().to_string();
        assert!(error.contains("`fastest`"), "{error}");
        for info in list().iter().chain(published()) {
            assert!(error.contains(info.name), "{error}");
        }
        let error = by_name("lrf+sometimes").unwrap_err().to_string();
        assert!(
            error.contains("lrf+sometimes") && error.contains("deadline"),
            "{error}"
        );
    }

    #[test]
    fn policies_are_added_by_name() {
        for policy in reinjections() {
            let scheduler = by_name(&format!("ecf+{}", policy.name)).unwrap().build();
            assert_eq!((scheduler.name(), scheduler.needs().unacked), ("ecf", true));
        }
        assert!(!by_name("ecf").unwrap().build().needs().unacked);
    }
}
