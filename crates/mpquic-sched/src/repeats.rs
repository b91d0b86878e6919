//! Records of unacknowledged bytes that were already sent again.

use std::time::Instant;

use mpquic_core::sched::{Decision, UnackedRange, View};
use mpquic_core::{PathId, PathMap, StreamId};

/// Marks packets that repeat bytes in flight of another path.
pub(crate) const REPEATED: u64 = 1 << 63;

/// The position of a range among the unacknowledged ranges, oldest first.
type Position = (Instant, StreamId, u64);

fn position(range: &UnackedRange) -> Position {
    (range.sent_at, range.stream, range.offsets.start)
}

/// The last repeated range of each path. One position per path is enough, because ranges are
/// repeated oldest first. A policy counts either by the path that carried the range or by the path
/// that repeats it.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    reached: PathMap<Position>,
}

impl Repeats {
    /// True if the range was not repeated yet, by the count of `path`. Copies and ranges that the
    /// core moved itself are never repeated.
    pub(crate) fn is_due(&self, path: PathId, range: &UnackedRange) -> bool {
        let reached = self.reached.get(path);
        !range.reinjected
            && range.tag & REPEATED == 0
            && reached.is_none_or(|reached| position(range) > *reached)
    }

    /// Repeats a range on `target` and notes it in the count of `path`.
    pub(crate) fn repeat(
        &mut self,
        path: PathId,
        range: &UnackedRange,
        target: PathId,
    ) -> Decision {
        self.reached.insert(path, position(range));
        repeat(range, target)
    }

    pub(crate) fn remove(&mut self, path: PathId) {
        self.reached.remove(path);
    }
}

/// All unacknowledged ranges that were repeated, in any order.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Sorted.
    ranges: Vec<(PathId, Position)>,
}

impl Copied {
    /// True if the range was not repeated yet. Copies and ranges that the core moved itself are
    /// never repeated.
    pub(crate) fn is_due(&self, range: &UnackedRange) -> bool {
        let key = (range.path, position(range));
        !range.reinjected && range.tag & REPEATED == 0 && self.ranges.binary_search(&key).is_err()
    }

    /// Notes that a range is repeated. Forgets ranges that are older than all unacknowledged ranges
    /// of the same path.
    pub(crate) fn insert(&mut self, range: &UnackedRange, view: &View<'_>) {
        if let Some(oldest) = view.find_unacked(range.path, |_| true) {
            // Packets that left at the same time are not sorted by stream and offset.
            self.ranges
                .retain(|(path, (sent_at, ..))| *path != range.path || *sent_at >= oldest.sent_at);
        }
        let key = (range.path, position(range));
        if let Err(index) = self.ranges.binary_search(&key) {
            self.ranges.insert(index, key);
        }
    }

    pub(crate) fn remove(&mut self, path: PathId) {
        self.ranges.retain(|(carrier, _)| *carrier != path);
    }
}

/// The decision to send a range again on another path.
pub(crate) fn repeat(range: &UnackedRange, target: PathId) -> Decision {
    Decision::Reinject {
        path: target,
        stream: range.stream,
        offsets: range.offsets.clone(),
        tag: REPEATED,
    }
}
