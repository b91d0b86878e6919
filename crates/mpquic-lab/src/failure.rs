//! [`Failure`]: the reason why a command of the lab failed.

use std::fmt::Display;
use std::path::Path;

use thiserror::Error;

/// The reason why a command of the lab failed. The message is one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The command line or a file that the command line names is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command line is right, but the command failed.
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

    /// The failure to read or write a file.
    pub(crate) fn in_file(path: &Path, error: impl Display) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }
}
