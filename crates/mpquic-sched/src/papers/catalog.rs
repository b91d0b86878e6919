//! The names of this folder's schedulers.

use std::sync::Arc;

use mpquic_core::sched::{SchedulerFactory, factory};

use crate::info::{SchedulerInfo, schedulers};
use crate::round_robin::RoundRobin;

use super::baselines::{MsabNs3, Ns3, Ns3Rule, SocketRule, Sockets};
use super::blest::{Blest, BlestForm};
use super::daps::Daps;
use super::dems::Dems;
use super::ecf::{Ecf, EcfForm};
use super::etc::{Etc, EtcConfig};
use super::fstream::FStream;
use super::jdl::{Jdl, JdlConfig};
use super::msab::{Msab, MsabMode};
use super::nine_tails::NineTails;
use super::otias::Otias;
use super::peekaboo::Peekaboo;
use super::priority_bucket::PriorityBucket;
use super::pstream::PStream;
use super::qaware::{QAware, QAwareForm};
use super::sa_ecf::SaEcf;
use super::stms::Stms;
use super::sttf::Sttf;

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

/// The scheduler with parameters; `None` if a parameter is wrong or the scheduler has none.
pub(crate) fn configured<'a>(
    name: &'static str,
    parameters: impl Iterator<Item = &'a str>,
) -> Option<Arc<dyn SchedulerFactory>> {
    let config = match name {
        "jdl" => JdlConfig::of_parameters(parameters)?,
        _ => return None,
    };
    Some(factory(name, move || Box::new(Jdl::new(config))))
}

/// Schedulers as publications describe them, in a form for general use.
pub(crate) static SCHEDULERS: &[SchedulerInfo] = schedulers! {
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
};

/// Schedulers exactly as publications ran them.
pub(crate) static PUBLISHED: &[SchedulerInfo] = schedulers! {
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
    "peekaboo-ns3" => Ns3::new(Ns3Rule::Peekaboo), NS3,
        "a published baseline: Peekaboo whose first answer stays, one path per acknowledgement";
    "msab-ns3" => MsabNs3::new(), NS3,
        "as simulated: MSAB that fills all paths per acknowledgement";
    "etc-weighted" => Etc::new(EtcConfig { weighted: true, ..EtcConfig::default() }), ETC,
        "as the paper's section 4 describes: ETC's shares as weights of a round robin";
    "lrf-sockets" => Sockets::new(SocketRule::LowestRtt), QAWARE,
        "a published baseline: lowest RTT, packets handed to independent TCP sockets";
    "ecf-sockets" => Sockets::new(SocketRule::Ecf), QAWARE,
        "a published baseline: ECF, packets handed to independent TCP sockets";
    "qaware-sockets" => Sockets::new(SocketRule::QAware), QAWARE,
        "as simulated: QAware, packets handed to independent TCP sockets";
};
