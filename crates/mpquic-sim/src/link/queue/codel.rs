//! [`Controlled`]: a line with controlled delay (RFC 8289).

use std::time::{Duration, Instant};

use super::line::{Line, Queue, Queued};
use crate::link::counters::LinkCounters;

/// How long packets may wait without harm (RFC 8289 section 4.3).
const TARGET: Duration = Duration::from_millis(5);
/// How long a wait may be above [`TARGET`] before packets are dropped for it (RFC 8289 section 4.2).
const INTERVAL: Duration = Duration::from_millis(100);
/// What is left of a queue of no more than one packet is never dropped.
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

/// Controlled delay (RFC 8289): drops or marks packets if none has waited for less than [`TARGET`]
/// for an [`INTERVAL`], and more and more often while that lasts.
#[derive(Debug, Clone, Copy, Default)]
struct CoDel {
    /// When the wait will have been too long for an interval.
    late_from: Option<Instant>,
    /// When the next packet is dropped, while packets are.
    drop_next: Option<Instant>,
    /// When the last phase of drops would have gone on.
    last_next: Option<Instant>,
    /// Packets dropped in this phase, and at the beginning of it.
    count: u32,
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
                // Soon after the last phase, it goes on where that had ended.
                let recent = |last: Instant| now.saturating_duration_since(last) < INTERVAL * 16;
                let more = self.count - self.count_before;
                self.count = match self.last_next.is_some_and(recent) && more > 1 {
                    true => more,
                    false => 1,
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
            // A packet that stays is marked once, however late it is.
            if counters.ce_marked > marked {
                break;
            }
        }
        if !late {
            self.last_next = self.drop_next.take();
        }
        queued
    }

    /// When the next packet is dropped after one at `time`.
    fn after(&self, time: Instant) -> Instant {
        time + INTERVAL.div_f64(f64::from(self.count).sqrt())
    }

    /// Takes a packet, and tells whether packets have waited too long for too long.
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

    /// Drops a packet and takes another one; or marks it, if its sender understands marks.
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

    /// Packets that arrived long ago, one taken each 10 ms for a second: how many of them are left out.
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
    fn what_is_left_of_one_packet_is_never_dropped() {
        // One packet waits behind the one that is taken: of 1514 bytes, or of one more.
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
    fn a_phase_of_drops_goes_on_where_the_last_one_ended_if_that_is_recent() {
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
        // One more drop than before is no phase to go on with.
        assert_eq!(count_after(recent, 3, 2), (1, 1));
        assert_eq!(count_after(recent, 4, 2), (2, 2));
    }

    #[test]
    fn the_next_drop_is_made_when_it_is_due_and_the_phase_ends_with_the_delay() {
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
        // What arrived just now has not waited at all.
        assert_eq!(dropped(now, now), (0, 3, false));
    }
}
