//! [`QuicClientConfig`]: TLS of clients.

use std::fmt;
use std::sync::Arc;

use quinn_proto::{ConnectionId, Side};
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{ServerName, SubjectPublicKeyInfoDer};
use rustls::quic::{self, Suite};
use rustls::{KeyLogFile, RootCertStore};

use super::authorities::ServerAuthorities;
use super::keys::initial_keys;
use super::secret_log::{self, SecretLog};
use super::session::{TlsSession, VersionSwitch};
use super::suites::{
    KeyExchange, PARAMETERS_LENGTH, TlsConfigError, checked_initial_suite, provider, tls_version,
};
use super::tickets::{ClientTickets, ConnectionTickets};
use super::verifier::{PinVerifier, RawKeyVerifier};
use super::wall_clock::WallClock;
use crate::crypto::{ClientCrypto, InitialCrypto, InvalidServerName, Keys, Session};
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// Session tickets that a client keeps for each QUIC version.
const TICKETS: usize = 256;

/// A client's TLS configuration.
///
/// ```
/// use mpquic_core::crypto::rustls::QuicClientConfig;
///
/// // The result of `certificate_fingerprint` for the server's certificate.
/// let fingerprint = [0x5a; 32];
/// let crypto = QuicClientConfig::with_pin(fingerprint, &[b"h3"])?;
/// # Ok::<_, mpquic_core::crypto::rustls::TlsConfigError>(())
/// ```
pub struct QuicClientConfig {
    /// For connections that stay in version 1 of QUIC.
    pub(super) v1: Arc<rustls::ClientConfig>,
    /// For connections that stay in version 2.
    v2: Arc<rustls::ClientConfig>,
    /// Tickets of all versions, unless `v1` has a store of its own.
    tickets: Option<Arc<ClientTickets>>,
    initial: Suite,
    /// Builds the rustls configuration with another provider; `None` for [`Self::new`].
    recipe: Option<Recipe>,
}

type Recipe =
    Arc<dyn Fn(CryptoProvider) -> Result<rustls::ClientConfig, TlsConfigError> + Send + Sync>;

impl QuicClientConfig {
    /// Wraps a configuration. 0-RTT needs its `enable_early_data`. Its `resumption` is used in
    /// version 1 of QUIC only, because tickets of one version must not be used in another; with
    /// [`Self::with_sessions`] sessions of all versions can be resumed.
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if its provider or its versions of TLS are not fit for multipath QUIC.
    pub fn new(inner: Arc<rustls::ClientConfig>) -> Result<Self, TlsConfigError> {
        let initial = checked_initial_suite(inner.crypto_provider())?;
        // Makes a session, so that anything else that rustls rejects is reported here and not by
        // every connection.
        let name = ServerName::try_from("mpquic.invalid").map_err(|_| {
            TlsConfigError::Tls(rustls::Error::General("no server name".to_owned()))
        })?;
        quic::ClientConnection::new(inner.clone(), quic::Version::V1, name, Vec::new())?;
        let mut v2 = rustls::ClientConfig::clone(&inner);
        v2.resumption = Resumption::disabled();
        Ok(Self {
            v1: inner,
            v2: Arc::new(v2),
            tickets: None,
            initial,
            recipe: None,
        })
    }

    /// Keeps `count` session tickets in memory for each version of QUIC.
    #[must_use]
    pub fn with_sessions(mut self, count: usize) -> Self {
        let tickets = ClientTickets::new(count);
        for (config, version) in [(&mut self.v1, Version::V1), (&mut self.v2, Version::V2)] {
            Arc::make_mut(config).resumption = Resumption::store(tickets.of(version));
        }
        self.tickets = Some(Arc::new(tickets));
        self
    }

    /// A copy with these key exchanges instead of [`KeyExchange::Hybrid`], and with its own session
    /// tickets in memory.
    ///
    /// # Errors
    ///
    /// [`TlsConfigError::KeyExchangeOfProvider`] if the configuration is from [`Self::new`].
    pub fn key_exchange(&self, wanted: KeyExchange) -> Result<Self, TlsConfigError> {
        let recipe = self.recipe.clone();
        Self::made_by(
            recipe.ok_or(TlsConfigError::KeyExchangeOfProvider(wanted))?,
            wanted.provider(),
        )
    }

    /// Trusts servers whose certificate is signed by one of `roots`, or is one of `roots`. `alpn`
    /// are the application protocols to offer, the preferred one first.
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if rustls refuses the configuration, or `roots` is empty.
    pub fn with_roots(roots: RootCertStore, alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        Self::verified_by(alpn, move |provider| {
            let authorities = ServerAuthorities::new(roots.clone(), Arc::new(provider.clone()));
            Ok(authorities.map_err(|error| rustls::Error::General(error.to_string()))?)
        })
    }

