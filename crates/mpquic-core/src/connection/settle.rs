//! Acknowledgements and losses: passed to the components that sent the frames, to the controller
//! and to the scheduler.

use std::time::Instant;

use super::Connection;
use super::datagrams::drop_oversized;
use crate::congestion::Controller as _;
use crate::error::{Fault, TransportError};
use crate::ids::{PathId, SpaceId};
use crate::outbox::packet_info;
use crate::packet::arrival::{Arrival, Opened};
use crate::packet::delivery::{Delivery, Fate, StreamRun};
use crate::qlog;
use crate::recovery::{AckContext, AckOutcome};
use crate::sched::SchedulerEvent;
use crate::space::SentPacket;
use crate::stream::send_window::PathsNow;
use crate::wire::frame::Ack;

impl Connection {
    pub(super) fn ack_context(&self, now: Instant) -> AckContext {
        AckContext {
            now,
            peer_ack_delay_exponent: self.paths.shared.peer.ack_delay_exponent,
            peer_max_ack_delay: self.paths.peer_max_ack_delay(),
            handshake_confirmed: self.handshake.is_confirmed(),
            peer_validated_address: !self.handshake.peer_may_be_blocked(),
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
        if let SpaceId::Data(id) = space {
            self.paths.ids.check(id)?;
        }
        let now = arrival.now;
        let cx = self.ack_context(now);
        let mut outcome = self.outcome.take().unwrap_or_default();
        if let Some(path) = self.paths.any_mut(space.path()) {
            path.recovery
                .on_ack_path(arrival.path, arrival.path == space.path());
        }
        let result = match space {
            SpaceId::Data(id) => {
                let used = self.paths.ids.is_used(id);
                match self.paths.any_mut(id) {
                    Some(path) => path
                        .recovery
                        .on_ack(&mut path.space, ack, &cx, &mut outcome),
                    // MP-051: the path is discarded.
                    None if used => Ok(()),
                    // MP-055
                    None => Err(Fault::AckOfUnusedPath.into()),
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
        let keeps_phase = self.handshake.check_key_phase(opened, &outcome.acked);
        self.settle(now, space, outcome);
        result.and(keeps_phase)
    }

    /// Passes the acknowledged and lost packets of an acknowledgement or a timeout to the owners of
    /// their frames, to the path, to the controller and to the scheduler.
    pub(super) fn settle(&mut self, now: Instant, space: SpaceId, mut outcome: Box<AckOutcome>) {
        let id = space.path();
        let is_open = self.paths.open(id).is_some();
        let mut run = StreamRun::default();
        for (number, packet) in &outcome.acked {
            self.on_packet_acked(now, space, *number, packet, &mut run);
            if let SpaceId::Data(_) = space {
                self.outbox.packet_event(|| {
                    SchedulerEvent::Acked(packet_info(id, *number, packet), outcome.rtt_sample)
                });
            }
        }
        for (number, packet) in outcome.late.drain(..) {
            self.on_packet_acked(now, space, number, &packet, &mut run);
            if let SpaceId::Data(_) = space {
                self.outbox
                    .packet_event(|| SchedulerEvent::Acked(packet_info(id, number, &packet), None));
            }
        }
        if let Some(delivery) = run.take() {
            self.on_delivery(space, delivery, Fate::Acked);
        }
        if !outcome.lost.is_empty()
            && let SpaceId::Data(id) = space
            && let Some(path) = self.paths.open_mut(id)
            && path.find_mtu_black_hole(&mut outcome, &mut self.outbox)
        {
            drop_oversized(&mut self.datagrams, &self.paths);
        }
        for (number, packet) in outcome.lost.drain(..) {
            self.on_packet_lost(now, space, number, &packet);
        }
        if let Some(summary) = outcome.summary.filter(|_| is_open) {
            self.outbox.controller.on_ack(id, &summary);
            self.paths
                .review_ack_frequency(&summary, &self.outbox.controller);
        }
        let (paths, controller) = (&self.paths, &self.outbox.controller);
        let now_of_paths = PathsNow {
            largest_rtt: || paths.largest_rtt(),
            congestion_windows: || paths.iter().map(|path| controller.window(path.id)).sum(),
            rate: || paths.iter().map(|path| path.rate(controller)).sum(),
        };
        self.streams.on_acked(now, &now_of_paths);
        if !outcome.acked.is_empty() {
            self.paths.on_answered(id, &mut self.outbox);
        }
        if let Some(path) = self.paths.open_mut(id) {
            path.on_congestion(&outcome, &mut self.outbox);
            if let Some(summary) = &outcome.summary {
                path.observe(summary, &mut self.outbox);
            }
            if outcome.rtt_sample.is_some() {
                self.outbox.packet_event(|| SchedulerEvent::RttUpdated(id));
            }
            path.report_metrics(&mut self.outbox);
        }
        outcome.clear();
        self.outcome = Some(outcome);
    }

    fn on_packet_acked(
        &mut self,
        now: Instant,
        space: SpaceId,
        number: u64,
        packet: &SentPacket,
        run: &mut StreamRun,
    ) {
        if let SpaceId::Data(id) = space {
            let is_open = self.paths.open(id).is_some();
            if let Some(path) = self.paths.any_mut(id) {
                path.on_packet_acked(now, number, packet, is_open, &mut self.outbox);
            }
            let generation = packet.key_phase_generation;
            let paths = &self.paths;
            self.handshake
                .on_one_rtt_acked(generation, now, || paths.largest_pto());
        }
        // Consecutive stream bytes are reported as one run.
        for delivery in &packet.deliveries {
            if let Some(delivery) = run.push(*delivery) {
                self.on_delivery(space, delivery, Fate::Acked);
            }
        }
    }

    fn on_packet_lost(&mut self, now: Instant, space: SpaceId, number: u64, packet: &SentPacket) {
        self.outbox.log.event(|| qlog::Event::PacketLost {
            space,
            packet_number: number,
        });
        let id = space.path();
        if let Some(path) = self.paths.any_mut(id) {
            path.on_packet_lost(now, packet, &mut self.outbox);
        }
        if let SpaceId::Data(id) = space {
            self.outbox
                .packet_event(|| SchedulerEvent::Lost(packet_info(id, number, packet)));
        }
        // The owners of a reinjected packet's frames have sent them again already
        // (`path/failover`).
        if !packet.reinjected {
            for delivery in &packet.deliveries {
                self.on_delivery(space, *delivery, Fate::Lost);
            }
        }
    }

    /// Reports frames of suspect and abandoned paths as lost, so that their owners send them again.
    pub(super) fn repeat_frames(&mut self) {
        let mut repeated = self.outbox.take_repeated();
        for delivery in repeated.drain(..) {
            self.on_delivery(SpaceId::Data(PathId::ZERO), delivery, Fate::Lost);
        }
        self.outbox.set_repeated(repeated);
    }

    /// Tells the owner of a frame that it was acknowledged or lost.
    pub(super) fn on_delivery(&mut self, space: SpaceId, delivery: Delivery, fate: Fate) {
        match delivery {
            Delivery::Nothing | Delivery::Datagram => {}
            Delivery::Stream(delivery) => self.streams.on_delivery(delivery, fate),
            Delivery::Ack { path, largest } => {
                let received = match space {
                    SpaceId::Data(_) => {
                        let path = self.paths.any_mut(path);
                        path.map(|path| &mut path.space.received)
                    }
                    SpaceId::Initial | SpaceId::Handshake => {
                        let level = self.handshake.level_mut(space);
                        level.map(|level| &mut level.space.received)
                    }
                };
                if let Some(received) = received {
                    received.on_delivery(largest, fate);
                }
            }
            Delivery::Crypto(delivery) => {
                self.handshake.on_crypto_delivery(space, delivery, fate);
            }
            Delivery::Handshake(delivery) => {
                if self.handshake.on_delivery(delivery, fate) {
                    let validated = self.paths.validated_addresses();
                    self.handshake.offer_token(validated, &mut self.random);
                }
            }
            Delivery::Path(delivery) => self.paths.on_delivery(delivery, fate),
            Delivery::PathLimit(delivery) => self.paths.ids.on_delivery(delivery, fate),
            Delivery::AckFrequency(sequence) => {
                let frequencies = &mut self.paths.shared.ack_frequencies;
                frequencies.on_delivery(sequence, fate);
            }
            Delivery::AlternativeAddress(sequence) => {
                let addresses = &mut self.paths.shared.server_addresses;
                addresses.on_delivery(sequence, fate);
            }
        }
    }
}
