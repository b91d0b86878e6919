//! [`LinkCounters`]: counters of a link's packets.

use std::time::{Duration, Instant};

/// Counters of a link from its start on.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkCounters {
    /// Packets that arrived at the queue.
    pub packets_in: u64,
    /// IP bytes that arrived at the queue.
    pub bytes_in: u64,
    /// Packets delivered, including duplicates.
    pub packets_out: u64,
    /// IP bytes delivered, including duplicates.
    pub bytes_out: u64,
    /// Packets dropped because the queue was full, or by its discipline.
    pub dropped_queue: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Largest number of consecutive packets that were lost at random.
    pub longest_loss: u64,
    /// Packets lost at random since the last packet that was not lost.
    lost_in_a_row: u64,
    /// Packets dropped by a black hole.
    pub dropped_outage: u64,
    /// Packets dropped because of their size.
    pub dropped_mtu: u64,
    /// Packets marked CE.
    pub ce_marked: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets made late.
    pub reordered: u64,
    /// Packets delivered with a flipped bit.
    pub corrupted: u64,
    /// Largest backlog, bytes.
    pub max_queue_bytes: u64,
    /// Longest wait of a packet in the queue.
    pub max_queue_delay: Duration,
    /// Sum of the waits of all packets.
    pub total_queue_delay: Duration,
    /// Packets serialised.
    pub departed: u64,
    start: Instant,
    interval: Option<Duration>,
    intervals: Vec<u64>,
}

impl LinkCounters {
    pub(super) fn new(start: Instant) -> Self {
        Self {
            packets_in: 0,
            bytes_in: 0,
            packets_out: 0,
            bytes_out: 0,
            dropped_queue: 0,
            dropped_loss: 0,
            longest_loss: 0,
            lost_in_a_row: 0,
            dropped_outage: 0,
            dropped_mtu: 0,
            ce_marked: 0,
            duplicated: 0,
            reordered: 0,
            corrupted: 0,
            max_queue_bytes: 0,
            max_queue_delay: Duration::ZERO,
            total_queue_delay: Duration::ZERO,
            departed: 0,
            start,
            interval: None,
            intervals: Vec::new(),
        }
    }

    /// Number of all dropped and lost packets.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_loss + self.dropped_outage + self.dropped_mtu
    }

    pub(super) fn on_chance(&mut self, lost: bool) {
        self.dropped_loss += u64::from(lost);
        self.lost_in_a_row = if lost { self.lost_in_a_row + 1 } else { 0 };
        self.longest_loss = self.longest_loss.max(self.lost_in_a_row);
    }

    /// Mean wait of a packet in the queue.
    pub fn mean_queue_delay(&self) -> Duration {
        let departed = u32::try_from(self.departed).unwrap_or(u32::MAX);
        self.total_queue_delay
            .checked_div(departed)
            .unwrap_or_default()
    }

    /// IP bytes delivered in each interval, for a traced link.
    pub fn bytes_per_interval(&self) -> &[u64] {
        &self.intervals
    }

    pub(super) fn trace(&mut self, interval: Duration) {
        self.interval = Some(interval.max(Duration::from_micros(1)));
        self.intervals.clear();
    }

    pub(super) fn on_departed(&mut self, waited: Duration) {
        self.departed += 1;
        self.total_queue_delay += waited;
        self.max_queue_delay = self.max_queue_delay.max(waited);
    }

    pub(super) fn on_delivered(&mut self, due: Instant, bytes: usize) {
        self.packets_out += 1;
        self.bytes_out += bytes as u64;
        if let Some(interval) = self.interval {
            let index = (due - self.start).as_nanos() / interval.as_nanos();
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            if index >= self.intervals.len() {
                self.intervals.resize(index + 1, 0);
            }
            self.intervals[index] += bytes as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn longest_run_of_losses_is_counted() {
        let mut counters = LinkCounters::new(crate::lab::epoch());
        for lost in [true, true, true, false, true, true, false, true] {
            counters.on_chance(lost);
        }
        assert_eq!((counters.dropped_loss, counters.longest_loss), (6, 3));
        counters.dropped_queue = 10;
        counters.dropped_outage = 200;
        counters.dropped_mtu = 3000;
        assert_eq!(counters.dropped(), 3216);
    }

    #[test]
    fn waits_have_a_mean_and_a_maximum() {
        let mut counters = LinkCounters::new(crate::lab::epoch());
        assert_eq!(counters.mean_queue_delay(), Duration::ZERO);
        let counted = (
            counters.packets_in,
            counters.bytes_in,
            counters.max_queue_bytes,
        );
        assert_eq!(counted, (0, 0, 0), "nothing yet");
        for wait in [3, 1, 5] {
            counters.on_departed(MS * wait);
        }
        assert_eq!((counters.departed, counters.max_queue_delay), (3, 5 * MS));
        assert_eq!(counters.total_queue_delay, 9 * MS);
        assert_eq!(counters.mean_queue_delay(), 3 * MS);
    }

    #[test]
    fn bytes_are_traced_by_interval_from_the_start() {
        let start = crate::lab::epoch();
        let mut counters = LinkCounters::new(start);
        counters.on_delivered(start, 7);
        assert!(counters.bytes_per_interval().is_empty());
        counters.trace(10 * MS);
        for (at, bytes) in [(0, 1), (9, 2), (10, 4), (35, 8)] {
            counters.on_delivered(start + MS * at, bytes);
        }
        assert_eq!(counters.bytes_per_interval(), [3, 4, 0, 8]);
        assert_eq!((counters.packets_out, counters.bytes_out), (5, 22));
        counters.trace(Duration::ZERO);
        counters.on_delivered(start + Duration::from_micros(3), 9);
        assert_eq!(
            counters.bytes_per_interval(),
            [0, 0, 0, 9],
            "microseconds at least"
        );
    }
}
