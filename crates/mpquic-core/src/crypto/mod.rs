//! What the core needs from TLS and packet protection.
//!
//! [`rustls`] implements these traits; the simulator has a null implementation. The traits know
//! nothing of connections, so implementations can be tested alone.

use std::sync::Arc;

use ::rustls::pki_types::CertificateDer;
use quinn_proto::{ConnectionId, Side};

use crate::error::TransportError;
use crate::ids::PathId;
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("enable the feature `ring` or `aws-lc-rs`");

mod awaiting_version;
pub(crate) mod key_phase;
pub mod rustls;
pub(crate) mod tokens;

pub(crate) use awaiting_version::AwaitingVersion;

/// The TLS state of one connection. Methods with a default are for sessions that support them.
pub trait Session: Send {
    /// What was negotiated so far: ALPN and, on a server, the name the client asked for.
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
    /// section 4.1). It is called before any bytes of the server are read. All keys but those of
    /// 0-RTT are of `version` from then on.
    fn set_version(&mut self, version: Version) {
        let _ = version;
    }
    /// The next generation of 1-RTT packet keys (RFC 9001 section 6); `None` before 1-RTT.
    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>>;
    /// Called when the handshake is confirmed and all CRYPTO bytes are consumed. May return a smaller
    /// session that replaces this one: it still knows what the handshake agreed on, makes 1-RTT keys
    /// and exports keying material, but takes no more CRYPTO bytes.
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

/// What the handshake agreed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandshakeData {
    /// The application protocol.
    pub protocol: Option<Vec<u8>>,
    /// Server only: the name in the client's SNI.
    pub server_name: Option<String>,
}

/// Why no keying material was exported.
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

/// One value per direction.
pub struct KeyPair<T> {
    /// For what we send.
    pub local: T,
    /// For what we receive.
    pub remote: T,
}

/// All keys of one encryption level.
pub struct Keys {
    /// Header protection.
    pub header: KeyPair<Box<dyn HeaderKey>>,
    /// Packet protection.
    pub packet: KeyPair<Box<dyn PacketKey>>,
}

/// The packet could not be authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the packet could not be authenticated")]
pub struct CryptoError;

/// Seals and opens packets of one direction and key generation (RFC 9001 section 5.3).
pub trait PacketKey: Send + Sync {
    /// Seals in place: `packet` is header, plaintext and room for the tag. The nonce contains the
    /// path ID (MP-030); path 0 gives the nonce of RFC 9001.
    fn encrypt(&self, path: PathId, packet_number: u64, packet: &mut [u8], header_length: usize);
    /// Opens `payload` in place and returns the length of the plaintext.
    ///
    /// # Errors
    ///
    /// [`CryptoError`] if it was not sealed with this key, path ID, number and header; `payload` may
    /// have changed then.
    fn decrypt(
        &self,
        path: PathId,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<usize, CryptoError>;
    /// Bytes of the tag.
    fn tag_length(&self) -> usize;
    /// Packets that may be sealed with this key (RFC 9001 section 6.6).
    fn confidentiality_limit(&self) -> u64;
    /// Packets that may fail to open with this key.
    fn integrity_limit(&self) -> u64;
}

/// Masks packet headers (RFC 9001 section 5.4).
pub trait HeaderKey: Send + Sync {
    /// Removes the mask; the packet number starts at `offset`. False if the packet is too short.
    #[must_use]
    fn decrypt(&self, offset: usize, packet: &mut [u8]) -> bool;
    /// Applies the mask to a sealed packet.
    fn encrypt(&self, offset: usize, packet: &mut [u8]);
}

/// Protection of packets whose keys are public: Initial and Retry packets.
pub trait InitialCrypto: Send + Sync {
    /// One side's Initial keys for the client's first destination connection ID (RFC 9001 section
    /// 5.2).
    fn initial_keys(&self, version: Version, side: Side, destination: &ConnectionId) -> Keys;
    /// Retry integrity tag (RFC 9001 section 5.8): by default, that of the RFC.
    fn retry_tag(
        &self,
        version: Version,
        original_destination: &ConnectionId,
        packet: &[u8],
    ) -> [u8; 16] {
        tokens::retry_tag(version, original_destination, packet)
    }
}

/// Starts the TLS sessions of clients. Sessions of one version are not resumed in another one (RFC
/// 9369 section 5).
pub trait ClientCrypto: InitialCrypto {
    /// Starts TLS towards `server_name`, a DNS name or an IP address.
    ///
    /// # Errors
    ///
    /// [`InvalidServerName`] if it is neither.
    fn start_session(
        self: Arc<Self>,
        version: Version,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, InvalidServerName>;
}

/// What a server that has not chosen a version yet can read from the CRYPTO bytes of a client's
/// Initial packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstFlight {
    /// There are not enough bytes yet: ask again when more have arrived.
    Incomplete,
    /// The client's transport parameters. `None` if they are missing or malformed, which the session
    /// will report.
    Complete(Option<Box<TransportParameters>>),
}

/// Starts the TLS sessions of servers. Sessions of one version are not resumed in another one (RFC
/// 9369 section 5).
pub trait ServerCrypto: InitialCrypto {
    /// Reads what a client's Initial packets have brought so far.
    fn read_first_flight(&self, crypto: &[u8]) -> FirstFlight;
    /// Starts TLS. The session gets all CRYPTO bytes from the first on, also those that
    /// `read_first_flight` was given.
    ///
    /// # Errors
    ///
    /// [`Fault::TlsNotStarted`](crate::Fault::TlsNotStarted) if the TLS implementation refuses its
    /// configuration.
    fn start_session(
        self: Arc<Self>,
        version: Version,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, TransportError>;
}

/// The name is not a valid server name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is neither a DNS name nor an IP address")]
pub struct InvalidServerName(pub String);

#[cfg(test)]
pub(crate) mod tests;
