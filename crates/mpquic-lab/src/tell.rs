//! What is said to people beside the results.

use std::io::Write as _;

/// Says something on standard error. Where that cannot be written to, nobody can be told.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
