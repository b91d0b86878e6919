//! [`ClientConfig`]: what a client needs to connect.

use std::fmt;
use std::sync::Arc;

use quinn_proto::TokenStore;

use super::transport::TransportConfig;
use crate::crypto;
use crate::version::Version;

/// What a client needs to connect.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Transport behaviour.
    pub transport: Arc<TransportConfig>,
    /// TLS.
    pub crypto: Arc<dyn crypto::ClientCrypto>,
    /// Where NEW_TOKEN tokens are kept between connections; `None` keeps none. Tokens of versions
    /// other than 1 have the version after the server's name in their key, as in `host v2`.
    pub token_store: Option<Arc<dyn TokenStore>>,
    /// The version of our first packets, one of the endpoint's `supported_versions`; `None` takes the oldest of them. The server may choose another one without a further round trip, so
    /// best is one that it is sure to know (RFC 9368 section 2.5).
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
