//! [`Controlled`]: a line with controlled delay (RFC 8289).

use std::time::{Duration, Instant};

use super::line::{Line, Queue, Queued};
use crate::link::counters::LinkCounters;

/// Longest harmless wait of a packet (RFC 8289 section 4.3).
const TARGET: Duration = Duration::from_millis(5);
/// The time for which waits may exceed [`TARGET`] before drops begin (RFC 8289 section 4.2).
const INTERVAL: Duration = Duration::from_millis(100);
/// The most bytes behind a packet that spare the packet from a drop.
const ONE_PACKET: u64 = 1514;

/// Packets in the order of their arrival, with controlled delay.
#[derive(Default)]
pub(super) struct Controlled {
    pub(super) line: Line,
    codel: CoDel,
}

impl Queue for Controlled {
    fn packets(&self) -> usize {
        self.line.len()
    }

    fn bytes(&self) -> u64 {
        self.line.bytes()
    }

    fn push(&mut self, queued: Queued, _: &mut LinkCounters) {
        self.line.append(queued);
    }

    fn pop(&mut self, now: Instant, counters: &mut LinkCounters) -> Option<Queued> {
        self.codel.next(now, &mut self.line, counters)
    }
}

/// Controlled delay (RFC 8289): drops or marks packets after an [`INTERVAL`] in which all packets
/// waited longer than [`TARGET`], and ever more often while such waits last.
#[derive(Debug, Clone, Copy, Default)]
struct CoDel {
    /// The time at which waits turn out too long: an interval after the first long wait.
    late_from: Option<Instant>,
    /// The time of the next drop, during a phase of drops.
    drop_next: Option<Instant>,
    /// The time of the next drop, had the last phase of drops gone on.
    last_next: Option<Instant>,
    /// Packets dropped in this phase.
    count: u32,
    /// Value of `count` at the beginning of this phase.
    count_before: u32,
}

impl CoDel {
    /// RFC 8289 section 5.6.
    fn next(
        &mut self,
        now: Instant,
        line: &mut Line,
        counters: &mut LinkCounters,
    ) -> Option<Queued> {
        let (mut queued, mut late) = self.take(now, line);
        let Some(mut due) = self.drop_next else {
            if late {
                queued = self.drop(now, queued, line, counters).0;
                // A phase soon after the last phase continues at the last rate of drops.
                let recent = |last: Instant| now.saturating_duration_since(last) < INTERVAL * 16;
                let more = self.count - self.count_before;
                self.count = if self.last_next.is_some_and(recent) && more > 1 {
                    more
                } else {
                    1
                };
                self.count_before = self.count;
                self.drop_next = Some(self.after(now));
            }
            return queued;
        };
        while late && now >= due {
            self.count += 1;
            let marked = counters.ce_marked;
            (queued, late) = self.drop(now, queued, line, counters);
            due = self.after(due);
            self.drop_next = Some(due);
            // A packet that stays gets only a single mark, even if the packet is very late.
            if counters.ce_marked > marked {
                break;
            }
        }
        if !late {
            self.last_next = self.drop_next.take();
        }
        queued
    }

    /// The time of the next drop after a drop at `time`.
    fn after(&self, time: Instant) -> Instant {
        time + INTERVAL.div_f64(f64::from(self.count).sqrt())
    }

    /// Takes a packet; true after too long waits for too long a time.
    fn take(&mut self, now: Instant, line: &mut Line) -> (Option<Queued>, bool) {
        let queued = line.take();
        let harmless = |queued: &Queued| queued.waited(now) < TARGET || line.bytes() <= ONE_PACKET;
        if queued.as_ref().is_none_or(harmless) {
            self.late_from = None;
            return (queued, false);
        }
        let late_from = *self.late_from.get_or_insert(now + INTERVAL);
        (queued, now >= late_from)
    }

