//! [`Paths`]: every path ID that is not forgotten, open or not.
//!
//! Connection IDs and status are exchanged for a path before it opens, and acknowledgements after
//! it was abandoned, so a [`Slot`] outlives its [`Path`] on both ends.

use std::time::{Duration, Instant};

use quinn_proto::{ConnectionId, Side};

use super::Path;
use super::ids::PathIds;
use super::shared::Shared;
use super::status::PathStatuses;
use crate::cid::local::LocalCids;
use crate::cid::peer::PeerCids;
use crate::error::TransportErrorCode;
use crate::event::PathEvent;
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::packet::delivery::{Fate, PathDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::wire::frame::{Frame, PathAbandon};

/// The end of a path (RFC 10069 section 3.4).
#[derive(Debug)]
pub(crate) struct Abandon {
    pub(crate) error_code: TransportErrorCode,
    /// How far our PATH_ABANDON has come.
    progress: Progress,
    /// When the rest of the state may be dropped; known once the peer's PATH_ABANDON arrived.
    /// Dropping it earlier would answer a peer that does not know yet with a stateless reset.
    deadline: Option<Instant>,
}

/// Nobody has said anything about most path IDs.
static SILENCE: PathStatuses = PathStatuses::new();

/// What is known of one path ID.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) id: PathId,
    pub(crate) local_cids: LocalCids,
    pub(crate) peer_cids: PeerCids,
    statuses: Option<Box<PathStatuses>>,
    pub(crate) path: Option<Box<Path>>,
    pub(crate) abandon: Option<Box<Abandon>>,
}

impl Slot {
    fn new(id: PathId, cid_limit: u64) -> Self {
        Self {
            id,
            local_cids: LocalCids::new(id),
            peer_cids: PeerCids::new(id, cid_limit),
            statuses: None,
            path: None,
            abandon: None,
        }
    }

    /// What each side told the other about using the path.
    pub(crate) fn statuses(&self) -> &PathStatuses {
        self.statuses.as_deref().unwrap_or(&SILENCE)
    }

    /// What each side told the other about using the path.
    pub(crate) fn statuses_mut(&mut self) -> &mut PathStatuses {
        self.statuses
            .get_or_insert_with(|| Box::new(PathStatuses::new()))
    }

    /// The path, unless it was abandoned.
    pub(crate) fn open(&self) -> Option<&Path> {
        if self.abandon.is_some() {
            None
        } else {
            self.path.as_deref()
        }
    }

    /// The path, unless it was abandoned.
    pub(crate) fn open_mut(&mut self) -> Option<&mut Path> {
        if self.abandon.is_some() {
            None
        } else {
            self.path.as_deref_mut()
        }
    }

    fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        match delivery {
            PathDelivery::NewConnectionId { .. } => self.local_cids.on_delivery(delivery, fate),
            PathDelivery::RetireConnectionId { .. } | PathDelivery::CidsBlocked { .. } => {
                self.peer_cids.on_delivery(delivery, fate);
            }
            PathDelivery::Status { .. } => self.statuses_mut().on_delivery(delivery, fate),
            PathDelivery::Abandon(_) => {
                if let Some(abandon) = &mut self.abandon {
                    abandon.progress.on_fate(fate);
                }
            }
        }
    }

    /// Starts the end of the path. False if it had started.
    pub(crate) fn abandon(&mut self, error_code: TransportErrorCode) -> bool {
        if self.abandon.is_some() {
            return false;
        }
        self.abandon = Some(Box::new(Abandon {
            error_code,
            progress: Progress::Queued,
            deadline: None,
        }));
        true
    }

    /// The peer's PATH_ABANDON arrived: our issued connection IDs and the receiving half of the
    /// space stay until `deadline` (MP-124).
    pub(crate) fn on_peer_abandon(&mut self, deadline: Instant) {
        if let Some(abandon) = &mut self.abandon {
            abandon.deadline.get_or_insert(deadline);
        }
    }

    /// When the state is dropped. Not before the peer has our PATH_ABANDON, which it may wait for
    /// and which nobody else would repeat (MP-123).
    pub(crate) fn drain_deadline(&self) -> Option<Instant> {
        let abandon = self.abandon.as_ref()?;
        abandon
            .deadline
            .filter(|_| abandon.progress == Progress::Delivered)
    }
}

