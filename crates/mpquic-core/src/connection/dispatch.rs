//! The one match that gives each frame to its owner.

use super::Connection;
use crate::error::TransportError;
use crate::ids::PathId;
use crate::packet::arrival::{Arrival, Opened};
use crate::wire::frame::Frame;

impl Connection {
    pub(super) fn on_frame(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        frame: Frame,
    ) -> Result<(), TransportError> {
        let now = arrival.now;
        match frame {
            Frame::Padding | Frame::Ping => {}
            Frame::Ack(ack) => self.on_plain_ack(arrival, opened, &ack)?,
            Frame::PathAck(frame) => self.on_path_ack(arrival, opened, &frame)?,
            Frame::ResetStream(frame) => self.streams.on_reset_stream(&frame)?,
            Frame::ResetStreamAt(frame) => self.on_reset_stream_at(&frame)?,
            Frame::StopSending(frame) => self.streams.on_stop_sending(&frame)?,
            Frame::Crypto(frame) => self.on_crypto(now, opened.space, frame)?,
            Frame::NewToken(token) => self.handshake.on_new_token(token)?,
            Frame::Stream(frame) => self.on_stream(frame, now)?,
            Frame::MaxData(maximum) => self.streams.on_max_data(maximum),
            Frame::MaxStreamData(frame) => self.streams.on_max_stream_data(&frame)?,
            Frame::MaxStreams(frame) => self.streams.on_max_streams(&frame)?,
            Frame::DataBlocked(limit) => self.streams.on_data_blocked(limit),
            Frame::StreamDataBlocked(frame) => self.streams.on_stream_data_blocked(&frame)?,
            Frame::StreamsBlocked(frame) => self.streams.on_streams_blocked(&frame)?,
            Frame::NewConnectionId(frame) => self.on_new_connection_id(PathId::ZERO, &frame)?,
            Frame::RetireConnectionId(sequence) => {
                self.on_retire(PathId::ZERO, sequence, opened)?
            }
            Frame::PathChallenge(data) => self.on_path_challenge(arrival, data),
            Frame::PathResponse(data) => self.on_path_response(arrival, data),
            Frame::ConnectionClose(close) => self.on_close(now, close),
            Frame::HandshakeDone => self.on_handshake_done(now)?,
            Frame::Datagram(data) => self.on_datagram_frame(data)?,
            Frame::AckFrequency(frame) => {
                self.paths.shared.ack_frequencies.on_ack_frequency(&frame)?;
            }
            Frame::ImmediateAck => self.paths.shared.ack_frequencies.on_immediate_ack()?,
            Frame::PathAbandon(frame) => self.on_path_abandon(now, &frame)?,
            Frame::PathStatus(frame) => self.on_path_status(now, &frame)?,
            Frame::PathNewConnectionId(frame) => self.on_path_new_connection_id(&frame)?,
            Frame::PathRetireConnectionId(frame) => self.on_path_retire(&frame, opened)?,
            Frame::MaxPathId(maximum) => self.on_max_path_id(now, maximum)?,
            Frame::PathsBlocked(maximum) => self.on_paths_blocked(now, maximum)?,
            Frame::PathCidsBlocked(frame) => self.on_path_cids_blocked(now, &frame)?,
        }
        Ok(())
    }
}
