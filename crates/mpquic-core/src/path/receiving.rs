//! The way in: what paths learn from datagrams and packets that arrive, apart from their frames.

use quinn_proto::Side;

use super::set::Paths;
use super::slot::PathSlot;
use crate::ids::{PathId, SpaceId};
use crate::outbox::Outbox;
use crate::packet::arrival::{Arrival, Content, Opened};

impl Paths {
    /// False for a datagram from a server address that the client did not choose (MP-086).
    #[inline]
    pub(crate) fn may_come_from(&self, arrival: &Arrival) -> bool {
        let remote = arrival.four_tuple.remote;
        let is_known = || {
            self.any(arrival.path).is_some_and(|path| {
                // Late packets may still come from the handshake's address after path 0 has left
                // it.
                path.id == PathId::ZERO && remote == self.shared.handshake_address
                    || path.knows_remote(remote)
            })
        };
        self.shared.side == Side::Server || is_known()
    }

    /// A datagram for a path arrived: its bytes raise the anti-amplification limit of the addresses
    /// it came from (RFC 9000 section 8.1).
    pub(crate) fn on_datagram_received(&mut self, arrival: &Arrival, outbox: &mut Outbox) {
        if let Some((slot, shared)) = self.slot_and_shared(arrival.path) {
            let (four_tuple, size) = (arrival.four_tuple, arrival.size);
            slot.on_datagram_received(four_tuple, size, shared.side, outbox);
        }
    }

    /// Makes sure that the path of an opened packet exists. False if the packet must be dropped; on a
    /// server also if the client was told not to migrate (RFC 9000 section 9).
    pub(crate) fn admit(&mut self, arrival: &Arrival, outbox: &mut Outbox) -> bool {
        let id = arrival.path;
        let Some(slot) = self.slot(id) else {
            return false;
        };
        if slot.path.is_some() {
            return !self.is_unwanted_migration(slot, arrival);
        }
        if !self.may_be_opened(slot) {
            return false;
        }
        let Some(cid) = self.slot_or_new(id).peer_cids.take(outbox) else {
            return false;
        };
        self.create(arrival.now, id, arrival.four_tuple, cid, outbox);
        // When the datagram was counted, the path did not exist yet: count it now.
        self.on_datagram_received(arrival, outbox);
        true
    }

    fn is_unwanted_migration(&self, slot: &PathSlot, arrival: &Arrival) -> bool {
        let path = slot.open();
        path.is_some_and(|path| self.shared.is_unwanted_migration(path, arrival))
    }

    /// A new 1-RTT packet is about to be processed; true if none with a higher number came before.
    #[inline]
    pub(crate) fn on_packet_opened(&mut self, opened: &Opened) -> bool {
        let side = self.shared.side;
        let Some(path) = self.any_mut(opened.space.path()) else {
            return false;
        };
        let is_newest = opened.packet_number >= path.space.expected_next();
        if is_newest && path.spins {
            path.on_spin(side, opened.spin);
        }
        is_newest
    }

    /// The frames of a packet were processed. If it is a 1-RTT or 0-RTT packet, it is now to be
    /// acknowledged.
    #[inline]
    pub(crate) fn on_packet_processed(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        content: &Content,
    ) {
        let Some((path, shared)) = self.any_and_shared(opened.space.path()) else {
            return;
        };
        path.counters.packets_received += 1;
        if let SpaceId::Data(_) = opened.space {
            path.last_activity = arrival.now;
            let policy = shared.ack_frequencies.policy();
            let received = &mut path.space.received;
            received.on_packet_processed(arrival, opened, content, policy);
        }
    }

    /// A 1-RTT packet was processed: its path follows a change of addresses that the packet shows.
    pub(crate) fn on_addresses(
        &mut self,
        arrival: &Arrival,
        newest_non_probing: bool,
        outbox: &mut Outbox,
    ) {
        if let Some((slot, shared)) = self.slot_and_shared(arrival.path)
            && slot.on_addresses(arrival, newest_non_probing, shared, outbox)
        {
            self.review_backups();
        }
    }
}
