//! An incomplete download: `FILE.part`, and the note `FILE.part.json` with its URL, version and
//! length.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use crate::get::note_key::NoteKey;
use crate::get::part_name::{Names, Note, claim, is_at, is_begun_note, not_followed};
use crate::get::pieces::write_pieces;
use crate::options::trust::Checked;
use crate::process::state::rename_to_new;
use crate::text::hex::hex;
use crate::text::stamp::Stamp;

/// Time between two notes about the written bytes.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// How an incomplete file is treated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep<'a> {
    /// The URL of the file.
    pub(crate) url: &'a str,
    /// Continue the part of an earlier download.
    pub(crate) resume: bool,
    /// Replace an existing file of the same name.
    pub(crate) replace: bool,
    /// Nobody but the owner may read the file: it gets its permissions once it is whole.
    pub(crate) private: bool,
    /// The key of notes.
    pub(crate) key: &'a NoteKey,
    /// The check of the server. Parts of weaker checks are not continued.
    pub(crate) checked: Checked,
}

/// The version of a file, as far as the server names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Version {
    /// `None` if no later download can continue this version.
    pub(crate) stamp: Option<Stamp>,
    /// Bytes of the whole file.
    pub(crate) length: Option<u64>,
}

/// `FILE.part`, which is renamed to `FILE` once it is complete. A part dropped earlier stays if a
/// later download can continue it.
pub(crate) struct PartFile {
    file: File,
    path: PathBuf,
    names: Names,
    /// The last note; `None` once another file has taken the note's name.
    note: Option<File>,
    url: String,
    key: NoteKey,
    checked: Checked,
    replace: bool,
    /// The version of the part.
    version: Version,
    bytes: u64,
    hash: Sha256,
    /// Length and time of the file after this download's last write; `None` once another program
    /// has written to the file.
    written: Option<(u64, SystemTime)>,
    noted: Option<Instant>,
    /// The number of bytes from which a later download can continue.
    kept: Arc<AtomicU64>,
    finished: bool,
}

/// The bytes that a download begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// The number of these bytes.
    pub(crate) have: u64,
    /// Their version.
    pub(crate) version: Version,
    /// Why an existing part is of no use.
    pub(crate) useless: Option<&'static str>,
}

impl PartFile {
    /// A part of `path`. On request, it begins with the part of an earlier download, if this part
    /// has the same URL and is unchanged.
    pub(crate) fn open(path: &Path, keep: &Keep<'_>) -> io::Result<(Self, Begun)> {
        let (claimed, useless) = claim(path, keep.resume.then_some(keep.url), keep.key)?;
        if keep.private {
            // Before the first byte is written.
            make_private(&claimed.file)?;
        }
        let mut opened = Self {
            file: claimed.file,
            path: path.to_owned(),
            note: not_followed(File::options().read(true))
                .open(&claimed.names.note)
                .ok(),
            names: claimed.names,
            url: keep.url.to_owned(),
            key: keep.key.clone(),
            checked: keep.checked,
            replace: keep.replace,
            version: Version::default(),
            bytes: 0,
            hash: Sha256::new(),
            written: None,
            noted: None,
            kept: Arc::default(),
            finished: false,
        };
        let mut begun = Begun {
            useless,
            ..Begun::default()
        };
        if let Some(note) = claimed.noted.filter(|_| keep.resume) {
            match opened.take_up(note)? {
                Ok(()) => {
                    begun.have = opened.bytes;
                    begun.version = opened.version.clone();
                }
                Err(why) => begun.useless = Some(why),
            }
        }
        if begun.have == 0 {
            opened.restart()?;
        }
        opened.written = opened.state();
        Ok((opened, begun))
    }

