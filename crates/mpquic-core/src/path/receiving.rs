//! What paths learn from packets that arrive, whatever their frames say.

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
                // Packets from the handshake's address may be late once path 0 has left it.
                path.id == PathId::ZERO && remote == self.shared.handshake_address
                    || path.knows_remote(remote)
            })
        };
        self.shared.side == Side::Server || is_known()
    }

    /// A 1-RTT packet is new and may be processed; true if none with a higher number came before.
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

    /// The frames of a packet were processed; those of 1-RTT and 0-RTT are acknowledged from here.
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
