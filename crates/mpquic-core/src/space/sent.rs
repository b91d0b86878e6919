//! Packets sent and not yet resolved.

use std::collections::VecDeque;
use std::time::Instant;

use crate::packet::writer::Deliveries;
use crate::recovery::delivery_rate::SendState;

/// A packet under way.
#[derive(Debug, Clone)]
pub(crate) struct SentPacket {
    /// When it left.
    pub(crate) time_sent: Instant,
    /// Its size, bytes of UDP payload.
    pub(crate) bytes: u16,
    /// The peer must acknowledge it.
    pub(crate) ack_eliciting: bool,
    /// It counts towards bytes in flight.
    pub(crate) in_flight: bool,
    /// It was marked ECT(0).
    pub(crate) ecn_marked: bool,
    /// It probed the path's MTU: its loss is no sign of congestion (RFC 9000 section 14.4).
    pub(crate) mtu_probe: bool,
    /// Its content was sent again on another path already.
    pub(crate) reinjected: bool,
    /// Counts key updates: which keys sealed it.
    pub(crate) key_phase_generation: u32,
    /// The scheduler's tag, 0 if it was not asked.
    pub(crate) tag: u64,
    /// Who hears of its fate.
    pub(crate) deliveries: Deliveries,
    /// Filled in by [`Recovery::on_packet_sent`](crate::recovery::Recovery::on_packet_sent).
    pub(crate) rate: SendState,
}

impl SentPacket {
    /// A packet of `bytes` with no frames worth mentioning; callers set what differs.
    pub(crate) fn new(time_sent: Instant, bytes: u16) -> Self {
        Self {
            time_sent,
            bytes,
            ack_eliciting: false,
            in_flight: false,
            ecn_marked: false,
            mtu_probe: false,
            reinjected: false,
            key_phase_generation: 0,
            tag: 0,
            deliveries: Deliveries::new(),
            rate: SendState::unset(time_sent),
        }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    number: u64,
    content: SlotContent,
}

#[derive(Debug)]
enum SlotContent {
    Sent(SentPacket),
    Acked,
    Skipped,
}

/// Packets of one space that are neither acknowledged nor lost, by number.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    slots: VecDeque<Slot>,
    bytes_in_flight: u64,
    ack_eliciting: usize,
}

impl SentPackets {
    /// Adds a packet; numbers must rise.
    pub(crate) fn insert(&mut self, _number: u64, _packet: SentPacket) {
        todo!()
    }

    /// Packets under way, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &SentPacket)> {
        self.slots.iter().filter_map(|slot| match &slot.content {
            SlotContent::Sent(packet) => Some((slot.number, packet)),
            SlotContent::Acked | SlotContent::Skipped => None,
        })
    }

    /// Packets under way, oldest first. Size and the in-flight flag must not be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut SentPacket)> {
        self.slots
            .iter_mut()
            .filter_map(|slot| match &mut slot.content {
                SlotContent::Sent(packet) => Some((slot.number, packet)),
                SlotContent::Acked | SlotContent::Skipped => None,
            })
    }

    /// Bytes of packets that count as in flight.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Number of ack-eliciting packets under way.
    pub(crate) fn ack_eliciting(&self) -> usize {
        self.ack_eliciting
    }

    /// Takes all packets out, oldest first. The path's count of bytes in flight does not follow:
    /// use [`Recovery::discard_space`](crate::recovery::Recovery::discard_space).
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, SentPacket)> {
        self.bytes_in_flight = 0;
        self.ack_eliciting = 0;
        self.slots.drain(..).filter_map(|slot| match slot.content {
            SlotContent::Sent(packet) => Some((slot.number, packet)),
            SlotContent::Acked | SlotContent::Skipped => None,
        })
    }
}