/// All paths of a connection.
#[derive(Debug)]
pub(crate) struct Paths {
    slots: Vec<Slot>,
    pub(crate) ids: PathIds,
    pub(crate) shared: Shared,
}

impl Paths {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            slots: Vec::new(),
            ids: PathIds::new(shared.config.max_concurrent_paths),
            shared,
        }
    }

    fn position(&self, id: PathId) -> Result<usize, usize> {
        // IDs are used in order: unless some are forgotten, each is in the place it names.
        let place = id.0 as usize;
        match self.slots.get(place) {
            Some(slot) if slot.id == id => Ok(place),
            _ => self.slots.binary_search_by_key(&id, |slot| slot.id),
        }
    }

    pub(crate) fn slot(&self, id: PathId) -> Option<&Slot> {
        self.position(id).ok().map(|index| &self.slots[index])
    }

    pub(crate) fn slot_mut(&mut self, id: PathId) -> Option<&mut Slot> {
        self.position(id).ok().map(|index| &mut self.slots[index])
    }

    /// The slot of an ID that may not have one yet. The caller has checked the limits.
    pub(crate) fn slot_or_new(&mut self, id: PathId) -> &mut Slot {
        let index = self.position(id).unwrap_or_else(|index| {
            if self.slots.len() == self.slots.capacity() {
                // As many as are likely to be needed: one for each ID that both sides allow.
                let unused = self.ids.issuable().count();
                self.slots.reserve_exact(unused.max(1));
            }
            self.slots
                .insert(index, Slot::new(id, self.shared.cid_limit));
            index
        });
        &mut self.slots[index]
    }

    pub(crate) fn remove(&mut self, id: PathId) -> Option<Slot> {
        self.position(id).ok().map(|index| self.slots.remove(index))
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn slots_mut(&mut self) -> &mut [Slot] {
        &mut self.slots
    }

    /// The path, open or abandoned.
    pub(crate) fn any(&self, id: PathId) -> Option<&Path> {
        self.slot(id)?.path.as_deref()
    }

    /// The path, open or abandoned.
    pub(crate) fn any_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.slot_mut(id)?.path.as_deref_mut()
    }

    /// The path, unless it was abandoned.
    pub(crate) fn open(&self, id: PathId) -> Option<&Path> {
        self.slot(id)?.open()
    }

    /// The path, unless it was abandoned.
    pub(crate) fn open_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.slot_mut(id)?.open_mut()
    }

    /// The path, open or abandoned, and what it shares with the others.
    pub(crate) fn any_and_shared(&mut self, id: PathId) -> Option<(&mut Path, &mut Shared)> {
        let index = self.position(id).ok()?;
        let path = self.slots[index].path.as_deref_mut()?;
        Some((path, &mut self.shared))
    }

    /// A connection ID of ours for a path, not used on any path so far (MP-095).
    pub(crate) fn new_cid(&mut self) -> Option<ConnectionId> {
        let slots = &self.slots;
        self.shared.cids.generate(|cid| is_issued(slots, cid))
    }

    /// True if the peer may open a path there. Only the client does (MP-070), and an abandoned ID is
    /// never used again (MP-037).
    pub(crate) fn may_be_opened(&self, slot: &Slot) -> bool {
        self.shared.side == Side::Server
            && self.ids.is_multipath()
            && slot.path.is_none()
            && slot.abandon.is_none()
    }

    /// True if the client seems to open the path, and its PATH_NEW_CONNECTION_ID is still on its way,
    /// perhaps over a slower path. The answer waits for it (MP-083).
    pub(crate) fn lacks_peer_cid(&self, slot: &Slot) -> bool {
        self.may_be_opened(slot) && !slot.peer_cids.has_unused()
    }

    /// True if a datagram that ends so is a stateless reset of the connection (MP-108).
    pub(crate) fn is_reset_token(&self, token: [u8; 16]) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.peer_cids.is_reset_token(token))
    }

    /// Open paths in order of ID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.slots.iter().filter_map(Slot::open)
    }

    /// Open paths in order of ID.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.slots.iter_mut().filter_map(Slot::open_mut)
    }

    /// The largest PTO of all open paths: how long the network may still deliver (MP-124, MP-146).
    pub(crate) fn largest_pto(&self) -> Duration {
        let max_ack_delay = self.peer_max_ack_delay();
        self.iter()
            .map(|path| path.recovery.pto(max_ack_delay))
            .max()
            .unwrap_or(Duration::from_secs(1))
    }

    /// The largest smoothed RTT of the usable paths.
    pub(crate) fn largest_rtt(&self) -> Duration {
        self.iter()
            .filter(|path| path.is_usable())
            .map(|path| path.recovery.rtt.snapshot())
            .filter(|rtt| rtt.samples > 0)
            .map(|rtt| rtt.smoothed)
            .max()
            .unwrap_or_default()
    }

    /// An open validated path other than `not`, preferring ones that answer.
    pub(crate) fn alternative(&self, not: PathId) -> Option<PathId> {
        let validated = || {
            self.iter()
                .filter(|path| path.id != not && path.is_usable())
        };
        let id = |path: &Path| path.id;
        validated()
            .find(|path| !path.is_suspect())
            .or_else(|| validated().next())
            .map(id)
    }

    /// True if path management has something to send.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.shared.ack_frequencies.wants_to_send()
            || self.ids.wants_to_send()
            || self.slots.iter().any(|slot| match &slot.abandon {
                Some(abandon) => abandon.progress.is_queued(),
                None => {
                    slot.local_cids.wants_to_send()
                        || slot.peer_cids.wants_to_send()
                        || slot.statuses().wants_to_send()
                }
            })
    }

    /// Writes what path management has to say.
    pub(crate) fn write_frames(
        &mut self,
        writer: &mut FrameWriter<'_>,
        carrier: PathId,
        outbox: &mut Outbox,
    ) {
        self.shared.ack_frequencies.write_frames(writer);
        self.write_slots(writer, carrier);
        let limit = self.ids.limit();
        self.ids.write_frames(writer);
        if self.shared.side == Side::Client && self.ids.limit() > limit {
            // MAX_PATH_ID leaves: our own limit does not bind any more.
            outbox.path_event(PathEvent::Available);
        }
    }

    /// Writes what is to be said of each path; MP-091 chooses the frame types.
    fn write_slots(&mut self, writer: &mut FrameWriter<'_>, carrier: PathId) {
        let multipath = self.ids.is_multipath();
        for slot in &mut self.slots {
            match &mut slot.abandon {
                // On another path: the abandoned one sends nothing more (MP-121, MP-122).
                Some(abandon) if abandon.progress.is_queued() && slot.id != carrier => {
                    let frame = Frame::PathAbandon(PathAbandon {
                        path_id: slot.id,
                        error_code: abandon.error_code,
                    });
                    if writer.try_write(&frame, PathDelivery::Abandon(slot.id)) {
                        abandon.progress = Progress::Sent;
                    }
                }
                Some(_) => {}
                None => {
                    slot.peer_cids.write_frames(writer, multipath);
                    slot.local_cids.write_frames(writer, multipath);
                    if let Some(statuses) = &mut slot.statuses {
                        statuses.write_frames(writer, slot.id);
                    }
                }
            }
        }
    }

    /// Gives back memory kept for reuse.
    pub(crate) fn trim(&mut self) {
        for path in self.slots.iter_mut().filter_map(|slot| slot.path.as_mut()) {
            path.space.trim();
            path.responses.trim();
        }
    }

    /// Routes the fate of a frame about one path.
    pub(crate) fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        if let Some(slot) = self.slot_mut(delivery.path()) {
            slot.on_delivery(delivery, fate);
        }
    }
}

/// True if `cid` is one of ours, on whichever path.
fn is_issued(slots: &[Slot], cid: &ConnectionId) -> bool {
    let mut issued = slots.iter().flat_map(|slot| slot.local_cids.active());
    issued.any(|known| known == cid)
}

#[cfg(test)]
mod tests;
