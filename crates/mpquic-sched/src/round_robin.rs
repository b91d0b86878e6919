//! Round robin.

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, PathView, Scheduler, View};

use crate::choice::batch_bytes;

/// Gives every usable path the same turn, in the order of path IDs. A path that cannot send loses
/// its turn.
///
/// Source: Paasch et al., "Experimental Evaluation of Multipath TCP Schedulers", CSWS 2014. With
/// turns of one datagram the scheduler equals the scheduler of De Coninck et al., "Pluginizing
/// QUIC", SIGCOMM 2019. Inputs: status, window. Constants: turns of ten datagrams by default. A
/// late path takes turns like the other paths, because earlier bytes do not count.
#[derive(Debug)]
pub struct RoundRobin {
    last: Option<PathId>,
    datagrams_per_turn: u16,
}

impl RoundRobin {
    /// A scheduler with turns of `datagrams_per_turn` datagrams, at least one. Longer turns cost
    /// less CPU time. In the literature, round robin has turns of one datagram.
    pub fn new(datagrams_per_turn: u16) -> Self {
        Self {
            last: None,
            datagrams_per_turn: datagrams_per_turn.max(1),
        }
    }
}

impl Default for RoundRobin {
    /// Turns of ten datagrams, an initial window.
    fn default() -> Self {
        Self::new(10)
    }
}

impl Scheduler for RoundRobin {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let is_after_last = |path: &&PathView| self.last.is_none_or(|last| path.id > last);
        let next = view
            .sendable()
            .find(is_after_last)
            .or_else(|| view.sendable().next());
        let Some(path) = next else {
            return Decision::Blocked;
        };
        self.last = Some(path.id);
        let turn = u64::from(self.datagrams_per_turn) * u64::from(path.mtu);
        Decision::send_up_to(path.id, batch_bytes(path).min(turn))
    }

    fn name(&self) -> &'static str {
        match self.datagrams_per_turn {
            1 => "round-robin-packet",
            _ => "round-robin",
        }
    }
}
