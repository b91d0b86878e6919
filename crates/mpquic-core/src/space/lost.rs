//! Packets declared lost recently; the peer may still acknowledge them.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Instant;

use super::SentPacket;

/// Number of remembered packets: more losses within a few round trips are hardly spurious.
const CAPACITY: usize = 128;

/// A packet declared lost.
#[derive(Debug)]
pub(crate) struct LostPacket {
    pub(crate) number: u64,
    /// When it was declared lost.
    pub(crate) declared: Instant,
    pub(crate) packet: SentPacket,
}

/// Recently lost packets, by number.
#[derive(Debug, Default)]
pub(crate) struct LostPackets {
    packets: VecDeque<LostPacket>,
}

impl LostPackets {
    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let spilled = self.packets.iter().map(|lost| lost.packet.spilled());
        self.packets.capacity() * size_of::<LostPacket>() + spilled.sum::<usize>()
    }

    /// Remembers a packet; numbers must rise.
    pub(crate) fn insert(&mut self, lost: LostPacket) {
        if self.packets.len() == CAPACITY {
            self.packets.pop_front();
        }
        self.packets.push_back(lost);
    }

    /// Forgets packets declared lost before `time`.
    pub(crate) fn expire(&mut self, time: Instant) {
        while self
            .packets
            .front()
            .is_some_and(|lost| lost.declared < time)
        {
            self.packets.pop_front();
        }
    }

    /// Removes and returns packets with these numbers. Numbers outside of the list cost no search.
    pub(crate) fn take(
        &mut self,
        numbers: &RangeInclusive<u64>,
    ) -> impl Iterator<Item = LostPacket> {
        let newest = self.packets.back().map(|lost| lost.number);
        if newest < Some(*numbers.start()) {
            return self.packets.drain(..0);
        }
        let start = self
            .packets
            .partition_point(|lost| lost.number < *numbers.start());
        let end = self
            .packets
            .partition_point(|lost| lost.number <= *numbers.end());
        self.packets.drain(start..end.max(start))
    }

    /// The smallest number remembered.
    pub(crate) fn first_number(&self) -> Option<u64> {
        self.packets.front().map(|lost| lost.number)
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.packets.shrink_to_fit();
    }

    pub(crate) fn clear(&mut self) {
        self.packets.clear();
    }
}
