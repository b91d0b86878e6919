//! A file that a client sends: written aside, and renamed once it is whole.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

/// What tells files that are written at the same time from each other.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Names that are tried before it is given up.
const TRIES: u32 = 100;

/// Why a file is not taken.
#[derive(Debug, Error)]
pub(crate) enum UploadError {
    #[error("that name cannot be written to")]
    Forbidden,
    #[error("there is no such directory")]
    NoDirectory,
    #[error("a directory has that name")]
    IsDirectory,
    #[error("something has that name")]
    Exists,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A file in the making. Dropped before [`Upload::finish`], it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Upload {
    file: File,
    aside: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl Upload {
    /// Begins `name` in a directory. Nobody sees it before it is whole: its name begins with a dot.
    pub(crate) fn create(directory: &Path, name: &str) -> Result<Self, UploadError> {
        let path = directory.join(name);
        match fs::symlink_metadata(&path) {
            Ok(there) if there.is_dir() => return Err(UploadError::IsDirectory),
            // A link is replaced, never followed; devices and pipes stay.
            Ok(there) if !there.is_file() && !there.is_symlink() => {
                return Err(UploadError::Forbidden);
            }
            _ => {}
        }
        for _ in 0..TRIES {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let aside = directory.join(format!(".mpquic-put-{}-{number}", std::process::id()));
            match File::create_new(&aside) {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        aside,
                        path,
                        finished: false,
                    });
                }
                // Left by a server that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::from(ErrorKind::AlreadyExists).into())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its name, and tells what is known of it, and whether it is a new name.
    pub(crate) fn finish(mut self) -> io::Result<(fs::Metadata, bool)> {
        let metadata = self.file.metadata()?;
        let is_new = fs::symlink_metadata(&self.path).is_err();
        fs::rename(&self.aside, &self.path)?;
        self.finished = true;
        Ok((metadata, is_new))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.finished {
            // If it cannot be removed there is nothing more to do about it.
            let _ = fs::remove_file(&self.aside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(directory.path()).unwrap().count();
        for (content, is_new) in [(&b"one"[..], true), (b"two", false)] {
            let mut upload = Upload::create(directory.path(), "file").unwrap();
            upload.write(content).unwrap();
            let before = fs::read(directory.path().join("file")).ok();
            assert_ne!(before.as_deref(), Some(content));
            let (metadata, new) = upload.finish().unwrap();
            assert_eq!((metadata.len(), new), (3, is_new));
            assert_eq!(fs::read(directory.path().join("file")).unwrap(), content);
            assert_eq!(names(), 1);
        }
        drop(Upload::create(directory.path(), "file").unwrap());
        assert_eq!(names(), 1, "given up");
    }

    #[test]
    fn only_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("sub")).unwrap();
        let refused = Upload::create(directory.path(), "sub").unwrap_err();
        assert!(matches!(refused, UploadError::IsDirectory));
        #[cfg(unix)]
        {
            let outside = tempfile::tempdir().unwrap();
            let secret = outside.path().join("secret");
            fs::write(&secret, "kept").unwrap();
            std::os::unix::fs::symlink(&secret, directory.path().join("link")).unwrap();
            let mut upload = Upload::create(directory.path(), "link").unwrap();
            upload.write(b"new").unwrap();
            upload.finish().unwrap();
            assert_eq!(fs::read(&secret).unwrap(), b"kept");
            assert_eq!(fs::read(directory.path().join("link")).unwrap(), b"new");
        }
    }

    #[test]
    fn what_was_left_by_others_is_no_hindrance() {
        let directory = tempfile::tempdir().unwrap();
        let first = Upload::create(directory.path(), "a").unwrap();
        let name = first.aside.to_str().unwrap().to_owned();
        let (begin, number) = name.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        // Other tests take numbers as well.
        for next in number + 1..number + 50 {
            let _ = File::create_new(format!("{begin}-{next}"));
        }
        let (metadata, is_new) = first.finish().unwrap();
        assert!(metadata.is_file() && is_new);
        let mut second = Upload::create(directory.path(), "a").unwrap();
        second.write(b"12").unwrap();
        let (_, is_new) = second.finish().unwrap();
        assert!(!is_new);
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"12");
    }
}
