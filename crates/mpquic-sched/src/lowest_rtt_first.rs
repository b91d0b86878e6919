//! Lowest RTT first.

use mpquic_core::PathId;
use mpquic_core::sched::{
    DataSelection, Decision, PathSet, PathView, Scheduler, SchedulerEvent, View,
};

use crate::batch_bytes;

/// Copies sent on a path whose RTT is unknown end after this many datagrams, an initial window.
const MAX_COPIES: u64 = 10;

/// Sends on the path with the lowest smoothed RTT that has room, and on the next one when that is
/// full. It never declines to send (it is work-conserving).
///
/// A path without an RTT sample is used only when no measured path can send. What it carries then
/// is duplicated on the least used other path that can send, for at most an initial window per
/// path, so that data does not depend on a path nobody has measured.
#[derive(Debug, Default)]
pub struct LowestRttFirst {
    /// Datagrams copied onto each path.
    copies: Vec<(PathId, u64)>,
}

impl LowestRttFirst {
    /// Where a copy of what `original` carries should go, if anywhere.
    fn copy_path(&mut self, view: &View<'_>, original: &PathView) -> Option<PathId> {
        let path = view
            .sendable()
            .filter(|path| path.id != original.id && path.packets_sent <= original.packets_sent)
            .min_by_key(|path| (path.packets_sent, path.id))?
            .id;
        let index = match self.copies.binary_search_by_key(&path, |(id, _)| *id) {
            Ok(index) => index,
            Err(index) => {
                self.copies.insert(index, (path, 0));
                index
            }
        };
        let (_, count) = &mut self.copies[index];
        if *count >= MAX_COPIES {
            return None;
        }
        *count += 1;
        Some(path)
    }
}

/// The sendable path with the lowest smoothed RTT among those measured.
pub(crate) fn fastest<'a>(view: &View<'a>) -> Option<&'a PathView> {
    view.sendable()
        .filter(|path| path.rtt.samples > 0)
        .min_by_key(|path| (path.rtt.smoothed, path.id))
}

impl Scheduler for LowestRttFirst {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(path) = fastest(view) {
            return Decision::send_up_to(path.id, batch_bytes(path));
        }
        let unmeasured = view
            .sendable()
            .min_by_key(|path| (path.packets_sent, path.id));
        let Some(path) = unmeasured else {
            return Decision::Blocked;
        };
        match self.copy_path(view, path) {
            None => Decision::send_up_to(path.id, batch_bytes(path)),
            Some(copy) => Decision::Duplicate {
                path: path.id,
                copies: PathSet::from_slice(&[copy]),
                data: DataSelection::Next,
                tag: 0,
            },
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        if let SchedulerEvent::PathRemoved(path) = event {
            self.copies.retain(|(id, _)| id != path);
        }
    }

    fn name(&self) -> &'static str {
        "lrf"
    }
}
