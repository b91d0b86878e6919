//! Events for qlog: made only while a sink is set.

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionId, Side};

use super::Connection;
use super::ingress::{Arrival, Opened};
use super::setup::ConnectionSetup;
use crate::congestion::Controller as _;
use crate::crypto::key_phase::OneRttKeys;
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::packet::builder::PacketBuilder;
use crate::qlog::{
    ConnectionStart, DropReason, EcnValidation, Event, Initiator, KeyTrigger, Metrics, Packet,
    Sink, Unnumbered, UnnumberedKind,
};
use crate::recovery::ecn::Validation;
use crate::version::Version;
use crate::wire::frame::{FrameIter, PacketType};
use crate::wire::header::{Header, PacketHeader};

/// The sink, if any, and the time of what happens now.
#[derive(Debug)]
pub(super) struct Log {
    sink: Option<Box<dyn Sink>>,
    now: Instant,
}

impl Log {
    /// Asks the configured factory for a sink.
    pub(super) fn start(setup: &ConnectionSetup) -> Self {
        let factory = setup.transport.qlog.as_ref();
        let original = setup.local_parameters.original_destination_connection_id;
        let start = ConnectionStart {
            now: setup.now,
            side: setup.side(),
            original_dcid: original.unwrap_or(setup.initial_dcid),
        };
        Self {
            sink: factory.and_then(|factory| factory.start(&start)),
            now: setup.now,
        }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    /// Everything that is logged until the next call happens now. Datagrams of several sockets may
    /// be given a little out of order; the log is not.
    #[inline]
    pub(super) fn set_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Makes and logs an event if there is a sink.
    #[inline]
    pub(super) fn event<'a>(&mut self, event: impl FnOnce() -> Event<'a>) {
        if let Some(sink) = &mut self.sink {
            sink.on_event(self.now, &event());
        }
    }

    /// Pads a packet that is ready to be sealed, and logs it.
    #[inline]
    pub(super) fn packet_sent(
        &mut self,
        header: &PacketHeader,
        builder: &PacketBuilder,
        buf: &mut Vec<u8>,
        pad_to: Option<usize>,
        multipath: bool,
    ) {
        if self.is_on() {
            builder.pad(buf, pad_to);
            let payload = Bytes::copy_from_slice(builder.payload(buf));
            let (packet_type, version, destination, source) = described(header);
            let packet = Packet {
                path: builder.path(),
                packet_type,
                version,
                packet_number: builder.packet_number(),
                destination,
                source,
                size: builder.sealed_size(buf),
                frames: FrameIter::new(payload, multipath),
            };
            self.event(|| Event::PacketSent(&packet));
        }
    }
}

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
        self.log.event(|| Event::ConnectionStarted {
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
            self.log.event(|| Event::ParametersSet {
                initiator: Initiator::Local,
                parameters,
            });
        }
    }

    /// Logs keys that TLS made.
    pub(super) fn log_handshake_keys(&mut self, packet_type: PacketType) {
        self.log.event(|| Event::KeysUpdated {
            packet_type,
            generation: 0,
            trigger: KeyTrigger::Tls,
        });
    }

    /// Logs a 1-RTT or 0-RTT packet that is ready to be sealed.
    #[inline]
    pub(super) fn log_one_rtt(
        &mut self,
        id: PathId,
        to: Option<FourTuple>,
        builder: &PacketBuilder,
        buf: &mut Vec<u8>,
        pad_to: Option<usize>,
    ) {
        if self.log.is_on()
            && let Some(slot) = self.paths.slot(id)
            && let Some(keys) = self.handshake.sealing()
            && let Some(header) = self.one_rtt_header(slot, keys.key_phase, to)
        {
            self.log
                .packet_sent(&header, builder, buf, pad_to, self.multipath);
        }
    }

    #[inline]
    pub(super) fn log_received(&mut self, opened: &Opened, payload: &Bytes) {
        if self.log.is_on() {
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
            self.log.event(|| Event::PacketReceived(&packet));
        }
    }

    /// Counts and logs a packet that is not processed.
    pub(super) fn drop_packet(&mut self, arrival: &Arrival, dropped: Dropped, reason: DropReason) {
        self.stats.packets_dropped += 1;
        self.log_dropped(arrival, dropped, reason);
    }

    /// Logs a packet that is not processed, though nothing is wrong with it.
    pub(super) fn log_dropped(&mut self, arrival: &Arrival, dropped: Dropped, reason: DropReason) {
        self.log.event(|| Event::PacketDropped {
            path: arrival.path,
            packet_type: dropped.packet_type,
            size: dropped.size,
            reason,
        });
    }

    /// Logs where a path runs.
    pub(super) fn log_tuple(&mut self, path: PathId) {
        if let Some(four_tuple) = self.paths.any(path).map(|path| path.tuple.four_tuple) {
            self.log.event(|| Event::TupleAssigned { path, four_tuple });
        }
    }

    /// Logs that new 1-RTT keys are in use.
    pub(super) fn log_key_update(&mut self, trigger: KeyTrigger) {
        let keys = self.handshake.one_rtt.as_ref();
        let generation = keys.map_or(0, OneRttKeys::generation);
        self.log.event(|| Event::KeysUpdated {
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
        self.log.event(|| Event::UnnumberedReceived(&packet));
    }

    /// Logs what MTU discovery knows of an open path.
    pub(super) fn log_mtu(&mut self, id: PathId) {
        if self.log.is_on()
            && let Some(path) = self.paths.open(id)
        {
            let (mtu, done) = (path.mtu.mtu(), path.mtu.is_done());
            self.log.event(|| Event::MtuUpdated {
                path: id,
                mtu,
                done,
            });
        }
    }

    /// Logs the measurements of an open path.
    #[inline]
    pub(super) fn log_metrics(&mut self, id: PathId) {
        if self.log.is_on()
            && let Some(path) = self.paths.open(id)
        {
            let metrics = Metrics {
                rtt: path.recovery.rtt.snapshot(),
                pto_count: path.recovery.pto_count(),
                congestion_window: self.controller.window(id),
                bytes_in_flight: path.recovery.bytes_in_flight(),
                pacing_rate: self.controller.pacing_rate(id),
                ecn: ecn_validation(path.recovery.ecn.validation()),
            };
            self.log
                .event(|| Event::MetricsUpdated { path: id, metrics });
        }
    }
}

/// What can be told of a packet that is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dropped {
    pub(super) packet_type: Option<PacketType>,
    pub(super) size: usize,
}

