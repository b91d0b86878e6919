//! [`Order`]: the order in which flows give way to a new one.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

/// The use of a flow. The flow with the smallest use gives way first: a flow without an answer, and
/// among flows without an answer the longest idle flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    /// An answer has arrived.
    pub(crate) is_answered: bool,
    /// Time of the last payload.
    pub(crate) last: Instant,
}

/// Flows in the order in which they give way. The use of a flow only grows, so this order need not
/// hear of each payload: [`Self::first`] asks for the current use before a flow gives way.
#[derive(Debug)]
pub(crate) struct Order<K> {
    keys: BTreeMap<K, Use>,
    order: BTreeSet<(Use, K)>,
}

impl<K> Default for Order<K> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone> Order<K> {
    /// Adds a flow, or updates its use.
    pub(crate) fn insert(&mut self, key: K, used: Use) {
        if let Some(before) = self.keys.insert(key.clone(), used) {
            self.order.remove(&(before, key.clone()));
        }
        self.order.insert((used, key));
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(used) = self.keys.remove(key) {
            self.order.remove(&(used, key.clone()));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The flow that gives way first, with its use. `now` returns the current use of a flow.
    pub(crate) fn first(&mut self, now: impl Fn(&K) -> Use) -> Option<(Use, K)> {
        loop {
            let (known, key) = self.order.first()?.clone();
            let used = now(&key);
            if used <= known {
                return Some((known, key));
            }
            self.insert(key, used);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Compares with a model that sorts all flows.
    #[test]
    fn the_first_is_who_is_least_in_use() {
        let began = Instant::now();
        let mut order = Order::default();
        let mut uses = BTreeMap::new();
        let mut state = 7u64;
        for step in 0..5000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = (state >> 33) % 100;
            let last = began + Duration::from_millis(step);
            match state >> 62 {
                0 if !uses.contains_key(&key) => {
                    let used = Use {
                        is_answered: false,
                        last,
                    };
                    uses.insert(key, used);
                    order.insert(key, used);
                }
                1 => {
                    let used = uses.get_mut(&key);
                    used.into_iter().for_each(|used| used.last = last);
                }
                2 => {
                    let used = uses.get_mut(&key);
                    used.into_iter().for_each(|used| used.is_answered = true);
                }
                _ => {
                    uses.remove(&key);
                    order.remove(&key);
                }
            }
            let expected = uses.iter().min_by_key(|(key, used)| (**used, **key));
            let first = order.first(|key| uses[key]);
            assert_eq!(first, expected.map(|(key, used)| (*used, *key)));
            assert_eq!(order.len(), uses.len());
        }
    }
}
