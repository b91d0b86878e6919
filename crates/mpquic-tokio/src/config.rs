//! [`ClientConfig`] and [`ServerConfig`]: TLS and transport with defaults that work.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use mpquic_core::config::{self, InvalidOption, TransportConfig, TransportOptions};
use mpquic_core::crypto::RetryTokens;
use mpquic_core::crypto::rustls::{
    KeyExchange, QuicClientConfig, QuicServerConfig, TlsConfigError, provider, roots_in_pem,
};
use mpquic_core::{TimeSource, Version};
use mpquic_paths::PathManagerFactory;
use rustls::RootCertStore;
#[cfg(feature = "self-signed")]
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use thiserror::Error;

use crate::addresses::canonical;

pub use mpquic_core::crypto::rustls::certificate_fingerprint;

/// How late timers of tokio may fire: they fire at whole milliseconds, not before they are due, and
/// the task then waits for its turn. Beside a loaded machine, acknowledgements were 1 to 3 ms late.
const TIMER_LATENESS: Duration = Duration::from_millis(4);

/// The reason why a configuration could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No application protocol was named (RFC 9001 section 8.1 demands one).
    #[error("no application protocol (ALPN): name at least one, such as b\"h3\"")]
    NoProtocol,
    /// An option has an invalid value.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// TLS rejects the configuration.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// Not a PEM file, or not the expected kind.
    #[error("not valid PEM")]
    Pem(#[source] pem::Error),
    /// The PEM file has no certificate.
    #[error("no certificate found")]
    NoCertificate,
    /// A certificate is not valid.
    #[error("not a valid certificate")]
    Certificate(#[from] rustls::Error),
    /// The operating system has no trusted certificate; with the system's error, if any.
    #[cfg(feature = "native-roots")]
    #[error("the operating system trusts no certification authority{}", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    NoNativeRoots(Option<String>),
    /// A self-signed certificate cannot be made for these names.
    #[cfg(feature = "self-signed")]
    #[error("cannot make a self-signed certificate")]
    SelfSigned(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No source of randomness.
    #[error("no randomness available")]
    Random,
}

/// Transport options with the default scheduler (`auto`) and congestion controller (`coupled-bbr`).
/// Change what you need, and call [`TransportOptions::build`].
///
/// ```
/// # use std::time::Duration;
/// # use mpquic_tokio::{ClientConfig, default_transport};
/// let mut transport = default_transport();
/// transport.max_idle_timeout = Some(Duration::from_secs(10));
/// let config = ClientConfig::dangerous_insecure(&[b"example"])?
///     .transport_config(transport.build()?);
///
/// let mut transport = default_transport();
/// transport.initial_mtu = 900;
/// let refused = transport.build().unwrap_err();
/// assert_eq!(refused.to_string(), "initial_mtu is 900, but must be from 1200 to 65527");
/// # Ok::<(), mpquic_tokio::ConfigError>(())
/// ```
pub fn default_transport() -> TransportOptions {
    let mut options = TransportOptions::new(mpquic_sched::default(), mpquic_cc::default());
    options.timer_lateness = TIMER_LATENESS;
    options
}

/// The options of [`default_transport`] as a configuration.
fn default_transport_config() -> Arc<TransportConfig> {
    let (scheduler, controller) = (mpquic_sched::default(), mpquic_cc::default());
    Arc::new(TransportConfig::new(scheduler, controller).with_timer_lateness(TIMER_LATENESS))
}

/// 32 random bytes from the TLS library.
pub(crate) fn random() -> Result<[u8; 32], ConfigError> {
    let mut bytes = [0; 32];
    provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| ConfigError::Random)?;
    Ok(bytes)
}

/// A client's configuration: trusted servers, application protocols, paths to open.
///
/// The constructors take the application protocols to offer (ALPN), the preferred one first, at
/// least one.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    pub(crate) core: config::ClientConfig,
    pub(crate) automatic_paths: bool,
    /// Decides on the paths, if they are automatic.
    pub(crate) path_manager: Arc<dyn PathManagerFactory>,
    pub(crate) server_addresses: Vec<SocketAddr>,
    /// Addresses of the server's name; some may belong to other machines.
    pub(crate) possible_addresses: Vec<SocketAddr>,
    /// The TLS configuration, unless it is somebody else's.
    tls: Option<Arc<QuicClientConfig>>,
}

