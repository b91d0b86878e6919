//! [`Flows`]: a line for each flow (RFC 8290).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use super::codel::Controlled;
use super::line::{Queue, Queued};
use crate::link::counters::LinkCounters;

/// Bytes that a flow may send in a turn (RFC 8290 section 5.2.2).
const QUANTUM: i64 = 1514;

/// Source and destination address of the packets of a flow.
type FlowKey = (SocketAddr, SocketAddr);

struct Flow {
    line: Controlled,
    /// Bytes that the flow may send in this turn.
    credit: i64,
}

/// Fair queueing with controlled delay (RFC 8290). Each flow has a line of its own, instead of 1024
/// lines that flows share by chance. All cross traffic is a single flow.
#[derive(Default)]
pub(super) struct Flows {
    flows: BTreeMap<FlowKey, Flow>,
    /// Flows without an earlier packet or turn.
    new: VecDeque<FlowKey>,
    /// Flows that have had their first turn.
    old: VecDeque<FlowKey>,
    packets: usize,
    bytes: u64,
}

impl Queue for Flows {
    fn packets(&self) -> usize {
        self.packets
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn push(&mut self, queued: Queued, counters: &mut LinkCounters) {
        let key = (queued.packet.source, queued.packet.destination);
        self.packets += 1;
        self.bytes += queued.size();
        let flow = self.flows.entry(key).or_insert_with(|| {
            self.new.push_back(key);
            Flow {
                line: Controlled::default(),
                credit: QUANTUM,
            }
        });
        flow.line.push(queued, counters);
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
            let before = (flow.line.packets(), flow.line.bytes());
            let next = flow.line.pop(now, counters);
            self.packets -= before.0 - flow.line.packets();
            self.bytes -= before.1 - flow.line.bytes();
            if let Some(queued) = next {
                flow.credit -= queued.packet.wire_size() as i64;
                return Some(queued);
            }
            list.pop_front();
            if is_new && !self.old.is_empty() {
                // An empty new flow waits for all other flows once, so that the flow cannot be new
                // again and again.
                self.old.push_back(key);
            } else {
                self.flows.remove(&key);
            }
        }
    }

    /// Drops the oldest packet of the flow with most bytes (RFC 8290 section 4.1).
    fn make_room(&mut self) -> bool {
        let longest = self.flows.values_mut().max_by_key(|flow| flow.line.bytes());
        let dropped = longest.and_then(|flow| flow.line.line.take());
        if let Some(queued) = &dropped {
            self.packets -= 1;
            self.bytes -= queued.size();
        }
        dropped.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    use bytes::BytesMut;

    use crate::packet::Packet;

    /// A packet of `bytes` IP bytes from a port.
    fn packet(port: u16, bytes: usize) -> Queued {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let data = BytesMut::zeroed(bytes - 28);
        Queued {
            arrived: crate::lab::epoch(),
            packet: Packet::new(address(port), address(1), None, data),
        }
    }

    fn queue(packets: &[(u16, usize)]) -> (Flows, LinkCounters) {
        let mut counters = LinkCounters::new(crate::lab::epoch());
        let mut flows = Flows::default();
        for (port, bytes) in packets {
            flows.push(packet(*port, *bytes), &mut counters);
        }
        (flows, counters)
    }

    /// The ports of all packets in the order in which they leave.
    fn order(packets: &[(u16, usize)]) -> Vec<u16> {
        let (mut flows, mut counters) = queue(packets);
        let now = crate::lab::epoch();
        let next = || Some(flows.pop(now, &mut counters)?.packet.source.port());
        let order = std::iter::from_fn(next).collect();
        assert!(flows.flows.is_empty() && flows.old.is_empty());
        assert_eq!((flows.packets(), flows.bytes()), (0, 0));
        order
    }

    #[test]
    fn each_flow_has_a_turn_of_1514_bytes() {
        // Small packets of the first flow leave until its credit is used up, then packets of the
        // other flow.
        let small = [(1, 757), (1, 757), (1, 757), (1, 757), (2, 1514), (2, 1514)];
        assert_eq!(order(&small), [1, 1, 2, 1, 1, 2]);
        // A byte of credit is enough for a packet; the excess counts in the next turn.
        let large = [
            (1, 1513),
            (1, 1513),
            (1, 1513),
            (2, 1514),
            (2, 1514),
            (2, 1514),
        ];
        assert_eq!(order(&large), [1, 1, 2, 1, 2, 2]);
    }

    #[test]
    fn emptied_flow_is_not_new_at_once() {
        let (mut flows, mut counters) = queue(&[(1, 1514), (1, 1514), (2, 100)]);
        let now = crate::lab::epoch();
        let next = |flows: &mut Flows, counters: &mut LinkCounters| {
            flows
                .pop(now, counters)
                .map(|queued| queued.packet.source.port())
        };
        assert_eq!(next(&mut flows, &mut counters), Some(1));
        assert_eq!(next(&mut flows, &mut counters), Some(2));
        // The second flow has no packets now. The flow is not new when its next packet comes at
        // once.
        assert_eq!((flows.packets(), flows.bytes()), (1, 1514));
        assert_eq!(next(&mut flows, &mut counters), Some(1));
        flows.push(packet(2, 100), &mut counters);
        flows.push(packet(3, 100), &mut counters);
        assert_eq!(next(&mut flows, &mut counters), Some(3));
        assert_eq!(next(&mut flows, &mut counters), Some(2));
        assert_eq!(next(&mut flows, &mut counters), None);
    }

    #[test]
    fn room_is_made_in_the_flow_with_most_bytes() {
        let (mut flows, mut counters) = queue(&[(1, 1000), (2, 300), (2, 300), (2, 300), (1, 200)]);
        assert_eq!((flows.packets(), flows.bytes()), (5, 2100));
        // 1200 bytes against 900: the oldest packet of the first flow goes, then packets of the
        // second.
        assert!(flows.make_room());
        assert_eq!((flows.packets(), flows.bytes()), (4, 1100));
        assert!(flows.make_room() && flows.make_room());
        assert_eq!((flows.packets(), flows.bytes()), (2, 500));
        let later = crate::lab::epoch() + Duration::from_millis(1);
        let left = std::iter::from_fn(|| flows.pop(later, &mut counters));
        assert_eq!(left.map(|queued| queued.size()).sum::<u64>(), 500);
        assert!(!flows.make_room());
    }
}
