//! [`QuicServerConfig`]: TLS of servers.

use std::fmt;
use std::sync::Arc;

use quinn_proto::{ConnectionId, Side};
use rustls::KeyLogFile;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::quic::{self, Suite};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;

use super::client_hello;
use super::keys::initial_keys;
use super::secret_log::{self, SecretLog};
use super::session::TlsSession;
use super::shared_tickets::SharedTickets;
use super::suites::{
    KeyExchange, PARAMETERS_LENGTH, TlsConfigError, checked_initial_suite, provider, tls_version,
};
use super::tickets::{ServerSessions, ServerTickets, Terms};
use super::wall_clock::WallClock;
use crate::crypto::{FirstFlight, InitialCrypto, Keys, ServerCrypto, Session};
use crate::error::{Fault, TransportError};
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// A server's TLS configuration.
///
/// ```no_run
/// use mpquic_core::crypto::rustls::QuicServerConfig;
/// use rustls::pki_types::pem::PemObject;
/// use rustls::pki_types::{CertificateDer, PrivateKeyDer};
///
/// let chain = vec![CertificateDer::from_pem_file("certificate.pem")?];
/// let key = PrivateKeyDer::from_pem_file("key.pem")?;
/// let crypto = QuicServerConfig::with_certificate(chain, key, &[b"h3"])?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct QuicServerConfig {
    pub(super) inner: Arc<rustls::ServerConfig>,
    initial: Suite,
    /// Built by this module. rustls does not show all settings of a finished configuration, so
    /// another one cannot be rebuilt with other key exchanges.
    is_ours: bool,
}

impl QuicServerConfig {
    /// Wraps a configuration. Its `max_early_data_size` must be 0 (no 0-RTT) or `u32::MAX`.
    /// Sessions and tickets carry the QUIC version and the limits of their connection. A session is
    /// resumed only in the same version, and only if no limit has become lower.
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if the provider, the TLS versions or the limit of early data do not suit
    /// multipath QUIC.
    pub fn new(inner: Arc<rustls::ServerConfig>) -> Result<Self, TlsConfigError> {
        let initial = checked_initial_suite(inner.crypto_provider())?;
        quic::ServerConnection::new(inner.clone(), quic::Version::V1, Vec::new())?;
        Ok(Self {
            inner,
            initial,
            is_ours: false,
        })
    }

    /// Identifies the server by this certificate, accepts 0-RTT and speaks the given protocols, the
    /// preferred one first.
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if the key does not belong to the certificate, or its type is unknown.
    pub fn with_certificate(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsConfigError> {
        Self::with_provider(Arc::new(provider()), chain, key, alpn)
    }

    /// Like [`Self::with_certificate`], with the cipher suites of this provider.
    ///
    /// # Errors
    ///
    /// As [`Self::with_certificate`], and if the provider does not suit multipath QUIC.
    pub fn with_provider(
        provider: Arc<CryptoProvider>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsConfigError> {
        let config = builder(provider)?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Self::finish(config, alpn)
    }

    /// Identifies the server by its public key alone, without a certificate (RFC 7250), accepts
    /// 0-RTT and speaks the given protocols, the preferred one first. Also returns the public key,
    /// which clients pass to
    /// [`QuicClientConfig::with_raw_public_key`](super::QuicClientConfig::with_raw_public_key).
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if the type of the key is unknown.
    pub fn with_raw_public_key(
        key: PrivateKeyDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<(Self, SubjectPublicKeyInfoDer<'static>), TlsConfigError> {
        let provider = Arc::new(provider());
        let key = provider.key_provider.load_private_key(key)?;
        let Some(public) = key.public_key() else {
            let error = rustls::Error::General("the key does not tell its public key".to_owned());
            return Err(error.into());
        };
        let public = public.into_owned();
        let shown = vec![CertificateDer::from(public.to_vec())];
        let shown = CertifiedKey::new(shown, key);
        let config = builder(provider)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                shown.into(),
            )));
        Ok((Self::finish(config, alpn)?, public))
    }

    /// Lets clients resume sessions at every server with the same tickets. Turns 0-RTT off, because
    /// a server cannot detect a replay of data that another server has accepted (RFC 9001 section
    /// 9.2).
    #[must_use]
    pub fn with_shared_tickets(mut self, tickets: Arc<SharedTickets>) -> Self {
        let config = Arc::make_mut(&mut self.inner);
        config.max_early_data_size = 0;
        config.ticketer = tickets;
        self
    }

    /// A copy of the configuration with other key exchanges, as far as its provider has them. The
    /// copy shares sessions and tickets.
    ///
    /// # Errors
    ///
    /// [`TlsConfigError::KeyExchangeOfProvider`] if the configuration is from [`Self::new`].
    pub fn key_exchange(&self, wanted: KeyExchange) -> Result<Self, TlsConfigError> {
        let before = &self.inner;
        if !self.is_ours {
            return Err(TlsConfigError::KeyExchangeOfProvider(wanted));
        }
        let mut provider = CryptoProvider::clone(before.crypto_provider());
        wanted.restrict(&mut provider);
        let mut config = builder(Arc::new(provider))?
            .with_no_client_auth()
            .with_cert_resolver(before.cert_resolver.clone());
        config.alpn_protocols = before.alpn_protocols.clone();
        config.max_early_data_size = before.max_early_data_size;
        config.key_log = before.key_log.clone();
        config.session_storage = before.session_storage.clone();
        config.ticketer = before.ticketer.clone();
        Self::made_here(config)
    }

    fn finish(mut config: rustls::ServerConfig, alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.max_early_data_size = u32::MAX;
        config.key_log = Arc::new(KeyLogFile::new());
        Self::made_here(config)
    }

    fn made_here(config: rustls::ServerConfig) -> Result<Self, TlsConfigError> {
        Ok(Self {
            is_ours: true,
            ..Self::new(Arc::new(config))?
        })
    }
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<rustls::ServerConfig, rustls::WantsVerifier>, rustls::Error> {
    rustls::ServerConfig::builder_with_details(provider, Arc::new(WallClock))
        .with_protocol_versions(&[&rustls::version::TLS13])
}

impl fmt::Debug for QuicServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicServerConfig").finish_non_exhaustive()
    }
}

impl InitialCrypto for QuicServerConfig {
    fn initial_keys(&self, version: Version, side: Side, destination: &ConnectionId) -> Keys {
        initial_keys(&self.initial, version, side, destination)
    }
}

impl ServerCrypto for QuicServerConfig {
    fn read_first_flight(&self, crypto: &[u8]) -> FirstFlight {
        client_hello::read(crypto)
    }

    fn start_session(
        self: Arc<Self>,
        version: Version,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, TransportError> {
        let mut encoded = Vec::with_capacity(PARAMETERS_LENGTH);
        parameters.encode(Side::Server, &mut encoded);
        // rustls passes the exporter's secret only to the key log. Each connection gets its own
        // copy of the configuration, because a shared log would mix the secrets of all connections.
        let mut config = rustls::ServerConfig::clone(&self.inner);
        let terms = Terms::new(version, parameters);
        let all = config.session_storage;
        config.session_storage = Arc::new(ServerSessions { all, terms });
        let all = config.ticketer;
        config.ticketer = Arc::new(ServerTickets { all, terms });
        let secrets = Arc::new(SecretLog::new(config.key_log, &[secret_log::EXPORTER]));
        config.key_log = secrets.clone();
        let inner = quic::ServerConnection::new(config.into(), tls_version(version), encoded)
            .map_err(|_| TransportError::new(Fault::TlsNotStarted))?;
        Ok(Box::new(TlsSession::server(inner, secrets)))
    }
}
