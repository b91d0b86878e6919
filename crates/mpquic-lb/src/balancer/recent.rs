//! [`Recent`]: choices that are remembered for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Which server was chosen for something. It has two generations: what is not looked for
/// while the younger one lasts goes with the older one, so nothing has to be searched for.
#[derive(Debug)]
pub(super) struct Recent<K> {
    capacity: usize,
    lifetime: Duration,
    young: HashMap<K, SocketAddr>,
    old: HashMap<K, SocketAddr>,
    /// When the younger generation began.
    since: Option<Instant>,
}

impl<K: Eq + Hash> Recent<K> {
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

    pub(super) fn get(&mut self, now: Instant, key: K) -> Option<SocketAddr> {
        self.turn(now);
        if let Some(server) = self.young.get(&key) {
            return Some(*server);
        }
        let server = self.old.remove(&key)?;
        self.insert(now, key, server);
        Some(server)
    }

    pub(super) fn insert(&mut self, now: Instant, key: K, server: SocketAddr) {
        self.turn(now);
        if self.young.len() < self.capacity || self.young.contains_key(&key) {
            self.young.insert(key, server);
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
