//! Transport parameters: those we announce, and what the peer's must say of the handshake.

use std::time::Duration;

use quinn_proto::ConnectionId;

use super::setup::Role;
use crate::config::{EndpointConfig, TransportConfig};
use crate::error::{Fault, TransportError};
use crate::ids::PathId;
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
        max_udp_payload_size: endpoint.max_udp_payload_size.into(),
        initial_max_data: transport.initial_receive_window,
        initial_max_stream_data_bidi_local: transport.initial_stream_receive_window,
        initial_max_stream_data_bidi_remote: transport.initial_stream_receive_window,
        initial_max_stream_data_uni: transport.initial_stream_receive_window,
        initial_max_streams_bidi: transport.max_concurrent_bidi_streams,
        initial_max_streams_uni: transport.max_concurrent_uni_streams,
        max_ack_delay: transport.max_ack_delay,
        active_connection_id_limit: transport.active_connection_id_limit,
        initial_source_connection_id: Some(local_cid),
        max_datagram_frame_size: transport.max_datagram_frame_size(),
        grease_quic_bit: endpoint.grease_quic_bit,
        reset_stream_at: transport.reset_stream_at,
        reserved: endpoint
            .grease_transport_parameters
            .then(|| ReservedParameter::new(random.0, random.1)),
        initial_max_path_id: transport.max_concurrent_paths.checked_sub(1).map(PathId),
        min_ack_delay: transport.min_ack_delay,
        ..TransportParameters::default()
    }
}

/// The connection IDs of the first packets. Both sides announce the IDs in transport parameters, to
/// reveal changes by an attacker (RFC 9000 section 7.3).
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstCids {
    /// Our first source connection ID.
    pub(super) local: ConnectionId,
    /// Destination of the client's Initial packets, from which the Initial keys are derived.
    pub(super) initial: ConnectionId,
    /// The destination of the client's first Initial before a Retry.
    pub(super) original: ConnectionId,
    /// Client: the source of the Retry.
    pub(super) retry: Option<ConnectionId>,
    /// The peer's first source connection ID.
    pub(super) peer: Option<ConnectionId>,
}

impl FirstCids {
    pub(super) fn check(
        &self,
        role: &Role,
        peer: &TransportParameters,
    ) -> Result<(), TransportError> {
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
