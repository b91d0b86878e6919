//! Passes each frame of a packet to its owner, in a single match.

use bytes::Bytes;

use super::Connection;
use crate::error::{Fault, TransportError};
use crate::event::Event;
use crate::ids::SpaceId;
use crate::packet::arrival::{Arrival, Content, Opened};
use crate::wire::frame::{Frame, FrameIter, PacketType, PathAck};

impl Connection {
    /// Passes every frame to its owner, then records the packet as received.
    pub(super) fn process(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
    ) -> Result<Content, TransportError> {
        if payload.is_empty() {
            // RFC 9000 section 12.4
            return Err(Fault::EmptyPacket.into());
        }
        // Outside of 1-RTT packets, the frames of RFC 10069 are not allowed; they count as known,
        // rather than as unknown, as soon as we have announced multipath (MP-004).
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
            if !self.state.is_open() {
                return Ok(content);
            }
        }
        self.idle.on_received(arrival.now);
        self.paths.on_packet_processed(arrival, opened, &content);
        if let SpaceId::Initial | SpaceId::Handshake = opened.space {
            self.handshake
                .on_frames_processed(arrival, opened, &content);
        }
        Ok(content)
    }

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
            }
            Frame::ResetStream(frame) => self.streams.on_reset_stream(&frame)?,
            Frame::ResetStreamAt(frame) => self.streams.on_reset_stream_at(&frame)?,
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
                self.streams.receive(frame, now, || paths.largest_rtt())?;
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
            Frame::ConnectionClose(close) => self.on_close(now, close),
            Frame::HandshakeDone => {
                self.handshake.on_handshake_done(&mut self.outbox)?;
                self.follow_handshake_steps(now);
            }
            Frame::Datagram(data) => {
                if self.datagrams.on_datagram(data)? {
                    outbox.event(Event::DatagramReceived);
                }
            }
            Frame::AckFrequency(frame) => {
                paths.shared.ack_frequencies.on_ack_frequency(&frame)?;
            }
            Frame::ImmediateAck => paths.shared.ack_frequencies.on_immediate_ack()?,
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
}
