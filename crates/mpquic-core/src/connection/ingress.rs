//! Datagram to packets to frames.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::Side;

use super::{Connection, State};
use crate::error::{ConnectionError, Fault, TransportError};
use crate::event::{Datagram, Event};
use crate::ids::{PathId, SpaceId};
use crate::packet::arrival::{Arrival, Opened};
use crate::protect::Opening;
use crate::qlog::DropReason;
use crate::recorder::Dropped;
use crate::space::AckPolicy;
use crate::wire::frame::{
    self, Ack, Close, Crypto, Frame, FrameIter, PacketType, PathAck, ResetStreamAt,
};
use crate::wire::header::{self, Header, ProtectedPacket};

/// What the frames of a packet were.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Content {
    ack_eliciting: bool,
    non_probing: bool,
    /// IMMEDIATE_ACK was among them.
    immediate_ack: bool,
}

impl Connection {
    /// Takes a datagram.
    pub fn handle_datagram(&mut self, datagram: Datagram) {
        let Datagram {
            now,
            four_tuple,
            ecn,
            path,
            data,
        } = datagram;
        let size = data.len();
        self.outbox.set_time(now);
        self.idle.on_datagram();
        self.outbox.stats.datagrams_received += 1;
        self.outbox.stats.bytes_received += size as u64;
        let arrival = Arrival {
            now,
            four_tuple,
            ecn,
            path,
            size,
        };
        match &mut self.state {
            State::Open => {}
            State::Closing(_) => {
                self.state.on_datagram();
                return self.look_for_close(&arrival, data);
            }
            State::Draining(_) | State::Drained => return,
        }
        // MP-086: a client takes nothing from a server address it did not choose.
        if self.side == Side::Client && !self.is_known_remote(&arrival) {
            self.outbox
                .drop_packet(arrival.path, Dropped::unknown(size), DropReason::Rejected);
            return;
        }
        self.credit_datagram(&arrival);
        let result = self.handle_packets(&arrival, data);
        self.close_on_error(now, result);
    }

    /// Takes the endpoint's word that the peer sent a stateless reset (RFC 9000 section 10.3).
    pub fn handle_stateless_reset(&mut self, now: Instant) {
        self.outbox.set_time(now);
        if matches!(self.state, State::Open | State::Closing(_)) {
            let open = self.state.is_open();
            let period = self.closing_period();
            self.state.drain(now, period);
            if open {
                self.lose(ConnectionError::Reset);
            }
        }
    }

    fn is_known_remote(&self, arrival: &Arrival) -> bool {
        let remote = arrival.four_tuple.remote;
        let Some(path) = self.paths.any(arrival.path) else {
            return false;
        };
        // Packets from the handshake's address may be late once path 0 has left it.
        let is_handshake = path.id == PathId::ZERO && remote == self.paths.shared.handshake_address;
        is_handshake || path.knows_remote(remote)
    }

    /// Bytes received raise the 3x limit of the tuple they came on (RFC 9000 section 8.1).
    pub(super) fn credit_datagram(&mut self, arrival: &Arrival) {
        let side = self.side;
        if let Some(path) = self.paths.any_mut(arrival.path) {
            path.on_datagram_received(arrival.four_tuple, arrival.size, side);
        }
    }

    fn handle_packets(
        &mut self,
        arrival: &Arrival,
        mut data: BytesMut,
    ) -> Result<(), TransportError> {
        let cid_length = self.endpoint_config.connection_ids.length();
        let mut first = true;
        while !data.is_empty() && self.state.is_open() {
            let rest = Dropped::unknown(data.len());
            let Ok(mut packet) = header::next_packet(&mut data, cid_length) else {
                if first {
                    self.outbox
                        .drop_packet(arrival.path, rest, DropReason::Invalid);
                }
                return Ok(());
            };
            first = false;
            self.handle_packet(arrival, &mut packet)?;
        }
        while let Some((arrival, mut packet)) = self.take_buffered() {
            self.handle_packet(&arrival, &mut packet)?;
        }
        Ok(())
    }

    fn handle_packet(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
    ) -> Result<(), TransportError> {
        let seen = Dropped::new(&packet.header, packet.data.len());
        let tail = reset_token(&packet.data);
        match self.open_packet(arrival, packet)? {
            Opening::Opened(opened, payload) => match opened.packet_type {
                PacketType::OneRtt => self.handle_one_rtt(arrival, &opened, payload),
                PacketType::ZeroRtt => self.handle_payload(arrival, &opened, payload).map(|_| ()),
                PacketType::Initial | PacketType::Handshake => {
                    self.handle_payload(arrival, &opened, payload)?;
                    self.handshake
                        .on_packet_processed(&packet.header, &mut self.outbox);
                    self.drive_handshake(arrival.now)
                }
            },
            Opening::Fault(error) => Err(error),
            Opening::Buffered | Opening::Unnumbered => Ok(()),
            Opening::Dropped(reason) => {
                self.outbox.drop_packet(arrival.path, seen, reason);
                let may_be_reset = matches!(packet.header, Header::Short { .. })
                    && reason == DropReason::DecryptionFailure;
                if may_be_reset && tail.is_some_and(|token| self.paths.is_reset_token(token)) {
                    self.handle_stateless_reset(arrival.now);
                }
                Ok(())
            }
        }
    }

