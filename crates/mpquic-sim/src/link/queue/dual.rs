//! [`Dual`]: two coupled queues, one for senders that keep the queue short (L4S, RFC 9332).

use std::time::{Duration, Instant};

use mpquic_core::EcnCodepoint;

use super::line::{Line, Queue, Queued};
use crate::link::counters::LinkCounters;

/// Target delay of the classic queue, seconds (RFC 9332 appendix A.1).
const TARGET: f64 = 0.015;
/// Longest RTT that the control is designed for, seconds.
const MAX_RTT: f64 = 0.1;
/// Time between two updates of the probability: the target, or a third of the RTT if the third is
/// shorter.
const INTERVAL: Duration = Duration::from_millis(15);
/// Weight of the deviation from the target delay, per second.
const ALPHA: f64 = 0.1 * 0.015 / (MAX_RTT * MAX_RTT);
/// Weight of the change of the delay since the last update, per second.
const BETA: f64 = 0.3 / MAX_RTT;
/// A mark in the low-latency queue is this many times as probable as the base probability.
const COUPLING: f64 = 2.0;
/// Above this probability, the classic queue drops packets even if they are ECN-capable.
const MAX_CLASSIC: f64 = 1.0 / (COUPLING * COUPLING);
/// Wait from which on the low-latency queue marks packets, more and more, seconds.
const FIRST_MARKS: f64 = 0.0008;
/// Wait from which on the low-latency queue marks all packets, seconds.
const ALL_MARKS: f64 = 0.0012;
/// While both queues wait, the low-latency queue sends this many bytes for each byte of the classic
/// queue. So the classic queue gets a tenth of the rate.
const LOW_PARTS: i64 = 9;

/// Two lines: a line for packets whose senders react to marks in proportion (ECT(1) or CE), and a
/// line for all other packets. The probability of drops and marks in the classic line follows the
/// delay. Marks in the low-latency line are coupled to the same probability, so that flows of both
/// kinds get similar rates.
#[derive(Default)]
pub(super) struct Dual {
    low: Lane,
    classic: Lane,
    control: Control,
    next_update: Option<Instant>,
    /// Bytes that the classic line may send before its next wait for the low-latency line, times
    /// [`LOW_PARTS`].
    credit: i64,
}

/// A line, and the sum of the probabilities after its last drop or mark.
#[derive(Default)]
struct Lane {
    line: Line,
    sum: f64,
}

impl Lane {
    /// True for this share of all packets, at equal intervals (`recur` of the RFC).
    fn recurs(&mut self, share: f64) -> bool {
        self.sum += share;
        let recurs = self.sum > 1.0;
        if recurs {
            self.sum -= 1.0;
        }
        recurs
    }
}

impl Dual {
    /// Makes all updates that are due by `now`.
    fn update(&mut self, now: Instant) {
        let mut next = self.next_update.unwrap_or(now + INTERVAL);
        while next <= now {
            let lanes = [&self.classic, &self.low];
            let waits = lanes.map(|lane| lane.line.waited(next).as_secs_f64());
            let delay = waits[0].max(waits[1]);
            if delay == 0.0 && self.control.is_at_rest() {
                next = now;
            }
            self.control.update(delay);
            next += INTERVAL;
        }
        self.next_update = Some(next);
    }

    /// Takes the next packet; true for a packet of the low-latency line. The low-latency line goes
    /// first, as long as the classic line gets its share.
    fn take(&mut self) -> Option<(Queued, bool)> {
        let both = !self.low.line.is_empty() && !self.classic.line.is_empty();
        if !both {
            self.credit = 0;
        }
        let is_low =
            !self.low.line.is_empty() && (self.classic.line.is_empty() || self.credit <= 0);
        let lane = if is_low {
            &mut self.low
        } else {
            &mut self.classic
        };
        let queued = lane.line.take()?;
        if both {
            let size = queued.size() as i64;
            self.credit += if is_low { size } else { -LOW_PARTS * size };
        }
        Some((queued, is_low))
    }

    /// Decides whether the low-latency line sends a packet, and marks the packet if necessary.
    fn admits_low(
        &mut self,
        now: Instant,
        queued: &mut Queued,
        counters: &mut LinkCounters,
    ) -> bool {
        let coupled = self.control.coupled();
        if coupled < 1.0 {
            // Alone in its line, the packet may only have waited for a packet of the classic line.
            let alone = self.low.line.is_empty();
            let own = if alone { 0.0 } else { ramp(queued.waited(now)) };
            if self.low.recurs(own.max(coupled)) {
                queued.mark(counters);
            }
            return true;
        }
        // Marks are not enough: the low-latency line drops packets as the classic line does, and
        // marks all other packets.
        if self.low.recurs(self.control.classic()) {
            return false;
        }
        queued.mark(counters);
        true
    }

