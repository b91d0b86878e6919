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
    /// Makes the connection IDs that we issue; 8 random bytes by default. They are never empty,
    /// because multipath needs them (MP-008).
    pub connection_ids: ConnectionIds,
    /// The secret from which stateless reset tokens are derived. Keep it across restarts: only then
    /// can peers learn of a restart by a stateless reset.
    pub reset_key: [u8; 32],
    /// Largest UDP payload that we accept, announced to peers; from 1200 to 65527, which is the
    /// default (RFC 9000 section 18.2).
    pub max_udp_payload_size: u16,
    /// Allow peers to clear the QUIC bit, and clear it at random towards peers that allow it (RFC
    /// 9287).
    pub grease_quic_bit: bool,
    /// Announce a reserved transport parameter, so that peers keep ignoring unknown ones (RFC 9000
    /// section 18.1).
    pub grease_transport_parameters: bool,
    /// Limit of the memory for all connections and the driver's buffers together, in bytes; at
    /// least 1 MiB, 4 GiB by default. From three quarters on, clients must prove their address with
    /// a Retry, receive windows do not grow, and a connection above its equal share gives its peer
    /// no further credit until the application has read data. Beyond the limit, clients are
    /// refused. Granted credit stays granted, so the memory may exceed the limit for a while.
    pub memory_limit: u64,
    /// The versions we speak, the preferred one first; at least one. A server accepts clients in
    /// any of them, and switches a connection to the first one that the client offers (RFC 9368
    /// section 2.3). A client offers all of them.
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
            memory_limit: 4 << 30,
            supported_versions: Version::ALL.to_vec(),
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first option with a value that the documentation of its field does not allow.
    pub fn build(self) -> Result<EndpointConfig, InvalidOption> {
        let sizes = MIN_DATAGRAM as u16..=MAX_UDP_PAYLOAD;
        InvalidOption::unless_within("max_udp_payload_size", self.max_udp_payload_size, sizes)?;
        InvalidOption::unless_at_least("memory_limit", self.memory_limit, 1 << 20)?;
        if self.supported_versions.is_empty() {
            let expected = "at least one version";
            return Err(InvalidOption::new("supported_versions", "[]", expected));
        }
        Ok(EndpointConfig(self))
    }
}

/// Checked options of an endpoint. It dereferences to them.
#[derive(Debug, Clone)]
pub struct EndpointConfig(EndpointOptions);

impl EndpointConfig {
    /// Defaults, with this secret for stateless reset tokens. To change anything else, build it
    /// from [`EndpointOptions`].
    pub fn new(reset_key: [u8; 32]) -> Self {
        Self(EndpointOptions::new(reset_key))
    }

    /// The options it was built from, for example to build a similar configuration.
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
