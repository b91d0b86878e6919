//! An incomplete download: `FILE.part`, and the note `FILE.part.json` with its URL, version and
//! length.

use std::fs::File;
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use crate::files::beneath::options;
use crate::get::beside::Beside;
use crate::get::note_key::NoteKey;
use crate::get::part_name::{Names, Note, claim, is_begun_note};
use crate::get::pieces::write_pieces;
use crate::options::trust::Checked;
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
    /// The directory of the file and of the names beside it.
    beside: Beside,
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
        let beside = Beside::of(&Names::new(path, 1).part)?;
        Self::open_in(beside, path, keep)
    }

    /// The same in an open directory.
    pub(crate) fn open_in(
        beside: Beside,
        path: &Path,
        keep: &Keep<'_>,
    ) -> io::Result<(Self, Begun)> {
        let (claimed, useless) = claim(&beside, path, keep.resume.then_some(keep.url), keep.key)?;
        if keep.private {
            // Before the first byte is written.
            make_private(&claimed.file)?;
        }
        let mut opened = Self {
            file: claimed.file,
            path: path.to_owned(),
            note: beside.open(&claimed.names.note, options().read(true)).ok(),
            beside,
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
        let is_free = self.beside.metadata(at).is_err();
        is_free
            || self
                .note
                .as_ref()
                .is_some_and(|note| self.beside.is_name(at, note))
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
            self.beside.rename(new, &self.names.note)?;
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
        let mut options = options();
        options.write(true).create_new(true);
        let mut file = self.beside.open(&self.names.new, &options)?;
        file.write_all(text)?;
        Ok(file)
    }

    fn remove_new(&self) {
        if is_begun_note(&self.beside, &self.names.new) {
            self.remove_if_possible(&self.names.new);
        }
    }

    fn remove_note(&self) {
        if self.owns_note() {
            self.remove_if_possible(&self.names.note);
        }
    }

    /// Removes a useless file. If that fails, the file stays: the download reports its own end.
    fn remove_if_possible(&self, path: &Path) {
        let _ = self.beside.remove(path);
    }

    /// A full disk has no room for another file, but the old note's place is there.
    fn overwrite_note(&self, text: &[u8]) -> io::Result<()> {
        let mut file = self.beside.open(&self.names.note, options().write(true))?;
        if !self.beside.is_only_name(&self.names.note, &file) {
            return Err(io::Error::other("the note has another name"));
        }
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
        if !self.beside.is_name(part, &self.file) {
            let told = format!("{} was replaced while it was written", part.display());
            return Err(io::Error::other(told));
        }
        if !self.beside.is_still_of(&self.path) {
            let told = "the directory was moved, removed or replaced while the file was written";
            return Err(io::Error::other(told));
        }
        // The note goes first, while the lock is held: a later note may belong to the next
        // download.
        self.remove_note();
        if self.replace {
            self.beside.rename(part, &self.path)?
        } else {
            self.beside.rename_to_new(part, &self.path)?
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
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn make_private(_file: &File) -> io::Result<()> {
    Ok(())
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
                Err(_) if self.beside.metadata(&self.names.note).is_ok() => return,
                _ => {}
            }
        }
        self.kept.store(0, Ordering::Release);
        if self.beside.is_name(&self.names.part, &self.file) {
            self.remove_note();
            self.remove_if_possible(&self.names.part);
        }
    }
}

#[cfg(test)]
mod tests;
