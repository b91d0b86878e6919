//! Packet schedulers for mpquic: they decide which path carries the next bytes.
//!
//! A scheduler implements [`mpquic_core::sched::Scheduler`]. It gets an immutable
//! [`View`](mpquic_core::sched::View) of the paths and the send queue, and returns a
//! [`Decision`](mpquic_core::sched::Decision). The core enforces windows, pacing and validation, so
//! a scheduler decides only what is *best*.
//!
//! | name | type | rule |
//! |---|---|---|
//! | `auto` (default) | [`Auto`] | every path carries the bytes that it delivers in time for their turn |
//! | `lrf` | [`LowestRttFirst`] | the path with the lowest smoothed RTT that has room |
//! | `lrf-assume`, `lrf-probe` | [`LowestRttFirst`] | like `lrf`, with other rules for unmeasured paths |
//! | `round-robin` | [`RoundRobin`] | every path in turn |
//! | `weighted-round-robin` | [`WeightedRoundRobin`] | paths in proportion to their rates |
//! | `backup` | [`BackupOnly`] | one path; the others only when it fails |
//! | `redundant` | [`Redundant`] | all paths, the same data |
//! | `etc`, `etc-greedy` | [`Etc`] | shares of a block that finish together, by simulated windows |
//! | `jdl` | [`Jdl`] | a set of paths with low delay and loss |
//! | `blest`, `blest-paper` | [`Blest`] | no slow path that could block the fast one |
//! | `ecf`, `ecf-kernel` | [`Ecf`] | waits for the fast path if it delivers the backlog earlier |
//! | `qaware`, `qaware-paper` | [`QAware`] | the shortest time through local queue and network |
//! | `sa-ecf` | [`SaEcf`] | earliest completion per stream, streams by weight |
//! | `pstream`, `pstream-windowed` | [`PStream`] | parts of every stream that finish together |
//! | `fstream` | [`FStream`] | a path for every whole stream |
//! | `priority-bucket` | [`PriorityBucket`] | streams by class, on the fastest path with room |
//! | `daps` | [`Daps`] | paths by a schedule of their delays |
//! | `otias` | [`Otias`] | the path of earliest arrival, even if it is full now |
//! | `sttf` | [`Sttf`] | like `otias`, with growing windows |
//! | `dems` | [`Dems`] | both ends of a chunk on different paths |
//! | `stms` | [`Stms`] | data further ahead on slower paths |
//! | `msab`, `msab-split` | [`Msab`] | paths that an adversarial bandit learned from RTT and loss |
//! | `peekaboo` | [`Peekaboo`] | the fast path or a slow one; learns when to wait |
//! | `nine-tails` | [`NineTails`] | lowest RTT first, and the end of a transfer on all paths |
//! | `split-ratio` | [`SplitRatio`] | weights set from outside |
//!
//! Baselines exactly as publications ran them. They serve to check published gains, not for use
//! ([`published`]):
//!
//! | name | type | follows |
//! |---|---|---|
//! | `round-robin-packet` | [`RoundRobin`] | PQUIC: one datagram per turn |
//! | `lrf-ns3`, `round-robin-ns3`, `blest-ns3`, `ecf-ns3` | [`Ns3`] | the ns-3 module: one path per acknowledgement |
//! | `lrf-sockets`, `ecf-sockets`, `qaware-sockets` | [`Sockets`] | QAware's simulation: independent TCP connections |
//!
//! Each scheduler can be wrapped in [`Reinjecting`], which sends bytes again on a better path
//! before they are lost. Names of re-injection policies follow the name of the scheduler, as in
//! `blest+deadline` or `lrf+opportunistic+after-schedule` (see [`reinjections`]).
//!
//! ```
//! let factory = mpquic_sched::by_name("lrf")?;
//! assert_eq!(factory.build().name(), "lrf");
//! # Ok::<(), mpquic_sched::UnknownScheduler>(())
//! ```

mod auto;
mod backup_only;
mod baselines;
mod blest;
mod catalog;
mod choice;
mod daps;
mod dems;
mod ecf;
mod etc;
mod fair_share;
mod fstream;
mod jdl;
mod lowest_rtt_first;
mod msab;
mod nine_tails;
mod otias;
mod peekaboo;
mod plain_cases;
mod priority_bucket;
mod pstream;
mod qaware;
mod redundant;
mod reinjection;
mod repeats;
mod reservations;
mod round_robin;
mod sa_ecf;
mod split_ratio;
mod stms;
mod sttf;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod weighted_round_robin;

pub use auto::{Auto, AutoConfig};
pub use backup_only::BackupOnly;
pub use baselines::{Ns3, Ns3Rule, SocketRule, Sockets};
pub use blest::{Blest, BlestForm};
pub use catalog::{SchedulerInfo, UnknownScheduler, by_name, default, list, published};
pub use daps::Daps;
pub use dems::Dems;
pub use ecf::{Ecf, EcfForm};
pub use etc::{Etc, EtcConfig};
pub use fstream::FStream;
pub use jdl::{Demand, Jdl, JdlConfig};
pub use lowest_rtt_first::{LowestRttFirst, Unmeasured};
pub use msab::{Msab, MsabMode};
pub use nine_tails::NineTails;
pub use otias::Otias;
pub use peekaboo::Peekaboo;
pub use priority_bucket::PriorityBucket;
pub use pstream::PStream;
pub use qaware::{QAware, QAwareForm};
pub use redundant::Redundant;
pub use reinjection::{
    Reinjecting, ReinjectionInfo, ReinjectionPolicies, reinjecting, reinjections, with_reinjections,
};
pub use round_robin::RoundRobin;
pub use sa_ecf::SaEcf;
pub use split_ratio::{SplitRatio, SplitWeights};
pub use stms::Stms;
pub use sttf::Sttf;
pub use weighted_round_robin::WeightedRoundRobin;
