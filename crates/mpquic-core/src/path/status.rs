//! [`PathStatuses`]: what each side told the other about using a path.

use crate::ids::{PathId, PathStatus};
use crate::packet::delivery::{Delivery, Fate, Progress};
use crate::packet::writer::FrameWriter;
use crate::wire::frame::Frame;

/// Our status of one path and the peer's (RFC 10069 section 3.3). It exists for path IDs not yet
/// in use, too (MP-113).
#[derive(Debug)]
pub(crate) struct PathStatuses {
    path: PathId,
    local: PathStatus,
    /// Sequence number and progress of the newest frame about `local`; `None` before the first.
    announced: Option<(u64, Progress)>,
    peer: Option<PathStatus>,
    /// Highest sequence number the peer used.
    peer_sequence: Option<u64>,
    abandoned: bool,
}

impl PathStatuses {
    /// Nothing said by either side; ours counts as available.
    pub(crate) fn new(path: PathId) -> Self {
        Self {
            path,
            local: PathStatus::Available,
            announced: None,
            peer: None,
            peer_sequence: None,
            abandoned: false,
        }
    }

    /// Our status.
    pub(crate) fn local(&self) -> PathStatus {
        self.local
    }

    /// The peer's status, if it sent one (MP-110).
    pub(crate) fn peer(&self) -> Option<PathStatus> {
        self.peer
    }

    /// How our sender treats the path: as backup if either side says so.
    pub(crate) fn effective(&self) -> PathStatus {
        match (self.local, self.peer) {
            (PathStatus::Backup, _) | (_, Some(PathStatus::Backup)) => PathStatus::Backup,
            _ => PathStatus::Available,
        }
    }

    /// Sets our status and queues it for the peer, unless we said that last. Saying nothing is not
    /// the same as available (MP-110), so a first available is said, too.
    pub(crate) fn set_local(&mut self, status: PathStatus) {
        if self.abandoned || (self.announced.is_some() && status == self.local) {
            return;
        }
        self.local = status;
        // MP-111: strictly increasing, starting at 0
        let sequence = self.announced.map_or(0, |(sequence, _)| sequence + 1);
        self.announced = Some((sequence, Progress::Queued));
    }

    /// PATH_STATUS_AVAILABLE or PATH_STATUS_BACKUP. True if the peer's status changed.
    pub(crate) fn on_path_status(&mut self, status: PathStatus, sequence: u64) -> bool {
        // MP-112; MP-130
        if self.abandoned
            || self
                .peer_sequence
                .is_some_and(|highest| sequence <= highest)
        {
            return false;
        }
        self.peer_sequence = Some(sequence);
        self.peer.replace(status) != Some(status)
    }

    /// Writes our status if it is queued.
    pub(crate) fn write_frames(&mut self, w: &mut FrameWriter<'_>) {
        if let Some((sequence, progress)) = &mut self.announced
            && progress.is_queued()
        {
            let delivery = Delivery::PathStatus {
                path: self.path,
                sequence: *sequence,
            };
            if w.try_write(
                &Frame::PathStatus(self.path, self.local, *sequence),
                delivery,
            ) {
                *progress = Progress::Sent;
            }
        }
    }

    /// What became of a [`Delivery::PathStatus`] of this path. Only the newest one is sent again
    /// (RFC 10069 section 4.3).
    pub(crate) fn on_delivery(&mut self, delivery: Delivery, fate: Fate) {
        if let Delivery::PathStatus { sequence, .. } = delivery
            && let Some((newest, progress)) = &mut self.announced
            && *newest == sequence
            && !self.abandoned
        {
            progress.on_fate(fate);
        }
    }

    /// True if [`Self::write_frames`] has something to write.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.announced
            .is_some_and(|(_, progress)| progress.is_queued())
    }

    /// The path is abandoned: statuses no longer matter (MP-130).
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
        self.announced = None;
    }
}
