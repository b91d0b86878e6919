//! [`Recent`]: choices that are remembered for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpquic_core::FourTuple;

/// Which server was chosen for a client's addresses. It has two generations: what is not looked for
/// while the younger one lasts goes with the older one, so nothing has to be searched for.
#[derive(Debug)]
pub(super) struct Recent {
    capacity: usize,
    lifetime: Duration,
    young: HashMap<FourTuple, SocketAddr>,
    old: HashMap<FourTuple, SocketAddr>,
    /// When the younger generation began.
    since: Option<Instant>,
}

impl Recent {
    /// At most `capacity` in a generation that lasts so long.
    pub(super) fn new(capacity: usize, lifetime: Duration) -> Self {
        Self {
            capacity,
            lifetime,
            young: HashMap::new(),
            old: HashMap::new(),
            since: None,
        }
    }

    pub(super) fn get(&mut self, now: Instant, tuple: FourTuple) -> Option<SocketAddr> {
        self.turn(now);
        if let Some(server) = self.young.get(&tuple) {
            return Some(*server);
        }
        let server = self.old.remove(&tuple)?;
        self.insert(now, tuple, server);
        Some(server)
    }

    pub(super) fn insert(&mut self, now: Instant, tuple: FourTuple, server: SocketAddr) {
        self.turn(now);
        if self.young.len() < self.capacity || self.young.contains_key(&tuple) {
            self.young.insert(tuple, server);
        }
    }

    /// How many choices are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Begins a generation if the last one is over.
    fn turn(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed < self.lifetime {
            return;
        }
        self.old = std::mem::take(&mut self.young);
        if passed >= 2 * self.lifetime {
            self.old.clear();
        }
        self.since = Some(now);
    }
}
