//! All schedulers by name.

use std::sync::{Arc, LazyLock};

use mpquic_core::sched::{SchedulerFactory, factory};
use thiserror::Error;

use crate::auto::Auto;
use crate::backup_only::BackupOnly;
use crate::info::{SchedulerInfo, schedulers};
use crate::lowest_rtt_first::{LowestRttFirst, Unmeasured};
#[cfg(feature = "papers")]
use crate::papers::catalog::{PUBLISHED, SCHEDULERS as PAPERS, configured};
use crate::redundant::Redundant;
use crate::reinjection::{reinjections, with_reinjections};
use crate::round_robin::RoundRobin;
use crate::split_ratio::SplitRatio;
use crate::weighted_round_robin::WeightedRoundRobin;

const LRF: &str =
    "De Coninck and Bonaventure, \"Multipath QUIC: Design and Evaluation\", CoNEXT 2017";
const ROUND_ROBIN: &str =
    "Paasch et al., \"Experimental Evaluation of Multipath TCP Schedulers\", CSWS 2014";

/// The schedulers to choose from, the default first.
static GENERAL: &[SchedulerInfo] = schedulers! {
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
};

static BY_WEIGHTS: &[SchedulerInfo] = schedulers! {
    "split-ratio" => SplitRatio::default(),
        "Zhang et al., \"ReLeS: A Neural Adaptive Multipath Scheduler\", INFOCOM 2019",
        "divides the bytes by weights set from outside (equally by default)";
};

#[cfg(not(feature = "papers"))]
static PAPERS: &[SchedulerInfo] = &[];
#[cfg(not(feature = "papers"))]
static PUBLISHED: &[SchedulerInfo] = &[];
/// The scheduler with the parameters after the colons of its name.
#[cfg(not(feature = "papers"))]
fn configured<'a>(
    _: &'static str,
    _: impl Iterator<Item = &'a str>,
) -> Option<Arc<dyn SchedulerFactory>> {
    None
}

/// Names of schedulers that the feature `papers` adds.
const NAMES_OF_PAPERS: &[&str] = &[
    "etc",
    "etc-greedy",
    "jdl",
    "blest",
    "blest-paper",
    "ecf",
    "ecf-kernel",
    "qaware",
    "qaware-paper",
    "sa-ecf",
    "pstream",
    "pstream-windowed",
    "fstream",
    "priority-bucket",
    "daps",
    "otias",
    "sttf",
    "dems",
    "stms",
    "msab",
    "msab-split",
    "peekaboo",
    "nine-tails",
    "round-robin-packet",
    "lrf-ns3",
    "round-robin-ns3",
    "blest-ns3",
    "ecf-ns3",
    "peekaboo-ns3",
    "msab-ns3",
    "etc-weighted",
    "lrf-sockets",
    "ecf-sockets",
    "qaware-sockets",
];

/// Recorded runs of the core draw schedulers by their places here.
static ALL: LazyLock<Vec<SchedulerInfo>> = LazyLock::new(|| [GENERAL, PAPERS, BY_WEIGHTS].concat());

/// The schedulers of this crate for general use, the default first; with the feature `papers`, also
/// the schedulers of publications.
pub fn list() -> &'static [SchedulerInfo] {
    &ALL
}

/// Schedulers exactly as publications ran them, as baselines for published gains; none without the
/// feature `papers`. [`by_name`] finds them, too. They are deliberately slower than the schedulers
/// of [`list`].
pub fn published() -> &'static [SchedulerInfo] {
    PUBLISHED
}

/// The parameters that names of schedulers may have.
const PARAMETERS: &str = "paths, rate_mbit, delay_ms or loss_pct";

/// No scheduler has the requested name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", reason(.name, cfg!(feature = "papers")))]
pub struct UnknownScheduler {
    /// The requested name.
    pub name: String,
}

