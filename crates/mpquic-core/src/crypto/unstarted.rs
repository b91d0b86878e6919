//! [`Unstarted`].

use ::rustls::pki_types::CertificateDer;

use super::{ExportError, HandshakeData, HeaderKey, KeyPair, Keys, PacketKey, Session};
use crate::error::{Fault, TransportError};
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// A server's session before the version is chosen: it knows nothing and says nothing.
pub(crate) struct Unstarted;

impl Session for Unstarted {
    fn handshake_data(&self) -> Option<HandshakeData> {
        None
    }

    fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        None
    }

    fn early_keys(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        true
    }

    fn read_handshake(&mut self, _data: &[u8]) -> Result<(), TransportError> {
        Err(Fault::NoVersionYet.into())
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(None)
    }

    fn write_handshake(&mut self, _buf: &mut Vec<u8>) -> Option<Keys> {
        None
    }

    fn set_version(&mut self, _version: Version) {}

    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        None
    }

    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportError> {
        Err(ExportError::HandshakeIncomplete)
    }
}
