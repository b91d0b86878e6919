//! The common state of all uploads to one directory: the writers of unfinished files, the abandoned
//! files that wait for their clients, and the bytes that clients have stored.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use mpquic_proxy::shares::{Holding, Pool, Rules, Taker};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::files::beneath::{Root, is_only_name, options};
use crate::files::turns::{Turn, Turns};
use crate::files::unfinished::{Token, is_unfinished, lock};
use crate::files::upload_note;
use crate::process::clock;

/// Time that an unfinished file waits for its client.
pub(crate) const KEPT: Duration = Duration::from_secs(10 * 60);
/// Least bytes of an unfinished file that waits. A client that has sent fewer may not have heard of
/// its upload yet, and to send these bytes again takes no longer than to ask for their number.
pub(crate) const LEAST_KEPT: u64 = 64 << 10;
/// Most unfinished files that wait. Clients share this number: a further file replaces the oldest
/// file of its own client, or of the client with most.
const MAX_KEPT: u64 = 64;
/// Places of unfinished files for each client, also in times of few free places.
const KEPT_FLOOR: u64 = 8;
/// Bytes that count for a name besides the content: about its space on the disk.
pub(crate) const NAME: u64 = 4096;

/// Most stored files whose counted bytes are remembered: 50 MB of memory.
const MAX_COUNTED: usize = 1 << 20;

/// The uploads to a directory.
#[derive(Debug)]
pub(crate) struct Uploads {
    root: PathBuf,
    state: Mutex<State>,
    turns: Turns,
}

#[derive(Debug)]
struct State {
    /// The claim on each unfinished file that can be resumed: its number, and a channel to the
    /// writer.
    claims: HashMap<Token, (u64, oneshot::Sender<()>)>,
    count: u64,
    /// Unfinished files without a writer, the oldest first.
    kept: VecDeque<Kept>,
    /// The places of waiting files.
    places: Pool,
    /// The limit of all uploads together, and the rest of this limit, bytes.
    total: u64,
    room: u64,
    /// The counted bytes of each stored file, by a hash of its path beneath the root.
    counted: HashMap<[u8; 16], u64>,
    /// The limit of each client, bytes.
    quota: u64,
    /// Stored bytes of each client.
    stored: BTreeMap<Taker, u64>,
}

#[derive(Debug)]
struct Kept {
    since: Instant,
    /// The file's directory, beneath the root.
    directory: PathBuf,
    token: Token,
    /// The counted bytes, and the client whose quota counts them.
    bytes: u64,
    taker: Option<Taker>,
    /// `None` before the file has its place.
    place: Option<Holding>,
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
    /// Waits for a newer claim: the client resumes its upload in another request.
    pub(crate) async fn taken(&mut self) {
        let _ = (&mut self.taken).await;
    }

    /// Keeps the file for a while, because its client may resume.
    pub(crate) fn keep(&self, directory: PathBuf, taker: Option<Taker>, bytes: u64) {
        let kept = Kept {
            since: clock::now(),
            directory,
            token: self.token.clone(),
            bytes,
            taker,
            place: None,
        };
        self.uploads.keep(kept);
    }
}

impl Kept {
    /// The client whose share of the places the file takes. The client of an earlier server's file
    /// is unknown, so the file counts for itself.
    fn owner(&self) -> Taker {
        let unknown = || Taker::User(self.token.as_str().into());
        self.taker.clone().unwrap_or_else(unknown)
    }

