//! TLS.
//!
//! [`rustls`] makes TLS configurations. Another TLS library implements the traits of mpquic
//! (`mpquic_tokio::crypto`): packets of several paths need nonces that quinn's traits cannot
//! express.

use std::sync::Arc;

use mpquic_tokio::crypto::{ClientCrypto, ServerCrypto};

pub mod rustls;

pub use quinn_proto::crypto::{
    AeadKey, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HmacKey, UnsupportedVersion,
};

/// The TLS configuration of clients.
pub trait ClientConfig: Send + Sync {
    /// The same configuration for mpquic.
    fn into_mpquic(self: Arc<Self>) -> Arc<dyn ClientCrypto>;
}

/// The TLS configuration of servers.
pub trait ServerConfig: Send + Sync {
    /// The same configuration for mpquic.
    fn into_mpquic(self: Arc<Self>) -> Arc<dyn ServerCrypto>;
}

/// A random secret.
///
/// # Panics
///
/// If the system has no randomness, as in quinn: no signature leaves room for an error.
pub(crate) fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    let source = mpquic_tokio::crypto::rustls::provider().secure_random;
    #[expect(clippy::expect_used, reason = "a secret must not be known")]
    source.fill(&mut bytes).expect("the system has randomness");
    bytes
}
