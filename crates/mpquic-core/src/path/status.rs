//! [`PathStatuses`]: both sides' announced statuses of a path.

use crate::ids::{PathId, PathStatus};
use crate::packet::delivery::{Fate, PathDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::wire::frame::{self, Frame};

/// Our status of one path and the peer's (RFC 10069 section 3.3). It exists for path IDs not yet
/// in use, too (MP-113).
#[derive(Debug)]
pub(crate) struct PathStatuses {
    /// The status that the application wants.
    wish: PathStatus,
    /// The status that the peer is told.
    local: PathStatus,
    /// Sequence number and progress of the newest frame about `local`; `None` before the first.
    announced: Option<(u64, Progress)>,
    peer: Option<PathStatus>,
    /// Highest sequence number the peer used.
    peer_sequence: Option<u64>,
    abandoned: bool,
}

impl PathStatuses {
    /// Neither side has announced a status; ours counts as available.
    pub(crate) const fn new() -> Self {
        Self {
            wish: PathStatus::Available,
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

    /// The status the application wants.
    pub(crate) fn wish(&self) -> PathStatus {
        self.wish
    }

    /// A backup path begins or ends to stand in for available paths; the peer is told (MP-115).
    pub(crate) fn stand_in(&mut self, stands_in: bool) {
        let told = match (self.wish, stands_in) {
            (PathStatus::Backup, true) => PathStatus::Available,
            (wish, _) => wish,
        };
        if told != self.local {
            self.tell(told);
        }
    }

    /// Sets our status and queues it for the peer, unless announced last. No announcement differs
    /// from "available" (MP-110), so a first "available" is announced, too.
    pub(crate) fn set_local(&mut self, status: PathStatus) {
        self.wish = status;
        self.tell(status);
    }

    fn tell(&mut self, status: PathStatus) {
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
    pub(crate) fn write_frames(&mut self, w: &mut FrameWriter<'_>, path: PathId) {
        if let Some((sequence, progress)) = &mut self.announced
            && progress.is_queued()
        {
            let sequence = *sequence;
            let delivery = PathDelivery::Status { path, sequence };
            let frame = Frame::PathStatus(frame::PathStatus {
                path_id: path,
                status: self.local,
                sequence_number: sequence,
            });
            if w.try_write(&frame, delivery) {
                *progress = Progress::Sent;
            }
        }
    }

    /// A status frame of this path was acknowledged or lost. Only the newest one is sent again (RFC
    /// 10069 section 4.3).
    pub(crate) fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        if let PathDelivery::Status { sequence, .. } = delivery
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

#[cfg(test)]
mod tests {
    use PathStatus::{Available, Backup};

    use super::*;
    use crate::packet::writer::written;

    const PATH: PathId = PathId(1);

    fn frames(statuses: &mut PathStatuses) -> Vec<Frame> {
        written(100, |w| statuses.write_frames(w, PATH)).0
    }

    fn delivery(sequence: u64) -> PathDelivery {
        PathDelivery::Status {
            path: PATH,
            sequence,
        }
    }

    #[test]
    fn mp_110_nothing_said_is_not_available() {
        let mut statuses = PathStatuses::new();
        assert_eq!((statuses.local(), statuses.peer()), (Available, None));
        assert!(!statuses.wants_to_send());
        statuses.set_local(Available);
        assert!(statuses.wants_to_send());
        assert_eq!(
            frames(&mut statuses),
            [Frame::PathStatus(frame::PathStatus {
                path_id: PATH,
                status: Available,
                sequence_number: 0
            })]
        );
    }

    #[test]
    fn mp_111_sequence_numbers_increase_over_both_types() {
        let mut statuses = PathStatuses::new();
        for (sequence, status) in [Backup, Available, Backup].into_iter().enumerate() {
            statuses.set_local(status);
            let expected = Frame::PathStatus(frame::PathStatus {
                path_id: PATH,
                status,
                sequence_number: sequence as u64,
            });
            assert_eq!(frames(&mut statuses), [expected]);
            statuses.set_local(status);
            assert!(!statuses.wants_to_send(), "already said");
        }
    }

    #[test]
    fn mp_115_a_backup_that_stands_in_is_available_meanwhile() {
        let mut statuses = PathStatuses::new();
        statuses.stand_in(true);
        assert!(!statuses.wants_to_send(), "available anyway");
        statuses.set_local(Backup);
        for (stands_in, status) in [(true, Available), (false, Backup)] {
            let _ = frames(&mut statuses);
            statuses.stand_in(stands_in);
            statuses.stand_in(stands_in);
            assert_eq!((statuses.local(), statuses.wish()), (status, Backup));
            let sequence = 1 + u64::from(!stands_in);
            assert_eq!(
                frames(&mut statuses),
                [Frame::PathStatus(frame::PathStatus {
                    path_id: PATH,
                    status,
                    sequence_number: sequence
                })]
            );
        }
    }

    #[test]
    fn mp_112_old_frames_are_ignored() {
        let mut statuses = PathStatuses::new();
        assert!(statuses.on_path_status(Backup, 5));
        assert!(!statuses.on_path_status(Available, 5));
        assert!(!statuses.on_path_status(Available, 0));
        assert_eq!(statuses.peer(), Some(Backup));
        assert!(!statuses.on_path_status(Backup, 6), "newer, but the same");
        assert!(statuses.on_path_status(Available, u64::MAX));
        assert_eq!(statuses.peer(), Some(Available));
    }

    #[test]
    fn mp_114_backup_if_either_side_says_so() {
        let mut statuses = PathStatuses::new();
        assert_eq!(statuses.effective(), Available);
        statuses.on_path_status(Backup, 0);
        assert_eq!(statuses.effective(), Backup);
        statuses.on_path_status(Available, 1);
        assert_eq!(statuses.effective(), Available);
        statuses.set_local(Backup);
        assert_eq!(statuses.effective(), Backup);
    }

    #[test]
    fn only_the_newest_status_is_repeated() {
        let mut statuses = PathStatuses::new();
        statuses.set_local(Backup);
        let _ = frames(&mut statuses);
        statuses.set_local(Available);
        let _ = frames(&mut statuses);
        statuses.on_delivery(delivery(0), Fate::Lost);
        assert!(!statuses.wants_to_send());
        statuses.on_delivery(delivery(1), Fate::Lost);
        assert_eq!(
            frames(&mut statuses),
            [Frame::PathStatus(frame::PathStatus {
                path_id: PATH,
                status: Available,
                sequence_number: 1
            })]
        );
        statuses.on_delivery(delivery(1), Fate::Acked);
        statuses.on_delivery(delivery(1), Fate::Lost);
        assert!(!statuses.wants_to_send());
    }

    #[test]
    fn mp_130_an_abandoned_path_has_no_status_to_tell() {
        let mut statuses = PathStatuses::new();
        statuses.set_local(Backup);
        statuses.abandon();
        assert!(!statuses.wants_to_send());
        statuses.on_delivery(delivery(0), Fate::Lost);
        statuses.set_local(Available);
        assert!(!statuses.wants_to_send());
        assert!(!statuses.on_path_status(Backup, 9));
    }
}
