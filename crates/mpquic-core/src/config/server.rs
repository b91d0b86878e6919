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

/// The options of a server. [`Self::build`] checks them.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Transport behaviour.
    pub transport: Arc<TransportConfig>,
    /// TLS.
    pub crypto: Arc<dyn crypto::ServerCrypto>,
    /// The secret that protects Retry and NEW_TOKEN tokens.
    pub token_key: [u8; 32],
    /// Keys that a service in front of the server has as well, which asks clients for a proof of
    /// their address in its place. The server then takes such tokens and makes such tokens itself,
    /// and sends no NEW_TOKEN frames: the service would take their tokens for false ones. `None` by
    /// default.
    pub retry_tokens: Option<Arc<crypto::RetryTokens>>,
    /// How long a Retry token is valid, more than zero; 15 seconds by default. Tokens of
    /// [`Self::retry_tokens`] have their own lifetime.
    pub retry_token_lifetime: Duration,
    /// How long a NEW_TOKEN token is valid; two weeks by default. With zero, none is sent.
    pub token_lifetime: Duration,
    /// The wall clock that tells the age of tokens, so that they stay valid across a restart.
    pub time_source: Arc<dyn TimeSource>,
    /// Allow clients to migrate to other addresses (RFC 9000 section 9).
    pub migration: bool,
    /// An IPv4 address of this server alone, to which clients are asked to move (RFC 9000 section
    /// 9.6). Useful for a server behind an address shared by many. The driver must report this
    /// address as the local address of its datagrams. Neither address nor port may be zero (section
    /// 18.2).
    pub preferred_address_v4: Option<SocketAddrV4>,
    /// The preferred address for clients that use IPv6.
    pub preferred_address_v6: Option<SocketAddrV6>,
    /// Most connection attempts waiting for a decision; further attempts are refused at once.
    /// Waiting attempts are half-open, too (see [`Self::max_half_open_connections`]).
    pub max_incoming: usize,
    /// Most open accepted connections, at least 1; further attempts are refused. The default is
    /// 65,536; as many idle connections take about 1 GiB.
    pub max_connections: usize,
    /// Most half-open connections, at least 1: attempts waiting for a decision, and accepted
    /// connections with an incomplete handshake. Further attempts get no answer, and their clients
    /// try again. The default is 4096, enough for 20,000 new clients per second with handshakes of
    /// 200 ms.
    pub max_half_open_connections: usize,
    /// From this number of half-open connections on, clients must prove their address: an attempt
    /// without a valid token is answered with a Retry, which costs the client one round trip, and
    /// the application does not see the attempt. A flood from forged addresses then cannot keep
    /// other clients out. With 0, every client must prove its address. The default is 1024.
    pub retry_threshold: usize,
    /// Below this number of half-open connections, no client must prove its address or is dropped,
    /// unless [`Self::retry_threshold`] is lower. Above it, clients must prove their address while
    /// clients arrive faster than handshakes complete: with more half-open connections than this
    /// number plus twice the handshakes completed per second. The default is 64. Forged attempts
    /// never complete and end after [`max_handshake_duration`], so only a few of them per second
    /// cost more than a Retry. With this and `retry_threshold` above `max_half_open_connections`,
    /// no client must prove its address.
    ///
    /// [`max_handshake_duration`]: super::TransportOptions::max_handshake_duration
    pub retry_min_half_open: usize,
    /// From this lag of the driver on, clients must prove their address, unless fewer connections
    /// than [`Self::retry_min_half_open`] are half-open. 20 ms by default. The lag is the waiting
    /// time of the oldest attempt until the application takes it; the driver reports the lag to
    /// [`Endpoint::set_lag`](crate::Endpoint::set_lag).
    pub retry_attempt_lag: Duration,
    /// From this lag of the driver on, clients get no answer, not even a Retry, and try again
    /// later; unless fewer connections than [`Self::retry_min_half_open`] are half-open. The server
    /// then spends its time on clients that it can serve in time. 100 ms by default.
    pub max_attempt_lag: Duration,
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
            retry_tokens: None,
            retry_token_lifetime: Duration::from_secs(15),
            token_lifetime: Duration::from_secs(14 * 24 * 3600),
            time_source: Arc::new(StdSystemTime),
            migration: true,
            preferred_address_v4: None,
            preferred_address_v6: None,
            max_incoming: 1 << 12,
            max_connections: 1 << 16,
            max_half_open_connections: 1 << 12,
            retry_threshold: 1 << 10,
            retry_min_half_open: 64,
            retry_attempt_lag: Duration::from_millis(20),
            max_attempt_lag: Duration::from_millis(100),
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first option with a value that the documentation of its field does not allow.
    pub fn build(self) -> Result<ServerConfig, InvalidOption> {
        if self.retry_token_lifetime.is_zero() {
            let expected = "more than zero";
            return Err(InvalidOption::new("retry_token_lifetime", "0ns", expected));
        }
        InvalidOption::unless_at_least("max_connections", self.max_connections, 1)?;
        InvalidOption::unless_at_least(
            "max_half_open_connections",
            self.max_half_open_connections,
            1,
        )?;
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

/// Checked options of a server. It dereferences to them.
#[derive(Debug, Clone)]
pub struct ServerConfig(ServerOptions);

impl ServerConfig {
    /// A configuration with this TLS, transport and secret for tokens, and defaults for the rest.
    /// To change anything else, build it from [`ServerOptions`].
    pub fn new(
        crypto: Arc<dyn crypto::ServerCrypto>,
        transport: Arc<TransportConfig>,
        token_key: [u8; 32],
    ) -> Self {
        Self(ServerOptions::new(crypto, transport, token_key))
    }

    /// The options it was built from, for example to build a similar configuration.
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
