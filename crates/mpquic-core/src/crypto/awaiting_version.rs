//! [`AwaitingVersion`].

use super::{KeyPair, PacketKey, Session};
use crate::error::{Fault, TransportError};

/// A server's session before the version is chosen: it knows nothing and says nothing.
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