impl ClientConfig {
    /// Uses any TLS configuration.
    pub fn new(crypto: Arc<dyn mpquic_core::crypto::ClientCrypto>) -> Self {
        Self {
            core: config::ClientConfig::new(crypto, default_transport_config()),
            automatic_paths: true,
            path_manager: mpquic_paths::default(),
            server_addresses: Vec::new(),
            possible_addresses: Vec::new(),
            tls: None,
        }
    }

    fn by(tls: QuicClientConfig) -> Self {
        let tls = Arc::new(tls);
        Self {
            tls: Some(tls.clone()),
            ..Self::new(tls)
        }
    }

    /// Trusts the certification authorities that the operating system trusts.
    ///
    /// # Errors
    ///
    /// If no certificate is found, no protocol is named, or TLS refuses the configuration.
    /// Unreadable certificates are logged as warnings.
    #[cfg(feature = "native-roots")]
    pub fn with_native_roots(alpn: &[&[u8]]) -> Result<Self, ConfigError> {
        let roots = native_roots(rustls_native_certs::load_native_certs())?;
        Self::with_roots(roots, alpn)
    }

    /// Trusts servers whose certificate leads to one of `roots`, or is one of them.
    ///
    /// # Errors
    ///
    /// If there are no roots, no protocol is named, or TLS refuses the configuration.
    pub fn with_roots(roots: RootCertStore, alpn: &[&[u8]]) -> Result<Self, ConfigError> {
        let crypto = QuicClientConfig::with_roots(roots, protocols(alpn)?)?;
        Ok(Self::by(crypto))
    }

    /// Trusts servers whose certificate leads to one of the certificates in a PEM file, or is one
    /// of them.
    ///
    /// # Errors
    ///
    /// If the file has no valid certificate, no protocol is named, or TLS refuses the
    /// configuration. If some of the certificates cannot be used, a warning is logged.
    pub fn with_ca_pem(ca: &[u8], alpn: &[&[u8]]) -> Result<Self, ConfigError> {
        let (roots, left_out) = roots_in_pem(ca);
        if roots.is_empty() {
            for unusable in certificates(ca)? {
                RootCertStore::empty().add(unusable)?;
            }
            return Err(ConfigError::NoCertificate);
        }
        for reason in left_out {
            tracing::warn!(reason, "left out of the certificates to trust");
        }
        Self::with_roots(roots, alpn)
    }

    /// Trusts the server whose certificate has this SHA-256 ([`certificate_fingerprint`]).
    ///
    /// # Errors
    ///
    /// If no protocol is named, or TLS refuses the configuration.
    pub fn with_pin(fingerprint: [u8; 32], alpn: &[&[u8]]) -> Result<Self, ConfigError> {
        let crypto = QuicClientConfig::with_pin(fingerprint, protocols(alpn)?)?;
        Ok(Self::by(crypto))
    }

    /// Trusts the server with this public key, which the server shows without a certificate (RFC
    /// 7250); see [`ServerConfig::with_raw_public_key`].
    ///
    /// # Errors
    ///
    /// If no protocol is named, or TLS refuses the configuration.
    pub fn with_raw_public_key(
        key: SubjectPublicKeyInfoDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<Self, ConfigError> {
        let crypto = QuicClientConfig::with_raw_public_key(key, protocols(alpn)?)?;
        Ok(Self::by(crypto))
    }

    /// Trusts every server: encryption without authentication. For tests and measurements.
    ///
    /// # Errors
    ///
    /// If no protocol is named, or TLS refuses the configuration.
    pub fn dangerous_insecure(alpn: &[&[u8]]) -> Result<Self, ConfigError> {
        let crypto = QuicClientConfig::dangerous_trusting_any_certificate(protocols(alpn)?)?;
        Ok(Self::by(crypto))
    }

    /// How clients agree with servers on the secrets of a connection: [`KeyExchange::Hybrid`] by
    /// default, which quantum computers do not break. It takes two datagrams, where
    /// [`KeyExchange::Classical`] takes one.
    /// [`ConnectionStats::key_exchange`](crate::ConnectionStats::key_exchange) tells what a
    /// connection has agreed on.
    ///
    /// # Errors
    ///
    /// If the TLS configuration was given to [`Self::new`]: its own provider decides.
    ///
    /// # Examples
    ///
    /// ```
    /// use mpquic_tokio::{ClientConfig, KeyExchange};
    ///
    /// let config = ClientConfig::dangerous_insecure(&[b"hello"])?;
    /// let config = config.key_exchange(KeyExchange::Classical)?;
    /// # Ok::<(), mpquic_tokio::ConfigError>(())
    /// ```
    pub fn key_exchange(mut self, wanted: KeyExchange) -> Result<Self, ConfigError> {
        let tls = self.tls.as_ref();
        let tls = tls.ok_or(TlsConfigError::KeyExchangeOfProvider(wanted))?;
        let tls = Arc::new(tls.key_exchange(wanted)?);
        self.core.crypto = tls.clone();
        self.tls = Some(tls);
        Ok(self)
    }

    /// Replaces the transport configuration, which several configurations may share;
    /// [`default_transport`] has the defaults.
    #[must_use]
    pub fn transport_config(mut self, transport: impl Into<Arc<TransportConfig>>) -> Self {
        self.core.transport = transport.into();
        self
    }

    /// QUIC version of the first packets, one of the endpoint's
    /// [`supported_versions`](crate::EndpointBuilder::supported_versions); the oldest of them by
    /// default. The server may choose another version.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.core.version = Some(version);
        self
    }

