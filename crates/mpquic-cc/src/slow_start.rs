//! HyStart++ (RFC 9406): leave slow start when the round trips grow longer, before the queue at
//! the bottleneck overflows.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, RttSnapshot};

/// Bounds of the RTT increase that counts as a queue building up (RFC 9406 section 4.3).
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
/// The increase in between is this fraction of the RTT.
const MIN_RTT_DIVISOR: u32 = 8;
/// A round's minimum counts only with this many RTT samples.
const RTT_SAMPLES_PER_ROUND: u32 = 8;
/// Conservative slow start grows this many times slower than slow start,
const CONSERVATIVE_GROWTH_DIVISOR: f64 = 4.0;
/// and ends after this many rounds.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// What slow start does with an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// Grow by this share of the acknowledged bytes.
    Grow(f64),
    /// Slow start is over: set the threshold to the window.
    Exit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Standard,
    /// Conservative slow start, entered at a round minimum of `baseline`.
    Conservative {
        baseline: Duration,
        rounds: u32,
    },
}

/// The first slow start of a path; later ones end at the threshold found here or by a loss
/// (RFC 9406 section 4.3 asks for no more).
///
/// A round ends with the acknowledgement of a packet sent after it began. Sending is paced, so
/// the growth per acknowledgement has no limit of its own (`L` is infinite in the RFC's terms).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowStart {
    phase: Phase,
    round_start: Option<Instant>,
    /// Smallest RTT of the previous and of this round.
    last_round: Option<Duration>,
    this_round: Option<Duration>,
    samples_in_round: u32,
    /// `RttSnapshot::samples` at the last sample taken.
    samples_seen: u64,
}

