//! The turns of finished uploads to take their names: one upload at a time in each directory.
//! Between its look at the file that has the name and its rename, no other upload of the server
//! replaces the file.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The directories in which an upload takes its name.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    busy: Mutex<HashSet<PathBuf>>,
    freed: Condvar,
}

/// The only turn in a directory, until dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    directory: PathBuf,
}

impl Turns {
    fn busy(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn in a directory. The path must have no links.
    pub(crate) fn wait(&self, directory: PathBuf) -> Turn<'_> {
        let mut busy = self.busy();
        while busy.contains(&directory) {
            let waited = self.freed.wait(busy);
            busy = waited.unwrap_or_else(PoisonError::into_inner);
        }
        busy.insert(directory.clone());
        drop(busy);
        Turn {
            turns: self,
            directory,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.busy().remove(&self.directory);
        self.turns.freed.notify_all();
    }
}
