//! [`DatagramTurns`]: the order in which flows of DATAGRAMs take turns.

use std::collections::BTreeMap;

/// At this number of flows, flows without waiting DATAGRAMs are forgotten once their turns are
/// over.
const MANY: usize = 256;
/// This number of flows is remembered while nothing waits, so that a DATAGRAM needs no memory from
/// the heap.
const FEW: usize = 8;

/// Start-time fair queueing: a DATAGRAM's turn is the end of the DATAGRAM before it in its flow, or
/// the turn that is being served if the flow was silent. So each waiting flow gets an equal part of
/// the bytes, and a flow with few bytes does not wait behind a flood.
#[derive(Debug, Default)]
pub(super) struct DatagramTurns {
    /// The turn that is being served, in bytes.
    now: u64,
    /// The end of the last turn of all flows.
    last: u64,
    /// The flow of DATAGRAMs without a number.
    unnumbered: Flow,
    numbered: BTreeMap<u64, Flow>,
    /// Flows with waiting DATAGRAMs.
    waiting: usize,
}

/// The DATAGRAMs of a flow.
#[derive(Debug, Default)]
struct Flow {
    /// The end of the last DATAGRAM's turn.
    end: u64,
    /// Waiting bytes, with the overhead.
    bytes: usize,
}

impl DatagramTurns {
    /// The turn of a new DATAGRAM of a flow.
    #[inline]
    pub(super) fn on_queued(&mut self, flow: Option<u64>, bytes: usize) -> u64 {
        let flow = match flow {
            None => &mut self.unnumbered,
            Some(number) => of_number(&mut self.numbered, number, self.now),
        };
        self.waiting += usize::from(flow.bytes == 0);
        let turn = flow.end.max(self.now);
        flow.end = turn.saturating_add(bytes as u64);
        flow.bytes += bytes;
        self.last = self.last.max(flow.end);
        turn
    }

    /// A DATAGRAM with this turn is the first in the queue, and leaves it.
    #[inline]
    pub(super) fn on_turn(&mut self, turn: u64) {
        self.now = self.now.max(turn);
    }

    /// A DATAGRAM left the queue.
    #[inline]
    pub(super) fn on_left(&mut self, flow: Option<u64>, bytes: usize) {
        let flow = match flow {
            None => Some(&mut self.unnumbered),
            Some(number) => self.numbered.get_mut(&number),
        };
        if let Some(flow) = flow {
            flow.bytes = flow.bytes.saturating_sub(bytes);
            self.waiting -= usize::from(flow.bytes == 0);
        }
        if self.waiting == 0 {
            // All flows begin anew.
            self.now = self.now.max(self.last);
            if self.numbered.len() > FEW {
                self.numbered.clear();
            }
        }
    }

    /// Waiting bytes of a flow with the overhead, and the number of waiting flows, `flow` included.
    pub(super) fn share(&self, flow: Option<u64>) -> (usize, usize) {
        let flow = match flow {
            None => Some(&self.unnumbered),
            Some(number) => self.numbered.get(&number),
        };
        let own = flow.map_or(0, |flow| flow.bytes);
        (own, self.waiting + usize::from(own == 0))
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.numbered.len() * 2 * size_of::<(u64, Flow)>()
    }
}

/// The flow with this number, which may be new.
fn of_number(flows: &mut BTreeMap<u64, Flow>, number: u64, now: u64) -> &mut Flow {
    if flows.len() >= MANY && !flows.contains_key(&number) {
        flows.retain(|_, flow| flow.bytes > 0 || flow.end > now);
    }
    flows.entry(number).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_take_turns_by_bytes() {
        let mut turns = DatagramTurns::default();
        let flood: Vec<_> = (0..4).map(|_| turns.on_queued(Some(1), 100)).collect();
        assert_eq!(flood, [0, 100, 200, 300]);
        turns.on_turn(0);
        turns.on_left(Some(1), 100);
        turns.on_turn(100);
        let thin: Vec<_> = (0..3).map(|_| turns.on_queued(None, 50)).collect();
        assert_eq!(thin, [100, 150, 200], "two for one");
        assert_eq!(turns.share(None), (150, 2));
        assert_eq!(turns.share(Some(1)), (300, 2));
        assert_eq!(turns.share(Some(2)), (0, 3));
        for _ in 0..3 {
            turns.on_left(Some(1), 100);
        }
        assert_eq!(turns.share(Some(1)), (0, 2));
        assert_eq!(turns.on_queued(Some(1), 1), 400, "no turn is had twice");
    }

    #[test]
    fn flows_that_are_over_are_forgotten() {
        let mut turns = DatagramTurns::default();
        turns.on_queued(None, 1);
        for flow in 0..10 * MANY as u64 {
            let turn = turns.on_queued(Some(flow), 10);
            turns.on_left(Some(flow), 10);
            turns.on_turn(turn + 10);
            assert!(turns.numbered.len() <= MANY);
        }
        assert!(turns.memory() > 0);
        turns.on_left(None, 1);
        assert!(turns.numbered.is_empty());
    }
}
