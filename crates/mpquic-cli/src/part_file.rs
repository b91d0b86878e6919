//! A file that is not whole yet: `FILE.part`, and `FILE.part.json` that says what it is a part of.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hex::hex;
use crate::stamp::Stamp;

/// How often it is written down what is there.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// What is written down of a part.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    url: String,
    stamp: Stamp,
    /// So many bytes are there, with this SHA-256.
    bytes: u64,
    sha256: String,
}

/// `FILE.part`, which is renamed to `FILE` once it is complete. Dropped earlier it stays, if a
/// later download can go on with it.
pub(crate) struct PartFile {
    file: File,
    path: PathBuf,
    part: PathBuf,
    note: PathBuf,
    url: String,
    /// The version that the part is of; `None` if it is of no use later.
    stamp: Option<Stamp>,
    bytes: u64,
    hash: Sha256,
    noted: Option<Instant>,
    /// So many bytes a later download can go on with.
    kept: Arc<AtomicU64>,
    finished: bool,
}

/// What a download can begin with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// So many bytes of this version are there.
    pub(crate) have: Option<(u64, Stamp)>,
    /// Why what was there is of no use.
    pub(crate) useless: Option<&'static str>,
}

impl PartFile {
    /// A part of what `url` names. With `resume` it begins with what an earlier download left, if
    /// that is of the same URL and unchanged.
    pub(crate) fn open(path: &Path, url: &str, resume: bool) -> io::Result<(Self, Begun)> {
        let part = with_suffix(path, ".part");
        let note = with_suffix(path, ".part.json");
        let was_there = resume && part.exists();
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(!resume)
            .open(&part)?;
        let mut opened = Self {
            file,
            path: path.to_owned(),
            part,
            note,
            url: url.to_owned(),
            stamp: None,
            bytes: 0,
            hash: Sha256::new(),
            noted: None,
            kept: Arc::default(),
            finished: false,
        };
        let mut begun = Begun::default();
        if was_there {
            match opened.take_up()? {
                Ok(stamp) => begun.have = Some((opened.bytes, stamp)),
                Err(why) => begun.useless = Some(why),
            }
        }
        if begun.have.is_none() {
            opened.restart()?;
        }
        Ok((opened, begun))
    }

