//! The minimum RTT of a path, and when to measure it again (draft-ietf-ccwg-bbr-06 sections 5.3.4
//! and 5.5.7).

use std::time::{Duration, Instant};

/// How long the minimum RTT is remembered.
const FILTER_LENGTH: Duration = Duration::from_secs(10);
/// If no RTT sample was as short as the minimum for this long, the path is emptied to measure it
/// again.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// RTTs may exceed the minimum by this part of it without showing a queue.
const JITTER: f64 = 0.02;
/// RTTs may exceed the minimum by at least this much without showing a queue.
const LEAST_QUEUE: Duration = Duration::from_millis(1);

/// The minimum RTT of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinRtt {
    /// Minimum of the last ten seconds; `None` before the first sample.
    shortest: Option<Duration>,
    taken: Instant,
    /// Minimum of the last five seconds.
    recent: Option<Duration>,
    recent_taken: Instant,
    /// The newest sample, and when it was taken.
    last: Option<(Instant, Duration)>,
    /// Largest RTT of the current round trip, and of the last.
    longest: [Duration; 2],
    /// No sample was as short as the minimum for five seconds.
    pub(super) is_probe_due: bool,
}

impl MinRtt {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            shortest: None,
            taken: now,
            recent: None,
            recent_taken: now,
            last: None,
            longest: [Duration::ZERO; 2],
            is_probe_due: false,
        }
    }

    /// True if a packet waited in a queue in this round trip or the last, beyond the range of
    /// jitter and longer than for the packets of its own batch.
    pub(super) fn shows_queue(&self, batch: Duration) -> bool {
        self.shortest.is_none_or(|shortest| {
            let range = shortest.mul_f64(JITTER).max(LEAST_QUEUE);
            self.longest() > shortest + range.max(batch)
        })
    }

    /// True if all RTTs of this round trip and the last were within this factor of the minimum.
    pub(super) fn is_confirmed(&self, confirmation: f64) -> bool {
        self.shortest
            .is_some_and(|shortest| self.longest() < shortest.mul_f64(confirmation))
    }

    fn longest(&self) -> Duration {
        self.longest[0].max(self.longest[1])
    }

    pub(super) fn on_round_end(&mut self) {
        self.longest = [Duration::ZERO, self.longest[0]];
    }

    /// Acknowledgements take another return path from this sample on. If the RTT grows, the return
    /// path is longer, because the queue ahead has not changed: the minimum grows by the same
    /// difference. If the RTT shrinks, the queue may have drained as well, so later samples decide.
    /// A queue may have filled since a sample that is older than a round trip, so such a sample is
    /// not compared.
    pub(super) fn on_new_way_back(&mut self, now: Instant, sample: Option<Duration>) {
        let longer = |(sample, (at, last)): (Duration, (Instant, Duration))| {
            let is_fresh = now.saturating_duration_since(at) <= sample + last;
            let longer = sample.saturating_sub(last);
            if is_fresh { longer } else { Duration::ZERO }
        };
        let longer = sample.zip(self.last).map(longer);
        *self = Self {
            recent: self
                .shortest
                .zip(longer)
                .map(|(shortest, longer)| shortest + longer),
            ..Self::new(now)
        };
    }

    pub(super) fn get(&self) -> Option<Duration> {
        self.shortest
    }

    /// Takes an RTT sample. A sample shorter than the recent minimum times `confirmation` confirms
    /// the minimum.
    pub(super) fn on_ack(&mut self, now: Instant, sample: Option<Duration>, confirmation: f64) {
        let confirms = |recent: Duration, sample| sample < recent.mul_f64(confirmation);
        if let (Some(recent), Some(sample)) = (self.recent, sample)
            && confirmation > 1.0
            && confirms(recent, sample)
        {
            self.recent_taken = now;
        }
        self.last = sample.map(|sample| (now, sample)).or(self.last);
        self.longest[0] = self.longest[0].max(sample.unwrap_or_default());
        self.is_probe_due = now > self.recent_taken + PROBE_INTERVAL;
        if let Some(sample) = sample
            && (self.is_probe_due || self.recent.is_none_or(|recent| sample < recent))
        {
            self.recent = Some(sample);
            self.recent_taken = now;
        }
        let expired = now > self.taken + FILTER_LENGTH;
        let is_shorter = match (self.recent, self.shortest) {
            (Some(recent), Some(shortest)) => recent < shortest,
            (recent, _) => recent.is_some(),
        };
        if is_shorter || expired {
            self.shortest = self.recent;
            self.taken = self.recent_taken;
        }
    }

    /// The path was emptied and the RTT measured: the next measurement is due a full interval
    /// later.
    pub(super) fn on_probed(&mut self, now: Instant) {
        self.recent_taken = now;
    }
}

