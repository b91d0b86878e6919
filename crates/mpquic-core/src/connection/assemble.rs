//! 1-RTT and 0-RTT packets: the order of the frames in them.

use std::time::Instant;

use super::Connection;
use crate::event::Event;
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::delivery::Delivery;
use crate::packet::plan::Plan;
use crate::packet::writer::FrameWriter;
use crate::sched::DataSelection;
use crate::space::SentPacket;
use crate::wire::frame::Frame;

/// Packets are padded by up to this many bytes so that a GSO train need not end early.
const MAX_ALIGNMENT: usize = 64;

/// A packet that was built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Built {
    pub(super) size: usize,
    pub(super) ack_eliciting: bool,
}

impl Connection {
    /// Appends one 1-RTT packet to `buf` and records it as sent.
    pub(super) fn build_packet(
        &mut self,
        now: Instant,
        plan: &Plan,
        buf: &mut Vec<u8>,
    ) -> Option<Built> {
        let start = buf.len();
        let builder = self.start_packet(plan.path, plan.validation, start + plan.size, buf)?;
        let mut counts = std::mem::take(&mut self.outbox.stats.frames_sent);
        let mut writer = builder.writer(buf, &mut counts);
        self.write_frames(&mut writer, now, plan);
        let ack_eliciting = writer.is_ack_eliciting();
        let deliveries = writer.into_deliveries();
        self.outbox.stats.frames_sent = counts;
        if builder.is_empty(buf) {
            builder.abandon(buf);
            return None;
        }
        let align = plan.align
            && ack_eliciting
            && self.datagrams.wants_to_send()
            && builder.sealed_size(buf) + MAX_ALIGNMENT >= plan.size;
        let pad_to = (plan.pad || align).then_some(start + plan.size);
        if self.outbox.log.is_on() {
            self.log_packet(&builder, plan, buf, pad_to);
        }
        let (size, generation) = self.handshake.seal(builder, buf, pad_to)?;
        let mut packet = SentPacket::new(now, u16::try_from(size).unwrap_or(u16::MAX));
        packet.ack_eliciting = ack_eliciting;
        packet.in_flight = ack_eliciting || plan.pad;
        packet.ecn_marked = plan.ecn.is_some();
        packet.mtu_probe = plan.mtu_probe;
        packet.key_phase_generation = generation;
        packet.tag = plan.tag;
        packet.deliveries = deliveries;
        if ack_eliciting {
            self.idle.on_ack_eliciting_sent(now);
        }
        if let Some(path) = self.paths.any_mut(plan.path) {
            path.on_packet_sent(packet, &mut self.outbox);
        }
        Some(Built {
            size,
            ack_eliciting,
        })
    }

    /// Logs a packet that is about to be sealed.
    pub(super) fn log_packet(
        &mut self,
        builder: &PacketBuilder,
        plan: &Plan,
        buf: &mut Vec<u8>,
        pad_to: Option<usize>,
    ) {
        if let Some(path) = self.paths.any(plan.path)
            && let Some(sealing) = self.handshake.sealing()
            && let Some(dcid) = path.destination(plan.validation)
        {
            let header = self
                .handshake
                .data_header(sealing.key_phase, *dcid, path.spin());
            let multipath = self.paths.ids.is_multipath();
            self.outbox
                .log
                .packet_sent(&header, builder, buf, pad_to, multipath);
        }
    }

    /// Starts a packet of a path; `to` are its addresses if they are not the path's own.
    pub(super) fn start_packet(
        &mut self,
        id: PathId,
        to: Option<FourTuple>,
        limit: usize,
        buf: &mut Vec<u8>,
    ) -> Option<PacketBuilder> {
        let path = self.paths.any(id)?;
        let sealing = self.handshake.sealing()?;
        let dcid = *path.destination(to)?;
        let header = self
            .handshake
            .data_header(sealing.key_phase, dcid, path.spin());
        let start = PacketStart {
            header: &header,
            space: SpaceId::Data(id),
            packet_number: path.space.next_packet_number(),
            largest_acked: path.space.largest_acked(),
            tag_length: sealing.packet.tag_length(),
            limit,
            // RFC 9287 section 3
            clear_quic_bit: self.paths.shared.may_clear_quic_bit() && self.scheduling.toss(),
        };
        PacketBuilder::start(buf, start)
    }

    /// Writes frames in order of urgency.
    fn write_frames(&mut self, writer: &mut FrameWriter<'_>, now: Instant, plan: &Plan) {
        let id = plan.path;
        let acked = !plan.mtu_probe
            && !plan.probing
            && self.paths.write_acks(writer, now, id, plan.orphan_acks);
        if let Some(to) = plan.validation {
            self.paths.write_validation(writer, now, id, to, plan.pad);
        }
        #[cfg(feature = "testing")]
        self.injected.write(writer, SpaceId::Data(id));
        if plan.management && self.handshake.is_complete() {
            self.handshake.write_frames(writer);
            self.paths.write_frames(writer, id, &mut self.outbox);
        }
        match &plan.data {
            // What any path may carry, the most urgent first.
            Some(next @ DataSelection::Next) => {
                self.handshake.write_crypto(writer);
                self.streams.write_control(writer);
                self.datagrams.write_frames(writer);
                if self.datagrams.take_unblocked() {
                    self.outbox.event(Event::DatagramsUnblocked);
                }
                self.streams.write_data(writer, next, plan.max_data);
            }
            Some(selection) => {
                self.streams.write_data(writer, selection, plan.max_data);
            }
            None => {}
        }
        if plan.immediate_ack && self.paths.shared.ack_frequencies.peer_answers_at_once() {
            let _no_room_is_fine = writer.try_write(&Frame::ImmediateAck, Delivery::Nothing);
        }
        if plan.ping && !writer.is_ack_eliciting() {
            let _no_room_is_fine = writer.try_write(&Frame::Ping, Delivery::Nothing);
        }
        if acked
            && writer.is_ack_eliciting()
            && let Some(path) = self.paths.any_mut(id)
        {
            path.space.received.on_confirmation_requested();
        }
    }

    /// True if something waits that any path may carry. It is called for every packet, so the
    /// likeliest is checked first.
    pub(super) fn has_demand(&self) -> bool {
        self.streams.can_send_data() || self.has_control()
    }

    /// True if anything but stream data waits that any path may carry.
    pub(super) fn has_control(&self) -> bool {
        self.streams.wants_control()
            || self.datagrams.wants_to_send()
            || self.handshake.wants_to_send_crypto()
            || self.wants_management()
    }

    /// True if control frames wait to be sent.
    pub(super) fn wants_management(&self) -> bool {
        self.handshake.wants_to_send_frames() || self.paths.wants_to_send()
    }
}
