//! Configurations of endpoints, clients and servers.

use std::fmt;
use std::io;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use ::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ::rustls::{RootCertStore, client::VerifierBuilderError};
use mpquic_tokio as mp;
use mpquic_tokio::knowledge::Knowledge;
use mpquic_tokio::{ConnectionIds, EndpointOptions, Version};
use quinn_proto::crypto::{HandshakeTokenKey, HmacKey};
use quinn_proto::{
    ConfigError, ConnectError, ConnectionId, ConnectionIdGenerator, InvalidCid, StdSystemTime,
    TimeSource, TokenLog, TokenStore,
};

use crate::crypto;
use crate::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use crate::tokens::Tokens;
use crate::transport::TransportConfig;

/// Makes generators of connection IDs.
type Generators = Arc<dyn Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync>;

/// Limits and behaviour of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    reset_key: [u8; 32],
    max_udp_payload_size: Option<u16>,
    generators: Option<Generators>,
    supported_versions: Option<Vec<u32>>,
    grease_quic_bit: bool,
}

impl EndpointConfig {
    /// A configuration with this key for stateless resets.
    pub fn new(reset_key: Arc<dyn HmacKey>) -> Self {
        Self {
            reset_key: secret_of(&*reset_key),
            max_udp_payload_size: None,
            generators: None,
            supported_versions: None,
            grease_quic_bit: true,
        }
    }

    /// Sets the key for stateless resets. With the same key, an endpoint after a restart ends the
    /// connections from before.
    pub fn reset_key(&mut self, key: Arc<dyn HmacKey>) -> &mut Self {
        self.reset_key = secret_of(&*key);
        self
    }

    /// Sets the size of the largest UDP payload that this endpoint receives, bytes.
    ///
    /// # Errors
    ///
    /// Below 1200 and above 65527 bytes.
    pub fn max_udp_payload_size(&mut self, value: u16) -> Result<&mut Self, ConfigError> {
        if !(1200..=65527).contains(&value) {
            return Err(ConfigError::OutOfBounds);
        }
        self.max_udp_payload_size = Some(value);
        Ok(self)
    }

    /// The size of the largest UDP payload that this endpoint receives, bytes.
    pub fn get_max_udp_payload_size(&self) -> u64 {
        self.options().max_udp_payload_size.into()
    }

    /// Sets the source of connection IDs, with 4 to 20 bytes each. Connections over several paths
    /// need connection IDs, so other lengths give way to random connection IDs of 8 bytes.
    pub fn cid_generator<F: Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync + 'static>(
        &mut self,
        factory: F,
    ) -> &mut Self {
        self.generators = Some(Arc::new(factory));
        self
    }

    /// Sets the versions of QUIC by their numbers. Unknown versions are left out.
    pub fn supported_versions(&mut self, supported_versions: Vec<u32>) -> &mut Self {
        self.supported_versions = Some(supported_versions);
        self
    }

    /// Sets whether the endpoint may draw a bit at random that is 1 in other versions of QUIC; true
    /// by default.
    pub fn grease_quic_bit(&mut self, value: bool) -> &mut Self {
        self.grease_quic_bit = value;
        self
    }

    /// No effect: a limit of mpquic holds for stateless resets.
    pub fn min_reset_interval(&mut self, value: Duration) -> &mut Self {
        let _ = value;
        self
    }

    /// No effect: the endpoint draws its seed itself.
    pub fn rng_seed(&mut self, seed: Option<[u8; 32]>) -> &mut Self {
        let _ = seed;
        self
    }

    fn options(&self) -> EndpointOptions {
        let mut options = EndpointOptions::new(self.reset_key);
        options.grease_quic_bit = self.grease_quic_bit;
        if let Some(size) = self.max_udp_payload_size {
            options.max_udp_payload_size = size;
        }
        if let Some(numbers) = &self.supported_versions {
            let known = numbers.iter().copied().filter_map(Version::from_u32);
            options.supported_versions = known.collect();
        }
        if let Some(generators) = self.generators.clone() {
            match ConnectionIds::new(move |_| Generator(generators())) {
                Ok(ids) => options.connection_ids = ids,
                Err(error) => tracing::warn!(%error, "random connection IDs are used instead"),
            }
        }
        options
    }

    /// The configuration for mpquic.
    pub(crate) fn to_mpquic(&self) -> io::Result<mp::EndpointConfig> {
        let built = self.options().build();
        built.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

impl Default for EndpointConfig {
    /// A configuration with a random key for stateless resets.
    fn default() -> Self {
        Self {
            reset_key: crypto::random(),
            max_udp_payload_size: None,
            generators: None,
            supported_versions: None,
            grease_quic_bit: true,
        }
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("max_udp_payload_size", &self.max_udp_payload_size)
            .field("supported_versions", &self.supported_versions)
            .field("grease_quic_bit", &self.grease_quic_bit)
            .finish_non_exhaustive()
    }
}

/// A generator in a box: mpquic's factories name a type.
struct Generator(Box<dyn ConnectionIdGenerator>);

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.0.generate_cid()
    }

    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        self.0.validate(cid)
    }

    fn cid_len(&self) -> usize {
        self.0.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        self.0.cid_lifetime()
    }
}

