//! Messages on standard error, beside the results.

use std::io::Write as _;

/// Writes a line to standard error, and ignores errors of the write.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
