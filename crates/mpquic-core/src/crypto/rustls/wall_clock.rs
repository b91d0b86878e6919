//! [`WallClock`]: the time of day for TLS, also where the clock is wrong.

use std::time::{SystemTime, UNIX_EPOCH};

use quinn_proto::{StdSystemTime, TimeSource};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The system's clock, for rustls configurations of one's own. A time before 1970, on machines
/// without a battery after a start, counts as the beginning of 1970: no certificate is valid then.
/// The clock that rustls takes by default panics instead.
///
/// ```
/// use std::sync::Arc;
///
/// use mpquic_core::crypto::rustls::{WallClock, provider};
///
/// let provider = Arc::new(provider());
/// let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(WallClock));
/// # let _ = builder;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(StdSystemTime.now()))
    }
}

fn unix_time(time: SystemTime) -> UnixTime {
    let since = time.duration_since(UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clock_before_1970_is_no_reason_to_panic() {
        let second = Duration::from_secs(1);
        for (time, expected) in [
            (UNIX_EPOCH - second, 0),
            (UNIX_EPOCH, 0),
            (UNIX_EPOCH + second, 1),
        ] {
            assert_eq!(unix_time(time).as_secs(), expected);
        }
        let now = WallClock.current_time().map(|now| now.as_secs());
        let expected = StdSystemTime.now().duration_since(UNIX_EPOCH).unwrap();
        assert!(now.unwrap().abs_diff(expected.as_secs()) < 60);
    }
}