impl Dropped {
    pub(super) fn new(header: &Header, size: usize) -> Self {
        let packet_type = match header {
            Header::Initial { .. } => Some(PacketType::Initial),
            Header::ZeroRtt { .. } => Some(PacketType::ZeroRtt),
            Header::Handshake { .. } => Some(PacketType::Handshake),
            Header::Short { .. } => Some(PacketType::OneRtt),
            Header::Retry { .. } | Header::VersionNegotiation { .. } => None,
        };
        Self { packet_type, size }
    }

    /// A 1-RTT packet.
    pub(super) fn one_rtt(size: usize) -> Self {
        Self {
            packet_type: Some(PacketType::OneRtt),
            size,
        }
    }

    /// A datagram that nothing is known of.
    pub(super) fn unknown(size: usize) -> Self {
        Self {
            packet_type: None,
            size,
        }
    }
}

/// The packets of a packet number space, other than 0-RTT.
pub(super) fn packet_type(space: SpaceId) -> PacketType {
    match space {
        SpaceId::Initial => PacketType::Initial,
        SpaceId::Handshake => PacketType::Handshake,
        SpaceId::Data(_) => PacketType::OneRtt,
    }
}

fn ecn_validation(validation: Validation) -> EcnValidation {
    match validation {
        Validation::Testing { .. } => EcnValidation::Testing,
        Validation::Unknown { .. } => EcnValidation::Unknown,
        Validation::Capable => EcnValidation::Capable,
        Validation::Failed => EcnValidation::Failed,
    }
}

/// Type, version, destination and source.
type Described = (
    PacketType,
    Option<Version>,
    ConnectionId,
    Option<ConnectionId>,
);

fn described(header: &PacketHeader) -> Described {
    let long = |packet_type, version, dcid, scid| (packet_type, Some(version), dcid, Some(scid));
    match *header {
        PacketHeader::Initial {
            version,
            dcid,
            scid,
            ..
        } => long(PacketType::Initial, version, dcid, scid),
        PacketHeader::Handshake {
            version,
            dcid,
            scid,
        } => long(PacketType::Handshake, version, dcid, scid),
        PacketHeader::ZeroRtt {
            version,
            dcid,
            scid,
        } => long(PacketType::ZeroRtt, version, dcid, scid),
        PacketHeader::Short { dcid, .. } => (PacketType::OneRtt, None, dcid, None),
    }
}
