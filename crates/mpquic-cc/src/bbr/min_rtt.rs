//! The round-trip time without queues, and when to measure it again (draft-ietf-ccwg-bbr-06
//! sections 5.3.4 and 5.5.7).

use std::time::{Duration, Instant};

/// How long the shortest round trip is remembered.
const FILTER_LENGTH: Duration = Duration::from_secs(10);
/// If no sample was as short for this long, the path is emptied to measure again.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinRtt {
    /// The minimum of the last ten seconds; `None` before the first sample.
    shortest: Option<Duration>,
    taken: Instant,
    /// The minimum of the last five seconds.
    recent: Option<Duration>,
    recent_taken: Instant,
    /// No sample was as short for five seconds.
    pub(super) is_probe_due: bool,
}

impl MinRtt {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            shortest: None,
            taken: now,
            recent: None,
            recent_taken: now,
            is_probe_due: false,
        }
    }

    pub(super) fn get(&self) -> Option<Duration> {
        self.shortest
    }

    pub(super) fn on_ack(&mut self, now: Instant, sample: Option<Duration>) {
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

    /// The path was emptied and measured: the next time is an interval away.
    pub(super) fn on_probed(&mut self, now: Instant) {
        self.recent_taken = now;
    }
}

/// One emptying of the path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProbeRtt {
    /// When it may end; `None` until little enough is in flight.
    pub(super) done_at: Option<Instant>,
    pub(super) round_done: bool,
    /// Rates of packets that were sent before this many bytes were delivered are low because we
    /// sent little.
    pub(super) low_rate_until: u64,
}
