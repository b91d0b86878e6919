//! TLS 1.3 and packet protection by rustls, over ring or aws-lc-rs.
//!
//! [`QuicClientConfig`] and [`QuicServerConfig`] wrap any rustls configuration whose provider
//! implements the multipath nonce; their other constructors cover the usual cases. Those honour
//! `SSLKEYLOGFILE`.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs::digest;
use quinn_proto::{ConnectionId, Side};
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use ring::digest;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::quic::{self, Connection, KeyChange, Secrets, Suite};
use rustls::{CipherSuite, DigitallySignedStruct, KeyLogFile, RootCertStore, SignatureScheme};

use super::{
    ClientCrypto, CryptoError, ExportError, FirstFlight, HandshakeData, HeaderKey, InitialCrypto,
    InvalidServerName, KeyPair, Keys, PacketKey, ServerCrypto, Session,
};
use crate::error::{Fault, TlsFailure, TransportError};
use crate::ids::PathId;
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;
use exporter::{Exporter, check_label};
use post_handshake::PostHandshake;
use secret_log::SecretLog;
use sessions::{ClientSessions, ConnectionSessions, VersionSessions, VersionTickets};
use settled::SettledServer;
use traffic::{Derivation, TrafficSecrets};

mod client_hello;
mod exporter;
mod post_handshake;
mod secret_log;
mod sessions;
mod settled;
pub(super) mod traffic;

/// Session tickets a client keeps of each version.
const SESSIONS: usize = 256;

/// Enough for what we announce.
const PARAMETERS_LENGTH: usize = 256;

/// Why a rustls configuration cannot be used for multipath QUIC.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsConfigError {
    /// Initial packets need this suite (RFC 9001 section 5), and no provider has it.
    #[error("no TLS provider has TLS13_AES_128_GCM_SHA256")]
    NoInitialSuite,
    /// The provider's keys of this suite do not know path IDs.
    #[error("the TLS provider's {0:?} does not support multipath QUIC")]
    NoMultipath(CipherSuite),
    /// rustls refuses the configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The compiled-in provider with the suites of TLS 1.3, AES-128-GCM first: it is the fastest where
/// the processor helps, and the keys of all suites are strong enough.
pub fn provider() -> CryptoProvider {
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    let mut provider = rustls::crypto::ring::default_provider();
    #[cfg(feature = "aws-lc-rs")]
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.tls13().is_some());
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// SHA-256 of a certificate's DER encoding: what [`QuicClientConfig::with_pin`] compares.
pub fn certificate_fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    fingerprint
}

/// A client's TLS configuration.
pub struct QuicClientConfig {
    /// For connections that keep to their version.
    v1: Arc<rustls::ClientConfig>,
    v2: Arc<rustls::ClientConfig>,
    /// Tickets of all versions, unless `v1` has a store of its own.
    sessions: Option<Arc<ClientSessions>>,
    initial: Suite,
}

impl QuicClientConfig {
    /// Wraps a configuration. 0-RTT needs its `enable_early_data`. Its `resumption` is used in
    /// version 1 of QUIC, where tickets must not come from another version; with
    /// [`Self::with_sessions`] sessions of all versions can be resumed.
    pub fn new(inner: Arc<rustls::ClientConfig>) -> Result<Self, TlsConfigError> {
        let initial = checked_initial_suite(inner.crypto_provider())?;
        // Whatever else rustls may find fault with shows here instead of at every connection.
        let name = ServerName::try_from("mpquic.invalid").map_err(|_| {
            TlsConfigError::Tls(rustls::Error::General("no server name".to_owned()))
        })?;
        quic::ClientConnection::new(inner.clone(), quic::Version::V1, name, Vec::new())?;
        let mut v2 = rustls::ClientConfig::clone(&inner);
        v2.resumption = Resumption::disabled();
        Ok(Self {
            v1: inner,
            v2: Arc::new(v2),
            sessions: None,
            initial,
        })
    }

    /// Keeps so many session tickets in memory, for each version of QUIC.
    #[must_use]
    pub fn with_sessions(mut self, count: usize) -> Self {
        let sessions = ClientSessions::new(count);
        for (config, version) in [(&mut self.v1, Version::V1), (&mut self.v2, Version::V2)] {
            Arc::make_mut(config).resumption = Resumption::store(sessions.of(version));
        }
        self.sessions = Some(Arc::new(sessions));
        self
    }

