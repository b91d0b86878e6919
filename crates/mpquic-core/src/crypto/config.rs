//! Traits that start TLS sessions of clients and servers, and make the keys of Initial packets.

use std::sync::Arc;

use quinn_proto::{ConnectionId, Side};

use super::keys::Keys;
use super::session::Session;
use super::tokens;
use crate::error::TransportError;
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

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
    /// [`InvalidServerName`] if the name is neither.
    fn start_session(
        self: Arc<Self>,
        version: Version,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, InvalidServerName>;
}

/// The content of a client's Initial packets, as far as a server needs it to choose a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstFlight {
    /// More CRYPTO bytes are needed.
    Incomplete,
    /// The client's transport parameters. `None` if they are missing or malformed: the session will
    /// report this error.
    Complete(Option<Box<TransportParameters>>),
}

/// Starts the TLS sessions of servers. Sessions of one version are not resumed in another one (RFC
/// 9369 section 5).
pub trait ServerCrypto: InitialCrypto {
    /// Reads the CRYPTO bytes of a client's Initial packets, from the first byte on.
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
