//! What paths carried, for Careful Resume (RFC 9959).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::congestion::SavedCapacity;
use mpquic_tokio::path_memory::{HostPair, PathMemory, RecentPaths};

use super::lines::{Line, Lines};

/// A file whose lines have our address, the other side's, bytes in a round trip, and microseconds of that.
#[derive(Debug)]
pub(super) struct KeptPaths {
    file: Lines,
    /// The lines at the start of this run.
    read: Vec<Line>,
    memory: Arc<RecentPaths>,
}

impl KeptPaths {
    /// Reads what is known.
    pub(super) fn new(directory: &Path) -> Self {
        let file = Lines::new(directory.join("known_paths"));
        let (read, memory) = (file.read(), RecentPaths::default());
        for (route, saved, noted) in read.iter().filter_map(path) {
            memory.save(route, saved, noted);
        }
        Self {
            file,
            read,
            memory: Arc::new(memory),
        }
    }

    /// Where connections look and save.
    pub(super) fn memory(&self) -> Arc<dyn PathMemory> {
        self.memory.clone()
    }

    /// Writes the current knowledge. Rates that turned out too high are also removed from the file.
    pub(super) fn keep(&self) -> io::Result<()> {
        let known = self.memory.all();
        self.file
            .replace(&self.read, known.iter().map(line).collect())
    }
}

fn path(line: &Line) -> Option<(HostPair, SavedCapacity, Instant)> {
    let (window, rtt) = line.known.split_once(' ')?;
    let route = HostPair {
        local: line.local,
        remote: line.remote.parse().ok()?,
    };
    let saved = SavedCapacity {
        window: window.parse().ok()?,
        rtt: Duration::from_micros(rtt.parse().ok()?),
    };
    Some((route, saved, line.noted))
}

fn line((route, saved, noted): &(HostPair, SavedCapacity, Instant)) -> Line {
    Line {
        local: route.local,
        remote: route.remote.to_string(),
        known: format!("{} {}", saved.window, saved.rtt.as_micros()),
        noted: *noted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::clock;

    fn route(local: u8) -> HostPair {
        HostPair {
            local: [10, 0, 0, local].into(),
            remote: [192, 0, 2, 1].into(),
        }
    }

    fn saved(window: u64) -> SavedCapacity {
        let rtt = Duration::from_millis(600);
        SavedCapacity { window, rtt }
    }

    #[test]
    fn paths_go_on_with_what_they_carried() {
        let directory = tempfile::tempdir().unwrap();
        let (now, kept) = (clock::now(), || KeptPaths::new(directory.path()));
        let (one, two) = (kept(), kept());
        one.memory().save(route(1), saved(1_000_000), now);
        one.memory().save(route(2), saved(2_000_000), now);
        one.keep().unwrap();
        two.memory().save(route(3), saved(3_000_000), now);
        two.keep().unwrap();
        let next = kept();
        for (local, window) in [(1, 1_000_000), (2, 2_000_000), (3, 3_000_000)] {
            assert_eq!(next.memory().load(route(local), now), Some(saved(window)));
        }
        // It was too much.
        next.memory().forget(route(2));
        next.memory().save(route(1), saved(500_000), now);
        next.keep().unwrap();
        let last = kept();
        let known = [1, 2, 3].map(|local| last.memory().load(route(local), now));
        assert_eq!(known, [Some(saved(500_000)), None, Some(saved(3_000_000))]);
    }

    #[test]
    fn invalid_path_lines_are_ignored() {
        let line = |remote: &str, known: &str| Line {
            local: [10, 0, 0, 1].into(),
            remote: remote.to_owned(),
            known: known.to_owned(),
            noted: clock::now(),
        };
        assert!(path(&line("192.0.2.1", "5 6")).is_some());
        for (remote, known) in [
            ("192.0.2.1:1", "5 6"),
            ("192.0.2.1", "5"),
            ("192.0.2.1", "5 6 7"),
            ("192.0.2.1", "-5 6"),
        ] {
            assert_eq!(path(&line(remote, known)), None, "{remote} {known}");
        }
    }
}