/// Why there is no scheduler with this name, with or without the schedulers of papers.
fn reason(name: &str, has_papers: bool) -> String {
    let with_parameters = name.split('+').next().unwrap_or_default();
    let (scheduler, parameters) = split(with_parameters);
    let mut of_papers = NAMES_OF_PAPERS.iter();
    if !has_papers && of_papers.any(|paper| *paper == scheduler) {
        return format!("the scheduler `{name}` needs the feature `papers` of mpquic-sched");
    }
    if parameters.is_some() && list().iter().any(|info| info.name == scheduler) {
        return format!(
            "`{name}` has a wrong parameter; expected {PARAMETERS}, as in \
             jdl:delay_ms=50:loss_pct=1, and only after jdl"
        );
    }
    let (all, policies) = (names(list()), policies());
    let mut text =
        format!("no scheduler is called `{name}`; there are: {all}; after a +: {policies}");
    if !published().is_empty() {
        text.push_str("; published baselines: ");
        text.push_str(&names(published()));
    }
    text
}

/// The name of a scheduler, and the parameters after the name and a colon.
fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once(':') {
        Some((name, parameters)) => (name, Some(parameters)),
        None => (name, None),
    }
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
/// The name `jdl` takes parameters, each after a colon, as in `jdl:paths=2:delay_ms=50`:
///
/// | parameter | meaning |
/// |---|---|
/// | `paths` | largest number of paths in the set (3) |
/// | `rate_mbit` | rate that the set should deliver, Mbit/s |
/// | `delay_ms` | longest one-way delay of a path in the set, milliseconds |
/// | `loss_pct` | largest mean loss rate of the set, per cent |
///
/// ```
/// let factory = mpquic_sched::by_name("lrf+deadline")?;
/// # assert_eq!(factory.build().name(), "lrf");
/// # Ok::<(), mpquic_sched::UnknownScheduler>(())
/// ```
///
/// # Errors
///
/// [`UnknownScheduler`] if no scheduler or policy has this name, or if a parameter is wrong. The
/// message lists all names or parameters, or names the feature that the scheduler needs.
pub fn by_name(name: &str) -> Result<Arc<dyn SchedulerFactory>, UnknownScheduler> {
    let unknown = || UnknownScheduler { name: name.into() };
    let mut parts = name.split('+');
    let (first, parameters) = split(parts.next().unwrap_or_default());
    let mut all = list().iter().chain(published());
    let info = all.find(|info| info.name == first).ok_or_else(unknown)?;
    let scheduler = match parameters {
        None => factory(info.name, info.make),
        Some(parameters) => configured(info.name, parameters.split(':')).ok_or_else(unknown)?,
    };
    with_reinjections(scheduler, parts).ok_or_else(unknown)
}

/// The default scheduler, `auto`.
pub fn default() -> Arc<dyn SchedulerFactory> {
    let info = &GENERAL[0];
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

    /// Without the feature, the names of its schedulers are known, and the error says how to get
    /// them.
    #[test]
    fn schedulers_of_papers_need_their_feature() {
        let names = PAPERS.iter().chain(PUBLISHED).map(|info| info.name);
        assert_eq!(names.collect::<Vec<_>>(), NAMES_OF_PAPERS);
        for name in ["ecf", "lrf-ns3", "blest+deadline"] {
            let expected =
                format!("the scheduler `{name}` needs the feature `papers` of mpquic-sched");
            assert_eq!(reason(name, false), expected);
            assert!(by_name(name).is_ok());
        }
        for (name, has_papers) in [("fastest", false), ("lrf+ecf", false), ("ecf+lrf", true)] {
            assert!(!reason(name, has_papers).contains("feature"), "{name}");
        }
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
        let events = "blest-ns3 ecf-ns3 etc etc-greedy etc-weighted lrf-ns3 msab msab-ns3 msab-split peekaboo \
            peekaboo-ns3 round-robin-ns3 stms";
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
    fn parameters_follow_a_colon() {
        let name = "jdl:paths=2:delay_ms=50:loss_pct=1+deadline";
        let factory = by_name(name).unwrap();
        assert_eq!(factory.build().name(), "jdl");
        let built = format!("{:?}", factory.build());
        let demand = "demand: Demand { bandwidth: None, delay: Some(50ms), loss: Some(0.01) }";
        assert!(
            built.contains(demand) && built.contains("paths: 2"),
            "{built}"
        );
        for name in ["jdl:", "jdl:delay=50", "jdl:delay_ms=x", "lrf:paths=2"] {
            let error = by_name(name).unwrap_err().to_string();
            assert!(
                error.contains("loss_pct") && error.contains(name),
                "{error}"
            );
        }
        assert!(reason("jdl:paths=2", false).contains("needs the feature `papers`"));
        assert!(reason("fast:paths=2", true).contains("no scheduler is called"));
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
