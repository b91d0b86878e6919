//! [`Assignment`]: what to send on which path.

use crate::ids::PathId;
use crate::sched::{DataSelection, Decision, PathSet};

/// What to send on which path, after the scheduler's answer was checked.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    pub(super) path: PathId,
    pub(super) data: DataSelection,
    pub(super) max_bytes: u64,
    pub(super) tag: u64,
    pub(super) copies: PathSet,
}

impl Assignment {
    /// Whatever is most urgent, as much as fits.
    pub(super) fn next(path: PathId) -> Self {
        Self {
            path,
            data: DataSelection::Next,
            max_bytes: 0,
            tag: 0,
            copies: PathSet::new(),
        }
    }

    /// The assignment of a decision; `None` if the decision is not to send.
    pub(super) fn of(decision: Decision) -> Option<Self> {
        let (path, data, max_bytes, tag, copies) = match decision {
            Decision::Send {
                path,
                data,
                max_bytes,
                tag,
            } => (path, data, max_bytes, tag, PathSet::new()),
            Decision::Duplicate {
                path,
                copies,
                data,
                tag,
            } => (path, data, 0, tag, copies),
            Decision::Reinject {
                path,
                stream: id,
                offsets,
                tag,
            } => {
                let length = offsets.end.saturating_sub(offsets.start);
                let data = DataSelection::Range { id, offsets };
                (path, data, length, tag, PathSet::new())
            }
            Decision::Wait { .. } | Decision::Blocked => return None,
        };
        Some(Self {
            path,
            data,
            max_bytes,
            tag,
            copies,
        })
    }

    /// True if it may repeat bytes that were sent before.
    pub(super) fn is_repeat(&self) -> bool {
        matches!(
            self.data,
            DataSelection::StreamAt { .. } | DataSelection::Range { .. }
        )
    }

    /// True if bytes may be sent twice because of it.
    pub(super) fn repeats(&self) -> bool {
        self.is_repeat() || !self.copies.is_empty()
    }

    /// The same path, but with one packet of whatever is most urgent, in case the chosen stream may
    /// not send anything. `None` if the assignment was that already.
    pub(super) fn instead(&self) -> Option<Self> {
        (self.data != DataSelection::Next).then(|| Self {
            tag: self.tag,
            ..Self::next(self.path)
        })
    }

    /// Stream bytes that one packet may carry.
    pub(super) fn bytes_per_packet(&self) -> usize {
        let max_bytes = || {
            let max = usize::try_from(self.max_bytes).ok();
            max.filter(|max| *max > 0).unwrap_or(usize::MAX)
        };
        match &self.data {
            DataSelection::Next => usize::MAX,
            DataSelection::Stream(_)
            | DataSelection::StreamAt { .. }
            | DataSelection::Range { .. } => max_bytes(),
        }
    }
}
