//! [`Assignment`]: what to send on which path.

use quinn_proto::StreamId;

use crate::ids::PathId;
use crate::packet::plan::Plan;
use crate::path::view::Allowance;
use crate::sched::{DataSelection, Decision, PathSet};

/// A checked decision of the scheduler: the path and the data of the next packets.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) path: PathId,
    /// `None` for what the application has bound to the path.
    pub(crate) data: Option<DataSelection>,
    pub(crate) max_bytes: u64,
    pub(crate) tag: u64,
    pub(crate) copies: PathSet,
}

impl Assignment {
    /// The most urgent data that fits.
    pub(crate) fn next(path: PathId) -> Self {
        Self {
            path,
            data: Some(DataSelection::Next),
            max_bytes: 0,
            tag: 0,
            copies: PathSet::new(),
        }
    }

    /// Data bound to the path, without a limit.
    pub(crate) fn bound(path: PathId) -> Self {
        Self {
            data: None,
            max_bytes: u64::MAX,
            ..Self::next(path)
        }
    }

    /// The assignment of a decision; `None` if the decision is not to send.
    pub(crate) fn of(decision: Decision) -> Option<Self> {
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
            data: Some(data),
            max_bytes,
            tag,
            copies,
        })
    }

    /// The stream whose data it names.
    pub(crate) fn stream(&self) -> Option<StreamId> {
        match self.data.as_ref()? {
            DataSelection::Stream(id)
            | DataSelection::StreamAt { id, .. }
            | DataSelection::Range { id, .. } => Some(*id),
            DataSelection::Next | DataSelection::Datagram | DataSelection::DatagramsBehind(_) => {
                None
            }
        }
    }

    /// Other paths for copies, each once.
    pub(crate) fn copy_paths(&self) -> impl Iterator<Item = PathId> + '_ {
        let copies = &self.copies;
        let paths = copies.iter().enumerate();
        paths
            .filter(|(index, path)| **path != self.path && !copies[..*index].contains(path))
            .map(|(_, path)| *path)
    }

    /// True if the assignment may send bytes for the second time.
    pub(crate) fn is_repeat(&self) -> bool {
        matches!(
            self.data,
            Some(DataSelection::StreamAt { .. } | DataSelection::Range { .. })
        )
    }

    /// True if the assignment may lead to bytes sent twice.
    pub(crate) fn repeats(&self) -> bool {
        self.is_repeat() || !self.copies.is_empty()
    }

    /// If the assignment chose a stream that may not send: an assignment of the most urgent data to
    /// the same path, one packet. Otherwise `None`.
    pub(crate) fn instead(&self) -> Option<Self> {
        (self.data != Some(DataSelection::Next)).then(|| Self {
            tag: self.tag,
            ..Self::next(self.path)
        })
    }

    /// The content of the assignment's packets.
    pub(crate) fn plan(&self, allowance: &Allowance) -> Plan {
        let mut plan = Plan::new(self.path, allowance.size);
        plan.ecn = allowance.ecn;
        plan.data.clone_from(&self.data);
        plan.bound = self.data.is_none();
        plan.max_data = self.bytes_per_packet();
        plan.tag = self.tag;
        plan.copied = !self.copies.is_empty();
        plan.is_repeat = self.is_repeat();
        plan
    }

    /// Stream bytes that one packet may carry.
    fn bytes_per_packet(&self) -> usize {
        let max_bytes = || {
            let max = usize::try_from(self.max_bytes).ok();
            max.filter(|max| *max > 0).unwrap_or(usize::MAX)
        };
        match &self.data {
            None
            | Some(
                DataSelection::Next | DataSelection::Datagram | DataSelection::DatagramsBehind(_),
            ) => usize::MAX,
            Some(
                DataSelection::Stream(_)
                | DataSelection::StreamAt { .. }
                | DataSelection::Range { .. },
            ) => max_bytes(),
        }
    }
}
