//! Directories that an interrupted `get -r` has made: a note in a directory of the user's programs,
//! so that the next run gives them their times and permissions.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cap_std::fs::Metadata;
use sha2::{Digest, Sha256};

use crate::process::clock;
use crate::process::state;
use crate::text::hex::hex;

/// Most bytes of a note that are read: a line for each of a million directories.
const LONGEST: u64 = 128 << 20;
/// How long a note is of use.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// The directories of one target directory. Without a place for the note, or after an error,
/// nothing is noted: the note only spares the user a `chmod`.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedDirectories {
    note: Option<PathBuf>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// The lines of the note: directories of this run and of earlier ones.
    lines: BTreeSet<String>,
    file: Option<File>,
}

impl UnfinishedDirectories {
    /// The directories that earlier runs have made in `root` and not finished. `state` is the
    /// directory of the notes.
    pub(crate) fn read(state: Option<&Path>, root: &Path) -> Self {
        let Some((state, root)) = state.zip(fs::canonicalize(root).ok()) else {
            return Self::default();
        };
        let name = hex(&Sha256::digest(root.as_os_str().as_encoded_bytes()));
        let note = state.join("directories").join(name);
        let lines = match is_old(&note) {
            Ok(false) => read_lines(&note).unwrap_or_default(),
            _ => BTreeSet::new(),
        };
        let held = Mutex::new(Held { lines, file: None });
        Self {
            note: Some(note),
            held,
        }
    }

    /// True for a directory that this tool has made, and has not finished.
    pub(crate) fn contains(&self, path: &Path, there: &Metadata) -> bool {
        self.held().lines.contains(&line(path, there))
    }

    /// Another directory was made.
    pub(crate) fn add(&self, path: &Path, there: &Metadata) {
        if let Err(error) = self.try_add(path, there) {
            tracing::debug!(%error, "a directory is not noted");
        }
    }

    fn try_add(&self, path: &Path, there: &Metadata) -> io::Result<()> {
        let Some(note) = &self.note else {
            return Ok(());
        };
        let line = line(path, there);
        let mut held = self.held();
        if held.file.is_none() {
            let directory = note.parent().unwrap_or(Path::new("."));
            state::make_directory(directory)?;
            remove_old(directory)?;
            held.file = Some(written(note, &held.lines)?);
        }
        if let Some(file) = &mut held.file {
            file.write_all(format!("{line}\n").as_bytes())?;
        }
        held.lines.insert(line);
        Ok(())
    }

    /// These directories have their times and permissions. With `is_all`, the run has met all
    /// directories.
    pub(crate) fn finish<'a>(
        &self,
        directories: impl Iterator<Item = (&'a Path, &'a Metadata)>,
        is_all: bool,
    ) {
        let Some(note) = &self.note else {
            return;
        };
        let mut held = self.held();
        if held.lines.is_empty() {
            return;
        }
        for (path, there) in directories {
            held.lines.remove(&line(path, there));
        }
        held.file = None;
        let result = if is_all || held.lines.is_empty() {
            fs::remove_file(note)
        } else {
            written(note, &held.lines).map(drop)
        };
        if let Err(error) = result {
            tracing::debug!(%error, "the note of directories stays");
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The line of a directory: its device, its number and a hash of its name. A later directory of the
/// same name has another line.
fn line(path: &Path, metadata: &Metadata) -> String {
    let name = Sha256::digest(path.file_name().unwrap_or_default().as_encoded_bytes());
    let name = hex(name.get(..8).unwrap_or_default());
    #[cfg(unix)]
    {
        use cap_std::fs::MetadataExt as _;
        format!("{} {} {name}", metadata.dev(), metadata.ino())
    }
    #[cfg(not(unix))]
    {
        let created = metadata.created().ok().map(|time| time.into_std());
        format!("{created:?} {name}")
    }
}

fn read_lines(note: &Path) -> io::Result<BTreeSet<String>> {
    let mut text = String::new();
    File::open(note)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Writes a note with these lines, and keeps it open for further lines.
fn written(note: &Path, lines: &BTreeSet<String>) -> io::Result<File> {
    let mut file = state::open_private(note)?;
    file.set_len(0)?;
    let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn is_old(note: &Path) -> io::Result<bool> {
    let modified = fs::symlink_metadata(note)?.modified()?;
    let age = clock::time_of_day().duration_since(modified);
    Ok(age.is_ok_and(|age| age > LIFETIME))
}

fn remove_old(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if is_old(&path).unwrap_or(false) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_known_to_the_next_run_until_they_are_finished() {
        let (state, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let read = || UnfinishedDirectories::read(Some(state.path()), root.path());
        let path = |name: &str| root.path().join(name);
        for name in ["one", "two", "other"] {
            fs::create_dir(path(name)).unwrap();
        }
        let there = |name: &str| {
            let path = path(name);
            crate::get::beside::Beside::of(&path)
                .unwrap()
                .metadata(&path)
                .unwrap()
        };
        let add = |run: &UnfinishedDirectories, name| run.add(&path(name), &there(name));
        let first = read();
        add(&first, "one");
        add(&first, "two");
        let known = |run: &UnfinishedDirectories| {
            ["one", "two", "other"].map(|name| run.contains(&path(name), &there(name)))
        };
        assert_eq!(known(&read()), [true, true, false]);
        let elsewhere = UnfinishedDirectories::read(Some(state.path()), state.path());
        assert_eq!(known(&elsewhere), [false; 3]);
        assert_eq!(
            known(&UnfinishedDirectories::read(None, root.path())),
            [false; 3]
        );
        // The second run has found one of the directories, and made another.
        let second = read();
        add(&second, "other");
        assert_eq!(known(&read()), [true, true, true]);
        let one = (path("one"), there("one"));
        second.finish([(&*one.0, &one.1)].into_iter(), false);
        assert_eq!(known(&read()), [false, true, true]);
        let two = (path("two"), there("two"));
        read().finish([(&*two.0, &two.1)].into_iter(), true);
        assert_eq!(known(&read()), [false; 3]);
        let notes = fs::read_dir(state.path().join("directories")).unwrap();
        assert_eq!(notes.count(), 0);
    }
}
