//! Progress of a running download.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Progress of a running transfer.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// Bytes of the file on disk.
    pub(crate) received: AtomicU64,
    /// Length of the file; zero if unknown.
    length: AtomicU64,
    /// It waits for the disk, or for whoever reads standard output.
    pub(crate) writing: AtomicBool,
    gap: Mutex<Gap>,
}

impl Count {
    /// Bytes of the file on disk.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The length of the file, if it is known and not zero.
    pub(crate) fn length(&self) -> Option<u64> {
        Some(self.length.load(Ordering::Relaxed)).filter(|length| *length > 0)
    }

    pub(crate) fn set_length(&self, length: Option<u64>) {
        self.length.store(length.unwrap_or(0), Ordering::Relaxed);
    }

    /// Something arrived.
    pub(crate) fn arrived(&self, now: Instant) {
        let mut gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
        gap.arrived(now);
    }

    /// The longest time in which nothing arrived, between the first bytes and the last.
    pub(crate) fn longest_gap(&self) -> Duration {
        let gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
        gap.longest
    }
}

/// The longest time between two arrivals.
#[derive(Debug, Default)]
struct Gap {
    last: Option<Instant>,
    longest: Duration,
}

impl Gap {
    fn arrived(&mut self, now: Instant) {
        let last = self.last.replace(now).unwrap_or(now);
        self.longest = self.longest.max(now.saturating_duration_since(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::clock;

    #[test]
    fn the_longest_gap_is_between_the_first_and_the_last_arrival() {
        let start = clock::now();
        let mut gap = Gap::default();
        for (milliseconds, longest) in [(500, 0), (510, 10), (540, 30), (550, 30), (600, 50)] {
            gap.arrived(start + Duration::from_millis(milliseconds));
            assert_eq!(gap.longest.as_millis(), longest);
        }
    }

    #[test]
    fn a_length_of_zero_is_none() {
        let count = Count::default();
        for (set, told) in [
            (None, None),
            (Some(1), Some(1)),
            (Some(0), None),
            (Some(7), Some(7)),
        ] {
            count.set_length(set);
            assert_eq!(count.length(), told);
        }
        count.set_length(None);
        assert_eq!(count.length(), None);
        let start = clock::now();
        assert_eq!(count.longest_gap(), Duration::ZERO);
        for seconds in [1, 3, 4] {
            count.arrived(start + Duration::from_secs(seconds));
        }
        assert_eq!(count.longest_gap(), Duration::from_secs(2));
    }
}
