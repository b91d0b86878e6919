//! Acknowledgements and losses: to the components that sent the frames, the controller and the
//! scheduler.

use std::time::Instant;

use super::Connection;
use super::packet::NOT_ONE_RTT;
use crate::congestion::{CongestionKind, Controller as _};
use crate::crypto::key_phase::OneRttKeys;
use crate::error::{TransportError, TransportErrorCode};
use crate::ids::{PathId, SpaceId};
use crate::outbox::packet_info;
use crate::packet::arrival::{Arrival, Opened};
use crate::packet::delivery::{Delivery, Fate};
use crate::qlog;
use crate::recovery::{AckContext, AckOutcome};
use crate::sched::SchedulerEvent;
use crate::space::SentPacket;
use crate::wire::frame::{Ack, PacketType};

/// Acknowledged bytes of one stream, gathered as long as they follow each other: the packets of a
/// train mostly do.
#[derive(Default)]
struct StreamRun(Option<Delivery>);

impl StreamRun {
    /// Adds to the run; returns what is to be routed now.
    fn push(&mut self, next: Delivery) -> Option<Delivery> {
        let Delivery::Stream {
            id,
            offset,
            length,
            fin,
        } = next
        else {
            return Some(next);
        };
        if let Some(Delivery::Stream {
            id: same,
            offset: start,
            length: gathered,
            fin: ends,
        }) = &mut self.0
            && *same == id
            && *start + u64::from(*gathered) == offset
            && let Some(sum) = gathered.checked_add(length)
        {
            *gathered = sum;
            *ends |= fin;
            return None;
        }
        self.0.replace(next)
    }

    /// What was gathered last.
    fn take(&mut self) -> Option<Delivery> {
        self.0.take()
    }
}

impl Connection {
    pub(super) fn ack_context(&self, now: Instant) -> AckContext {
        AckContext {
            now,
            peer_ack_delay_exponent: self.paths.shared.peer.ack_delay_exponent,
            peer_max_ack_delay: self.paths.peer_max_ack_delay(),
            handshake_confirmed: self.handshake.confirmed,
            peer_validated_address: !self.handshake.peer_may_be_blocked(self.side),
        }
    }

    /// ACK or PATH_ACK for `space`.
    pub(super) fn on_ack(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        space: SpaceId,
        ack: &Ack,
    ) -> Result<(), TransportError> {
        let now = arrival.now;
        let cx = self.ack_context(now);
        let mut outcome = self.outcome.take().unwrap_or_default();
        if let Some(path) = self.paths.any_mut(space.path()) {
            path.recovery.on_ack_path(arrival.path);
        }
        let result = match space {
            SpaceId::Data(id) => {
                let used = self.paths.ids.is_used(id);
                match self.paths.any_mut(id) {
                    Some(path) => path
                        .recovery
                        .on_ack(&mut path.space, ack, &cx, &mut outcome),
                    // MP-051: the path is forgotten.
                    None if used => Ok(()),
                    // MP-055
                    None => Err(TransportError::protocol_violation(
                        "PATH_ACK for an unused path",
                    )),
                }
            }
            SpaceId::Initial | SpaceId::Handshake => {
                match (
                    self.handshake.level_mut(space),
                    self.paths.any_mut(PathId::ZERO),
                ) {
                    (Some(level), Some(path)) => {
                        path.recovery
                            .on_ack(&mut level.space, ack, &cx, &mut outcome)
                    }
                    _ => Ok(()),
                }
            }
        };
        let keeps_phase = self.keeps_phase(opened, &outcome);
        self.settle(now, space, outcome);
        result.and(keeps_phase)
    }

