//! [`PeerCids`]: the connection IDs the peer issued for one path.

use quinn_proto::ConnectionId;
use smallvec::SmallVec;

use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::packet::delivery::{Fate, PathDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::range_set::RangeSet;
use crate::wire::frame::{Frame, NewConnectionId, PathCidsBlocked, PathRetireConnectionId};

/// Retirements the peer has not acknowledged that are always tolerated (MP-107).
const MIN_RETIREMENTS: usize = 32;

/// Gaps in the sequence numbers that are tolerated beyond `active_connection_id_limit`. An honest
/// peer has fewer: it counts up by one and issues no more than the limit.
const EXTRA_GAPS: usize = 16;

/// The endpoint's set of stateless reset tokens changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResetTokenChange {
    /// Datagrams that end in the token now reset the connection.
    Added([u8; 16]),
    /// They no longer do.
    Removed([u8; 16]),
}

/// Changes in the order they happened.
pub(crate) type ResetTokenChanges = SmallVec<[ResetTokenChange; 2]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PeerCid {
    sequence: u64,
    cid: ConnectionId,
    /// Unknown for a client's handshake connection ID.
    reset_token: Option<[u8; 16]>,
}

#[derive(Debug)]
struct Retirement {
    sequence: u64,
    progress: Progress,
}

/// What is under way besides the connection IDs themselves.
#[derive(Debug, Default)]
struct Turnover {
    /// Sequence numbers between `retire_prior_to` and `next_sequence` that did not arrive.
    missing: RangeSet,
    /// Retirements the peer has not acknowledged.
    retirements: Vec<Retirement>,
    blocked: Option<Blocked>,
}

#[derive(Debug)]
struct Blocked {
    next_sequence: u64,
    progress: Progress,
}

/// The connection IDs the peer issued for one path: the destination of what we send on it.
///
/// One is in use, the *current* one, and while the path changes its addresses one for the others.
/// Only their reset tokens count: RFC 9000 section 10.3.1
/// forbids looking for tokens of connection IDs that were not used or are retired (MP-108).
#[derive(Debug)]
pub(crate) struct PeerCids {
    path: PathId,
    /// Our `active_connection_id_limit`.
    limit: u32,
    current: Option<Box<PeerCid>>,
    /// For addresses the path is leaving, until it is certain that it leaves them.
    kept: Option<Box<PeerCid>>,
    /// For addresses the path may move to, while they are proven.
    candidate: Option<Box<PeerCid>>,
    /// Never sent to, by sequence number.
    unused: SmallVec<[PeerCid; 1]>,
    /// All below are retired, or are to be when they arrive.
    retire_prior_to: u64,
    /// Above every sequence number that arrived.
    next_sequence: u64,
    /// Exists while there is any: most paths never have, and many are kept ready.
    turnover: Option<Box<Turnover>>,
    /// True if something of the turnover may be queued.
    queued: bool,
    in_use: bool,
    abandoned: bool,
}

impl Turnover {
    fn is_over(&self) -> bool {
        self.missing.is_empty() && self.retirements.is_empty() && self.blocked.is_none()
    }
}

impl PeerCids {
    /// No connection IDs. `limit` is the `active_connection_id_limit` we announced.
    pub(crate) fn new(path: PathId, limit: u64) -> Self {
        Self {
            path,
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            current: None,
            kept: None,
            candidate: None,
            unused: SmallVec::new(),
            retire_prior_to: 0,
            next_sequence: 0,
            turnover: None,
            queued: false,
            in_use: false,
            abandoned: false,
        }
    }

    /// Path 0: the connection ID to send to during the handshake, sequence number 0. A client
    /// calls it again when the server chooses another one (RFC 9000 section 7.2).
    pub(crate) fn set_handshake_cid(&mut self, cid: ConnectionId) {
        self.in_use = true;
        self.note_seen(0);
        self.current = Some(Box::new(PeerCid {
            sequence: 0,
            cid,
            reset_token: None,
        }));
    }

