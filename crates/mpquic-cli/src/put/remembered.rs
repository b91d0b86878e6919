//! Unfinished uploads that the next run of `put` can go on with: a note for each, in a directory of
//! the user's programs.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::unfinished::lock;
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::process::state;
use crate::text::hex::hex;

/// Most bytes of a note that are read.
const LONGEST: u64 = 64 << 10;
/// How long a note may be of use: longer than servers keep unfinished uploads.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// An upload that can be gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Where the server takes the rest. Whoever knows it can write the file.
    pub(crate) upload: Uri,
    /// The tag of the local file's state.
    pub(crate) of: String,
}

/// The user's next step after an upload with a note.
const HINT: &str =
    "the same command goes on where this one stopped, as long as the server keeps the upload";

/// The number of noted uploads of a command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unfinished(Arc<AtomicUsize>);

impl Unfinished {
    /// Adds to the failure of a command that the user interrupted that the same command can go on.
    pub(crate) fn told_with(&self, failure: Failure) -> Failure {
        let is_told = failure == Failure::interrupted() && self.0.load(Relaxed) > 0;
        failure.and(is_told.then(|| HINT.to_owned()))
    }
}

#[derive(Serialize, Deserialize)]
struct Note {
    url: String,
    file: PathBuf,
    upload: String,
    of: String,
}

/// The note about one file and its URL. While one command holds it, no other uses it: two commands
/// that send the same file do not take the upload from each other.
#[derive(Debug)]
pub(crate) struct Remembered {
    /// `None` if nothing is remembered.
    note: Option<PathBuf>,
    url: String,
    file: PathBuf,
    held: Mutex<Held>,
    unfinished: Unfinished,
}

/// The note's file while this command holds it.
#[derive(Debug, Default)]
struct Held {
    file: Option<File>,
    /// The note names an upload.
    is_noted: bool,
}

impl Remembered {
    /// The note in this directory; without a directory, or about data that is no file, nothing is
    /// remembered. It counts as one of `unfinished` from its first upload on until it is forgotten.
    pub(crate) fn new(
        directory: Option<&Path>,
        url: &Uri,
        file: Option<&Path>,
        unfinished: &Unfinished,
    ) -> Self {
        let file = file.and_then(|file| std::path::absolute(file).ok());
        let url = url.to_string();
        let note = directory.zip(file.as_ref()).map(|(directory, file)| {
            let mut hash = Sha256::new();
            hash.update(&url);
            hash.update([0]);
            hash.update(file.as_os_str().as_encoded_bytes());
            directory.join(format!("{}.json", hex(&hash.finalize())))
        });
        Self {
            note,
            url,
            file: file.unwrap_or_default(),
            held: Mutex::default(),
            unfinished: unfinished.clone(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The note names an upload now, or none any more.
    fn set_noted(&self, held: &mut Held, is_noted: bool) {
        let count = &self.unfinished.0;
        count.fetch_add(usize::from(is_noted), Relaxed);
        count.fetch_sub(usize::from(held.is_noted), Relaxed);
        held.is_noted = is_noted;
    }

    /// The failure of the upload. After a broken connection, it says that the same command can go
    /// on.
    pub(crate) fn told_with(&self, failure: Failure) -> Failure {
        let is_broken = matches!(
            failure.cause(),
            Some(Cause::Name | Cause::Connect | Cause::Broken)
        );
        let is_told = is_broken && self.held().is_noted;
        failure.and(is_told.then(|| HINT.to_owned()))
    }

    /// The upload of an earlier command.
    pub(crate) fn begun(&self) -> Option<Begun> {
        let path = self.note.as_ref()?;
        let mut file = File::options().read(true).write(true).open(path).ok()?;
        if !lock(&file) {
            return None;
        }
        let mut text = String::new();
        let read = (&mut file).take(LONGEST).read_to_string(&mut text);
        self.held().file = Some(file);
        read.ok()?;
        let note: Note = serde_json::from_str(&text).ok()?;
        if (note.url, note.file) != (self.url.clone(), self.file.clone()) {
            return None;
        }
        let upload = note.upload.parse().ok()?;
        self.set_noted(&mut self.held(), true);
        Some(Begun {
            upload,
            of: note.of,
        })
    }

    /// Notes an upload. It only saves time, so failures do not matter.
    pub(crate) fn note(&self, begun: &Begun) {
        if let Some(path) = &self.note
            && let Err(error) = self.try_note(path, begun)
        {
            tracing::debug!(%error, "an unfinished upload is not noted");
        }
    }

    fn try_note(&self, path: &Path, begun: &Begun) -> io::Result<()> {
        let mut held = self.held();
        if held.file.is_none() {
            if let Some(directory) = path.parent() {
                state::make_directory(directory)?;
                remove_old(directory)?;
            }
            let file = state::open_private(path)?;
            if !lock(&file) {
                return Ok(());
            }
            held.file = Some(file);
        }
        let Some(file) = held.file.as_mut() else {
            return Ok(());
        };
        let text = serde_json::to_vec(&Note {
            url: self.url.clone(),
            file: self.file.clone(),
            upload: begun.upload.to_string(),
            of: begun.of.clone(),
        })?;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&text)?;
        self.set_noted(&mut held, true);
        Ok(())
    }

    /// The upload is over.
    pub(crate) fn forget(&self) {
        let mut held = self.held();
        if let (Some(path), Some(_)) = (&self.note, &held.file) {
            let _ = fs::remove_file(path);
        }
        self.set_noted(&mut held, false);
    }
}

/// Removes the notes that no server can be asked about any more.
fn remove_old(directory: &Path) -> io::Result<()> {
    let now = clock::time_of_day();
    for entry in fs::read_dir(directory)?.flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|at| now.duration_since(at).ok());
        if age.is_some_and(|age| age > LIFETIME) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(directory: &Path, url: &'static str, file: &str) -> Remembered {
        let url = Uri::from_static(url);
        Remembered::new(
            Some(directory),
            &url,
            Some(Path::new(file)),
            &Unfinished::default(),
        )
    }

    fn begun(of: &str) -> Begun {
        Begun {
            upload: Uri::from_static("https://host/x?upload=1"),
            of: of.to_owned(),
        }
    }

    #[test]
    fn the_next_command_knows_the_upload_of_the_same_file_and_url() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = directory.path().join("uploads");
        let first = of(&uploads, "https://host/x", "/a");
        assert_eq!(first.begun(), None);
        first.note(&begun("1"));
        first.note(&begun("22"));
        first.note(&begun("3"));
        if cfg!(unix) {
            let second = of(&uploads, "https://host/x", "/a");
            assert_eq!(second.begun(), None, "the first one is at it");
            second.note(&begun("4"));
            second.forget();
        }
        drop(first);
        for (url, file) in [("https://host/y", "/a"), ("https://host/x", "/b")] {
            assert_eq!(of(&uploads, url, file).begun(), None);
        }
        let second = of(&uploads, "https://host/x", "/a");
        assert_eq!(second.begun(), Some(begun("3")));
        second.forget();
        drop(second);
        assert_eq!(of(&uploads, "https://host/x", "/a").begun(), None);
        assert_eq!(fs::read_dir(&uploads).unwrap().count(), 0);
        let url = Uri::from_static("https://host/x");
        let none = Remembered::new(None, &url, None, &Unfinished::default());
        none.note(&begun("1"));
        assert_eq!(none.begun(), None);
    }