    /// Decides whether the classic line sends a packet. Marks the packet if necessary and possible.
    fn admits_classic(&mut self, queued: &mut Queued, counters: &mut LinkCounters) -> bool {
        let share = self.control.classic();
        !self.classic.recurs(share) || share < MAX_CLASSIC && queued.mark(counters)
    }
}

impl Queue for Dual {
    fn packets(&self) -> usize {
        self.low.line.len() + self.classic.line.len()
    }

    fn bytes(&self) -> u64 {
        self.low.line.bytes() + self.classic.line.bytes()
    }

    fn push(&mut self, queued: Queued, _: &mut LinkCounters) {
        self.update(queued.arrived);
        let lane = match queued.packet.ecn {
            Some(EcnCodepoint::Ect1 | EcnCodepoint::Ce) => &mut self.low,
            Some(EcnCodepoint::Ect0) | None => &mut self.classic,
        };
        lane.line.append(queued);
    }

    /// RFC 9332 appendix A.2.
    fn pop(&mut self, now: Instant, counters: &mut LinkCounters) -> Option<Queued> {
        self.update(now);
        loop {
            let (mut queued, is_low) = self.take()?;
            let admits = if is_low {
                self.admits_low(now, &mut queued, counters)
            } else {
                self.admits_classic(&mut queued, counters)
            };
            if admits {
                return Some(queued);
            }
            counters.dropped_queue += 1;
        }
    }
}

/// The share of marks after the wait `waited` (`laqm` of the RFC).
fn ramp(waited: Duration) -> f64 {
    let share = (waited.as_secs_f64() - FIRST_MARKS) / (ALL_MARKS - FIRST_MARKS);
    share.clamp(0.0, 1.0)
}

/// The base probability, from which the probabilities of both lines follow.
#[derive(Debug, Clone, Copy, Default)]
struct Control {
    base: f64,
    /// The delay at the last update, seconds.
    delay: f64,
}

impl Control {
    fn update(&mut self, delay: f64) {
        let change = ALPHA * (delay - TARGET) + BETA * (delay - self.delay);
        self.base = (self.base + change).clamp(0.0, 1.0);
        self.delay = delay;
    }

    /// The share of drops (or marks) in the classic line: the square of the base probability,
    /// because the rates of classic flows follow the square root of the share.
    fn classic(&self) -> f64 {
        self.base * self.base
    }

    /// The share of marks in the low-latency line.
    fn coupled(&self) -> f64 {
        COUPLING * self.base
    }

