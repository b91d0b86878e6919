//! The clock, which the libraries below do not read.

use std::time::Instant;

/// Now.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a binary may read the clock")]
    Instant::now()
}
