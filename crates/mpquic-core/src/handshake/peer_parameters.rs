//! The peer's transport parameters: taken from TLS, checked, logged.

use super::setup::Role;
use super::state::{Handshake, Progress, Step};
use crate::error::{Fault, TransportError};
use crate::outbox::Outbox;
use crate::qlog::{self, Initiator};
use crate::wire::transport_parameters::TransportParameters;

impl Handshake {
    /// Handles the peer's transport parameters from TLS; on a server, before 0.5-RTT data.
    pub(super) fn take_peer_parameters(
        &mut self,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        // Before, a resumed session of a client has only the remembered ones (RFC 9001 section
        // 4.6.3).
        let is_current = matches!(self.role, Role::Server(_)) || !self.session.is_handshaking();
        if self.progress != Progress::Started || !is_current {
            return Ok(());
        }
        if let Some(peer) = self.session.transport_parameters()? {
            self.check_parameters(&peer)?;
            self.progress = Progress::ParametersKnown;
            self.resolve_zero_rtt(&peer, outbox)?;
            self.log_peer_parameters(&peer, outbox);
            self.steps.push_back(Step::PeerParameters(Box::new(peer)));
        }
        Ok(())
    }

    /// Checks the peer's parameters against what was seen in the handshake.
    fn check_parameters(&self, peer: &TransportParameters) -> Result<(), TransportError> {
        self.cids.check(&self.role, peer)?;
        self.versions.check(self.role.side(), peer)?;
        let source = peer.initial_source_connection_id;
        if peer.initial_max_path_id.is_some()
            && (source.is_none_or(|cid| cid.is_empty()) || self.cids.initial.is_empty())
        {
            // MP-009
            return Err(Fault::MultipathWithoutConnectionId.into());
        }
        Ok(())
    }

    /// True if we offer multipath to the peer.
    pub(crate) fn announces_multipath(&self) -> bool {
        self.announces_multipath
    }

    /// Logs our announced parameters; a server knows them after choosing the version.
    pub(super) fn log_local_parameters(&self, outbox: &mut Outbox) {
        if let Some(parameters) = &self.local_parameters {
            outbox.log.event(|| qlog::Event::ParametersSet {
                initiator: Initiator::Local,
                parameters,
            });
        }
    }

    fn log_peer_parameters(&self, peer: &TransportParameters, outbox: &mut Outbox) {
        outbox.log.event(|| qlog::Event::ParametersSet {
            initiator: Initiator::Remote,
            parameters: peer,
        });
        let local = self.local_parameters.as_deref();
        outbox.log.event(|| qlog::Event::VersionChosen {
            local: local.and_then(|local| local.version_information.as_ref()),
            peer: peer.version_information.as_ref(),
            version: self.versions.current(),
        });
    }
}