    /// Reads the existing part, or tells why the part is of no use.
    fn take_up(&mut self, note: Note) -> io::Result<Result<(), &'static str>> {
        if note.url != self.url {
            return Ok(Err("it is a part of something else"));
        }
        // Somebody on the way to that server could have sent the bytes.
        if note.checked < self.checked {
            return Ok(Err(note.checked.too_weak()));
        }
        if note.stamp.is_none() || note.bytes == 0 {
            return Ok(Err("nobody can tell which version it is of"));
        }
        let (read, hash) = self.read(note.bytes)?;
        if read < note.bytes || hex(&hash.clone().finalize()) != note.sha256 {
            return Ok(Err("it was changed"));
        }
        // Bytes behind the noted length were written, but may be incomplete.
        self.file.set_len(note.bytes)?;
        self.hash = hash;
        self.bytes = note.bytes;
        self.version = Version {
            stamp: note.stamp,
            length: note.length,
        };
        self.kept.store(note.bytes, Ordering::Release);
        Ok(Ok(()))
    }

    /// Reads this number of bytes from the beginning of the file, fewer from a shorter file.
    fn read(&mut self, most: u64) -> io::Result<(u64, Sha256)> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut hash = Sha256::new();
        let mut left = most;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let room = buffer.get_mut(..room).unwrap_or_default();
            match self.file.read(room)? {
                0 => break,
                read => {
                    hash.update(room.get(..read).unwrap_or_default());
                    left -= read as u64;
                }
            }
        }
        Ok((most - left, hash))
    }

    /// The number of bytes from which a later download can continue, now and after the part is
    /// dropped.
    pub(crate) fn kept(&self) -> Arc<AtomicU64> {
        self.kept.clone()
    }

    /// The present name of the part.
    pub(crate) fn part(&self) -> &Path {
        &self.names.part
    }

    /// Forgets the existing bytes.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.version = Version::default();
        self.bytes = 0;
        self.hash = Sha256::new();
        self.noted = None;
        self.kept.store(0, Ordering::Release);
        // From the first moment on, a note says that the part belongs to this tool.
        self.write_note()?;
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.written = self.state();
        Ok(())
    }

    /// From now on, written bytes are of this version.
    pub(crate) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Adds bytes. From time to time, a note records the written bytes.
    pub(crate) fn write(&mut self, pieces: &[impl AsRef<[u8]>], now: Instant) -> io::Result<()> {
        let is_as_left = self.written.is_some() && self.state() == self.written;
        write_pieces(&mut self.file, pieces)?;
        for piece in pieces.iter().map(AsRef::as_ref) {
            self.hash.update(piece);
            self.bytes += piece.len() as u64;
        }
        self.written = self.state().filter(|_| is_as_left);
        let is_useful = self.version.stamp.is_some();
        if is_useful && self.noted.is_none_or(|at| now >= at + NOTE_EVERY) {
            self.noted = Some(now);
            self.write_note()?;
        }
        Ok(())
    }

    /// Length and time of the file, which each write changes.
    fn state(&self) -> Option<(u64, SystemTime)> {
        let metadata = self.file.metadata().ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    }

    /// True unless another download or program has given the name of the note to its own file.
    fn owns_note(&self) -> bool {
        let at = &self.names.note;
        let is_free = fs::symlink_metadata(at).is_err();
        is_free || self.note.as_ref().is_some_and(|note| is_at(note, at))
    }

    /// Replaces the note as a whole: no reader sees half a note. False without a name or a key for
    /// the note: no later download continues the part.
    fn write_note(&mut self) -> io::Result<bool> {
        let is_useful = self.version.stamp.is_some();
        let note = Note {
            url: self.url.clone(),
            stamp: self.version.stamp.clone(),
            length: self.version.length,
            bytes: if is_useful { self.bytes } else { 0 },
            sha256: hex(&self.hash.clone().finalize()),
            checked: self.checked,
        };
        let text = note.text(&self.key)?.filter(|_| self.owns_note());
        let Some(text) = text else {
            self.kept.store(0, Ordering::Release);
            return Ok(false);
        };
        let new = &self.names.new;
        let written = self.write_new(&text).and_then(|note| {
            fs::rename(new, &self.names.note)?;
            Ok(note)
        });
        match written {
            Ok(note) => self.note = Some(note),
            Err(error) => {
                self.remove_new();
                if self.overwrite_note(&text).is_err() {
                    // The previous note stays, and is still true of the bytes that it names.
                    return Err(error);
                }
            }
        }
        if is_useful {
            self.kept.store(self.bytes, Ordering::Release);
        }
        Ok(true)
    }

    fn write_new(&self, text: &[u8]) -> io::Result<File> {
        // An earlier download was killed while it wrote.
        self.remove_new();
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).open(&self.names.new)?;
        file.write_all(text)?;
        Ok(file)
    }

    fn remove_new(&self) {
        if is_begun_note(&self.names.new) {
            remove_if_possible(&self.names.new);
        }
    }

    fn remove_note(&self) {
        if self.owns_note() {
            remove_if_possible(&self.names.note);
        }
    }

    /// A full disk has no room for another file, but the old note's place is there.
    fn overwrite_note(&self, text: &[u8]) -> io::Result<()> {
        let mut file = not_followed(File::options().write(true)).open(&self.names.note)?;
        file.write_all(text)?;
        file.set_len(text.len() as u64)
    }

    /// The SHA-256 of the bytes on the disk, and their number.
    pub(crate) fn sum(&mut self) -> io::Result<(u64, [u8; 32])> {
        let received = self.hash.clone().finalize();
        if self.written.is_none() || self.state() != self.written {
            let (read, hash) = self.read(u64::MAX)?;
            if read != self.bytes || hash.finalize() != received {
                self.discard();
                let told = "another program changed it while it was written";
                return Err(io::Error::other(told));
            }
        }
        Ok((self.bytes, received.into()))
    }

    /// Gives the file its name.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let part = &self.names.part;
        if !is_at(&self.file, part) {
            let told = format!("{} was replaced while it was written", part.display());
            return Err(io::Error::other(told));
        }
        // The note goes first, while the lock is held: a later note may belong to the next
        // download.
        self.remove_note();
        if self.replace {
            fs::rename(part, &self.path)?
        } else {
            rename_to_new(part, &self.path)?
        }
        self.finished = true;
        self.kept.store(0, Ordering::Release);
        Ok(())
    }

    /// Removes the part and its note.
    pub(crate) fn discard(&mut self) {
        self.version.stamp = None;
    }
}

