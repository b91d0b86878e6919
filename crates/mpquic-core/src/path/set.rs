//! [`Paths`]: every path ID that is not forgotten, open or not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

use super::advisory_frame_limit::AdvisoryFrameLimit;
use super::ids::PathIds;
use super::shared::Shared;
use super::slot::PathSlot;
use super::{PACKET_OVERHEAD, Path};
use crate::event::{ClosePathError, PathEvent};
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::wire::buf::MIN_DATAGRAM;

/// All paths of a connection.
#[derive(Debug)]
pub(crate) struct Paths {
    slots: Vec<PathSlot>,
    pub(super) advisory_frames: AdvisoryFrameLimit,
    pub(crate) ids: PathIds,
    pub(crate) shared: Shared,
}

impl Paths {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            slots: Vec::new(),
            advisory_frames: AdvisoryFrameLimit::new(),
            ids: PathIds::new(shared.config.max_concurrent_paths),
            shared,
        }
    }

    /// Bytes of memory besides itself.
    pub(crate) fn memory(&self) -> u64 {
        let slots = self.slots.iter().map(PathSlot::memory).sum::<usize>();
        let addresses = self.shared.server_addresses.memory();
        (slots + self.slots.capacity() * size_of::<PathSlot>() + addresses) as u64
    }

    pub(super) fn position(&self, id: PathId) -> Result<usize, usize> {
        // IDs are used in order, so unless some are forgotten, each slot stands at the index of its
        // ID.
        let place = id.0 as usize;
        match self.slots.get(place) {
            Some(slot) if slot.id == id => Ok(place),
            _ => self.slots.binary_search_by_key(&id, |slot| slot.id),
        }
    }

    pub(crate) fn slot(&self, id: PathId) -> Option<&PathSlot> {
        self.position(id).ok().map(|index| &self.slots[index])
    }

    pub(super) fn slot_mut(&mut self, id: PathId) -> Option<&mut PathSlot> {
        self.position(id).ok().map(|index| &mut self.slots[index])
    }

    /// The slot of an ID, made for a new one. The caller has checked the limits.
    pub(super) fn slot_or_new(&mut self, id: PathId) -> &mut PathSlot {
        let index = self.position(id).unwrap_or_else(|index| {
            if self.slots.len() == self.slots.capacity() {
                // Room for the slots likely to be needed: one per ID within both sides' limits.
                let unused = self.ids.issuable().count();
                self.slots.reserve_exact(unused.max(1));
            }
            self.slots
                .insert(index, PathSlot::new(id, self.shared.cid_limit));
            index
        });
        &mut self.slots[index]
    }

    pub(super) fn remove(&mut self, id: PathId) -> Option<PathSlot> {
        self.position(id).ok().map(|index| self.slots.remove(index))
    }

    pub(crate) fn slots(&self) -> &[PathSlot] {
        &self.slots
    }

    pub(super) fn slots_mut(&mut self) -> &mut [PathSlot] {
        &mut self.slots
    }

    /// The index of the first path, open or abandoned, from `index` on. Most slots may belong to
    /// paths never opened.
    pub(crate) fn next_path(&self, index: usize) -> Option<usize> {
        let mut rest = self.slots.get(index..)?.iter();
        Some(index + rest.position(|slot| slot.path.is_some())?)
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

    /// Whether the application may abandon a path.
    pub(crate) fn may_close(&self, id: PathId) -> Result<(), ClosePathError> {
        self.open(id).ok_or(ClosePathError::NoSuchPath)?;
        let mut open = self.iter();
        if open.any(|path| path.id != id) {
            Ok(())
        } else {
            Err(ClosePathError::LastPath)
        }
    }

    /// The path, unless it was abandoned.
    pub(crate) fn open_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.slot_mut(id)?.open_mut()
    }

    /// The path, open or abandoned, and what all paths share.
    pub(super) fn any_and_shared(&mut self, id: PathId) -> Option<(&mut Path, &mut Shared)> {
        let index = self.position(id).ok()?;
        let path = self.slots[index].path.as_deref_mut()?;
        Some((path, &mut self.shared))
    }

    /// The slot of a path ID, and what all paths share.
    pub(super) fn slot_and_shared(&mut self, id: PathId) -> Option<(&mut PathSlot, &mut Shared)> {
        let index = self.position(id).ok()?;
        Some((&mut self.slots[index], &mut self.shared))
    }

    /// The slot at this index, and the state shared by all paths.
    pub(super) fn slot_at_and_shared(&mut self, index: usize) -> (&mut PathSlot, &mut Shared) {
        (&mut self.slots[index], &mut self.shared)
    }

    /// Destination connection ID of Initial and Handshake packets.
    pub(crate) fn handshake_destination(&self) -> Option<ConnectionId> {
        self.any(PathId::ZERO)?.destination(None).copied()
    }

    /// Sets the destination connection ID of the handshake's packets.
    pub(crate) fn set_handshake_cid(&mut self, cid: ConnectionId) {
        if let Some(slot) = self.slot_mut(PathId::ZERO) {
            slot.set_handshake_cid(cid);
        }
    }

    /// A new connection ID of ours that is not used on any path (MP-095).
    pub(super) fn new_cid(&mut self) -> Option<ConnectionId> {
        let slots = &self.slots;
        self.shared.cids.generate(|cid| is_issued(slots, cid))
    }

    /// True if a datagram that ends with this token is a stateless reset of the connection
    /// (MP-108).
    pub(crate) fn is_reset_token(&self, token: [u8; 16]) -> bool {
        self.slots.iter().any(|slot| slot.is_reset_token(token))
    }

    /// The handshake is complete: PATH_ACK takes the place of ACK, and clients that want to know
    /// further addresses of the server are told.
    pub(crate) fn on_handshake_complete(&mut self) {
        self.shared.handshake_complete = true;
        if self.shared.peer.alternative_address {
            self.shared.server_addresses.on_wanted();
        }
    }

    /// The handshake is confirmed: who could not open a path before tries again, and a client
    /// probes the address the server would rather be used at.
    pub(crate) fn on_handshake_confirmed(&mut self, now: Instant, outbox: &mut Outbox) {
        self.shared.handshake_confirmed = true;
        if self.ids.is_multipath() {
            outbox.path_event(PathEvent::Available);
        }
        if let Some((slot, shared)) = self.slot_and_shared(PathId::ZERO) {
            slot.prefer_address(now, shared, outbox);
        }
    }

    /// Open paths in order of ID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.slots.iter().filter_map(PathSlot::open)
    }

    /// Open paths in order of ID.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.slots.iter_mut().filter_map(PathSlot::open_mut)
    }

    /// Bytes for frames in the largest packet that every usable path carries.
    pub(crate) fn smallest_frame_room(&self) -> usize {
        let smallest = self.frame_rooms().min();
        smallest.unwrap_or(MIN_DATAGRAM - PACKET_OVERHEAD)
    }

    /// Bytes for frames in the largest packet of any usable path; `None` without a usable path.
    pub(crate) fn largest_frame_room(&self) -> Option<usize> {
        self.frame_rooms().max()
    }

    fn frame_rooms(&self) -> impl Iterator<Item = usize> {
        let usable = self.iter().filter(|path| path.is_usable());
        usable.map(Path::frame_room)
    }

    /// The largest PTO of all open paths. It tells how long packets may still arrive (MP-124,
    /// MP-146).
    pub(crate) fn largest_pto(&self) -> Duration {
        let max_ack_delay = self.peer_max_ack_delay();
        self.iter()
            .map(|path| path.recovery.pto(max_ack_delay))
            .max()
            .unwrap_or(Duration::from_secs(1))
    }

    /// The peer's addresses that are validated.
    pub(crate) fn validated_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let validated = self.iter().filter(|path| path.is_validated());
        validated.map(|path| path.four_tuple().remote)
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

    /// An open validated path other than `not`, preferably an answering one.
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

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        for path in self.slots.iter_mut().filter_map(|slot| slot.path.as_mut()) {
            path.space.trim();
            path.responses.trim();
        }
    }
}

/// True if we issued `cid`, for whichever path.
fn is_issued(slots: &[PathSlot], cid: &ConnectionId) -> bool {
    let mut issued = slots.iter().flat_map(|slot| slot.local_cids.active());
    issued.any(|known| known == cid)
}

#[cfg(test)]
mod tests;
