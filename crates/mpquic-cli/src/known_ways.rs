//! How long it took to hear of servers from each local address, for the runs to come.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mpquic_tokio::KnownWay;

use crate::clock;
use crate::identity;

/// How long a line is good for.
const LIFETIME: Duration = Duration::from_secs(3600);
/// The most lines that are kept.
const MOST: usize = 256;

/// A file with a line for each way: local address, server's address, microseconds or `silent`, and the time of
/// day in milliseconds since 1970. It only saves time: whatever is wrong with it, connections are made.
#[derive(Debug)]
pub(crate) struct KnownWays {
    path: PathBuf,
}

impl KnownWays {
    /// The file of all runs; `None` if the user has no place for it.
    pub(crate) fn of_user() -> Option<Self> {
        let path = identity::state_directory()?.join("known_ways");
        Some(Self { path })
    }

    /// What is known, the latest last.
    pub(crate) fn read(&self) -> Vec<KnownWay> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().filter_map(parse).collect()
    }

    /// Adds ways to those of the file, but for those that stay in this machine.
    pub(crate) fn add(&self, ways: Vec<KnownWay>) -> io::Result<()> {
        let added: Vec<_> = ways
            .into_iter()
            .filter(|way| !way.local.is_loopback())
            .collect();
        if added.is_empty() {
            return Ok(());
        }
        let is_added = |way: &KnownWay| {
            added
                .iter()
                .any(|new| (new.local, new.remote) == (way.local, way.remote))
        };
        // What others have written since this run began stays. If they write now, one of us is lost.
        let mut all = self.read();
        all.retain(|way| !is_added(way));
        all.extend(added);
        let from = all.len().saturating_sub(MOST);
        let text: String = all.iter().skip(from).map(line).collect();
        self.write(&text)
    }

    /// Replaces the file in one piece.
    fn write(&self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let new = directory.join(format!("known_ways.{}.new", std::process::id()));
        let mut file = identity::create_private(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &self.path)
    }
}

/// `None` for what is no line, or too old.
fn parse(line: &str) -> Option<KnownWay> {
    let mut words = line.split_whitespace();
    let (local, remote): (IpAddr, _) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let rtt = match words.next()? {
        "silent" => None,
        micros => Some(Duration::from_micros(micros.parse().ok()?)),
    };
    let noted = UNIX_EPOCH.checked_add(Duration::from_millis(words.next()?.parse().ok()?))?;
    // The clock may have been set back since.
    let age = clock::time_of_day()
        .duration_since(noted)
        .unwrap_or_default();
    let noted = clock::now().checked_sub(age).filter(|_| age < LIFETIME)?;
    Some(KnownWay::new(local, remote, rtt, noted))
}

fn line(way: &KnownWay) -> String {
    let age = clock::now().saturating_duration_since(way.noted);
    let noted = clock::time_of_day().checked_sub(age);
    let noted = noted
        .unwrap_or(SystemTime::UNIX_EPOCH)
        .duration_since(UNIX_EPOCH);
    let rtt = way.rtt.map(|rtt| rtt.as_micros().to_string());
    let rtt = rtt.unwrap_or_else(|| "silent".to_owned());
    let noted = noted.unwrap_or_default().as_millis();
    format!("{} {} {rtt} {noted}\n", way.local, way.remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, KnownWays) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/known_ways");
        (directory, KnownWays { path })
    }

    fn way(local: u8, rtt: Option<u64>) -> KnownWay {
        let ip = IpAddr::from([10, 0, local, 1]);
        let rtt = rtt.map(Duration::from_millis);
        KnownWay::new(ip, "192.0.2.1:443".parse().unwrap(), rtt, clock::now())
    }

    fn found(ways: &KnownWays) -> Vec<(String, Option<Duration>)> {
        let ways = ways.read().into_iter();
        ways.map(|way| (way.local.to_string(), way.rtt)).collect()
    }

    #[test]
    fn ways_last_until_others_are_written() {
        let (_directory, ways) = file();
        assert_eq!(found(&ways), []);
        ways.add(vec![way(1, Some(600)), way(2, None)]).unwrap();
        let ms = |ms| Some(Duration::from_millis(ms));
        let [one, two, three] = [1, 2, 3].map(|local| format!("10.0.{local}.1"));
        assert_eq!(found(&ways), [(one.clone(), ms(600)), (two.clone(), None)]);
        ways.add(vec![way(3, Some(7)), way(1, None)]).unwrap();
        assert_eq!(found(&ways), [(two, None), (three, ms(7)), (one, None)]);
        let left = fs::read_dir(ways.path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "nothing but the file");
        for local in 0..=255 {
            ways.add(vec![way(local, Some(local.into()))]).unwrap();
        }
        ways.add(vec![KnownWay::new(
            [10, 1, 0, 1].into(),
            "192.0.2.1:443".parse().unwrap(),
            None,
            clock::now(),
        )])
        .unwrap();
        let all = found(&ways);
        assert_eq!((all.len(), all[0].0.as_str()), (MOST, "10.0.1.1"));
    }

    #[test]
    fn ways_within_this_machine_are_not_kept() {
        let (_directory, ways) = file();
        let mut local = way(1, None);
        local.local = [127, 0, 0, 1].into();
        ways.add(vec![local]).unwrap();
        assert!(!ways.path.exists());
    }

    #[test]
    fn what_is_old_or_damaged_is_not_known() {
        let now = clock::time_of_day().duration_since(UNIX_EPOCH).unwrap();
        let at = |age: Duration| (now - age).as_millis();
        let minute = Duration::from_secs(60);
        for (text, is_known) in [
            (
                format!("10.0.0.1 192.0.2.1:1 5 {}", at(LIFETIME - minute)),
                true,
            ),
            (format!("10.0.0.1 192.0.2.1:1 5 {}", at(LIFETIME)), false),
            (format!("10.0.0.1 192.0.2.1:1 silent {}", at(minute)), true),
            // The clock was set back.
            (
                format!("::1 [::2]:1 5 {}", (now + minute).as_millis()),
                true,
            ),
            (format!("10.0.0.1 192.0.2.1:1 5 {}", u64::MAX), true),
            (format!("10.0.0.1 192.0.2.1:1 5 x{}", at(minute)), false),
            (format!("10.0.0.1 192.0.2.1:1 -5 {}", at(minute)), false),
            (format!("10.0.0.1 192.0.2.1 5 {}", at(minute)), false),
            (format!("here 192.0.2.1:1 5 {}", at(minute)), false),
            ("10.0.0.1 192.0.2.1:1 5".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(parse(&text).is_some(), is_known, "{text}");
        }
    }
}
