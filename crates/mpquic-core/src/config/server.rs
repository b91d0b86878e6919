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
    /// The secret that protects Retry and NEW_TOKEN tokens.
    pub token_key: [u8; 32],
    /// Keys that a service in front of the server has as well, which asks clients for a proof of their address in its
    /// place. The server then takes such tokens and makes such tokens itself, and sends no NEW_TOKEN frames: the service
    /// would take their tokens for false ones. `None` by default.
    pub retry_tokens: Option<Arc<crypto::RetryTokens>>,
    /// How long a Retry token is valid, more than zero; 15 seconds by default. Those of [`Self::retry_tokens`] have a
    /// lifetime of their own.
    pub retry_token_lifetime: Duration,
    /// How long a NEW_TOKEN token is valid; two weeks by default. With zero, none is sent.
    pub token_lifetime: Duration,
    /// The wall clock that tells the age of tokens, so that they stay valid across a restart.
    pub time_source: Arc<dyn TimeSource>,
    /// Allow clients to migrate to other addresses (RFC 9000 section 9).
    pub migration: bool,
    /// An IPv4 address of this server, and of no other, that clients are asked to move to (RFC 9000
    /// section 9.6). Useful if many servers share the address that clients connect to. The driver
    /// must report it as the local address of datagrams that arrive there. Neither address nor port
    /// may be zero (section 18.2).
    pub preferred_address_v4: Option<SocketAddrV4>,
    /// The same for clients that use IPv6.
    pub preferred_address_v6: Option<SocketAddrV6>,
    /// How many connection attempts may wait to be accepted or refused; more are refused at once.
    /// Those that wait are half-open, too (see [`Self::max_half_open`]).
    pub max_incoming: usize,
    /// Accepted connections that may be open at a time, at least 1; further attempts are refused.
    /// The default, 65,536, takes about 1 GiB if all of them idle.
    pub max_connections: usize,
    /// Half-open connections there may be at a time, at least 1: attempts that wait for a decision,
    /// and accepted connections whose handshake is not complete. Further attempts get no answer, so
    /// their clients try again. The default is 4096, enough for 20,000 new clients per second with
    /// handshakes of 200 ms.
    pub max_half_open: usize,
    /// From this many half-open connections on, clients have to prove their address: an attempt
    /// without a valid token is answered with a Retry, which costs its client one round trip, and
    /// the application does not see it. So a flood from forged addresses cannot keep other clients
    /// out. With 0, every client has to. The default is 1024.
    pub retry_threshold: usize,
    /// Below this many half-open connections, no client has to prove its address or is dropped,
    /// unless [`Self::retry_threshold`] is lower. From here on, clients have to prove their address
    /// while more connections are half-open than these and twice those that completed their handshake
    /// in a second: clients come faster than they complete. The default is 64. As forged attempts
    /// never complete and end after [`max_handshake_duration`], only a few of them per second cost
    /// more than a Retry. With this and `retry_threshold` above `max_half_open`, no client has to
    /// prove its address.
    ///
    /// [`max_handshake_duration`]: super::TransportOptions::max_handshake_duration
    pub retry_floor: usize,
    /// Once the driver lags behind so long, clients have to prove their address, unless there are
    /// fewer half-open connections than [`Self::retry_floor`]. 20 ms by default. The lag is the time
    /// for which the oldest attempt has waited for the application to take it, and the driver tells it
    /// to [`Endpoint::set_lag`](crate::Endpoint::set_lag).
    pub retry_lag: Duration,
    /// Once the driver lags behind so long, clients get no answer, not even a Retry, and try again
    /// later; unless there are fewer half-open connections than [`Self::retry_floor`]. So the server
    /// spends its time on those whom it can serve in time. 100 ms by default.
    pub max_lag: Duration,
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
            max_half_open: 1 << 12,
            retry_threshold: 1 << 10,
            retry_floor: 64,
            retry_lag: Duration::from_millis(20),
            max_lag: Duration::from_millis(100),
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
        InvalidOption::unless_at_least("max_half_open", self.max_half_open, 1)?;
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
