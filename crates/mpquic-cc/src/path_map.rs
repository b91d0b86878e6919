//! State per path, for the handful of paths a connection has.

use mpquic_core::PathId;

/// Values by path, sorted by ID: a search in a few adjacent entries beats any tree or hash.
#[derive(Debug, Clone)]
pub(crate) struct PathMap<T> {
    entries: Vec<(PathId, T)>,
}

impl<T> PathMap<T> {
    fn position(&self, path: PathId) -> Result<usize, usize> {
        // IDs mostly follow each other without gaps.
        let first = self.entries.first().map_or(path, |(id, _)| *id);
        let guess = path.0.wrapping_sub(first.0) as usize;
        match self.entries.get(guess) {
            Some((id, _)) if *id == path => Ok(guess),
            _ => self.entries.binary_search_by_key(&path, |(id, _)| *id),
        }
    }

    /// Adds or replaces.
    pub(crate) fn insert(&mut self, path: PathId, value: T) {
        match self.position(path) {
            Ok(index) => self.entries[index].1 = value,
            Err(index) => {
                // Most connections never have a second path.
                self.entries.reserve_exact(1);
                self.entries.insert(index, (path, value));
            }
        }
    }

    pub(crate) fn remove(&mut self, path: PathId) {
        if let Ok(index) = self.position(path) {
            self.entries.remove(index);
        }
    }

    pub(crate) fn find(&self, path: PathId) -> Option<&T> {
        let index = self.position(path).ok()?;
        Some(&self.entries[index].1)
    }

    pub(crate) fn find_mut(&mut self, path: PathId) -> Option<&mut T> {
        let index = self.position(path).ok()?;
        Some(&mut self.entries[index].1)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PathId, &mut T)> {
        self.entries.iter_mut().map(|(id, value)| (*id, value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathId, &T)> + Clone {
        self.entries.iter().map(|(id, value)| (*id, value))
    }
}

impl<T> Default for PathMap<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}
