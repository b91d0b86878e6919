//! Builds packets: the order of the frames in a 1-RTT packet, and the packets of the handshake.

use std::time::Instant;

use quinn_proto::{ConnectionId, EcnCodepoint, Side};

use super::Connection;
use super::handshake::Level;
use crate::congestion::{Controller as _, Sent};
use crate::error::{ConnectionClose, TransportErrorCode};
use crate::event::{Event, PathEvent};
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::outbox::packet_info;
use crate::packet::Transmit;
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::delivery::Delivery;
use crate::packet::writer::{Deliveries, FrameWriter};
use crate::path::set::Slot;
use crate::path::{MIN_DATAGRAM, Tuple};
use crate::sched::DataSelection;
use crate::sched::SchedulerEvent;
use crate::space::{AckState, SentPacket};
use crate::wire::frame::{Close, Frame};
use crate::wire::header::PacketHeader;

/// Our `ack_delay_exponent`: the default.
const ACK_DELAY_EXPONENT: u8 = 3;
/// The key generation of a 0-RTT packet: its acknowledgement confirms no 1-RTT key.
pub(super) const NOT_ONE_RTT: u32 = u32::MAX;
/// Bytes of padding that cost less than the call to the kernel they save.
const MAX_ALIGNMENT: usize = 64;

/// What a 1-RTT packet is to contain.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) path: PathId,
    /// Largest size of the datagram.
    pub(super) size: usize,
    pub(super) ecn: Option<EcnCodepoint>,
    /// PATH_CHALLENGE and PATH_RESPONSE for these addresses.
    pub(super) validation: Option<FourTuple>,
    /// Nothing but probing frames: the packet must not move the path (RFC 9000 section 9.1).
    pub(super) probing: bool,
    /// Make the packet ack-eliciting, by a PING if need be.
    pub(super) ping: bool,
    /// Ask for an acknowledgement at once, if the peer can be asked.
    pub(super) immediate_ack: bool,
    /// Expand to `size`.
    pub(super) pad: bool,
    /// Expand to `size` if little is missing and more DATAGRAMs wait: the train goes on.
    pub(super) align: bool,
    pub(super) mtu_probe: bool,
    /// Frames of connection, paths and stream limits.
    pub(super) management: bool,
    /// Acknowledge for paths that cannot do so themselves.
    pub(super) orphan_acks: bool,
    /// Stream data and datagrams.
    pub(super) data: Option<DataSelection>,
    /// Stream bytes at most.
    pub(super) max_data: usize,
    pub(super) tag: u64,
}