    /// Whether the first path moves to the server's preferred address if that address works; on by
    /// default.
    #[must_use]
    pub fn use_preferred_address(mut self, used: bool) -> Self {
        self.core.use_preferred_address = used;
        self
    }

    /// Whether to ask the server for further addresses; off by default. Paths open to these
    /// addresses as to those of [`Self::server_addresses`], and close when the server withdraws an
    /// address. [`PathEvent::ServerAddresses`](crate::PathEvent::ServerAddresses) reports the list.
    /// Servers without draft-munizaga-quic-alternative-server-address-01 ignore the request.
    ///
    /// A server cannot make its client send to private addresses, or to addresses of the client's
    /// own machine, unless the client reached the server at such an address. Any other announced
    /// address first gets a few datagrams for validation.
    #[must_use]
    pub fn use_alternative_addresses(mut self, used: bool) -> Self {
        self.core.use_alternative_addresses = used;
        self
    }

    /// Whether paths open automatically, one from every local address to every server address; on
    /// by default. Otherwise [`Connection::open_path`](crate::Connection::open_path) opens them.
    #[must_use]
    pub fn automatic_paths(mut self, automatic: bool) -> Self {
        self.automatic_paths = automatic;
        self
    }

    /// Decides on the paths that open on their own: [`path_managers::Plan`] by default.
    ///
    /// [`path_managers::Plan`]: crate::path_managers::Plan
    ///
    /// ```
    /// use mpquic_tokio::ClientConfig;
    /// use mpquic_tokio::path_managers::{self, Origin, StandBy};
    ///
    /// // Paths over the modem carry data only while no others work.
    /// let modem = Origin::Interface("wwan0".to_owned());
    /// let manager = StandBy::factory(path_managers::default(), vec![modem]);
    /// let config = ClientConfig::dangerous_insecure(&[b"example"])?.path_manager(manager);
    /// # Ok::<(), mpquic_tokio::ConfigError>(())
    /// ```
    #[must_use]
    pub fn path_manager(mut self, manager: Arc<dyn PathManagerFactory>) -> Self {
        self.path_manager = manager;
        self
    }

    /// Further addresses of the server, to which paths open as well.
    #[must_use]
    pub fn server_addresses(mut self, addresses: Vec<SocketAddr>) -> Self {
        self.server_addresses = addresses.into_iter().map(canonical).collect();
        self
    }
}

/// A server's configuration: certificate, application protocols, limits.
///
/// The constructors take the application protocols (ALPN), the preferred one first, at least one.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub(crate) core: config::ServerOptions,
    /// The TLS configuration, unless it is somebody else's.
    tls: Option<Arc<QuicServerConfig>>,
}

impl ServerConfig {
    /// Uses any TLS configuration.
    ///
    /// # Errors
    ///
    /// If the system gives no randomness.
    pub fn new(crypto: Arc<dyn mpquic_core::crypto::ServerCrypto>) -> Result<Self, ConfigError> {
        let transport = default_transport_config();
        let core = config::ServerOptions::new(crypto, transport, random()?);
        Ok(Self { core, tls: None })
    }

    fn by(tls: QuicServerConfig) -> Result<Self, ConfigError> {
        let tls = Arc::new(tls);
        Ok(Self {
            tls: Some(tls.clone()),
            ..Self::new(tls)?
        })
    }

