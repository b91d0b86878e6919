//! [`CompletedServer`]: a server's session after the handshake.

use rustls::pki_types::CertificateDer;

use super::exporter::Exporter;
use super::next_secrets::NextSecrets;
use crate::crypto::{ExportError, HandshakeData, KeyPair, PacketKey, Session};
use crate::error::{Fault, TransportError};

/// A server's session after the handshake. It replaces the rustls session, which would keep several
/// kilobytes of handshake state.
pub(super) struct CompletedServer {
    pub(super) data: Option<HandshakeData>,
    pub(super) peer_certificates: Option<Vec<CertificateDer<'static>>>,
    pub(super) next_secrets: NextSecrets,
    pub(super) exporter: Exporter,
}

impl Session for CompletedServer {
    fn handshake_data(&self) -> Option<HandshakeData> {
        self.data.clone()
    }

    fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.peer_certificates.clone()
    }

    fn is_handshaking(&self) -> bool {
        false
    }

    /// In QUIC, clients send no TLS messages after the handshake (RFC 9001 sections 4.4 and 6).
    fn read_handshake(&mut self, _: &[u8]) -> Result<(), TransportError> {
        Err(Fault::TlsAfterHandshake.into())
    }

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
