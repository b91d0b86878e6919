//! [`Recent`]: remembers choices for a limited time.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Remembers which server was chosen for each key.
///
/// Choices are in two generations. A choice that is looked up moves to the younger generation. A
/// choice that is not looked up while the younger generation lasts is dropped with the older
/// generation. Expired choices thus need no search.
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
    /// Remembers at most `capacity` choices per generation. A generation lasts for `lifetime`.
    pub(super) fn new(capacity: usize, lifetime: Duration) -> Self {
        Self {
            capacity,
            lifetime,
            young: HashMap::new(),
            old: HashMap::new(),
            since: None,
        }
    }

    /// The server chosen for a key, if it is still remembered. A lookup extends the lifetime of the
    /// choice.
    pub(super) fn get(&mut self, now: Instant, key: K) -> Option<SocketAddr> {
        self.turn(now);
        if let Some(server) = self.young.get(&key) {
            return Some(*server);
        }
        let server = self.old.remove(&key)?;
        self.insert(now, key, server);
        Some(server)
    }

    /// Remembers the server of a key, unless the younger generation is full.
    pub(super) fn insert(&mut self, now: Instant, key: K, server: SocketAddr) {
        self.turn(now);
        if self.young.len() < self.capacity || self.young.contains_key(&key) {
            self.young.insert(key, server);
        }
    }

    /// The number of remembered choices.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Begins a new generation if the younger generation has lasted for its lifetime.
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
