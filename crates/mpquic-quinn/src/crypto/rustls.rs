//! TLS by rustls.

use std::sync::Arc;

use ::rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use ::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ::rustls::quic::Suite;
use ::rustls::{ClientConfig as TlsClientConfig, ServerConfig as TlsServerConfig};
use ::rustls::{RootCertStore, version};
use mpquic_tokio::crypto::rustls as mp;
use mpquic_tokio::crypto::{ClientCrypto, ServerCrypto};
use thiserror::Error as ThisError;

pub use ::rustls::Error;
pub use quinn_proto::crypto::rustls::HandshakeData;

/// A TLS configuration that does not suit QUIC, or does not suit several paths.
#[derive(Debug, Clone, ThisError)]
#[error(transparent)]
pub struct NoInitialCipherSuite(mp::TlsConfigError);

/// The TLS configuration of clients.
pub struct QuicClientConfig(Arc<mp::QuicClientConfig>);

/// The TLS configuration of servers.
pub struct QuicServerConfig(Arc<mp::QuicServerConfig>);

impl QuicClientConfig {
    /// A configuration by rustls. The keys of Initial packets follow from the configuration's own
    /// provider, and `initial` is not used.
    ///
    /// # Errors
    ///
    /// If the configuration does not suit QUIC over several paths.
    pub fn with_initial(
        inner: Arc<TlsClientConfig>,
        initial: Suite,
    ) -> Result<Self, NoInitialCipherSuite> {
        let _ = initial;
        Self::try_from(inner)
    }

    /// A configuration that trusts these certificates.
    pub(crate) fn with_root_certificates(
        roots: Arc<RootCertStore>,
    ) -> Result<Self, VerifierBuilderError> {
        let provider = Arc::new(mp::provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build()?;
        #[expect(clippy::expect_used, reason = "the provider is mpquic's own")]
        let builder = TlsClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3");
        let mut tls = builder.with_webpki_verifier(verifier).with_no_client_auth();
        tls.enable_early_data = true;
        #[expect(clippy::expect_used, reason = "the provider is mpquic's own")]
        Ok(Self::try_from(tls).expect("the provider suits QUIC"))
    }

    /// A configuration that trusts the certificates of the operating system.
    #[cfg(feature = "platform-verifier")]
    pub(crate) fn with_platform_roots() -> Result<Self, Error> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        for error in &found.errors {
            tracing::warn!(%error, "cannot read all certificates that the system trusts");
        }
        Self::with_root_certificates(Arc::new(roots))
            .map_err(|error| Error::General(error.to_string()))
    }
}

impl QuicServerConfig {
    /// A configuration by rustls. The keys of Initial packets follow from the configuration's own
    /// provider, and `initial` is not used.
    ///
    /// # Errors
    ///
    /// If the configuration does not suit QUIC over several paths.
    pub fn with_initial(
        inner: Arc<TlsServerConfig>,
        initial: Suite,
    ) -> Result<Self, NoInitialCipherSuite> {
        let _ = initial;
        Self::try_from(inner)
    }

    /// A configuration with this certificate.
    pub(crate) fn with_single_cert(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, Error> {
        let provider = Arc::new(mp::provider());
        let mut tls = TlsServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        tls.max_early_data_size = u32::MAX;
        let unfit = |error: NoInitialCipherSuite| Error::General(error.to_string());
        Self::try_from(tls).map_err(unfit)
    }
}

impl TryFrom<TlsClientConfig> for QuicClientConfig {
    type Error = NoInitialCipherSuite;

    fn try_from(inner: TlsClientConfig) -> Result<Self, Self::Error> {
        Self::try_from(Arc::new(inner))
    }
}

impl TryFrom<Arc<TlsClientConfig>> for QuicClientConfig {
    type Error = NoInitialCipherSuite;

    fn try_from(inner: Arc<TlsClientConfig>) -> Result<Self, Self::Error> {
        let config = mp::QuicClientConfig::new(inner).map_err(NoInitialCipherSuite)?;
        Ok(Self(Arc::new(config)))
    }
}

impl TryFrom<TlsServerConfig> for QuicServerConfig {
    type Error = NoInitialCipherSuite;

    fn try_from(inner: TlsServerConfig) -> Result<Self, Self::Error> {
        Self::try_from(Arc::new(inner))
    }
}

impl TryFrom<Arc<TlsServerConfig>> for QuicServerConfig {
    type Error = NoInitialCipherSuite;

    fn try_from(inner: Arc<TlsServerConfig>) -> Result<Self, Self::Error> {
        let config = mp::QuicServerConfig::new(inner).map_err(NoInitialCipherSuite)?;
        Ok(Self(Arc::new(config)))
    }
}

impl super::ClientConfig for QuicClientConfig {
    fn into_mpquic(self: Arc<Self>) -> Arc<dyn ClientCrypto> {
        self.0.clone()
    }
}

impl super::ServerConfig for QuicServerConfig {
    fn into_mpquic(self: Arc<Self>) -> Arc<dyn ServerCrypto> {
        self.0.clone()
    }
}