    /// Path 0 of a client: the server's `stateless_reset_token` parameter.
    pub(crate) fn set_handshake_token(&mut self, token: [u8; 16]) -> ResetTokenChanges {
        let mut changes = ResetTokenChanges::new();
        if let Some(current) = self.current.as_mut().filter(|cid| cid.sequence == 0) {
            current.reset_token = Some(token);
            changes.push(ResetTokenChange::Added(token));
        }
        changes
    }

    /// Path 0 of a client: the connection ID of `preferred_address`, sequence number 1 (MP-018).
    pub(crate) fn add_preferred(&mut self, cid: ConnectionId, token: [u8; 16]) {
        self.note_seen(1);
        self.add_unused(PeerCid {
            sequence: 1,
            cid,
            reset_token: Some(token),
        });
    }

    /// The connection ID to send to; `None` before the path is used, and while the peer has made
    /// us retire it and issued no other.
    pub(crate) fn current(&self) -> Option<&ConnectionId> {
        self.current.as_ref().map(|current| &current.cid)
    }

    /// The connection ID for the addresses the path is leaving (RFC 9000 section 9.5).
    pub(crate) fn kept(&self) -> Option<&ConnectionId> {
        self.kept.as_ref().map(|kept| &kept.cid)
    }

    /// The connection ID for the addresses the path may move to.
    pub(crate) fn candidate(&self) -> Option<&ConnectionId> {
        self.candidate.as_ref().map(|candidate| &candidate.cid)
    }

    /// Those that something was sent to.
    fn used(&self) -> impl Iterator<Item = &PeerCid> {
        let all = [&self.current, &self.kept, &self.candidate];
        all.into_iter().filter_map(|cid| cid.as_deref())
    }

    /// True if a connection ID in use has this reset token (MP-108).
    pub(crate) fn is_reset_token(&self, token: [u8; 16]) -> bool {
        // Without early exit: timing must not tell how much of a guess was right (RFC 9000
        // section 10.3.1).
        let is_equal = |known: [u8; 16]| {
            known
                .iter()
                .zip(token)
                .fold(0, |differs, (a, b)| differs | (a ^ b))
                == 0
        };
        self.used()
            .filter_map(|cid| cid.reset_token)
            .fold(false, |found, known| found | is_equal(known))
    }

    /// True if there is a connection ID to open the path with or to rotate to.
    pub(crate) fn has_unused(&self) -> bool {
        !self.unused.is_empty()
    }

    /// True if `cid` is one of this path's: the same bytes on another path would be a fault of the
    /// peer (MP-095).
    pub(crate) fn contains(&self, cid: &ConnectionId) -> bool {
        self.known().any(|known| known.cid == *cid)
    }

    fn known(&self) -> impl Iterator<Item = &PeerCid> {
        self.used().chain(&self.unused)
    }

    /// NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID for this path.
    pub(crate) fn on_new_connection_id(
        &mut self,
        frame: &NewConnectionId,
    ) -> Result<ResetTokenChanges, TransportError> {
        let mut changes = ResetTokenChanges::new();
        // MP-130
        if self.abandoned {
            return Ok(changes);
        }
        self.check(frame)?;
        let is_known = self.has_seen(frame.sequence_number);
        if frame.sequence_number >= self.retire_prior_to.max(frame.retire_prior_to) {
            self.note_seen(frame.sequence_number);
            if !is_known {
                self.add_unused(PeerCid {
                    sequence: frame.sequence_number,
                    cid: frame.connection_id,
                    reset_token: Some(frame.stateless_reset_token),
                });
                if let Some(turnover) = &mut self.turnover {
                    turnover.blocked = None;
                }
            }
        } else {
            // MP-104: a late frame of a connection ID that was retired already
            self.queue_retirement(frame.sequence_number);
        }
        if frame.retire_prior_to > self.retire_prior_to {
            self.retire_below(frame.retire_prior_to, &mut changes);
        }
        if self.in_use && self.current.is_none() {
            self.advance(&mut changes);
        }
        self.check_limits()?;
        Ok(changes)
    }

