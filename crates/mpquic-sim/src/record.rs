//! Records: files with the results of code in repeatable worlds. Other tests check that results are
//! right; a record shows every changed result. So a change to the code shows all its effects, and a
//! person accepts the new results on purpose.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// A hash (FNV-1a) of a sequence of numbers.
///
/// ```
/// let mut hash = mpquic_sim::record::Hash::default();
/// hash.add(1);
/// assert_ne!(hash.value(), mpquic_sim::record::Hash::default().value());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds a number.
    pub fn add(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Adds bytes of variable length, together with their number.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
        self.add(bytes.len() as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The hash of the numbers so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Compares a record with a recorded file, line by line. The part of a line before its colon is the
/// key of the line. With the environment variable `ACCEPT_RECORDS`, the function first writes the
/// file.
///
/// # Errors
///
/// The lines that differ, with old and new content, or the reason why the file could not be
/// written.
pub fn compare(file: impl AsRef<Path>, now: &str) -> Result<(), String> {
    compare_or_accept(file.as_ref(), now, env::var_os("ACCEPT_RECORDS").is_some())
}

fn compare_or_accept(file: &Path, now: &str, is_accepted: bool) -> Result<(), String> {
    if is_accepted {
        fs::write(file, now).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let before = fs::read_to_string(file).unwrap_or_default();
    let changes = changes(&before, now);
    if changes.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "other than in {}; tools/accept takes the new results over:\n{changes}",
            file.display()
        ))
    }
}

fn changes(before: &str, now: &str) -> String {
    fn about(line: &str) -> Option<&str> {
        line.split(':').next()
    }
    let mut changes = String::new();
    for line in now.lines() {
        let mut same = before.lines().filter(|old| about(old) == about(line));
        match same.next() {
            Some(old) if old == line => {}
            old => {
                let old = old.unwrap_or("not there");
                let _ = writeln!(changes, "was {old}\nnow {line}");
            }
        }
    }
    for old in before.lines() {
        if !now.lines().any(|line| about(line) == about(old)) {
            let _ = writeln!(changes, "was {old}\nnow not there");
        }
    }
    let (were, are) = (before.lines().count(), now.lines().count());
    if changes.is_empty() && were != are {
        let _ = writeln!(changes, "was {were} lines\nnow {are}");
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_added_and_removed_lines_are_reported() {
        let before = "a: 1\nb: 2\nc: 3\n";
        assert_eq!(changes(before, before), "");
        let now = "b: 4\nc: 3\nd: 5\n";
        let expected = "was b: 2\nnow b: 4\nwas not there\nnow d: 5\nwas a: 1\nnow not there\n";
        assert_eq!(changes(before, now), expected);
    }

    #[test]
    fn repeated_line_is_reported() {
        assert_eq!(changes("a: 1\na: 1\n", "a: 1\n"), "was 2 lines\nnow 1\n");
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // The hash of "a" and seven zero bytes: the known value for "a", multiplied by the prime
        // for each zero byte.
        let mut hash = Hash::default();
        hash.add(u64::from(b'a'));
        let prime = 0x0100_0000_01b3_u64;
        let expected = 0xaf63_dc4c_8601_ec8c_u64.wrapping_mul(prime.wrapping_pow(7));
        assert_eq!(hash.value(), expected);
    }

    #[test]
    fn record_is_written_only_if_it_is_accepted() {
        let name = format!("mpquic-record-{}.txt", std::process::id());
        let file = env::temp_dir().join(name);
        let error = compare_or_accept(&file, "a: 1\n", false).unwrap_err();
        let expected = format!(
            "other than in {}; tools/accept takes the new results over:\nwas not there\nnow a: 1\n",
            file.display()
        );
        assert_eq!(error, expected);
        assert_eq!(compare_or_accept(&file, "a: 1\n", true), Ok(()));
        assert_eq!(compare_or_accept(&file, "a: 1\n", false), Ok(()));
        assert!(compare_or_accept(&file, "a: 2\n", false).is_err());
        fs::remove_file(&file).unwrap();
        let nowhere = file.join("below a file");
        assert!(compare_or_accept(&nowhere, "a: 1\n", true).is_err());
    }

    #[test]
    fn hash_of_bytes_includes_their_number() {
        let of = |parts: &[&[u8]]| {
            let mut hash = Hash::default();
            parts.iter().for_each(|part| hash.add_bytes(part));
            hash.value()
        };
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        let mut expected = Hash::default();
        expected.bytes(b"ab");
        expected.add(2);
        assert_eq!(of(&[b"ab"]), expected.value());
    }
}