    fn gives_way(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.place.as_ref().is_some_and(|place| {
            // The budget of a busy task must not hide the end.
            let ends = pin!(tokio::task::unconstrained(place.ends()));
            ends.poll(&mut context).is_ready()
        })
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

impl State {
    /// Counts bytes for a client; false beyond its quota. Without a quota, no client is remembered.
    fn charge(&mut self, taker: Option<&Taker>, bytes: u64) -> bool {
        let may = bytes <= self.quota_left(taker);
        if let Some(taker) = taker.filter(|_| may && self.quota < u64::MAX) {
            *self.stored.entry(taker.clone()).or_default() += bytes;
        }
        may
    }

    /// Bytes that a client may still store under the limit of each client.
    fn quota_left(&self, taker: Option<&Taker>) -> u64 {
        let Some(taker) = taker else {
            return u64::MAX;
        };
        let stored = self.stored.get(taker).copied().unwrap_or_default();
        self.quota.saturating_sub(stored)
    }

    /// Gives a file a place among the waiting files. Returns the files without a place, perhaps
    /// also the new file.
    fn keep(&mut self, mut kept: Kept) -> Vec<Kept> {
        let mut gone = Vec::new();
        let taker = kept.owner();
        kept.place = loop {
            let place = self.places.try_take(&taker, 1);
            let is_own = |other: &Kept| other.owner() == taker;
            match self
                .kept
                .iter()
                .position(is_own)
                .filter(|_| place.is_none())
            {
                Some(oldest) => gone.extend(self.kept.remove(oldest).map(|mut oldest| {
                    oldest.place = None;
                    oldest
                })),
                None => break place,
            }
        };
        match kept.place {
            Some(_) => self.kept.push_back(kept),
            None => gone.push(kept),
        }
        let kept = self.kept.drain(..);
        let (ended, kept): (VecDeque<_>, VecDeque<_>) = kept.partition(Kept::gives_way);
        self.kept = kept;
        gone.extend(ended);
        gone
    }

    fn free(&mut self, bytes: u64) {
        self.room = self.room.saturating_add(bytes).min(self.total);
    }

    fn discharge(&mut self, taker: Option<&Taker>, bytes: u64) {
        let Some(taker) = taker else {
            return;
        };
        if let Some(stored) = self.stored.get_mut(taker) {
            *stored = stored.saturating_sub(bytes);
            if *stored == 0 {
                self.stored.remove(taker);
            }
        }
    }
}

impl Uploads {
    /// Uploads to a directory, where clients may store `room` bytes in all.
    pub(crate) fn new(root: PathBuf, room: u64) -> Arc<Self> {
        let state = State {
            claims: HashMap::new(),
            count: 0,
            kept: VecDeque::new(),
            places: Pool::new(Rules {
                capacity: MAX_KEPT,
                floor: KEPT_FLOOR,
                grace: Duration::ZERO,
                window: Duration::MAX,
            }),
            total: room,
            room,
            counted: HashMap::new(),
            quota: u64::MAX,
            stored: BTreeMap::new(),
        };
        Arc::new(Self {
            root,
            state: Mutex::new(state),
            turns: Turns::default(),
        })
    }

    /// Opens the directory that a path beneath the root leads to now. The path must have no links.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<Dir> {
        Root::open(&self.root)?.directory(path)
    }

    /// Waits for the turn to give a file its name in this directory beneath the root. The path must
    /// have no links.
    pub(crate) fn turn(&self, directory: PathBuf) -> Turn<'_> {
        self.turns.wait(directory)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims an unfinished file. The earlier claim ends.
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

    /// Sets the limit of each client.
    pub(crate) fn set_quota(&self, bytes: u64) {
        self.state().quota = bytes;
    }

    /// Counts bytes, also for the client if known; false beyond a limit.
    pub(crate) fn take_room(&self, taker: Option<&Taker>, bytes: u64) -> bool {
        let mut state = self.state();
        let Some(left) = state.room.checked_sub(bytes) else {
            return false;
        };
        let may = state.charge(taker, bytes);
        if may {
            state.room = left;
        }
        may
    }

    /// False if so many bytes would exceed a limit now. A client hears of a file that is too large
    /// before it sends the file.
    pub(crate) fn has_room(&self, taker: Option<&Taker>, bytes: u64) -> bool {
        let state = self.state();
        bytes <= state.room && state.quota_left(taker) >= bytes
    }

    /// Undoes the count of bytes that a client did not store.
    pub(crate) fn give_back(&self, taker: Option<&Taker>, bytes: u64) {
        let mut state = self.state();
        state.free(bytes);
        state.discharge(taker, bytes);
    }

    /// Remembers the counted bytes of a file with a name. A replaced upload frees its counted
    /// bytes. Older files never counted, so the replacement of an older file frees nothing. No
    /// client gets quota back: otherwise a client could gain quota by replacing files of other
    /// clients.
    pub(crate) fn count_stored(&self, path: &Path, bytes: u64, has_replaced: bool) {
        let mut state = self.state();
        if state.total == u64::MAX {
            return;
        }
        let mut key = [0; 16];
        let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
        key.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        let before = state.counted.remove(&key);
        if state.counted.len() < MAX_COUNTED {
            state.counted.insert(key, bytes);
        }
        state.free(before.filter(|_| has_replaced).unwrap_or_default());
    }

    fn keep(&self, kept: Kept) {
        let mut state = self.state();
        state.kept.retain(|other| other.token != kept.token);
        let gone = state.keep(kept);
        drop(state);
        self.remove(gone);
    }

    /// Bytes of an unfinished file without a writer; `None` for a file unknown to this server.
    pub(crate) fn length_of(&self, token: &Token) -> Option<u64> {
        let state = self.state();
        let kept = state.kept.iter().find(|kept| kept.token == *token)?;
        Some(kept.bytes.saturating_sub(NAME))
    }

    /// Moves the bytes of an upload to the client that resumes. False beyond the quota of this
    /// client.
    pub(crate) fn resume(&self, token: &Token, taker: Option<&Taker>) -> bool {
        let mut state = self.state();
        let Some(index) = state.kept.iter().position(|kept| kept.token == *token) else {
            return true;
        };
        let (before, bytes) = (state.kept[index].taker.clone(), state.kept[index].bytes);
        state.discharge(before.as_ref(), bytes);
        if !state.charge(taker, bytes) {
            state.charge(before.as_ref(), bytes);
            return false;
        }
        state.kept.remove(index);
        true
    }

    /// Removes files that have waited for [`KEPT`].
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
            // The file or its directory may have gone already.
            let directory = self.directory(&kept.directory);
            if let Ok(directory) = directory {
                let _ = directory.remove_file(kept.token.file_name());
                let _ = directory.remove_file(kept.token.note_name());
            }
            self.give_back(kept.taker.as_ref(), kept.bytes);
        }
    }

    /// Searches for files of dead servers. Removes such files, unless a client may still resume.
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

    /// Removes or keeps one unfinished file without a writer. A kept file is cut to the length in
    /// its note, because later bytes may not have reached the disk.
    fn judge(&self, directory: &Dir, path: &Path, name: &OsString) -> io::Result<()> {
        if let Some(token) = Token::of_note(name) {
            return match directory.symlink_metadata(token.file_name()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    directory.remove_file_or_symlink(name)
                }
                _ => Ok(()),
            };
        }
        let file = directory.open_with(name, options().write(true))?.into_std();
        if !lock(&file) {
            return Ok(());
        }
        if !is_only_name(directory, Path::new(name), &file) {
            // A file with a further name may be the file of another program.
            if let Some(token) = Token::of_file(name) {
                let _ = directory.remove_file(token.note_name());
            }
            return directory.remove_file_or_symlink(name);
        }
        let metadata = file.metadata()?;
        let age = clock::time_of_day().duration_since(metadata.modified()?);
        let is_young = age.unwrap_or_default() < KEPT;
        let token = Token::of_file(name).filter(|_| is_young);
        let noted = token.and_then(|token| {
            let noted = upload_note::read(directory, &token)?;
            Some((noted.length, token))
        });
        match noted.filter(|(length, _)| (LEAST_KEPT..=metadata.len()).contains(length)) {
            Some((length, token)) if self.take_room(None, NAME.saturating_add(length)) => {
                file.set_len(length)?;
                let bytes = NAME.saturating_add(length);
                self.keep(Kept {
                    since: clock::now(),
                    directory: path.to_owned(),
                    token,
                    bytes,
                    taker: None,
                    place: None,
                });
                Ok(())
            }
            _ => {
                if let Some(token) = Token::of_file(name) {
                    let _ = directory.remove_file(token.note_name());
                }
                directory.remove_file_or_symlink(name)
            }
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
    fn files_of_dead_servers_are_removed_unless_their_client_may_resume() {
        let root = tempfile::tempdir().unwrap();
        let sub = root.path().join("a/b");
        fs::create_dir_all(&sub).unwrap();
        let [young, old, without, short, begun, gone] = [(); 6].map(|()| Token::new().unwrap());
        let content = vec![1; LEAST_KEPT as usize + 2];
        for token in [&young, &old, &without, &short, &begun] {
            fs::write(sub.join(token.file_name()), &content).unwrap();
        }
        for (token, noted) in [
            (&young, LEAST_KEPT),
            (&old, LEAST_KEPT + 2),
            (&short, LEAST_KEPT + 3),
            (&begun, LEAST_KEPT - 1),
            (&gone, 0),
        ] {
            fs::write(sub.join(token.note_name()), format!("{noted:020}\n")).unwrap();
        }
        for name in [".mpquic-put-1-2", "own"] {
            fs::write(sub.join(name), "12345").unwrap();
        }
        let old = sub.join(old.file_name());
        let file = File::options().write(true).open(old).unwrap();
        let before = clock::time_of_day() - KEPT - Duration::from_secs(1);
        file.set_modified(before).unwrap();
        drop(file);
        let held = File::create(root.path().join(".mpquic-put-3-4")).unwrap();
        assert!(lock(&held));
        let uploads = Uploads::new(root.path().to_owned(), u64::MAX);
        uploads.sweep().unwrap();
        let kept = [young.file_name(), young.note_name(), "own".to_owned()];
        assert_eq!(names(&sub), kept);
        // Bytes after the length in the note may be zeros.
        let there = fs::read(sub.join(young.file_name())).unwrap();
        assert_eq!(there, content[..content.len() - 2]);
        assert_eq!(uploads.length_of(&young), Some(LEAST_KEPT));
        if cfg!(unix) {
            assert_eq!(names(root.path()), [".mpquic-put-3-4", "a"]);
        }
        let now = clock::now();
        uploads.expire(now + KEPT - Duration::from_secs(1));
        assert_eq!(names(&sub), kept);
        uploads.expire(now + KEPT + Duration::from_secs(1));
        assert_eq!(names(&sub), ["own"]);
    }

    /// A hard link could otherwise make the server cut a foreign file.
    #[cfg(unix)]
    #[test]
    fn a_file_with_a_further_name_is_not_cut() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let token = Token::new().unwrap();
        let content = vec![1; 2 * LEAST_KEPT as usize];
        for name in [token.file_name(), ".mpquic-put-1-2".to_owned()] {
            let theirs = outside.path().join(&name);
            fs::write(&theirs, &content).unwrap();
            fs::hard_link(&theirs, root.path().join(&name)).unwrap();
        }
        let note = root.path().join(token.note_name());
        fs::write(&note, format!("{LEAST_KEPT:020}\n")).unwrap();
        let uploads = Uploads::new(root.path().to_owned(), u64::MAX);
        uploads.sweep().unwrap();
        assert_eq!(names(root.path()), [""; 0]);
        assert_eq!(uploads.length_of(&token), None);
        for name in names(outside.path()) {
            assert!(fs::read(outside.path().join(name)).unwrap() == content);
        }
        assert_eq!(names(outside.path()).len(), 2);
    }

    /// Keeps a file of a client, and returns the name of the file.
    fn keep(uploads: &Arc<Uploads>, taker: Option<&Taker>) -> String {
        let token = Token::new().unwrap();
        fs::write(uploads.root.join(token.file_name()), "1").unwrap();
        assert!(uploads.take_room(taker, 1));
        let claim = uploads.claim(token.clone());
        claim.keep(PathBuf::new(), taker.cloned(), 1);
        token.file_name()
    }

    #[test]
    fn few_are_kept_and_the_oldest_gives_way() {
        let root = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(root.path().to_owned(), 1000);
        let alone = Taker::User("alone".into());
        let kept: Vec<_> = (0..MAX_KEPT)
            .map(|_| keep(&uploads, Some(&alone)))
            .collect();
        // As many places are left for others.
        let mut expected = kept[MAX_KEPT as usize / 2..].to_vec();
        expected.sort();
        assert_eq!(names(root.path()), expected);
        assert!(uploads.take_room(None, 1000 - MAX_KEPT / 2));
        assert!(!uploads.take_room(None, 1));
    }

    #[test]
    fn uploads_of_others_do_not_give_way_to_whoever_has_most() {
        let root = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(root.path().to_owned(), u64::MAX);
        let [greedy, honest] = ["greedy", "honest"].map(|name| Taker::User(name.into()));
        let unknown = keep(&uploads, None);
        let first = keep(&uploads, Some(&honest));
        for _ in 0..3 * MAX_KEPT {
            keep(&uploads, Some(&greedy));
        }
        // Many clients leave no free place, and the greedy client gives way.
        let others = (0..MAX_KEPT / 2).map(|number| Taker::User(number.to_string().into()));
        let mut kept: Vec<_> = others.map(|taker| keep(&uploads, Some(&taker))).collect();
        kept.extend([unknown, first, keep(&uploads, Some(&honest))]);
        let there = names(root.path());
        assert_eq!(there.len() as u64, MAX_KEPT);
        let gone: Vec<_> = kept.iter().filter(|name| !there.contains(name)).collect();
        assert!(gone.is_empty(), "{gone:?}");
    }

    #[test]
    fn each_client_has_a_quota() {
        let uploads = Uploads::new(PathBuf::new(), 1000);
        uploads.set_quota(100);
        let [alice, bob] = ["alice", "bob"].map(|name| Taker::User(name.into()));
        let take = |taker: &Taker, bytes| uploads.take_room(Some(taker), bytes);
        assert!(take(&alice, 100) && !take(&alice, 1) && take(&bob, 60));
        assert!(!take(&alice, 1));
        uploads.give_back(Some(&alice), 40);
        assert!(take(&alice, 40) && !take(&alice, 1));
        // The bytes of an upload count for the client that resumes.
        let token = Token::new().unwrap();
        uploads
            .claim(token.clone())
            .keep(PathBuf::new(), Some(alice.clone()), 50);
        assert!(!uploads.resume(&token, Some(&bob)), "he has 60");
        uploads.give_back(Some(&bob), 20);
        assert!(uploads.resume(&token, Some(&bob)));
        assert!(!take(&bob, 11) && take(&bob, 10) && take(&alice, 50) && !take(&alice, 1));
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
