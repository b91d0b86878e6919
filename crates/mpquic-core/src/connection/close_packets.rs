//! Packets with CONNECTION_CLOSE.

use std::time::Instant;

use quinn_proto::Side;

use super::Connection;
use crate::error::{ConnectionClose, TransportErrorCode};
use crate::handshake::{Level, LevelPacket};
use crate::ids::{PathId, SpaceId};
use crate::packet::Transmit;
use crate::packet::delivery::Delivery;
use crate::packet::plan::Plan;
use crate::packet::writer::FrameWriter;
use crate::wire::buf::MIN_DATAGRAM;
use crate::wire::frame::{Close, Frame};

impl Connection {
    /// Sends CONNECTION_CLOSE at every level that the peer may be able to read (RFC 9000 section
    /// 10.2.3).
    pub(super) fn transmit_close(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let frame = self.state.take_frame()?;
        let id = self
            .paths
            .iter()
            .find(|path| path.is_validated() && !path.is_suspect())
            .or_else(|| self.paths.iter().next())
            .map(|path| path.id)?;
        let path = self.paths.open(id)?;
        let four_tuple = path.four_tuple();
        let limit = path.datagram_size().min(path.budget_for(four_tuple));
        if !self.handshake.is_confirmed()
            && id == PathId::ZERO
            && let Some(dcid) = self.paths.handshake_destination()
        {
            let concealed = conceal(&frame);
            // RFC 9000 section 14.1: the last packet fills the datagram.
            let pad = self.side == Side::Client && self.handshake.level(SpaceId::Initial).is_some();
            let last = self.handshake.level(SpaceId::Handshake).is_none();
            let multipath = self.paths.ids.is_multipath();
            let packet = |space, pad: bool| LevelPacket {
                now,
                space,
                dcid,
                limit,
                pad_to: pad.then_some(MIN_DATAGRAM),
                multipath,
            };
            self.close_handshake(&packet(SpaceId::Initial, pad && last), &concealed, buf);
            self.close_handshake(&packet(SpaceId::Handshake, pad), &concealed, buf);
        }
        if self.handshake.has_one_rtt_keys()
            && (self.handshake.is_complete() || self.side == Side::Server)
        {
            self.close_one_rtt(now, id, frame, limit, buf);
        }
        if buf.is_empty() {
            return None;
        }
        self.paths.on_datagrams_sent(id, four_tuple, buf.len());
        Some(Transmit::single(id, four_tuple, buf))
    }

    fn close_handshake(&mut self, packet: &LevelPacket, frame: &Close, buf: &mut Vec<u8>) {
        let write = |_: &mut Level, writer: &mut FrameWriter<'_>| {
            let _no_room_is_fine = write_close(writer, frame);
        };
        let built = self
            .handshake
            .build_packet(packet, buf, &mut self.outbox, write);
        if let (Some(_), Some(level)) = (built, self.handshake.level_mut(packet.space)) {
            level.space.take_packet_number();
        }
    }

    /// Writes a 1-RTT packet with CONNECTION_CLOSE and an acknowledgement for its path. So if an
    /// application has read everything and closes, its peer learns that all data arrived.
    fn close_one_rtt(
        &mut self,
        now: Instant,
        id: PathId,
        frame: Close,
        limit: usize,
        buf: &mut Vec<u8>,
    ) {
        let Some(builder) = self.start_packet(id, None, limit, buf) else {
            return;
        };
        let mut writer = builder.writer(buf, &mut self.outbox.stats.frames_sent);
        let _wrote = self.paths.write_acks(&mut writer, now, id, false);
        let plan = Plan::new(id, limit);
        if !write_close(&mut writer, &frame) {
            builder.abandon(buf);
            return;
        }
        if self.outbox.log.is_on() {
            self.log_packet(&builder, &plan, buf, None);
        }
        if let (Some(_), Some(path)) = (
            self.handshake.seal(builder, buf, None),
            self.paths.any_mut(id),
        ) {
            path.space.take_packet_number();
        }
    }
}

/// Writes CONNECTION_CLOSE with as much of the reason as fits.
fn write_close(writer: &mut FrameWriter<'_>, frame: &Close) -> bool {
    let frame = frame.clone().shortened_to(writer.remaining());
    writer.try_write(&Frame::ConnectionClose(frame), Delivery::Nothing)
}

/// Removes the application's code and reason, which others could read during the handshake (RFC
/// 9000 section 10.2.3).
fn conceal(frame: &Close) -> Close {
    match frame {
        Close::Connection(_) => frame.clone(),
        Close::Application(_) => Close::Connection(ConnectionClose {
            code: TransportErrorCode::APPLICATION_ERROR,
            frame_type: 0,
            reason: bytes::Bytes::new(),
        }),
    }
}
