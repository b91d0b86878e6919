//! Time for the tests of this crate.

use std::sync::LazyLock;
use std::time::Instant;

/// The same instant at each call, so that no result depends on the duration of a test.
pub(crate) fn epoch() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    *EPOCH
}