    /// Only an upload with a note can be gone on with, and only until it is complete.
    #[test]
    fn interrupted_command_says_that_it_can_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let url = Uri::from_static("https://host/x");
        let unfinished = Unfinished::default();
        let of = |directory, file: &str| {
            Remembered::new(directory, &url, Some(Path::new(file)), &unfinished)
        };
        let told = || {
            let failure = unfinished.told_with(Failure::interrupted());
            failure.message().to_owned()
        };
        let hinted = |failure: &str| format!("{failure}; {HINT}");
        let (one, other) = (of(Some(directory.path()), "/a"), of(None, "/b"));
        other.note(&begun("1"));
        assert_eq!(told(), "interrupted");
        one.note(&begun("1"));
        one.note(&begun("2"));
        assert_eq!(told(), hinted("interrupted"));
        assert_eq!(unfinished.told_with(Failure::other("x")).message(), "x");
        let lost = |of: &Remembered, cause: Cause| {
            let failure = of.told_with(cause.failed("lost"));
            failure.message().to_owned()
        };
        assert_eq!(lost(&one, Cause::Broken), hinted("lost"));
        assert_eq!(lost(&one, Cause::Refused), "lost");
        assert_eq!(lost(&other, Cause::Broken), "lost");
        // The next command finds the upload, and interrupting this command loses nothing.
        drop(one);
        let one = of(Some(directory.path()), "/a");
        assert!(one.begun().is_some());
        assert_eq!(told(), hinted("interrupted"));
        one.forget();
        drop(one);
        let one = of(Some(directory.path()), "/a");
        assert_eq!(
            (one.begun(), lost(&one, Cause::Broken)),
            (None, "lost".to_owned())
        );
    }

    #[cfg(unix)]
    #[test]
    fn notes_are_private_and_old_ones_are_removed() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("old.json");
        let time = clock::time_of_day() - LIFETIME - Duration::from_secs(1);
        File::create(&old).unwrap().set_modified(time).unwrap();
        File::create(directory.path().join("new.json")).unwrap();
        let one = of(directory.path(), "https://host/x", "/a");
        one.note(&begun("1"));
        let note = one.note.as_ref().unwrap();
        let mode = fs::metadata(note).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!old.exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