impl Plan {
    pub(super) fn new(path: PathId, size: usize) -> Self {
        Self {
            path,
            size,
            ecn: None,
            validation: None,
            probing: false,
            ping: false,
            immediate_ack: false,
            pad: false,
            align: false,
            mtu_probe: false,
            management: false,
            orphan_acks: false,
            data: None,
            max_data: usize::MAX,
            tag: 0,
        }
    }
}

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
        let builder = self.start_one_rtt(plan.path, plan.validation, start + plan.size, buf)?;
        let mut writer = builder.writer(buf);
        self.write_one_rtt(&mut writer, now, plan);
        let ack_eliciting = writer.is_ack_eliciting();
        let deliveries = writer.into_deliveries();
        if builder.is_empty(buf) {
            builder.abandon(buf);
            return None;
        }
        let align = plan.align
            && ack_eliciting
            && self.datagrams.wants_to_send()
            && builder.sealed_size(buf) + MAX_ALIGNMENT >= plan.size;
        let pad_to = (plan.pad || align).then_some(start + plan.size);
        self.log_one_rtt(plan.path, plan.validation, &builder, buf, pad_to);
        let keys = self.handshake.sealing()?;
        let size = builder.finish(buf, keys.header, keys.packet, pad_to);
        let generation = match &mut self.handshake.one_rtt {
            Some(keys) => {
                keys.on_sealed();
                keys.generation()
            }
            None => NOT_ONE_RTT,
        };
        let mut packet = SentPacket::new(now, u16::try_from(size).unwrap_or(u16::MAX));
        packet.ack_eliciting = ack_eliciting;
        packet.in_flight = ack_eliciting || plan.pad;
        packet.ecn_marked = plan.ecn.is_some();
        packet.mtu_probe = plan.mtu_probe;
        packet.key_phase_generation = generation;
        packet.tag = plan.tag;
        packet.deliveries = deliveries;
        self.record_one_rtt(plan.path, packet);
        Some(Built {
            size,
            ack_eliciting,
        })
    }

    /// Starts a packet of a path, to other addresses than the path's if `to` says so.
    fn start_one_rtt(
        &mut self,
        id: PathId,
        to: Option<FourTuple>,
        limit: usize,
        buf: &mut Vec<u8>,
    ) -> Option<PacketBuilder> {
        // RFC 9287 section 3
        let clear_quic_bit = self.paths.shared.peer.grease_quic_bit
            && self.endpoint_config.grease_quic_bit
            && self.quick_random.next() & 1 == 0;
        let slot = self.paths.slot(id)?;
        let path = slot.path.as_deref()?;
        let keys = self.handshake.sealing()?;
        let header = self.one_rtt_header(slot, keys.key_phase, to)?;
        let start = PacketStart {
            header: &header,
            space: SpaceId::Data(id),
            packet_number: path.space.next_packet_number(),
            largest_acked: path.space.largest_acked(),
            tag_length: keys.packet.tag_length(),
            limit,
            clear_quic_bit,
        };
        PacketBuilder::start(buf, start)
    }

    /// The header of a path's next 1-RTT packet, or 0-RTT packet if there is no key phase.
    #[inline]
    pub(super) fn one_rtt_header(
        &self,
        slot: &Slot,
        key_phase: Option<bool>,
        to: Option<FourTuple>,
    ) -> Option<PacketHeader> {
        let path = slot.path.as_deref()?;
        let is_old = |old: &Tuple| Some(old.four_tuple) == to;
        let kept = slot.peer_cids.kept();
        let kept = kept.filter(|_| path.previous.as_deref().is_some_and(is_old));
        // MP-073: a connection ID of the same path ID.
        let candidate = slot.peer_cids.candidate();
        let candidate = candidate.filter(|_| to.is_some_and(|to| path.is_candidate(to)));
        let dcid = *kept.or(candidate).or(slot.peer_cids.current())?;
        Some(match key_phase {
            Some(key_phase) => PacketHeader::Short {
                dcid,
                spin: path.spins && path.spin,
                key_phase,
            },
            None => PacketHeader::ZeroRtt {
                version: self.handshake.versions.original(),
                dcid,
                scid: self.handshake.local_cid,
            },
        })
    }

    /// Writes frames in order of urgency.
    fn write_one_rtt(&mut self, writer: &mut FrameWriter<'_>, now: Instant, plan: &Plan) {
        let acked = !plan.mtu_probe && !plan.probing && self.write_acks(writer, now, plan);
        if let Some(four_tuple) = plan.validation {
            self.write_validation(writer, now, plan.path, four_tuple, plan.pad);
        }
        #[cfg(feature = "testing")]
        self.injected.write(writer, SpaceId::Data(plan.path));
        if plan.management && self.handshake.complete {
            self.write_management(writer, plan.path);
        }
        if let Some(selection) = &plan.data {
            if *selection == DataSelection::Next {
                if let Some(crypto) = &mut self.handshake.crypto {
                    crypto.write_frames(writer);
                }
                self.streams.write_control(writer);
                self.datagrams.write_frames(writer);
                if self.datagrams.take_unblocked() {
                    self.outbox.event(Event::DatagramsUnblocked);
                }
            }
            self.streams.write_data(writer, selection, plan.max_data);
        }
        if plan.immediate_ack && self.paths.shared.ack_frequencies.peer_answers_at_once() {
            let _no_room_is_fine = writer.try_write(&Frame::ImmediateAck, Delivery::Nothing);
        }
        if plan.ping && !writer.is_ack_eliciting() {
            let _no_room_is_fine = writer.try_write(&Frame::Ping, Delivery::Nothing);
        }
        if acked
            && writer.is_ack_eliciting()
            && let Some(path) = self.paths.any_mut(plan.path)
        {
            path.space.received.on_confirmation_requested();
        }
    }

    /// Acknowledges the path's packets, and those of paths that cannot speak for themselves.
    fn write_acks(&mut self, writer: &mut FrameWriter<'_>, now: Instant, plan: &Plan) -> bool {
        if !plan.orphan_acks {
            return self.write_ack_of(writer, now, plan.path);
        }
        let mut acked = false;
        for index in 0..self.paths.slots().len() {
            let Some(slot) = self.paths.slots().get(index) else {
                break;
            };
            let id = slot.id;
            let orphan =
                slot.abandon.is_some() || slot.path.as_ref().is_some_and(|path| path.is_suspect());
            if id == plan.path || orphan {
                let wrote = self.write_ack_of(writer, now, id);
                acked |= wrote && id == plan.path;
            }
        }
        acked
    }

    /// Acknowledges what came in on a path, if anything waits for that.
    fn write_ack_of(&mut self, writer: &mut FrameWriter<'_>, now: Instant, id: PathId) -> bool {
        // MP-003, MP-061: PATH_ACK once multipath is in effect.
        let named = (self.paths.ids.is_multipath() && self.handshake.complete).then_some(id);
        let Some(path) = self.paths.any_mut(id) else {
            return false;
        };
        let received = &mut path.space.received;
        received.ack_state(now) != AckState::None
            && received.write_ack(writer, now, named, ACK_DELAY_EXPONENT)
    }

    fn write_validation(
        &mut self,
        writer: &mut FrameWriter<'_>,
        now: Instant,
        id: PathId,
        four_tuple: FourTuple,
        full_size: bool,
    ) {
        let data = self.random.bytes();
        let Some(path) = self.paths.open_mut(id) else {
            return;
        };
        path.responses.write_frames(writer, &four_tuple);
        for tuple in path
            .tuples_mut()
            .filter(|tuple| tuple.four_tuple == four_tuple)
        {
            tuple.validation.write_frames(writer, now, data, full_size);
        }
    }

    fn write_management(&mut self, writer: &mut FrameWriter<'_>, carrier: PathId) {
        if self.handshake.done_pending
            && writer.try_write(&Frame::HandshakeDone, Delivery::HandshakeDone)
        {
            self.handshake.done_pending = false;
        }
        self.paths.shared.ack_frequencies.write_frames(writer);
        let limit = self.paths.ids.limit();
        self.paths
            .write_frames(writer, carrier, self.paths.ids.is_multipath());
        if self.side == Side::Client && self.paths.ids.limit() > limit {
            // MAX_PATH_ID leaves: our own limit does not bind any more.
            self.outbox.event(Event::Path(PathEvent::Available));
        }
        if let Some(token) = self.handshake.new_token.take() {
            let frame = Frame::NewToken(token);
            if !writer.try_write(&frame, Delivery::NewToken)
                && let Frame::NewToken(token) = frame
            {
                self.handshake.new_token = Some(token);
            }
        }
    }

    fn record_one_rtt(&mut self, id: PathId, packet: SentPacket) {
        let (now, bytes) = (packet.time_sent, packet.bytes);
        let (in_flight, ack_eliciting) = (packet.in_flight, packet.ack_eliciting);
        let Some(path) = self.paths.any_mut(id) else {
            return;
        };
        let packet_number = path.space.take_packet_number();
        self.outbox
            .packet_event(|| SchedulerEvent::Sent(packet_info(id, packet_number, &packet)));
        if packet.mtu_probe {
            path.mtu.on_probe_sent(bytes);
        }
        path.recovery
            .on_packet_sent(&mut path.space, packet_number, packet);
        path.counters.packets_sent += 1;
        if ack_eliciting {
            path.last_activity = now;
            self.idle.on_ack_eliciting_sent(now);
        }
        if in_flight {
            path.recovery.pacer.on_sent(bytes.into());
            let sent = Sent {
                now,
                packet_number,
                bytes: bytes.into(),
                in_flight: path.recovery.bytes_in_flight(),
                app_limited: false,
            };
            self.outbox.controller.on_packet_sent(id, &sent);
        }
    }

    /// Sends what Initial and Handshake have, coalesced (RFC 9000 section 12.2), and what a client has
    /// to say as soon as it may.
    pub(super) fn transmit_handshake(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let wants = |level: &Level| level.wants(now);
        let initial = self.handshake.initial.as_deref().is_some_and(wants);
        let handshake = self.handshake.handshake.as_deref().is_some_and(wants);
        #[cfg(feature = "testing")]
        let handshake = handshake
            || (self.handshake.handshake.is_some() && self.injected.is_wanted(SpaceId::Handshake));
        if !initial && !handshake {
            return None;
        }
        let path = self.paths.open(PathId::ZERO)?;
        let four_tuple = path.tuple.four_tuple;
        let size = path.datagram_size().min(path.budget_for(four_tuple));
        // RFC 9000 section 14.1: datagrams with ack-eliciting Initial packets fill 1200 bytes.
        let eliciting = self
            .handshake
            .initial
            .as_deref()
            .is_some_and(Level::wants_to_elicit);
        let pad = initial && (self.side == Side::Client || eliciting);
        if size
            < if pad {
                MIN_DATAGRAM
            } else {
                MIN_HANDSHAKE_PACKET
            }
        {
            return None;
        }
        let data = handshake && self.may_follow_handshake(size);
        let limit = if data { size - ONE_RTT_ROOM } else { size };
        if initial {
            let pad_to = (pad && !handshake).then_some(MIN_DATAGRAM);
            self.build_handshake(now, SpaceId::Initial, limit, pad_to, buf);
        }
        if handshake {
            let pad_to = (pad && !data).then_some(MIN_DATAGRAM);
            let built = self.build_handshake(now, SpaceId::Handshake, limit, pad_to, buf);
            if built && self.side == Side::Client {
                // RFC 9001 section 4.9.1
                self.discard_level(SpaceId::Initial);
            }
        }
        if data {
            self.follow_handshake(now, size, pad, buf);
        }
        if buf.is_empty() {
            return None;
        }
        if let Some(path) = self.paths.any_mut(PathId::ZERO) {
            path.on_datagram_sent(four_tuple, buf.len());
        }
        Some(Transmit {
            path: Some(PathId::ZERO),
            four_tuple,
            ecn: None,
            size: buf.len(),
            segment_size: None,
        })
    }

    /// True if a client has 1-RTT data that may share a datagram with the end of its handshake. There
    /// is no other path yet that a scheduler could prefer.
    fn may_follow_handshake(&self, size: usize) -> bool {
        let Some(path) = self.paths.open(PathId::ZERO) else {
            return false;
        };
        self.side == Side::Client
            && self.handshake.complete
            && size >= MIN_DATAGRAM
            && self.has_movable()
            && path.recovery.bytes_in_flight() + size as u64
                <= self.outbox.controller.window(PathId::ZERO)
    }

    /// Appends a 1-RTT packet to a datagram that has room for it up to `size`.
    fn follow_handshake(&mut self, now: Instant, size: usize, pad: bool, buf: &mut Vec<u8>) {
        let mut plan = Plan::new(PathId::ZERO, size - buf.len());
        plan.management = true;
        plan.data = Some(DataSelection::Next);
        plan.ping = true;
        plan.pad = pad;
        let _built = self.build_packet(now, &plan, buf);
    }

    fn peer_cid(&self) -> Option<ConnectionId> {
        self.paths.slot(PathId::ZERO)?.peer_cids.current().copied()
    }

    fn long_header(&self, space: SpaceId) -> Option<PacketHeader> {
        let dcid = self.peer_cid()?;
        let scid = self.handshake.local_cid;
        let version = self.handshake.versions.current();
        Some(match space {
            SpaceId::Initial => {
                let token = self.handshake.token.clone();
                PacketHeader::Initial {
                    version,
                    dcid,
                    scid,
                    token,
                }
            }
            SpaceId::Handshake | SpaceId::Data(_) => PacketHeader::Handshake {
                version,
                dcid,
                scid,
            },
        })
    }

    /// Appends one Initial or Handshake packet; `limit` and `pad_to` are positions in `buf`.
    fn build_handshake(
        &mut self,
        now: Instant,
        space: SpaceId,
        limit: usize,
        pad_to: Option<usize>,
        buf: &mut Vec<u8>,
    ) -> bool {
        let Some(header) = self.long_header(space) else {
            return false;
        };
        let Some(level) = self.handshake.level_mut(space) else {
            return false;
        };
        let Some(builder) = start_handshake(level, &header, space, limit, buf) else {
            return false;
        };
        let mut writer = builder.writer(buf);
        if level.space.received.ack_state(now) != AckState::None {
            let _wrote = level.space.received.write_ack(&mut writer, now, None, 0);
        }
        level.crypto.write_frames(&mut writer);
        #[cfg(feature = "testing")]
        self.injected.write(&mut writer, space);
        if level.space.probes > 0 && !writer.is_ack_eliciting() {
            let _no_room_is_fine = writer.try_write(&Frame::Ping, Delivery::Nothing);
        }
        let ack_eliciting = writer.is_ack_eliciting();
        let deliveries = writer.into_deliveries();
        if builder.is_empty(buf) {
            builder.abandon(buf);
            return false;
        }
        self.outbox.log.packet_sent(
            &header,
            &builder,
            buf,
            pad_to,
            self.paths.ids.is_multipath(),
        );
        let size = builder.finish(
            buf,
            &*level.keys.header.local,
            &*level.keys.packet.local,
            pad_to,
        );
        let in_flight = ack_eliciting || pad_to.is_some();
        self.record_handshake(now, space, size, (ack_eliciting, in_flight), deliveries);
        true
    }

    fn record_handshake(
        &mut self,
        now: Instant,
        space: SpaceId,
        size: usize,
        (ack_eliciting, in_flight): (bool, bool),
        deliveries: Deliveries,
    ) {
        let Some(level) = self.handshake.level_mut(space) else {
            return;
        };
        let packet_number = level.space.take_packet_number();
        let Some(path) = self.paths.any_mut(PathId::ZERO) else {
            return;
        };
        let mut packet = SentPacket::new(now, u16::try_from(size).unwrap_or(u16::MAX));
        packet.ack_eliciting = ack_eliciting;
        packet.in_flight = in_flight;
        packet.deliveries = deliveries;
        path.recovery
            .on_packet_sent(&mut level.space, packet_number, packet);
        path.counters.packets_sent += 1;
        if ack_eliciting {
            self.idle.on_ack_eliciting_sent(now);
        }
        if in_flight {
            let sent = Sent {
                now,
                packet_number,
                bytes: size as u64,
                in_flight: path.recovery.bytes_in_flight(),
                app_limited: false,
            };
            self.outbox.controller.on_packet_sent(PathId::ZERO, &sent);
        }
    }

    /// Sends CONNECTION_CLOSE at every level the peer may read (RFC 9000 section 10.2.3).
    pub(super) fn transmit_close(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let frame = self.closing.take_frame()?;
        let id = self
            .paths
            .iter()
            .find(|path| path.tuple.validated && !path.is_suspect())
            .or_else(|| self.paths.iter().next())
            .map(|path| path.id)?;
        let path = self.paths.open(id)?;
        let four_tuple = path.tuple.four_tuple;
        let limit = path.datagram_size().min(path.budget_for(four_tuple));
        if !self.handshake.confirmed && id == PathId::ZERO {
            let early = conceal(&frame);
            // RFC 9000 section 14.1: the last packet fills the datagram.
            let pad = self.side == Side::Client && self.handshake.initial.is_some();
            let last = self.handshake.handshake.is_none();
            self.close_handshake(SpaceId::Initial, &early, limit, pad && last, buf);
            self.close_handshake(SpaceId::Handshake, &early, limit, pad, buf);
        }
        if self.handshake.one_rtt.is_some()
            && (self.handshake.complete || self.side == Side::Server)
        {
            self.close_one_rtt(now, id, frame, limit, buf);
        }
        if buf.is_empty() {
            return None;
        }
        if let Some(path) = self.paths.any_mut(id) {
            path.on_datagram_sent(four_tuple, buf.len());
        }
        let size = buf.len();
        Some(Transmit {
            path: Some(id),
            four_tuple,
            ecn: None,
            size,
            segment_size: None,
        })
    }

    fn close_handshake(
        &mut self,
        space: SpaceId,
        frame: &Close,
        limit: usize,
        pad: bool,
        buf: &mut Vec<u8>,
    ) {
        let Some(header) = self.long_header(space) else {
            return;
        };
        let Some(level) = self.handshake.level_mut(space) else {
            return;
        };
        let Some(builder) = start_handshake(level, &header, space, limit, buf) else {
            return;
        };
        let mut writer = builder.writer(buf);
        if write_close(&mut writer, frame) {
            let pad_to = pad.then_some(MIN_DATAGRAM);
            self.outbox.log.packet_sent(
                &header,
                &builder,
                buf,
                pad_to,
                self.paths.ids.is_multipath(),
            );
            builder.finish(
                buf,
                &*level.keys.header.local,
                &*level.keys.packet.local,
                pad_to,
            );
            level.space.take_packet_number();
        } else {
            builder.abandon(buf);
        }
    }

    /// Closes, and acknowledges what came on that path: an application that read everything and is
    /// done leaves no doubt that it arrived.
    fn close_one_rtt(
        &mut self,
        now: Instant,
        id: PathId,
        frame: Close,
        limit: usize,
        buf: &mut Vec<u8>,
    ) {
        let Some(builder) = self.start_one_rtt(id, None, limit, buf) else {
            return;
        };
        let mut writer = builder.writer(buf);
        let _wrote = self.write_ack_of(&mut writer, now, id);
        let wrote = write_close(&mut writer, &frame);
        if wrote {
            self.log_one_rtt(id, None, &builder, buf, None);
        }
        match (&mut self.handshake.one_rtt, self.paths.any_mut(id)) {
            (Some(keys), Some(path)) if wrote => {
                let (header_key, packet_key, _) = keys.sealing();
                builder.finish(buf, header_key, packet_key, None);
                keys.on_sealed();
                path.space.take_packet_number();
            }
            _ => builder.abandon(buf),
        }
    }
}

