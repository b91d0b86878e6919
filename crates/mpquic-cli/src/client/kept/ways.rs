//! How long it took to hear of servers from each local address.

use std::io;
use std::path::Path;
use std::time::Duration;

use mpquic_tokio::KnownWay;

use super::lines::{Line, Lines};

/// Stands for a local address without an answer.
const SILENT: &str = "silent";

/// A file whose lines have our address, the server's with its port, and microseconds or `silent`.
#[derive(Debug)]
pub(super) struct KeptWays(Lines);

impl KeptWays {
    pub(super) fn new(directory: &Path) -> Self {
        Self(Lines::new(directory.join("known_ways")))
    }

    /// All entries, the latest last.
    pub(super) fn read(&self) -> Vec<KnownWay> {
        self.0.read().iter().filter_map(way).collect()
    }

    /// Adds ways to those of the file.
    pub(super) fn keep(&self, ways: Vec<KnownWay>) -> io::Result<()> {
        self.0.replace(&[], ways.iter().map(line).collect())
    }
}

fn way(line: &Line) -> Option<KnownWay> {
    let rtt = match line.known.as_str() {
        SILENT => None,
        micros => Some(Duration::from_micros(micros.parse().ok()?)),
    };
    let remote = line.remote.parse().ok()?;
    Some(KnownWay::new(line.local, remote, rtt, line.noted))
}

fn line(way: &KnownWay) -> Line {
    let rtt = way.rtt.map(|rtt| rtt.as_micros().to_string());
    Line {
        local: way.local,
        remote: way.remote.to_string(),
        known: rtt.unwrap_or_else(|| SILENT.to_owned()),
        noted: way.noted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::clock;

    #[test]
    fn kept_ways_survive_a_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let ways = KeptWays::new(directory.path());
        let way = |local: &str, remote: &str, rtt| {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            KnownWay::new(local, remote, rtt, clock::now())
        };
        let kept = vec![
            way("10.0.0.1", "192.0.2.1:443", Some(Duration::from_millis(7))),
            way("2001:db8::1", "[2001:db8::2]:1", None),
        ];
        ways.keep(kept.clone()).unwrap();
        let read = ways.read();
        assert_eq!(read.len(), 2);
        for (read, kept) in read.iter().zip(&kept) {
            let what = |way: &KnownWay| (way.local, way.remote, way.rtt);
            assert_eq!(what(read), what(kept));
        }
    }

    #[test]
    fn invalid_way_lines_are_ignored() {
        let line = |remote: &str, known: &str| Line {
            local: [10, 0, 0, 1].into(),
            remote: remote.to_owned(),
            known: known.to_owned(),
            noted: clock::now(),
        };
        assert!(way(&line("192.0.2.1:1", "5")).is_some());
        for (remote, known) in [
            ("192.0.2.1", "5"),
            ("192.0.2.1:1", "-5"),
            ("192.0.2.1:1", "5 6"),
        ] {
            assert_eq!(way(&line(remote, known)), None, "{remote} {known}");
        }
    }
}
