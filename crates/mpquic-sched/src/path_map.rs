//! State per path, for the handful of paths a connection has.

use mpquic_core::PathId;

/// Values by path, sorted by ID.
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

    /// The value of a path, made now if there is none.
    pub(crate) fn entry(&mut self, path: PathId, make: impl FnOnce() -> T) -> &mut T {
        let index = match self.position(path) {
            Ok(index) => index,
            Err(index) => {
                self.entries.insert(index, (path, make()));
                index
            }
        };
        &mut self.entries[index].1
    }

    pub(crate) fn remove(&mut self, path: PathId) -> Option<T> {
        let index = self.position(path).ok()?;
        Some(self.entries.remove(index).1)
    }

    pub(crate) fn find(&self, path: PathId) -> Option<&T> {
        let index = self.position(path).ok()?;
        Some(&self.entries[index].1)
    }

    pub(crate) fn find_mut(&mut self, path: PathId) -> Option<&mut T> {
        let index = self.position(path).ok()?;
        Some(&mut self.entries[index].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathId, &T)> + Clone {
        self.entries.iter().map(|(id, value)| (*id, value))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<T> Default for PathMap<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}