    /// Reads what is there, and tells which version it is of, or why it is of no use.
    fn take_up(&mut self) -> io::Result<Result<Stamp, &'static str>> {
        let Ok(text) = fs::read(&self.note) else {
            return Ok(Err("nothing says what it is a part of"));
        };
        let Ok(note) = serde_json::from_slice::<Note>(&text) else {
            return Ok(Err("what says what it is a part of is damaged"));
        };
        if note.url != self.url {
            return Ok(Err("it is a part of something else"));
        }
        let mut left = note.bytes;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let room = buffer.get_mut(..room).unwrap_or_default();
            match self.file.read(room)? {
                0 => break,
                read => {
                    self.hash.update(room.get(..read).unwrap_or_default());
                    left -= read as u64;
                }
            }
        }
        if left > 0 || hex(&self.hash.clone().finalize()) != note.sha256 {
            return Ok(Err("it was changed"));
        }
        // What is behind it was written, but nobody knows whether all of it.
        self.file.set_len(note.bytes)?;
        self.bytes = note.bytes;
        self.stamp = Some(note.stamp.clone());
        self.kept.store(note.bytes, Ordering::Release);
        Ok(Ok(note.stamp))
    }

    /// How many bytes a later download can go on with, now and after this is dropped.
    pub(crate) fn kept(&self) -> Arc<AtomicU64> {
        self.kept.clone()
    }

    /// Forgets what is there.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.stamp = None;
        self.bytes = 0;
        self.hash = Sha256::new();
        self.noted = None;
        self.kept.store(0, Ordering::Release);
        if self.note.exists() {
            fs::remove_file(&self.note)?;
        }
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0)).map(|_| ())
    }

    /// What is written from now on is of this version.
    pub(crate) fn set_stamp(&mut self, stamp: Option<Stamp>) {
        self.stamp = stamp;
    }

    /// Adds bytes. Once in a while it is written down what is there.
    pub(crate) fn write(&mut self, bytes: &[u8], now: Instant) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        if self.noted.is_none_or(|at| now >= at + NOTE_EVERY) {
            self.noted = Some(now);
            self.write_note()?;
        }
        Ok(())
    }

    /// Replaces the note as a whole, so that it is never half of one.
    fn write_note(&self) -> io::Result<()> {
        let Some(stamp) = &self.stamp else {
            return Ok(());
        };
        let note = Note {
            url: self.url.clone(),
            stamp: stamp.clone(),
            bytes: self.bytes,
            sha256: hex(&self.hash.clone().finalize()),
        };
        let new = with_suffix(&self.note, ".new");
        let text = serde_json::to_vec(&note).map_err(io::Error::from)?;
        let written = fs::write(&new, &text).and_then(|()| fs::rename(&new, &self.note));
        if written.is_err() {
            drop(fs::remove_file(&new));
            if self.overwrite_note(&text).is_err() {
                // The one before stays, and is right for what it says.
                return written;
            }
        }
        self.kept.store(self.bytes, Ordering::Release);
        Ok(())
    }

    /// A full disk has no room for another file, but the old note's place is there.
    fn overwrite_note(&self, text: &[u8]) -> io::Result<()> {
        let mut file = File::options().write(true).open(&self.note)?;
        file.write_all(text)?;
        file.set_len(text.len() as u64)
    }

    /// The SHA-256 of what is there, and how much that is.
    pub(crate) fn sum(&self) -> (u64, [u8; 32]) {
        (self.bytes, self.hash.clone().finalize().into())
    }

    /// Gives the file its name.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        fs::rename(&self.part, &self.path)?;
        self.finished = true;
        let _ = fs::remove_file(&self.note);
        Ok(())
    }

    /// Leaves nothing behind.
    pub(crate) fn discard(&mut self) {
        self.stamp = None;
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let is_useful = self.stamp.is_some() && self.bytes > 0;
        if is_useful && (self.write_note().is_ok() || self.note.exists()) {
            return;
        }
        self.kept.store(0, Ordering::Release);
        // If they cannot be removed there is nothing more to do about it.
        let _ = fs::remove_file(&self.part);
        let _ = fs::remove_file(&self.note);
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://host/file";

    fn stamp() -> Stamp {
        Stamp::Etag("\"1\"".to_owned())
    }

    fn now() -> Instant {
        crate::clock::now()
    }

    /// Leaves a part of 3000 bytes.
    fn left(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join("file");
        let (mut part, begun) = PartFile::open(&path, URL, true).unwrap();
        assert_eq!(begun, Begun::default());
        part.set_stamp(Some(stamp()));
        part.write(&[1; 1000], now()).unwrap();
        part.write(&[2; 2000], now()).unwrap();
        path
    }

    #[test]
    fn without_room_for_another_file_the_old_note_is_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let (mut part, _) = PartFile::open(&path, URL, true).unwrap();
        // Nothing can be written there, as on a full disk.
        fs::create_dir(with_suffix(&path, ".part.json.new")).unwrap();
        part.write(&[3; 1_000_000], now()).unwrap();
        let kept = part.kept();
        drop(part);
        assert_eq!(kept.load(Ordering::Acquire), 1_003_000);
        let (_, begun) = PartFile::open(&path, URL, true).unwrap();
        assert_eq!(begun.have, Some((1_003_000, stamp())));
    }

    #[test]
    fn what_was_left_is_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let (mut part, begun) = PartFile::open(&path, URL, true).unwrap();
        assert_eq!(begun.have, Some((3000, stamp())));
        part.write(&[3; 10], now()).unwrap();
        let whole = [vec![1; 1000], vec![2; 2000], vec![3; 10]].concat();
        assert_eq!(part.sum(), (3010, Sha256::digest(&whole).into()));
        part.finish().unwrap();
        drop(part);
        assert!(fs::read(&path).unwrap() == whole);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// As after `kill -9`, or a crash of the system.
    #[test]
    fn what_was_written_after_the_last_note_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let part = with_suffix(&path, ".part");
        let mut file = File::options().append(true).open(&part).unwrap();
        file.write_all(&[9; 500]).unwrap();
        let (mut part, begun) = PartFile::open(&path, URL, true).unwrap();
        assert_eq!(begun.have, Some((3000, stamp())));
        part.write(&[3; 10], now()).unwrap();
        part.finish().unwrap();
        assert_eq!(
            fs::read(&path).unwrap()[2999..],
            [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
        );
    }

    #[test]
    fn what_is_not_as_it_was_left_is_begun_anew() {
        type Damage = fn(&Path);
        let damages: [(Damage, &str, &str); 5] = [
            (|_| {}, "https://host/other", "something else"),
            (
                |path| fs::remove_file(with_suffix(path, ".part.json")).unwrap(),
                URL,
                "nothing says",
            ),
            (
                |path| fs::write(with_suffix(path, ".part.json"), "{").unwrap(),
                URL,
                "damaged",
            ),
            (
                |path| fs::write(with_suffix(path, ".part"), [1; 2999]).unwrap(),
                URL,
                "changed",
            ),
            (
                |path| fs::write(with_suffix(path, ".part"), [1; 3000]).unwrap(),
                URL,
                "changed",
            ),
        ];
        for (damage, url, why) in damages {
            let directory = tempfile::tempdir().unwrap();
            let path = left(&directory);
            damage(&path);
            let (part, begun) = PartFile::open(&path, url, true).unwrap();
            assert!(begun.have.is_none());
            let told = begun.useless.unwrap();
            assert!(told.contains(why), "{told}");
            assert_eq!(part.sum().0, 0);
            assert_eq!(fs::metadata(&part.part).unwrap().len(), 0);
            drop(part);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        let directory = tempfile::tempdir().unwrap();
        let (_part, begun) = PartFile::open(&left(&directory), URL, false).unwrap();
        assert_eq!(begun, Begun::default(), "not asked for");
    }

    #[test]
    fn what_cannot_be_gone_on_with_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for known in [false, true] {
            let (mut part, _) = PartFile::open(&path, URL, false).unwrap();
            part.set_stamp(known.then(stamp));
            part.write(&[1; 10], now()).unwrap();
            part.discard();
            drop(part);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    /// What the note says is there.
    fn noted(path: &Path) -> Option<u64> {
        let note = fs::read(with_suffix(path, ".part.json")).ok()?;
        Some(serde_json::from_slice::<Note>(&note).unwrap().bytes)
    }

    #[test]
    fn it_is_written_down_once_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut part, _) = PartFile::open(&path, URL, false).unwrap();
        part.set_stamp(Some(stamp()));
        let (start, kept) = (now(), part.kept());
        let mut write = |millis| {
            let at = start + Duration::from_millis(millis);
            part.write(&[1; 10], at).unwrap();
            assert_eq!(kept.load(Ordering::Acquire), noted(&path).unwrap());
            noted(&path).unwrap()
        };
        let told = [0, 1, 999, 1000, 1999, 2500].map(&mut write);
        assert_eq!(told, [10, 10, 10, 40, 40, 60]);
        // With the rest at its end.
        write(2501);
        drop(part);
        assert_eq!((noted(&path), kept.load(Ordering::Acquire)), (Some(70), 70));
        let (part, begun) = PartFile::open(&path, URL, true).unwrap();
        assert_eq!(begun.have, Some((70, stamp())));
        let kept = part.kept();
        assert_eq!(kept.load(Ordering::Acquire), 70);
        drop(part);
        assert_eq!(noted(&path), Some(70));
    }

    #[test]
    fn what_starts_over_has_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let (mut part, _) = PartFile::open(&path, URL, true).unwrap();
        part.restart().unwrap();
        let kept = part.kept();
        assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, None));
        assert_eq!(part.sum(), (0, Sha256::digest(b"").into()));
        // The note of the first bytes is written at once, though one was written a moment ago.
        part.set_stamp(Some(stamp()));
        part.write(&[7; 5], now()).unwrap();
        assert_eq!(noted(&path), Some(5));
        part.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 5]);

        // Of a version that has no name, nothing is of use later.
        let (mut part, _) = PartFile::open(&path, URL, false).unwrap();
        part.write(&[1; 10], now()).unwrap();
        let kept = part.kept();
        part.discard();
        drop(part);
        assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, None));
        // Nor of one that is not wanted any more, though it was noted.
        let (mut part, _) = PartFile::open(&path, URL, false).unwrap();
        part.set_stamp(Some(stamp()));
        part.write(&[1; 10], now()).unwrap();
        let kept = part.kept();
        assert_eq!(kept.load(Ordering::Acquire), 10);
        part.discard();
        drop(part);
        assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, None));
        // Nor is a part without a byte; but one is enough.
        let (mut part, _) = PartFile::open(&path, URL, false).unwrap();
        part.set_stamp(Some(stamp()));
        drop(part);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let (mut part, _) = PartFile::open(&path, URL, false).unwrap();
        part.set_stamp(Some(stamp()));
        part.write(&[1], now()).unwrap();
        drop(part);
        assert_eq!(noted(&path), Some(1));
        let (_, begun) = PartFile::open(&path, URL, true).unwrap();
        assert_eq!(begun.have, Some((1, stamp())));
    }

    #[test]
    fn a_note_that_cannot_be_written_leaves_none_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut part, _) = PartFile::open(&path, URL, false).unwrap();
        part.set_stamp(Some(stamp()));
        // Nothing can be renamed to it, nor written there.
        fs::create_dir(with_suffix(&path, ".part.json")).unwrap();
        assert!(part.write(&[1; 10], now()).is_err());
        assert!(!with_suffix(&path, ".part.json.new").exists());
        // What says what the part is, as far as anybody knows, keeps it.
        drop(part);
        assert!(with_suffix(&path, ".part").exists());
    }
}
