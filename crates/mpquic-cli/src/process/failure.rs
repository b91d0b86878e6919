//! The end of the tool: exit codes, and one line of explanation.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::OnceLock;

use mpquic_core::PeerText;

use crate::process::screen;

/// The reason why the tool failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line is wrong. Exit code 2.
    Usage(String),
    /// The command failed.
    Failed { cause: Cause, message: String },
    /// The command failed, and the user has seen the reason already.
    Reported(Cause),
}

/// The cause of a failed command. The number is the exit code, as in the table of `docs/tool.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cause {
    /// Another cause.
    Other = 1,
    /// The tool cannot write the output, or cannot read the input.
    File = 3,
    /// No address for the server's name.
    Name = 4,
    /// No connection to the server.
    Connect = 5,
    /// The server is not trusted.
    Trust = 6,
    /// The server refused the request.
    Refused = 7,
    /// The transfer broke off.
    Broken = 8,
    /// The content differs from the expected one.
    Content = 9,
}

impl Cause {
    pub(crate) fn failed(self, message: impl Display) -> Failure {
        Failure::Failed {
            cause: self,
            message: one_line(&message.to_string()),
        }
    }
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(one_line(&message.to_string()))
    }

    pub(crate) fn other(message: impl Display) -> Self {
        Cause::Other.failed(message)
    }

    /// The user ended the command.
    pub(crate) fn interrupted() -> Self {
        Self::other("interrupted")
    }

    /// Puts the subject of the failure in front of the message.
    pub(crate) fn about(self, what: impl Display) -> Self {
        match self {
            Self::Failed { cause, message } => cause.failed(format!("{what}: {message}")),
            other => other,
        }
    }

    /// Appends further advice to the message.
    pub(crate) fn and(self, more: Option<String>) -> Self {
        match (self, more) {
            (Self::Failed { cause, message }, Some(more)) => {
                cause.failed(format!("{message}; {more}"))
            }
            (other, _) => other,
        }
    }

    /// The cause, unless the command line is wrong.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match self {
            Self::Usage(_) => None,
            Self::Failed { cause, .. } | Self::Reported(cause) => Some(*cause),
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.cause().map_or(2, |cause| cause as u8)
    }

    /// The message for the user.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Usage(message) | Self::Failed { message, .. } => message,
            Self::Reported(_) => "told above",
        }
    }

    /// Prints the message on one line, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Usage(message) => {
                screen::say(format_args!("mpquic: {message}; see {} --help", command()));
            }
            Self::Failed { message, .. } => {
                screen::say(format_args!("mpquic: {message}"));
            }
            Self::Reported(_) => {}
        }
        ExitCode::from(self.code())
    }
}

impl From<mpquic_lab::Failure> for Failure {
    fn from(failure: mpquic_lab::Failure) -> Self {
        match failure {
            mpquic_lab::Failure::Usage(message) => Self::Usage(message),
            mpquic_lab::Failure::Failed(message) => Self::other(message),
        }
    }
}

/// The name of the command that runs, for hints.
static COMMAND: OnceLock<String> = OnceLock::new();

/// Sets the command for [`Failure::report`], such as `mpquic proxy client`.
pub(crate) fn set_command(name: String) {
    let _ = COMMAND.set(name);
}

fn command() -> &'static str {
    COMMAND.get().map_or("mpquic", String::as_str)
}

/// The message on one line, for terminals, logs and programs. Peers can put any character into
/// reasons, fields and names.
pub(crate) fn one_line(message: &str) -> String {
    PeerText(message.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_codes_and_messages() {
        for (failure, code, message) in [
            (Failure::usage("u"), 2, "u"),
            (
                Failure::usage("u").about("x").and(Some("y".to_owned())),
                2,
                "u",
            ),
            (Failure::other("o"), 1, "o"),
            (Cause::File.failed("f").about("x"), 3, "x: f"),
            (Cause::Name.failed("n").and(None), 4, "n"),
            (
                Cause::Connect.failed("c").and(Some("m".to_owned())),
                5,
                "c; m",
            ),
            (Cause::Trust.failed("t"), 6, "t"),
            (Cause::Refused.failed("r"), 7, "r"),
            (Cause::Broken.failed("b"), 8, "b"),
            (Failure::Reported(Cause::Content), 9, "told above"),
        ] {
            assert_eq!((failure.code(), failure.message()), (code, message));
        }
        // Messages, log entries and JSON are one line.
        let raw = "a\nb\u{1b}[1mc \u{e4}\u{202e}";
        for failure in [Failure::usage(raw), Failure::other(raw)] {
            assert_eq!(failure.message(), "a b [1mc \u{e4} ");
        }
    }
}
