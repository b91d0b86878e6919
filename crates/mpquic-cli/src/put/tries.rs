//! The tries of one file.

use std::time::{Duration, Instant, SystemTime};

use crate::client::retry::{Reached, Retry};
use crate::process::clock;
use crate::put::remembered::Begun;

/// The tries of one file.
pub(crate) struct Tries {
    pub(crate) retry: Retry,
    /// The furthest byte that was sent.
    pub(crate) reached: Reached,
    /// The number of the last connection; 0 before the first connection.
    pub(crate) connection: u64,
    /// The upload that the server lets resume.
    pub(crate) begun: Option<Begun>,
    pub(crate) first_request: FirstRequest,
}

impl Tries {
    pub(crate) fn new(limit: Duration) -> Self {
        let now = clock::now();
        Self {
            retry: Retry::new(limit, now),
            reached: Reached::new(0, now),
            connection: 0,
            begun: None,
            first_request: FirstRequest::default(),
        }
    }
}

/// The time of the first request with the file.
#[derive(Debug, Default)]
pub(crate) struct FirstRequest(Option<(Instant, SystemTime)>);

impl FirstRequest {
    /// Time since the first request; `None` for the first request itself, which begins now.
    pub(crate) fn age(&mut self) -> Option<Duration> {
        self.age_at(clock::now(), clock::time_of_day())
    }

    /// Some systems stop the first clock while they sleep, and anybody can set the second clock.
    /// The longer time counts: a server then takes too many files for newer, and replaces none.
    fn age_at(&mut self, now: Instant, time: SystemTime) -> Option<Duration> {
        let Some((began, date)) = self.0 else {
            self.0 = Some((now, time));
            return None;
        };
        let by_date = time.duration_since(date).unwrap_or_default();
        Some(now.saturating_duration_since(began).max(by_date))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_counts_from_the_first_request_on_the_clock_that_went_on() {
        let (now, time) = (clock::now(), clock::time_of_day());
        let seconds = Duration::from_secs;
        let mut first = FirstRequest::default();
        assert_eq!(first.age_at(now, time), None);
        for (clock, date, age) in [(5, 5, 5), (5, 3600, 3600), (7, 0, 7)] {
            let age_now = first.age_at(now + seconds(clock), time + seconds(date));
            assert_eq!(age_now, Some(seconds(age)));
        }
        let set_back = time.checked_sub(seconds(60)).unwrap();
        assert_eq!(first.age_at(now + seconds(9), set_back), Some(seconds(9)));
    }
}