    /// Checks the options; ports of preferred addresses need not be chosen yet.
    pub(crate) fn check_before_binding(&self) -> Result<(), InvalidOption> {
        let mut options = self.core.clone();
        if let Some(address) = options.preferred_address_v4.as_mut() {
            address.set_port(address.port().max(1));
        }
        if let Some(address) = options.preferred_address_v6.as_mut() {
            address.set_port(address.port().max(1));
        }
        options.build().map(|_| ())
    }

    /// The configuration for the core.
    pub(crate) fn checked(&self) -> Result<Arc<config::ServerConfig>, InvalidOption> {
        Ok(Arc::new(self.core.clone().build()?))
    }

    /// Identifies the server by a certificate chain, its own certificate first.
    ///
    /// # Errors
    ///
    /// If no protocol is named, or TLS refuses certificate or key.
    pub fn with_certificate(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<Self, ConfigError> {
        let crypto = QuicServerConfig::with_certificate(chain, key, protocols(alpn)?)?;
        Self::by(crypto)
    }

    /// Identifies the server by the certificate chain in one PEM file and the private key in
    /// another (or the same) one.
    ///
    /// # Errors
    ///
    /// If a file has no valid certificate or key, no protocol is named, or TLS refuses certificate
    /// or key.
    pub fn with_pem(chain: &[u8], key: &[u8], alpn: &[&[u8]]) -> Result<Self, ConfigError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(ConfigError::Pem)?;
        Self::with_certificate(certificates(chain)?, key, alpn)
    }

    /// Identifies the server by its public key alone, without a certificate (RFC 7250): for peers
    /// that know each other's keys. Returns the public key, which clients have to know.
    ///
    /// # Errors
    ///
    /// If no protocol is named, or the key is of no known kind.
    ///
    /// # Examples
    ///
    /// ```
    /// use mpquic_tokio::rustls::pki_types::PrivatePkcs8KeyDer;
    /// use mpquic_tokio::{ClientConfig, ServerConfig};
    ///
    /// let key = rcgen::KeyPair::generate()?; // kept in a file, for example
    /// let private = PrivatePkcs8KeyDer::from(key.serialize_der());
    /// let (server, public) = ServerConfig::with_raw_public_key(private.into(), &[b"hello"])?;
    /// let client = ClientConfig::with_raw_public_key(public, &[b"hello"])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_raw_public_key(
        key: PrivateKeyDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<(Self, SubjectPublicKeyInfoDer<'static>), ConfigError> {
        let (crypto, public) = QuicServerConfig::with_raw_public_key(key, protocols(alpn)?)?;
        Ok((Self::by(crypto)?, public))
    }

    /// Identifies the server by a new self-signed certificate for these names, which clients have
    /// to pin. Returns the certificate as well.
    ///
    /// # Errors
    ///
    /// If no protocol is named, or one of `names` is not a valid server name.
    #[cfg(feature = "self-signed")]
    pub fn self_signed(
        names: &[&str],
        alpn: &[&[u8]],
    ) -> Result<(Self, CertificateDer<'static>), ConfigError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certified = rcgen::generate_simple_self_signed(names)
            .map_err(|error| ConfigError::SelfSigned(error.into()))?;
        let certificate = certified.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let config = Self::with_certificate(vec![certificate.clone()], key.into(), alpn)?;
        Ok((config, certificate))
    }

    /// How the server agrees with clients on the secrets of a connection, if they offer it:
    /// [`KeyExchange::Hybrid`] by default, which quantum computers do not break. With
    /// [`KeyExchange::Classical`], a handshake takes less of the processor.
    ///
    /// # Errors
    ///
    /// If the TLS configuration was given to [`Self::new`]: its own provider decides.
    pub fn key_exchange(mut self, wanted: KeyExchange) -> Result<Self, ConfigError> {
        let tls = self.tls.as_ref();
        let tls = tls.ok_or(TlsConfigError::KeyExchangeOfProvider(wanted))?;
        let tls = Arc::new(tls.key_exchange(wanted)?);
        self.core.crypto = tls.clone();
        self.tls = Some(tls);
        Ok(self)
    }

    /// Replaces the transport configuration, which several configurations may share;
    /// [`default_transport`] has the defaults.
    #[must_use]
    pub fn transport_config(mut self, transport: impl Into<Arc<TransportConfig>>) -> Self {
        self.core.transport = transport.into();
        self
    }

