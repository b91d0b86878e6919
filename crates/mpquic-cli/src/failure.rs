//! How the tool ends: exit codes and one line of explanation.

use std::fmt::Display;
use std::process::ExitCode;

/// Why the tool failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line is wrong. Exit code 2.
    Usage(String),
    /// The command could not be carried out. Exit code 1.
    Failed(String),
    /// The command could not be carried out, and the user has been told already. Exit code 1.
    Reported,
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    pub(crate) fn other(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// Puts what the failure is about in front of the message.
    pub(crate) fn about(self, what: impl Display) -> Self {
        match self {
            Self::Failed(message) => Self::Failed(format!("{what}: {message}")),
            other => other,
        }
    }

    /// Tells the user, on one line, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Usage(message) => {
                eprintln!("mpquic: {}; see mpquic --help", one_line(message));
                ExitCode::from(2)
            }
            Self::Failed(message) => {
                eprintln!("mpquic: {}", one_line(message));
                ExitCode::FAILURE
            }
            Self::Reported => ExitCode::FAILURE,
        }
    }
}

impl From<mpquic_lab::Failure> for Failure {
    fn from(failure: mpquic_lab::Failure) -> Self {
        match failure {
            mpquic_lab::Failure::Usage(message) => Self::Usage(message),
            mpquic_lab::Failure::Failed(message) => Self::Failed(message),
        }
    }
}

/// The message on one line, without control characters: peers may put anything into their reasons,
/// which must not reach the terminal.
pub(crate) fn one_line(message: &str) -> String {
    message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
