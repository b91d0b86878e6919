//! The time as the runtime tells it, which tests can stop and move on.

use std::time::Instant;

/// The time now.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
