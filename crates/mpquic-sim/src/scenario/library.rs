//! The scenarios that come with the crate: the experiments of the papers, and what users feel.

/// A scenario that comes with the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name.
    pub id: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! files {
    ($($id:literal)*) => {
        &[$(BuiltIn {
            id: $id,
            text: include_str!(concat!("../../scenarios/", $id, ".toml")),
        }),*]
    };
}

static FILES: &[BuiltIn] = files! {
    "etc-l-hhlh"
    "etc-l-hlhh"
    "etc-l-hhll"
    "etc-l-hllh"
    "etc-l-lhll"
    "etc-l-hlll"
    "etc-l-hhlh-1mb"
    "etc-l-hlhh-1mb"
    "etc-l-hhll-1mb"
    "etc-l-hllh-1mb"
    "etc-l-lhll-1mb"
    "etc-l-hlll-1mb"
    "etc-s-hhlh"
    "etc-s-hlhh"
    "etc-s-hhll"
    "etc-s-hllh"
    "etc-s-lhll"
    "etc-s-hlll"
    "etc-n-2"
    "etc-n-3"
    "etc-n-4"
    "etc-n-5"
    "jdl-100"
    "jdl-200"
    "jdl-400"
    "jdl-100-uniform"
    "jdl-x1"
    "ps-bw"
    "ps-rtt"
    "ps-mix"
    "ps-dom"
    "ps-page-low"
    "ps-page-lowlossy"
    "ps-page-high"
    "ps-page-highlossy"
    "ns3-scale-1"
    "ns3-scale-2"
    "ns3-scale-4"
    "ns3-cc"
    "ns3-dom"
    "ns3-flip"
    "ns3-comp"
    "msab-dom-l"
    "msab-cmp-l"
    "msab-dom-m"
    "msab-cmp-m"
    "msab-dom-h"
    "msab-cmp-h"
    "msab-4p"
    "ns3-scale-1-script"
    "ns3-scale-2-script"
    "ns3-scale-4-script"
    "ns3-cc-script"
    "ns3-dom-script"
    "ns3-flip-script"
    "ns3-comp-script"
    "msab-dom-l-script"
    "msab-cmp-l-script"
    "msab-dom-m-script"
    "msab-cmp-m-script"
    "msab-dom-h-script"
    "msab-cmp-h-script"
    "msab-4p-script"
    "qa-sim-cbr-66"
    "qa-sim-cbr-126"
    "qa-sim-loss-66"
    "qa-sim-loss-126"
    "qa-sim-file"
    "qa-sim-web-66"
    "qa-sim-web-126"
    "qa-sim-udp"
    "qa-rl-bulk-0"
    "qa-rl-bulk-4080"
    "qa-rl-bulk-40160"
    "qa-rl-vid-2020"
    "qa-rl-vid-2016"
    "qa-rl-vid-2416"
    "qa-rl-web"
    "fair-shared"
    "fair-own"
    "fair-each"
    "fair-disjoint"
    "handover"
    "satellite"
    "five-path"
    "sched-bursts"
    "sched-deep"
    "sched-helper"
    "sched-objects"
    "sched-outage"
    "sched-three-short"
    "sched-three"
    "sched-urgent"
    "sched-video"
    "sched-window"
    "systems-file"
    "systems-page"
    "systems-control"
    "all-two-equal"
    "all-hhhl"
    "all-hhlh"
    "all-hhll"
    "all-hllh"
    "all-hlll"
    "all-lhll"
    "all-handover"
    "all-satellite"
    "all-bad-helper"
    "queue-aqm"
    "trace-drive"
};

/// All scenarios that come with the crate.
pub fn built_in() -> &'static [BuiltIn] {
    FILES
}
