//! One path at a time.

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, PathView, Scheduler, Sendable, View};

use crate::batch_bytes;

/// Keeps all data on one path, the usable one with the lowest smoothed RTT when it was chosen, and
/// moves on only when that path stops being usable: it is suspect, was abandoned, or became a
/// backup while another path is available. The other paths stay open and idle.
///
/// It does not move back by itself when the first path recovers: a change of path starts from a
/// small window again.
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

/// True if the path can send, or some event on it is certain to let it send.
fn can_carry(path: &PathView) -> bool {
    path.usable
        && match path.sendable {
            Sendable::Now | Sendable::At(_) => true,
            Sendable::WindowFull => path.in_flight > 0,
            Sendable::Unusable => false,
        }
}

impl Scheduler for BackupOnly {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let Some(path) = self.choose(view) else {
            return Decision::Blocked;
        };
        if path.can_send() {
            return Decision::send_up_to(path.id, batch_bytes(path));
        }
        if view.sendable().next().is_none() {
            return Decision::Blocked;
        }
        let until = match path.sendable {
            Sendable::At(time) => Some(time),
            Sendable::Now | Sendable::WindowFull | Sendable::Unusable => None,
        };
        Decision::Wait { on: path.id, until }
    }

    fn name(&self) -> &'static str {
        "backup"
    }
}
