//! [`Shared`]: what all paths of a connection have in common.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::Side;

use super::first_flight::FirstFlight;
use super::server_addresses::ServerAddresses;
use crate::cid::generator::CidSource;
use crate::config::TransportConfig;
use crate::crypto::tokens::ResetKey;
use crate::ids::{FourTuple, PathId};
use crate::packet::arrival::Arrival;
use crate::random::SeededRandom;
use crate::recovery::ack_frequency::AckFrequencies;
use crate::wire::transport_parameters::{PreferredAddress, TransportParameters};

/// State shared by all paths of a connection.
pub(crate) struct Shared {
    pub(crate) side: Side,
    pub(crate) config: Arc<TransportConfig>,
    /// Makes our connection IDs.
    pub(crate) cids: CidSource,
    /// Derives the stateless reset token of every connection ID we issue.
    pub(crate) reset_key: Arc<ResetKey>,
    pub(crate) random: SeededRandom,
    /// Our `active_connection_id_limit`.
    pub(crate) cid_limit: u64,
    /// Client: where copies of the first flight go.
    pub(crate) first_flight: FirstFlight,
    /// The peer's address in the handshake.
    pub(crate) handshake_address: SocketAddr,
    pub(crate) handshake_complete: bool,
    pub(crate) handshake_confirmed: bool,
    /// The path whose addresses Handshake packets use: path 0, or a path on which a client repeats
    /// unacknowledged packets.
    pub(crate) handshake_path: PathId,
    /// Server: the client may leave the address of the handshake.
    pub(crate) allows_migration: bool,
    /// Client: it moves to the server's preferred address.
    pub(crate) uses_preferred_address: bool,
    /// Server: the preferred address it announced. Client: the one it received and has not used
    /// yet.
    pub(crate) preferred: Option<Box<PreferredAddress>>,
    pub(crate) peer: Peer,
    /// We accept packets with a cleared QUIC bit, and may send them (RFC 9287).
    pub(crate) greases_quic_bit: bool,
    pub(crate) ack_frequencies: AckFrequencies,
    pub(crate) server_addresses: ServerAddresses,
    /// The peer has proven another address of its own.
    pub(crate) address_validated: bool,
    /// Server: where the client has received not long ago, on an earlier connection.
    pub(crate) proven: Vec<SocketAddr>,
}

impl Shared {
    /// The longest time the peer may take to acknowledge a 1-RTT packet.
    pub(crate) fn peer_max_ack_delay(&self) -> Duration {
        self.ack_frequencies.peer_max_ack_delay()
    }

    /// True if the peer has proven another address of its own since the last call.
    pub(crate) fn take_address_validated(&mut self) -> bool {
        std::mem::take(&mut self.address_validated)
    }

    /// Server: true for an address where the client received data not long ago. The proof counts
    /// for a single path.
    pub(super) fn take_proven(&mut self, remote: SocketAddr) -> bool {
        let Some(index) = self.proven.iter().position(|proven| *proven == remote) else {
            return false;
        };
        self.proven.swap_remove(index);
        true
    }

    /// True if the QUIC bit of packets may be cleared (RFC 9287 section 3).
    pub(crate) fn may_clear_quic_bit(&self) -> bool {
        self.greases_quic_bit && self.peer.grease_quic_bit
    }

    /// True for the local address that we told the client to prefer.
    pub(super) fn is_preferred(&self, local: SocketAddr) -> bool {
        let announced = self.preferred.as_ref();
        announced.and_then(|preferred| preferred.of_family(local)) == Some(local)
    }

    /// True if a path may move to the addresses of a packet.
    pub(super) fn accepts_migration(&self, arrival: &Arrival) -> bool {
        // RFC 9000 section 18.2: disable_active_migration concerns only the address used in the
        // handshake.
        self.side == Side::Client
            || self.handshake_confirmed
                && (self.allows_migration || self.is_preferred(arrival.four_tuple.local))
    }

    /// Server: true for a packet from other addresses than its path's, although the client was told
    /// not to migrate (RFC 9000 section 9). The packet must be dropped.
    pub(super) fn is_unwanted_migration(&self, path: &FourTuple, arrival: &Arrival) -> bool {
        self.handshake_confirmed
            && !self.accepts_migration(arrival)
            && !path.matches(&arrival.four_tuple)
    }

    /// `None` until the handshake is confirmed: before that, its probes keep the path alive, and a
    /// PING must not delay them.
    pub(super) fn keep_alive_interval(&self) -> Option<Duration> {
        let interval = self.config.keep_alive_interval;
        interval.filter(|_| self.handshake_confirmed)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("side", &self.side)
            .finish_non_exhaustive()
    }
}

/// The peer's transport parameters that paths still need after the handshake.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) ack_delay_exponent: u8,
    pub(crate) active_connection_id_limit: u64,
    pub(crate) max_udp_payload_size: u64,
    pub(crate) disable_active_migration: bool,
    pub(crate) grease_quic_bit: bool,
    pub(crate) alternative_address: bool,
}

impl From<&TransportParameters> for Peer {
    fn from(parameters: &TransportParameters) -> Self {
        Self {
            ack_delay_exponent: parameters.ack_delay_exponent,
            active_connection_id_limit: parameters.active_connection_id_limit,
            max_udp_payload_size: parameters.max_udp_payload_size,
            disable_active_migration: parameters.disable_active_migration,
            grease_quic_bit: parameters.grease_quic_bit,
            alternative_address: parameters.alternative_address,
        }
    }
}

#[cfg(test)]
impl Shared {
    /// Without policies, for so many paths and connection IDs of the peer on each.
    pub(crate) fn for_tests(side: Side, max_concurrent_paths: u32, cid_limit: u64) -> Self {
        use crate::config::{ConnectionIds, TransportOptions};

        let mut options = TransportOptions::without_policies();
        options.max_concurrent_paths = max_concurrent_paths;
        let config = options.build().unwrap();
        let parameters = TransportParameters::default();
        Self {
            side,
            cids: ConnectionIds::default().source([1; 32]),
            reset_key: Arc::new(ResetKey::new(&[2; 32])),
            random: SeededRandom::new([3; 32]),
            cid_limit,
            first_flight: FirstFlight::default(),
            handshake_address: SocketAddr::from(([127, 0, 0, 1], 1)),
            handshake_complete: true,
            handshake_confirmed: true,
            handshake_path: PathId::ZERO,
            allows_migration: true,
            uses_preferred_address: true,
            preferred: None,
            peer: Peer::from(&parameters),
            greases_quic_bit: false,
            ack_frequencies: AckFrequencies::new(&config, &parameters),
            server_addresses: ServerAddresses::default(),
            address_validated: false,
            proven: Vec::new(),
            config: Arc::new(config),
        }
    }
}
