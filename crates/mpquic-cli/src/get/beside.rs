//! Access to a file and to the files beside it, in a directory that is opened once. The owner of a
//! fetched directory may replace a directory in it by a link at any time, so a path is opened from
//! the directory that the user named, and no link is followed.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, Metadata, OpenOptions};

use crate::files::beneath::Top;

/// An open directory. Of each path, the last name counts: the path must be one of this directory.
#[derive(Debug, Clone)]
pub(crate) struct Beside(Arc<Dir>);

impl PartialEq for Beside {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Beside {}

impl Beside {
    /// The directory of a path that the user named, perhaps by links.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let parent = path.parent();
        let named = parent.filter(|parent| !parent.as_os_str().is_empty());
        let named = named.unwrap_or(Path::new("."));
        let opened = Dir::open_ambient_dir(named, ambient_authority())?;
        Ok(Self(Arc::new(opened)))
    }

    /// The directory of a path below the directory that the user named.
    pub(crate) fn below(top: &Top, path: &Path) -> io::Result<Self> {
        let (parent, _) = top.parent(path)?;
        Ok(Self(Arc::new(parent)))
    }

    /// A directory below the directory that the user named, or this directory itself.
    pub(crate) fn within(top: &Top, directory: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(top.directory(directory)?)))
    }

    pub(crate) fn open(&self, path: &Path, options: &OpenOptions) -> io::Result<File> {
        let opened = self.0.open_with(name(path)?, options)?;
        Ok(opened.into_std())
    }

    /// The metadata of a file, or of a link itself.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.0.symlink_metadata(name(path)?)
    }

    pub(crate) fn make_directory(&self, path: &Path, builder: &DirBuilder) -> io::Result<()> {
        self.0.create_dir_with(name(path)?, builder)
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(name(path)?)
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(name(from)?, &self.0, name(to)?)
    }

    /// Renames a file, unless the new name is taken.
    pub(crate) fn rename_to_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.0.hard_link(name(from)?, &self.0, name(to)?) {
            Ok(()) => self.remove(from),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // Some file systems have one name for each file.
            Err(_) if self.metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => self.rename(from, to),
        }
    }
}

fn name(path: &Path) -> io::Result<&Path> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok(Path::new(name))
}
