//! [`PathMap`]: a value for each of the few paths of a connection.

use std::fmt;

use crate::ids::PathId;

/// A map from path ID to a value, sorted by ID.
///
/// Schedulers and congestion controllers keep their state per path in it. It is a sorted list: with
/// the few paths a connection has, a search in adjacent entries beats any tree or hash, and the
/// order of iteration is the same in every run. Most connections never have a second path: an empty
/// map allocates nothing, and a map with one path allocates a single entry.
///
/// ```
/// use mpquic_core::sched::{Decision, Scheduler, SchedulerEvent, View};
/// use mpquic_core::{PathId, PathMap};
///
/// /// Sends every datagram on the path that carried the fewest so far.
/// #[derive(Debug, Default)]
/// struct FewestFirst {
///     sent: PathMap<u64>,
/// }
///
/// impl Scheduler for FewestFirst {
///     fn select(&mut self, view: &View<'_>) -> Decision {
///         let sent = |id: PathId| self.sent.get(id).copied().unwrap_or(0);
///         match view.sendable().min_by_key(|path| sent(path.id)) {
///             Some(path) => {
///                 *self.sent.get_or_insert_with(path.id, || 0) += 1;
///                 Decision::send(path.id)
///             }
///             None => Decision::Blocked,
///         }
///     }
///
///     fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
///         if let SchedulerEvent::PathRemoved(path) = event {
///             self.sent.remove(*path);
///         }
///     }
///
///     fn name(&self) -> &'static str {
///         "fewest-first"
///     }
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PathMap<T> {
    entries: Vec<(PathId, T)>,
}

impl<T> PathMap<T> {
    /// A map without entries.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    /// The place of the path's entry, or of a new entry.
    fn position(&self, path: PathId) -> Result<usize, usize> {
        // IDs mostly follow each other without gaps.
        let first = self.entries.first().map_or(path, |(id, _)| *id);
        let guess = path.0.wrapping_sub(first.0) as usize;
        match self.entries.get(guess) {
            Some((id, _)) if *id == path => Ok(guess),
            _ => self.entries.binary_search_by_key(&path, |(id, _)| *id),
        }
    }

    fn insert_at(&mut self, index: usize, path: PathId, value: T) {
        if self.entries.is_empty() {
            // Most connections never have a second path.
            self.entries.reserve_exact(1);
        }
        self.entries.insert(index, (path, value));
    }

    /// The value of a path, if it has one.
    pub fn get(&self, path: PathId) -> Option<&T> {
        let index = self.position(path).ok()?;
        Some(&self.entries[index].1)
    }

    /// The value of a path, to change it.
    pub fn get_mut(&mut self, path: PathId) -> Option<&mut T> {
        let index = self.position(path).ok()?;
        Some(&mut self.entries[index].1)
    }

    /// The value of a path, made now for a new path.
    pub fn get_or_insert_with(&mut self, path: PathId, make: impl FnOnce() -> T) -> &mut T {
        let index = match self.position(path) {
            Ok(index) => index,
            Err(index) => {
                self.insert_at(index, path, make());
                index
            }
        };
        &mut self.entries[index].1
    }

    /// Gives a path a value, and returns the one it had before.
    pub fn insert(&mut self, path: PathId, value: T) -> Option<T> {
        match self.position(path) {
            Ok(index) => Some(std::mem::replace(&mut self.entries[index].1, value)),
            Err(index) => {
                self.insert_at(index, path, value);
                None
            }
        }
    }

    /// Removes a path and returns its value.
    pub fn remove(&mut self, path: PathId) -> Option<T> {
        let index = self.position(path).ok()?;
        Some(self.entries.remove(index).1)
    }

    /// True if the path has a value.
    pub fn contains(&self, path: PathId) -> bool {
        self.position(path).is_ok()
    }

    /// Paths and their values, in the order of the IDs.
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (PathId, &T)> + ExactSizeIterator + Clone {
        self.entries.iter().map(|(id, value)| (*id, value))
    }

    /// Paths and their values to change, in the order of the IDs.
    pub fn iter_mut(
        &mut self,
    ) -> impl DoubleEndedIterator<Item = (PathId, &mut T)> + ExactSizeIterator {
        self.entries.iter_mut().map(|(id, value)| (*id, value))
    }

    /// The values, in the order of the IDs.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The values to change, in the order of the IDs.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> + ExactSizeIterator {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// How many paths have a value.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no path has a value.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes every path, and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<T> Default for PathMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for PathMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Of several values for one path the last is kept.
impl<T> FromIterator<(PathId, T)> for PathMap<T> {
    fn from_iter<I: IntoIterator<Item = (PathId, T)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (path, value) in entries {
            map.insert(path, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// After any operations, the map equals the standard library's sorted map.
        #[test]
        fn is_like_a_tree(
            operations in vec((0u8..5, prop_oneof![0u32..6, 0u32..1000], any::<u16>()), 0..200),
        ) {
            let mut map = PathMap::new();
            let mut tree = BTreeMap::new();
            for (operation, id, value) in operations {
                let path = PathId(id);
                match operation {
                    0 => prop_assert_eq!(map.insert(path, value), tree.insert(path, value)),
                    1 => prop_assert_eq!(map.remove(path), tree.remove(&path)),
                    2 => prop_assert_eq!(
                        map.get_or_insert_with(path, || value),
                        tree.entry(path).or_insert(value)
                    ),
                    3 => prop_assert_eq!(map.get_mut(path), tree.get_mut(&path)),
                    _ => prop_assert_eq!(map.get(path), tree.get(&path)),
                }
                prop_assert_eq!(map.contains(path), tree.contains_key(&path));
                prop_assert_eq!(map.len(), tree.len());
                prop_assert_eq!(map.is_empty(), tree.is_empty());
                prop_assert!(map.iter().eq(tree.iter().map(|(id, value)| (*id, value))));
                prop_assert!(map.values().eq(tree.values()));
            }
            prop_assert_eq!(format!("{map:?}"), format!("{tree:?}"));
            prop_assert_eq!(&map, &tree.into_iter().collect());
            for (_, value) in map.iter_mut() {
                *value = 1;
            }
            prop_assert!(map.values().all(|value| *value == 1));
            map.values_mut().for_each(|value| *value = 2);
            prop_assert!(map.values().all(|value| *value == 2));
            map.clear();
            prop_assert!(map.is_empty());
        }
    }

    #[test]
    fn map_with_one_path_allocates_one_entry() {
        let mut map = PathMap::new();
        assert_eq!(map.entries.capacity(), 0);
        map.insert(PathId::ZERO, [0u64; 4]);
        assert_eq!(map.entries.capacity(), 1);
    }
}
