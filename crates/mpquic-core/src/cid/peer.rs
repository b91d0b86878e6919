//! [`PeerCids`]: the connection IDs that the peer issued for one path and that are not in use yet,
//! and the frames that retire used ones. A connection ID in use is kept with the addresses it is
//! used for.

use quinn_proto::ConnectionId;
use smallvec::SmallVec;

use super::retirements::PendingRetirements;
use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::packet::delivery::{Fate, PathDelivery};
use crate::packet::writer::FrameWriter;
use crate::wire::buf::VARINT_MAX;
use crate::wire::frame::NewConnectionId;

/// This many unacknowledged retirements are always tolerated (MP-107).
const MIN_RETIREMENTS: usize = 32;

/// The least limit on connection IDs that arrive below `retire_prior_to`, counted since it last
/// rose. An honest peer sends a few, in repeated frames.
const MIN_LATE: u32 = 128;

/// How many gaps in the sequence numbers are tolerated beyond `active_connection_id_limit`. An
/// honest peer causes fewer, because it counts up by one and issues no more than the limit.
const EXTRA_GAPS: usize = 16;

/// Watches for stateless resets (MP-108). It is told of a reset token when the token's connection
/// ID comes into use, and when it is retired.
pub(crate) trait ResetTokens {
    /// Datagrams that end in the token reset the connection from now on.
    fn add(&mut self, token: [u8; 16]);
    /// Datagrams that end in the token no longer reset the connection.
    fn remove(&mut self, token: [u8; 16]);
}

/// A connection ID the peer issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerCid {
    sequence: u64,
    cid: ConnectionId,
    /// `None` for the handshake's connection ID of a client, which has no token.
    reset_token: Option<[u8; 16]>,
}

impl PeerCid {
    pub(crate) fn cid(&self) -> &ConnectionId {
        &self.cid
    }

    /// Path 0 of a client: the server's `stateless_reset_token` parameter, which belongs to the
    /// connection ID of the handshake.
    pub(crate) fn set_handshake_token(&mut self, token: [u8; 16], tokens: &mut impl ResetTokens) {
        if self.sequence == 0 {
            self.reset_token = Some(token);
            tokens.add(token);
        }
    }

    /// True for a connection ID with this reset token (MP-108).
    pub(crate) fn is_reset_token(&self, token: [u8; 16]) -> bool {
        // Without early exit: timing must not tell how much of a guess was right (RFC 9000
        // section 10.3.1).
        let differs = |known: [u8; 16]| {
            let pairs = known.iter().zip(token);
            pairs.fold(0, |differs, (a, b)| differs | (a ^ b))
        };
        self.reset_token.is_some_and(|known| differs(known) == 0)
    }
}

/// The unused connection IDs that the peer issued for one path, and the retirements of others.
///
/// Only reset tokens of connection IDs in use count: RFC 9000 section 10.3.1 forbids looking for
/// tokens of unused or retired IDs (MP-108). So [`ResetTokens`] is told of each connection ID taken
/// into use or retired.
#[derive(Debug)]
pub(crate) struct PeerCids {
    path: PathId,
    /// Our `active_connection_id_limit`.
    limit: u32,
    /// Unused connection IDs by sequence number.
    unused: SmallVec<[PeerCid; 1]>,
    /// Connection IDs with lower sequence numbers are retired, at the latest on arrival.
    retire_prior_to: u64,
    /// One more than the highest sequence number that arrived.
    next_sequence: u64,
    /// Number of connection IDs that arrived below `retire_prior_to` since it rose.
    late: u32,
    /// `None` without pending retirements, as on most paths: this saves memory.
    pending: Option<Box<PendingRetirements>>,
    /// True if a frame in `pending` may be queued.
    queued: bool,
    abandoned: bool,
}

impl PeerCids {
    /// Bytes of memory besides itself.
    pub(crate) fn memory(&self) -> usize {
        let unused = if self.unused.spilled() {
            self.unused.capacity() * size_of::<PeerCid>()
        } else {
            0
        };
        unused + self.pending.as_ref().map_or(0, |pending| pending.memory())
    }

    /// No connection IDs. `limit` is the `active_connection_id_limit` we announced.
    pub(crate) fn new(path: PathId, limit: u64) -> Self {
        Self {
            path,
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            unused: SmallVec::new(),
            retire_prior_to: 0,
            next_sequence: 0,
            late: 0,
            pending: None,
            queued: false,
            abandoned: false,
        }
    }

