//! Packet headers (RFC 9000 section 17): cutting received datagrams into packets, writing headers.

use bytes::{Bytes, BytesMut};
use quinn_proto::ConnectionId;
use thiserror::Error;

use super::buf::{Sink, cid, put_varint, take_short_bytes, take_varint, varint_size};
use super::packet_number;
use crate::version::Version;

/// First byte: long header.
const LONG: u8 = 0x80;
/// First byte: the QUIC bit, 1 unless the peer allows anything (RFC 9287).
pub const FIXED_BIT: u8 = 0x40;
/// First byte of a short header: the spin bit.
const SPIN: u8 = 0x20;
/// First byte of a short header: the key phase.
const KEY_PHASE: u8 = 0x04;
/// First byte of a long header: its type.
const TYPE_SHIFT: u32 = 4;

/// Bytes of the Retry integrity tag.
const TAG_LENGTH: usize = 16;
/// Two-byte varint; the value goes into the other 14 bits.
const TWO_BYTE_VARINT: u16 = 0x4000;

/// Why a packet cannot be read. The rest of its datagram is dropped with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The datagram ends before the packet does.
    #[error("truncated packet")]
    Truncated,
    /// A long header of another version of QUIC.
    #[error("QUIC version {0:#x} is not supported")]
    UnsupportedVersion(u32),
    /// A connection ID of more than 20 bytes, a Retry without token or an uneven list of versions.
    #[error("malformed header")]
    Malformed,
}

/// The part of a header that can be read before protection is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// Initial.
    Initial {
        /// Version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
        /// Address validation token, possibly empty.
        token: Bytes,
    },
    /// 0-RTT.
    ZeroRtt {
        /// Version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
    },
    /// Handshake.
    Handshake {
        /// Version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
    },
    /// 1-RTT.
    Short {
        /// Destination connection ID.
        dcid: ConnectionId,
    },
    /// Retry.
    Retry {
        /// Version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
        /// The token to send back; not empty.
        token: Bytes,
        /// Retry integrity tag.
        tag: [u8; TAG_LENGTH],
    },
    /// Version Negotiation.
    VersionNegotiation {
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
        /// The versions the server speaks; not empty.
        versions: Vec<u32>,
    },
}

impl Header {
    /// The destination connection ID.
    pub fn dcid(&self) -> &ConnectionId {
        match self {
            Self::Initial { dcid, .. }
            | Self::ZeroRtt { dcid, .. }
            | Self::Handshake { dcid, .. }
            | Self::Short { dcid }
            | Self::Retry { dcid, .. }
            | Self::VersionNegotiation { dcid, .. } => dcid,
        }
    }
}

/// One packet, not opened yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedPacket {
    /// The readable part of the header.
    pub header: Header,
    /// The first byte, its low bits still masked.
    pub first: u8,
    /// Where in `data` the masked packet number starts; the end of `data` if there is none.
    pub packet_number_offset: usize,
    /// The whole packet, header included.
    pub data: BytesMut,
}

impl ProtectedPacket {
    /// False if the QUIC bit is clear: unless we announced that we allow that (RFC 9287), the
    /// packet is to be dropped (RFC 9000 section 17.2). True for Version Negotiation, where the
    /// bit means nothing.
    pub fn has_fixed_bit(&self) -> bool {
        self.first & FIXED_BIT != 0 || matches!(self.header, Header::VersionNegotiation { .. })
    }
}

/// Cuts the first packet off `datagram`. `local_cid_length` is the length of our issued connection
/// IDs, which short headers do not tell.
///
/// # Errors
///
/// [`HeaderError`] for an unreadable header. The rest of the datagram is discarded then.
pub fn next_packet(
    datagram: &mut BytesMut,
    local_cid_length: usize,
) -> Result<ProtectedPacket, HeaderError> {
    let mut rest = &datagram[..];
    let (header, payload) = match read_header(&mut rest, local_cid_length) {
        Ok(read) => read,
        Err(error) => {
            datagram.clear();
            return Err(error);
        }
    };
    let packet_number_offset = datagram.len() - rest.len();
    let end = packet_number_offset + payload;
    // The last packet takes the buffer as it is: no shared ownership to set up.
    let data = if end < datagram.len() {
        datagram.split_to(end)
    } else {
        std::mem::take(datagram)
    };
    Ok(ProtectedPacket {
        header,
        first: data.first().copied().unwrap_or_default(),
        packet_number_offset,
        data,
    })
}