    fn check(&self, frame: &NewConnectionId) -> Result<(), TransportError> {
        // RFC 9000 section 19.15
        let current = self.current.as_deref();
        if current.is_some_and(|current| current.cid.is_empty()) {
            return Err(Fault::ConnectionIdNotWanted.into());
        }
        // MP-104
        if frame.retire_prior_to > frame.sequence_number {
            return Err(Fault::RetirePriorToTooLarge.into());
        }
        // MP-104
        if frame.connection_id.is_empty() {
            return Err(Fault::ConnectionIdLength.into());
        }
        // MP-095
        let conflict = self.known().any(|known| {
            let same_cid = known.cid == frame.connection_id;
            let same_sequence = known.sequence == frame.sequence_number;
            let same_token = known
                .reset_token
                .is_none_or(|token| token == frame.stateless_reset_token);
            (same_cid || same_sequence) && !(same_cid && same_sequence && same_token)
        });
        if conflict {
            return Err(Fault::ConnectionIdConflict.into());
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), TransportError> {
        let limit = self.limit as usize;
        let active = self.known().count();
        // MP-105
        let fault = if active > limit {
            Fault::ConnectionIdsBeyondLimit
        } else if self.gaps() >= limit.saturating_add(EXTRA_GAPS) {
            Fault::SequenceGaps
        } else if self.retirements() > self.max_retirements() {
            // MP-107
            Fault::TooManyRetirements
        } else {
            return Ok(());
        };
        Err(fault.into())
    }

    fn gaps(&self) -> usize {
        self.turnover.as_ref().map_or(0, |it| it.missing.len())
    }

    fn retirements(&self) -> usize {
        self.turnover.as_ref().map_or(0, |it| it.retirements.len())
    }

    fn max_retirements(&self) -> usize {
        let limit = self.limit as usize;
        limit.saturating_mul(2).max(MIN_RETIREMENTS)
    }

    /// Begins to use the unused connection ID with the lowest sequence number, and retires the
    /// current one. The first call opens the path. `None` if there is no unused one, or if too
    /// many retirements are under way already (MP-107).
    pub(crate) fn rotate(&mut self) -> Option<ResetTokenChanges> {
        if self.unused.is_empty() || self.retirements() >= self.max_retirements() {
            return None;
        }
        let mut changes = ResetTokenChanges::new();
        self.in_use = true;
        self.retire_current(&mut changes);
        self.advance(&mut changes);
        Some(changes)
    }

    /// As [`Self::rotate`], but the connection ID in use stays for the addresses it was used with
    /// until [`Self::release_kept`] or [`Self::return_to_kept`] (RFC 9000 section 9.5).
    pub(crate) fn rotate_keeping(&mut self) -> Option<ResetTokenChanges> {
        if self.unused.is_empty() || self.kept.is_some() {
            return self.rotate();
        }
        let mut changes = ResetTokenChanges::new();
        self.kept = self.current.take();
        self.advance(&mut changes);
        Some(changes)
    }

    /// The path has left its old addresses for good.
    pub(crate) fn release_kept(&mut self) -> ResetTokenChanges {
        let mut changes = ResetTokenChanges::new();
        if let Some(kept) = self.kept.take() {
            self.retire(*kept, &mut changes);
        }
        changes
    }

    /// The path is back at its old addresses.
    pub(crate) fn return_to_kept(&mut self) -> ResetTokenChanges {
        let mut changes = ResetTokenChanges::new();
        if let Some(kept) = self.kept.take() {
            self.retire_current(&mut changes);
            self.current = Some(kept);
        }
        changes
    }

    /// Takes an unused connection ID for addresses that are to be proven (RFC 9000 section 9.5).
    /// `None` if there is none; then, the one in use serves.
    pub(crate) fn reserve_candidate(&mut self) -> Option<ResetTokenChanges> {
        let replaces = self.candidate.is_some();
        if self.unused.is_empty() || replaces && self.retirements() >= self.max_retirements() {
            return None;
        }
        let mut changes = self.release_candidate();
        let next = self.unused.remove(0);
        changes.extend(next.reset_token.map(ResetTokenChange::Added));
        self.candidate = Some(Box::new(next));
        Some(changes)
    }

    /// The path has moved to the addresses that were proven, and leaves all others.
    pub(crate) fn adopt_candidate(&mut self) -> ResetTokenChanges {
        let mut changes = self.release_kept();
        if let Some(candidate) = self.candidate.take() {
            self.retire_current(&mut changes);
            self.current = Some(candidate);
        }
        changes
    }

    /// The path moves to the addresses the candidate is for; as [`Self::rotate_keeping`], the one
    /// in use stays for those it leaves.
    pub(crate) fn move_to_candidate(&mut self) -> ResetTokenChanges {
        let mut changes = ResetTokenChanges::new();
        if let Some(candidate) = self.candidate.take() {
            if self.kept.is_some() {
                self.retire_current(&mut changes);
            } else {
                self.kept = self.current.take();
            }
            self.current = Some(candidate);
        }
        changes
    }

    /// The path does not move.
    pub(crate) fn release_candidate(&mut self) -> ResetTokenChanges {
        let mut changes = ResetTokenChanges::new();
        if let Some(candidate) = self.candidate.take() {
            self.retire(*candidate, &mut changes);
        }
        changes
    }

    /// Asks the peer for a connection ID with PATH_CIDS_BLOCKED, once per state of affairs
    /// (MP-101, MP-144). Only after multipath is negotiated.
    pub(crate) fn request(&mut self) {
        let next_sequence = self.next_sequence;
        let turnover = self.turnover.as_ref();
        let blocked = turnover.and_then(|it| it.blocked.as_ref());
        let asked = blocked.is_some_and(|blocked| blocked.next_sequence == next_sequence);
        if asked || self.has_unused() || self.abandoned {
            return;
        }
        self.turnover.get_or_insert_default().blocked = Some(Blocked {
            next_sequence,
            progress: Progress::Queued,
        });
        self.queued = true;
    }

    /// Writes queued retirements, with PATH_RETIRE_CONNECTION_ID once multipath is negotiated,
    /// else (path 0 only) RETIRE_CONNECTION_ID (MP-091), and PATH_CIDS_BLOCKED.
    pub(crate) fn write_frames(&mut self, w: &mut FrameWriter<'_>, multipath: bool) {
        if !self.queued {
            return;
        }
        let path = self.path;
        let Some(turnover) = &mut self.turnover else {
            self.queued = false;
            return;
        };
        for retirement in &mut turnover.retirements {
            if !retirement.progress.is_queued() {
                continue;
            }
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
                return;
            }
            retirement.progress = Progress::Sent;
        }
        if let Some(blocked) = &mut turnover.blocked
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
                return;
            }
            blocked.progress = Progress::Sent;
        }
        self.queued = false;
    }

    /// What became of RETIRE_CONNECTION_ID or PATH_CIDS_BLOCKED of this path.
    pub(crate) fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        match delivery {
            PathDelivery::RetireConnectionId { sequence, .. } => {
                self.on_retirement_delivery(sequence, fate);
            }
            PathDelivery::CidsBlocked { next_sequence, .. } => {
                self.on_blocked_delivery(next_sequence, fate);
            }
            PathDelivery::NewConnectionId { .. }
            | PathDelivery::Abandon(_)
            | PathDelivery::Status { .. } => {}
        }
    }

    /// What became of the retirement of this sequence number.
    fn on_retirement_delivery(&mut self, sequence: u64, fate: Fate) {
        let Some(turnover) = &mut self.turnover else {
            return;
        };
        let retirements = &mut turnover.retirements;
        match fate {
            Fate::Acked => {
                retirements.retain(|r| r.sequence != sequence);
                if turnover.is_over() {
                    self.turnover = None;
                }
            }
            Fate::Lost => {
                if let Some(retirement) = retirements.iter_mut().find(|r| r.sequence == sequence) {
                    retirement.progress = Progress::Queued;
                    self.queued = true;
                }
            }
        }
    }

    /// What became of PATH_CIDS_BLOCKED with this next sequence number.
    fn on_blocked_delivery(&mut self, next_sequence: u64, fate: Fate) {
        if let Some(turnover) = &mut self.turnover
            && let Some(blocked) = &mut turnover.blocked
            && blocked.next_sequence == next_sequence
        {
            blocked.progress.on_fate(fate);
            self.queued |= blocked.progress.is_queued();
        }
    }

    /// True if [`Self::write_frames`] has something to write.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.queued
    }

    /// The path is abandoned: all its connection IDs are retired at once, without frames (MP-121),
    /// and what was to be said about them is forgotten (MP-130).
    pub(crate) fn abandon(&mut self) -> ResetTokenChanges {
        let mut changes = ResetTokenChanges::new();
        self.retire_current(&mut changes);
        changes.extend(self.release_kept());
        changes.extend(self.release_candidate());
        self.abandoned = true;
        self.unused.clear();
        self.turnover = None;
        self.queued = false;
        changes
    }

    fn has_seen(&self, sequence: u64) -> bool {
        let turnover = self.turnover.as_ref();
        sequence < self.next_sequence && !turnover.is_some_and(|it| it.missing.contains(sequence))
    }

    fn note_seen(&mut self, sequence: u64) {
        let next = self.next_sequence.max(self.retire_prior_to);
        if sequence > next {
            let turnover = self.turnover.get_or_insert_default();
            turnover.missing.insert(next..sequence);
        } else if let Some(turnover) = &mut self.turnover {
            turnover
                .missing
                .remove(sequence..sequence.saturating_add(1));
        }
        self.next_sequence = self.next_sequence.max(sequence.saturating_add(1));
    }

    fn add_unused(&mut self, cid: PeerCid) {
        let index = self
            .unused
            .partition_point(|known| known.sequence < cid.sequence);
        self.unused.insert(index, cid);
    }

    fn advance(&mut self, changes: &mut ResetTokenChanges) {
        if self.unused.is_empty() {
            return;
        }
        let next = self.unused.remove(0);
        changes.extend(next.reset_token.map(ResetTokenChange::Added));
        self.current = Some(Box::new(next));
    }

    fn retire_current(&mut self, changes: &mut ResetTokenChanges) {
        if let Some(current) = self.current.take() {
            self.retire(*current, changes);
        }
    }

    fn retire(&mut self, cid: PeerCid, changes: &mut ResetTokenChanges) {
        changes.extend(cid.reset_token.map(ResetTokenChange::Removed));
        self.queue_retirement(cid.sequence);
    }

    /// MP-103, RFC 9000 section 5.1.2.
    fn retire_below(&mut self, bound: u64, changes: &mut ResetTokenChanges) {
        self.retire_prior_to = bound;
        if let Some(turnover) = &mut self.turnover {
            turnover.missing.remove_below(bound);
        }
        let retired = self.unused.partition_point(|known| known.sequence < bound);
        let retired: SmallVec<[PeerCid; 4]> = self.unused.drain(..retired).collect();
        for cid in retired {
            self.queue_retirement(cid.sequence);
        }
        let is_past = |cid: &PeerCid| cid.sequence < bound;
        if self.current.as_deref().is_some_and(is_past) {
            self.retire_current(changes);
        }
        if self.kept.as_deref().is_some_and(is_past) {
            changes.extend(self.release_kept());
        }
        if self.candidate.as_deref().is_some_and(is_past) {
            changes.extend(self.release_candidate());
        }
    }

    fn queue_retirement(&mut self, sequence: u64) {
        let turnover = self.turnover.get_or_insert_default();
        if turnover.retirements.iter().all(|r| r.sequence != sequence) {
            turnover.retirements.push(Retirement {
                sequence,
                progress: Progress::Queued,
            });
            self.queued = true;
        }
    }
}

#[cfg(test)]
mod tests;
