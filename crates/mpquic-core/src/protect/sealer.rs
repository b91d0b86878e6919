//! [`Sealer`]: puts the protection on packets of the application's packet number space.

use quinn_proto::ConnectionId;

use crate::crypto::key_phase::OneRttKeys;
use crate::crypto::{HeaderKey, PacketKey};
use crate::packet::builder::PacketBuilder;
use crate::version::Version;
use crate::wire::header::PacketHeader;

/// Stands for the key generation of a 0-RTT packet, whose acknowledgement confirms no 1-RTT key.
pub(crate) const NOT_ONE_RTT: u32 = u32::MAX;

/// The keys for the next packet: 1-RTT keys, and before them a client's 0-RTT keys.
pub(crate) enum Sealer<'a> {
    OneRtt(&'a mut OneRttKeys),
    ZeroRtt(ZeroRttSealer<'a>),
}

/// Seals 0-RTT packets.
pub(crate) struct ZeroRttSealer<'a> {
    pub(crate) header: &'a dyn HeaderKey,
    pub(crate) packet: &'a dyn PacketKey,
    pub(crate) version: Version,
    pub(crate) scid: ConnectionId,
}

impl Sealer<'_> {
    /// The header of a packet sealed with these keys.
    #[inline]
    pub(crate) fn header(&self, dcid: ConnectionId, spin: bool) -> PacketHeader {
        match self {
            Self::OneRtt(keys) => {
                let (_, _, key_phase) = keys.sealing();
                PacketHeader::Short {
                    dcid,
                    spin,
                    key_phase,
                }
            }
            Self::ZeroRtt(keys) => PacketHeader::ZeroRtt {
                version: keys.version,
                dcid,
                scid: keys.scid,
            },
        }
    }

    /// Bytes that sealing adds to a packet.
    #[inline]
    pub(crate) fn tag_length(&self) -> usize {
        match self {
            Self::OneRtt(keys) => keys.sealing().1.tag_length(),
            Self::ZeroRtt(keys) => keys.packet.tag_length(),
        }
    }

    /// Seals a packet; returns its size and the generation of the keys, or [`NOT_ONE_RTT`].
    #[inline]
    pub(crate) fn seal(
        self,
        builder: PacketBuilder,
        buf: &mut Vec<u8>,
        pad_to: Option<usize>,
    ) -> (usize, u32) {
        match self {
            Self::OneRtt(keys) => {
                let (header, packet, _) = keys.sealing();
                let size = builder.finish(buf, header, packet, pad_to);
                keys.on_sealed();
                (size, keys.generation())
            }
            Self::ZeroRtt(keys) => {
                let size = builder.finish(buf, keys.header, keys.packet, pad_to);
                (size, NOT_ONE_RTT)
            }
        }
    }
}
