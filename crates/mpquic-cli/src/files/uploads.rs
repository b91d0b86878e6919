//! What all uploads to one directory have in common: who writes which unfinished file, how long those
//! that nobody writes are kept, and how much clients may store.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use tokio::sync::oneshot;

use crate::files::beneath::{Root, options};
use crate::files::unfinished::{Token, is_unfinished, lock};
use crate::process::clock;

/// How long an unfinished file waits for its client.
pub(crate) const KEPT: Duration = Duration::from_secs(10 * 60);
/// Unfinished files that wait at a time. The oldest one gives way.
const MAX_KEPT: usize = 64;
/// What a name counts for besides the content, bytes: about what it takes up.
pub(crate) const NAME: u64 = 4096;

/// The uploads to a directory.
#[derive(Debug)]
pub(crate) struct Uploads {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Who writes an unfinished file that can be resumed.
    claims: HashMap<Token, (u64, oneshot::Sender<()>)>,
    count: u64,
    /// Those that nobody writes, in the order of their time.
    kept: VecDeque<Kept>,
    /// Bytes that may still be stored.
    room: u64,
}

#[derive(Debug)]
struct Kept {
    since: Instant,
    /// Its directory, beneath the root.
    directory: PathBuf,
    token: Token,
    /// What it counts for.
    bytes: u64,
}

/// The right to write an unfinished file.
#[derive(Debug)]
pub(crate) struct Claim {
    uploads: Arc<Uploads>,
    token: Token,
    number: u64,
    taken: oneshot::Receiver<()>,
}

impl Claim {
    /// Waits until somebody else has it: the client resumes its upload in another request.
    pub(crate) async fn taken(&mut self) {
        let _ = (&mut self.taken).await;
    }

    /// The file stays for a while: its client may resume.
    pub(crate) fn keep(&self, directory: PathBuf, bytes: u64) {
        self.uploads.keep(directory, self.token.clone(), bytes);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.uploads.state();
        let is_ours = |claim: &(u64, _)| claim.0 == self.number;
        if state.claims.get(&self.token).is_some_and(is_ours) {
            state.claims.remove(&self.token);
        }
    }
}

