//! Events for qlog: made only while a sink is set.

use bytes::Bytes;
use quinn_proto::{ConnectionId, Side};

use super::Connection;
use crate::crypto::key_phase::OneRttKeys;
use crate::ids::PathId;
use crate::packet::arrival::{Arrival, Opened};
use crate::qlog::{DropReason, Event, Initiator, KeyTrigger, Packet, Unnumbered, UnnumberedKind};
use crate::recorder::Dropped;
use crate::wire::frame::{FrameIter, PacketType};

impl Connection {
    /// Logs what is known from the start.
    pub(super) fn log_start(&mut self, peer_cid: ConnectionId) {
        let Some(four_tuple) = self
            .paths
            .any(PathId::ZERO)
            .map(|path| path.tuple.four_tuple)
        else {
            return;
        };
        let local_cid = self.handshake.local_cid;
        self.outbox.log.event(|| Event::ConnectionStarted {
            four_tuple,
            local_cid,
            peer_cid,
        });
        self.log_tuple(PathId::ZERO);
        self.log_mtu(PathId::ZERO);
        if self.side == Side::Client {
            self.log_local_parameters();
        }
        self.log_handshake_keys(PacketType::Initial);
    }

    /// Logs what we announce; a server knows it once it has chosen the version.
    pub(super) fn log_local_parameters(&mut self) {
        if let Some(parameters) = &self.handshake.local_parameters {
            self.outbox.log.event(|| Event::ParametersSet {
                initiator: Initiator::Local,
                parameters,
            });
        }
    }

    /// Logs keys that TLS made.
    pub(super) fn log_handshake_keys(&mut self, packet_type: PacketType) {
        self.outbox.log.event(|| Event::KeysUpdated {
            packet_type,
            generation: 0,
            trigger: KeyTrigger::Tls,
        });
    }

    #[inline]
    pub(super) fn log_received(&mut self, opened: &Opened, payload: &Bytes) {
        if self.outbox.log.is_on() {
            let multipath = self.reads_multipath(opened.packet_type);
            let packet = Packet {
                path: opened.space.path(),
                packet_type: opened.packet_type,
                version: opened.version,
                packet_number: opened.packet_number,
                destination: opened.destination,
                source: None,
                size: opened.size,
                frames: FrameIter::new(payload.clone(), multipath),
            };
            self.outbox.log.event(|| Event::PacketReceived(&packet));
        }
    }

    /// Counts and logs a packet that is not processed.
    pub(super) fn drop_packet(&mut self, arrival: &Arrival, dropped: Dropped, reason: DropReason) {
        self.outbox.stats.packets_dropped += 1;
        self.log_dropped(arrival, dropped, reason);
    }

    /// Logs a packet that is not processed, though nothing is wrong with it.
    pub(super) fn log_dropped(&mut self, arrival: &Arrival, dropped: Dropped, reason: DropReason) {
        self.outbox.log.event(|| Event::PacketDropped {
            path: arrival.path,
            packet_type: dropped.packet_type,
            size: dropped.size,
            reason,
        });
    }

    /// Logs where a path runs.
    pub(super) fn log_tuple(&mut self, path: PathId) {
        if let Some(path) = self.paths.any(path) {
            path.report_tuple(&mut self.outbox);
        }
    }

    /// Logs that new 1-RTT keys are in use.
    pub(super) fn log_key_update(&mut self, trigger: KeyTrigger) {
        let keys = self.handshake.one_rtt.as_ref();
        let generation = keys.map_or(0, OneRttKeys::generation);
        self.outbox.log.event(|| Event::KeysUpdated {
            packet_type: PacketType::OneRtt,
            generation,
            trigger,
        });
    }

    /// Logs a Retry or Version Negotiation packet that the client acts on.
    pub(super) fn log_unnumbered(
        &mut self,
        source: &ConnectionId,
        size: usize,
        kind: UnnumberedKind<'_>,
    ) {
        let handshake = &self.handshake;
        let packet = Unnumbered {
            destination: &handshake.local_cid,
            source,
            original_dcid: &handshake.original_dcid,
            size,
            kind,
        };
        self.outbox.log.event(|| Event::UnnumberedReceived(&packet));
    }

    /// Logs what MTU discovery knows of an open path.
    pub(super) fn log_mtu(&mut self, id: PathId) {
        if let Some(path) = self.paths.open(id) {
            path.report_mtu(&mut self.outbox);
        }
    }

    /// Logs the measurements of an open path.
    #[inline]
    pub(super) fn log_metrics(&mut self, id: PathId) {
        if self.outbox.log.is_on()
            && let Some(path) = self.paths.open(id)
        {
            path.report_metrics(&mut self.outbox);
        }
    }
}
