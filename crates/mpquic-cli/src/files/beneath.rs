//! Access to files below a directory. Others may replace a directory by a link at any time, so a
//! check of a path does not hold until the path is opened. Instead, each directory of a path is
//! opened from the directory above, and may not be a link.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions};

/// The directory from which no access leads out, in its current state. Its own path may have links.
#[derive(Debug)]
pub(crate) struct Root {
    /// The path without links.
    path: PathBuf,
    dir: Dir,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        Ok(Self { path, dir })
    }

    /// Resolves a path with links to a path in this directory without links; `None` if the path
    /// leads nowhere or out of the directory. Only a hint: links may have changed since.
    pub(crate) fn resolve(&self, below: &Path) -> Option<PathBuf> {
        let found = self.path.join(below).canonicalize().ok()?;
        Some(found.strip_prefix(&self.path).ok()?.to_owned())
    }

    /// Opens a directory; the path must have no links.
    pub(crate) fn directory(&self, below: &Path) -> io::Result<Dir> {
        directory(&self.dir, below)
    }

    /// Opens the parent directory of a path, and returns the last name of the path.
    pub(crate) fn parent<'a>(&self, below: &'a Path) -> io::Result<(Dir, &'a Path)> {
        parent(&self.dir, below)
    }
}

/// A directory of the command line, perhaps named by a link. Access to files below follows no link.
#[derive(Debug)]
pub(crate) struct Top {
    /// The path on the command line, the beginning of each path below.
    path: PathBuf,
    dir: Dir,
}

impl Top {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            dir: Dir::open_ambient_dir(path, ambient_authority())?,
        })
    }

    /// Opens this directory, or a directory below it.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<Dir> {
        directory(&self.dir, self.below(path)?)
    }

    /// Opens the parent directory of a path below, and returns the last name of the path.
    pub(crate) fn parent<'a>(&self, path: &'a Path) -> io::Result<(Dir, &'a Path)> {
        parent(&self.dir, self.below(path)?)
    }

    fn below<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        path.strip_prefix(&self.path).map_err(io::Error::other)
    }
}

fn directory(top: &Dir, below: &Path) -> io::Result<Dir> {
    let mut dir = top.try_clone()?;
    for name in below {
        dir = dir.open_dir_nofollow(name)?;
    }
    Ok(dir)
}

fn parent<'a>(top: &Dir, below: &'a Path) -> io::Result<(Dir, &'a Path)> {
    let name = below.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let parent = below.parent().unwrap_or(Path::new(""));
    Ok((directory(top, parent)?, Path::new(name)))
}

/// True for two handles of one directory. Systems other than Unix do not tell.
pub(crate) fn is_same_directory(one: &Dir, other: &Dir) -> bool {
    let (Ok(one), Ok(other)) = (one.dir_metadata(), other.dir_metadata()) else {
        return false;
    };
    #[cfg(unix)]
    {
        use cap_std::fs::MetadataExt as _;
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }
    #[cfg(not(unix))]
    {
        one.is_dir() && other.is_dir()
    }
}

/// True if the name leads to this open file. Outside Unix, files have no numbers to compare, and
/// any file with the name counts.
pub(crate) fn is_name(directory: &Dir, name: &Path, file: &File) -> bool {
    metadata_of_name(directory, name, file).is_some()
}

/// True if this is the only name of the open file. A file with a further name may belong to another
/// user.
pub(crate) fn is_only_name(directory: &Dir, name: &Path, file: &File) -> bool {
    // One call tells both: the file could get and lose names between two calls.
    let named = metadata_of_name(directory, name, file);
    #[cfg(unix)]
    let named = named.filter(|named| cap_std::fs::MetadataExt::nlink(named) == 1);
    named.is_some()
}

/// The metadata of the name, if the name leads to this open file.
#[cfg(unix)]
fn metadata_of_name(directory: &Dir, name: &Path, file: &File) -> Option<Metadata> {
    use cap_std::fs::MetadataExt as _;
    use std::os::unix::fs::MetadataExt as _;
    let (open, named) = (
        file.metadata().ok()?,
        directory.symlink_metadata(name).ok()?,
    );
    ((open.dev(), open.ino()) == (named.dev(), named.ino())).then_some(named)
}

#[cfg(not(unix))]
fn metadata_of_name(directory: &Dir, name: &Path, _file: &File) -> Option<Metadata> {
    directory.symlink_metadata(name).ok()
}

/// Flags for opening files: links fail, and pipes do not block.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.follow(FollowSymlinks::No).nonblock(true);
    options
}
