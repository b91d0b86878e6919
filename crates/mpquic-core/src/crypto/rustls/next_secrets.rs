//! [`NextSecrets`].

use rustls::quic::Secrets;

use super::key_derivation::{Derivation, TrafficSecrets};
use super::keys::TlsPacketKey;
use crate::crypto::{KeyPair, PacketKey};

/// The secrets of the next generation of 1-RTT keys.
pub(super) enum NextSecrets {
    /// In the version rustls knows of.
    Tls(Secrets),
    /// In the version switched to.
    Switched(Derivation, TrafficSecrets),
}

impl NextSecrets {
    /// The packet keys of the next generation.
    pub(super) fn keys(&mut self) -> KeyPair<Box<dyn PacketKey>> {
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
