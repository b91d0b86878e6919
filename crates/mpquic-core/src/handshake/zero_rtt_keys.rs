//! [`ZeroRttKeys`]: the keys of 0-RTT packets.

use std::time::Instant;

use crate::crypto::{HeaderKey, PacketKey};
use crate::protect::FixedKeys;
use crate::wire::transport_parameters::TransportParameters;

/// The keys with which a client seals 0-RTT packets and a server opens them.
pub(super) struct ZeroRttKeys {
    pub(super) header: Box<dyn HeaderKey>,
    pub(super) packet: Box<dyn PacketKey>,
    /// Client: the limits of the earlier connection.
    pub(super) remembered: Option<TransportParameters>,
    /// Server: set when the handshake is complete.
    pub(super) discard_at: Option<Instant>,
}

impl ZeroRttKeys {
    /// Server: the keys to open packets with.
    pub(super) fn opening(&self) -> Option<FixedKeys<'_>> {
        self.remembered.is_none().then_some(FixedKeys {
            header: &*self.header,
            packet: &*self.packet,
        })
    }
}