    /// Path 0: the destination connection ID of the handshake, with sequence number 0. A client
    /// calls it again when the server chooses another one (RFC 9000 section 7.2).
    pub(crate) fn of_handshake(&mut self, cid: ConnectionId) -> PeerCid {
        self.note_seen(0);
        PeerCid {
            sequence: 0,
            cid,
            reset_token: None,
        }
    }

    /// Path 0 of a client: the connection ID in `preferred_address`, with sequence number 1
    /// (MP-018).
    pub(crate) fn add_preferred(&mut self, cid: ConnectionId, token: [u8; 16]) {
        self.note_seen(1);
        self.add_unused(PeerCid {
            sequence: 1,
            cid,
            reset_token: Some(token),
        });
    }

    /// True if there is an unused connection ID.
    pub(crate) fn has_unused(&self) -> bool {
        !self.unused.is_empty()
    }

    /// True if `cid` is among the unused ones.
    #[inline]
    pub(crate) fn contains(&self, cid: &ConnectionId) -> bool {
        self.unused.iter().any(|known| known.cid == *cid)
    }

    /// NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID for this path. `in_use` are the places of
    /// connection IDs in use. An ID that the peer wants retired is removed from its place; the
    /// first place then gets the next available ID.
    pub(crate) fn on_new_connection_id(
        &mut self,
        frame: &NewConnectionId,
        in_use: &mut [&mut Option<PeerCid>],
        tokens: &mut impl ResetTokens,
    ) -> Result<(), TransportError> {
        // MP-130
        if self.abandoned {
            return Ok(());
        }
        self.check(frame, in_use)?;
        let is_known = self.has_seen(frame.sequence_number);
        if frame.sequence_number >= self.retire_prior_to.max(frame.retire_prior_to) {
            self.note_seen(frame.sequence_number);
            if !is_known {
                self.add_unused(PeerCid {
                    sequence: frame.sequence_number,
                    cid: frame.connection_id,
                    reset_token: Some(frame.stateless_reset_token),
                });
                if let Some(pending) = &mut self.pending {
                    pending.unblock();
                }
            }
        } else {
            // MP-104: a late frame about a connection ID that is retired already
            self.late = self.late.saturating_add(1);
            self.queue_retirement(frame.sequence_number);
        }
        if frame.retire_prior_to > self.retire_prior_to {
            self.retire_below(frame.retire_prior_to, in_use, tokens);
        }
        if let Some(first) = in_use.first_mut().filter(|first| first.is_none()) {
            **first = self.take(tokens);
        }
        self.check_limits(in_use.iter().filter(|cid| cid.is_some()).count())
    }

