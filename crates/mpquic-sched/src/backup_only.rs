//! One path at a time.

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, PathView, Scheduler, View};

use crate::choice::{can_carry, send_batch, wait_for};

/// Sends all data on one path, and keeps the other paths open and idle. The scheduler chooses the
/// usable path with the lowest smoothed RTT. The next choice comes only when the chosen path stops
/// being usable: when the path is suspect, was abandoned, or became a backup while another path is
/// available.
///
/// The scheduler does not move back when the first path recovers, because after every change of
/// path sending starts from a small window.
///
/// Source: backup subflows of RFC 8684 section 3.3.8, for all paths but one. Inputs: smoothed RTT,
/// status. Constants: none.
#[derive(Debug, Default)]
pub struct BackupOnly {
    current: Option<PathId>,
}

impl BackupOnly {
    fn choose<'a>(&mut self, view: &View<'a>) -> Option<&'a PathView> {
        let kept = self.current.and_then(|id| view.path(id));
        let chosen = kept.filter(|path| can_carry(path)).or_else(|| {
            view.paths
                .iter()
                .filter(|path| can_carry(path))
                .min_by_key(|path| (path.rtt.samples == 0, path.rtt.smoothed, path.id))
        });
        self.current = chosen.map(|path| path.id);
        chosen
    }
}

impl Scheduler for BackupOnly {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let Some(path) = self.choose(view) else {
            return Decision::Blocked;
        };
        if path.can_send() {
            return send_batch(path);
        }
        if view.sendable().next().is_none() {
            return Decision::Blocked;
        }
        wait_for(path).unwrap_or(Decision::Blocked)
    }

    fn name(&self) -> &'static str {
        "backup"
    }
}