impl Uploads {
    /// Clients may store so many bytes in all.
    pub(crate) fn new(root: PathBuf, room: u64) -> Arc<Self> {
        let state = State {
            claims: HashMap::new(),
            count: 0,
            kept: VecDeque::new(),
            room,
        };
        Arc::new(Self {
            root,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an unfinished file from whoever writes it.
    pub(crate) fn claim(self: &Arc<Self>, token: Token) -> Claim {
        let (sender, taken) = oneshot::channel();
        let mut state = self.state();
        state.count += 1;
        let number = state.count;
        state.claims.insert(token.clone(), (number, sender));
        drop(state);
        Claim {
            uploads: self.clone(),
            token,
            number,
            taken,
        }
    }

    /// Counts bytes that are stored; false if that were too many.
    pub(crate) fn take_room(&self, bytes: u64) -> bool {
        let mut state = self.state();
        let left = state.room.checked_sub(bytes);
        state.room = left.unwrap_or(state.room);
        left.is_some()
    }

    /// Counts bytes that are not stored any more.
    pub(crate) fn give_back(&self, bytes: u64) {
        let mut state = self.state();
        state.room = state.room.saturating_add(bytes);
    }

    fn keep(&self, directory: PathBuf, token: Token, bytes: u64) {
        let mut state = self.state();
        state.kept.retain(|kept| kept.token != token);
        state.kept.push_back(Kept {
            since: clock::now(),
            directory,
            token,
            bytes,
        });
        let excess = state.kept.len() > MAX_KEPT;
        let oldest = excess.then(|| state.kept.pop_front()).flatten();
        drop(state);
        self.remove(oldest.into_iter().collect());
    }

    /// A client resumes: what the file counts for is its again.
    pub(crate) fn resume(&self, token: &Token) {
        self.state().kept.retain(|kept| kept.token != *token);
    }

    /// Removes what has waited for too long.
    pub(crate) fn expire(&self, now: Instant) {
        let mut state = self.state();
        let mut old = Vec::new();
        while let Some(kept) = state.kept.front()
            && now.saturating_duration_since(kept.since) >= KEPT
        {
            old.extend(state.kept.pop_front());
        }
        drop(state);
        self.remove(old);
    }

    fn remove(&self, old: Vec<Kept>) {
        for kept in old {
            // Gone already, or in a directory that is: all the better.
            let directory = Root::open(&self.root).and_then(|root| root.directory(&kept.directory));
            let _ = directory.and_then(|directory| directory.remove_file(kept.token.file_name()));
            self.give_back(kept.bytes);
        }
    }

    /// Looks for what servers have left that are dead: removes it, unless a client may still resume.
    /// May take long.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let root = Root::open(&self.root)?;
        let mut left = vec![PathBuf::new()];
        while let Some(path) = left.pop() {
            let Ok(directory) = root.directory(&path) else {
                continue;
            };
            let Ok(entries) = directory.entries() else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if kind.is_dir() {
                    left.push(path.join(entry.file_name()));
                } else if kind.is_file() && is_unfinished(&entry.file_name()) {
                    let _ = self.judge(&directory, &path, &entry.file_name());
                }
            }
        }
        Ok(())
    }

    /// Removes or keeps one unfinished file, unless somebody writes it.
    fn judge(&self, directory: &Dir, path: &Path, name: &OsString) -> io::Result<()> {
        let file = directory.open_with(name, options().write(true))?.into_std();
        if !lock(&file) {
            return Ok(());
        }
        let metadata = file.metadata()?;
        let age = clock::time_of_day().duration_since(metadata.modified()?);
        let is_young = age.unwrap_or_default() < KEPT;
        match Token::of_file(name).filter(|_| is_young) {
            Some(token) => {
                let bytes = NAME.saturating_add(metadata.len());
                self.take_room(bytes);
                self.keep(path.to_owned(), token, bytes);
                Ok(())
            }
            None => directory.remove_file_or_symlink(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_dead_servers_left_is_removed_unless_its_client_may_resume() {
        let root = tempfile::tempdir().unwrap();
        let sub = root.path().join("a/b");
        fs::create_dir_all(&sub).unwrap();
        let [young, old] = [(); 2].map(|()| Token::new().unwrap().file_name());
        for name in [".mpquic-put-1-2", &young, &old, "own"] {
            fs::write(sub.join(name), "12345").unwrap();
        }
        let file = File::options().write(true).open(sub.join(&old)).unwrap();
        let before = clock::time_of_day() - KEPT - Duration::from_secs(1);
        file.set_modified(before).unwrap();
        drop(file);
        let held = File::create(root.path().join(".mpquic-put-3-4")).unwrap();
        assert!(lock(&held));
        let uploads = Uploads::new(root.path().to_owned(), u64::MAX);
        uploads.sweep().unwrap();
        assert_eq!(names(&sub), [&*young, "own"]);
        if cfg!(unix) {
            assert_eq!(names(root.path()), [".mpquic-put-3-4", "a"]);
        }
        let now = clock::now();
        uploads.expire(now + KEPT - Duration::from_secs(1));
        assert_eq!(names(&sub), [&*young, "own"]);
        uploads.expire(now + KEPT + Duration::from_secs(1));
        assert_eq!(names(&sub), ["own"]);
    }

    #[test]
    fn few_are_kept_and_the_oldest_gives_way() {
        let root = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(root.path().to_owned(), 1000);
        let mut kept = Vec::new();
        for _ in 0..MAX_KEPT + 2 {
            let token = Token::new().unwrap();
            fs::write(root.path().join(token.file_name()), "1").unwrap();
            assert!(uploads.take_room(1));
            uploads.claim(token.clone()).keep(PathBuf::new(), 1);
            kept.push(token.file_name());
        }
        let mut expected = kept.split_off(2);
        expected.sort();
        assert_eq!(names(root.path()), expected);
        assert!(uploads.take_room(1000 - MAX_KEPT as u64));
        assert!(!uploads.take_room(1));
    }

    #[tokio::test]
    async fn whoever_resumes_takes_over() {
        let uploads = Uploads::new(PathBuf::new(), 0);
        let token = Token::new().unwrap();
        let mut first = uploads.claim(token.clone());
        let mut second = uploads.claim(token.clone());
        first.taken().await;
        drop(first);
        assert!(uploads.state().claims.contains_key(&token));
        let waits = tokio::time::timeout(Duration::from_millis(10), second.taken());
        assert!(waits.await.is_err());
        drop(second);
        assert!(uploads.state().claims.is_empty());
    }
}