impl SlowStart {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Standard,
            round_start: None,
            last_round: None,
            this_round: None,
            samples_in_round: 0,
            samples_seen: 0,
        }
    }

    /// Looks at an acknowledgement that may grow the window.
    pub(crate) fn on_ack(&mut self, ack: &Acked) -> Step {
        self.take_sample(&ack.rtt);
        let step = self.step();
        let ended = self.round_start.is_none_or(|start| ack.sent_at >= start);
        if !ended || step == Step::Exit {
            return step;
        }
        if let Phase::Conservative { rounds, .. } = &mut self.phase {
            *rounds += 1;
            if *rounds >= CONSERVATIVE_ROUNDS {
                return Step::Exit;
            }
        }
        self.round_start = Some(ack.now);
        self.last_round = self.this_round.take();
        self.samples_in_round = 0;
        step
    }

    fn take_sample(&mut self, rtt: &RttSnapshot) {
        if rtt.samples == self.samples_seen {
            return;
        }
        self.samples_seen = rtt.samples;
        self.samples_in_round += 1;
        let smallest = self
            .this_round
            .map_or(rtt.latest, |min| min.min(rtt.latest));
        self.this_round = Some(smallest);
    }

    /// Changes the phase, depending on the minimum RTT of the round (RFC 9406 section 4.2).
    fn step(&mut self) -> Step {
        let known = self.samples_in_round >= RTT_SAMPLES_PER_ROUND;
        match (self.phase, self.last_round, self.this_round) {
            (Phase::Standard, Some(last), Some(current)) if known => {
                let threshold =
                    (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD);
                if current >= last + threshold {
                    let (baseline, rounds) = (current, 0);
                    self.phase = Phase::Conservative { baseline, rounds };
                }
            }
            // The increase was noise: back to full speed.
            (Phase::Conservative { baseline, .. }, _, Some(current))
                if known && current < baseline =>
            {
                self.phase = Phase::Standard;
            }
            _ => {}
        }
        match self.phase {
            Phase::Standard => Step::Grow(1.0),
            Phase::Conservative { .. } => Step::Grow(1.0 / CONSERVATIVE_GROWTH_DIVISOR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acked, start};

    const MS: Duration = Duration::from_millis(1);

    /// One round of `samples` acknowledgements with these RTTs; returns the last step.
    struct Rounds {
        slow_start: SlowStart,
        now: Instant,
        samples: u64,
    }

    impl Rounds {
        fn new() -> Self {
            Self {
                slow_start: SlowStart::new(),
                now: start(),
                samples: 0,
            }
        }

        fn round(&mut self, rtt: Duration, samples: u64) -> Step {
            let sent_at = self.now;
            self.now += rtt;
            let mut last = Step::Grow(1.0);
            for _ in 0..samples {
                self.samples += 1;
                let mut ack = acked(self.now, sent_at, 1200);
                ack.rtt.latest = rtt;
                ack.rtt.samples = self.samples;
                last = self.slow_start.on_ack(&ack);
                if last == Step::Exit {
                    break;
                }
            }
            self.now += MS;
            last
        }
    }

    #[test]
    fn steady_round_trips_never_end_slow_start() {
        let mut rounds = Rounds::new();
        for _ in 0..50 {
            assert_eq!(rounds.round(20 * MS, 10), Step::Grow(1.0));
        }
    }

    #[test]
    fn a_lasting_increase_ends_it_after_five_slower_rounds() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS, 10);
        rounds.round(20 * MS, 10);
        // 20/8 ms is below the smallest threshold, 4 ms.
        assert_eq!(rounds.round(23 * MS, 10), Step::Grow(1.0));
        assert_eq!(rounds.round(28 * MS, 10), Step::Grow(0.25));
        let later: Vec<_> = (0..5).map(|_| rounds.round(30 * MS, 10)).collect();
        assert_eq!(later[..4], [Step::Grow(0.25); 4]);
        assert_eq!(later[4], Step::Exit);
    }

    #[test]
    fn an_increase_that_passes_does_not_end_it() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS, 10);
        rounds.round(20 * MS, 10);
        assert_eq!(rounds.round(30 * MS, 10), Step::Grow(0.25));
        assert_eq!(rounds.round(21 * MS, 10), Step::Grow(1.0));
    }

    #[test]
    fn too_few_samples_say_nothing() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS, 7);
        rounds.round(20 * MS, 7);
        for _ in 0..20 {
            assert_eq!(rounds.round(200 * MS, 6), Step::Grow(1.0));
        }
    }

    #[test]
    fn an_increase_is_an_eighth_of_the_round_trip_within_bounds() {
        for (rtt, least) in [(16, 4), (32, 4), (64, 8), (128, 16), (400, 16)] {
            for (more, growth) in [(least - 1, 1.0), (least, 0.25)] {
                let mut rounds = Rounds::new();
                rounds.round(rtt * MS, 9);
                rounds.round(rtt * MS, 9);
                let step = rounds.round((rtt + more) * MS, 9);
                assert_eq!(step, Step::Grow(growth), "{rtt} {more}");
                // It is noise only if it passes.
                let step = rounds.round((rtt + more) * MS, 9);
                assert_eq!(step, Step::Grow(growth), "{rtt} {more}");
            }
        }
    }

    /// The first acknowledgement ends the round before.
    #[test]
    fn a_round_counts_with_eight_samples() {
        for (samples, growth) in [(8, 1.0), (9, 0.25)] {
            let mut rounds = Rounds::new();
            rounds.round(20 * MS, 9);
            rounds.round(20 * MS, 9);
            assert_eq!(rounds.round(30 * MS, samples), Step::Grow(growth));
        }
    }

    #[test]
    fn an_acknowledgement_without_a_new_sample_counts_for_none() {
        let mut slow_start = SlowStart::new();
        let mut ack = acked(start(), start(), 1200);
        for (samples, counted) in [(1, 1), (1, 1), (2, 2)] {
            ack.rtt.samples = samples;
            slow_start.take_sample(&ack.rtt);
            assert_eq!(slow_start.samples_in_round, counted);
        }
    }
}