    fn check(
        &self,
        frame: &NewConnectionId,
        in_use: &[&mut Option<PeerCid>],
    ) -> Result<(), TransportError> {
        let used = || in_use.iter().filter_map(|cid| cid.as_ref());
        // RFC 9000 section 19.15
        if used().any(|used| used.cid.is_empty()) {
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
        let conflict = used().chain(&self.unused).any(|known| {
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

    fn check_limits(&self, in_use: usize) -> Result<(), TransportError> {
        let limit = self.limit as usize;
        let active = in_use + self.unused.len();
        // MP-105
        let fault = if active > limit {
            Fault::ConnectionIdsBeyondLimit
        } else if self.gaps() >= limit.saturating_add(EXTRA_GAPS) {
            Fault::SequenceGaps
        } else if self.retirements() > self.max_retirements() || self.late > self.max_late() {
            // MP-107
            Fault::TooManyRetirements
        } else {
            return Ok(());
        };
        Err(fault.into())
    }

    fn gaps(&self) -> usize {
        self.pending.as_ref().map_or(0, |it| it.missing.len())
    }

    fn retirements(&self) -> usize {
        self.pending.as_ref().map_or(0, |it| it.len())
    }

    /// We answer each late ID, so their number is bounded, even if the peer acknowledges the
    /// answers. An honest peer repeats no more IDs than it has issued.
    fn max_late(&self) -> u32 {
        self.limit.saturating_mul(4).max(MIN_LATE)
    }

    fn max_retirements(&self) -> usize {
        let limit = self.limit as usize;
        limit.saturating_mul(2).max(MIN_RETIREMENTS)
    }

    /// True while one more retirement would be tolerated. If not, we do not change connection IDs
    /// ourselves (MP-107).
    pub(crate) fn may_retire(&self) -> bool {
        self.retirements() < self.max_retirements()
    }

    /// Takes the connection ID with the lowest sequence number into use.
    #[must_use]
    pub(crate) fn take(&mut self, tokens: &mut impl ResetTokens) -> Option<PeerCid> {
        let next = (!self.unused.is_empty()).then(|| self.unused.remove(0))?;
        if let Some(token) = next.reset_token {
            tokens.add(token);
        }
        Some(next)
    }

    /// Stops using a connection ID; the peer is told.
    pub(crate) fn retire(&mut self, cid: PeerCid, tokens: &mut impl ResetTokens) {
        forget_token(cid, tokens);
        self.queue_retirement(cid.sequence);
    }

    /// Asks the peer for a connection ID with PATH_CIDS_BLOCKED, unless it was asked since the last
    /// one arrived (MP-101, MP-144). Only after multipath is negotiated.
    pub(crate) fn request(&mut self) {
        // After the last sequence number there is nothing to ask for, nor a varint to ask with.
        if self.has_unused() || self.abandoned || self.next_sequence > VARINT_MAX {
            return;
        }
        let pending = self.pending.get_or_insert_default();
        pending.queue_blocked(self.next_sequence);
        self.queued = pending.is_queued();
    }

    /// Writes what is queued: retirements, and PATH_CIDS_BLOCKED.
    pub(crate) fn write_frames(&mut self, w: &mut FrameWriter<'_>, multipath: bool) {
        if !self.queued {
            return;
        }
        let pending = self.pending.as_mut();
        self.queued = pending.is_some_and(|it| !it.write_frames(w, self.path, multipath));
    }

    /// A RETIRE_CONNECTION_ID or PATH_CIDS_BLOCKED frame of this path was acknowledged or lost.
    pub(crate) fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        match delivery {
            PathDelivery::RetireConnectionId { sequence, .. } => {
                pending.on_retirement_delivery(sequence, fate);
            }
            PathDelivery::CidsBlocked { next_sequence, .. } => {
                pending.on_blocked_delivery(next_sequence, fate);
            }
            PathDelivery::NewConnectionId { .. }
            | PathDelivery::Abandon(_)
            | PathDelivery::Status { .. } => {}
        }
        self.queued |= fate == Fate::Lost && pending.is_queued();
        if pending.is_over() {
            self.pending = None;
        }
    }

    /// True if [`Self::write_frames`] has something to write.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.queued
    }

    /// The path is abandoned: all its connection IDs, those in use included, are retired at once
    /// and without frames (MP-121), and queued frames about them are dropped (MP-130).
    pub(crate) fn abandon(
        &mut self,
        in_use: impl Iterator<Item = PeerCid>,
        tokens: &mut impl ResetTokens,
    ) {
        for cid in in_use {
            forget_token(cid, tokens);
        }
        self.abandoned = true;
        self.unused.clear();
        self.pending = None;
        self.queued = false;
    }

    fn has_seen(&self, sequence: u64) -> bool {
        let pending = self.pending.as_ref();
        sequence < self.next_sequence && !pending.is_some_and(|it| it.missing.contains(sequence))
    }

    fn note_seen(&mut self, sequence: u64) {
        let next = self.next_sequence.max(self.retire_prior_to);
        if sequence > next {
            let pending = self.pending.get_or_insert_default();
            pending.missing.insert(next..sequence);
        } else if let Some(pending) = &mut self.pending {
            pending.missing.remove(sequence..sequence.saturating_add(1));
        }
        self.next_sequence = self.next_sequence.max(sequence.saturating_add(1));
    }

    fn add_unused(&mut self, cid: PeerCid) {
        let index = self
            .unused
            .partition_point(|known| known.sequence < cid.sequence);
        self.unused.insert(index, cid);
    }

    /// MP-103, RFC 9000 section 5.1.2.
    fn retire_below(
        &mut self,
        bound: u64,
        in_use: &mut [&mut Option<PeerCid>],
        tokens: &mut impl ResetTokens,
    ) {
        self.retire_prior_to = bound;
        self.late = 0;
        if let Some(pending) = &mut self.pending {
            pending.missing.remove_below(bound);
        }
        let retired = self.unused.partition_point(|known| known.sequence < bound);
        let retired: SmallVec<[PeerCid; 4]> = self.unused.drain(..retired).collect();
        for cid in retired {
            self.queue_retirement(cid.sequence);
        }
        for place in in_use {
            if let Some(cid) = place.take_if(|cid| cid.sequence < bound) {
                self.retire(cid, tokens);
            }
        }
    }

    fn queue_retirement(&mut self, sequence: u64) {
        let pending = self.pending.get_or_insert_default();
        pending.queue(sequence);
        self.queued = pending.is_queued();
    }
}

/// Stops watching for the reset token of a connection ID.
fn forget_token(cid: PeerCid, tokens: &mut impl ResetTokens) {
    if let Some(token) = cid.reset_token {
        tokens.remove(token);
    }
}

#[cfg(test)]
mod tests;