/// A secret that depends on the key alone.
fn secret_of(key: &dyn HmacKey) -> [u8; 32] {
    let mut signature = vec![0; key.signature_len()];
    key.sign(b"mpquic: tokens of stateless resets", &mut signature);
    first_bytes(&signature)
}

/// A secret that depends on the key alone.
fn secret_of_tokens(key: &dyn HandshakeTokenKey) -> [u8; 32] {
    let mut sealed = vec![0; 32];
    let key = key.aead_from_hkdf(b"mpquic: tokens of addresses");
    if key.seal(&mut sealed, &[]).is_err() {
        return crypto::random();
    }
    first_bytes(&sealed)
}

fn first_bytes(bytes: &[u8]) -> [u8; 32] {
    let mut first = [0; 32];
    for (to, from) in first.iter_mut().zip(bytes) {
        *to = *from;
    }
    first
}

/// The configuration of connections to servers. Clones share tokens and knowledge of paths.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    transport: Arc<TransportConfig>,
    crypto: Arc<dyn crypto::ClientConfig>,
    knowledge: Knowledge,
    version: Option<u32>,
}

impl ClientConfig {
    /// A configuration with this TLS configuration.
    pub fn new(crypto: Arc<dyn crypto::ClientConfig>) -> Self {
        Self {
            transport: Arc::default(),
            crypto,
            knowledge: Knowledge::default(),
            version: None,
        }
    }

    /// A configuration that trusts these certificates, without application protocols.
    ///
    /// # Errors
    ///
    /// Without certificates.
    pub fn with_root_certificates(roots: Arc<RootCertStore>) -> Result<Self, VerifierBuilderError> {
        let crypto = QuicClientConfig::with_root_certificates(roots)?;
        Ok(Self::new(Arc::new(crypto)))
    }

    /// A configuration that trusts the certificates of the operating system, without application
    /// protocols.
    ///
    /// # Panics
    ///
    /// If the system has no trusted certificates.
    #[cfg(feature = "platform-verifier")]
    pub fn with_platform_verifier() -> Self {
        #[expect(clippy::expect_used, reason = "quinn's signature leaves no other way")]
        Self::try_with_platform_verifier().expect("the system has trusted certificates")
    }

    /// A configuration that trusts the certificates of the operating system, without application
    /// protocols.
    ///
    /// # Errors
    ///
    /// If the system has no trusted certificates.
    #[cfg(feature = "platform-verifier")]
    pub fn try_with_platform_verifier() -> Result<Self, ::rustls::Error> {
        let crypto = QuicClientConfig::with_platform_roots()?;
        Ok(Self::new(Arc::new(crypto)))
    }

    /// Sets the transport configuration.
    pub fn transport_config(&mut self, transport: Arc<TransportConfig>) -> &mut Self {
        self.transport = transport;
        self
    }

