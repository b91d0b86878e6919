//! Files of lines that have a time.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mpquic_tokio::path_memory::LIFETIME;

use crate::process::clock;
use crate::process::state;

/// Lines kept at most.
const MOST: usize = 256;

/// Knowledge about a pair of addresses, local and remote, with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) local: IpAddr,
    /// An IP address, with or without a port.
    pub(super) remote: String,
    /// One or more words.
    pub(super) known: String,
    pub(super) noted: Instant,
}

impl Line {
    /// `None` for what is no line, or too old.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (local, remote) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        let mut known: Vec<_> = words.collect();
        let millis = known.pop().filter(|_| !known.is_empty())?.parse().ok()?;
        let noted = UNIX_EPOCH.checked_add(Duration::from_millis(millis))?;
        // The clock may have been set back since.
        let age = clock::time_of_day()
            .duration_since(noted)
            .unwrap_or_default();
        let noted = clock::now().checked_sub(age).filter(|_| age < LIFETIME)?;
        Some(Self {
            local,
            remote,
            known: known.join(" "),
            noted,
        })
    }

    fn text(&self) -> String {
        let age = clock::now().saturating_duration_since(self.noted);
        let noted = clock::time_of_day().checked_sub(age);
        let noted = noted
            .unwrap_or(SystemTime::UNIX_EPOCH)
            .duration_since(UNIX_EPOCH);
        let noted = noted.unwrap_or_default().as_millis();
        format!("{} {} {} {noted}\n", self.local, self.remote, self.known)
    }

    fn is_of(&self, other: &Self) -> bool {
        (self.local, &self.remote) == (other.local, &other.remote)
    }
}

/// A file with a line for each pair of addresses: both, what is known of them, and the time of day in
/// milliseconds since 1970. Lines are good for an hour.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
}

impl Lines {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// All lines, the latest last.
    pub(super) fn read(&self) -> Vec<Line> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().filter_map(Line::parse).collect()
    }

    /// Takes out lines of the pairs of `old` and of `new`, and adds those of `new`, but for what stays in this machine.
    pub(super) fn replace(&self, old: &[Line], new: Vec<Line>) -> io::Result<()> {
        let is_here = |line: &Line| line.local.is_loopback();
        let new: Vec<_> = new.into_iter().filter(|line| !is_here(line)).collect();
        // Lines of other runs stay. If another run writes at the same time, one of the two changes
        // is lost.
        let before = self.read();
        let is_replaced = |line: &Line| old.iter().chain(&new).any(|other| line.is_of(other));
        let mut all: Vec<_> = before.iter().filter(|line| !is_replaced(line)).collect();
        if all.len() == before.len() && new.is_empty() {
            return Ok(());
        }
        all.extend(&new);
        let from = all.len().saturating_sub(MOST);
        let text: String = all[from..].iter().map(|line| line.text()).collect();
        self.write(&text)
    }

    /// Replaces the file in one piece.
    fn write(&self, text: &str) -> io::Result<()> {
        fs::create_dir_all(self.path.parent().unwrap_or(Path::new(".")))?;
        let new = self
            .path
            .with_extension(format!("{}.new", std::process::id()));
        let mut file = state::create_private(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, Lines) {
        let directory = tempfile::tempdir().unwrap();
        let lines = Lines::new(directory.path().join("a/known"));
        (directory, lines)
    }

    fn line(local: u8, known: &str) -> Line {
        Line {
            local: [10, 0, local, 1].into(),
            remote: "192.0.2.1:443".to_owned(),
            known: known.to_owned(),
            noted: clock::now(),
        }
    }

    fn found(lines: &Lines) -> Vec<(String, String)> {
        let lines = lines.read().into_iter();
        lines
            .map(|line| (line.local.to_string(), line.known))
            .collect()
    }

    #[test]
    fn lines_last_until_others_are_written() {
        let (_directory, lines) = file();
        assert_eq!(found(&lines), []);
        let (one, two) = (line(1, "600"), line(2, "silent"));
        lines.replace(&[], vec![one.clone(), two.clone()]).unwrap();
        let pair = |local: u8, known: &str| (format!("10.0.{local}.1"), known.to_owned());
        assert_eq!(found(&lines), [pair(1, "600"), pair(2, "silent")]);
        lines
            .replace(&[], vec![line(3, "7 8"), line(1, "9")])
            .unwrap();
        assert_eq!(
            found(&lines),
            [pair(2, "silent"), pair(3, "7 8"), pair(1, "9")]
        );
        lines.replace(&[one, line(4, "-")], vec![]).unwrap();
        assert_eq!(found(&lines), [pair(2, "silent"), pair(3, "7 8")]);
        let left = fs::read_dir(lines.path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "nothing but the file");
        for local in 0..=255 {
            lines.replace(&[], vec![line(local, "1")]).unwrap();
        }
        let mut other = line(0, "1");
        other.local = [10, 1, 0, 1].into();
        lines.replace(&[], vec![other]).unwrap();
        let all = found(&lines);
        assert_eq!((all.len(), all[0].0.as_str()), (MOST, "10.0.1.1"));
    }

    #[test]
    fn addresses_of_this_machine_are_not_kept() {
        let (_directory, lines) = file();
        let mut local = line(1, "1");
        local.local = [127, 0, 0, 1].into();
        lines.replace(&[], vec![local]).unwrap();
        assert!(!lines.path.exists());
    }

    #[test]
    #[cfg(unix)]
    fn files_are_for_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, lines) = file();
        lines.replace(&[], vec![line(1, "1")]).unwrap();
        let mode = fs::metadata(&lines.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn old_and_damaged_lines_are_ignored() {
        let now = clock::time_of_day().duration_since(UNIX_EPOCH).unwrap();
        let at = |age: Duration| (now - age).as_millis();
        let minute = Duration::from_secs(60);
        for (text, is_known) in [
            (
                format!("10.0.0.1 192.0.2.1:1 5 {}", at(LIFETIME - minute)),
                true,
            ),
            (format!("10.0.0.1 192.0.2.1:1 5 {}", at(LIFETIME)), false),
            (format!("10.0.0.1 192.0.2.1:1 5 6 {}", at(minute)), true),
            // The clock was set back.
            (
                format!("::1 [::2]:1 5 {}", (now + minute).as_millis()),
                true,
            ),
            (format!("10.0.0.1 192.0.2.1:1 5 {}", u64::MAX), true),
            (format!("10.0.0.1 192.0.2.1:1 5 x{}", at(minute)), false),
            (format!("10.0.0.1 192.0.2.1:1 {}", at(minute)), false),
            (format!("here 192.0.2.1:1 5 {}", at(minute)), false),
            ("10.0.0.1 192.0.2.1:1 5 ".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(Line::parse(&text).is_some(), is_known, "{text}");
        }
    }
}