    fn open_packet(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
    ) -> Result<Opening, TransportError> {
        // RFC 9000 section 17.2, unless we announced that it may be greased (RFC 9287).
        if !packet.has_fixed_bit() && !self.endpoint_config.grease_quic_bit {
            return Ok(Opening::Dropped(DropReason::Invalid));
        }
        match packet.header {
            Header::Short { .. } => Ok(self.open_one_rtt(arrival, packet)),
            Header::Initial { .. } | Header::Handshake { .. } | Header::ZeroRtt { .. } => {
                let first = self.paths.any(PathId::ZERO).map(|path| &path.space);
                Ok(self.handshake.open_long(arrival, packet, first))
            }
            Header::Retry { .. } | Header::VersionNegotiation { .. } => {
                let acted_on =
                    self.handshake
                        .on_unnumbered(packet, &mut self.random, &mut self.outbox);
                self.follow_handshake_steps(arrival.now);
                Ok(match acted_on? {
                    true => Opening::Unnumbered,
                    false => Opening::Dropped(DropReason::Rejected),
                })
            }
        }
    }

    fn open_one_rtt(&mut self, arrival: &Arrival, packet: &mut ProtectedPacket) -> Opening {
        let paths = &self.paths;
        let Some(slot) = paths.slot(arrival.path) else {
            return Opening::Dropped(DropReason::ConnectionUnknown);
        };
        let space = slot.path.as_deref().map(|path| &path.space);
        if space.is_none() && paths.lacks_peer_cid(slot) {
            return self.handshake.buffer(arrival, packet);
        }
        let largest_pto = || paths.largest_pto();
        self.handshake
            .open_one_rtt(arrival, packet, space, largest_pto, &mut self.outbox)
    }

    /// The first buffered packet that can be handled by now.
    fn take_buffered(&mut self) -> Option<(Arrival, ProtectedPacket)> {
        let paths = &self.paths;
        self.handshake.take_buffered(|path| {
            let slot = paths.slot(path);
            slot.is_none_or(|slot| !paths.lacks_peer_cid(slot))
        })
    }

    fn handle_one_rtt(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
    ) -> Result<(), TransportError> {
        if self.is_unwanted_migration(arrival) || !self.admit_path(arrival) {
            let seen = Dropped::one_rtt(opened.size);
            self.outbox
                .drop_packet(arrival.path, seen, DropReason::Rejected);
            return Ok(());
        }
        let side = self.side;
        let Some(path) = self.paths.any_mut(arrival.path) else {
            return Ok(());
        };
        let newest = opened.packet_number >= path.space.expected_next();
        if newest && path.spins {
            path.on_spin(side, opened.spin);
        }
        let content = self.handle_payload(arrival, opened, payload)?;
        self.after_one_rtt(arrival, newest && content.non_probing);
        Ok(())
    }

    /// Gives every frame to its owner, then records the packet as received.
    pub(super) fn handle_payload(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
    ) -> Result<Content, TransportError> {
        if payload.is_empty() {
            // RFC 9000 section 12.4
            return Err(Fault::EmptyPacket.into());
        }
        let multipath = self.reads_multipath(opened.packet_type);
        self.outbox.log.packet_received(opened, &payload, multipath);
        let mut content = Content::default();
        for frame in FrameIter::new(payload, multipath) {
            let frame = frame?;
            let frame_type = frame.frame_type();
            // RFC 9000 section 12.4, MP-004
            if !frame.is_allowed_in(opened.packet_type) {
                return Err(TransportError::new(Fault::FrameNotAllowed).in_frame(frame_type));
            }
            content.ack_eliciting |= frame.is_ack_eliciting();
            content.non_probing |= !frame.is_probing();
            content.immediate_ack |= frame == Frame::ImmediateAck;
            self.on_frame(arrival, opened, frame)
                .map_err(|error| error.in_frame(frame_type))?;
            if !self.state.is_open() {
                return Ok(content);
            }
        }
        self.on_packet_received(arrival, opened, &content);
        Ok(content)
    }

    /// Outside of 1-RTT packets the frames of RFC 10069 are out of place rather than unknown as
    /// soon as we announced that we know them (MP-004).
    pub(super) fn reads_multipath(&self, packet_type: PacketType) -> bool {
        match packet_type {
            PacketType::OneRtt => self.paths.ids.is_multipath(),
            PacketType::Initial | PacketType::ZeroRtt | PacketType::Handshake => {
                self.handshake.announces_multipath()
            }
        }
    }

