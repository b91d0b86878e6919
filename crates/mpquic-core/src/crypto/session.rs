//! [`Session`]: the TLS state of one connection.

use rustls::pki_types::CertificateDer;

use super::keys::{HeaderKey, KeyPair, Keys, PacketKey};
use crate::error::TransportError;
use crate::key_exchange::KeyExchangeGroup;
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// The TLS state of one connection. Methods with a default are optional.
pub trait Session: Send {
    /// The results of the handshake so far: ALPN and, on a server, the client's SNI.
    fn handshake_data(&self) -> Option<HandshakeData> {
        None
    }
    /// The peer's certificate chain, once authenticated.
    fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        None
    }
    /// 0-RTT keys: a client's for sealing, a server's for opening.
    fn zero_rtt_keys(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }
    /// Client: whether the server accepted 0-RTT data; `None` until it is known.
    fn zero_rtt_accepted(&self) -> Option<bool> {
        None
    }
    /// True until the TLS handshake is complete.
    fn is_handshaking(&self) -> bool;
    /// Reads received CRYPTO bytes, in order.
    ///
    /// # Errors
    ///
    /// If TLS fails, CRYPTO_ERROR with the alert (RFC 9001 section 4.8); or another error if a
    /// message breaks a rule of QUIC.
    fn read_handshake(&mut self, data: &[u8]) -> Result<(), TransportError>;
    /// The peer's transport parameters once they arrived.
    ///
    /// # Errors
    ///
    /// If the peer's parameters are malformed.
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(None)
    }
    /// Appends CRYPTO bytes to send at the current level. If it returns keys, they are for the next
    /// level (Handshake, then 1-RTT), and the bytes of later calls belong to that level.
    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let _ = buf;
        None
    }
    /// Client: the server chose another version than the one the session was started with (RFC 9369
    /// section 4.1). Called before the server's first bytes are read. All later keys are keys of
    /// `version`, except the 0-RTT keys.
    fn set_version(&mut self, version: Version) {
        let _ = version;
    }
    /// The next generation of 1-RTT packet keys (RFC 9001 section 6); `None` before 1-RTT.
    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>>;
    /// Called when the handshake is confirmed and all CRYPTO bytes are consumed. May return a
    /// smaller session that replaces this one: it still knows what the handshake agreed on, makes
    /// 1-RTT keys and exports keying material, but takes no more CRYPTO bytes.
    fn finish_handshake(&mut self) -> Option<Box<dyn Session>> {
        None
    }
    /// Fills `output` with keying material of the exporter of TLS (RFC 8446 section 7.5).
    ///
    /// # Errors
    ///
    /// See [`ExportError`]; `output` may have changed then. By default
    /// [`ExportError::Unsupported`].
    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        let _ = (output, label, context);
        Err(ExportError::Unsupported)
    }
}

/// The results of a handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandshakeData {
    /// The application protocol.
    pub protocol: Option<Vec<u8>>,
    /// Server only: the name in the client's SNI.
    pub server_name: Option<String>,
    /// The group of the key exchange; `None` if the crypto implementation has no such group.
    pub key_exchange: Option<KeyExchangeGroup>,
}

/// The reason why no keying material was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The handshake is not complete, so the peer is not authenticated.
    #[error("keying material cannot be exported before the handshake is complete")]
    HandshakeIncomplete,
    /// The output is empty, or longer than 255 times the hash of the cipher suite, which has at
    /// least 32 bytes (RFC 5869 section 2.3).
    #[error("keying material of this length cannot be exported")]
    OutputLength,
    /// The label is empty or longer than 249 bytes (RFC 8446 section 7.1).
    #[error("the label for keying material must have 1 to 249 bytes")]
    LabelLength,
    /// The crypto implementation of the connection does not support it.
    #[error("this kind of crypto exports no keying material")]
    Unsupported,
}
