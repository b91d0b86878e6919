//! Tokens by which servers recognise this client's address (RFC 9000 section 8.1.3).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use mpquic_tokio::TokenStore;
use sha2::{Digest, Sha256};

use crate::process::clock;
use crate::process::state;
use crate::text::hex;

/// The lifetime of tokens of mpquic servers.
const LIFETIME: Duration = Duration::from_secs(14 * 24 * 3600);
/// Tokens kept for one server, and in all.
const MOST_OF_SERVER: usize = 2;
const MOST: usize = 256;

/// A directory with a file for each token, named by the hash of the server's name and the time in
/// milliseconds since 1970. The run that removes a file has its token, so no token is used twice
/// (RFC 9000 section 8.1.3), with any number of runs.
#[derive(Debug)]
pub(super) struct KeptTokens {
    directory: PathBuf,
    /// Those of this run: name of the server and token, the latest last.
    new: Mutex<Vec<(String, Bytes)>>,
}

impl KeptTokens {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.join("tokens"),
            new: Mutex::default(),
        }
    }

    /// Writes this run's unused tokens.
    pub(super) fn keep(&self) -> io::Result<()> {
        let new = std::mem::take(&mut *self.lock());
        if new.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&self.directory)?;
        for (number, (server, token)) in new.iter().enumerate() {
            let process = std::process::id();
            let name = format!("{}.{:015}.{process}.{number}", hash(server), now());
            // A run that reads a half-written file has wasted the token: servers refuse parts.
            state::create_private(&self.directory.join(name))?.write_all(token)?;
        }
        self.clean()
    }

    /// Removes old and surplus tokens.
    fn clean(&self) -> io::Result<()> {
        let files = self.files()?;
        let mut of_server = BTreeMap::<_, usize>::new();
        let mut room = MOST;
        for file in &files {
            let count = of_server.entry(&file.server).or_default();
            *count += 1;
            if room == 0 || *count > MOST_OF_SERVER || file.is_old() {
                self.remove(file)?;
            } else {
                room -= 1;
            }
        }
        Ok(())
    }

    /// All tokens, the latest first.
    fn files(&self) -> io::Result<Vec<TokenFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            files.extend(TokenFile::parse(entry?.file_name()));
        }
        files.sort_by(|one, other| (other.millis, &other.name).cmp(&(one.millis, &one.name)));
        Ok(files)
    }

    /// True if the file still existed.
    fn remove(&self, file: &TokenFile) -> io::Result<bool> {
        match fs::remove_file(self.directory.join(&file.name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn take_kept(&self, server: &str) -> io::Result<Option<Bytes>> {
        let server = hash(server);
        for file in self.files()?.iter().filter(|file| file.server == server) {
            let token = fs::read(self.directory.join(&file.name));
            if self.remove(file)? && !file.is_old() {
                return token.map(|token| Some(token.into()));
            }
        }
        Ok(None)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Bytes)>> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenStore for KeptTokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        let mut new = self.lock();
        let is_of_server = |(server, _): &(String, Bytes)| server == server_name;
        if new.iter().filter(|new| is_of_server(new)).count() == MOST_OF_SERVER
            && let Some(oldest) = new.iter().position(is_of_server)
        {
            new.remove(oldest);
        } else if new.len() == MOST {
            new.remove(0);
        }
        new.push((server_name.to_owned(), token));
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        let mut new = self.lock();
        if let Some(latest) = new.iter().rposition(|(server, _)| server == server_name) {
            return Some(new.remove(latest).1);
        }
        drop(new);
        let kept = self.take_kept(server_name);
        kept.unwrap_or_else(|error| {
            tracing::debug!(%error, "no token");
            None
        })
    }
}

/// The name of a file, and what it says.
#[derive(Debug)]
struct TokenFile {
    name: OsString,
    server: String,
    millis: u64,
}

impl TokenFile {
    /// `None` for foreign files.
    fn parse(name: OsString) -> Option<Self> {
        let (server, rest) = name.to_str()?.split_once('.')?;
        let (millis, _) = rest.split_once('.')?;
        let (server, millis) = (server.to_owned(), millis.parse().ok()?);
        Some(Self {
            name,
            server,
            millis,
        })
    }

    fn is_old(&self) -> bool {
        now().saturating_sub(self.millis) >= LIFETIME.as_millis() as u64
    }
}

/// The time of day, milliseconds since 1970.
fn now() -> u64 {
    let now = clock::time_of_day().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_millis() as u64
}

/// Names of servers have characters that names of files cannot have everywhere.
fn hash(server: &str) -> String {
    hex::hex(&Sha256::digest(server)[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(tokens: &KeptTokens, server: &str) -> Option<Vec<u8>> {
        tokens.take(server).map(|token| token.to_vec())
    }

    fn insert(tokens: &KeptTokens, server: &str, token: &'static [u8]) {
        tokens.insert(server, Bytes::from_static(token));
    }

    #[test]
    fn token_is_used_by_one_run_once() {
        let directory = tempfile::tempdir().unwrap();
        let run = || KeptTokens::new(directory.path());
        let (one, two, three) = (run(), run(), run());
        assert_eq!(take(&one, "a"), None);
        for (server, token) in [("a", b"first"), ("::1", b"other"), ("a", b"later")] {
            insert(&one, server, token);
        }
        one.keep().unwrap();
        one.keep().unwrap();
        assert_eq!(take(&two, "b"), None);
        let mut both = [take(&two, "a").unwrap(), take(&three, "a").unwrap()];
        both.sort();
        assert_eq!(both, [b"first".to_vec(), b"later".to_vec()]);
        assert_eq!((take(&two, "a"), take(&one, "a")), (None, None));
        assert_eq!(take(&three, "::1").unwrap(), b"other");
        assert_eq!(run().files().unwrap().len(), 0);
    }

    /// Whoever removes the file has the token.
    #[test]
    fn token_taken_by_another_run_is_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = KeptTokens::new(directory.path());
        insert(&tokens, "a", b"token");
        tokens.keep().unwrap();
        let file = tokens.files().unwrap().remove(0);
        assert!(tokens.remove(&file).unwrap());
        assert!(!tokens.remove(&file).unwrap(), "it is gone");
        // Only files are removed.
        fs::create_dir(tokens.directory.join(&file.name)).unwrap();
        assert!(tokens.remove(&file).is_err());
    }

    #[test]
    fn the_latest_token_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = KeptTokens::new(directory.path());
        insert(&tokens, "a", b"kept");
        tokens.keep().unwrap();
        for token in [b"1", b"2", b"3"] {
            insert(&tokens, "a", token);
        }
        // Two for each server, those of this run first.
        let taken: Vec<_> = std::iter::from_fn(|| take(&tokens, "a")).collect();
        assert_eq!(taken, [b"3".to_vec(), b"2".to_vec(), b"kept".to_vec()]);
    }

    #[test]
    fn tokens_are_bounded_and_end() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = KeptTokens::new(directory.path());
        let old = format!("{}.{:015}.1.0", hash("old"), now() - 14 * 24 * 3_600_000);
        let stranger = tokens.directory.join("README");
        fs::create_dir_all(&tokens.directory).unwrap();
        for name in [&tokens.directory.join(&old), &stranger] {
            fs::write(name, "x").unwrap();
        }
        for server in 0..=MOST {
            insert(&tokens, &server.to_string(), b"x");
        }
        assert_eq!(tokens.lock().len(), MOST);
        tokens.keep().unwrap();
        assert_eq!(tokens.files().unwrap().len(), MOST, "the old one is gone");
        for token in [b"1", b"2"] {
            insert(&tokens, "a", token);
            tokens.keep().unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        insert(&tokens, "a", b"3");
        tokens.keep().unwrap();
        let files = tokens.files().unwrap();
        let of_a = files.iter().filter(|file| file.server == hash("a")).count();
        assert_eq!((files.len(), of_a), (MOST, MOST_OF_SERVER));
        assert!(stranger.exists(), "what is not ours stays");
        fs::write(tokens.directory.join(old), "x").unwrap();
        assert_eq!(take(&tokens, "old"), None);
    }

    #[test]
    fn a_token_ends_when_its_time_is_over() {
        let lifetime = LIFETIME.as_millis() as u64;
        let is_old = |age| {
            let millis = now() - age;
            let name = format!("server.{millis}.1.0");
            TokenFile::parse(name.into()).unwrap().is_old()
        };
        assert!((0..100).all(|_| is_old(lifetime)));
        assert!(!is_old(lifetime - 60_000));
    }

    #[test]
    fn latest_kept_token_is_used_first() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = KeptTokens::new(directory.path());
        fs::create_dir_all(&tokens.directory).unwrap();
        let second = now() / 1000;
        // In an order that no directory has of its own accord.
        for age in [3, 1, 4, 0, 5, 2, 6] {
            let name = format!("{}.{:015}.1.0", hash("a"), 1000 * (second - age));
            fs::write(tokens.directory.join(name), age.to_string()).unwrap();
        }
        let taken: Vec<_> = std::iter::from_fn(|| take(&tokens, "a")).collect();
        let expected = ["0", "1", "2", "3", "4", "5", "6"].map(|age| age.as_bytes().to_vec());
        assert_eq!(taken, expected);
    }

    /// With too many servers, the oldest server goes; of one server, its oldest token.
    #[test]
    fn the_oldest_makes_room() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = KeptTokens::new(directory.path());
        for server in 0..=MOST {
            insert(&tokens, &server.to_string(), b"x");
        }
        assert_eq!((take(&tokens, "0"), tokens.lock().len()), (None, MOST));
        for server in ["1", "256"] {
            assert_eq!(take(&tokens, server).unwrap(), b"x", "{server}");
        }
        // File names have this length for every server name.
        assert_eq!(hash("a").len(), 32);
    }
}
