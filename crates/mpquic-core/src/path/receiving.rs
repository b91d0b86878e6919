//! The way in: news for paths after a packet was processed, apart from its frames.

use super::set::Paths;
use crate::ids::SpaceId;
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
            self.on_addresses(arrival, opened.is_newest && content.non_probing, outbox);
        }
        self.shared.take_address_validated()
    }

    fn on_addresses(&mut self, arrival: &Arrival, newest_non_probing: bool, outbox: &mut Outbox) {
        if let Some((slot, shared)) = self.slot_and_shared(arrival.path)
            && slot.on_addresses(arrival, newest_non_probing, shared, outbox)
        {
            self.review_backups();
        }
    }
}
