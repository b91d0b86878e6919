//! Records sent packets and datagrams on their path.

use super::Path;
use super::set::Paths;
use crate::congestion::{Controller as _, Sent};
use crate::ids::{FourTuple, PathId};
use crate::outbox::{Outbox, packet_info};
use crate::recovery::PacketNumberSpace;
use crate::sched::SchedulerEvent;
use crate::space::SentPacket;

impl Path {
    /// Records an Initial or Handshake packet that was sent on path 0.
    pub(crate) fn on_handshake_packet_sent(
        &mut self,
        space: &mut PacketNumberSpace,
        packet: SentPacket,
        outbox: &mut Outbox,
    ) {
        let mut sent = Sent {
            now: packet.time_sent,
            packet_number: space.take_packet_number(),
            bytes: packet.bytes.into(),
            in_flight: 0,
        };
        let in_flight = packet.in_flight;
        self.recovery
            .on_packet_sent(space, sent.packet_number, packet);
        self.counters.packets_sent += 1;
        if in_flight {
            sent.in_flight = self.recovery.bytes_in_flight();
            outbox.controller.on_packet_sent(self.id, &sent);
        }
    }

    /// Records a 1-RTT or 0-RTT packet that was sent.
    #[inline]
    pub(crate) fn on_packet_sent(&mut self, packet: SentPacket, outbox: &mut Outbox) {
        let (now, bytes) = (packet.time_sent, packet.bytes);
        let (in_flight, ack_eliciting) = (packet.in_flight, packet.ack_eliciting);
        let packet_number = self.space.take_packet_number();
        outbox.packet_event(|| SchedulerEvent::Sent(packet_info(self.id, packet_number, &packet)));
        if packet.mtu_probe {
            self.mtu.on_probe_sent(bytes);
        }
        self.recovery
            .on_packet_sent(&mut self.space, packet_number, packet);
        self.counters.packets_sent += 1;
        if ack_eliciting {
            self.last_activity = now;
        }
        if in_flight {
            self.recovery.pacer.on_sent(bytes.into());
            let sent = Sent {
                now,
                packet_number,
                bytes: bytes.into(),
                in_flight: self.recovery.bytes_in_flight(),
            };
            outbox.controller.on_packet_sent(self.id, &sent);
        }
    }
}

impl Paths {
    /// Datagrams of a path were sent to these addresses.
    pub(crate) fn on_datagrams_sent(&mut self, id: PathId, to: FourTuple, bytes: usize) {
        if let Some(path) = self.any_mut(id) {
            path.on_datagram_sent(to, bytes);
        }
    }
}