    fn on_packet_received(&mut self, arrival: &Arrival, opened: &Opened, content: &Content) {
        let Arrival { now, ecn, .. } = *arrival;
        self.idle.on_received(now);
        let (space, policy) = match opened.space {
            SpaceId::Data(id) => {
                let Some((path, shared)) = self.paths.any_and_shared(id) else {
                    return;
                };
                path.last_activity = now;
                path.counters.packets_received += 1;
                (&mut path.space, shared.ack_frequencies.policy())
            }
            SpaceId::Initial | SpaceId::Handshake => {
                if let Some(path) = self.paths.any_mut(PathId::ZERO) {
                    path.counters.packets_received += 1;
                }
                match self.handshake.level_mut(opened.space) {
                    Some(level) => (&mut level.space, &AckPolicy::IMMEDIATE),
                    None => return,
                }
            }
        };
        let (number, ack_eliciting) = (opened.packet_number, content.ack_eliciting);
        let received = &mut space.received;
        received.on_packet(number, now, ecn, ack_eliciting, policy);
        if content.immediate_ack {
            received.set_due();
        }
    }

    /// ACK: of the space it arrived in.
    pub(super) fn on_plain_ack(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        ack: &Ack,
    ) -> Result<(), TransportError> {
        self.on_ack(arrival, opened, opened.space.for_plain_ack(), ack)
    }

    /// PATH_ACK.
    pub(super) fn on_path_ack(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        frame: &PathAck,
    ) -> Result<(), TransportError> {
        self.paths.ids.check(frame.path_id)?;
        self.on_ack(arrival, opened, SpaceId::Data(frame.path_id), &frame.ack)
    }

    pub(super) fn on_stream(
        &mut self,
        frame: frame::Stream,
        now: Instant,
    ) -> Result<(), TransportError> {
        let bytes = frame.data.len() as u64;
        self.streams.on_stream(frame)?;
        let paths = &self.paths;
        self.streams
            .grow_receive_window(bytes, now, || paths.largest_rtt());
        Ok(())
    }

    pub(super) fn on_reset_stream_at(
        &mut self,
        reset: &ResetStreamAt,
    ) -> Result<(), TransportError> {
        // RFC 9000 section 12.4: a type that was not negotiated is unknown.
        if !self.handshake.takes_reset_stream_at() {
            return Err(TransportError::new(Fault::ResetStreamAtNotNegotiated));
        }
        self.streams.on_reset_stream_at(reset)
    }

    pub(super) fn on_crypto(
        &mut self,
        now: Instant,
        space: SpaceId,
        crypto: Crypto,
    ) -> Result<(), TransportError> {
        self.handshake.on_crypto(space, crypto)?;
        match space {
            // Session tickets; the handshake levels are driven when their packet is done.
            SpaceId::Data(_) => self.drive_handshake(now),
            SpaceId::Initial | SpaceId::Handshake => Ok(()),
        }
    }

    pub(super) fn on_datagram_frame(&mut self, data: Bytes) -> Result<(), TransportError> {
        if self.datagrams.on_datagram(data)? {
            self.outbox.event(Event::DatagramReceived);
        }
        Ok(())
    }

    pub(super) fn on_handshake_done(&mut self, now: Instant) -> Result<(), TransportError> {
        self.handshake.on_handshake_done(&mut self.outbox)?;
        self.follow_handshake_steps(now);
        Ok(())
    }

    pub(super) fn on_close(&mut self, now: Instant, close: Close) {
        let period = self.closing_period();
        self.state.drain(now, period);
        let reason = match close {
            Close::Connection(close) => ConnectionError::ConnectionClosed(close),
            Close::Application(close) => ConnectionError::ApplicationClosed(close),
        };
        self.lose(reason);
    }

    /// While closing: a CONNECTION_CLOSE of the peer ends our own repetitions.
    fn look_for_close(&mut self, arrival: &Arrival, mut data: BytesMut) {
        let cid_length = self.endpoint_config.connection_ids.length();
        if let Ok(mut packet) = header::next_packet(&mut data, cid_length)
            && matches!(packet.header, Header::Short { .. })
            && let Opening::Opened(_, payload) = self.open_one_rtt(arrival, &mut packet)
            && FrameIter::new(payload, self.paths.ids.is_multipath())
                .any(|frame| matches!(frame, Ok(Frame::ConnectionClose(_))))
        {
            // The period ends when ours would have; `drain` keeps that time.
            self.state.stop_answering();
        }
    }
}

/// The last 16 bytes of a datagram, where a stateless reset has its token.
fn reset_token(data: &[u8]) -> Option<[u8; 16]> {
    data.last_chunk().copied()
}
