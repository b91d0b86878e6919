//! Writes to standard output.

use std::io::{ErrorKind, Write as _};

use crate::Failure;

/// Writes to standard output. A pipe without a reader is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::other(error)),
        _ => Ok(()),
    }
}
