//! [`Flows`]: a line for each flow (RFC 8290).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use super::codel::Controlled;
use super::line::{Queue, Queued};
use crate::link::counters::LinkCounters;

/// What a flow may send before it is the next one's turn, in bytes (RFC 8290 section 5.2.2).
const QUANTUM: i64 = 1514;

/// Packets from one address to another.
type FlowKey = (SocketAddr, SocketAddr);

struct Flow {
    line: Controlled,
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
                // It waits for all others, so that a flow cannot be new again and again.
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
