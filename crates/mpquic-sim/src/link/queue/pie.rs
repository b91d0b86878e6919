//! [`Pie`]: proportional integral controller enhanced (RFC 8033).

use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::line::{Line, Queue, Queued};
use crate::link::counters::LinkCounters;

/// Target delay, seconds (RFC 8033 section 4.2, `QDELAY_REF`).
const TARGET: f64 = 0.015;
/// Time between two updates of the drop probability (`T_UPDATE`).
const INTERVAL: Duration = Duration::from_millis(15);
/// How long a growing queue is left alone (section 4.4, `MAX_BURST`).
const MAX_BURST: Duration = Duration::from_millis(150);
/// Weight of the deviation from the target delay, per second.
const ALPHA: f64 = 0.125;
/// Weight of the change of the delay since the last update, per second.
const BETA: f64 = 1.25;
/// The largest queue without drops, bytes: two packets of mean size (section 4.1).
const SHORT: u64 = 2 * 1024;
/// The probability below which packets are marked instead of dropped (section 5.1).
const MARKS_BELOW: f64 = 0.1;
/// The sum of probabilities after the last drop below which no packet is dropped (section 5.4).
const NO_DROP_BELOW: f64 = 0.85;
/// The sum of probabilities after the last drop from which on a packet is always dropped (section
/// 5.4).
const DROP_ABOVE: f64 = 8.5;

/// A line that drops (or marks) arriving packets with a probability that follows the line's delay.
/// The delay is the wait of the last packet that left (section 5.2).
pub(super) struct Pie {
    line: Line,
    control: Control,
    next_update: Option<Instant>,
    /// Wait of the last packet that left, seconds; 0 for a packet without a successor in the queue.
    delay: f64,
    /// Sum of the probabilities since the last drop.
    since_drop: f64,
    random: Xoshiro256PlusPlus,
}

impl Pie {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            line: Line::default(),
            control: Control::default(),
            next_update: None,
            delay: 0.0,
            since_drop: 0.0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    /// Makes all updates that were due by now.
    fn update(&mut self, now: Instant) {
        let mut next = self.next_update.unwrap_or(now + INTERVAL);
        let delay = self.delay;
        while next <= now {
            if delay == 0.0 && self.control.is_at_rest() {
                next = now;
            }
            self.control.update(delay);
            next += INTERVAL;
        }
        self.next_update = Some(next);
    }

    /// Decides whether an arriving packet is dropped (sections 4.1, 4.4 and 5.4).
    fn drops(&mut self) -> bool {
        self.control.on_arrival(self.delay);
        let control = &self.control;
        let harmless = control.delay < TARGET / 2.0 && control.probability < 0.2;
        if !control.burst.is_zero() || harmless || self.line.bytes() <= SHORT {
            return false;
        }
        if control.probability == 0.0 {
            self.since_drop = 0.0;
        }
        self.since_drop += control.probability;
        let chance = self.random.random::<f64>() < control.probability;
        let drops = self.since_drop >= DROP_ABOVE || self.since_drop >= NO_DROP_BELOW && chance;
        if drops {
            self.since_drop = 0.0;
        }
        drops
    }
}

impl Queue for Pie {
    fn packets(&self) -> usize {
        self.line.len()
    }

    fn bytes(&self) -> u64 {
        self.line.bytes()
    }

    fn push(&mut self, mut queued: Queued, counters: &mut LinkCounters) {
        self.update(queued.arrived);
        if self.drops() {
            let marks = self.control.probability < MARKS_BELOW;
            if !(marks && queued.mark(counters)) {
                counters.dropped_queue += 1;
                return;
            }
        }
        self.line.append(queued);
    }

    fn pop(&mut self, now: Instant, _: &mut LinkCounters) -> Option<Queued> {
        self.update(now);
        let queued = self.line.take()?;
        // A packet that arrives at an empty line does not wait for earlier packets.
        self.delay = if self.line.is_empty() {
            0.0
        } else {
            queued.waited(now).as_secs_f64()
        };
        Some(queued)
    }
}

/// The probability of drops, and its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Control {
    probability: f64,
    /// The delay at the last update, seconds.
    delay: f64,
    /// How much longer no packet is dropped.
    burst: Duration,
}

