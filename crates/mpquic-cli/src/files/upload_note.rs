//! The note beside an unfinished file that can be resumed: the number of bytes that are safely on
//! the disk, the announced length of the whole file, and the owner of the upload. After a crash of
//! the system, the file may be longer, with zeros in place of written bytes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use mpquic_proxy::shares::Taker;
use sha2::{Digest, Sha256};

use crate::files::beneath::{is_only_name, options};
use crate::files::unfinished::Token;
use crate::process::clock;
use crate::text::hex::hex;

/// The file's length at its first note.
const FIRST: u64 = 1 << 20;
/// Time between later notes.
const EVERY: Duration = Duration::from_secs(1);
/// Most bytes to read from a note.
const LONGEST: u64 = 128;
/// In place of an unknown length.
const UNKNOWN: &str = "-";
/// Hexadecimal digits of an owner.
const DIGITS: usize = 32;

/// The notes about a file in progress.
#[derive(Debug)]
pub(crate) struct Notes {
    token: Token,
    /// Time of the last note.
    at: Instant,
    length: u64,
    /// The announced length of the whole file, bytes.
    announced: Option<u64>,
    owner: Owner,
    /// True while a thread waits for the disk.
    is_busy: Arc<AtomicBool>,
}

impl Notes {
    /// Begins with a note that no byte is on the disk yet.
    pub(crate) fn begin(
        directory: &Dir,
        token: Token,
        announced: Option<u64>,
        owner: Owner,
    ) -> io::Result<Self> {
        let mut create = options();
        create.write(true).create_new(true);
        let mut note = directory.open_with(token.note_name(), &create)?;
        note.write_all(&text(0, announced, &owner))?;
        Ok(Self::resume(token, 0, announced, owner))
    }

    /// Continues after a note of this length.
    pub(crate) fn resume(token: Token, length: u64, announced: Option<u64>, owner: Owner) -> Self {
        Self {
            token,
            at: clock::now(),
            length,
            announced,
            owner,
            is_busy: Arc::default(),
        }
    }

    /// Reports the current length of the file. If a note is due, a thread waits until the bytes are
    /// on the disk, and then writes the note. Meanwhile the upload goes on.
    pub(crate) fn on_length(&mut self, length: u64, file: &File, directory: &Dir) {
        let now = clock::now();
        let is_due =
            length >= self.length.max(FIRST / 2).saturating_mul(2) || now >= self.at + EVERY;
        if !is_due || self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        (self.at, self.length) = (now, length);
        let started = self.start(length, file, directory);
        if let Err(error) = started {
            self.is_busy.store(false, Ordering::Release);
            tracing::warn!(%error, "noting the length of an unfinished file");
        }
    }

    fn start(&self, length: u64, file: &File, directory: &Dir) -> io::Result<()> {
        let (file, directory) = (file.try_clone()?, directory.try_clone()?);
        let (token, is_busy) = (self.token.clone(), self.is_busy.clone());
        let text = text(length, self.announced, &self.owner);
        let sync = move || {
            let noted = file.sync_data().and_then(|()| {
                // The note is not created again, because the file may be finished and its note
                // removed.
                let name = token.note_name();
                let note = directory.open_with(&name, options().write(true))?;
                let mut note = note.into_std();
                if !is_only_name(&directory, name.as_ref(), &note) {
                    return Err(io::Error::other("its note has another name"));
                }
                note.write_all(&text)
            });
            if let Err(error) = noted {
                tracing::debug!(%error, "the length of an unfinished file is not noted");
            }
            is_busy.store(false, Ordering::Release);
        };
        let thread = thread::Builder::new().name("sync".to_owned());
        thread.spawn(sync).map(drop)
    }

    /// Removes the note of a finished or abandoned file.
    pub(crate) fn remove(&self, directory: &Dir) {
        let _ = directory.remove_file(self.token.note_name());
    }
}

/// The notes about a file have equal lengths, so a note replaces the whole note before.
fn text(length: u64, announced: Option<u64>, owner: &Owner) -> Vec<u8> {
    let announced = announced.map(|announced| format!("{announced:020}"));
    let announced = announced.as_deref().unwrap_or(UNKNOWN);
    format!("{length:020}\n{announced}\n{}\n", owner.0).into_bytes()
}