/// Reads a header up to the packet number. Also returns the number of bytes from there to the end
/// of the packet, within the rest of the datagram.
fn read_header(rest: &mut &[u8], local_cid_length: usize) -> Result<(Header, usize), HeaderError> {
    let start = peek(rest, local_cid_length).ok_or_else(|| why_unreadable(rest))?;
    *rest = start.rest;
    let dcid = cid(start.dcid).ok_or(HeaderError::Malformed)?;
    if start.kind == PacketKind::OneRtt {
        return Ok((Header::Short { dcid }, rest.len()));
    }
    let scid = cid(start.scid).ok_or(HeaderError::Malformed)?;
    if start.kind == PacketKind::VersionNegotiation {
        return Ok((version_negotiation(rest, dcid, scid)?, 0));
    }
    let unsupported = HeaderError::UnsupportedVersion(start.version);
    let version = Version::from_u32(start.version).ok_or(unsupported)?;
    let header = match start.kind {
        PacketKind::Initial => {
            let length = take_varint(rest).ok_or(HeaderError::Truncated)?;
            let token = take_slice(rest, length)?;
            Header::Initial {
                version,
                dcid,
                scid,
                token: Bytes::copy_from_slice(token),
            }
        }
        PacketKind::ZeroRtt => Header::ZeroRtt {
            version,
            dcid,
            scid,
        },
        PacketKind::Handshake => Header::Handshake {
            version,
            dcid,
            scid,
        },
        PacketKind::Retry => {
            let (token, tag) = rest.split_last_chunk().ok_or(HeaderError::Truncated)?;
            // RFC 9000 section 17.2.5.2
            if token.is_empty() {
                return Err(HeaderError::Malformed);
            }
            let (token, tag) = (Bytes::copy_from_slice(token), *tag);
            *rest = &[];
            let header = Header::Retry {
                version,
                dcid,
                scid,
                token,
                tag,
            };
            return Ok((header, 0));
        }
        PacketKind::VersionNegotiation | PacketKind::UnsupportedVersion | PacketKind::OneRtt => {
            return Err(unsupported);
        }
    };
    let length = take_varint(rest).ok_or(HeaderError::Truncated)?;
    match usize::try_from(length) {
        Ok(length) if length <= rest.len() => Ok((header, length)),
        _ => Err(HeaderError::Truncated),
    }
}

fn version_negotiation(
    rest: &mut &[u8],
    dcid: ConnectionId,
    scid: ConnectionId,
) -> Result<Header, HeaderError> {
    let (versions, uneven) = rest.as_chunks::<4>();
    if versions.is_empty() || !uneven.is_empty() {
        return Err(HeaderError::Malformed);
    }
    let versions = versions.iter().map(|v| u32::from_be_bytes(*v)).collect();
    *rest = &[];
    Ok(Header::VersionNegotiation {
        dcid,
        scid,
        versions,
    })
}

fn take_slice<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], HeaderError> {
    let length = usize::try_from(length).map_err(|_| HeaderError::Truncated)?;
    let (bytes, left) = rest
        .split_at_checked(length)
        .ok_or(HeaderError::Truncated)?;
    *rest = left;
    Ok(bytes)
}

/// The types of long headers, with their numbers in version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LongType {
    Initial = 0,
    ZeroRtt = 1,
    Handshake = 2,
    Retry = 3,
}

impl LongType {
    const ALL: [Self; 4] = [Self::Initial, Self::ZeroRtt, Self::Handshake, Self::Retry];

    /// The type a first byte has in a version: version 2 counts from 1 (RFC 9369 section 3.2).
    fn of(version: Version, first: u8) -> Self {
        let number = first >> TYPE_SHIFT & 0b11;
        let is_it = |long: &Self| long.bits(version) >> TYPE_SHIFT == number;
        Self::ALL.into_iter().find(is_it).unwrap_or(Self::Retry)
    }

    /// The type's bits in the first byte.
    fn bits(self, version: Version) -> u8 {
        let shift = match version {
            Version::V1 => 0,
            Version::V2 => 1,
        };
        ((self as u8 + shift) & 0b11) << TYPE_SHIFT
    }

    fn kind(self) -> PacketKind {
        match self {
            Self::Initial => PacketKind::Initial,
            Self::ZeroRtt => PacketKind::ZeroRtt,
            Self::Handshake => PacketKind::Handshake,
            Self::Retry => PacketKind::Retry,
        }
    }
}

