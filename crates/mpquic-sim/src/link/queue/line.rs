//! [`Line`]: packets that wait in the order of their arrival, and what every queue can do.

use std::collections::VecDeque;
#[cfg(test)]
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[cfg(test)]
use bytes::BytesMut;
#[cfg(test)]
use mpquic_core::EcnCodepoint;

use crate::link::counters::LinkCounters;
use crate::packet::Packet;

/// A packet that waits.
pub(in crate::link) struct Queued {
    pub(in crate::link) arrived: Instant,
    pub(in crate::link) packet: Packet,
}

impl Queued {
    /// A packet of so many IP bytes.
    #[cfg(test)]
    pub(super) fn of_bytes(arrived: Instant, bytes: usize, ecn: Option<EcnCodepoint>) -> Self {
        let address = |host| SocketAddr::from(([10, 0, 0, host], 1));
        let data = BytesMut::zeroed(bytes - 28);
        Self {
            arrived,
            packet: Packet::new(address(1), address(2), ecn, data),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.packet.wire_size() as u64
    }

    /// How long it has waited.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.arrived)
    }

    /// Marks it, if its sender understands marks.
    pub(super) fn mark(&mut self, counters: &mut LinkCounters) -> bool {
        let marked = self.packet.mark_ce();
        counters.ce_marked += u64::from(marked);
        marked
    }
}

/// What waits for a link. The packet that is being sent is not in it.
pub(in crate::link) trait Queue: Send + Sync {
    fn packets(&self) -> usize;

    fn bytes(&self) -> u64;

    /// Takes a packet, or drops it if its management says so.
    fn push(&mut self, queued: Queued, counters: &mut LinkCounters);

    /// Takes out the packet that is sent next, after those that are dropped now.
    fn pop(&mut self, now: Instant, counters: &mut LinkCounters) -> Option<Queued>;

    /// Makes room for a packet that would exceed the limit, at the cost of another one. False if
    /// there is no other than the one that arrives.
    fn make_room(&mut self) -> bool {
        false
    }
}

/// Packets in the order of their arrival.
#[derive(Default)]
pub(super) struct Line {
    packets: VecDeque<Queued>,
    bytes: u64,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn append(&mut self, queued: Queued) {
        self.bytes += queued.size();
        self.packets.push_back(queued);
    }

    pub(super) fn take(&mut self) -> Option<Queued> {
        let queued = self.packets.pop_front()?;
        self.bytes -= queued.size();
        Some(queued)
    }

    /// How long its first packet has waited.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        let first = self.packets.front();
        first.map_or(Duration::ZERO, |queued| queued.waited(now))
    }
}

impl Queue for Line {
    fn packets(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn push(&mut self, queued: Queued, _: &mut LinkCounters) {
        self.append(queued);
    }

    fn pop(&mut self, _: Instant, _: &mut LinkCounters) -> Option<Queued> {
        self.take()
    }
}