    /// Trusts a server by the SHA-256 of its certificate (see
    /// [`certificate_fingerprint`](super::certificate_fingerprint)) alone: name, issuer and dates
    /// are not checked. `alpn` as for [`Self::with_roots`].
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if rustls refuses the configuration.
    pub fn with_pin(fingerprint: [u8; 32], alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        Self::verified_by(alpn, move |provider| {
            Ok(PinVerifier::new(fingerprint, provider))
        })
    }

    /// Trusts every server: encryption without authentication. For tests and measurements. `alpn`
    /// as for [`Self::with_roots`].
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if rustls refuses the configuration.
    pub fn dangerous_trusting_any_certificate(alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        Self::verified_by(alpn, |provider| {
            Ok(PinVerifier::dangerous_trusting_any_certificate(provider))
        })
    }

    /// Trusts the server with this public key, which it shows without a certificate (RFC 7250).
    /// `alpn` as for [`Self::with_roots`].
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if rustls refuses the configuration.
    pub fn with_raw_public_key(
        key: SubjectPublicKeyInfoDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsConfigError> {
        Self::verified_by(alpn, move |provider| {
            Ok(RawKeyVerifier::new(key.clone(), provider))
        })
    }

    fn verified_by<V: ServerCertVerifier + 'static>(
        alpn: &[&[u8]],
        verifier: impl Fn(&CryptoProvider) -> Result<V, TlsConfigError> + Send + Sync + 'static,
    ) -> Result<Self, TlsConfigError> {
        Self::by(alpn, move |provider| {
            let verifier = verifier(&provider)?;
            Ok(builder(provider)?
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth())
        })
    }

    /// A configuration built by `make`, which can be called again for another provider.
    fn by(
        alpn: &[&[u8]],
        make: impl Fn(CryptoProvider) -> Result<rustls::ClientConfig, TlsConfigError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Self, TlsConfigError> {
        let alpn: Vec<_> = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let recipe: Recipe = Arc::new(move |provider| {
            let mut config = make(provider)?;
            config.alpn_protocols = alpn.clone();
            config.enable_early_data = true;
            config.key_log = Arc::new(KeyLogFile::new());
            Ok(config)
        });
        Self::made_by(recipe, provider())
    }

    fn made_by(recipe: Recipe, provider: CryptoProvider) -> Result<Self, TlsConfigError> {
        let made = Self::new(Arc::new(recipe(provider)?))?;
        Ok(Self {
            recipe: Some(recipe),
            ..made.with_sessions(TICKETS)
        })
    }

    fn of(&self, version: Version) -> &Arc<rustls::ClientConfig> {
        match version {
            Version::V1 => &self.v1,
            Version::V2 => &self.v2,
        }
    }

    /// A configuration for a connection whose version may change, and the [`VersionSwitch`] for its
    /// session.
    fn switchable(&self, version: Version) -> (Arc<rustls::ClientConfig>, VersionSwitch) {
        let mut config = rustls::ClientConfig::clone(self.of(version));
        let names = [secret_log::HANDSHAKE, secret_log::ONE_RTT].concat();
        let secrets = Arc::new(SecretLog::new(config.key_log, &names));
        config.key_log = secrets.clone();
        let tickets = self.tickets.as_ref().map(|all| {
            let tickets = Arc::new(ConnectionTickets::new(all.clone(), version));
            config.resumption = Resumption::store(tickets.clone());
            tickets
        });
        (Arc::new(config), VersionSwitch::new(secrets, tickets))
    }
}

fn builder(
    provider: CryptoProvider,
) -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    rustls::ClientConfig::builder_with_details(Arc::new(provider), Arc::new(WallClock))
        .with_protocol_versions(&[&rustls::version::TLS13])
}

impl fmt::Debug for QuicClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicClientConfig").finish_non_exhaustive()
    }
}

impl InitialCrypto for QuicClientConfig {
    fn initial_keys(&self, version: Version, side: Side, destination: &ConnectionId) -> Keys {
        initial_keys(&self.initial, version, side, destination)
    }
}

impl ClientCrypto for QuicClientConfig {
    fn start_session(
        self: Arc<Self>,
        version: Version,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, InvalidServerName> {
        let invalid = || InvalidServerName(server_name.to_owned());
        let name = ServerName::try_from(server_name)
            .map_err(|_| invalid())?
            .to_owned();
        let mut encoded = Vec::with_capacity(PARAMETERS_LENGTH);
        parameters.encode(Side::Client, &mut encoded);
        let offered = parameters.version_information.as_ref();
        let may_switch = offered.is_some_and(|versions| {
            let others = versions.available.iter();
            let mut known = others.filter_map(|number| Version::from_u32(*number));
            known.any(|known| known != version)
        });
        let (config, switch) = if may_switch {
            let (config, switch) = self.switchable(version);
            (config, Some(switch))
        } else {
            (self.of(version).clone(), None)
        };
        // `new` has made a session with this configuration already, so the error is about the name.
        let inner = quic::ClientConnection::new(config, tls_version(version), name, encoded)
            .map_err(|_| invalid())?;
        Ok(Box::new(TlsSession::client(inner, switch)))
    }
}