/// The kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Initial.
    Initial,
    /// 0-RTT.
    ZeroRtt,
    /// Handshake.
    Handshake,
    /// Retry.
    Retry,
    /// Version Negotiation.
    VersionNegotiation,
    /// Short header.
    OneRtt,
    /// A long header of a version we do not speak.
    UnsupportedVersion,
}

/// The start of a datagram's first packet, which the endpoint needs for routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peek<'a> {
    /// True for a long header.
    pub long: bool,
    /// False if the QUIC bit is clear (RFC 9287).
    pub has_fixed_bit: bool,
    /// The version; 0 in a Version Negotiation packet and in short headers.
    pub version: u32,
    /// Destination connection ID: up to 20 bytes, or up to 255 in unknown versions.
    pub dcid: &'a [u8],
    /// Source connection ID, likewise; empty in short headers.
    pub scid: &'a [u8],
    /// The kind of packet.
    pub kind: PacketKind,
    /// The bytes behind the connection IDs.
    rest: &'a [u8],
}

impl<'a> Peek<'a> {
    /// True for an Initial without a token that does not end before its packet number.
    pub(crate) fn is_initial_without_token(&self) -> bool {
        self.initial().is_some_and(|(token, _)| token.is_empty())
    }

    /// The token of an Initial that is not cut off, and what follows the packet.
    pub(crate) fn initial(&self) -> Option<(&'a [u8], &'a [u8])> {
        let mut rest = self.rest;
        let mut take = || {
            let length = usize::try_from(take_varint(&mut rest)?).ok()?;
            let (taken, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(taken)
        };
        if self.kind != PacketKind::Initial {
            return None;
        }
        let token = take()?;
        take()?;
        Some((token, rest))
    }
}

/// Reads the part of the first header that all versions of QUIC share (RFC 8999). `None` if the
/// datagram is too short or, in versions we know and Version Negotiation, a connection ID too long.
pub fn peek(datagram: &[u8], local_cid_length: usize) -> Option<Peek<'_>> {
    let (&first, mut rest) = datagram.split_first()?;
    let has_fixed_bit = first & FIXED_BIT != 0;
    if first & LONG == 0 {
        let (dcid, rest) = rest.split_at_checked(local_cid_length)?;
        return Some(Peek {
            long: false,
            has_fixed_bit,
            version: 0,
            dcid,
            scid: &[],
            kind: PacketKind::OneRtt,
            rest,
        });
    }
    let (version, after_version) = rest.split_first_chunk()?;
    rest = after_version;
    let version = u32::from_be_bytes(*version);
    let dcid = take_short_bytes(&mut rest)?;
    let scid = take_short_bytes(&mut rest)?;
    let kind = match (version, Version::from_u32(version)) {
        (0, _) => PacketKind::VersionNegotiation,
        (_, Some(version)) => LongType::of(version, first).kind(),
        (_, None) => PacketKind::UnsupportedVersion,
    };
    let is_ours = kind != PacketKind::UnsupportedVersion;
    if is_ours && (cid(dcid).is_none() || cid(scid).is_none()) {
        return None;
    }
    Some(Peek {
        long: true,
        has_fixed_bit,
        version,
        dcid,
        scid,
        kind,
        rest,
    })
}

/// Tells a connection ID too long from a datagram too short.
fn why_unreadable(datagram: &[u8]) -> HeaderError {
    let longest = |at: usize| datagram.get(at).is_some_and(|&length| length > 20);
    match datagram {
        [first, _, _, _, _, dcid_length, ..]
            if first & LONG != 0 && (longest(5) || longest(6 + usize::from(*dcid_length))) =>
        {
            HeaderError::Malformed
        }
        _ => HeaderError::Truncated,
    }
}

/// The header of a packet to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketHeader {
    /// Initial.
    Initial {
        /// Version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
        /// Address validation token; servers send none.
        token: Bytes,
    },
    /// Handshake.
    Handshake {
        /// Version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
    },
    /// 0-RTT.
    ZeroRtt {
        /// Version.
        version: Version,
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Source connection ID.
        scid: ConnectionId,
    },
    /// 1-RTT.
    Short {
        /// Destination connection ID.
        dcid: ConnectionId,
        /// Spin bit.
        spin: bool,
        /// Key phase.
        key_phase: bool,
    },
}

/// Where things are in the buffer a header was appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedHeader {
    /// The two bytes of the Length field; `None` in a short header.
    pub length_offset: Option<usize>,
    /// The packet number.
    pub packet_number_offset: usize,
}