    /// Trusts servers whose certificate leads to one of `roots`.
    pub fn with_roots(roots: RootCertStore, alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::finish(config, alpn)
    }

    /// Trusts the server whose certificate has this SHA-256 (see [`certificate_fingerprint`]),
    /// whatever its name, issuer and dates.
    pub fn with_pin(fingerprint: [u8; 32], alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        Self::with_verifier(Some(fingerprint), alpn)
    }

    /// Trusts every server: encryption without authentication. For tests and measurements.
    pub fn dangerous_trusting_any_certificate(alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        Self::with_verifier(None, alpn)
    }

    fn with_verifier(pin: Option<[u8; 32]>, alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        let provider = Arc::new(provider());
        let verifier = PinVerifier {
            pin,
            algorithms: provider.signature_verification_algorithms,
        };
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Self::finish(config, alpn)
    }

    fn finish(mut config: rustls::ClientConfig, alpn: &[&[u8]]) -> Result<Self, TlsConfigError> {
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.enable_early_data = true;
        config.key_log = Arc::new(KeyLogFile::new());
        Ok(Self::new(Arc::new(config))?.with_sessions(SESSIONS))
    }

    fn of(&self, version: Version) -> &Arc<rustls::ClientConfig> {
        match version {
            Version::V1 => &self.v1,
            Version::V2 => &self.v2,
        }
    }

    /// A configuration for a connection whose version may change, and what it takes to follow.
    fn switchable(&self, version: Version) -> (Arc<rustls::ClientConfig>, Switch) {
        let mut config = rustls::ClientConfig::clone(self.of(version));
        let names = [secret_log::HANDSHAKE, secret_log::ONE_RTT].concat();
        let secrets = Arc::new(SecretLog::new(config.key_log, &names));
        config.key_log = secrets.clone();
        let sessions = self.sessions.as_ref().map(|all| {
            let sessions = Arc::new(ConnectionSessions::new(all.clone(), version));
            config.resumption = Resumption::store(sessions.clone());
            sessions
        });
        let switch = Switch {
            secrets,
            sessions,
            to: None,
        };
        (Arc::new(config), switch)
    }
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
        // `new` has shown that nothing but the name can be at fault.
        let inner = quic::ClientConnection::new(config, tls_version(version), name, encoded)
            .map_err(|_| invalid())?;
        Ok(Box::new(TlsSession {
            inner: Connection::Client(inner),
            next_secrets: None,
            switch,
            exporter_secret: None,
            post_handshake: PostHandshake::default(),
        }))
    }
}

/// rustls' name of a version.
fn tls_version(version: Version) -> quic::Version {
    match version {
        Version::V1 => quic::Version::V1,
        Version::V2 => quic::Version::V2,
    }
}

/// What a client's session needs to follow a server to another version.
struct Switch {
    secrets: Arc<SecretLog>,
    sessions: Option<Arc<ConnectionSessions>>,
    /// The version switched to.
    to: Option<Version>,
}

/// A server's TLS configuration.
pub struct QuicServerConfig {
    v1: Arc<rustls::ServerConfig>,
    v2: Arc<rustls::ServerConfig>,
    initial: Suite,
}

impl QuicServerConfig {
    /// Wraps a configuration. Its `max_early_data_size` must be 0 (no 0-RTT) or `u32::MAX`.
    /// Sessions and tickets are marked with the version of QUIC they come from.
    pub fn new(inner: Arc<rustls::ServerConfig>) -> Result<Self, TlsConfigError> {
        let initial = checked_initial_suite(inner.crypto_provider())?;
        quic::ServerConnection::new(inner.clone(), quic::Version::V1, Vec::new())?;
        let of = |version| {
            let mut config = rustls::ServerConfig::clone(&inner);
            config.session_storage = Arc::new(VersionSessions {
                all: config.session_storage,
                version,
            });
            config.ticketer = Arc::new(VersionTickets {
                all: config.ticketer,
                version,
            });
            Arc::new(config)
        };
        Ok(Self {
            v1: of(Version::V1),
            v2: of(Version::V2),
            initial,
        })
    }

