//! The local files and directories that `mpquic put` sends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::attributes::Attributes;
use crate::files::beneath::{Top, options};

/// A local file or directory.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    path: PathBuf,
    /// The directory from which the path is opened. Its owner may replace a directory or file below
    /// by a link to a file that only the user of this command can read. `None` for a path of the
    /// command line, perhaps with links.
    top: Option<Arc<Top>>,
}

impl From<&Path> for Local {
    /// A path that the user named.
    fn from(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            top: None,
        }
    }
}

impl PartialEq for Local {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Local {}

impl Local {
    /// A directory of a recursive upload, or a path below the directory.
    pub(crate) fn within(top: Arc<Top>, path: PathBuf) -> Self {
        Self {
            path,
            top: Some(top),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file. In a recursive upload, links, pipes and devices fail.
    pub(crate) fn open(&self) -> io::Result<File> {
        let Some(top) = &self.top else {
            return File::open(&self.path);
        };
        let (parent, name) = top.parent(&self.path)?;
        let file = parent.open_with(name, options().read(true))?.into_std();
        let metadata = file.metadata()?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(io::Error::other("it is no file any more"));
        }
        Ok(file)
    }

    /// The attributes of the directory; none if it cannot be opened.
    pub(crate) fn attributes(&self) -> Attributes {
        let of_directory = match &self.top {
            None => fs::metadata(&self.path).map(|there| Attributes::of_file(&there)),
            Some(top) => top
                .directory(&self.path)
                .and_then(|directory| directory.dir_metadata())
                .map(|there| Attributes::of_listed(&there)),
        };
        of_directory.unwrap_or_default()
    }
}
