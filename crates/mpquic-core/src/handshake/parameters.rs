//! Transport parameters: those we announce, and what the peer's must say of the handshake.

use std::time::Duration;

use quinn_proto::ConnectionId;

use super::Handshake;
use super::Step;
use super::setup::Role;
use crate::config::{EndpointConfig, TransportConfig};
use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::qlog::{self, Initiator};
use crate::wire::transport_parameters::{ReservedParameter, TransportParameters};

/// The parameters one side announces, without those only a server sends. `random` chooses what the
/// reserved one looks like.
pub(crate) fn local_parameters(
    endpoint: &EndpointConfig,
    transport: &TransportConfig,
    local_cid: ConnectionId,
    random: (u32, [u8; 8]),
) -> TransportParameters {
    TransportParameters {
        max_idle_timeout: transport.max_idle_timeout.unwrap_or(Duration::ZERO),
        max_udp_payload_size: endpoint.max_udp_payload_size.max(1200).into(),
        initial_max_data: transport.initial_receive_window,
        initial_max_stream_data_bidi_local: transport.initial_stream_receive_window,
        initial_max_stream_data_bidi_remote: transport.initial_stream_receive_window,
        initial_max_stream_data_uni: transport.initial_stream_receive_window,
        initial_max_streams_bidi: transport.max_concurrent_bidi_streams,
        initial_max_streams_uni: transport.max_concurrent_uni_streams,
        max_ack_delay: transport.valid_max_ack_delay(),
        active_connection_id_limit: transport.active_connection_id_limit.max(2),
        initial_source_connection_id: Some(local_cid),
        max_datagram_frame_size: transport.max_datagram_frame_size(),
        grease_quic_bit: endpoint.grease_quic_bit,
        reset_stream_at: transport.reset_stream_at,
        reserved: endpoint
            .grease_transport_parameters
            .then(|| ReservedParameter::new(random.0, random.1)),
        initial_max_path_id: transport.max_concurrent_paths.checked_sub(1).map(PathId),
        // draft-ietf-quic-ack-frequency-14 section 3: not above max_ack_delay
        min_ack_delay: transport
            .min_ack_delay
            .map(|delay| delay.min(transport.valid_max_ack_delay())),
        ..TransportParameters::default()
    }
}

/// The connection IDs of the first packets, which both sides announce so that nobody can change them
/// unnoticed (RFC 9000 section 7.3).
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstCids {
    /// Our first source connection ID.
    pub(super) local: ConnectionId,
    /// Destination of the client's Initial packets, which the Initial keys derive from.
    pub(super) initial: ConnectionId,
    /// The same before a Retry.
    pub(super) original: ConnectionId,
    /// Client: the source of the Retry.
    pub(super) retry: Option<ConnectionId>,
    /// The peer's first source connection ID.
    pub(super) peer: Option<ConnectionId>,
}

impl FirstCids {
    fn check(&self, role: &Role, peer: &TransportParameters) -> Result<(), TransportError> {
        if peer.initial_source_connection_id != self.peer {
            return Err(Fault::InitialSourceMismatch.into());
        }
        if matches!(role, Role::Client(_)) {
            if peer.original_destination_connection_id != Some(self.original) {
                return Err(Fault::OriginalDestinationMismatch.into());
            }
            if peer.retry_source_connection_id != self.retry {
                return Err(Fault::RetrySourceMismatch.into());
            }
        }
        Ok(())
    }
}

impl Handshake {
    /// Takes the peer's transport parameters once TLS has them; on a server, before it sends
    /// 0.5-RTT data.
    pub(super) fn take_peer_parameters(
        &mut self,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        // Until then a resumed client session shows the remembered ones (RFC 9001 section 4.6.3).
        let is_current = matches!(self.role, Role::Server(_)) || !self.session.is_handshaking();
        if self.parameters_known || !is_current {
            return Ok(());
        }
        if let Some(peer) = self.session.transport_parameters()? {
            self.check_parameters(&peer)?;
            self.parameters_known = true;
            self.resolve_zero_rtt(&peer, outbox)?;
            self.log_peer_parameters(&peer, outbox);
            self.steps.push(Step::PeerParameters(Box::new(peer)));
        }
        Ok(())
    }

    /// Checks the peer's parameters against what the handshake showed.
    fn check_parameters(&self, peer: &TransportParameters) -> Result<(), TransportError> {
        self.cids.check(&self.role, peer)?;
        self.versions.check(self.role.side(), peer)?;
        let source = peer.initial_source_connection_id;
        if peer.initial_max_path_id.is_some()
            && (source.is_none_or(|cid| cid.is_empty()) || self.cids.initial.is_empty())
        {
            // MP-009
            return Err(TransportError::new(Fault::MultipathWithoutConnectionId));
        }
        Ok(())
    }

    /// Our first connection ID.
    pub(crate) fn local_cid(&self) -> ConnectionId {
        self.cids.local
    }

    /// True if we offer multipath to the peer.
    pub(crate) fn announces_multipath(&self) -> bool {
        self.announces_multipath
    }

    /// True if we take RESET_STREAM_AT.
    pub(crate) fn takes_reset_stream_at(&self) -> bool {
        self.takes_reset_stream_at
    }

    /// Logs what we announce; a server knows it once it has chosen the version.
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