    /// Drops a packet and takes the next packet, or marks an ECN-capable packet.
    fn drop(
        &mut self,
        now: Instant,
        queued: Option<Queued>,
        line: &mut Line,
        counters: &mut LinkCounters,
    ) -> (Option<Queued>, bool) {
        let Some(mut queued) = queued else {
            return (None, false);
        };
        if queued.mark(counters) {
            return (Some(queued), true);
        }
        counters.dropped_queue += 1;
        self.take(now, line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Number of drops: for a second, packets of these sizes arrive every 10 ms, with the arrival
    /// time of long ago, and leave until one packet is left.
    fn dropped(sizes: &[usize]) -> u64 {
        let start = crate::lab::epoch();
        let mut queue = Controlled::default();
        let counters = &mut LinkCounters::new(start);
        for turn in 0..100 {
            let now = start + 10 * MS * turn;
            for size in sizes {
                queue.push(Queued::of_bytes(start, *size, None), counters);
            }
            while queue.packets() > 1 {
                queue.pop(now, counters);
            }
        }
        counters.dropped_queue
    }

    #[test]
    fn no_packet_is_dropped_if_at_most_one_waits_behind() {
        // A single packet waits behind the taken packet: 1514 bytes long, or one byte longer.
        assert_eq!(dropped(&[1514]), 0);
        assert!(dropped(&[1515]) > 0);
    }

    #[test]
    fn a_wait_just_below_the_target_is_harmless() {
        let start = crate::lab::epoch();
        for (waited, late) in [(TARGET - Duration::from_nanos(1), false), (TARGET, true)] {
            let mut codel = CoDel::default();
            let mut line = Line::default();
            (0..3).for_each(|_| line.append(Queued::of_bytes(start, 1500, None)));
            assert!(!codel.take(start + waited, &mut line).1, "not for long");
            assert_eq!(codel.late_from.is_some(), late);
            let expected = late.then_some(start + waited + INTERVAL);
            assert_eq!(codel.late_from, expected);
        }
    }

    #[test]
    fn phase_of_drops_continues_the_rate_of_a_recent_phase() {
        let start = crate::lab::epoch();
        let count_after = |since: Duration, count, count_before| {
            let counters = &mut LinkCounters::new(start);
            let now = start + 100 * INTERVAL;
            let mut codel = CoDel {
                late_from: Some(start),
                last_next: Some(now - since),
                count,
                count_before,
                ..CoDel::default()
            };
            let mut line = Line::default();
            (0..4).for_each(|_| line.append(Queued::of_bytes(start, 1500, None)));
            assert!(codel.next(now, &mut line, counters).is_some());
            assert_eq!(counters.dropped_queue, 1);
            let next = codel.drop_next.unwrap() - now;
            assert_eq!(next, INTERVAL.div_f64(f64::from(codel.count).sqrt()));
            (codel.count, codel.count_before)
        };
        let recent = INTERVAL * 16 - Duration::from_nanos(1);
        assert_eq!(count_after(recent, 9, 2), (7, 7));
        assert_eq!(count_after(INTERVAL * 16, 9, 2), (1, 1));
        // A last phase with only one drop after its beginning does not count.
        assert_eq!(count_after(recent, 3, 2), (1, 1));
        assert_eq!(count_after(recent, 4, 2), (2, 2));
    }

    #[test]
    fn drops_come_when_due_and_end_with_the_delay() {
        let start = crate::lab::epoch();
        let now = start + 100 * INTERVAL;
        let dropped = |due: Instant, arrived: Instant| {
            let counters = &mut LinkCounters::new(start);
            let mut codel = CoDel {
                late_from: Some(start),
                drop_next: Some(due),
                count: 3,
                ..CoDel::default()
            };
            let mut line = Line::default();
            (0..4).for_each(|_| line.append(Queued::of_bytes(arrived, 1500, None)));
            assert!(codel.next(now, &mut line, counters).is_some());
            (
                counters.dropped_queue,
                codel.count,
                codel.drop_next.is_some(),
            )
        };
        assert_eq!(dropped(now, start), (1, 4, true));
        assert_eq!(dropped(now + Duration::from_nanos(1), start), (0, 3, true));
        // A packet that arrives now has no wait.
        assert_eq!(dropped(now, now), (0, 3, false));
    }
}
