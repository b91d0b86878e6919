//! [`LocalCids`]: the connection IDs we issued for one path.

use quinn_proto::ConnectionId;
use smallvec::SmallVec;

use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::packet::delivery::{Fate, PathDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::wire::frame::{Frame, NewConnectionId, PathNewConnectionId};

/// The most connection IDs we keep active on a path, even if the peer would store more.
const MAX_ACTIVE: u64 = 8;
/// Most connection IDs of a path, including those that the peer was asked to retire and has not.
const MAX_KNOWN: usize = 16;

#[derive(Debug, Clone)]
struct Issued {
    sequence: u64,
    cid: ConnectionId,
    reset_token: [u8; 16],
    progress: Progress,
}

/// The connection IDs we issued for one path: packets with one of these IDs as destination belong
/// to the path.
///
/// The peer decides when to retire an ID; we only replace retired IDs, and may ask the peer to
/// retire all its IDs.
#[derive(Debug)]
pub(crate) struct LocalCids {
    path: PathId,
    /// The connection IDs that the peer may use, by sequence number.
    active: SmallVec<[Issued; 1]>,
    next_sequence: u64,
    /// The peer is to retire those with a smaller sequence number.
    retire_prior_to: u64,
    /// True if an ID of `active` may be queued.
    queued: bool,
    abandoned: bool,
}

impl LocalCids {
    /// Bytes of memory besides itself.
    pub(crate) fn memory(&self) -> usize {
        if self.active.spilled() {
            self.active.capacity() * size_of::<Issued>()
        } else {
            0
        }
    }

    /// No connection IDs; the first one issued gets sequence number 0 (MP-092).
    pub(crate) fn new(path: PathId) -> Self {
        Self {
            path,
            active: SmallVec::new(),
            next_sequence: 0,
            retire_prior_to: 0,
            queued: false,
            abandoned: false,
        }
    }

    /// Adds a connection ID that the peer learns without a frame: that of the handshake, with
    /// sequence number 0, or after it that of preferred_address, with 1 (RFC 9000 section 5.1.1).
    pub(crate) fn add_announced(&mut self, cid: ConnectionId, reset_token: [u8; 16]) {
        self.push(cid, reset_token, Progress::Delivered);
    }

    /// Adds a connection ID and queues it for the peer. Returns its sequence number.
    pub(crate) fn issue(&mut self, cid: ConnectionId, reset_token: [u8; 16]) -> u64 {
        self.queued = true;
        self.push(cid, reset_token, Progress::Queued)
    }

    fn push(&mut self, cid: ConnectionId, reset_token: [u8; 16], progress: Progress) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.active.push(Issued {
            sequence,
            cid,
            reset_token,
            progress,
        });
        sequence
    }

    /// Number of connection IDs to issue until the peer holds `target` of them. The caller keeps
    /// `target` within the peer's `active_connection_id_limit`, which counts per path ID (MP-016);
    /// a `target` above 8 counts as 8. An abandoned path gets no replacements (MP-100).
    pub(crate) fn wanted(&self, target: u64) -> usize {
        if self.abandoned {
            return 0;
        }
        let target = usize::try_from(target.min(MAX_ACTIVE)).unwrap_or(usize::MAX);
        let replaced = self
            .active
            .iter()
            .filter(|i| i.sequence < self.retire_prior_to);
        let kept = self.active.len() - replaced.count();
        let room = MAX_KNOWN.saturating_sub(self.active.len());
        target.saturating_sub(kept).min(room)
    }

    /// Replaces all IDs of the peer: newly issued IDs ask the peer to retire the old ones, and may
    /// exceed its limit until then (RFC 9000 section 5.1.1). The caller issues the
    /// [`wanted`](Self::wanted) number.
    pub(crate) fn replace(&mut self) {
        self.retire_prior_to = self.next_sequence;
    }

    /// RETIRE_CONNECTION_ID or PATH_RETIRE_CONNECTION_ID for this path, in a packet addressed to
    /// `destination`. Returns the connection ID, for which no more packets are routed, or `None`
    /// for an ID retired before.
    pub(crate) fn on_retire(
        &mut self,
        sequence: u64,
        destination: &ConnectionId,
    ) -> Result<Option<ConnectionId>, TransportError> {
        // MP-106, RFC 9000 section 19.16
        if sequence >= self.next_sequence {
            return Err(Fault::RetiredNeverIssued.into());
        }
        let Some(index) = self.active.iter().position(|i| i.sequence == sequence) else {
            return Ok(None);
        };
        // MP-106, RFC 9000 section 19.16; this also covers zero-length connection IDs
        if self.active[index].cid == *destination {
            return Err(Fault::RetiredItself.into());
        }
        Ok(Some(self.active.remove(index).cid))
    }

    /// Checks PATH_CIDS_BLOCKED. An outdated one is no fault (MP-144).
    pub(crate) fn on_cids_blocked(&self, next_sequence: u64) -> Result<(), TransportError> {
        // MP-143
        if next_sequence > self.next_sequence {
            return Err(Fault::ConnectionIdsBlockedAhead.into());
        }
        Ok(())
    }

    /// Writes what is queued: PATH_NEW_CONNECTION_ID once multipath is negotiated, else (path 0
    /// only) NEW_CONNECTION_ID (MP-091).
    pub(crate) fn write_frames(&mut self, w: &mut FrameWriter<'_>, multipath: bool) {
        if !self.queued {
            return;
        }
        for issued in self.active.iter_mut().filter(|i| i.progress.is_queued()) {
            let body = NewConnectionId {
                sequence_number: issued.sequence,
                // Never above the frame's own number (RFC 9000 section 19.15).
                retire_prior_to: self.retire_prior_to.min(issued.sequence),
                connection_id: issued.cid,
                stateless_reset_token: issued.reset_token,
            };
            let frame = if multipath {
                Frame::PathNewConnectionId(PathNewConnectionId {
                    path_id: self.path,
                    new_connection_id: body,
                })
            } else {
                Frame::NewConnectionId(body)
            };
            let delivery = PathDelivery::NewConnectionId {
                path: self.path,
                sequence: issued.sequence,
            };
            if !w.try_write(&frame, delivery) {
                return;
            }
            issued.progress = Progress::Sent;
        }
        self.queued = false;
    }

    /// A NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID frame of this path was acknowledged or lost.
    pub(crate) fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        let PathDelivery::NewConnectionId { sequence, .. } = delivery else {
            return;
        };
        if self.abandoned {
            return;
        }
        if let Some(issued) = self.active.iter_mut().find(|i| i.sequence == sequence) {
            issued.progress.on_fate(fate);
            self.queued |= issued.progress.is_queued();
        }
    }

    /// True if [`Self::write_frames`] has something to write.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.queued
    }

    /// The connection IDs the peer may use.
    pub(crate) fn active(&self) -> impl ExactSizeIterator<Item = &ConnectionId> {
        self.active.iter().map(|issued| &issued.cid)
    }

    /// The path is abandoned: no more connection IDs are announced (MP-130), but packets to the
    /// existing ones are received until [`Self::drain`] (MP-124).
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
        self.queued = false;
    }

    /// The state of the path is dropped: returns the connection IDs, for which no more packets are
    /// routed.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.abandon();
        self.active.drain(..).map(|issued| issued.cid)
    }
}

#[cfg(test)]
mod tests;
