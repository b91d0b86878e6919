//! Receiving datagrams: from datagrams to packets to frames.

use bytes::{Bytes, BytesMut};

use super::{Connection, State};
use crate::account::REVIEW_INTERVAL;
use crate::error::{Fault, TransportError};
use crate::event::{Datagram, Event};
use crate::ids::{PathId, SpaceId};
use crate::packet::arrival::{Arrival, Content, Opened};
use crate::path::admission::{Destination, brings_cid};
use crate::protect::Opening;
use crate::qlog::DropReason;
use crate::recorder::Dropped;
use crate::wire::frame::{Frame, FrameIter, PacketType, PathAck};
use crate::wire::header::{self, Header, ProtectedPacket};

impl Connection {
    /// Processes a received datagram.
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
            State::Concealed(_) | State::Draining(_) | State::Drained => return,
        }
        if !self.paths.on_datagram(&arrival, &mut self.outbox) {
            self.outbox
                .drop_packet(arrival.path, Dropped::unknown(size), DropReason::Rejected);
            return;
        }
        let result = self.handle_packets(&arrival, data);
        if let Some(close) = self.state.concealed() {
            self.on_close(now, close);
        }
        self.close_on_error(now, result);
        // Counting takes some time, so it is done now and then, and always near the limit.
        let counts = self.outbox.stats.datagrams_received % REVIEW_INTERVAL == 1;
        if counts || self.streams.is_memory_tight() {
            self.review_memory(now);
        }
    }

    fn handle_packets(
        &mut self,
        arrival: &Arrival,
        mut data: BytesMut,
    ) -> Result<(), TransportError> {
        let cid_length = self.endpoint_config.connection_ids.length();
        let mut first = true;
        while !data.is_empty() && self.state.takes_frames() {
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
        loop {
            let is_ready = |path| !self.paths.lacks_peer_cid(path);
            let Some((arrival, mut packet)) = self.handshake.take_buffered(is_ready) else {
                return Ok(());
            };
            self.handle_packet(&arrival, &mut packet)?;
        }
    }

    fn handle_packet(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
    ) -> Result<(), TransportError> {
        let seen = Dropped::new(&packet.header, packet.data.len());
        let tail = reset_token(&packet.data);
        match self.open_packet(arrival, packet) {
            Opening::Opened(opened, payload) => match opened.packet_type {
                PacketType::OneRtt => self.handle_one_rtt(arrival, &opened, payload),
                PacketType::ZeroRtt => self.process(arrival, &opened, payload),
                PacketType::Initial | PacketType::Handshake => {
                    self.paths.on_server_packet(arrival, &mut self.outbox);
                    self.process(arrival, &opened, payload)?;
                    self.handshake
                        .on_packet_processed(arrival, &packet.header, &mut self.outbox);
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

    #[inline]
    fn open_packet(&mut self, arrival: &Arrival, packet: &mut ProtectedPacket) -> Opening {
        // RFC 9000 section 17.2, unless we announced that we take a cleared bit (RFC 9287).
        if !packet.has_fixed_bit() && !self.endpoint_config.grease_quic_bit {
            return Opening::Dropped(DropReason::Invalid);
        }
        match packet.header {
            Header::Short { .. } => self.open_one_rtt(arrival, packet),
            Header::Initial { .. } | Header::Handshake { .. } | Header::ZeroRtt { .. } => {
                let first = self.paths.any(PathId::ZERO).map(|path| &path.space);
                self.handshake.open_long(arrival, packet, first)
            }
            Header::Retry { .. } | Header::VersionNegotiation { .. } => {
                let acted_on =
                    self.handshake
                        .on_unnumbered(packet, &mut self.random, &mut self.outbox);
                if matches!(
                    (&packet.header, &acted_on),
                    (Header::Retry { .. }, Ok(true))
                ) {
                    self.paths.on_server_packet(arrival, &mut self.outbox);
                }
                self.follow_handshake_steps(arrival.now);
                match acted_on {
                    Ok(true) => Opening::Unnumbered,
                    Ok(false) => Opening::Dropped(DropReason::Rejected),
                    Err(error) => Opening::Fault(error),
                }
            }
        }
    }

    #[inline]
    fn open_one_rtt(&mut self, arrival: &Arrival, packet: &mut ProtectedPacket) -> Opening {
        let (paths, handshake, outbox) = (&self.paths, &mut self.handshake, &mut self.outbox);
        let largest_pto = || paths.largest_pto();
        let space = match paths.destination(arrival) {
            Destination::Path(space) => Some(space),
            Destination::NewPath => None,
            Destination::Later => {
                return handshake.open_or_buffer(arrival, packet, brings_cid, largest_pto, outbox);
            }
            Destination::Nowhere(reason) => return Opening::Dropped(reason),
        };
        handshake.open_one_rtt(arrival, packet, space, largest_pto, outbox)
    }

    fn handle_one_rtt(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
    ) -> Result<(), TransportError> {
        let (paths, outbox) = (&mut self.paths, &mut self.outbox);
        if paths.any(arrival.path).is_none() && !paths.admit(arrival, &payload, outbox)? {
            let seen = Dropped::one_rtt(opened.size);
            outbox.drop_packet(arrival.path, seen, DropReason::Rejected);
            return Ok(());
        }
        self.process(arrival, opened, payload)
    }

    /// Passes every frame to its owner, then records the packet as received.
    fn process(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
    ) -> Result<(), TransportError> {
        if payload.is_empty() {
            // RFC 9000 section 12.4
            return Err(Fault::EmptyPacket.into());
        }
        // Outside of 1-RTT packets, the frames of RFC 10069 are forbidden; after our announcement
        // of multipath, they count as known frames in the wrong packet (MP-004).
        let multipath = match opened.packet_type {
            PacketType::OneRtt => self.paths.ids.is_multipath(),
            PacketType::Initial | PacketType::ZeroRtt | PacketType::Handshake => {
                self.handshake.announces_multipath()
            }
        };
        self.outbox.log.packet_received(opened, &payload, multipath);
        let mut content = Content::default();
        for frame in FrameIter::new(payload, multipath) {
            let frame = frame?;
            let frame_type = frame.frame_type();
            // RFC 9000 section 12.4, MP-004
            if !frame.is_allowed_in(opened.packet_type) {
                return Err(TransportError::new(Fault::FrameNotAllowed).in_frame(frame_type));
            }
            self.outbox.stats.frames_received.add(frame.kind());
            content.add(&frame);
            self.on_frame(arrival, opened, frame)
                .map_err(|error| error.in_frame(frame_type))?;
            if !self.state.takes_frames() {
                return Ok(());
            }
        }
        self.idle.on_received(arrival.now);
        let outbox = &mut self.outbox;
        if self
            .paths
            .on_packet_processed(arrival, opened, &content, outbox)
        {
            let validated = self.paths.validated_addresses();
            self.handshake.offer_token(validated, &mut self.random);
        }
        if let SpaceId::Initial | SpaceId::Handshake = opened.space {
            self.handshake
                .on_frames_processed(arrival, opened, &content);
        }
        Ok(())
    }

    /// Passes a frame to its owner.
    fn on_frame(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        frame: Frame,
    ) -> Result<(), TransportError> {
        let now = arrival.now;
        let (paths, outbox) = (&mut self.paths, &mut self.outbox);
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack(ack) => self.on_ack(arrival, opened, opened.space.for_plain_ack(), &ack)?,
            Frame::PathAck(PathAck { path_id, ack }) => {
                self.on_ack(arrival, opened, SpaceId::Data(path_id), &ack)?;
                self.handshake.on_path_acked(path_id, &mut self.outbox);
                self.follow_handshake_steps(now);
            }
            Frame::ResetStream(frame) => self.streams.on_reset_stream(&frame, now)?,
            Frame::ResetStreamAt(frame) => self.streams.on_reset_stream_at(&frame, now)?,
            Frame::StopSending(frame) => self.streams.on_stop_sending(&frame)?,
            Frame::Crypto(frame) => {
                self.handshake.on_crypto(opened.space, frame)?;
                // For session tickets. The levels of the handshake are driven once their packet is
                // processed.
                if let SpaceId::Data(_) = opened.space {
                    self.drive_handshake(now)?;
                }
            }
            Frame::NewToken(token) => self.handshake.on_new_token(token)?,
            Frame::Stream(frame) => {
                self.streams
                    .receive(frame, arrival.size, now, || paths.largest_rtt())?;
            }
            Frame::MaxData(maximum) => self.streams.on_max_data(maximum),
            Frame::MaxStreamData(frame) => self.streams.on_max_stream_data(&frame)?,
            Frame::MaxStreams(frame) => self.streams.on_max_streams(&frame)?,
            Frame::DataBlocked(_) => self.streams.on_data_blocked(),
            Frame::StreamDataBlocked(frame) => self.streams.on_stream_data_blocked(&frame)?,
            Frame::StreamsBlocked(frame) => self.streams.on_streams_blocked(&frame)?,
            Frame::NewConnectionId(frame) => paths.on_new_connection_id(&frame, outbox)?,
            Frame::RetireConnectionId(sequence) => {
                paths.on_retire_connection_id(sequence, opened, outbox)?;
            }
            Frame::PathChallenge(data) => paths.on_path_challenge(arrival, data, outbox),
            Frame::PathResponse(data) => paths.on_path_response(arrival, data, outbox),
            Frame::ConnectionClose(close) => {
                if let Some(close) = self.state.conceal(close, opened.packet_type) {
                    self.on_close(now, close);
                }
            }
            Frame::HandshakeDone => {
                self.handshake.on_handshake_done(&mut self.outbox)?;
                self.follow_handshake_steps(now);
            }
            Frame::Datagram(data) => {
                if self.datagrams.on_datagram(data, arrival.size)? {
                    outbox.event(Event::DatagramReceived);
                }
            }
            Frame::AckFrequency(frame) => {
                paths.shared.ack_frequencies.on_ack_frequency(&frame)?;
            }
            Frame::ImmediateAck => paths.shared.ack_frequencies.on_immediate_ack()?,
            Frame::AlternativeAddress(set) => paths.on_alternative_address(now, &set, outbox)?,
            Frame::PathAbandon(frame) => {
                let abandonment = paths.on_path_abandon(now, &frame, outbox)?;
                self.after_abandonment(now, abandonment);
            }
            Frame::PathStatus(frame) => paths.on_path_status(now, &frame, outbox)?,
            Frame::PathNewConnectionId(frame) => {
                paths.on_path_new_connection_id(&frame, outbox)?;
            }
            Frame::PathRetireConnectionId(frame) => {
                paths.on_path_retire_connection_id(&frame, opened, outbox)?;
            }
            Frame::MaxPathId(maximum) => paths.on_max_path_id(now, maximum, outbox)?,
            Frame::PathsBlocked(maximum) => paths.on_paths_blocked(now, maximum)?,
            Frame::PathCidsBlocked(frame) => paths.on_path_cids_blocked(now, &frame, outbox)?,
        }
        Ok(())
    }

    /// While closing, a CONNECTION_CLOSE of the peer means that ours need not be repeated.
    fn look_for_close(&mut self, arrival: &Arrival, mut data: BytesMut) {
        let cid_length = self.endpoint_config.connection_ids.length();
        if let Ok(mut packet) = header::next_packet(&mut data, cid_length)
            && matches!(packet.header, Header::Short { .. })
            && let Opening::Opened(_, payload) = self.open_one_rtt(arrival, &mut packet)
            && FrameIter::new(payload, self.paths.ids.is_multipath())
                .any(|frame| matches!(frame, Ok(Frame::ConnectionClose(_))))
        {
            // Draining ends when closing would have ended; `drain` keeps that time.
            self.state.stop_answering();
        }
    }
}

/// The last 16 bytes of a datagram, where a stateless reset has its token.
fn reset_token(data: &[u8]) -> Option<[u8; 16]> {
    data.last_chunk().copied()
}
