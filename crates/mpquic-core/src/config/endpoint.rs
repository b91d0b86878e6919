//! [`EndpointConfig`]: what all connections of an endpoint have in common.

use std::ops::Deref;

use crate::cid::generator::ConnectionIds;
use crate::error::InvalidOption;
use crate::version::Version;
use crate::wire::buf::{MAX_UDP_PAYLOAD, MIN_DATAGRAM};

/// Options of an endpoint, shared by all of its connections. [`Self::build`] checks them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndpointOptions {
    /// How the connection IDs we issue are made, and with them how long they are; 8 random bytes by
    /// default. They are never empty, as multipath demands (MP-008).
    pub connection_ids: ConnectionIds,
    /// Secret that stateless reset tokens are derived from; keep it across restarts so that peers
    /// learn of them.
    pub reset_key: [u8; 32],
    /// Largest UDP payload we take; announced to peers. From 1200 to 65527, the default (RFC 9000
    /// section 18.2).
    pub max_udp_payload_size: u16,
    /// Clear the QUIC bit now and then towards peers that allow it (RFC 9287), and allow it.
    pub grease_quic_bit: bool,
    /// Announce a transport parameter without meaning, so that peers keep ignoring those they do not
    /// know (RFC 9000 section 18.1).
    pub grease_transport_parameters: bool,
    /// The versions we speak, the preferred one first; at least one. A server takes clients in any
    /// of them, and turns a connection into the first one that the client offers (RFC 9368 section
    /// 2.3). A client offers all of them.
    pub supported_versions: Vec<Version>,
}

impl EndpointOptions {
    /// Defaults with this secret for stateless reset tokens.
    pub fn new(reset_key: [u8; 32]) -> Self {
        Self {
            connection_ids: ConnectionIds::default(),
            reset_key,
            max_udp_payload_size: MAX_UDP_PAYLOAD,
            grease_quic_bit: true,
            grease_transport_parameters: true,
            supported_versions: Version::ALL.to_vec(),
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first option whose value is not what its field says.
    pub fn build(self) -> Result<EndpointConfig, InvalidOption> {
        let sizes = MIN_DATAGRAM as u16..=MAX_UDP_PAYLOAD;
        InvalidOption::unless_within("max_udp_payload_size", self.max_udp_payload_size, sizes)?;
        if self.supported_versions.is_empty() {
            let expected = "at least one version";
            return Err(InvalidOption::new("supported_versions", "[]", expected));
        }
        Ok(EndpointConfig(self))
    }
}

/// Options of an endpoint that have been checked; their fields can be read through it.
#[derive(Debug, Clone)]
pub struct EndpointConfig(EndpointOptions);

impl EndpointConfig {
    /// Defaults with this secret for stateless reset tokens. [`EndpointOptions`] are for all else.
    pub fn new(reset_key: [u8; 32]) -> Self {
        Self(EndpointOptions::new(reset_key))
    }

    /// The options, to start others from.
    pub fn options(&self) -> &EndpointOptions {
        &self.0
    }
}

impl Deref for EndpointConfig {
    type Target = EndpointOptions;

    fn deref(&self) -> &EndpointOptions {
        &self.0
    }
}