    /// Shows this certificate, takes 0-RTT and speaks the given protocols, the preferred one first.
    pub fn with_certificate(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsConfigError> {
        Self::with_provider(Arc::new(provider()), chain, key, alpn)
    }

    /// As [`Self::with_certificate`], with the cipher suites of this provider.
    pub fn with_provider(
        provider: Arc<CryptoProvider>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsConfigError> {
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config.max_early_data_size = u32::MAX;
        config.key_log = Arc::new(KeyLogFile::new());
        Self::new(Arc::new(config))
    }
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
        let config = match version {
            Version::V1 => &self.v1,
            Version::V2 => &self.v2,
        };
        // rustls shows this secret to none but the log, which is the same for all connections.
        let mut config = rustls::ServerConfig::clone(config);
        let secrets = Arc::new(SecretLog::new(config.key_log, &[secret_log::EXPORTER]));
        config.key_log = secrets.clone();
        let inner = quic::ServerConnection::new(config.into(), tls_version(version), encoded)
            .map_err(|_| TransportError::new(Fault::TlsNotStarted))?;
        Ok(Box::new(TlsSession {
            inner: Connection::Server(inner),
            next_secrets: None,
            switch: None,
            exporter_secret: Some(secrets),
            post_handshake: PostHandshake::default(),
        }))
    }
}

/// The suite of Initial packets (RFC 9001 section 5), from the compiled-in provider if this one
/// leaves it out, once all suites have shown that they know path IDs: rustls lets a provider leave
/// that out, and then fails at every packet.
fn checked_initial_suite(wanted: &CryptoProvider) -> Result<Suite, TlsConfigError> {
    for suite in &wanted.cipher_suites {
        let Some(quic) = suite.tls13().and_then(|suite| suite.quic_suite()) else {
            continue;
        };
        let keys = quic.keys(&[], rustls::Side::Client, quic::Version::V1);
        if keys
            .local
            .packet
            .encrypt_in_place_for_path(1, 0, &[], &mut [0; 16])
            .is_err()
        {
            return Err(TlsConfigError::NoMultipath(suite.suite()));
        }
    }
    initial_suite(wanted)
        .or_else(|| initial_suite(&provider()))
        .ok_or(TlsConfigError::NoInitialSuite)
}

fn initial_suite(provider: &CryptoProvider) -> Option<Suite> {
    let mut suites = provider.cipher_suites.iter();
    let suite = suites.find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)?;
    suite.tls13()?.quic_suite()
}

fn initial_keys(suite: &Suite, version: Version, side: Side, destination: &ConnectionId) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    convert_keys(suite.keys(destination, side, tls_version(version)))
}

/// The TLS state of one connection.
struct TlsSession {
    inner: Connection,
    /// What later 1-RTT keys derive from.
    next_secrets: Option<NextSecrets>,
    /// Client that offers several versions.
    switch: Option<Switch>,
    /// Server: what is needed to export keying material when rustls is gone.
    exporter_secret: Option<Arc<SecretLog>>,
    post_handshake: PostHandshake,
}

/// What 1-RTT keys derive from.
enum NextSecrets {
    /// In the version rustls knows of.
    Tls(Secrets),
    /// In the version switched to.
    Switched(Derivation, TrafficSecrets),
}

impl NextSecrets {
    fn keys(&mut self) -> KeyPair<Box<dyn PacketKey>> {
        let (local, remote) = match self {
            Self::Tls(secrets) => {
                let keys = secrets.next_packet_keys();
                (keys.local, keys.remote)
            }
            Self::Switched(derivation, secrets) => {
                let keys = derivation.keys(secrets);
                *secrets = derivation.next(secrets);
                (keys.local.packet, keys.remote.packet)
            }
        };
        KeyPair {
            local: Box::new(TlsPacketKey(local)),
            remote: Box::new(TlsPacketKey(remote)),
        }
    }
}

impl TlsSession {
    /// The version switched to, and the secrets of its keys.
    fn switched(&self) -> Option<(Version, &SecretLog)> {
        let switch = self.switch.as_ref()?;
        Some((switch.to?, &switch.secrets))
    }

    fn derivation(&self, version: Version) -> Option<Derivation> {
        let suite = self.inner.negotiated_cipher_suite()?.tls13()?;
        Derivation::new(suite, rustls::Side::Client, tls_version(version))
    }

    /// The keys of the next level in the version switched to.
    fn switched_keys(&self, version: Version, secrets: Option<&TrafficSecrets>) -> Option<Keys> {
        Some(convert_keys(self.derivation(version)?.keys(secrets?)))
    }