impl Control {
    /// RFC 8033 section 4.2, with the limit of section 5.5.
    fn update(&mut self, delay: f64) {
        let change = ALPHA * (delay - TARGET) + BETA * (delay - self.delay);
        let mut change = change * tuning(self.probability);
        if self.probability >= 0.1 {
            change = change.min(0.02);
        }
        self.probability += change;
        if delay == 0.0 && self.delay == 0.0 {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.delay = delay;
        self.burst = self.burst.saturating_sub(INTERVAL);
    }

    /// After a time of a short queue, the queue may grow once more.
    fn on_arrival(&mut self, delay: f64) {
        let short = delay < TARGET / 2.0 && self.delay < TARGET / 2.0;
        if self.probability == 0.0 && short {
            self.burst = MAX_BURST;
        }
    }

    /// True if no update would change the probability while no packet waits.
    fn is_at_rest(&self) -> bool {
        self.probability == 0.0 && self.delay == 0.0 && self.burst.is_zero()
    }
}

/// The part of a change that is applied: small while the probability is small (section 4.2).
fn tuning(probability: f64) -> f64 {
    let steps = [
        (1e-6, 2048.0),
        (1e-5, 512.0),
        (1e-4, 128.0),
        (1e-3, 32.0),
        (1e-2, 8.0),
        (1e-1, 2.0),
    ];
    let step = steps.iter().find(|(below, _)| probability < *below);
    step.map_or(1.0, |(_, divisor)| 1.0 / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probability_follows_delay_and_trend() {
        let mut control = Control {
            probability: 0.05,
            delay: 0.020,
            ..Control::default()
        };
        // 0.125 * 15 ms + 1.25 * 10 ms = 0.014375, half of which counts below 10 %.
        control.update(0.030);
        assert!((control.probability - 0.057_187_5).abs() < 1e-12);
        // At the target, but the delay shrinks: 1.25 * -15 ms, half.
        control.update(0.015);
        assert!((control.probability - 0.047_812_5).abs() < 1e-12);
        // At the target without a trend, the probability does not change.
        control.update(0.015);
        assert!((control.probability - 0.047_812_5).abs() < 1e-12);
    }

    #[test]
    fn small_probabilities_change_little_and_large_ones_by_two_percent_at_most() {
        for (probability, change) in [
            (0.0, 0.0625 / 2048.0),
            (5e-6, 0.0625 / 512.0),
            (5e-5, 0.0625 / 128.0),
            (5e-4, 0.0625 / 32.0),
            (5e-3, 0.0625 / 8.0),
            (5e-2, 0.0625 / 2.0),
            (0.1, 0.02),
            (0.9, 0.02),
        ] {
            let mut control = Control {
                probability,
                delay: 0.515,
                ..Control::default()
            };
            // 500 ms above the target, without a trend.
            control.update(0.515);
            let changed = control.probability - probability;
            assert!((changed - change).abs() < 1e-12, "{probability}: {changed}");
        }
    }

    #[test]
    fn packet_at_an_empty_queue_finds_a_delay_of_zero() {
        let start = crate::lab::epoch();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pie = Pie::new(1);
        let counters = &mut LinkCounters::new(start);
        (0..100).for_each(|_| pie.push(Queued::of_bytes(start, 1000, None), counters));
        for millis in 1..=100 {
            assert!(pie.pop(at(millis), counters).is_some());
        }
        assert!(pie.control.probability > 0.0, "100 ms is above the target");
        // Long after, the delay has been zero at every update.
        pie.push(Queued::of_bytes(at(10_000), 1000, None), counters);
        assert_eq!(pie.control.probability, 0.0);
        pie.update(at(10_100));
        assert_eq!((pie.control.probability, pie.control.delay), (0.0, 0.0));
    }

    #[test]
    fn empty_queue_lowers_the_probability_and_allows_a_burst_once() {
        let mut control = Control {
            probability: 0.5,
            ..Control::default()
        };
        control.update(0.0);
        // 0.125 * -15 ms, and 2 % of the rest.
        assert!((control.probability - (0.5 - 0.001_875) * 0.98).abs() < 1e-12);
        while control.probability > 0.0 {
            control.update(0.0);
        }
        assert!(control.is_at_rest());
        control.on_arrival(0.0);
        assert_eq!(control.burst, MAX_BURST);
        (0..10).for_each(|_| control.update(0.1));
        assert_eq!(control.burst, Duration::ZERO);
        control.on_arrival(0.1);
        assert_eq!(control.burst, Duration::ZERO, "the queue is long");
    }

    /// A controller in this state with a queue of `bytes` bytes.
    fn with(control: Control, since_drop: f64, bytes: usize) -> Pie {
        let mut pie = Pie::new(1);
        pie.line
            .append(Queued::of_bytes(crate::lab::epoch(), bytes, None));
        pie.control = control;
        pie.delay = control.delay;
        pie.since_drop = since_drop;
        pie
    }

    fn long(probability: f64) -> Control {
        Control {
            probability,
            delay: 0.1,
            burst: Duration::ZERO,
        }
    }

    #[test]
    fn short_queues_bursts_and_small_delays_are_left_alone() {
        let certain = long(1.0);
        assert!(with(certain, 8.5, 3000).drops());
        assert!(with(certain, 8.5, 2049).drops());
        assert!(
            !with(certain, 8.5, 2048).drops(),
            "two packets of mean size"
        );
        let burst = Control {
            burst: Duration::from_nanos(1),
            ..certain
        };
        assert!(!with(burst, 8.5, 3000).drops());
        let drops = |delay, probability| {
            let control = Control {
                delay,
                ..long(probability)
            };
            with(control, 8.5, 3000).drops()
        };
        // Below half of the target delay, a probability below a fifth drops no packets.
        assert!(!drops(0.007_4, 0.199));
        assert!(drops(0.007_4, 0.2));
        assert!(drops(0.007_5, 0.199));
    }

    #[test]
    fn drops_keep_a_minimum_and_a_maximum_distance() {
        // One more packet adds its probability.
        let drops = |probability, since_drop| with(long(probability), since_drop, 3000).drops();
        assert!(drops(0.1, 8.4) && drops(0.1, 9.0), "for sure");
        assert!(!drops(1.0, -0.16), "0.84, however probable");
        assert!(drops(1.0, -0.15));
        let mut pie = with(long(1.0), 0.0, 3000);
        assert!(pie.drops());
        assert_eq!(pie.since_drop, 0.0, "it begins anew");
        let mut rare = with(long(1e-9), 0.3, 3000);
        assert!(!rare.drops());
        assert!((rare.since_drop - 0.300_000_001).abs() < 1e-12);
        let mut never = with(long(0.0), 5.0, 3000);
        assert!(!never.drops());
        assert_eq!(never.since_drop, 0.0);
    }

    #[test]
    fn packets_are_marked_at_low_probabilities() {
        let arrival = |probability, ecn| {
            let start = crate::lab::epoch();
            let mut pie = with(long(probability), 8.5, 3000);
            let counters = &mut LinkCounters::new(start);
            pie.push(Queued::of_bytes(start, 1000, ecn), counters);
            (pie.packets(), counters.ce_marked, counters.dropped_queue)
        };
        let ecn = Some(mpquic_core::EcnCodepoint::Ect0);
        assert_eq!(arrival(0.099, ecn), (2, 1, 0));
        assert_eq!(arrival(0.1, ecn), (1, 0, 1));
        assert_eq!(arrival(0.099, None), (1, 0, 1));
    }

    #[test]
    fn updates_are_made_when_they_are_due() {
        let start = crate::lab::epoch();
        let mut pie = with(long(0.5), 0.0, 3000);
        pie.update(start);
        assert_eq!(pie.next_update, Some(start + INTERVAL));
        assert_eq!(pie.control, long(0.5));
        pie.update(start + INTERVAL - Duration::from_nanos(1));
        assert_eq!(pie.control, long(0.5));
        pie.update(start + INTERVAL);
        assert!(pie.control.probability > 0.5);
        let mut by_hand = long(0.5);
        (0..4).for_each(|_| by_hand.update(0.1));
        pie.update(start + 4 * INTERVAL);
        assert_eq!(pie.control, by_hand);
        assert_eq!(pie.next_update, Some(start + 5 * INTERVAL));
    }

    #[test]
    fn burst_is_allowed_again_after_short_delays_without_drops() {
        let burst = |probability, before, delay| {
            let mut control = Control {
                probability,
                delay: before,
                burst: Duration::ZERO,
            };
            control.on_arrival(delay);
            control.burst
        };
        assert_eq!(burst(0.0, 0.007, 0.007), MAX_BURST);
        for (probability, before, delay) in [
            (0.1, 0.007, 0.007),
            (0.0, 0.007_5, 0.007),
            (0.0, 0.007, 0.007_5),
        ] {
            assert_eq!(burst(probability, before, delay), Duration::ZERO);
        }
        let at_rest = Control::default();
        assert!(at_rest.is_at_rest());
        for other in [
            Control {
                probability: 1e-9,
                ..at_rest
            },
            Control {
                delay: 1e-9,
                ..at_rest
            },
            Control {
                burst: INTERVAL,
                ..at_rest
            },
        ] {
            assert!(!other.is_at_rest(), "{other:?}");
        }
    }

    #[test]
    fn probability_stays_between_zero_and_one() {
        let mut control = long(0.99);
        control.update(1.0);
        assert_eq!(control.probability, 1.0);
        let mut control = long(1e-9);
        control.update(0.0);
        assert_eq!((control.probability, control.delay), (0.0, 0.0));
    }
}