/// The name of the file that an upload makes, and the user of the upload, as a hash. A token of
/// another user, or for another name, leads to no upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner(String);

impl Owner {
    /// Without credentials there is no user: a client may have moved to another address.
    pub(crate) fn new(token: &Token, name: &OsStr, taker: Option<&Taker>) -> Self {
        let mut hash = Sha256::new();
        hash.update(token.as_str());
        hash.update(Sha256::digest(name.as_encoded_bytes()));
        if let Some(Taker::User(user)) = taker {
            hash.update(Sha256::digest(user.as_bytes()));
        }
        let mut digits = hex(&hash.finalize());
        digits.truncate(DIGITS);
        Self(digits)
    }

    fn parse(text: &str) -> Option<Self> {
        (text.len() == DIGITS).then(|| Self(text.to_owned()))
    }
}

/// The content of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Bytes on the disk.
    pub(crate) length: u64,
    /// The announced length of the whole file, bytes.
    pub(crate) announced: Option<u64>,
    /// `None` in a note of an earlier version.
    pub(crate) owner: Option<Owner>,
}

/// Reads a note; `None` without a note.
pub(crate) fn read(directory: &Dir, token: &Token) -> Option<Noted> {
    let note = directory.open_with(token.note_name(), options().read(true));
    let note = note.ok()?.into_std();
    let mut text = String::new();
    note.metadata().ok().filter(std::fs::Metadata::is_file)?;
    note.take(LONGEST).read_to_string(&mut text).ok()?;
    let mut lines = text.strip_suffix('\n')?.split('\n');
    let noted = Noted {
        length: lines.next()?.parse().ok()?,
        announced: match lines.next() {
            None | Some(UNKNOWN) => None,
            Some(announced) => Some(announced.parse().ok()?),
        },
        owner: match lines.next() {
            None => None,
            Some(owner) => Some(Owner::parse(owner)?),
        },
    };
    lines.next().is_none().then_some(noted)
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn a_note_tells_what_is_on_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        let token = Token::new().unwrap();
        assert_eq!(read(&dir, &token), None);
        let announced = Some(1 << 40);
        let owner = Owner::new(&token, "file".as_ref(), None);
        let mut notes = Notes::begin(&dir, token.clone(), announced, owner.clone()).unwrap();
        let noted = |length| {
            let owner = Some(owner.clone());
            Some(Noted {
                length,
                announced,
                owner,
            })
        };
        assert_eq!(read(&dir, &token), noted(0));
        let file = File::create(directory.path().join("file")).unwrap();
        let noted = |notes: &Notes| {
            while notes.is_busy.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            let noted = read(&dir, &token).unwrap();
            assert_eq!(noted.announced, announced);
            noted.length
        };
        for (length, expected) in [
            (FIRST - 1, 0),
            (FIRST, FIRST),
            (2 * FIRST - 1, FIRST),
            (10 * FIRST, 10 * FIRST),
        ] {
            notes.at = clock::now();
            notes.on_length(length, &file, &dir);
            assert_eq!(noted(&notes), expected, "{length}");
        }
        notes.at = clock::now().checked_sub(EVERY).unwrap();
        notes.on_length(10 * FIRST + 1, &file, &dir);
        assert_eq!(noted(&notes), 10 * FIRST + 1);
        // A late thread writes no note for a finished file.
        notes.remove(&dir);
        notes.on_length(100 * FIRST, &file, &dir);
        while notes.is_busy.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(read(&dir, &token), None);
    }

    #[test]
    fn damaged_notes_tell_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        let token = Token::new().unwrap();
        for (text, expected) in [
            ("7\n", Some((7, None))),
            ("7\n9\n", Some((7, Some(9)))),
            ("7", None),
            ("7\n9", None),
            ("7\nx\n", None),
            ("7\n9\n9\n", None),
            ("7\n-\n", Some((7, None))),
            (
                "7\n9\n0123456789abcdef0123456789abcdef\n",
                Some((7, Some(9))),
            ),
            ("7\n9\n0123456789abcdef0123456789abcdef\n9\n", None),
            ("", None),
        ] {
            std::fs::write(directory.path().join(token.note_name()), text).unwrap();
            let noted = read(&dir, &token).map(|noted| (noted.length, noted.announced));
            assert_eq!(noted, expected, "{text:?}");
        }
    }
}
