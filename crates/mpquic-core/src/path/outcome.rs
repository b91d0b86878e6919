//! Effects of acknowledged and lost packets on a path.

use std::time::Instant;

use super::Path;
use super::set::Paths;
use crate::congestion::{CongestionKind, Controller as _};
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::recovery::{AckOutcome, PacketNumberSpace};
use crate::space::SentPacket;

impl Path {
    /// Stops waiting for acknowledgements on the path; returns the packets that were in flight.
    pub(crate) fn forget_sent(&mut self) -> Vec<(u64, SentPacket)> {
        let mut forgotten = Vec::new();
        self.recovery.discard_space(&mut self.space, &mut forgotten);
        forgotten
    }

    /// A 1-RTT packet was acknowledged; the path may have been abandoned meanwhile.
    pub(crate) fn on_packet_acked(
        &mut self,
        now: Instant,
        number: u64,
        packet: &SentPacket,
        is_open: bool,
        outbox: &mut Outbox,
    ) {
        self.counters.bytes_acked += u64::from(packet.bytes);
        if !packet.mtu_probe {
            self.mtu.on_acked(number, packet.bytes);
        } else if self.mtu.on_probe_acked(now, packet.bytes) && is_open {
            outbox.controller.on_mtu_update(self.id, self.mtu.mtu());
            self.report_mtu(outbox);
        }
    }

    /// A packet sent on the path was declared lost.
    pub(crate) fn on_packet_lost(
        &mut self,
        now: Instant,
        packet: &SentPacket,
        outbox: &mut Outbox,
    ) {
        self.counters.bytes_lost += u64::from(packet.bytes);
        self.counters.packets_lost += 1;
        if packet.mtu_probe {
            self.mtu.on_probe_lost(now, packet.bytes);
            self.report_mtu(outbox);
        }
    }

    /// Passes 1-RTT packets that were lost together to MTU discovery. Returns true if the packets
    /// were too large for the path; such losses are no sign of congestion.
    pub(crate) fn find_mtu_black_hole(
        &mut self,
        outcome: &mut AckOutcome,
        outbox: &mut Outbox,
    ) -> bool {
        let lost = outcome.lost.iter().filter(|(_, packet)| !packet.mtu_probe);
        let black_hole = self
            .mtu
            .on_lost(lost.map(|(number, packet)| (*number, packet.bytes)));
        if black_hole {
            outbox.controller.on_mtu_update(self.id, self.mtu.mtu());
            tracing::debug!(path = %self.id, "the path's MTU fell");
            self.report_mtu(outbox);
            outcome
                .congestion
                .retain(|event| event.kind != CongestionKind::Loss);
        }
        black_hole
    }

    /// Tells the controller about congestion on an open path.
    pub(crate) fn on_congestion(&mut self, outcome: &AckOutcome, outbox: &mut Outbox) {
        for event in &outcome.congestion {
            let controller = &mut outbox.controller;
            let window = controller.window(self.id);
            let was_recovering = controller.in_recovery(self.id);
            controller.on_congestion_event(self.id, event);
            // Rate-based controllers lower their window only at the next acknowledgement.
            let recovers = controller.in_recovery(self.id) && !was_recovering;
            if recovers || controller.window(self.id) < window {
                self.counters.congestion_events += 1;
            }
            outbox.on_congestion(self.id, event.kind);
        }
    }
}

impl Paths {
    /// Stops waiting for acknowledgements in a packet number space of the handshake.
    pub(crate) fn forget_handshake_space(&mut self, space: &mut PacketNumberSpace) {
        if let Some(path) = self.any_mut(PathId::ZERO) {
            path.recovery.discard_space(space, &mut Vec::new());
        }
    }

    /// Stops waiting for acknowledgements on all paths.
    pub(crate) fn forget_sent(&mut self) {
        let paths = self.slots_mut().iter_mut();
        for path in paths.filter_map(|slot| slot.path.as_deref_mut()) {
            path.forget_sent();
        }
    }
}
