//! [`ClientConfig`]: what a client needs to connect.

use std::fmt;
use std::sync::Arc;

use super::transport::TransportConfig;
use crate::crypto;
use crate::ids::FourTuple;
use crate::version::Version;

/// The configuration of a client's connections.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Transport behaviour.
    pub transport: Arc<TransportConfig>,
    /// TLS.
    pub crypto: Arc<dyn crypto::ClientCrypto>,
    /// The version of our first packets, one of the endpoint's `supported_versions`; with `None`,
    /// the oldest of them. The server can switch to another one without a further round trip, so
    /// the best choice is a version that the server certainly speaks (RFC 9368 section 2.5).
    pub version: Option<Version>,
    /// Moves path 0 to the server's preferred address, after a check of that address (RFC 9000
    /// section 9.6). On by default.
    pub use_preferred_address: bool,
    /// Asks the server for its further addresses
    /// ([`PathEvent::ServerAddresses`](crate::PathEvent::ServerAddresses),
    /// draft-munizaga-quic-alternative-server-address-01). Off by default. The application or
    /// driver decides whether to open paths to them.
    pub use_alternative_addresses: bool,
    /// Further addresses of this client and of the same server. A copy of each datagram of the
    /// first flight leaves between each pair, until the server answers: path 0 then begins between
    /// the addresses of the first answer ([`PathEvent::Migrated`](crate::PathEvent::Migrated)).
    /// With 0-RTT, no copy leaves: data must not reach two servers. Empty by default; at most
    /// [`Self::MAX_FIRST_FLIGHT`] pairs count.
    pub first_flight_from: Vec<FourTuple>,
}

impl ClientConfig {
    /// The most pairs of addresses in [`Self::first_flight_from`] that get copies.
    pub const MAX_FIRST_FLIGHT: usize = 7;

    /// A configuration with this TLS and transport, and defaults for the rest.
    pub fn new(crypto: Arc<dyn crypto::ClientCrypto>, transport: Arc<TransportConfig>) -> Self {
        Self {
            transport,
            crypto,
            version: None,
            use_preferred_address: true,
            use_alternative_addresses: false,
            first_flight_from: Vec::new(),
        }
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}
