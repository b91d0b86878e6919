//! The way in: what paths are asked when a datagram or a 1-RTT packet arrives.

use bytes::Bytes;
use quinn_proto::Side;

use super::set::Paths;
use super::slot::PathSlot;
use crate::error::TransportError;
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::packet::arrival::Arrival;
use crate::qlog::DropReason;
use crate::recovery::PacketNumberSpace;
use crate::wire::frame::{Frame, FrameIter, PathNewConnectionId};

/// Where a 1-RTT packet belongs.
#[derive(Debug)]
pub(crate) enum Destination<'a> {
    /// To a path.
    Path(&'a PacketNumberSpace),
    /// A path that the packet may open.
    NewPath,
    /// A path whose PATH_NEW_CONNECTION_ID has not arrived yet (MP-083), unless the packet
    /// [brings](brings_cid) the connection ID.
    Later,
    /// The packet must be dropped.
    Nowhere(DropReason),
}

impl Paths {
    /// A datagram for a path arrived. Its bytes raise the anti-amplification limit of its sender
    /// (RFC 9000 section 8.1). False for a datagram from a server address that the client did not
    /// choose; the datagram must be dropped (MP-086).
    pub(crate) fn on_datagram(&mut self, arrival: &Arrival, outbox: &mut Outbox) -> bool {
        let may_come = self.shared.side == Side::Server || self.is_chosen(arrival);
        if may_come && let Some((slot, shared)) = self.slot_and_shared(arrival.path) {
            let (four_tuple, size) = (arrival.four_tuple, arrival.size);
            slot.on_datagram_received(four_tuple, size, shared.side, outbox);
        }
        may_come
    }

    fn is_chosen(&self, arrival: &Arrival) -> bool {
        let remote = arrival.four_tuple.remote;
        if self.shared.first_flight.goes_to(remote) {
            return true;
        }
        self.any(arrival.path).is_some_and(|path| {
            // Late packets may still come from the handshake's address after path 0 has left it.
            path.id == PathId::ZERO && remote == self.shared.handshake_address
                || path.knows_remote(remote)
        })
    }

    /// Where a 1-RTT packet belongs.
    #[inline]
    pub(crate) fn destination(&self, arrival: &Arrival) -> Destination<'_> {
        let Some(slot) = self.slot(arrival.path) else {
            return Destination::Nowhere(DropReason::ConnectionUnknown);
        };
        let open = slot.open();
        let is_unwanted = open.is_some_and(|path| {
            (self.shared).is_unwanted_migration(&path.tuple.four_tuple, arrival)
        });
        match slot.path.as_deref() {
            // RFC 9000 section 9: the client was told not to migrate.
            Some(_) if is_unwanted => Destination::Nowhere(DropReason::Rejected),
            Some(path) => Destination::Path(&path.space),
            None if self.lacks_peer_cid(arrival.path) => Destination::Later,
            None => Destination::NewPath,
        }
    }

    /// Opens the path that an authentic packet is the first of. False if the packet must be
    /// dropped.
    pub(crate) fn admit(
        &mut self,
        arrival: &Arrival,
        payload: &Bytes,
        outbox: &mut Outbox,
    ) -> Result<bool, TransportError> {
        let id = arrival.path;
        if self.lacks_peer_cid(id) {
            self.take_peer_cids(id, payload, outbox)?;
        }
        if !self.slot(id).is_some_and(|slot| self.may_be_opened(slot)) {
            return Ok(false);
        }
        let Some(cid) = self.slot_or_new(id).peer_cids.take(outbox) else {
            return Ok(false);
        };
        self.create(arrival.now, id, arrival.four_tuple, cid, outbox);
        // When the datagram was counted, the path did not exist yet: count it now.
        Ok(self.on_datagram(arrival, outbox))
    }

    /// Takes the connection IDs that a packet brings for its own path, before all else in it.
    fn take_peer_cids(
        &mut self,
        id: PathId,
        payload: &Bytes,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        for new in peer_cids(payload, id) {
            let taken = self.on_path_new_connection_id(&new, outbox);
            let frame_type = Frame::PathNewConnectionId(new).frame_type();
            taken.map_err(|error| error.in_frame(frame_type))?;
        }
        Ok(())
    }

    /// True if the peer may open this path. Only the client opens paths (MP-070), and an abandoned
    /// ID is never used again (MP-037).
    fn may_be_opened(&self, slot: &PathSlot) -> bool {
        self.shared.side == Side::Server
            && self.ids.is_multipath()
            && slot.path.is_none()
            && slot.abandon.is_none()
    }

    /// True if the client seems to open the path, but its PATH_NEW_CONNECTION_ID is still on its
    /// way, perhaps over a slower path. The packet has to wait for it (MP-083).
    pub(crate) fn lacks_peer_cid(&self, id: PathId) -> bool {
        let lacks = |slot: &PathSlot| self.may_be_opened(slot) && !slot.peer_cids.has_unused();
        self.slot(id).is_some_and(lacks)
    }
}

/// The connection IDs that a packet brings for a path.
fn peer_cids(payload: &Bytes, id: PathId) -> impl Iterator<Item = PathNewConnectionId> {
    FrameIter::new(payload.clone(), true).filter_map(move |frame| match frame {
        Ok(Frame::PathNewConnectionId(new)) if new.path_id == id => Some(new),
        _ => None,
    })
}

/// True if a packet brings a connection ID for answers on its own path. After the client has left
/// all other paths, no other packet can bring the ID.
pub(crate) fn brings_cid(payload: &Bytes, id: PathId) -> bool {
    peer_cids(payload, id).next().is_some()
}
