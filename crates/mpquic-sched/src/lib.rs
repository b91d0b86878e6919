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
//! | `round-robin` | [`RoundRobin`] | every path in turn |
//! | `backup` | [`BackupOnly`] | one path; the others only when it fails |
//!
//! ```
//! let factory = mpquic_sched::by_name("lrf")?;
//! assert_eq!(factory.build().name(), "lrf");
//! # Ok::<(), mpquic_sched::UnknownScheduler>(())
//! ```

use std::sync::Arc;

use mpquic_core::sched::{PathView, Scheduler, SchedulerFactory, factory};
use thiserror::Error;

mod backup_only;
mod lowest_rtt_first;
mod round_robin;

pub use backup_only::BackupOnly;
pub use lowest_rtt_first::LowestRttFirst;
pub use round_robin::RoundRobin;

/// Most datagrams one decision asks for: as many as one batched send call takes.
const BATCH_DATAGRAMS: u64 = 64;

/// Bytes to ask for on a path so that one decision fills a batch but never more than the window.
fn batch_bytes(path: &PathView) -> u64 {
    let mtu = u64::from(path.mtu);
    path.available_window().min(BATCH_DATAGRAMS * mtu).max(mtu)
}

/// A built-in scheduler, as listed for people.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerInfo {
    /// What [`by_name`] takes.
    pub name: &'static str,
    /// What it does, in one line.
    pub description: &'static str,
    /// The publication or system it comes from.
    pub source: &'static str,
    make: fn() -> Box<dyn Scheduler>,
}

static SCHEDULERS: [SchedulerInfo; 3] = [
    SchedulerInfo {
        name: "lrf",
        description: "lowest RTT first: the fastest path with room in its window (the default)",
        source: "De Coninck and Bonaventure, \"Multipath QUIC: Design and Evaluation\", CoNEXT 2017",
        make: || Box::new(LowestRttFirst::default()),
    },
    SchedulerInfo {
        name: "round-robin",
        description: "every path in turn, a short burst each",
        source: "Paasch et al., \"Experimental Evaluation of Multipath TCP Schedulers\", CSWS 2014",
        make: || Box::new(RoundRobin::default()),
    },
    SchedulerInfo {
        name: "backup",
        description: "one path at a time, the one with the lowest RTT; others only when it fails",
        source: "RFC 8684 section 3.3.8 (backup subflows of Multipath TCP)",
        make: || Box::new(BackupOnly::default()),
    },
];

/// All schedulers of this crate, the default first.
pub fn list() -> &'static [SchedulerInfo] {
    &SCHEDULERS
}

/// No scheduler has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no scheduler is called `{name}`; there are: {}", names())]
pub struct UnknownScheduler {
    /// The name that was asked for.
    pub name: String,
}

fn names() -> String {
    let names: Vec<_> = SCHEDULERS.iter().map(|info| info.name).collect();
    names.join(", ")
}

/// The scheduler with this name (see [`list`]).
///
/// # Errors
///
/// [`UnknownScheduler`], whose message lists the names there are.
pub fn by_name(name: &str) -> Result<Arc<dyn SchedulerFactory>, UnknownScheduler> {
    SCHEDULERS
        .iter()
        .find(|info| info.name == name)
        .map(|info| factory(info.name, info.make))
        .ok_or_else(|| UnknownScheduler { name: name.into() })
}

/// The scheduler to use when there is no reason for another: `lrf`.
pub fn default() -> Arc<dyn SchedulerFactory> {
    let info = &SCHEDULERS[0];
    factory(info.name, info.make)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_builds_a_scheduler_of_that_name() {
        for info in list() {
            assert_eq!(by_name(info.name).unwrap().build().name(), info.name);
        }
        assert_eq!(default().build().name(), "lrf");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_names_there_are() {
        let error = by_name("fastest").unwrap_err().to_string();
        assert!(error.contains("`fastest`"), "{error}");
        for info in list() {
            assert!(error.contains(info.name), "{error}");
        }
    }
}