    /// An IPv4 address of this server to which clients are asked to move (RFC 9000 section 9.6),
    /// for example if many servers share the address to which clients connect. Must not be the
    /// unspecified address. [`EndpointBuilder`](crate::EndpointBuilder) binds it, and accepts port
    /// 0 for a free port.
    #[must_use]
    pub fn preferred_address_v4(mut self, address: Option<SocketAddrV4>) -> Self {
        self.core.preferred_address_v4 = address;
        self
    }

    /// The preferred address for clients that use IPv6.
    #[must_use]
    pub fn preferred_address_v6(mut self, address: Option<SocketAddrV6>) -> Self {
        self.core.preferred_address_v6 = address;
        self
    }

    /// The secret that protects address validation tokens; random by default. Servers with the same
    /// key accept each other's tokens, and a restarted server those of its predecessor.
    #[must_use]
    pub fn token_key(mut self, key: [u8; 32]) -> Self {
        self.core.token_key = key;
        self
    }

    /// Accepts tokens from a service in front of the server, made with shared keys, and makes such
    /// tokens; see [`mpquic_core::config::ServerOptions::retry_tokens`].
    #[must_use]
    pub fn retry_tokens(mut self, tokens: Arc<RetryTokens>) -> Self {
        self.core.retry_tokens = Some(tokens);
        self
    }

    /// How long the token in a Retry packet is valid, more than zero; 15 seconds by default.
    #[must_use]
    pub fn retry_token_lifetime(mut self, lifetime: Duration) -> Self {
        self.core.retry_token_lifetime = lifetime;
        self
    }

    /// Validity of a token for the client's next connection; two weeks by default. Zero turns such
    /// tokens off.
    #[must_use]
    pub fn token_lifetime(mut self, lifetime: Duration) -> Self {
        self.core.token_lifetime = lifetime;
        self
    }

    /// The wall clock that tells the age of tokens; the system's by default.
    #[must_use]
    pub fn time_source(mut self, clock: Arc<dyn TimeSource>) -> Self {
        self.core.time_source = clock;
        self
    }

    /// Whether clients may change their address, on by default.
    #[must_use]
    pub fn migration(mut self, allowed: bool) -> Self {
        self.core.migration = allowed;
        self
    }

    /// Connection attempts that may wait for [`Endpoint::accept`](crate::Endpoint::accept), 4096 by
    /// default; further ones are refused.
    #[must_use]
    pub fn max_incoming(mut self, count: usize) -> Self {
        self.core.max_incoming = count;
        self
    }

    /// Accepted connections that may be open at a time, at least 1, 65,536 by default; further
    /// clients are refused.
    #[must_use]
    pub fn max_connections(mut self, count: usize) -> Self {
        self.core.max_connections = count;
        self
    }

    /// Half-open connections at a time, at least 1, 4096 by default: clients that wait for
    /// [`Endpoint::accept`](crate::Endpoint::accept), and connections in their handshake. Further
    /// clients get no answer, and try again.
    #[must_use]
    pub fn max_half_open_connections(mut self, count: usize) -> Self {
        self.core.max_half_open_connections = count;
        self
    }

    /// From this number of half-open connections on, 1024 by default, clients must prove their
    /// address by answering a Retry, before [`Endpoint::accept`](crate::Endpoint::accept) returns
    /// them. With 0, every client must.
    #[must_use]
    pub fn retry_threshold(mut self, count: usize) -> Self {
        self.core.retry_threshold = count;
        self
    }

    /// Below this number of half-open connections, 64 by default, no client has to prove its
    /// address, unless [`Self::retry_threshold`] is lower. From this number on, clients must while
    /// they arrive faster than they complete their handshakes.
    #[must_use]
    pub fn retry_min_half_open(mut self, count: usize) -> Self {
        self.core.retry_min_half_open = count;
        self
    }

    /// Once the oldest client has waited for [`Endpoint::accept`](crate::Endpoint::accept) this
    /// long, 20 ms by default, further clients must prove their address, unless there are fewer
    /// half-open connections than [`Self::retry_min_half_open`].
    #[must_use]
    pub fn retry_attempt_lag(mut self, lag: Duration) -> Self {
        self.core.retry_attempt_lag = lag;
        self
    }

    /// Once the oldest client has waited for [`Endpoint::accept`](crate::Endpoint::accept) this
    /// long, 100 ms by default, further clients get no answer and try again later, unless there are
    /// fewer half-open connections than [`Self::retry_min_half_open`].
    #[must_use]
    pub fn max_attempt_lag(mut self, lag: Duration) -> Self {
        self.core.max_attempt_lag = lag;
        self
    }
}

