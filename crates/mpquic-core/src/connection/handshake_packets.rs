//! Initial and Handshake packets, coalesced.

use std::time::Instant;

use quinn_proto::Side;

use super::Connection;
use crate::congestion::Controller as _;
use crate::handshake::{Level, LevelPacket};
use crate::ids::{PathId, SpaceId};
use crate::packet::plan::{Begun, Plan};
use crate::packet::writer::FrameWriter;
use crate::sched::DataSelection;
use crate::wire::buf::MIN_DATAGRAM;

/// A Handshake packet is not started in less room than this, bytes.
const MIN_HANDSHAKE_PACKET: usize = 64;
/// A 1-RTT packet follows the handshake's packets in a datagram with at least this many free bytes.
const ONE_RTT_ROOM: usize = 128;

impl Connection {
    /// Begins a datagram with Initial and Handshake packets, coalesced (RFC 9000 section 12.2).
    /// With `demand`, the first 1-RTT packet follows.
    pub(super) fn begin_with_handshake(
        &mut self,
        now: Instant,
        demand: bool,
        buf: &mut Vec<u8>,
    ) -> Option<Begun> {
        if let Some(four_tuple) = self.paths.shared.first_flight.next_copy(buf) {
            return Some(Begun {
                path: PathId::ZERO,
                four_tuple,
                follow: None,
            });
        }
        let wants = |level: &Level| level.wants(now);
        let initial = self.handshake.level(SpaceId::Initial).is_some_and(wants);
        let level = self.handshake.level(SpaceId::Handshake);
        let handshake = level.is_some_and(wants);
        #[cfg(feature = "testing")]
        let handshake =
            handshake || (level.is_some() && self.injected.is_wanted(SpaceId::Handshake));
        let idle = !initial && !handshake;
        let repeats = idle && self.paths.take_next_handshake_path(&mut self.outbox);
        if repeats {
            self.repeat_frames();
        }
        let handshake = handshake || repeats && self.handshake.repeat_last();
        if !initial && !handshake {
            return None;
        }
        let path = self.paths.handshake_path()?;
        let path_id = path.id;
        let four_tuple = path.four_tuple();
        let size = path.datagram_size().min(path.budget_for(four_tuple));
        // RFC 9000 section 14.1: datagrams with ack-eliciting Initial packets fill 1200 bytes.
        let eliciting = self
            .handshake
            .level(SpaceId::Initial)
            .is_some_and(Level::wants_to_elicit);
        let pad = initial && (self.side == Side::Client || eliciting);
        if size < MIN_HANDSHAKE_PACKET.max(usize::from(pad) * MIN_DATAGRAM) {
            return None;
        }
        // Once, not piece by piece.
        buf.reserve(size);
        let data =
            demand && handshake && path_id == PathId::ZERO && self.may_follow_handshake(size);
        let limit = if data { size - ONE_RTT_ROOM } else { size };
        if initial {
            let pad_to = (pad && !handshake).then_some(MIN_DATAGRAM);
            self.build_handshake(now, SpaceId::Initial, limit, pad_to, buf);
            self.paths.shared.first_flight.on_sent(buf);
        }
        if handshake {
            let pad_to = (pad && !data).then_some(MIN_DATAGRAM);
            let built = self.build_handshake(now, SpaceId::Handshake, limit, pad_to, buf);
            if built && self.side == Side::Client {
                // RFC 9001 section 4.9.1
                self.handshake
                    .discard_level(SpaceId::Initial, &mut self.outbox);
                self.follow_handshake_steps(now);
            }
        }
        let follow = data.then(|| {
            let mut plan = Plan::new(PathId::ZERO, size - buf.len());
            plan.management = true;
            plan.data = Some(DataSelection::Next);
            plan.ping = true;
            plan.pad = pad;
            plan
        });
        Some(Begun {
            path: path_id,
            four_tuple,
            follow,
        })
    }

    /// True if 1-RTT data may share a datagram with the end of the handshake. A scheduler could
    /// prefer no other path yet.
    fn may_follow_handshake(&self, size: usize) -> bool {
        let Some(path) = self.paths.open(PathId::ZERO) else {
            return false;
        };
        self.handshake.may_send_one_rtt()
            && size >= MIN_DATAGRAM
            && self.handshake.unsent() <= size - ONE_RTT_ROOM
            && path.recovery.bytes_in_flight() + size as u64
                <= self.outbox.controller.window(PathId::ZERO)
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
        let Some(dcid) = self.paths.handshake_destination() else {
            return false;
        };
        let packet = LevelPacket {
            now,
            space,
            dcid,
            limit,
            pad_to,
            multipath: self.paths.ids.is_multipath(),
        };
        let write = |level: &mut Level, writer: &mut FrameWriter<'_>| {
            level.write_frames(writer, now);
            #[cfg(feature = "testing")]
            self.injected.write(writer, space);
            level.write_probe(writer);
        };
        let built = self
            .handshake
            .build_packet(&packet, buf, &mut self.outbox, write);
        let Some(sent) = built else {
            return false;
        };
        if sent.ack_eliciting {
            self.idle.on_ack_eliciting_sent(now);
        }
        if let Some(path) = self.paths.any_mut(PathId::ZERO)
            && let Some(level) = self.handshake.level_mut(space)
        {
            path.on_handshake_packet_sent(&mut level.space, sent, &mut self.outbox);
        }
        true
    }
}