/// Smaller than any Handshake packet worth sending.
const MIN_HANDSHAKE_PACKET: usize = 64;
/// Kept free in a datagram for a 1-RTT packet after those of the handshake.
const ONE_RTT_ROOM: usize = 128;

fn start_handshake(
    level: &Level,
    header: &PacketHeader,
    space: SpaceId,
    limit: usize,
    buf: &mut Vec<u8>,
) -> Option<PacketBuilder> {
    let start = PacketStart {
        header,
        space,
        packet_number: level.space.next_packet_number(),
        largest_acked: level.space.largest_acked(),
        tag_length: level.keys.packet.local.tag_length(),
        limit,
        clear_quic_bit: false,
    };
    PacketBuilder::start(buf, start)
}

/// Writes CONNECTION_CLOSE with as much of the reason as fits.
fn write_close(writer: &mut FrameWriter<'_>, frame: &Close) -> bool {
    /// Type, code, frame type and reason length at their longest.
    const OVERHEAD: usize = 1 + 8 + 8 + 8;
    let room = writer.remaining().saturating_sub(OVERHEAD);
    let mut frame = frame.clone();
    match &mut frame {
        Close::Connection(close) => close.reason.truncate(room),
        Close::Application(_, reason) => reason.truncate(room),
    }
    writer.try_write(&Frame::ConnectionClose(frame), Delivery::Nothing)
}

/// The application's words may not be readable by others during the handshake (RFC 9000 section
/// 10.2.3).
fn conceal(frame: &Close) -> Close {
    match frame {
        Close::Connection(_) => frame.clone(),
        Close::Application(..) => Close::Connection(ConnectionClose {
            code: TransportErrorCode::APPLICATION_ERROR,
            frame_type: 0,
            reason: bytes::Bytes::new(),
        }),
    }
}
