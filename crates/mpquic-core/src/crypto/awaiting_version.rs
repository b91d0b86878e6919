//! [`AwaitingVersion`]: a stand-in for a TLS session.

use super::keys::{KeyPair, PacketKey};
use super::session::Session;
use crate::error::{Fault, TransportError};

/// Stands in for a server's TLS session before the version is chosen. It knows nothing and sends
/// nothing.
pub(crate) struct AwaitingVersion;

impl Session for AwaitingVersion {
    fn is_handshaking(&self) -> bool {
        true
    }

    fn read_handshake(&mut self, _data: &[u8]) -> Result<(), TransportError> {
        Err(Fault::NoVersionYet.into())
    }

    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        None
    }
}