    /// A peer that has seen packets of a new key phase must not go on with the old one (RFC 9001
    /// section 6.2).
    fn keeps_phase(&self, opened: &Opened, outcome: &AckOutcome) -> Result<(), TransportError> {
        let newest = self.handshake.one_rtt.as_ref().map(OneRttKeys::generation);
        if newest.is_none_or(|newest| opened.generation >= newest) {
            return Ok(());
        }
        let is_newer = |(_, packet): &(u64, SentPacket)| {
            packet.key_phase_generation != NOT_ONE_RTT
                && packet.key_phase_generation > opened.generation
        };
        if opened.packet_type == PacketType::OneRtt && outcome.acked.iter().any(is_newer) {
            return Err(TransportError::new(
                TransportErrorCode::KEY_UPDATE_ERROR,
                "a packet of the new key phase was acknowledged in the old one",
            ));
        }
        Ok(())
    }

    /// Tells everyone what an acknowledgement or a timeout changed.
    pub(super) fn settle(&mut self, now: Instant, space: SpaceId, mut outcome: Box<AckOutcome>) {
        let id = space.path();
        let mut run = StreamRun::default();
        for (number, packet) in outcome.acked.drain(..) {
            self.on_packet_acked(now, space, number, &packet, outcome.rtt_sample);
            self.on_content_delivered(space, &packet, &mut run);
        }
        for (number, packet) in outcome.late.drain(..) {
            self.on_packet_acked(now, space, number, &packet, None);
            self.on_content_delivered(space, &packet, &mut run);
        }
        if let Some(delivery) = run.take() {
            self.route_delivery_in(space, delivery, Fate::Acked);
        }
        let open = self.paths.open(id).is_some();
        if !outcome.lost.is_empty() && self.is_mtu_black_hole(space, &outcome) {
            // Too large for the path, and so no sign of congestion.
            outcome
                .congestion
                .retain(|event| event.kind != CongestionKind::Loss);
        }
        for (number, packet) in outcome.lost.drain(..) {
            self.on_packet_lost(now, space, number, &packet);
        }
        if let Some(summary) = outcome.summary.filter(|_| open) {
            self.outbox.controller.on_ack(id, &summary);
            self.recover(id);
            self.paths
                .review_ack_frequency(now, &self.outbox.controller);
        }
        for event in outcome.congestion.iter().filter(|_| open) {
            let before = self.outbox.controller.window(id);
            self.outbox.controller.on_congestion_event(id, event);
            if self.outbox.controller.window(id) < before
                && let Some(path) = self.paths.any_mut(id)
            {
                path.counters.congestion_events += 1;
            }
            self.outbox.on_congestion(id, event.kind);
        }
        if outcome.rtt_sample.is_some() {
            self.outbox.packet_event(|| SchedulerEvent::RttUpdated(id));
        }
        self.log_metrics(id);
        outcome.clear();
        self.outcome = Some(outcome);
    }

    /// Lets MTU discovery look at what was lost together.
    fn is_mtu_black_hole(&mut self, space: SpaceId, outcome: &AckOutcome) -> bool {
        let SpaceId::Data(id) = space else {
            return false;
        };
        let Some(path) = self.paths.open_mut(id) else {
            return false;
        };
        let lost = outcome.lost.iter().filter(|(_, packet)| !packet.mtu_probe);
        let black_hole = path
            .mtu
            .on_lost(lost.map(|(number, packet)| (*number, packet.bytes)));
        if black_hole {
            self.outbox.controller.on_mtu_update(id, path.mtu.mtu());
            tracing::debug!(path = %id, "the path's MTU fell");
            self.log_mtu(id);
            self.drop_oversized_datagrams();
        }
        black_hole
    }

    fn on_packet_acked(
        &mut self,
        now: Instant,
        space: SpaceId,
        number: u64,
        packet: &SentPacket,
        sample: Option<std::time::Duration>,
    ) {
        if let SpaceId::Data(id) = space {
            let open = self.paths.open(id).is_some();
            if let Some(path) = self.paths.any_mut(id) {
                path.counters.bytes_acked += u64::from(packet.bytes);
                if !packet.mtu_probe {
                    path.mtu.on_acked(number, packet.bytes);
                } else if path.mtu.on_probe_acked(now, packet.bytes) && open {
                    self.outbox.controller.on_mtu_update(id, path.mtu.mtu());
                    self.log_mtu(id);
                }
            }
            if let Some(keys) = &mut self.handshake.one_rtt {
                let paths = &self.paths;
                keys.on_acked(packet.key_phase_generation, now, || paths.largest_pto());
            }
            self.outbox
                .packet_event(|| SchedulerEvent::Acked(packet_info(id, number, packet), sample));
        }
    }