impl EncodedHeader {
    /// Fills the Length field of a packet that ends, tag included, at `end` of `buf`; the packet
    /// must be shorter than 2^14 bytes.
    pub fn set_length(&self, buf: &mut [u8], end: usize) {
        let length = end.saturating_sub(self.packet_number_offset);
        debug_assert!(length < usize::from(TWO_BYTE_VARINT));
        if let Some(field) = self
            .length_offset
            .and_then(|at| buf.get_mut(at..)?.first_chunk_mut())
        {
            *field = (length as u16 | TWO_BYTE_VARINT).to_be_bytes();
        }
    }
}

impl PacketHeader {
    /// Bytes `encode` appends, without the packet number.
    pub fn size(&self) -> usize {
        let long =
            |dcid: &ConnectionId, scid: &ConnectionId| 1 + 4 + 1 + dcid.len() + 1 + scid.len();
        match self {
            Self::Initial {
                dcid, scid, token, ..
            } => long(dcid, scid) + varint_size(token.len() as u64) + token.len() + 2,
            Self::Handshake { dcid, scid, .. } | Self::ZeroRtt { dcid, scid, .. } => {
                long(dcid, scid) + 2
            }
            Self::Short { dcid, .. } => 1 + dcid.len(),
        }
    }

    /// Appends the header with the low `length` bytes, 1 to 4, of the packet number. The QUIC bit
    /// is set, reserved bits are clear, the Length field is left to [`EncodedHeader::set_length`].
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>, packet_number: u64, length: usize) -> EncodedHeader {
        debug_assert!((1..=4).contains(&length));
        let low_bits = FIXED_BIT | (length.clamp(1, 4) - 1) as u8;
        let length_offset = if let Self::Short {
            dcid,
            spin,
            key_phase,
        } = self
        {
            let spin = if *spin { SPIN } else { 0 };
            let key_phase = if *key_phase { KEY_PHASE } else { 0 };
            out.push(low_bits | spin | key_phase);
            out.extend_from_slice(dcid);
            None
        } else {
            self.encode_long(out, low_bits);
            out.extend_from_slice(&TWO_BYTE_VARINT.to_be_bytes());
            Some(out.len() - 2)
        };
        let packet_number_offset = out.len();
        packet_number::put(out, packet_number, length);
        EncodedHeader {
            length_offset,
            packet_number_offset,
        }
    }

    /// Writes a long header up to its length field.
    fn encode_long(&self, out: &mut Vec<u8>, low_bits: u8) {
        match self {
            Self::Short { .. } => {}
            Self::Initial {
                version,
                dcid,
                scid,
                token,
            } => {
                put_long(out, LongType::Initial, low_bits, *version, dcid, scid);
                put_varint(out, token.len() as u64);
                out.extend_from_slice(token);
            }
            Self::ZeroRtt {
                version,
                dcid,
                scid,
            } => put_long(out, LongType::ZeroRtt, low_bits, *version, dcid, scid),
            Self::Handshake {
                version,
                dcid,
                scid,
            } => put_long(out, LongType::Handshake, low_bits, *version, dcid, scid),
        }
    }
}

/// Writes the start of a long header: type and other bits of the first byte, version, connection
/// IDs.
fn put_long(
    out: &mut Vec<u8>,
    long: LongType,
    low_bits: u8,
    version: Version,
    dcid: &[u8],
    scid: &[u8],
) {
    out.push(LONG | long.bits(version) | low_bits);
    put_start(out, version.to_u32(), dcid, scid);
}

/// Writes the part of a long header that all versions share, after its first byte.
fn put_start(out: &mut Vec<u8>, version: u32, dcid: &[u8], scid: &[u8]) {
    out.extend_from_slice(&version.to_be_bytes());
    out.short_bytes(dcid);
    out.short_bytes(scid);
}

/// Appends a Retry packet up to its integrity tag, which is to follow.
pub fn encode_retry(
    out: &mut Vec<u8>,
    version: Version,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
) {
    put_long(out, LongType::Retry, FIXED_BIT, version, dcid, scid);
    out.extend_from_slice(token);
}

/// Appends a Version Negotiation packet. `dcid` and `scid` are those of the client's packet
/// swapped, and of its length (RFC 9000 section 17.2.1).
pub fn encode_version_negotiation(out: &mut Vec<u8>, dcid: &[u8], scid: &[u8], versions: &[u32]) {
    out.push(LONG | FIXED_BIT);
    put_start(out, 0, dcid, scid);
    for version in versions {
        out.extend_from_slice(&version.to_be_bytes());
    }
}
