//! The clock. The libraries below do not read the clock themselves.

use std::time::{Instant, SystemTime};

/// Now.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a binary may read the clock")]
    Instant::now()
}

/// The time of day.
pub(crate) fn time_of_day() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "a binary may read the clock")]
    SystemTime::now()
}