    /// Tells the owners of a packet's frames that they arrived, except for stream bytes that more
    /// may follow.
    fn on_content_delivered(&mut self, space: SpaceId, packet: &SentPacket, run: &mut StreamRun) {
        for delivery in &packet.deliveries {
            if let Some(delivery) = run.push(*delivery) {
                self.route_delivery_in(space, delivery, Fate::Acked);
            }
        }
    }

    fn on_packet_lost(&mut self, now: Instant, space: SpaceId, number: u64, packet: &SentPacket) {
        self.outbox.log.event(|| qlog::Event::PacketLost {
            space,
            packet_number: number,
        });
        if let Some(path) = self.paths.any_mut(space.path()) {
            path.counters.bytes_lost += u64::from(packet.bytes);
            path.counters.packets_lost += 1;
            if packet.mtu_probe {
                path.mtu.on_probe_lost(now, packet.bytes);
                self.log_mtu(space.path());
            }
        }
        if let SpaceId::Data(id) = space {
            self.outbox
                .packet_event(|| SchedulerEvent::Lost(packet_info(id, number, packet)));
        }
        // What was sent again on another path is in that path's care now.
        if !packet.reinjected {
            for delivery in &packet.deliveries {
                self.route_delivery_in(space, *delivery, Fate::Lost);
            }
        }
    }

    /// Routes the fate of a frame of any packet.
    fn route_delivery_in(&mut self, space: SpaceId, delivery: Delivery, fate: Fate) {
        match (delivery, space) {
            (Delivery::Ack { largest, .. }, SpaceId::Initial | SpaceId::Handshake) => {
                if let Some(level) = self.handshake.level_mut(space) {
                    level.space.received.on_delivery(largest, fate);
                }
            }
            (Delivery::Crypto { .. }, _) => {
                self.handshake.on_crypto_delivery(space, delivery, fate);
            }
            _ => self.route_delivery(delivery, fate),
        }
    }

    /// Routes the fate of a frame of a 1-RTT packet.
    pub(super) fn route_delivery(&mut self, delivery: Delivery, fate: Fate) {
        match delivery {
            Delivery::Ack { path, largest } => {
                if let Some(path) = self.paths.any_mut(path) {
                    path.space.received.on_delivery(largest, fate);
                }
            }
            Delivery::Crypto { .. } => {
                let space = SpaceId::Data(PathId::ZERO);
                self.handshake.on_crypto_delivery(space, delivery, fate);
            }
            Delivery::Stream { .. }
            | Delivery::ResetStream(_)
            | Delivery::ResetStreamAt { .. }
            | Delivery::StopSending(_)
            | Delivery::MaxData
            | Delivery::MaxStreamData(_)
            | Delivery::MaxStreams(_)
            | Delivery::DataBlocked
            | Delivery::StreamDataBlocked(_)
            | Delivery::StreamsBlocked(_) => self.streams.on_delivery(delivery, fate),
            Delivery::HandshakeDone => self.handshake.done_pending |= fate == Fate::Lost,
            Delivery::AckFrequency(sequence) => self
                .paths
                .shared
                .ack_frequencies
                .on_delivery(sequence, fate),
            Delivery::NewToken => {
                if fate == Fate::Lost && self.handshake.new_token.is_none() {
                    self.offer_token();
                }
            }
            Delivery::NewConnectionId { .. }
            | Delivery::RetireConnectionId { .. }
            | Delivery::PathAbandon(_)
            | Delivery::PathStatus { .. }
            | Delivery::MaxPathId(_)
            | Delivery::PathsBlocked(_)
            | Delivery::PathCidsBlocked { .. } => self.paths.on_delivery(delivery, fate),
            Delivery::Datagram | Delivery::Nothing => {}
        }
    }
}
