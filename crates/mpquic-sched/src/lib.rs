//! Packet schedulers for mpquic: which path carries the next bytes.
//!
//! A scheduler implements [`mpquic_core::sched::Scheduler`]: it is shown an immutable
//! [`View`](mpquic_core::sched::View) of the paths and the send queue and answers with a
//! [`Decision`](mpquic_core::sched::Decision). The core enforces windows, pacing and validation, so
//! a scheduler decides only what is *best*.
//!
//! | name | type | picks |
//! |---|---|---|
//! | `lrf` (default) | [`LowestRttFirst`] | the path with the lowest smoothed RTT that has room |
//! | `lrf-assume`, `lrf-probe` | [`LowestRttFirst`] | the same, without copies for unmeasured paths |
//! | `round-robin` | [`RoundRobin`] | every path in turn |
//! | `weighted-round-robin` | [`WeightedRoundRobin`] | paths in proportion to their rates |
//! | `backup` | [`BackupOnly`] | one path; the others only when it fails |
//! | `redundant` | [`Redundant`] | all paths, the same data |
//! | `etc` | [`Etc`] | shares of a block that finish together, by simulated windows |
//! | `jdl` | [`Jdl`] | a set of paths with low delay and loss |
//! | `blest`, `blest-paper` | [`Blest`] | no slow path that could block the fast one |
//! | `ecf`, `ecf-kernel` | [`Ecf`] | the fast path, later, if that delivers the backlog earlier |
//! | `qaware`, `qaware-paper` | [`QAware`] | the shortest time through local queue and network |
//! | `sa-ecf` | [`SaEcf`] | earliest completion per stream, streams by weight |
//! | `pstream` | [`PStream`] | parts of every stream that finish together |
//! | `fstream` | [`FStream`] | a path for every whole stream |
//! | `priority-bucket` | [`PriorityBucket`] | streams by class, on the fastest path with room |
//!
//! ```
//! let factory = mpquic_sched::by_name("lrf")?;
//! assert_eq!(factory.build().name(), "lrf");
//! # Ok::<(), mpquic_sched::UnknownScheduler>(())
//! ```

mod backup_only;
mod blest;
mod catalog;
mod choice;
mod ecf;
mod etc;
mod fair_share;
mod fstream;
mod jdl;
mod lowest_rtt_first;
mod path_map;
mod plain_cases;
mod priority_bucket;
mod pstream;
mod qaware;
mod redundant;
mod round_robin;
mod sa_ecf;
#[cfg(test)]
mod testing;
mod weighted_round_robin;

pub use backup_only::BackupOnly;
pub use blest::{Blest, BlestForm};
pub use catalog::{SchedulerInfo, UnknownScheduler, by_name, default, list};
pub use ecf::{Ecf, EcfForm};
pub use etc::{Etc, EtcConfig};
pub use fstream::FStream;
pub use jdl::{Demand, Jdl, JdlConfig};
pub use lowest_rtt_first::{LowestRttFirst, Unmeasured};
pub use priority_bucket::PriorityBucket;
pub use pstream::PStream;
pub use qaware::{QAware, QAwareForm};
pub use redundant::Redundant;
pub use round_robin::RoundRobin;
pub use sa_ecf::SaEcf;
pub use weighted_round_robin::WeightedRoundRobin;
