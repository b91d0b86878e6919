//! [`Queue`]: what waits for a link, in one line or in one for each flow, and what is dropped before
//! the queue is full.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::config::Discipline;
use super::counters::LinkCounters;
use crate::packet::Packet;

/// How long packets may wait without harm (RFC 8289 section 4.3).
const TARGET: Duration = Duration::from_millis(5);
/// How long a wait may be above [`TARGET`] before packets are dropped for it (RFC 8289 section 4.2).
const INTERVAL: Duration = Duration::from_millis(100);
/// What is left of a queue of no more than one packet is never dropped.
const ONE_PACKET: u64 = 1514;
/// What a flow may send before it is the next one's turn, in bytes (RFC 8290 section 5.2.2).
const QUANTUM: i64 = 1514;

/// A packet that waits.
pub(super) struct Queued {
    pub(super) arrived: Instant,
    pub(super) packet: Packet,
}

impl Queued {
    fn size(&self) -> u64 {
        self.packet.wire_size() as u64
    }
}

/// What waits for a link; the packet that is being sent is not in it.
pub(super) enum Queue {
    /// One line for all packets.
    Line(Line),
    /// A line for each flow.
    Flows(Flows),
}

impl Queue {
    pub(super) fn new(discipline: Discipline) -> Self {
        match discipline {
            Discipline::Fifo => Self::Line(Line::default()),
            Discipline::CoDel => Self::Line(Line::managed()),
            Discipline::FqCoDel => Self::Flows(Flows::default()),
        }
    }

    pub(super) fn packets(&self) -> usize {
        match self {
            Self::Line(line) => line.packets.len(),
            Self::Flows(flows) => flows.packets,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Line(line) => line.bytes,
            Self::Flows(flows) => flows.bytes,
        }
    }

    pub(super) fn push(&mut self, queued: Queued) {
        match self {
            Self::Line(line) => line.push(queued),
            Self::Flows(flows) => flows.push(queued),
        }
    }

    /// Takes the packet that is sent next, after those that are dropped now.
    pub(super) fn pop(&mut self, now: Instant, counters: &mut LinkCounters) -> Option<Queued> {
        match self {
            Self::Line(line) => line.pop(now, counters),
            Self::Flows(flows) => flows.pop(now, counters),
        }
    }

    /// Makes room for a packet that would exceed the limit, at the cost of another one. False if
    /// there is no other than the one that arrives.
    pub(super) fn make_room(&mut self) -> bool {
        match self {
            Self::Line(_) => false,
            Self::Flows(flows) => flows.drop_of_longest(),
        }
    }
}

/// Packets in the order of their arrival.
#[derive(Default)]
pub(super) struct Line {
    packets: VecDeque<Queued>,
    bytes: u64,
    codel: Option<CoDel>,
}

impl Line {
    fn managed() -> Self {
        Self {
            codel: Some(CoDel::default()),
            ..Self::default()
        }
    }

    fn push(&mut self, queued: Queued) {
        self.bytes += queued.size();
        self.packets.push_back(queued);
    }

    fn take(&mut self) -> Option<Queued> {
        let queued = self.packets.pop_front()?;
        self.bytes -= queued.size();
        Some(queued)
    }

    fn pop(&mut self, now: Instant, counters: &mut LinkCounters) -> Option<Queued> {
        let Some(mut codel) = self.codel.take() else {
            return self.take();
        };
        let next = codel.next(now, self, counters);
        self.codel = Some(codel);
        next
    }
}

/// Controlled delay (RFC 8289): drops or marks packets if none has waited for less than [`TARGET`]
/// for an [`INTERVAL`], and more and more often while that lasts.
#[derive(Debug, Clone, Copy, Default)]
struct CoDel {
    /// When the wait will have been too long for an interval.
    late_from: Option<Instant>,
    /// When the next packet is dropped, while packets are.
    drop_next: Option<Instant>,
    /// When the last phase of drops would have gone on.
    last_next: Option<Instant>,
    /// Packets dropped in this phase, and at the beginning of it.
    count: u32,
    count_before: u32,
}

impl CoDel {
    /// RFC 8289 section 5.6.
    fn next(
        &mut self,
        now: Instant,
        line: &mut Line,
        counters: &mut LinkCounters,
    ) -> Option<Queued> {
        let (mut queued, mut late) = self.take(now, line);
        let Some(mut due) = self.drop_next else {
            if late {
                queued = self.drop(now, queued, line, counters).0;
                // Soon after the last phase, it goes on where that had ended.
                let recent = |last: Instant| now.saturating_duration_since(last) < INTERVAL * 16;
                let more = self.count - self.count_before;
                self.count = match self.last_next.is_some_and(recent) && more > 1 {
                    true => more,
                    false => 1,
                };
                self.count_before = self.count;
                self.drop_next = Some(self.after(now));
            }
            return queued;
        };
        while late && now >= due {
            self.count += 1;
            let marked = counters.ce_marked;
            (queued, late) = self.drop(now, queued, line, counters);
            due = self.after(due);
            self.drop_next = Some(due);
            // A packet that stays is marked once, however late it is.
            if counters.ce_marked > marked {
                break;
            }
        }
        if !late {
            self.last_next = self.drop_next.take();
        }
        queued
    }

