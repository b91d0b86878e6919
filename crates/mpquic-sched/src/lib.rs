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
//! | `split-ratio` | [`SplitRatio`] | weights set from outside |
//!
//! The feature `papers` adds the module `papers`: schedulers of publications, to compare others
//! with them. Without the feature, [`by_name`] knows their names, such as `ecf`, and its error
//! names the feature.
//!
//! Each scheduler can be wrapped in [`Reinjecting`], which sends bytes again on a better path
//! before they are lost. Names of re-injection policies follow the name of the scheduler, as in
//! `auto+deadline` or `lrf+opportunistic+after-schedule` (see [`reinjections`]).
//!
//! ```
//! let factory = mpquic_sched::by_name("lrf")?;
//! assert_eq!(factory.build().name(), "lrf");
//! # Ok::<(), mpquic_sched::UnknownScheduler>(())
//! ```

mod auto;
mod backup_only;
mod catalog;
mod choice;
mod fair_share;
mod info;
mod lowest_rtt_first;
#[cfg(feature = "papers")]
pub mod papers;
mod plain_cases;
mod redundant;
mod reinjection;
mod repeats;
mod round_robin;
mod split_ratio;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod weighted_round_robin;

pub use auto::{Auto, AutoConfig};
pub use backup_only::BackupOnly;
pub use catalog::{UnknownScheduler, by_name, default, list, published};
pub use info::SchedulerInfo;
pub use lowest_rtt_first::{LowestRttFirst, Unmeasured};
pub use redundant::Redundant;
pub use reinjection::{
    Reinjecting, ReinjectionInfo, ReinjectionPolicies, reinjecting, reinjections, with_reinjections,
};
pub use round_robin::RoundRobin;
pub use split_ratio::{SplitRatio, SplitWeights};
pub use weighted_round_robin::WeightedRoundRobin;
