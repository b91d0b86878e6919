//! Access to a file and its neighbours in an open directory. The owner of an output directory may
//! replace subdirectories by links at any time, so each path is opened from the output directory,
//! and links fail.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, Metadata, OpenOptions};

use crate::files::beneath::{Top, is_name, is_only_name, is_same_directory, options};

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

    /// A directory at or below the output directory.
    pub(crate) fn within(top: &Top, directory: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(top.directory(directory)?)))
    }

    /// True if the path still leads into this directory.
    pub(crate) fn is_still_of(&self, path: &Path) -> bool {
        Self::of(path).is_ok_and(|now| is_same_directory(&now.0, &self.0))
    }

    pub(crate) fn open(&self, path: &Path, options: &OpenOptions) -> io::Result<File> {
        let opened = self.0.open_with(name(path)?, options)?;
        Ok(opened.into_std())
    }

    /// Opens a directory, and nothing else in its place.
    pub(crate) fn open_directory(&self, path: &Path) -> io::Result<File> {
        let opened = self.open(path, options().read(true))?;
        if !opened.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(opened)
    }

    /// The metadata of a file, or of a link itself.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.0.symlink_metadata(name(path)?)
    }

    /// True if the path leads to this open file.
    pub(crate) fn is_name(&self, path: &Path, file: &File) -> bool {
        name(path).is_ok_and(|name| is_name(&self.0, name, file))
    }

    /// True if the path is the only name of this open file.
    pub(crate) fn is_only_name(&self, path: &Path, file: &File) -> bool {
        name(path).is_ok_and(|name| is_only_name(&self.0, name, file))
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