    /// When the next packet is dropped after one at `time`.
    fn after(&self, time: Instant) -> Instant {
        time + INTERVAL.div_f64(f64::from(self.count).sqrt())
    }

    /// Takes a packet, and tells whether packets have waited too long for too long.
    fn take(&mut self, now: Instant, line: &mut Line) -> (Option<Queued>, bool) {
        let queued = line.take();
        let waited = |queued: &Queued| now.saturating_duration_since(queued.arrived);
        let harmless = |queued: &Queued| waited(queued) < TARGET || line.bytes <= ONE_PACKET;
        if queued.as_ref().is_none_or(harmless) {
            self.late_from = None;
            return (queued, false);
        }
        let late_from = *self.late_from.get_or_insert(now + INTERVAL);
        (queued, now >= late_from)
    }

    /// Drops a packet and takes another one; or marks it, if its sender understands marks.
    fn drop(
        &mut self,
        now: Instant,
        queued: Option<Queued>,
        line: &mut Line,
        counters: &mut LinkCounters,
    ) -> (Option<Queued>, bool) {
        let Some(mut queued) = queued else {
            return (None, false);
        };
        if queued.packet.mark_ce() {
            counters.ce_marked += 1;
            return (Some(queued), true);
        }
        counters.dropped_queue += 1;
        self.take(now, line)
    }
}

/// Packets from one address to another.
type FlowKey = (SocketAddr, SocketAddr);

struct Flow {
    line: Line,
    /// Bytes it may send in this turn.
    credit: i64,
}

/// Fair queueing with controlled delay (RFC 8290), with as many lines as there are flows instead of
/// 1024 that flows share by chance. All cross traffic is one flow.
#[derive(Default)]
pub(super) struct Flows {
    flows: BTreeMap<FlowKey, Flow>,
    /// Flows that had nothing to send, and those that had their first turn.
    new: VecDeque<FlowKey>,
    old: VecDeque<FlowKey>,
    packets: usize,
    bytes: u64,
}

impl Flows {
    fn push(&mut self, queued: Queued) {
        let key = (queued.packet.source, queued.packet.destination);
        self.packets += 1;
        self.bytes += queued.size();
        let flow = self.flows.entry(key).or_insert_with(|| {
            self.new.push_back(key);
            Flow {
                line: Line::managed(),
                credit: QUANTUM,
            }
        });
        flow.line.push(queued);
    }

