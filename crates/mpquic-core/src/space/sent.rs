//! Packets sent and not yet resolved.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Instant;

use crate::packet::delivery::{Delivery, StreamDelivery};
use crate::packet::writer::Deliveries;

/// A packet that is neither acknowledged nor lost.
#[derive(Debug, Clone)]
pub(crate) struct SentPacket {
    /// When it was sent.
    pub(crate) time_sent: Instant,
    /// Its size, bytes of UDP payload.
    pub(crate) bytes: u16,
    /// The peer must acknowledge it.
    pub(crate) ack_eliciting: bool,
    /// The packet counts towards bytes in flight.
    pub(crate) in_flight: bool,
    /// The packet was marked ECT(0).
    pub(crate) ecn_marked: bool,
    /// The packet probed the path's MTU: its loss is no sign of congestion (RFC 9000 section 14.4).
    pub(crate) mtu_probe: bool,
    /// Its content was sent again on another path already.
    pub(crate) reinjected: bool,
    /// Number of key updates before it was sealed.
    pub(crate) key_phase_generation: u32,
    /// The scheduler's tag, 0 if it was not asked.
    pub(crate) tag: u64,
    /// Its frames, with their owners.
    pub(crate) deliveries: Deliveries,
    /// Filled in by recovery when the packet is sent.
    pub(crate) rate: SendState,
}

impl SentPacket {
    /// A packet of `bytes` that elicits no acknowledgement and has no frames to track; callers set
    /// what differs.
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

    /// Bytes of memory for deliveries that do not fit into the packet itself.
    #[inline]
    pub(super) fn spilled(&self) -> usize {
        if self.deliveries.spilled() {
            self.deliveries.capacity() * size_of::<Delivery>()
        } else {
            0
        }
    }

    /// True for an ACK-only packet, which the peer may never acknowledge.
    fn is_bare_ack(&self) -> bool {
        !self.ack_eliciting && !self.in_flight
    }

    fn has_stream_data(&self) -> bool {
        let is_data =
            |delivery: &Delivery| matches!(delivery, Delivery::Stream(StreamDelivery::Data { .. }));
        self.deliveries.iter().any(is_data)
    }
}

/// The state of sending at the departure of a packet, for delivery rate samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendState {
    /// Bytes delivered on the path when the packet was sent.
    pub(crate) delivered: u64,
    /// The time of that delivery.
    pub(crate) delivered_time: Instant,
    /// When the flight the packet belongs to started.
    pub(crate) first_sent_time: Instant,
    /// The sender had run out of data.
    pub(crate) app_limited: bool,
}

impl SendState {
    /// A placeholder, until recovery sets the values.
    pub(crate) fn unset(now: Instant) -> Self {
        Self {
            delivered: 0,
            delivered_time: now,
            first_sent_time: now,
            app_limited: false,
        }
    }
}

/// ACK-only packets above this number are forgotten, oldest first, when they outnumber all other
/// packets: a peer that never acknowledges them must not make the ring grow.
const MANY_BARE_ACKS: usize = 1024;
/// Number of ACK-only packets that are kept.
const KEPT_BARE_ACKS: usize = 256;
/// Up to this many skipped numbers in a row get slots of their own, so that the index of a number
/// can be calculated.
const MAX_FILLED_GAP: u64 = 8;

#[derive(Debug)]
struct Slot {
    number: u64,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    Sent(SentPacket),
    Acked,
    /// The number was never sent.
    Skipped,
}

impl Slot {
    fn packet(&self) -> Option<(u64, &SentPacket)> {
        match &self.state {
            SlotState::Sent(packet) => Some((self.number, packet)),
            SlotState::Acked | SlotState::Skipped => None,
        }
    }
}

/// Packets of one space that are neither acknowledged nor lost, by number.
///
/// Lost packets are removed at the front, so acknowledged slots remain only within the reordering
/// threshold below the largest acknowledged number, and skipping them is cheap.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    slots: VecDeque<Slot>,
    bytes_in_flight: u64,
    ack_eliciting: usize,
    bare_acks: usize,
    with_stream_data: usize,
    /// Bytes of memory for deliveries that do not fit into their packets.
    spilled: usize,
}

