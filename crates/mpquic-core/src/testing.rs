//! Access to parts of the core for benchmarks and fuzzing (feature `testing`). It is no part of the
//! interface: anything here may change at any time.

use std::time::{Duration, Instant};

use bytes::Bytes;

mod connection_ids;
mod reassembly;
mod tokens;

pub use connection_ids::{LocalConnectionIds, PeerConnectionIds};
pub use reassembly::Reassembly;
pub use tokens::{ProvenAddress, TokenContent, Tokens, is_fresh};

use crate::config::TransportConfig;
use crate::crypto::{HeaderKey, PacketKey};
use crate::error::TransportError;
use crate::ids::{PathId, SpaceId};
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::delivery::{Delivery, Fate};
use crate::packet::opener;
use crate::packet::writer::FrameWriter;
use crate::recovery::PacketNumberSpace;
use crate::recovery::{AckContext, AckOutcome, Recovery};
use crate::space::{AckPolicy, AckState, Received, SentPacket};
use crate::wire::frame::Ack;
use crate::wire::frame::FrameCounts;
use crate::wire::header::{PacketHeader, ProtectedPacket};

/// The sending half of a path: packets in flight, and what acknowledgements change.
#[derive(Debug)]
pub struct Sender {
    recovery: Recovery,
    space: PacketNumberSpace,
    outcome: AckOutcome,
}

/// Numbers of packets affected by an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Packets newly acknowledged.
    pub acked: usize,
    /// Packets declared lost.
    pub lost: usize,
    /// Packets acknowledged after they had been declared lost.
    pub late: usize,
}

impl Sender {
    /// A path without sent packets.
    pub fn new(now: Instant) -> Self {
        Self {
            recovery: Recovery::new(&TransportConfig::without_policies(), now),
            space: PacketNumberSpace::new(SpaceId::Data(PathId::ZERO)),
            outcome: AckOutcome::default(),
        }
    }

    /// Sends an ack-eliciting packet; returns its number.
    pub fn send(&mut self, now: Instant, bytes: u16) -> u64 {
        let number = self.space.take_packet_number();
        let mut packet = SentPacket::new(now, bytes);
        packet.ack_eliciting = true;
        packet.in_flight = true;
        packet.deliveries.push(Delivery::Datagram);
        self.recovery
            .on_packet_sent(&mut self.space, number, packet);
        number
    }

    /// Takes an acknowledgement.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the frame acknowledges a packet that was never sent.
    pub fn on_ack(&mut self, now: Instant, ack: &Ack) -> Result<Counts, TransportError> {
        let cx = AckContext {
            now,
            peer_ack_delay_exponent: 3,
            peer_max_ack_delay: Duration::from_millis(25),
            handshake_confirmed: true,
            peer_validated_address: true,
        };
        self.recovery
            .on_ack(&mut self.space, ack, &cx, &mut self.outcome)?;
        Ok(Counts {
            acked: self.outcome.acked.len(),
            lost: self.outcome.lost.len(),
            late: self.outcome.late.len(),
        })
    }

    /// Bytes in flight.
    pub fn bytes_in_flight(&self) -> u64 {
        self.recovery.bytes_in_flight()
    }

    /// The packets that the last acknowledgement made count as lost.
    pub fn lost(&self) -> impl Iterator<Item = u64> {
        self.outcome.lost.iter().map(|(number, _)| *number)
    }
}

/// The receiving half of a path.
#[derive(Debug, Default)]
pub struct Receiver {
    received: Received,
}

impl Receiver {
    /// Takes an ack-eliciting packet; false if it is a duplicate.
    pub fn on_packet(&mut self, now: Instant, number: u64) -> bool {
        const POLICY: AckPolicy = AckPolicy {
            ack_eliciting_threshold: 2,
            max_ack_delay: Duration::from_millis(25),
            reordering_threshold: 1,
            every_ce: true,
        };
        let is_new = !self.received.is_duplicate(number);
        if is_new {
            self.received.on_packet(number, now, None, true, &POLICY);
        }
        is_new
    }

    /// True if an acknowledgement should be sent at once.
    pub fn is_ack_due(&self, now: Instant) -> bool {
        self.received.ack_state(now) == AckState::Due
    }

    /// Appends a PATH_ACK of at most `room` bytes; false if there is none to send.
    pub fn write_ack(&mut self, now: Instant, buf: &mut Vec<u8>, room: usize) -> bool {
        let limit = buf.len() + room;
        let mut counts = FrameCounts::default();
        let mut w = FrameWriter::new(buf, limit, &mut counts);
        self.received.write_ack(&mut w, now, Some(PathId(1)), 3)
    }

    /// The peer has the acknowledgement with this largest number.
    pub fn on_ack_delivered(&mut self, largest: u64) {
        self.received.on_delivery(largest, Fate::Acked);
    }
}

/// Keys of one direction.
#[derive(Clone, Copy)]
pub struct PacketKeys<'a> {
    /// For header protection.
    pub header: &'a dyn HeaderKey,
    /// For the payload.
    pub packet: &'a dyn PacketKey,
}

/// Appends a packet of path 0 with this payload; `None` if it does not fit into `limit` bytes.
pub fn seal(
    buf: &mut Vec<u8>,
    header: &PacketHeader,
    packet_number: u64,
    payload: &[u8],
    keys: PacketKeys<'_>,
    limit: usize,
) -> Option<usize> {
    let start = PacketStart {
        header,
        space: SpaceId::Data(PathId::ZERO),
        packet_number,
        largest_acked: packet_number.checked_sub(1),
        tag_length: keys.packet.tag_length(),
        limit: buf.len() + limit,
        clear_quic_bit: false,
    };
    let builder = PacketBuilder::start(buf, start)?;
    let mut counts = FrameCounts::default();
    let mut writer = builder.writer(buf, &mut counts);
    if writer.remaining() < payload.len() {
        builder.abandon(buf);
        return None;
    }
    writer.buffer().extend_from_slice(payload);
    Some(builder.finish(buf, keys.header, keys.packet, None))
}

/// Opens a packet of path 0; `None` for a forged packet or one against the rules.
pub fn open(
    mut packet: ProtectedPacket,
    expected_next: u64,
    keys: PacketKeys<'_>,
) -> Option<(u64, Bytes)> {
    let unprotected = opener::unprotect(&mut packet, keys.header, expected_next)?;
    let payload = opener::open(&mut packet, &unprotected, keys.packet, PathId::ZERO).ok()?;
    Some((unprotected.packet_number, payload))
}
