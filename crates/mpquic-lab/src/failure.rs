//! Why a command of the lab ends without success.

use std::fmt::Display;
use std::path::Path;

use thiserror::Error;

/// Why a command of the lab ended without success, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The command line or a file it names asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// It did not work out.
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
