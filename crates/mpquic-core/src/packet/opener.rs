//! Removing packet protection.

use bytes::{Buf, Bytes};

use crate::crypto::{HeaderKey, PacketKey};
use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::wire::header::ProtectedPacket;
use crate::wire::packet_number;

const LONG_HEADER: u8 = 0x80;
const KEY_PHASE: u8 = 0x04;
const SPIN: u8 = 0x20;

/// The fields that header protection hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unprotected {
    /// The first byte of the packet.
    pub(crate) first: u8,
    /// The whole packet number.
    pub(crate) packet_number: u64,
    /// Bytes before the payload.
    pub(crate) header_length: usize,
}

impl Unprotected {
    /// The key phase bit of a 1-RTT packet.
    pub(crate) fn key_phase(&self) -> bool {
        self.first & KEY_PHASE != 0
    }

    /// The spin bit of a 1-RTT packet.
    pub(crate) fn spin(&self) -> bool {
        self.first & SPIN != 0
    }
}

/// Why a packet was not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// A forged packet, or one sealed with other keys: drop it.
    NotAuthentic,
    /// The packet is authentic, but breaks a rule.
    Transport(TransportError),
}

/// Removes header protection. `expected_next` is the largest number received in the space plus
/// one. `None` if the packet is too short.
pub(crate) fn unprotect(
    packet: &mut ProtectedPacket,
    key: &dyn HeaderKey,
    expected_next: u64,
) -> Option<Unprotected> {
    let offset = packet.packet_number_offset;
    if !key.decrypt(offset, &mut packet.data) {
        return None;
    }
    let first = *packet.data.first()?;
    let length = usize::from(first & 0x03) + 1;
    let header_length = offset + length;
    let truncated = packet
        .data
        .get(offset..header_length)?
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte));
    Some(Unprotected {
        first,
        packet_number: packet_number::expand(truncated, length, expected_next),
        header_length,
    })
}

/// Decrypts in place and returns the payload without copying it. The packet is empty afterwards.
pub(crate) fn open(
    packet: &mut ProtectedPacket,
    unprotected: &Unprotected,
    key: &dyn PacketKey,
    path: PathId,
) -> Result<Bytes, OpenError> {
    let mut data = std::mem::take(&mut packet.data);
    let (header, payload) = data
        .split_at_mut_checked(unprotected.header_length)
        .ok_or(OpenError::NotAuthentic)?;
    let length = key
        .decrypt(path, unprotected.packet_number, header, payload)
        .map_err(|_| OpenError::NotAuthentic)?;
    // RFC 9000 section 17: only now, as the bits are protected too
    let reserved = match unprotected.first & LONG_HEADER {
        0 => 0x18,
        _ => 0x0c,
    };
    if unprotected.first & reserved != 0 {
        return Err(OpenError::Transport(TransportError::new(
            Fault::ReservedBits,
        )));
    }
    // RFC 9000 section 12.4
    if length == 0 {
        return Err(OpenError::Transport(TransportError::new(
            Fault::EmptyPacket,
        )));
    }
    data.advance(unprotected.header_length);
    data.truncate(length);
    Ok(data.freeze())
}

#[cfg(test)]
mod tests;
