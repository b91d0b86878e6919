//! The bytes in flight and the bytes lost at the time when a packet left.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Entries per round trip: the bytes in flight change by a few percent from one entry to the next.
const ENTRIES_PER_ROUND: u32 = 32;
/// Largest number of entries. A loss is noticed long before the entry of its packet is dropped.
const MAX_ENTRIES: usize = 256;

/// The state of the path at a point in time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Flight {
    /// Bytes in flight, including the packet that was just sent.
    pub(super) bytes: f64,
    /// Bytes lost since the path opened.
    pub(super) lost: f64,
}

/// Remembers [`Flight`]s by time. The draft stores one with each packet. Because packets of a path
/// leave in order, a few entries per round trip are enough.
#[derive(Debug, Clone, Default)]
pub(super) struct SendLog {
    entries: VecDeque<(Instant, Flight)>,
}

impl SendLog {
    /// A packet left. Packets that leave within a small part of `rtt` share an entry.
    pub(super) fn push(&mut self, now: Instant, rtt: Duration, flight: Flight) {
        if let Some((since, last)) = self.entries.back_mut()
            && now < *since + rtt / ENTRIES_PER_ROUND
        {
            *last = flight;
            return;
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back((now, flight));
    }

    /// Bytes of memory on the heap.
    pub(super) fn memory(&self) -> u64 {
        (self.entries.capacity() * size_of::<(Instant, Flight)>()) as u64
    }

    /// The state when a packet left at `sent_at`, or the oldest known state if that was earlier.
    pub(super) fn at(&self, sent_at: Instant) -> Flight {
        let after = self.entries.partition_point(|(since, _)| *since <= sent_at);
        let entry = self.entries.get(after.saturating_sub(1));
        entry.map(|(_, flight)| *flight).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    fn flight(bytes: u32) -> Flight {
        let bytes = f64::from(bytes);
        Flight { bytes, lost: 0.0 }
    }

    #[test]
    fn memory_covers_all_entries() {
        let mut log = SendLog::default();
        assert_eq!(log.memory(), 0);
        for ms in 0..10 {
            let now = start() + Duration::from_millis(ms);
            log.push(now, Duration::ZERO, flight(1));
        }
        let entry = size_of::<(Instant, Flight)>() as u64;
        assert!((10 * entry..40 * entry).contains(&log.memory()));
    }

    #[test]
    fn packets_of_a_small_part_of_a_round_trip_share_an_entry() {
        let mut log = SendLog::default();
        let rtt = Duration::from_millis(320);
        for (ms, entries) in [(0, 1), (9, 1), (10, 2), (19, 2), (20, 3)] {
            log.push(start() + Duration::from_millis(ms), rtt, flight(1));
            assert_eq!(log.entries.len(), entries, "{ms}");
        }
    }

    #[test]
    fn state_is_that_of_the_given_time_within_a_32nd_of_a_round_trip() {
        let now = start();
        let at = |ms| now + Duration::from_millis(ms);
        let rtt = Duration::from_millis(320);
        let mut log = SendLog::default();
        assert_eq!(log.at(now), Flight::default());
        for ms in 0..100u32 {
            log.push(at(ms.into()), rtt, flight(ms));
        }
        assert_eq!(log.entries.len(), 10);
        for ms in 0..100 {
            let found = log.at(at(ms)).bytes;
            assert!((found - ms as f64).abs() < 10.0, "{ms}: {found}");
        }
        for ms in 100..20_000u32 {
            log.push(at(ms.into()), rtt, flight(ms));
        }
        assert_eq!(log.entries.len(), MAX_ENTRIES);
        assert!(log.at(now).bytes > 17_000.0, "the oldest there is");
    }
}
