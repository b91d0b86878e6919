//! The times of retries, and the end of retries.

use std::time::{Duration, Instant};

/// The first pause. Each following pause is twice as long.
const FIRST: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(8);

/// The progress of a transfer and its time. A repeated part is no progress, so a transfer that
/// always fails at the same byte ends.
#[derive(Debug)]
pub(crate) struct Reached {
    bytes: u64,
    pub(crate) at: Instant,
}

impl Reached {
    pub(crate) fn new(bytes: u64, now: Instant) -> Self {
        Self { bytes, at: now }
    }

    pub(crate) fn note(&mut self, bytes: u64, now: Instant) {
        if bytes > self.bytes {
            *self = Self::new(bytes, now);
        }
    }
}

/// The retries since the last progress.
#[derive(Debug)]
pub(crate) struct Retry {
    /// The longest time of retries without progress.
    limit: Duration,
    /// Time of the last progress.
    advanced: Instant,
    pause: Duration,
    /// Tries in all.
    pub(crate) count: u32,
}

impl Retry {
    pub(crate) fn new(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            advanced: now,
            pause: FIRST,
            count: 0,
        }
    }

    /// The pause before the next try, if the last progress was at `advanced`; `None` to give up.
    /// Returns true for the first try since the progress.
    pub(crate) fn next(&mut self, advanced: Instant, now: Instant) -> Option<(Duration, bool)> {
        let is_first = self.count == 0 || advanced > self.advanced;
        if is_first {
            self.pause = FIRST;
            self.advanced = advanced.max(self.advanced);
        }
        if now.saturating_duration_since(self.advanced) >= self.limit {
            return None;
        }
        self.count += 1;
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST);
        Some((pause, is_first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_something_arrives() {
        let start = crate::process::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut retry = Retry::new(Duration::from_secs(60), start);
        let mut next = |advanced, now| {
            let next = retry.next(at(advanced), at(now));
            next.map(|(pause, first)| (pause.as_millis(), first))
        };
        assert_eq!(next(5, 10), Some((250, true)));
        assert_eq!(next(5, 11), Some((500, false)));
        assert_eq!(next(20, 30), Some((250, true)));
        for expected in [500, 1000, 2000, 4000, 8000, 8000] {
            assert_eq!(next(20, 79), Some((expected, false)));
        }
        assert_eq!(next(20, 80), None);
    }

    #[test]
    fn repeated_bytes_are_no_progress() {
        let start = crate::process::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut reached = Reached::new(500, start);
        for (seconds, bytes, expected) in [(1, 0, 0), (2, 500, 0), (3, 501, 3), (4, 499, 3)] {
            reached.note(bytes, at(seconds));
            assert_eq!(reached.at, at(expected));
        }
    }

    #[test]
    fn without_time_there_is_no_second_try() {
        let start = crate::process::clock::now();
        assert_eq!(Retry::new(Duration::ZERO, start).next(start, start), None);
    }

    #[test]
    fn tries_are_counted() {
        let start = crate::process::clock::now();
        let mut retry = Retry::new(Duration::from_secs(1), start);
        for count in 0..3 {
            assert_eq!(retry.count, count);
            assert!(retry.next(start, start).is_some());
        }
        assert!(retry.next(start, start + Duration::from_secs(1)).is_none());
        assert_eq!(retry.count, 3);
    }

    #[test]
    fn each_pause_is_twice_the_one_before_up_to_a_limit() {
        let start = crate::process::clock::now();
        let mut retry = Retry::new(Duration::from_secs(3600), start);
        let pauses: Vec<_> = (0..8)
            .map(|_| retry.next(start, start).unwrap().0.as_millis())
            .collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        // The limit counts from the last progress, not from the start.
        let late = start + Duration::from_secs(3000);
        assert!(retry.next(late, late + Duration::from_secs(3599)).is_some());
        assert!(retry.next(late, late + Duration::from_secs(3600)).is_none());
    }
}
