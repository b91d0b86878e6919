//! [`Failure`]: why a command of the lab failed.

use std::fmt::Display;
use std::path::Path;

use thiserror::Error;

/// Why a command of the lab failed. The message is one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The command line, or a file it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command line is right, but the command could not be carried out.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    pub(crate) fn other(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// A file could not be written.
    pub(crate) fn in_file(path: &Path, error: impl Display) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }
}
