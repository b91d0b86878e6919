//! [`PacketBuilder`]: writes the header of a packet, makes room for frames, and seals it.

use crate::crypto::{HeaderKey, PacketKey};
use crate::ids::{PathId, SpaceId};
use crate::wire::frame::FrameCounts;
use crate::wire::header::{EncodedHeader, FIXED_BIT, PacketHeader};
use crate::wire::packet_number;

use super::writer::FrameWriter;

/// The sample starts this many bytes after the packet number (RFC 9001 section 5.4.2), so number
/// and payload must be as long; the tag is long enough for the sample itself.
const SAMPLE_DISTANCE: usize = 4;
/// The largest value of the two-byte length in a long header.
const MAX_LONG_PACKET: usize = (1 << 14) - 1;

/// The input for the start of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketStart<'a> {
    pub(crate) header: &'a PacketHeader,
    pub(crate) space: SpaceId,
    pub(crate) packet_number: u64,
    /// Largest number in the space that the peer acknowledged.
    pub(crate) largest_acked: Option<u64>,
    /// Bytes of the AEAD's tag.
    pub(crate) tag_length: usize,
    /// The last position in the buffer at which the packet may end.
    pub(crate) limit: usize,
    /// Grease the QUIC bit (RFC 9287).
    pub(crate) clear_quic_bit: bool,
}

/// A packet under construction at the end of a buffer.
#[derive(Debug)]
#[must_use = "a packet must be finished or abandoned"]
pub(crate) struct PacketBuilder {
    /// Where the packet begins in the buffer. All other positions are in the buffer, too.
    start: usize,
    encoded: EncodedHeader,
    payload: usize,
    /// Where the payload must end to leave room for the tag.
    payload_limit: usize,
    path: PathId,
    packet_number: u64,
    tag_length: usize,
}

impl PacketBuilder {
    /// Appends the header. `None`, with the buffer as before, without room for a payload.
    #[inline]
    pub(crate) fn start(buf: &mut Vec<u8>, packet: PacketStart<'_>) -> Option<Self> {
        let PacketStart {
            header,
            packet_number,
            tag_length,
            ..
        } = packet;
        let start = buf.len();
        let number_length = packet_number::encoded_length(packet_number, packet.largest_acked);
        let encoded = header.encode(buf, packet_number, number_length);
        if let (true, Some(first)) = (packet.clear_quic_bit, buf.get_mut(start)) {
            *first &= !FIXED_BIT;
        }
        let limit = match encoded.length_offset {
            Some(_) => packet
                .limit
                .min(encoded.packet_number_offset + MAX_LONG_PACKET),
            None => packet.limit,
        };
        let builder = Self {
            start,
            encoded,
            payload: buf.len(),
            payload_limit: limit.saturating_sub(tag_length),
            path: packet.space.path(),
            packet_number,
            tag_length,
        };
        if builder.payload_limit < builder.minimum_end() {
            builder.abandon(buf);
            return None;
        }
        Some(builder)
    }

    /// Writes frames; leaves room for the tag.
    pub(crate) fn writer<'a>(
        &self,
        buf: &'a mut Vec<u8>,
        counts: &'a mut FrameCounts,
    ) -> FrameWriter<'a> {
        FrameWriter::new(buf, self.payload_limit, counts)
    }

    /// True while the packet has no frame.
    pub(crate) fn is_empty(&self, buf: &[u8]) -> bool {
        buf.len() <= self.payload
    }

    /// Drops the packet: the buffer is as before [`Self::start`].
    pub(crate) fn abandon(self, buf: &mut Vec<u8>) {
        buf.truncate(self.start);
    }

    /// The path whose packet number space the packet is in.
    pub(crate) fn path(&self) -> PathId {
        self.path
    }

    /// The packet's number.
    pub(crate) fn packet_number(&self) -> u64 {
        self.packet_number
    }

    /// The frames so far, with the padding once [`Self::pad`] was called.
    pub(crate) fn payload<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        buf.get(self.payload..).unwrap_or_default()
    }

    /// Bytes of the sealed packet with the frames written so far.
    pub(crate) fn sealed_size(&self, buf: &[u8]) -> usize {
        buf.len() - self.start + self.tag_length
    }

    /// Adds PADDING so that the sealed packet ends at `pad_to` or later, and is long enough to be
    /// sealed.
    pub(crate) fn pad(&self, buf: &mut Vec<u8>, pad_to: Option<usize>) {
        let padded_end = pad_to
            .map_or(0, |end| end.saturating_sub(self.tag_length))
            .min(self.payload_limit)
            .max(self.minimum_end());
        if buf.len() < padded_end {
            buf.resize(padded_end, 0);
        }
    }

    /// Pads the packet up to `pad_to`, seals it and returns its size. The keys must have the tag
    /// length given at the start. Do not pad after a frame that extends to the end of the packet.
    pub(crate) fn finish(
        self,
        buf: &mut Vec<u8>,
        header_key: &dyn HeaderKey,
        packet_key: &dyn PacketKey,
        pad_to: Option<usize>,
    ) -> usize {
        self.pad(buf, pad_to);
        buf.resize(buf.len() + self.tag_length, 0);
        let end = buf.len();
        self.encoded.set_length(buf, end);
        let packet = &mut buf[self.start..];
        packet_key.encrypt(
            self.path,
            self.packet_number,
            packet,
            self.payload - self.start,
        );
        header_key.encrypt(self.encoded.packet_number_offset - self.start, packet);
        packet.len()
    }

    /// The payload may not be empty (RFC 9000 section 12.4) and must leave a sample.
    fn minimum_end(&self) -> usize {
        (self.encoded.packet_number_offset + SAMPLE_DISTANCE).max(self.payload + 1)
    }
}
