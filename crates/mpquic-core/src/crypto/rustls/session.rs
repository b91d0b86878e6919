//! [`TlsSession`]: the rustls state of one connection.

use std::sync::Arc;

use quinn_proto::Side;
use rustls::pki_types::CertificateDer;
use rustls::quic::{self, Connection, KeyChange};

use super::completed_server::CompletedServer;
use super::exporter::{Exporter, check_label};
use super::key_derivation::{Derivation, TrafficSecrets};
use super::keys::{TlsHeaderKey, TlsPacketKey, convert_keys};
use super::next_secrets::NextSecrets;
use super::post_handshake_messages::PostHandshakeMessages;
use super::secret_log::{self, SecretLog};
use super::suites::tls_version;
use super::tickets::ConnectionTickets;
use crate::crypto::{ExportError, HandshakeData, HeaderKey, KeyPair, Keys, PacketKey, Session};
use crate::error::{Fault, TlsFailure, TransportError};
use crate::key_exchange::KeyExchangeGroup;
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// The TLS state of one connection.
pub(super) struct TlsSession {
    inner: Connection,
    /// The secrets from which later 1-RTT keys are derived.
    next_secrets: Option<NextSecrets>,
    /// Client that offers several versions.
    switch: Option<VersionSwitch>,
    /// Server: the log with the exporter's secret, needed after the rustls state is dropped.
    exporter_secret: Option<Arc<SecretLog>>,
    /// Client: checks the server's messages after the handshake.
    post_handshake: PostHandshakeMessages,
}

/// The parts of a client's session for a switch to the server's version.
pub(super) struct VersionSwitch {
    secrets: Arc<SecretLog>,
    tickets: Option<Arc<ConnectionTickets>>,
    /// The version switched to.
    to: Option<Version>,
}

impl VersionSwitch {
    /// `secrets` is the session's key log. `tickets` is its ticket store, if the store separates
    /// versions.
    pub(super) fn new(secrets: Arc<SecretLog>, tickets: Option<Arc<ConnectionTickets>>) -> Self {
        Self {
            secrets,
            tickets,
            to: None,
        }
    }
}

impl TlsSession {
    /// A client's session; with `switch` if the server may choose another version.
    pub(super) fn client(inner: quic::ClientConnection, switch: Option<VersionSwitch>) -> Self {
        Self {
            inner: Connection::Client(inner),
            next_secrets: None,
            switch,
            exporter_secret: None,
            post_handshake: PostHandshakeMessages::default(),
        }
    }

    /// A server's session, whose log keeps the exporter's secret.
    pub(super) fn server(inner: quic::ServerConnection, secrets: Arc<SecretLog>) -> Self {
        Self {
            inner: Connection::Server(inner),
            next_secrets: None,
            switch: None,
            exporter_secret: Some(secrets),
            post_handshake: PostHandshakeMessages::default(),
        }
    }

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

    /// An exporter of keying material that works without rustls. Servers only; the second call
    /// returns `None`.
    fn exporter(&self) -> Option<Exporter> {
        let suite = self.inner.negotiated_cipher_suite()?.tls13()?;
        let secret = self.exporter_secret.as_ref()?.take(secret_log::EXPORTER)?;
        Some(Exporter::new(suite, secret))
    }

    fn key_exchange(&self) -> Option<KeyExchangeGroup> {
        let group = self.inner.negotiated_key_exchange_group()?;
        Some(KeyExchangeGroup(group.name().into()))
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
        let key_exchange = self.key_exchange();
        // A server decides on the group last, perhaps after a second ClientHello
        // (HelloRetryRequest). A client learns the application protocol later, or at the end if
        // none was negotiated.
        let is_known = match &self.inner {
            Connection::Client(client) => protocol.is_some() || !client.is_handshaking(),
            Connection::Server(_) => key_exchange.is_some(),
        };
        is_known.then(|| HandshakeData {
            protocol: protocol.map(<[u8]>::to_vec),
            server_name: server_name.map(str::to_owned),
            key_exchange,
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

    fn zero_rtt_keys(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.inner.zero_rtt_keys()?;
        Some((
            Box::new(TlsHeaderKey(keys.header)),
            Box::new(TlsPacketKey(keys.packet)),
        ))
    }

    fn zero_rtt_accepted(&self) -> Option<bool> {
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
            .is_some_and(|switch| switch.to.is_some() && switch.tickets.is_none());
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
            if let Some(tickets) = &switch.tickets {
                tickets.set_version(version);
            }
        }
    }

    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(self.next_secrets.as_mut()?.keys())
    }

    fn finish_handshake(&mut self) -> Option<Box<dyn Session>> {
        if self.is_handshaking() || matches!(self.inner, Connection::Client(_)) {
            return None; // A client still gets session tickets.
        }
        Some(Box::new(CompletedServer {
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

/// The reason for the user; details are logged.
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
        Error::NoCertificatesPresented => TlsFailure::NoClientCertificate,
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
