//! Keys that protect packets and their headers.

use crate::ids::PathId;

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
    /// [`CryptoError`] if it was not sealed with this key, path ID, number and header; `payload`
    /// may have changed then.
    fn decrypt(
        &self,
        path: PathId,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<usize, CryptoError>;
    /// Bytes of the tag.
    fn tag_length(&self) -> usize;
    /// Number of packets to seal with this key at most (RFC 9001 section 6.6).
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
