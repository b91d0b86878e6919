//! The names in the directories of the last lists. A page of a long list needs all names of the
//! directory, in order, and its next page needs the same names.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cap_std::fs::Dir;

use crate::files::file_state::FileState;
use crate::process::clock;

/// Most bytes of the kept names of all directories. A longer directory is read for each page.
const MOST: usize = 16 << 20;
/// Most readings.
const MOST_READINGS: usize = 64;
/// Time that the names of a directory are kept.
const KEPT: Duration = Duration::from_secs(10);
/// Two changes within a tick of the file system's clock have one time, so names are kept only after
/// this time without a change of the directory.
const SETTLED: Duration = Duration::from_secs(2);

/// The names in a directory in byte order.
#[derive(Debug)]
pub(crate) struct Names(Vec<OsString>);

impl Names {
    /// The names after `after`, or all names.
    pub(crate) fn after(&self, after: Option<&OsStr>) -> &[OsString] {
        let first = after.map_or(0, |after| self.0.partition_point(|name| **name <= *after));
        self.0.get(first..).unwrap_or_default()
    }
}

/// The result of one reading of a directory.
#[derive(Debug)]
struct Reading {
    at: Instant,
    /// The state of the directory before and after the reading.
    state: FileState,
    /// `None` for a directory with too many names to keep.
    names: Option<Arc<Names>>,
    /// Bytes of the names.
    bytes: usize,
}

/// The names of the directories that were read last.
#[derive(Debug)]
pub(crate) struct RecentNames {
    readings: Mutex<Vec<Reading>>,
    /// Held during a reading, so the names of few directories are in memory.
    is_reading: Mutex<()>,
    settled: Duration,
    /// Most bytes of the kept names.
    most: usize,
    #[cfg(test)]
    count: std::sync::atomic::AtomicUsize,
}

impl Default for RecentNames {
    fn default() -> Self {
        Self {
            readings: Mutex::default(),
            is_reading: Mutex::default(),
            settled: SETTLED,
            most: MOST,
            #[cfg(test)]
            count: 0.into(),
        }
    }
}

impl RecentNames {
    /// Names that are kept whenever the directory has changed.
    #[cfg(test)]
    pub(crate) fn settled() -> Self {
        Self {
            settled: Duration::ZERO,
            ..Self::default()
        }
    }

    fn readings(&self) -> MutexGuard<'_, Vec<Reading>> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shown names of a directory; `None` if the caller has to read the directory itself: the
    /// directory has changed lately or is too long, or another directory is being read. `is_shown`
    /// depends on the name alone. May block.
    pub(crate) fn of(
        &self,
        directory: &Dir,
        is_shown: impl Fn(&OsStr) -> bool,
    ) -> io::Result<Option<Arc<Names>>> {
        let state = state_of(directory)?;
        if let Some(known) = self.known(&state) {
            return Ok(known);
        }
        let age = state.age(clock::time_of_day());
        let is_settled = age.is_some_and(|age| age >= self.settled);
        let Some(_reading) = self.is_reading.try_lock().ok().filter(|_| is_settled) else {
            return Ok(None);
        };
        #[cfg(test)]
        self.count
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (mut names, mut bytes) = (Some(Vec::new()), 0);
        for entry in directory.entries()? {
            let name = entry?.file_name();
            if !is_shown(&name) {
                continue;
            }
            bytes += cost(&name);
            match &mut names {
                Some(names) if bytes <= self.most => names.push(name),
                _ => {
                    (names, bytes) = (None, 0);
                    break;
                }
            }
        }
        let names = names.map(|mut names| {
            names.sort_unstable();
            Arc::new(Names(names))
        });
        if state_of(directory)? == state {
            self.keep(Reading {
                at: clock::now(),
                state,
                names: names.clone(),
                bytes,
            });
        }
        Ok(names)
    }

    /// The names from an earlier reading of the directory in this state.
    fn known(&self, state: &FileState) -> Option<Option<Arc<Names>>> {
        let now = clock::now();
        let mut readings = self.readings();
        readings.retain(|reading| now.saturating_duration_since(reading.at) < KEPT);
        let mut readings = readings.iter();
        let known = readings.find(|reading| reading.state == *state)?;
        Some(known.names.clone())
    }

