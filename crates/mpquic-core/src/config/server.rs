//! [`ServerConfig`]: what a server needs to accept connections.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{StdSystemTime, TimeSource};

use super::transport::TransportConfig;
use crate::crypto;
use crate::error::InvalidOption;

/// What a server needs to accept connections. [`Self::build`] checks it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Transport behaviour.
    pub transport: Arc<TransportConfig>,
    /// TLS.
    pub crypto: Arc<dyn crypto::ServerCrypto>,
    /// Secret that seals Retry and NEW_TOKEN tokens.
    pub token_key: [u8; 32],
    /// How long a Retry token is good for, more than zero; 15 seconds by default.
    pub retry_token_lifetime: Duration,
    /// How long a NEW_TOKEN token is good for, two weeks by default; zero sends none.
    pub token_lifetime: Duration,
    /// The wall clock tokens are dated with, so that they survive a restart.
    pub time_source: Arc<dyn TimeSource>,
    /// Take address changes of clients (RFC 9000 section 9).
    pub migration: bool,
    /// An IPv4 address of this server, and of it alone, that clients are asked to move to from the
    /// address they connected to, such as one that many servers share (RFC 9000 section 9.6).
    /// Datagrams that arrive there must show it as their local address. Neither address nor port
    /// may be zero (section 18.2).
    pub preferred_address_v4: Option<SocketAddrV4>,
    /// The same for clients that use IPv6.
    pub preferred_address_v6: Option<SocketAddrV6>,
    /// Connection attempts not yet accepted or refused that may wait; more are refused.
    pub max_incoming: usize,
}

impl ServerOptions {
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

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first option whose value is not what its field says.
    pub fn build(self) -> Result<ServerConfig, InvalidOption> {
        if self.retry_token_lifetime.is_zero() {
            let expected = "more than zero";
            return Err(InvalidOption::new("retry_token_lifetime", "0ns", expected));
        }
        let v4 = self.preferred_address_v4.map(SocketAddr::V4);
        let v6 = self.preferred_address_v6.map(SocketAddr::V6);
        for (option, address) in [("preferred_address_v4", v4), ("preferred_address_v6", v6)] {
            let is_wrong = |it: &SocketAddr| it.ip().is_unspecified() || it.port() == 0;
            if let Some(address) = address.filter(is_wrong) {
                let expected = "one address with a port";
                return Err(InvalidOption::new(option, address, expected));
            }
        }
        Ok(ServerConfig(self))
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// What a server needs to accept connections, checked; its fields can be read through it.
#[derive(Debug, Clone)]
pub struct ServerConfig(ServerOptions);

impl ServerConfig {
    /// Joins TLS and transport, with this secret for tokens. [`ServerOptions`] are for all else.
    pub fn new(
        crypto: Arc<dyn crypto::ServerCrypto>,
        transport: Arc<TransportConfig>,
        token_key: [u8; 32],
    ) -> Self {
        Self(ServerOptions::new(crypto, transport, token_key))
    }

    /// The options, to start others from.
    pub fn options(&self) -> &ServerOptions {
        &self.0
    }
}

impl Deref for ServerConfig {
    type Target = ServerOptions;

    fn deref(&self) -> &ServerOptions {
        &self.0
    }
}