/// The state of one emptying of the path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProbeRtt {
    /// When the emptying may end; `None` until few enough bytes are in flight.
    pub(super) done_at: Option<Instant>,
    pub(super) round_done: bool,
    /// Rate samples of packets that left before this many bytes were delivered are low because of
    /// our own small window.
    pub(super) low_rate_until: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const MS: Duration = Duration::from_millis(1);

    /// When the path is first emptied, if one sample of 100 ms precedes samples of length `later`.
    fn due(later: Duration, confirmation: f64) -> Option<Duration> {
        let begin = start();
        let mut shortest = MinRtt::new(begin);
        shortest.on_ack(begin, Some(100 * MS), confirmation);
        (1..200u32).map(|index| index * 100 * MS).find(|after| {
            shortest.on_ack(begin + *after, Some(later), confirmation);
            shortest.is_probe_due
        })
    }

    #[test]
    fn rtts_close_to_the_minimum_postpone_the_measurement() {
        let just_over = Some(PROBE_INTERVAL + 100 * MS);
        assert_eq!(due(101 * MS, 1.0), just_over, "the draft");
        assert_eq!(due(101 * MS, 1.02), None);
        assert_eq!(due(103 * MS, 1.02), just_over);
    }

    /// Otherwise the queue would become part of the minimum RTT, and grow with each new return
    /// path.
    #[test]
    fn queue_ahead_is_not_added_to_minimum_on_a_new_return_path() {
        for (after, expected) in [(950, 120), (870, 100), (60, 60)] {
            let begin = start();
            let mut shortest = MinRtt::new(begin);
            shortest.on_ack(begin, Some(100 * MS), 1.0);
            shortest.on_ack(begin + MS, Some(930 * MS), 1.0);
            let sample = Some(after * MS);
            shortest.on_new_way_back(begin + 2 * MS, sample);
            shortest.on_ack(begin + 2 * MS, sample, 1.0);
            assert_eq!(shortest.get(), Some(expected * MS), "{after}");
        }
        // A queue may have filled since an older sample.
        let begin = start();
        let mut idle = MinRtt::new(begin);
        idle.on_ack(begin, Some(100 * MS), 1.0);
        let later = begin + 1051 * MS;
        idle.on_new_way_back(later, Some(950 * MS));
        idle.on_ack(later, Some(950 * MS), 1.0);
        assert_eq!(idle.get(), Some(100 * MS));
        let mut first = MinRtt::new(start());
        first.on_new_way_back(start(), Some(MS));
        first.on_ack(start(), Some(MS), 1.0);
        assert_eq!(first.get(), Some(MS));
    }

    #[test]
    fn queue_is_reported_in_its_round_trip_and_the_next() {
        for (shortest, longest) in [(20, 21), (200, 204)] {
            let begin = start();
            let mut rtt = MinRtt::new(begin);
            assert!(rtt.shows_queue(Duration::ZERO), "nothing is known");
            for (sample, expected) in [(shortest, false), (longest, false), (longest + 1, true)] {
                rtt.on_ack(begin, Some(sample * MS), 1.0);
                assert_eq!(rtt.shows_queue(Duration::ZERO), expected, "{sample}");
            }
            rtt.on_round_end();
            assert!(rtt.shows_queue(Duration::ZERO));
            rtt.on_round_end();
            assert!(!rtt.shows_queue(Duration::ZERO));
        }
    }

    #[test]
    fn packets_of_one_batch_are_no_queue() {
        let mut rtt = MinRtt::new(start());
        rtt.on_ack(start(), Some(20 * MS), 1.0);
        rtt.on_ack(start(), Some(24 * MS), 1.0);
        assert!(!rtt.shows_queue(4 * MS));
        assert!(rtt.shows_queue(3 * MS));
    }

    #[test]
    fn confirming_samples_do_not_raise_the_minimum() {
        let begin = start();
        let mut shortest = MinRtt::new(begin);
        for index in 0..600u32 {
            let longer = Duration::from_millis(100 + u64::from(index / 10));
            shortest.on_ack(begin + index * 100 * MS, Some(longer), 1.02);
            if shortest.is_probe_due {
                // Samples from 102 ms on no longer confirm 100 ms.
                assert!(index > 20 && index < 20 + 53, "{index}");
                assert_eq!(shortest.get(), Some(100 * MS));
                return;
            }
        }
        panic!("it is never measured again");
    }

    #[test]
    fn the_shortest_round_trip_is_remembered_for_ten_seconds() {
        let begin = start();
        let mut shortest = MinRtt::new(begin);
        shortest.on_ack(begin, Some(100 * MS), 1.0);
        for index in 1..=100 {
            shortest.on_ack(begin + index * 100 * MS, Some(150 * MS), 1.0);
            assert_eq!(shortest.get(), Some(100 * MS), "{index}");
        }
        shortest.on_ack(begin + 10_001 * MS, Some(150 * MS), 1.0);
        assert_eq!(shortest.get(), Some(150 * MS));
    }

    #[test]
    fn a_measurement_puts_off_the_next_one() {
        let begin = start();
        let mut shortest = MinRtt::new(begin);
        shortest.on_ack(begin, Some(100 * MS), 1.0);
        shortest.on_probed(begin + 3_000 * MS);
        for (ms, due) in [(8_000, false), (8_001, true)] {
            shortest.on_ack(begin + ms * MS, Some(150 * MS), 1.0);
            assert_eq!(shortest.is_probe_due, due, "{ms}");
        }
    }

    #[test]
    fn a_round_trip_is_confirmed_if_two_were_within_the_factor() {
        let mut rtt = MinRtt::new(start());
        assert!(!rtt.is_confirmed(1.02), "nothing is known");
        for (sample, confirmed) in [(100_000, true), (101_999, true), (102_000, false)] {
            rtt.on_ack(start(), Some(Duration::from_micros(sample)), 1.0);
            assert_eq!(rtt.is_confirmed(1.02), confirmed, "{sample}");
        }
        rtt.on_round_end();
        assert!(!rtt.is_confirmed(1.02));
        rtt.on_round_end();
        assert!(rtt.is_confirmed(1.02));
    }

    #[test]
    fn an_acknowledgement_without_a_sample_changes_nothing() {
        let mut rtt = MinRtt::new(start());
        rtt.on_ack(start(), None, 1.0);
        assert_eq!(rtt.get(), None);
        rtt.on_ack(start(), Some(100 * MS), 1.0);
        rtt.on_ack(start() + MS, None, 1.0);
        assert_eq!(
            (rtt.get(), rtt.last.map(|(_, last)| last)),
            (Some(100 * MS), Some(100 * MS))
        );
    }
}
