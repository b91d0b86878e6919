//! The way in: news for paths after a packet was processed, apart from its frames.

use super::set::Paths;
use crate::congestion::Controller as _;
use crate::event::PathEvent;
use crate::ids::{PathId, SpaceId};
use crate::outbox::Outbox;
use crate::packet::arrival::{Arrival, Content, Opened};

impl Paths {
    /// The frames of a packet were processed. For a 1-RTT or 0-RTT packet, notes the
    /// acknowledgement to send, and follows a change of addresses. True once the peer has proven
    /// another address of its own.
    #[inline]
    pub(crate) fn on_packet_processed(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        content: &Content,
        outbox: &mut Outbox,
    ) -> bool {
        let side = self.shared.side;
        let Some((path, shared)) = self.any_and_shared(opened.space.path()) else {
            return false;
        };
        path.counters.packets_received += 1;
        let SpaceId::Data(_) = opened.space else {
            return false;
        };
        if opened.is_newest && path.spins {
            path.on_spin(side, opened.spin);
        }
        path.last_activity = arrival.now;
        let policy = shared.ack_frequencies.policy();
        let received = &mut path.space.received;
        received.on_packet_processed(arrival, opened, content, policy);
        if opened.shows_addresses() {
            let newest_non_probing = opened.is_newest && content.non_probing;
            if let Some((slot, shared)) = self.slot_and_shared(arrival.path)
                && slot.on_addresses(arrival, newest_non_probing, shared, outbox)
            {
                self.review_backups();
            }
        }
        self.shared.take_address_validated()
    }

    /// Client: an authentic packet of the server arrived, the first one if there are still copies
    /// of the first flight. Path 0 begins between the packet's addresses, and the copies end.
    pub(crate) fn on_server_packet(&mut self, arrival: &Arrival, outbox: &mut Outbox) {
        let mut others = self.shared.first_flight.end().into_iter();
        let Some(four_tuple) = others.find(|other| other.matches(&arrival.four_tuple)) else {
            return;
        };
        self.shared.handshake_address = four_tuple.remote;
        let initial_mtu = self.shared.config.initial_mtu;
        let Some(path) = self.open_mut(PathId::ZERO) else {
            return;
        };
        path.tuple.four_tuple = four_tuple;
        path.unknown = None;
        outbox
            .controller
            .on_path_opened(path.id, arrival.now, initial_mtu);
        path.resume(arrival.now, outbox);
        path.report_tuple(outbox);
        outbox.path_event(PathEvent::Migrated(path.id, four_tuple));
    }
}