impl SentPackets {
    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.spilled
    }

    /// Adds a packet; numbers must rise.
    pub(crate) fn insert(&mut self, number: u64, packet: SentPacket) {
        if let Some(last) = self.slots.back() {
            debug_assert!(last.number < number, "packet numbers must rise");
            let gap = last.number + 1..number;
            if !gap.is_empty() && gap.end - gap.start <= MAX_FILLED_GAP {
                self.slots.extend(gap.map(|number| Slot {
                    number,
                    state: SlotState::Skipped,
                }));
            }
        }
        self.count(&packet, true);
        let is_bare_ack = packet.is_bare_ack();
        if self.slots.capacity() == 0 {
            // Many connections never have more packets in flight.
            self.slots.reserve_exact(2);
        }
        self.slots.push_back(Slot {
            number,
            state: SlotState::Sent(packet),
        });
        if is_bare_ack && self.bare_acks > MANY_BARE_ACKS.max(self.slots.len() / 2) {
            self.forget_bare_acks();
        }
    }

    fn forget_bare_acks(&mut self) {
        let mut excess = self.bare_acks.saturating_sub(KEPT_BARE_ACKS);
        self.bare_acks -= excess;
        let spilled = &mut self.spilled;
        self.slots.retain(|slot| {
            let forget = excess > 0
                && slot
                    .packet()
                    .is_some_and(|(_, packet)| packet.is_bare_ack());
            excess -= usize::from(forget);
            if forget {
                *spilled -= slot.packet().map_or(0, |(_, packet)| packet.spilled());
            }
            !forget
        });
    }

    /// Adds a packet to the sums, or removes it.
    fn count(&mut self, packet: &SentPacket, add: bool) {
        let bytes = u64::from(packet.bytes) * u64::from(packet.in_flight);
        let ack_eliciting = usize::from(packet.ack_eliciting);
        let bare_ack = usize::from(packet.is_bare_ack());
        let with_stream_data = usize::from(packet.has_stream_data());
        if add {
            self.bytes_in_flight += bytes;
            self.ack_eliciting += ack_eliciting;
            self.bare_acks += bare_ack;
            self.with_stream_data += with_stream_data;
            self.spilled += packet.spilled();
        } else {
            self.bytes_in_flight -= bytes;
            self.ack_eliciting -= ack_eliciting;
            self.bare_acks -= bare_ack;
            self.with_stream_data -= with_stream_data;
            self.spilled -= packet.spilled();
        }
    }

    /// Removes and returns the packets with these numbers. Numbers that are not in flight cost
    /// nothing.
    pub(crate) fn acknowledge(
        &mut self,
        numbers: &RangeInclusive<u64>,
        acked: &mut Vec<(u64, SentPacket)>,
    ) {
        let before = acked.len();
        if acked.capacity() == 0 {
            acked.reserve_exact(1);
        }
        let first = self.position(*numbers.start());
        for slot in self.slots.range_mut(first..) {
            if slot.number > *numbers.end() {
                break;
            }
            if matches!(slot.state, SlotState::Sent(_))
                && let SlotState::Sent(packet) =
                    std::mem::replace(&mut slot.state, SlotState::Acked)
            {
                acked.push((slot.number, packet));
            }
        }
        for (_, packet) in &acked[before..] {
            self.count(packet, false);
        }
    }

    /// Index of the first slot with this number or a larger one.
    fn position(&self, number: u64) -> usize {
        let distance = self
            .slots
            .front()
            .and_then(|front| number.checked_sub(front.number));
        let Some(distance) = distance else {
            return 0;
        };
        let guess = usize::try_from(distance).unwrap_or(usize::MAX);
        match self.slots.get(guess) {
            Some(slot) if slot.number == number => guess,
            _ => self.slots.partition_point(|slot| slot.number < number),
        }
    }

    /// Frees empty slots at the front; true if one of their packets had been acknowledged.
    pub(crate) fn pop_resolved(&mut self) -> bool {
        let mut any_acked = false;
        while let Some(slot) = self.slots.front() {
            match slot.state {
                SlotState::Sent(_) => break,
                SlotState::Acked => any_acked = true,
                SlotState::Skipped => {}
            }
            self.slots.pop_front();
        }
        any_acked
    }

    /// The oldest packet, after [`Self::pop_resolved`] has freed the slots before it.
    pub(crate) fn front(&self) -> Option<(u64, &SentPacket)> {
        self.slots.front().and_then(Slot::packet)
    }

    /// Removes and returns the packet that [`Self::front`] shows.
    pub(crate) fn pop_front(&mut self) -> Option<(u64, SentPacket)> {
        self.front()?;
        let slot = self.slots.pop_front()?;
        let SlotState::Sent(packet) = slot.state else {
            return None;
        };
        self.count(&packet, false);
        Some((slot.number, packet))
    }

    /// A lower bound of the packet numbers.
    pub(crate) fn first_number(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.number)
    }

    /// Packets, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &SentPacket)> {
        self.slots.iter().filter_map(Slot::packet)
    }

    /// Packets with stream data, oldest first. Packets after the last of them are not searched: a
    /// receiver has a thousand packets of acknowledgements here.
    pub(crate) fn with_stream_data(&self) -> impl Iterator<Item = &SentPacket> {
        let packets = self.iter().map(|(_, packet)| packet);
        packets
            .filter(|packet| packet.has_stream_data())
            .take(self.with_stream_data)
    }

    /// Packets, oldest first. Their size, their deliveries and the flags that the sums depend on
    /// must not be changed.
    pub(crate) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (u64, &mut SentPacket)> {
        self.slots
            .iter_mut()
            .filter_map(|slot| match &mut slot.state {
                SlotState::Sent(packet) => Some((slot.number, packet)),
                SlotState::Acked | SlotState::Skipped => None,
            })
    }

    /// Bytes of packets that count as in flight.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Number of ack-eliciting packets.
    pub(crate) fn ack_eliciting(&self) -> usize {
        self.ack_eliciting
    }

    /// From now on, none of the packets counts as in flight.
    pub(crate) fn leave_flight(&mut self) {
        self.bytes_in_flight = 0;
        self.bare_acks = 0;
        for slot in &mut self.slots {
            if let SlotState::Sent(packet) = &mut slot.state {
                packet.in_flight = false;
                self.bare_acks += usize::from(packet.is_bare_ack());
            }
        }
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.slots.shrink_to_fit();
    }

    /// Removes all packets, oldest first. The caller has to update the path's bytes in flight, as
    /// recovery's `discard_space` does.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, SentPacket)> {
        self.bytes_in_flight = 0;
        self.ack_eliciting = 0;
        self.bare_acks = 0;
        self.with_stream_data = 0;
        self.spilled = 0;
        self.slots.drain(..).filter_map(|slot| match slot.state {
            SlotState::Sent(packet) => Some((slot.number, packet)),
            SlotState::Acked | SlotState::Skipped => None,
        })
    }
}

#[cfg(test)]
mod tests;