/// The certificates that the operating system trusts.
#[cfg(feature = "native-roots")]
fn native_roots(
    found: rustls_native_certs::CertificateResult,
) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let first = found.errors.first();
        return Err(ConfigError::NoNativeRoots(first.map(ToString::to_string)));
    }
    for error in found.errors {
        tracing::warn!(%error, "cannot read all that the operating system trusts");
    }
    Ok(roots)
}

fn protocols<'a>(alpn: &'a [&'a [u8]]) -> Result<&'a [&'a [u8]], ConfigError> {
    if alpn.is_empty() {
        Err(ConfigError::NoProtocol)
    } else {
        Ok(alpn)
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(ConfigError::Pem)?;
    if certificates.is_empty() {
        return Err(ConfigError::NoCertificate);
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client trusts servers whose certificate is in its file, and no others.
    #[tokio::test(start_paused = true)]
    async fn a_file_of_certificates_says_whom_to_trust() -> crate::testing::TestResult {
        let alpn = crate::testing::ALPN;
        let certified = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let (trusted, stranger) = (certified()?, certified()?);
        let trust = trusted.cert.pem();
        for (server, is_trusted) in [(&trusted, true), (&stranger, false)] {
            let key = server.signing_key.serialize_pem();
            let pem = server.cert.pem();
            let config = ServerConfig::with_pem(pem.as_bytes(), key.as_bytes(), alpn)?;
            let client = ClientConfig::with_ca_pem(trust.as_bytes(), alpn)?;
            let pair =
                crate::testing::Pair::new((config, &["10.0.0.1:443"]), (client, &["10.0.1.1:1"]))?;
            assert_eq!(pair.connect().await.is_ok(), is_trusted);
        }
        Ok(())
    }

    #[test]
    fn pem_files_are_read_and_wrong_ones_refused() {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let chain = certified.cert.pem();
        let key = certified.signing_key.serialize_pem();
        let alpn: &[&[u8]] = &[b"test"];
        ServerConfig::with_pem(chain.as_bytes(), key.as_bytes(), alpn).unwrap();
        ClientConfig::with_ca_pem(chain.as_bytes(), alpn).unwrap();
        for (chain, key) in [("", key.as_str()), (chain.as_str(), ""), ("junk", "junk")] {
            assert!(ServerConfig::with_pem(chain.as_bytes(), key.as_bytes(), alpn).is_err());
        }
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        ClientConfig::with_ca_pem([broken, &chain].concat().as_bytes(), alpn).unwrap();
        assert!(matches!(
            ClientConfig::with_ca_pem(broken.as_bytes(), alpn),
            Err(ConfigError::Certificate(_))
        ));
        assert!(matches!(
            ClientConfig::with_ca_pem(key.as_bytes(), alpn),
            Err(ConfigError::NoCertificate)
        ));
    }

    /// An empty store of certificates is an error at once, not a failed handshake later.
    #[cfg(feature = "native-roots")]
    #[test]
    fn system_without_trusted_certificates_is_an_error() {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let mut found = rustls_native_certs::CertificateResult::default();
        let refused = native_roots(std::mem::take(&mut found)).unwrap_err();
        let expected = "the operating system trusts no certification authority";
        assert_eq!(refused.to_string(), expected);
        found.certs.push(vec![1, 2, 3].into());
        assert!(native_roots(std::mem::take(&mut found)).is_err());
        found.certs.push(certified.cert.der().clone());
        assert_eq!(native_roots(found).unwrap().len(), 1);
    }

    #[test]
    fn keys_are_random() {
        assert_ne!(random().unwrap(), random().unwrap());
        assert_ne!(random().unwrap(), [0; 32]);
    }

    /// Port 0, for a port that the system chooses, is not an error yet.
    #[test]
    fn preferred_address_may_have_port_zero_before_binding() {
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"]).unwrap();
        let v4 = Some("192.0.2.1:0".parse().unwrap());
        let v6 = Some("[2001:db8::1]:0".parse().unwrap());
        let config = config.preferred_address_v4(v4).preferred_address_v6(v6);
        config.check_before_binding().unwrap();
        assert!(config.checked().is_err());
    }

    #[test]
    fn a_protocol_has_to_be_named() {
        let client = ClientConfig::dangerous_insecure(&[]).err();
        let server = ServerConfig::self_signed(&["localhost"], &[]).err();
        for refused in [client, server] {
            assert!(matches!(refused, Some(ConfigError::NoProtocol)));
        }
    }
}