    /// What exports keying material without rustls; on a server, and only once.
    fn exporter(&self) -> Option<Exporter> {
        let suite = self.inner.negotiated_cipher_suite()?.tls13()?;
        let secret = self.exporter_secret.as_ref()?.take(secret_log::EXPORTER)?;
        Some(Exporter::new(suite, secret))
    }

    fn server_name(&self) -> Option<&str> {
        match &self.inner {
            Connection::Client(_) => None,
            Connection::Server(server) => server.server_name(),
        }
    }
}

impl Session for TlsSession {
    fn handshake_data(&self) -> Option<HandshakeData> {
        let protocol = self.inner.alpn_protocol();
        let server_name = self.server_name();
        let is_known = protocol.is_some() || server_name.is_some() || !self.inner.is_handshaking();
        is_known.then(|| HandshakeData {
            protocol: protocol.map(<[u8]>::to_vec),
            server_name: server_name.map(str::to_owned),
        })
    }

    fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let certificates = self.inner.peer_certificates()?;
        Some(
            certificates
                .iter()
                .map(|certificate| certificate.clone().into_owned())
                .collect(),
        )
    }

    fn early_keys(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.inner.zero_rtt_keys()?;
        Some((
            Box::new(TlsHeaderKey(keys.header)),
            Box::new(TlsPacketKey(keys.packet)),
        ))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        match &self.inner {
            Connection::Client(client) if !client.is_handshaking() => {
                Some(client.is_early_data_accepted())
            }
            Connection::Client(_) | Connection::Server(_) => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, data: &[u8]) -> Result<(), TransportError> {
        if let (Connection::Client(_), false) = (&self.inner, self.inner.is_handshaking()) {
            self.post_handshake.check(data)?;
        }
        let is_store_of_another_version = self
            .switch
            .as_ref()
            .is_some_and(|switch| switch.to.is_some() && switch.sessions.is_none());
        if is_store_of_another_version && !self.inner.is_handshaking() {
            // Tickets (RFC 9369 section 5).
            return Ok(());
        }
        self.inner.read_hs(data).map_err(|error| {
            tracing::debug!(%error, "TLS failed");
            // RFC 9001 section 4.8
            let fault = Fault::Tls {
                alert: self.inner.alert().map(u8::from),
                failure: failure(&error),
            };
            fault.into()
        })
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let sender = match self.inner {
            Connection::Client(_) => Side::Server,
            Connection::Server(_) => Side::Client,
        };
        self.inner
            .quic_transport_parameters()
            .map(|encoded| TransportParameters::decode(sender, encoded))
            .transpose()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let change = self.inner.write_hs(buf)?;
        if let Some((version, secrets)) = self.switched() {
            return match change {
                KeyChange::Handshake { .. } => {
                    self.switched_keys(version, secrets.take_level(secret_log::HANDSHAKE).as_ref())
                }
                KeyChange::OneRtt { .. } => {
                    let secrets = secrets.take_level(secret_log::ONE_RTT)?;
                    let keys = self.switched_keys(version, Some(&secrets));
                    let derivation = self.derivation(version)?;
                    let next = derivation.next(&secrets);
                    self.next_secrets = Some(NextSecrets::Switched(derivation, next));
                    keys
                }
            };
        }
        match change {
            KeyChange::Handshake { keys } => Some(convert_keys(keys)),
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(NextSecrets::Tls(next));
                Some(convert_keys(keys))
            }
        }
    }

    fn set_version(&mut self, version: Version) {
        if let Some(switch) = &mut self.switch {
            switch.to = Some(version);
            if let Some(sessions) = &switch.sessions {
                sessions.set_version(version);
            }
        }
    }

    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(self.next_secrets.as_mut()?.keys())
    }

    fn settle(&mut self) -> Option<Box<dyn Session>> {
        if self.is_handshaking() || matches!(self.inner, Connection::Client(_)) {
            return None; // A client still gets session tickets.
        }
        Some(Box::new(SettledServer {
            data: self.handshake_data(),
            peer_certificates: self.peer_certificates(),
            exporter: self.exporter()?,
            next_secrets: self.next_secrets.take()?,
        }))
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        check_label(label)?;
        match self
            .inner
            .export_keying_material(output, label, Some(context))
        {
            Ok(_) => Ok(()),
            Err(rustls::Error::HandshakeNotComplete) => Err(ExportError::HandshakeIncomplete),
            Err(_) => Err(ExportError::OutputLength),
        }
    }
}

