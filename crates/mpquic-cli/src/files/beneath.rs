//! Access to what is beneath a directory. Whoever may write there can exchange a directory for a link
//! at any time, so no path is looked at first and opened afterwards: each directory of a path is
//! opened in the one before, and none of them may be a link.

use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

/// The directory that nothing leads out of, as it is now: its own path may have links.
#[derive(Debug)]
pub(crate) struct Root {
    /// Without links.
    path: PathBuf,
    dir: Dir,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        Ok(Self { path, dir })
    }

    /// Where a path leads that may have links, as a path in this directory without any; `None` if it
    /// leads nowhere or out of it. Only a hint: links may have changed since.
    pub(crate) fn resolve(&self, below: &Path) -> Option<PathBuf> {
        let found = self.path.join(below).canonicalize().ok()?;
        Some(found.strip_prefix(&self.path).ok()?.to_owned())
    }

    /// Opens a directory; the path must have no links.
    pub(crate) fn directory(&self, below: &Path) -> io::Result<Dir> {
        let mut dir = self.dir.try_clone()?;
        for name in below {
            dir = dir.open_dir_nofollow(name)?;
        }
        Ok(dir)
    }

    /// Opens the directory and gives the name of what is in it.
    pub(crate) fn parent<'a>(&self, below: &'a Path) -> io::Result<(Dir, &'a Path)> {
        let name = below.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let parent = below.parent().unwrap_or(Path::new(""));
        Ok((self.directory(parent)?, Path::new(name)))
    }
}

/// How files are opened: a link is none, and a pipe lets nobody wait.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.follow(FollowSymlinks::No).nonblock(true);
    options
}
