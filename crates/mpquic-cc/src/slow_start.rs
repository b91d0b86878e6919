//! HyStart++ (RFC 9406): slow start ends when the RTT grows, before the queue at the bottleneck
//! overflows.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, RttSnapshot};

/// Smallest RTT increase that shows a growing queue (RFC 9406 section 4.3).
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
/// Largest RTT increase that is needed to show a growing queue (RFC 9406 section 4.3).
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
/// Between these two bounds, the necessary increase is the RTT divided by this number.
const MIN_RTT_DIVISOR: u32 = 8;
/// The minimum RTT of a round counts only with at least this many samples.
const RTT_SAMPLES_PER_ROUND: u32 = 8;
/// Conservative slow start grows this many times slower than slow start.
const CONSERVATIVE_GROWTH_DIVISOR: f64 = 4.0;
/// Conservative slow start ends after this many rounds.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// The reaction of slow start to an acknowledgement.
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
    /// Conservative slow start, entered when the minimum RTT of a round was `baseline`.
    Conservative {
        baseline: Duration,
        rounds: u32,
    },
}

/// The first slow start of a path. Later slow starts end at the threshold that the first one found,
/// or by a loss (RFC 9406 section 4.3 asks for no more).
///
/// A round ends with the acknowledgement of a packet that was sent after the round began. Packets
/// are paced, so the growth per acknowledgement has no limit of its own (the RFC's `L` is
/// infinite).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowStart {
    phase: Phase,
    round_start: Option<Instant>,
    /// Minimum RTT of the previous round.
    last_round: Option<Duration>,
    /// Minimum RTT of the current round.
    this_round: Option<Duration>,
    samples_in_round: u32,
    /// `RttSnapshot::samples` at the last RTT sample that was used.
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

    /// Handles an acknowledgement that may grow the window.
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

    /// Changes the phase according to the minimum RTT of the round (RFC 9406 section 4.2).
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

    /// Runs rounds of `samples` acknowledgements with the same RTT.
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
    fn constant_rtt_never_ends_slow_start() {
        let mut rounds = Rounds::new();
        for _ in 0..50 {
            assert_eq!(rounds.round(20 * MS, 10), Step::Grow(1.0));
        }
    }

    #[test]
    fn lasting_rtt_increase_ends_slow_start_after_five_conservative_rounds() {
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
    fn passing_rtt_increase_returns_to_full_growth() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS, 10);
        rounds.round(20 * MS, 10);
        assert_eq!(rounds.round(30 * MS, 10), Step::Grow(0.25));
        assert_eq!(rounds.round(21 * MS, 10), Step::Grow(1.0));
    }

    #[test]
    fn rounds_with_too_few_samples_do_not_end_slow_start() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS, 7);
        rounds.round(20 * MS, 7);
        for _ in 0..20 {
            assert_eq!(rounds.round(200 * MS, 6), Step::Grow(1.0));
        }
    }

    #[test]
    fn necessary_increase_is_an_eighth_of_the_rtt_within_bounds() {
        for (rtt, least) in [(16, 4), (32, 4), (64, 8), (128, 16), (400, 16)] {
            for (more, growth) in [(least - 1, 1.0), (least, 0.25)] {
                let mut rounds = Rounds::new();
                rounds.round(rtt * MS, 9);
                rounds.round(rtt * MS, 9);
                let step = rounds.round((rtt + more) * MS, 9);
                assert_eq!(step, Step::Grow(growth), "{rtt} {more}");
                // The phase stays conservative while the increase lasts.
                let step = rounds.round((rtt + more) * MS, 9);
                assert_eq!(step, Step::Grow(growth), "{rtt} {more}");
            }
        }
    }

    /// The first acknowledgement of a round ends the round before it.
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
    fn acknowledgement_without_a_new_sample_is_not_counted() {
        let mut slow_start = SlowStart::new();
        let mut ack = acked(start(), start(), 1200);
        for (samples, counted) in [(1, 1), (1, 1), (2, 2)] {
            ack.rtt.samples = samples;
            slow_start.take_sample(&ack.rtt);
            assert_eq!(slow_start.samples_in_round, counted);
        }
    }
}