    /// RFC 8290 section 4.2.
    fn pop(&mut self, now: Instant, counters: &mut LinkCounters) -> Option<Queued> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let key = *list.front()?;
            let flow = self.flows.get_mut(&key)?;
            if flow.credit <= 0 {
                flow.credit += QUANTUM;
                list.pop_front();
                self.old.push_back(key);
                continue;
            }
            let before = (flow.line.packets.len(), flow.line.bytes);
            let next = flow.line.pop(now, counters);
            self.packets -= before.0 - flow.line.packets.len();
            self.bytes -= before.1 - flow.line.bytes;
            if let Some(queued) = next {
                flow.credit -= queued.packet.wire_size() as i64;
                return Some(queued);
            }
            list.pop_front();
            if is_new && !self.old.is_empty() {
                // It waits for all others, so that a flow cannot be new again and again.
                self.old.push_back(key);
            } else {
                self.flows.remove(&key);
            }
        }
    }

    /// Drops the oldest packet of the flow with most bytes (RFC 8290 section 4.1).
    fn drop_of_longest(&mut self) -> bool {
        let longest = self.flows.values_mut().max_by_key(|flow| flow.line.bytes);
        let dropped = longest.and_then(|flow| flow.line.take());
        if let Some(queued) = &dropped {
            self.packets -= 1;
            self.bytes -= queued.size();
        }
        dropped.is_some()
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use mpquic_core::EcnCodepoint;

    use super::*;
    use crate::link::{Backlog, Link, LinkConfig};

    const MS: Duration = Duration::from_millis(1);

    /// A packet of 1000 IP bytes from a port.
    fn packet(port: u16, ecn: bool) -> Packet {
        let source = SocketAddr::from(([10, 0, 0, 1], port));
        let destination = SocketAddr::from(([10, 0, 0, 2], 1));
        let ecn = ecn.then_some(EcnCodepoint::Ect0);
        Packet::new(source, destination, ecn, BytesMut::zeroed(972))
    }

    /// A link that takes 1 ms for each packet.
    fn link(discipline: Discipline) -> (Link, Instant) {
        let config = LinkConfig::new(8.0, Duration::ZERO)
            .queue(Backlog::packets(1000))
            .discipline(discipline);
        let start = crate::lab::epoch();
        (Link::new(config, 1, start), start)
    }

    /// What arrives: ports and times since the start in ms.
    fn drain(link: &mut Link, start: Instant) -> Vec<(u16, u128)> {
        let mut arrived = Vec::new();
        while let Some(time) = link.next_arrival() {
            while let Some(packet) = link.receive(time) {
                arrived.push((packet.source.port(), (time - start).as_millis()));
            }
        }
        arrived
    }

    #[test]
    fn a_standing_queue_is_dropped_from_more_and_more_often() {
        let (mut link, start) = link(Discipline::CoDel);
        for _ in 0..400 {
            link.send(start, packet(1, false));
        }
        let arrived = drain(&mut link, start);
        // Waits are 5 ms from 5 ms on, and too long from 105 ms on; then after 100 ms, and after 1/√2,
        // 1/√3 and so on of that: at 205, 276, 333, 383 ms.
        assert_eq!(link.counters().dropped_queue, 5);
        assert_eq!(arrived.len(), 395);
        assert_eq!(arrived.last(), Some(&(1, 395)), "the link was never idle");
    }

    #[test]
    fn a_burst_that_is_gone_in_time_loses_nothing() {
        let (mut link, start) = link(Discipline::CoDel);
        for burst in 0..10 {
            let now = start + burst * 200 * MS;
            while link.receive(now).is_some() {}
            for _ in 0..100 {
                link.send(now, packet(1, false));
            }
        }
        drain(&mut link, start);
        assert_eq!(link.counters().dropped_queue, 0);
    }

    #[test]
    fn packets_are_marked_instead_if_they_can_be() {
        let (mut link, start) = link(Discipline::CoDel);
        for _ in 0..400 {
            link.send(start, packet(1, true));
        }
        assert_eq!(drain(&mut link, start).len(), 400);
        let counters = link.counters();
        assert_eq!((counters.dropped_queue, counters.ce_marked), (0, 5));
    }

    #[test]
    fn a_flow_that_sends_little_does_not_wait_for_one_that_sends_much() {
        for (discipline, arrival) in [
            (Discipline::Fifo, 101),
            (Discipline::CoDel, 101),
            (Discipline::FqCoDel, 12),
        ] {
            let (mut link, start) = link(discipline);
            for _ in 0..100 {
                link.send(start, packet(1, false));
            }
            // By then, the other one is no longer new.
            let early = std::iter::from_fn(|| link.receive(start + 10 * MS)).count();
            assert_eq!(early, 10);
            link.send(start + 10 * MS, packet(2, false));
            let arrived = drain(&mut link, start);
            let little = arrived.iter().find(|(port, _)| *port == 2).unwrap();
            assert_eq!(little.1, arrival, "{discipline:?}");
        }
    }

    #[test]
    fn flows_share_a_link_in_equal_parts() {
        let (mut link, start) = link(Discipline::FqCoDel);
        for port in [1, 2, 3] {
            for _ in 0..30 {
                link.send(start, packet(port, false));
            }
        }
        let arrived = drain(&mut link, start);
        for port in [1, 2, 3] {
            let early = arrived[..45].iter().filter(|(other, _)| *other == port);
            let early = early.count();
            assert!((13..=17).contains(&early), "{port}: {early} of 45");
        }
        assert_eq!(arrived.len(), 90);
        assert_eq!(link.packets(), 0);
        assert_eq!(link.queue_bytes(start + 200 * MS), 0);
    }

    #[test]
    fn a_full_queue_costs_the_flow_that_fills_it() {
        let config = LinkConfig::new(8.0, Duration::ZERO)
            .queue(Backlog::packets(50))
            .discipline(Discipline::FqCoDel);
        let start = crate::lab::epoch();
        let mut link = Link::new(config, 1, start);
        for _ in 0..60 {
            link.send(start, packet(1, false));
        }
        for _ in 0..10 {
            link.send(start, packet(2, false));
        }
        assert_eq!(link.packets(), 50);
        let arrived = drain(&mut link, start);
        let little = arrived.iter().filter(|(port, _)| *port == 2);
        assert_eq!((little.count(), link.counters().dropped_queue), (10, 20));
    }
}