    /// True if updates without a waiting packet leave the probability alone.
    fn is_at_rest(&self) -> bool {
        self.base == 0.0 && self.delay == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probability_follows_delay_and_trend_and_couples_both_lines() {
        let mut control = Control {
            base: 0.1,
            delay: 0.020,
        };
        // 0.15 * 15 ms + 3 * 10 ms.
        control.update(0.030);
        assert!((control.base - 0.132_25).abs() < 1e-12);
        assert!((control.classic() - 0.132_25 * 0.132_25).abs() < 1e-12);
        assert!((control.coupled() - 0.2645).abs() < 1e-12);
        // On the target, but the delay shrinks by 15 ms.
        control.update(0.015);
        assert!((control.base - 0.087_25).abs() < 1e-12);
        control.update(0.0);
        (0..1000).for_each(|_| control.update(0.0));
        assert!(control.is_at_rest());
        (0..1000).for_each(|_| control.update(1.0));
        assert_eq!(control.base, 1.0);
    }

    /// The positions of packets of the classic line among the first packets taken.
    fn classic_places(taken: usize, low_bytes: usize) -> Vec<usize> {
        let start = crate::lab::epoch();
        let mut dual = Dual::default();
        let counters = &mut LinkCounters::new(start);
        for _ in 0..taken {
            let low = Queued::of_bytes(start, low_bytes, Some(EcnCodepoint::Ect1));
            dual.push(low, counters);
            dual.push(Queued::of_bytes(start, 1000, None), counters);
        }
        let is_classic = |_: &usize| !dual.take().expect("both wait").1;
        (0..taken).filter(is_classic).collect()
    }

    #[test]
    fn classic_line_gets_a_tenth_of_the_bytes_while_both_wait() {
        let tenths: Vec<usize> = (0..10).map(|turn| 1 + 10 * turn).collect();
        assert_eq!(classic_places(100, 1000), tenths);
        // Nine times the bytes in packets of a tenth of the size make ninety packets.
        assert_eq!(classic_places(200, 100), [1, 92, 183]);
    }

    #[test]
    fn marks_begin_at_800_microseconds_and_come_at_equal_intervals() {
        let share = |microseconds| ramp(Duration::from_micros(microseconds));
        assert_eq!(
            [share(0), share(800), share(1200), share(9000)],
            [0.0, 0.0, 1.0, 1.0]
        );
        assert!((share(900) - 0.25).abs() < 1e-9);
        let mut lane = Lane::default();
        let recurred: Vec<_> = (1..=16).filter(|_| lane.recurs(0.25)).collect();
        assert_eq!(recurred, [5, 9, 13]);
    }

    #[test]
    fn updates_are_made_when_they_are_due() {
        let start = crate::lab::epoch();
        let mut dual = Dual::default();
        let counters = &mut LinkCounters::new(start);
        dual.push(Queued::of_bytes(start, 1000, None), counters);
        assert_eq!(dual.next_update, Some(start + INTERVAL));
        dual.update(start + INTERVAL - Duration::from_nanos(1));
        assert_eq!((dual.control.base, dual.control.delay), (0.0, 0.0));
        // At each update, the packet has waited for a further interval.
        let mut by_hand = Control::default();
        (1..=4).for_each(|turn| by_hand.update(f64::from(turn) * 0.015));
        dual.update(start + 4 * INTERVAL);
        assert_eq!(
            (dual.control.base, dual.control.delay),
            (by_hand.base, by_hand.delay)
        );
        assert_eq!(dual.next_update, Some(start + 5 * INTERVAL));
    }

    #[test]
    fn the_longer_of_both_waits_counts() {
        let start = crate::lab::epoch();
        let delay = |classic: u64, low: u64| {
            let mut dual = Dual::default();
            let counters = &mut LinkCounters::new(start);
            let at = |millis| start + Duration::from_millis(millis);
            dual.push(Queued::of_bytes(at(classic), 1000, None), counters);
            let ecn = Some(EcnCodepoint::Ce);
            dual.push(Queued::of_bytes(at(low), 1000, ecn), counters);
            assert_eq!((dual.low.line.len(), dual.classic.line.len()), (1, 1));
            assert_eq!((dual.packets(), dual.bytes()), (2, 2000));
            dual.next_update = Some(at(20));
            dual.update(at(20));
            dual.control.delay
        };
        assert!((delay(0, 10) - 0.020).abs() < 1e-12);
        assert!((delay(10, 5) - 0.015).abs() < 1e-12);
    }

    #[test]
    fn probability_decides_on_drops_and_marks() {
        let start = crate::lab::epoch();
        let now = start + Duration::from_millis(1);
        // Returns whether the line sends a packet, and its number of marks; `behind` tells whether
        // another packet waits behind.
        let low = |base, sum, behind| {
            let mut dual = Dual::default();
            let counters = &mut LinkCounters::new(start);
            dual.control.base = base;
            dual.low.sum = sum;
            let ecn = Some(EcnCodepoint::Ect1);
            if behind {
                dual.low.line.append(Queued::of_bytes(start, 100, ecn));
            }
            let mut queued = Queued::of_bytes(start, 100, ecn);
            let sent = dual.admits_low(now, &mut queued, counters);
            (sent, counters.ce_marked)
        };
        // After a wait of 1 ms, the line marks half of the packets; a packet alone in its line
        // stays unmarked.
        assert_eq!(low(0.0, 0.51, true), (true, 1));
        assert_eq!(low(0.0, 0.49, true), (true, 0));
        assert_eq!(low(0.0, 0.51, false), (true, 0));
        // The coupled probability is twice the base probability, if the product is larger.
        assert_eq!(low(0.4, 0.21, false), (true, 1));
        assert_eq!(low(0.4, 0.19, false), (true, 0));
        // From a base probability of one half on, marks are not enough: the line drops a quarter of
        // the packets, and marks all other packets.
        assert_eq!(low(0.5, 0.76, false), (false, 0));
        assert_eq!(low(0.5, 0.74, false), (true, 1));
        let classic = |base, sum, ecn| {
            let mut dual = Dual::default();
            let counters = &mut LinkCounters::new(start);
            dual.control.base = base;
            dual.classic.sum = sum;
            let mut queued = Queued::of_bytes(start, 100, ecn);
            let sent = dual.admits_classic(&mut queued, counters);
            (sent, counters.ce_marked)
        };
        let ecn = Some(EcnCodepoint::Ect0);
        assert_eq!(classic(0.4, 0.83, ecn), (true, 0));
        assert_eq!(classic(0.4, 0.85, ecn), (true, 1));
        assert_eq!(classic(0.4, 0.85, None), (false, 0));
        // A probability of a quarter is too high for marks.
        assert_eq!(classic(0.5, 0.76, ecn), (false, 0));
    }
}
