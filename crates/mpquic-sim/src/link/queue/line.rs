//! [`Line`]: packets that wait in order of arrival. [`Queue`]: the interface of all queues.

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

/// A packet in a queue.
pub(in crate::link) struct Queued {
    pub(in crate::link) arrived: Instant,
    pub(in crate::link) packet: Packet,
}

impl Queued {
    /// A packet of `bytes` IP bytes.
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

    /// How long the packet has waited.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.arrived)
    }

    /// Marks an ECN-capable packet; true if the packet is ECN-capable.
    pub(super) fn mark(&mut self, counters: &mut LinkCounters) -> bool {
        let marked = self.packet.mark_ce();
        counters.ce_marked += u64::from(marked);
        marked
    }
}

/// The packets that wait for a link, without the packet on the wire.
pub(in crate::link) trait Queue: Send + Sync {
    fn packets(&self) -> usize;

    fn bytes(&self) -> u64;

    /// Takes a packet, or drops the packet at the demand of the discipline.
    fn push(&mut self, queued: Queued, counters: &mut LinkCounters);

    /// Removes the next packet for the link, after packets that the discipline drops now.
    fn pop(&mut self, now: Instant, counters: &mut LinkCounters) -> Option<Queued>;

    /// Drops a waiting packet to make room for an arriving packet beyond the limit. False if the
    /// queue drops the arriving packet instead.
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

    /// How long the first packet has waited.
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
