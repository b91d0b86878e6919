//! A server's session after the handshake.

use rustls::pki_types::CertificateDer;

use super::NextSecrets;
use super::exporter::Exporter;
use crate::crypto::{ExportError, HandshakeData, HeaderKey, KeyPair, Keys, PacketKey, Session};
use crate::error::{Fault, TransportError};
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// What is left of a server's TLS: rustls keeps several kilobytes that only a handshake needs.
pub(super) struct SettledServer {
    pub(super) data: Option<HandshakeData>,
    pub(super) peer_certificates: Option<Vec<CertificateDer<'static>>>,
    pub(super) next_secrets: NextSecrets,
    pub(super) exporter: Exporter,
}

impl Session for SettledServer {
    fn handshake_data(&self) -> Option<HandshakeData> {
        self.data.clone()
    }

    fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.peer_certificates.clone()
    }

    fn early_keys(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        false
    }

    /// In QUIC, clients have nothing more to say (RFC 9001 sections 4.4 and 6).
    fn read_handshake(&mut self, _: &[u8]) -> Result<(), TransportError> {
        Err(Fault::TlsAfterHandshake.into())
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(None)
    }

    fn write_handshake(&mut self, _: &mut Vec<u8>) -> Option<Keys> {
        None
    }

    /// Only clients follow a version.
    fn set_version(&mut self, _: Version) {}

    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(self.next_secrets.keys())
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.exporter.export(output, label, context)
    }
}
