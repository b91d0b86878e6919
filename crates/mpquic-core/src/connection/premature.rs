//! 1-RTT packets that overtook what it takes to handle them: the end of the handshake, or the
//! connection ID to answer with on the path they open.

use super::Connection;
use crate::error::TransportError;
use crate::ids::PathId;
use crate::packet::arrival::Arrival;
use crate::qlog::DropReason;
use crate::recorder::Dropped;
use crate::wire::header::ProtectedPacket;

/// Packets kept at a time.
const MAX_PREMATURE: usize = 16;

impl Connection {
    /// True if packets of this path cannot be handled yet.
    pub(super) fn is_premature(&self, path: PathId) -> bool {
        // RFC 9001 section 5.7: no 1-RTT packet is processed before the handshake is complete.
        !self.handshake.complete || self.lacks_peer_cid(path)
    }

    /// True if the client seems to open the path, and its PATH_NEW_CONNECTION_ID is still on its way,
    /// perhaps over a slower path. The answer waits for it (MP-083).
    fn lacks_peer_cid(&self, path: PathId) -> bool {
        self.paths
            .slot(path)
            .is_some_and(|slot| self.may_be_opened(slot) && !slot.peer_cids.has_unused())
    }

    /// Keeps a packet if there is room.
    pub(super) fn keep_premature(&mut self, arrival: &Arrival, packet: &ProtectedPacket) {
        if self.premature.len() < MAX_PREMATURE {
            self.premature.push((*arrival, packet.clone()));
        } else {
            let seen = Dropped::new(&packet.header, packet.data.len());
            self.drop_packet(arrival, seen, DropReason::KeyUnavailable);
        }
    }

    /// Handles the packets that can be handled by now.
    pub(super) fn handle_premature(&mut self) -> Result<(), TransportError> {
        let mut index = 0;
        while let Some((arrival, _)) = self.premature.get(index) {
            if self.is_premature(arrival.path) {
                index += 1;
            } else {
                let (arrival, mut packet) = self.premature.remove(index);
                self.handle_one_rtt(&arrival, &mut packet)?;
            }
        }
        Ok(())
    }
}