    /// Keeps a reading. The oldest readings give way.
    fn keep(&self, reading: Reading) {
        let mut readings = self.readings();
        readings.push(reading);
        while readings.len() > MOST_READINGS
            || readings.iter().map(|reading| reading.bytes).sum::<usize>() > self.most
        {
            readings.remove(0);
        }
    }
}

/// Bytes of memory for a name.
fn cost(name: &OsStr) -> usize {
    /// An allocation is longer than the name by this number of bytes at most.
    const EXCESS: usize = 32;
    name.len() + EXCESS + size_of::<OsString>()
}

fn state_of(directory: &Dir) -> io::Result<FileState> {
    let metadata = directory.try_clone()?.into_std_file().metadata()?;
    Ok(FileState::of(&metadata))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::File;
    use std::thread;

    use cap_std::ambient_authority;

    use super::*;

    fn count(recent: &RecentNames) -> usize {
        recent.count.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Waits until a change of a directory gets another time.
    fn tick() {
        thread::sleep(Duration::from_millis(20));
    }

    #[test]
    fn an_unchanged_directory_is_read_once() {
        let root = tempfile::tempdir().unwrap();
        let directory = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        let recent = RecentNames::settled();
        let add = |name: &str| drop(File::create(root.path().join(name)).unwrap());
        let of = |after: Option<&str>| {
            let names = recent.of(&directory, |name| name != "hidden").unwrap();
            names.unwrap().after(after.map(OsStr::new)).to_vec()
        };
        for name in ["c", "a", "hidden", "b"] {
            add(name);
        }
        tick();
        assert_eq!(of(None), ["a", "b", "c"]);
        assert_eq!(of(Some("a")), ["b", "c"]);
        assert_eq!(of(Some("bb")), ["c"]);
        assert_eq!((of(Some("c")).len(), count(&recent)), (0, 1));
        add("d");
        assert_eq!(of(Some("b")), ["c", "d"]);
        assert_eq!(count(&recent), 2);
        for reading in recent.readings().iter_mut() {
            reading.at = clock::now().checked_sub(KEPT).unwrap();
        }
        assert_eq!((of(Some("c")).len(), count(&recent)), (1, 3));
        // Another reading does not wait.
        let _reading = recent.is_reading.lock().unwrap();
        assert_eq!(of(Some("c")).len(), 1);
        std::fs::remove_file(root.path().join("a")).unwrap();
        assert!(recent.of(&directory, |_| true).unwrap().is_none());
    }

    #[test]
    fn names_of_a_directory_in_change_are_not_kept() {
        let root = tempfile::tempdir().unwrap();
        let directory = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        let recent = RecentNames::default();
        assert!(recent.of(&directory, |_| true).unwrap().is_none());
        assert_eq!(count(&recent), 0);
    }

    #[test]
    fn a_directory_with_too_many_names_is_not_kept() {
        let root = tempfile::tempdir().unwrap();
        let directory = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        for number in 0..5 {
            File::create(root.path().join(format!("{number}"))).unwrap();
        }
        tick();
        let one = cost(OsStr::new("0"));
        for (most, is_kept) in [(5 * one, true), (5 * one - 1, false)] {
            let recent = RecentNames {
                most,
                ..RecentNames::settled()
            };
            let names = recent.of(&directory, |_| true).unwrap();
            assert_eq!(names.is_some(), is_kept);
            let bytes: usize = recent.readings().iter().map(|kept| kept.bytes).sum();
            assert_eq!(bytes, if is_kept { most } else { 0 });
        }
    }

    #[test]
    fn names_of_directories_are_bounded() {
        let recent = RecentNames::settled();
        let reading = |number: u64, bytes| Reading {
            at: clock::now(),
            state: FileState {
                length: number,
                ..FileState::default()
            },
            names: Some(Arc::new(Names(Vec::new()))),
            bytes,
        };
        let lengths = || {
            let readings = recent.readings();
            let lengths = readings.iter().map(|reading| reading.state.length);
            lengths.collect::<Vec<_>>()
        };
        for number in 0..4 {
            recent.keep(reading(number, MOST / 2));
        }
        assert_eq!(lengths(), [2, 3]);
        for number in 0..2 * MOST_READINGS {
            recent.keep(reading(number as u64, 0));
        }
        assert_eq!(lengths().len(), MOST_READINGS);
    }
}
