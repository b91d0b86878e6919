//! The clock. The libraries below do not read the clock themselves.

use std::time::{Instant, SystemTime};

/// Now.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a binary may read the clock")]
    Instant::now()
}

/// The message about a clock that says a time before 1970.
pub(crate) fn warning(now: SystemTime) -> Option<&'static str> {
    (now < SystemTime::UNIX_EPOCH).then_some(
        "mpquic: the clock of this machine says a time before 1970, when no certificate is valid; set the clock",
    )
}

/// The time of day.
pub(crate) fn time_of_day() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "a binary may read the clock")]
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clock_before_1970_is_told() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        assert!(warning(before).is_some_and(|told| told.contains("set the clock")));
        assert_eq!(warning(SystemTime::UNIX_EPOCH), None);
        assert_eq!(warning(time_of_day()), None);
    }
}
