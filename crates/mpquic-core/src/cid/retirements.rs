//! [`PendingRetirements`]: frames to be sent about the peer's connection IDs of one path.

use crate::ids::PathId;
use crate::packet::delivery::{Fate, PathDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::range_set::RangeSet;
use crate::wire::frame::{Frame, PathCidsBlocked, PathRetireConnectionId};

#[derive(Debug)]
struct Retirement {
    sequence: u64,
    progress: Progress,
}

#[derive(Debug)]
struct Blocked {
    next_sequence: u64,
    progress: Progress,
}

/// Retirements that the peer has not acknowledged, PATH_CIDS_BLOCKED, and gaps in the sequence
/// numbers.
#[derive(Debug, Default)]
pub(super) struct PendingRetirements {
    /// Gaps in the sequence numbers below the highest arrived number.
    pub(super) missing: RangeSet,
    /// Retirements the peer has not acknowledged.
    retirements: Vec<Retirement>,
    blocked: Option<Blocked>,
}

impl PendingRetirements {
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let retirements = self.retirements.capacity() * size_of::<Retirement>();
        size_of::<Self>() + retirements + self.missing.memory()
    }

    /// True if no frame is left to send or to wait for.
    pub(super) fn is_over(&self) -> bool {
        self.missing.is_empty() && self.retirements.is_empty() && self.blocked.is_none()
    }

    /// Retirements the peer has not acknowledged.
    pub(super) fn len(&self) -> usize {
        self.retirements.len()
    }

    /// Queues the retirement of a sequence number, once.
    pub(super) fn queue(&mut self, sequence: u64) {
        if self.retirements.iter().all(|r| r.sequence != sequence) {
            self.retirements.push(Retirement {
                sequence,
                progress: Progress::Queued,
            });
        }
    }

    /// Queues PATH_CIDS_BLOCKED with the next sequence number expected, unless it was already sent
    /// with the same one.
    pub(super) fn queue_blocked(&mut self, next_sequence: u64) {
        let blocked = self.blocked.as_ref();
        if blocked.is_none_or(|blocked| blocked.next_sequence != next_sequence) {
            self.blocked = Some(Blocked {
                next_sequence,
                progress: Progress::Queued,
            });
        }
    }

    /// A connection ID arrived.
    pub(super) fn unblock(&mut self) {
        self.blocked = None;
    }

    /// True if [`Self::write_frames`] has something to write.
    pub(super) fn is_queued(&self) -> bool {
        let mut retirements = self.retirements.iter();
        let blocked = self.blocked.as_ref();
        retirements.any(|retirement| retirement.progress.is_queued())
            || blocked.is_some_and(|blocked| blocked.progress.is_queued())
    }

    /// Writes queued retirements, with PATH_RETIRE_CONNECTION_ID once multipath is negotiated,
    /// else (path 0 only) RETIRE_CONNECTION_ID (MP-091), and PATH_CIDS_BLOCKED. False if there was
    /// not enough room.
    pub(super) fn write_frames(
        &mut self,
        w: &mut FrameWriter<'_>,
        path: PathId,
        multipath: bool,
    ) -> bool {
        let queued = |retirement: &&mut Retirement| retirement.progress.is_queued();
        for retirement in self.retirements.iter_mut().filter(queued) {
            let sequence = retirement.sequence;
            let frame = if multipath {
                Frame::PathRetireConnectionId(PathRetireConnectionId {
                    path_id: path,
                    sequence_number: sequence,
                })
            } else {
                Frame::RetireConnectionId(sequence)
            };
            if !w.try_write(&frame, PathDelivery::RetireConnectionId { path, sequence }) {
                return false;
            }
            retirement.progress = Progress::Sent;
        }
        if let Some(blocked) = &mut self.blocked
            && blocked.progress.is_queued()
            && multipath
        {
            let next_sequence = blocked.next_sequence;
            let delivery = PathDelivery::CidsBlocked {
                path,
                next_sequence,
            };
            let frame = Frame::PathCidsBlocked(PathCidsBlocked {
                path_id: path,
                next_sequence_number: next_sequence,
            });
            if !w.try_write(&frame, delivery) {
                return false;
            }
            blocked.progress = Progress::Sent;
        }
        true
    }

    /// The retirement of this sequence number was acknowledged or lost.
    pub(super) fn on_retirement_delivery(&mut self, sequence: u64, fate: Fate) {
        match fate {
            Fate::Acked => self.retirements.retain(|r| r.sequence != sequence),
            Fate::Lost => {
                let mut retirements = self.retirements.iter_mut();
                if let Some(retirement) = retirements.find(|r| r.sequence == sequence) {
                    retirement.progress = Progress::Queued;
                }
            }
        }
    }

    /// A PATH_CIDS_BLOCKED frame with this next sequence number was acknowledged or lost.
    pub(super) fn on_blocked_delivery(&mut self, next_sequence: u64, fate: Fate) {
        if let Some(blocked) = &mut self.blocked
            && blocked.next_sequence == next_sequence
        {
            blocked.progress.on_fate(fate);
        }
    }
}