    /// Sets the version of QUIC by its number.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = Some(version);
        self
    }

    /// Sets where tokens of servers are kept.
    pub fn token_store(&mut self, store: Arc<dyn TokenStore>) -> &mut Self {
        self.knowledge = Knowledge::new(Tokens::new(store));
        self
    }

    /// No effect: mpquic draws the first destination connection ID.
    pub fn initial_dst_cid_provider(
        &mut self,
        provider: Arc<dyn Fn() -> ConnectionId + Send + Sync>,
    ) -> &mut Self {
        drop(provider);
        self
    }

    /// The configuration for mpquic.
    pub(crate) fn to_mpquic(&self) -> Result<mp::ClientConfig, ConnectError> {
        let transport = self.transport.to_mpquic(Some(&self.knowledge));
        let config = mp::ClientConfig::new(self.crypto.clone().into_mpquic());
        let mut config = config.transport_config(transport);
        if let Some(number) = self.version {
            let version = Version::from_u32(number).ok_or(ConnectError::UnsupportedVersion)?;
            config = config.version(version);
        }
        Ok(config)
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("transport", &self.transport)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The configuration of connections from clients.
#[derive(Clone)]
pub struct ServerConfig {
    /// The transport configuration.
    pub transport: Arc<TransportConfig>,
    /// The TLS configuration.
    pub crypto: Arc<dyn crypto::ServerConfig>,
    /// Tokens by which clients prove their address in a later connection.
    pub validation_token: ValidationTokenConfig,
    token_key: [u8; 32],
    retry_token_lifetime: Duration,
    migration: bool,
    preferred_address_v4: Option<SocketAddrV4>,
    preferred_address_v6: Option<SocketAddrV6>,
    max_incoming: Option<usize>,
    time_source: Arc<dyn TimeSource>,
}

impl ServerConfig {
    /// A configuration with this TLS configuration, and with this key for tokens.
    pub fn new(
        crypto: Arc<dyn crypto::ServerConfig>,
        token_key: Arc<dyn HandshakeTokenKey>,
    ) -> Self {
        let mut config = Self::with_crypto(crypto);
        config.token_key(token_key);
        config
    }

    /// A configuration with this TLS configuration, and with a random key for tokens.
    pub fn with_crypto(crypto: Arc<dyn crypto::ServerConfig>) -> Self {
        Self {
            transport: Arc::default(),
            crypto,
            validation_token: ValidationTokenConfig::default(),
            token_key: crypto::random(),
            retry_token_lifetime: Duration::from_secs(15),
            migration: true,
            preferred_address_v4: None,
            preferred_address_v6: None,
            max_incoming: None,
            time_source: Arc::new(StdSystemTime),
        }
    }

    /// A configuration with this certificate, without application protocols. Clients may send early
    /// data.
    ///
    /// # Errors
    ///
    /// If the key does not belong to the certificate.
    pub fn with_single_cert(
        cert_chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, ::rustls::Error> {
        let crypto = QuicServerConfig::with_single_cert(cert_chain, key)?;
        Ok(Self::with_crypto(Arc::new(crypto)))
    }

    /// Sets the transport configuration.
    pub fn transport_config(&mut self, transport: Arc<TransportConfig>) -> &mut Self {
        self.transport = transport;
        self
    }

    /// Sets the tokens by which clients prove their address in a later connection.
    pub fn validation_token_config(&mut self, config: ValidationTokenConfig) -> &mut Self {
        self.validation_token = config;
        self
    }

    /// Sets the key for tokens. Servers with the same key accept each other's tokens.
    pub fn token_key(&mut self, value: Arc<dyn HandshakeTokenKey>) -> &mut Self {
        self.token_key = secret_of_tokens(&*value);
        self
    }

    /// Sets how long a client may take to answer a Retry packet.
    pub fn retry_token_lifetime(&mut self, value: Duration) -> &mut Self {
        self.retry_token_lifetime = value;
        self
    }

    /// Sets whether clients may change their address; true by default. Further paths are always
    /// allowed.
    pub fn migration(&mut self, value: bool) -> &mut Self {
        self.migration = value;
        self
    }

    /// Sets an address to which clients shall move, for clients that came over IPv4.
    pub fn preferred_address_v4(&mut self, address: Option<SocketAddrV4>) -> &mut Self {
        self.preferred_address_v4 = address;
        self
    }

    /// Sets an address to which clients shall move, for clients that came over IPv6.
    pub fn preferred_address_v6(&mut self, address: Option<SocketAddrV6>) -> &mut Self {
        self.preferred_address_v6 = address;
        self
    }

    /// Sets how many attempts may wait for the application's decision.
    pub fn max_incoming(&mut self, max_incoming: usize) -> &mut Self {
        self.max_incoming = Some(max_incoming);
        self
    }

    /// No effect: the memory limit of the endpoint holds for waiting attempts too.
    pub fn incoming_buffer_size(&mut self, incoming_buffer_size: u64) -> &mut Self {
        let _ = incoming_buffer_size;
        self
    }

    /// No effect: the memory limit of the endpoint holds for waiting attempts too.
    pub fn incoming_buffer_size_total(&mut self, incoming_buffer_size_total: u64) -> &mut Self {
        let _ = incoming_buffer_size_total;
        self
    }

    /// Sets the clock by which tokens expire.
    pub fn time_source(&mut self, time_source: Arc<dyn TimeSource>) -> &mut Self {
        self.time_source = time_source;
        self
    }

    /// The configuration for mpquic.
    pub(crate) fn to_mpquic(&self) -> Result<mp::ServerConfig, mp::ConfigError> {
        let config = mp::ServerConfig::new(self.crypto.clone().into_mpquic())?
            .transport_config(self.transport.to_mpquic(None))
            .token_key(self.token_key)
            .retry_token_lifetime(self.retry_token_lifetime)
            .token_lifetime(self.validation_token.lifetime)
            .migration(self.migration)
            .preferred_address_v4(self.preferred_address_v4)
            .preferred_address_v6(self.preferred_address_v6)
            .time_source(self.time_source.clone());
        Ok(match self.max_incoming {
            Some(count) => config.max_incoming(count),
            None => config,
        })
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("transport", &self.transport)
            .field("validation_token", &self.validation_token)
            .field("retry_token_lifetime", &self.retry_token_lifetime)
            .field("migration", &self.migration)
            .finish_non_exhaustive()
    }
}

/// Tokens by which clients prove their address in a later connection.
#[derive(Clone)]
pub struct ValidationTokenConfig {
    lifetime: Duration,
}

impl ValidationTokenConfig {
    /// Sets how long a token is valid; two weeks by default.
    pub fn lifetime(&mut self, value: Duration) -> &mut Self {
        self.lifetime = value;
        self
    }

    /// No effect: each endpoint remembers used tokens itself.
    pub fn log(&mut self, log: Arc<dyn TokenLog>) -> &mut Self {
        drop(log);
        self
    }

    /// No effect: each connection gets one token for each of its paths' addresses.
    pub fn sent(&mut self, value: u32) -> &mut Self {
        let _ = value;
        self
    }
}

impl Default for ValidationTokenConfig {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(14 * 24 * 3600),
        }
    }
}

impl fmt::Debug for ValidationTokenConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidationTokenConfig")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}
