//! Packet and header protection with the keys of rustls.

use quinn_proto::{ConnectionId, Side};
use rustls::quic::{self, Suite};

use super::suites::tls_version;
use crate::crypto::{CryptoError, HeaderKey, KeyPair, Keys, PacketKey};
use crate::ids::PathId;
use crate::version::Version;

/// Keys of one side's Initial packets (RFC 9001 section 5.2).
pub(super) fn initial_keys(
    suite: &Suite,
    version: Version,
    side: Side,
    destination: &ConnectionId,
) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    convert_keys(suite.keys(destination, side, tls_version(version)))
}

/// Converts the rustls keys of a level.
pub(in crate::crypto) fn convert_keys(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(TlsHeaderKey(keys.local.header)),
            remote: Box::new(TlsHeaderKey(keys.remote.header)),
        },
        packet: KeyPair {
            local: Box::new(TlsPacketKey(keys.local.packet)),
            remote: Box::new(TlsPacketKey(keys.remote.packet)),
        },
    }
}

/// Always builds the nonce with the path ID. All Initial, Handshake and 0-RTT packets are on path
/// 0, whose nonce equals that of RFC 9001 (MP-033).
pub(in crate::crypto) struct TlsPacketKey(pub(in crate::crypto) Box<dyn quic::PacketKey>);

impl PacketKey for TlsPacketKey {
    fn encrypt(&self, path: PathId, packet_number: u64, packet: &mut [u8], header_length: usize) {
        let tag_offset = packet.len().saturating_sub(self.0.tag_len());
        let (sealed, tag_room) = packet.split_at_mut(tag_offset);
        let (header, payload) = sealed.split_at_mut(header_length.min(tag_offset));
        match self
            .0
            .encrypt_in_place_for_path(path.0, packet_number, header, payload)
        {
            Ok(tag) => tag_room.copy_from_slice(tag.as_ref()),
            // Packets are far below the AEAD's limit; still, plaintext must not leave.
            Err(_) => payload.fill(0),
        }
    }

    fn decrypt(
        &self,
        path: PathId,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.0
            .decrypt_in_place_for_path(path.0, packet_number, header, payload)
            .map(<[u8]>::len)
            .map_err(|_| CryptoError)
    }

    fn tag_length(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

pub(super) struct TlsHeaderKey(pub(super) Box<dyn quic::HeaderProtectionKey>);

impl TlsHeaderKey {
    /// The first byte, the four bytes where the packet number is, and the sample after them
    /// (RFC 9001 section 5.4.2).
    fn split<'a>(
        &self,
        offset: usize,
        packet: &'a mut [u8],
    ) -> Option<(&'a mut u8, &'a mut [u8], &'a [u8])> {
        let (header, rest) = packet.split_at_mut_checked(offset.checked_add(4)?)?;
        let (first, header) = header.split_first_mut()?;
        Some((
            first,
            header.get_mut(offset.checked_sub(1)?..)?,
            rest.get(..self.0.sample_len())?,
        ))
    }
}

impl HeaderKey for TlsHeaderKey {
    fn decrypt(&self, offset: usize, packet: &mut [u8]) -> bool {
        self.split(offset, packet)
            .is_some_and(|(first, number, sample)| {
                self.0.decrypt_in_place(sample, first, number).is_ok()
            })
    }

    fn encrypt(&self, offset: usize, packet: &mut [u8]) {
        let masked = self
            .split(offset, packet)
            .is_some_and(|(first, number, sample)| {
                self.0.encrypt_in_place(sample, first, number).is_ok()
            });
        debug_assert!(masked, "the builder pads packets so that there is a sample");
    }
}