/// What the user is told; the details go to the log.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls has many errors, may get more, and most are alike to the user"
)]
fn failure(error: &rustls::Error) -> TlsFailure {
    use rustls::{CertificateError as Certificate, Error};
    match error {
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::UnknownIssuer => TlsFailure::UnknownIssuer,
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                TlsFailure::WrongName
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => TlsFailure::Expired,
            Certificate::ApplicationVerificationFailure => TlsFailure::NotPinned,
            _ => TlsFailure::BadCertificate,
        },
        Error::NoApplicationProtocol => TlsFailure::NoApplicationProtocol,
        Error::PeerIncompatible(_) => TlsFailure::Incompatible,
        Error::PeerMisbehaved(_)
        | Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => TlsFailure::Misbehaved,
        Error::DecryptError => TlsFailure::NotVerified,
        _ => TlsFailure::Other,
    }
}

pub(super) fn convert_keys(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(TlsHeaderKey(keys.local.header)),
            remote: Box::new(TlsHeaderKey(keys.remote.header)),
        },
        packet: KeyPair {
            local: Box::new(TlsPacketKey(keys.local.packet)),
            remote: Box::new(TlsPacketKey(keys.remote.packet)),
        },
    }
}

/// Always builds the nonce with the path ID: for path 0, which is the path of all packets that
/// are not 1-RTT, that is the nonce of RFC 9001 (MP-033).
pub(super) struct TlsPacketKey(pub(super) Box<dyn quic::PacketKey>);

impl PacketKey for TlsPacketKey {
    fn encrypt(&self, path: PathId, packet_number: u64, packet: &mut [u8], header_length: usize) {
        let tag_offset = packet.len().saturating_sub(self.0.tag_len());
        let (sealed, tag_room) = packet.split_at_mut(tag_offset);
        let (header, payload) = sealed.split_at_mut(header_length.min(tag_offset));
        match self
            .0
            .encrypt_in_place_for_path(path.0, packet_number, header, payload)
        {
            Ok(tag) => tag_room.copy_from_slice(tag.as_ref()),
            // Packets are far below the AEAD's limit; still, plaintext must not leave.
            Err(_) => payload.fill(0),
        }
    }

    fn decrypt(
        &self,
        path: PathId,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.0
            .decrypt_in_place_for_path(path.0, packet_number, header, payload)
            .map(<[u8]>::len)
            .map_err(|_| CryptoError)
    }

    fn tag_length(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

struct TlsHeaderKey(Box<dyn quic::HeaderProtectionKey>);

impl TlsHeaderKey {
    /// The first byte, the four bytes where the packet number is, and the sample after them
    /// (RFC 9001 section 5.4.2).
    fn split<'a>(
        &self,
        offset: usize,
        packet: &'a mut [u8],
    ) -> Option<(&'a mut u8, &'a mut [u8], &'a [u8])> {
        let (header, rest) = packet.split_at_mut_checked(offset.checked_add(4)?)?;
        let (first, header) = header.split_first_mut()?;
        Some((
            first,
            header.get_mut(offset.checked_sub(1)?..)?,
            rest.get(..self.0.sample_len())?,
        ))
    }
}

impl HeaderKey for TlsHeaderKey {
    fn decrypt(&self, offset: usize, packet: &mut [u8]) -> bool {
        self.split(offset, packet)
            .is_some_and(|(first, number, sample)| {
                self.0.decrypt_in_place(sample, first, number).is_ok()
            })
    }

    fn encrypt(&self, offset: usize, packet: &mut [u8]) {
        let masked = self
            .split(offset, packet)
            .is_some_and(|(first, number, sample)| {
                self.0.encrypt_in_place(sample, first, number).is_ok()
            });
        debug_assert!(masked, "the builder pads packets so that there is a sample");
    }
}

/// Takes the pinned certificate, or any. That the server holds its private key is always checked.
#[derive(Debug)]
struct PinVerifier {
    pin: Option<[u8; 32]>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.pin {
            Some(pin) if pin != certificate_fingerprint(end_entity) => {
                Err(rustls::CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
