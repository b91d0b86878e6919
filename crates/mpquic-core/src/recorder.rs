//! [`Recorder`]: makes events for qlog, for connections with a sink.

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::ConnectionId;

use crate::config::TransportConfig;
use crate::ids::SpaceId;
use crate::packet::arrival::Opened;
use crate::packet::builder::PacketBuilder;
use crate::qlog::{ConnectionStart, Event, KeyTrigger, Packet, Sink};
use crate::version::Version;
use crate::wire::frame::{FrameIter, PacketType};
use crate::wire::header::{Header, PacketHeader};

/// The sink, and the time of the current call.
#[derive(Debug)]
pub(crate) struct Recorder {
    sink: Option<Box<dyn Sink>>,
    now: Instant,
}

impl Recorder {
    /// Asks the configured factory for a sink.
    pub(crate) fn start(config: &TransportConfig, start: &ConnectionStart) -> Self {
        let factory = config.qlog.as_ref();
        Self {
            sink: factory.and_then(|factory| factory.start(start)),
            now: start.now,
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    /// Sets the time of all events until the next call. Datagrams of several sockets may come
    /// slightly out of order, but the log must not go back in time.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Makes and logs an event for the sink.
    #[inline]
    pub(crate) fn event<'a>(&mut self, event: impl FnOnce() -> Event<'a>) {
        if let Some(sink) = &mut self.sink {
            sink.on_event(self.now, &event());
        }
    }

    /// Logs keys that TLS made.
    pub(crate) fn handshake_keys(&mut self, packet_type: PacketType) {
        self.keys_updated(packet_type, 0, KeyTrigger::Tls);
    }

    /// Logs that keys are in use.
    pub(crate) fn keys_updated(
        &mut self,
        packet_type: PacketType,
        generation: u32,
        trigger: KeyTrigger,
    ) {
        self.event(|| Event::KeysUpdated {
            packet_type,
            generation,
            trigger,
        });
    }

    /// Logs that keys are gone.
    pub(crate) fn keys_discarded(&mut self, packet_type: PacketType) {
        self.event(|| Event::KeysDiscarded(packet_type));
    }

    /// Logs an opened packet. `multipath` allows the frames of RFC 10069.
    #[inline]
    pub(crate) fn packet_received(&mut self, opened: &Opened, payload: &Bytes, multipath: bool) {
        if self.is_on() {
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
            self.event(|| Event::PacketReceived(&packet));
        }
    }

    /// Pads a packet before sealing, and logs it.
    #[inline]
    pub(crate) fn packet_sent(
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

/// A dropped packet, as far as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropped {
    pub(crate) packet_type: Option<PacketType>,
    pub(crate) size: usize,
}

impl Dropped {
    pub(crate) fn new(header: &Header, size: usize) -> Self {
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
    pub(crate) fn one_rtt(size: usize) -> Self {
        Self {
            packet_type: Some(PacketType::OneRtt),
            size,
        }
    }

    /// A datagram of which nothing is known.
    pub(crate) fn unknown(size: usize) -> Self {
        Self {
            packet_type: None,
            size,
        }
    }
}

/// The packets of a packet number space, other than 0-RTT.
pub(crate) fn packet_type(space: SpaceId) -> PacketType {
    match space {
        SpaceId::Initial => PacketType::Initial,
        SpaceId::Handshake => PacketType::Handshake,
        SpaceId::Data(_) => PacketType::OneRtt,
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
