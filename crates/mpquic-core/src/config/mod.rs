//! Configuration of endpoints and connections.

use std::fmt;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{StdSystemTime, TimeSource, TokenStore};

use crate::crypto;
use crate::version::Version;

mod transport;

pub use crate::cid::generator::{ConnectionIds, InvalidConnectionIdLength};
pub(crate) use transport::MAX_ACK_DELAY;
pub use transport::{AckFrequencyConfig, TransportConfig};

/// Parameters of an endpoint, shared by all of its connections.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// How the connection IDs we issue are made, and with them how long they are; 8 random bytes by
    /// default. They are never empty, as multipath demands (MP-008).
    pub connection_ids: ConnectionIds,
    /// Secret that stateless reset tokens are derived from; keep it across restarts so that peers
    /// learn of them.
    pub reset_key: [u8; 32],
    /// Largest UDP payload we take; announced to peers. At least 1200.
    pub max_udp_payload_size: u16,
    /// Clear the QUIC bit now and then towards peers that allow it (RFC 9287), and allow it.
    pub grease_quic_bit: bool,
    /// Announce a transport parameter without meaning, so that peers keep ignoring those they do not
    /// know (RFC 9000 section 18.1).
    pub grease_transport_parameters: bool,
    /// The versions we speak, the preferred one first. A server takes clients in any of them, and
    /// turns a connection into the first one that the client offers (RFC 9368 section 2.3). A client
    /// offers all of them. If there is none, version 1 is meant.
    pub supported_versions: Vec<Version>,
}

impl EndpointConfig {
    /// Defaults with this secret for stateless reset tokens.
    pub fn new(reset_key: [u8; 32]) -> Self {
        Self {
            connection_ids: ConnectionIds::default(),
            reset_key,
            max_udp_payload_size: 65527,
            grease_quic_bit: true,
            grease_transport_parameters: true,
            supported_versions: Version::ALL.to_vec(),
        }
    }
}

/// What a client needs to connect.
#[derive(Clone)]
pub struct ClientConfig {
    /// Transport behaviour.
    pub transport: Arc<TransportConfig>,
    /// TLS.
    pub crypto: Arc<dyn crypto::ClientCrypto>,
    /// Where NEW_TOKEN tokens are kept between connections; `None` keeps none. Tokens of versions
    /// other than 1 have the version after the server's name in their key, as in `host v2`.
    pub token_store: Option<Arc<dyn TokenStore>>,
    /// The version of our first packets, one of [`EndpointConfig::supported_versions`]; `None` takes
    /// the oldest of them. The server may choose another one without a further round trip, so best
    /// is one that it is sure to know (RFC 9368 section 2.5).
    pub version: Option<Version>,
    /// Move path 0 to the server's preferred address, if it has one that works (RFC 9000 section
    /// 9.6). On by default.
    pub use_preferred_address: bool,
}

impl ClientConfig {
    /// Joins TLS and transport.
    pub fn new(crypto: Arc<dyn crypto::ClientCrypto>, transport: Arc<TransportConfig>) -> Self {
        Self {
            transport,
            crypto,
            token_store: None,
            version: None,
            use_preferred_address: true,
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

/// What a server needs to accept connections.
#[derive(Clone)]
pub struct ServerConfig {
    /// Transport behaviour.
    pub transport: Arc<TransportConfig>,
    /// TLS.
    pub crypto: Arc<dyn crypto::ServerCrypto>,
    /// Secret that seals Retry and NEW_TOKEN tokens.
    pub token_key: [u8; 32],
    /// How long a Retry token is good for.
    pub retry_token_lifetime: Duration,
    /// How long a NEW_TOKEN token is good for; zero sends none.
    pub token_lifetime: Duration,
    /// The wall clock tokens are dated with, so that they survive a restart.
    pub time_source: Arc<dyn TimeSource>,
    /// Take address changes of clients (RFC 9000 section 9).
    pub migration: bool,
    /// An IPv4 address of this server, and of it alone, that clients are asked to move to from the
    /// address they connected to, such as one that many servers share (RFC 9000 section 9.6).
    /// Datagrams that arrive there must show it as their local address.
    pub preferred_address_v4: Option<SocketAddrV4>,
    /// The same for clients that use IPv6.
    pub preferred_address_v6: Option<SocketAddrV6>,
    /// Connection attempts not yet accepted or refused that may wait; more are refused.
    pub max_incoming: usize,
}

impl ServerConfig {
    /// Joins TLS and transport, with this secret for tokens.
    pub fn new(
        crypto: Arc<dyn crypto::ServerCrypto>,
        transport: Arc<TransportConfig>,
        token_key: [u8; 32],
    ) -> Self {
        Self {
            transport,
            crypto,
            token_key,
            retry_token_lifetime: Duration::from_secs(15),
            token_lifetime: Duration::from_secs(14 * 24 * 3600),
            time_source: Arc::new(StdSystemTime),
            migration: true,
            preferred_address_v4: None,
            preferred_address_v6: None,
            max_incoming: 1 << 16,
        }
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}
