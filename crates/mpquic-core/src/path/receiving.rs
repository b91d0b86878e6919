//! What paths learn from packets that arrive, apart from their frames.

use quinn_proto::Side;

use super::set::Paths;
use crate::ids::{PathId, SpaceId};
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
}
