//! Initial and Handshake packets that are sent.

use std::time::Instant;

use quinn_proto::ConnectionId;

use super::level::Level;
use super::state::Handshake;
use crate::ids::SpaceId;
use crate::outbox::Outbox;
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::writer::FrameWriter;
use crate::space::SentPacket;
use crate::wire::header::PacketHeader;

/// An Initial or Handshake packet to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LevelPacket {
    pub(crate) now: Instant,
    pub(crate) space: SpaceId,
    pub(crate) dcid: ConnectionId,
    /// Where in the buffer it must end at the latest.
    pub(crate) limit: usize,
    /// Where in the buffer it must end at the earliest.
    pub(crate) pad_to: Option<usize>,
    /// Whether the frames of RFC 10069 are known.
    pub(crate) multipath: bool,
}

impl Handshake {
    /// Appends a packet with the frames from `write`, and seals the packet. `None`, with the buffer
    /// as before, for a finished level, without frames or without room. The caller records the sent
    /// packet under the level's next packet number.
    pub(crate) fn build_packet(
        &mut self,
        packet: &LevelPacket,
        buf: &mut Vec<u8>,
        outbox: &mut Outbox,
        write: impl FnOnce(&mut Level, &mut FrameWriter<'_>),
    ) -> Option<SentPacket> {
        let header = self.long_header(packet.space, packet.dcid);
        let level = self.level_mut(packet.space)?;
        let start = PacketStart {
            header: &header,
            space: packet.space,
            packet_number: level.space.next_packet_number(),
            largest_acked: level.space.largest_acked(),
            tag_length: level.keys.packet.local.tag_length(),
            limit: packet.limit,
            clear_quic_bit: false,
        };
        let builder = PacketBuilder::start(buf, start)?;
        let mut writer = builder.writer(buf, &mut outbox.stats.frames_sent);
        write(level, &mut writer);
        let ack_eliciting = writer.is_ack_eliciting();
        let deliveries = writer.into_deliveries();
        if builder.is_empty(buf) {
            builder.abandon(buf);
            return None;
        }
        let pad_to = packet.pad_to;
        outbox
            .log
            .packet_sent(&header, &builder, buf, pad_to, packet.multipath);
        let (header_key, packet_key) = (&*level.keys.header.local, &*level.keys.packet.local);
        let size = builder.finish(buf, header_key, packet_key, pad_to);
        let mut sent = SentPacket::new(packet.now, u16::try_from(size).unwrap_or(u16::MAX));
        sent.ack_eliciting = ack_eliciting;
        sent.in_flight = ack_eliciting || pad_to.is_some();
        sent.deliveries = deliveries;
        Some(sent)
    }

    /// The header of an Initial or Handshake packet.
    fn long_header(&self, space: SpaceId, dcid: ConnectionId) -> PacketHeader {
        let (version, scid) = (self.versions.current(), self.cids.local);
        match space {
            SpaceId::Initial => PacketHeader::Initial {
                version,
                dcid,
                scid,
                token: self.token.clone(),
            },
            SpaceId::Handshake | SpaceId::Data(_) => PacketHeader::Handshake {
                version,
                dcid,
                scid,
            },
        }
    }
}
