//! [`Server`]: a server configuration with the token key made from it.

use std::sync::Arc;

use crate::config::ServerConfig;
use crate::crypto::tokens::{TokenIssuer, TokenKey};

/// A server configuration and the token key made from it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Arc<ServerConfig>,
    pub(super) token_key: Arc<TokenKey>,
}

impl Server {
    pub(super) fn new(config: Arc<ServerConfig>) -> Arc<Self> {
        let token_key = Arc::new(TokenKey::new(&config.token_key));
        Arc::new(Self { config, token_key })
    }

    /// Makes NEW_TOKEN tokens; `None` if none are sent.
    pub(super) fn token_issuer(&self) -> Option<TokenIssuer> {
        let time_source = self.config.time_source.clone();
        (!self.config.token_lifetime.is_zero() && self.config.retry_tokens.is_none())
            .then(|| TokenIssuer::new(self.token_key.clone(), time_source))
    }
}
