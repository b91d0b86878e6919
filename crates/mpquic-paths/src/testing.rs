//! Time for the tests of this crate.

use std::sync::LazyLock;
use std::time::Instant;

/// A fixed instant, so that no result depends on a test's duration.
pub(crate) fn epoch() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    *EPOCH
}