#[cfg(unix)]
fn make_private(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn make_private(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Removes a useless file. If that fails, the file stays: the download reports its own end.
fn remove_if_possible(path: &Path) {
    let _ = fs::remove_file(path);
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let is_useful = self.version.stamp.is_some() && self.bytes > 0;
        if is_useful {
            match self.write_note() {
                Ok(true) => return,
                // An earlier note names fewer bytes.
                Err(_) if self.names.note.exists() => return,
                _ => {}
            }
        }
        self.kept.store(0, Ordering::Release);
        if is_at(&self.file, &self.names.part) {
            self.remove_note();
            remove_if_possible(&self.names.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://host/file";

    fn version() -> Version {
        Version {
            stamp: Some(Stamp::Etag("\"1\"".to_owned())),
            length: Some(2_000_000),
        }
    }

    fn open(path: &Path, resume: bool) -> io::Result<(PartFile, Begun)> {
        open_of(path, URL, resume)
    }

    fn keep(url: &str, resume: bool) -> Keep<'_> {
        Keep {
            url,
            resume,
            replace: true,
            private: false,
            key: NoteKey::known(),
            checked: Checked::Nothing,
        }
    }

    fn open_of(path: &Path, url: &str, resume: bool) -> io::Result<(PartFile, Begun)> {
        PartFile::open(path, &keep(url, resume))
    }

    #[cfg(unix)]
    #[test]
    fn a_private_part_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        // Also what an earlier download left.
        let path = left(&directory);
        let part = with_suffix(&path, ".part");
        fs::set_permissions(&part, fs::Permissions::from_mode(0o644)).unwrap();
        for path in [path, directory.path().join("other")] {
            let keep = Keep {
                private: true,
                ..keep(URL, true)
            };
            let _part = PartFile::open(&path, &keep).unwrap();
            let there = fs::metadata(with_suffix(&path, ".part")).unwrap();
            assert_eq!(there.permissions().mode() & 0o777, 0o600);
        }
    }

    fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    }

    fn now() -> Instant {
        crate::process::clock::now()
    }

    /// Leaves a part of 3000 bytes.
    fn left(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join("file");
        let (mut part, begun) = open(&path, true).unwrap();
        assert_eq!(begun, Begun::default());
        part.set_version(version());
        part.write(&[[1; 1000]], now()).unwrap();
        part.write(&[[2; 2000]], now()).unwrap();
        path
    }

    /// Another download may have a file whose name is the name of the note.
    #[test]
    fn a_file_that_takes_the_name_of_the_note_stays() {
        for is_finished in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = left(&directory);
            let (mut part, _) = open(&path, true).unwrap();
            let note = with_suffix(&path, ".part.json");
            let other = directory.path().join("other");
            fs::write(&other, "of another download").unwrap();
            fs::rename(&other, &note).unwrap();
            part.write(&[[3; 1000]], now() + 2 * NOTE_EVERY).unwrap();
            let kept = part.kept();
            if is_finished {
                part.finish().unwrap();
            }
            drop(part);
            assert_eq!(kept.load(Ordering::Acquire), 0);
            assert_eq!(fs::read(&note).unwrap(), b"of another download");
            let length = fs::metadata(&path).ok().map(|file| file.len());
            assert_eq!(length, is_finished.then_some(4000));
            assert!(!with_suffix(&path, ".part").exists());
        }
    }

    #[test]
    fn without_room_for_another_file_the_old_note_is_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let (mut part, _) = open(&path, true).unwrap();
        // A directory has the name of the new note, so no new note can be written, as on a full
        // disk.
        fs::create_dir(with_suffix(&path, ".part.json.new")).unwrap();
        part.write(&[[3; 1_000_000]], now()).unwrap();
        let kept = part.kept();
        drop(part);
        assert_eq!(kept.load(Ordering::Acquire), 1_003_000);
        let (_, begun) = open(&path, true).unwrap();
        assert_eq!((begun.have, begun.version), (1_003_000, version()));
    }

    #[test]
    fn part_of_an_earlier_run_is_continued() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let (mut part, begun) = open(&path, true).unwrap();
        assert_eq!((begun.have, begun.version), (3000, version()));
        part.write(&[[3; 10]], now()).unwrap();
        let whole = [vec![1; 1000], vec![2; 2000], vec![3; 10]].concat();
        assert_eq!(part.sum().unwrap(), (3010, Sha256::digest(&whole).into()));
        part.finish().unwrap();
        drop(part);
        assert!(fs::read(&path).unwrap() == whole);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// As after `kill -9`, or a crash of the system.
    #[test]
    fn bytes_after_the_last_note_are_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let part = with_suffix(&path, ".part");
        let mut file = File::options().append(true).open(&part).unwrap();
        file.write_all(&[9; 500]).unwrap();
        let (mut part, begun) = open(&path, true).unwrap();
        assert_eq!((begun.have, begun.version), (3000, version()));
        part.write(&[[3; 10]], now()).unwrap();
        part.finish().unwrap();
        assert_eq!(
            fs::read(&path).unwrap()[2999..],
            [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
        );
    }

    fn content(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(directory).unwrap();
        let mut files: Vec<_> = entries
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    }

    #[test]
    fn damaged_part_or_note_starts_the_download_over() {
        type Damage = fn(&Path);
        let damages: [(Damage, &str, &str); 5] = [
            (|_| {}, "https://host/other", "something else"),
            (
                |path| fs::remove_file(with_suffix(path, ".part.json")).unwrap(),
                URL,
                "no note",
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
            let before = content(directory.path());
            let (mut part, begun) = open_of(&path, url, true).unwrap();
            assert!(begun.have == 0);
            let told = begun.useless.unwrap();
            assert!(told.contains(why), "{told}");
            assert_eq!(part.sum().unwrap().0, 0);
            assert_eq!(fs::metadata(part.part()).unwrap().len(), 0);
            drop(part);
            // A file that may be the user's own is not touched.
            let left = match why {
                "no note" | "damaged" => before,
                _ => Vec::new(),
            };
            assert_eq!(content(directory.path()), left, "{why}");
        }
        let directory = tempfile::tempdir().unwrap();
        let (_part, begun) = open(&left(&directory), false).unwrap();
        assert_eq!(begun, Begun::default(), "not asked for");
    }

    #[test]
    fn discarded_part_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for known in [false, true] {
            let (mut part, _) = open(&path, false).unwrap();
            part.set_version(if known { version() } else { Version::default() });
            part.write(&[[1; 10]], now()).unwrap();
            part.discard();
            drop(part);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    /// The bytes that the note names.
    fn noted(path: &Path) -> Option<u64> {
        let note = fs::read(with_suffix(path, ".part.json")).ok()?;
        Some(serde_json::from_slice::<Note>(&note).unwrap().bytes)
    }

    #[test]
    fn note_is_written_once_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut part, _) = open(&path, false).unwrap();
        part.set_version(version());
        let (start, kept) = (now(), part.kept());
        let mut write = |millis| {
            let at = start + Duration::from_millis(millis);
            part.write(&[[1; 10]], at).unwrap();
            assert_eq!(kept.load(Ordering::Acquire), noted(&path).unwrap());
            noted(&path).unwrap()
        };
        let told = [0, 1, 999, 1000, 1999, 2500].map(&mut write);
        assert_eq!(told, [10, 10, 10, 40, 40, 60]);
        // With the rest at its end.
        write(2501);
        drop(part);
        assert_eq!((noted(&path), kept.load(Ordering::Acquire)), (Some(70), 70));
        let (part, begun) = open(&path, true).unwrap();
        assert_eq!((begun.have, begun.version), (70, version()));
        let kept = part.kept();
        assert_eq!(kept.load(Ordering::Acquire), 70);
        drop(part);
        assert_eq!(noted(&path), Some(70));
    }

    #[test]
    fn restarted_part_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = left(&directory);
        let (mut part, _) = open(&path, true).unwrap();
        part.restart().unwrap();
        let kept = part.kept();
        assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, Some(0)));
        assert_eq!(part.sum().unwrap(), (0, Sha256::digest(b"").into()));
        // The note of the first bytes is written at once, though one was written a moment ago.
        part.set_version(version());
        part.write(&[[7; 5]], now()).unwrap();
        assert_eq!(noted(&path), Some(5));
        part.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 5]);

        // A version without a name cannot be continued later.
        let (mut part, _) = open(&path, false).unwrap();
        part.write(&[[1; 10]], now()).unwrap();
        let kept = part.kept();
        part.discard();
        drop(part);
        assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, None));
        // Nor can an unwanted version, even with a note.
        let (mut part, _) = open(&path, false).unwrap();
        part.set_version(version());
        part.write(&[[1; 10]], now()).unwrap();
        let kept = part.kept();
        assert_eq!(kept.load(Ordering::Acquire), 10);
        part.discard();
        drop(part);
        assert_eq!((kept.load(Ordering::Acquire), noted(&path)), (0, None));
        // Nor can a part without a byte; one byte is enough.
        let (mut part, _) = open(&path, false).unwrap();
        part.set_version(version());
        drop(part);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let (mut part, _) = open(&path, false).unwrap();
        part.set_version(version());
        part.write(&[[1]], now()).unwrap();
        drop(part);
        assert_eq!(noted(&path), Some(1));
        let (_, begun) = open(&path, true).unwrap();
        assert_eq!((begun.have, begun.version), (1, version()));
    }

    #[test]
    fn without_a_name_for_its_note_a_part_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut part, _) = open(&path, false).unwrap();
        part.set_version(version());
        // No file can be renamed to this name or written there.
        fs::remove_file(with_suffix(&path, ".part.json")).unwrap();
        fs::create_dir(with_suffix(&path, ".part.json")).unwrap();
        part.write(&[[1; 10]], now()).unwrap();
        assert!(!with_suffix(&path, ".part.json.new").exists());
        drop(part);
        assert!(!with_suffix(&path, ".part").exists());
        assert!(with_suffix(&path, ".part.json").is_dir());
    }

    /// The reported bytes are the bytes in the file.
    #[test]
    fn changes_by_other_programs_are_noticed() {
        type Change = fn(&Path);
        let changes: [(Change, Option<&str>); 4] = [
            (|_| {}, None),
            // The content stays the same.
            (|part| touch(part, |_| {}), None),
            (
                |part| touch(part, |file| file.set_len(100).unwrap()),
                Some("another program changed it while it was written"),
            ),
            (
                |part| {
                    touch(part, |file| {
                        file.seek(SeekFrom::Start(50)).unwrap();
                        file.write_all(b"!").unwrap();
                    });
                },
                Some("another program changed it while it was written"),
            ),
        ];
        for (change, told) in changes {
            for more in [false, true] {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("file");
                let (mut part, _) = open(&path, false).unwrap();
                part.set_version(version());
                part.write(&[[1; 1000]], now()).unwrap();
                change(part.part());
                if more {
                    part.write(&[[2; 1000]], now()).unwrap();
                }
                let sum = part.sum();
                assert_eq!(sum.as_ref().err().map(ToString::to_string).as_deref(), told);
                if let Ok((bytes, sum)) = sum {
                    part.finish().unwrap();
                    let content = fs::read(&path).unwrap();
                    assert_eq!(bytes, content.len() as u64);
                    assert_eq!(sum[..], Sha256::digest(content)[..]);
                }
            }
        }
    }

    /// Changes a file, and with it the file's time.
    fn touch(path: &Path, change: fn(&mut File)) {
        let mut file = File::options().write(true).open(path).unwrap();
        change(&mut file);
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }

    #[test]
    fn foreign_file_at_the_name_of_the_part_is_not_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (mut part, _) = open(&path, false).unwrap();
        part.write(&[[1; 10]], now()).unwrap();
        fs::remove_file(part.part()).unwrap();
        fs::write(part.part(), "precious").unwrap();
        let error = part.finish().unwrap_err().to_string();
        assert!(
            error.ends_with("file.part was replaced while it was written"),
            "{error}"
        );
        let theirs = part.part().to_owned();
        drop(part);
        assert_eq!(fs::read(theirs).unwrap(), b"precious");
        assert!(!path.exists());
    }

    #[test]
    fn existing_file_is_replaced_only_if_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (there, replace, then) in [
            (false, false, "new"),
            (true, false, "old"),
            (true, true, "new"),
        ] {
            let _ = fs::remove_file(&path);
            if there {
                fs::write(&path, "old").unwrap();
            }
            let keep = Keep {
                replace,
                ..keep(URL, false)
            };
            let (mut part, _) = PartFile::open(&path, &keep).unwrap();
            part.write(&[b"new"], now()).unwrap();
            assert_eq!(part.finish().is_ok(), then == "new");
            drop(part);
            assert_eq!(fs::read_to_string(&path).unwrap(), then);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }
}
