//! Transport parameters of the peer that concern paths.

use quinn_proto::Side;

use super::set::Paths;
use super::shared::Peer;
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::wire::transport_parameters::TransportParameters;

impl Paths {
    /// Handles the peer's parameters. Multipath takes effect only if we announced it, too; a server
    /// whose client uses zero-length connection IDs does not (MP-010).
    pub(crate) fn set_peer_parameters(
        &mut self,
        peer: &TransportParameters,
        announces_multipath: bool,
        outbox: &mut Outbox,
    ) {
        let offered = peer.initial_max_path_id.filter(|_| announces_multipath);
        self.ids.set_peer_parameter(offered);
        self.shared.ack_frequencies.set_peer_parameters(peer);
        if self.shared.side == Side::Client {
            self.shared.preferred = peer.preferred_address.clone().map(Box::new);
        }
        self.shared.peer = Peer::from(peer);
        let Some(slot) = self.slot_mut(PathId::ZERO) else {
            return;
        };
        if let Some(path) = &mut slot.path {
            path.mtu.limit_to(peer.max_udp_payload_size);
            path.report_mtu(outbox);
        }
        if let Some(token) = peer.stateless_reset_token {
            slot.set_handshake_token(token, outbox);
        }
        // RFC 9000 section 5.1.1, MP-018
        if let Some(preferred) = &peer.preferred_address {
            let (cid, token) = (preferred.connection_id, preferred.stateless_reset_token);
            slot.peer_cids.add_preferred(cid, token);
        }
        // MP-071: the client can then open a path right after its handshake.
        if self.shared.side == Side::Server {
            self.issue_cids(outbox);
        }
    }
}
