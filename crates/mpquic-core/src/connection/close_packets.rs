//! Packets with CONNECTION_CLOSE.

use std::time::Instant;

use quinn_proto::Side;

use super::Connection;
use crate::error::{ConnectionClose, TransportErrorCode};
use crate::handshake::{Level, LevelPacket};
use crate::ids::{PathId, SpaceId};
use crate::packet::delivery::Delivery;
use crate::packet::plan::{Begun, Plan};
use crate::packet::writer::FrameWriter;
use crate::wire::buf::MIN_DATAGRAM;
use crate::wire::frame::{Close, Frame};

impl Connection {
    /// Begins a datagram with CONNECTION_CLOSE at every level that the peer may be able to read
    /// (RFC 9000 section 10.2.3). The following 1-RTT packet acknowledges packets of its path: an
    /// application that closes after reading all data thereby confirms the data's arrival.
    pub(super) fn begin_with_close(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Begun> {
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
        let readable = self.handshake.is_complete() || self.side == Side::Server;
        let follows = readable && self.handshake.has_one_rtt_keys();
        let mut pad = false;
        if !self.handshake.is_confirmed()
            && id == PathId::ZERO
            && let Some(dcid) = self.paths.handshake_destination()
        {
            let concealed = conceal(&frame);
            // RFC 9000 section 14.1: the last packet fills the datagram.
            pad = self.side == Side::Client && self.handshake.level(SpaceId::Initial).is_some();
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
            let pad = pad && !follows;
            self.close_handshake(&packet(SpaceId::Initial, pad && last), &concealed, buf);
            self.close_handshake(&packet(SpaceId::Handshake, pad), &concealed, buf);
        }
        Some(Begun {
            path: id,
            four_tuple,
            follow: follows.then(|| Plan {
                pad,
                ..Plan::new(id, limit.saturating_sub(buf.len()))
            }),
        })
    }

    /// Writes the frame, and before it the rest of a complete handshake if both fit: without a
    /// client's last flight, its server cannot read the 1-RTT packet with the application's code.
    fn close_handshake(&mut self, packet: &LevelPacket, frame: &Close, buf: &mut Vec<u8>) {
        let is_complete = self.handshake.is_complete();
        let write = |level: &mut Level, writer: &mut FrameWriter<'_>| {
            if is_complete && level.unsent() < writer.remaining() {
                level.crypto.write_frames(writer);
            }
            let frame = frame.clone().shortened_to(writer.remaining());
            let _no_room_is_fine =
                writer.try_write(&Frame::ConnectionClose(frame), Delivery::Nothing);
        };
        let built = self
            .handshake
            .build_packet(packet, buf, &mut self.outbox, write);
        if let (Some(_), Some(level)) = (built, self.handshake.level_mut(packet.space)) {
            level.space.take_packet_number();
        }
    }
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
