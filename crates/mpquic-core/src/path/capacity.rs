//! [`Capacity`]: what a path carries, for the next connection (RFC 9959 section 3.1, the Observing
//! Phase).

use std::time::{Duration, Instant};

use crate::congestion::{Acked, SavedCapacity};
use crate::event::Resumption;
use crate::knowledge::Knowledge;

/// A capacity that has not doubled is saved at most once in this time.
const SAVING_INTERVAL: Duration = Duration::from_secs(1);
/// After this many round trips with enough data, the measured rate counts as the rate of the path,
/// not as the rate of its start.
const START_ROUNDS: u32 = 20;

/// Capacity of a path, and the use of the remembered capacity.
#[derive(Debug)]
pub(super) struct Capacity {
    pub(super) knowledge: Option<Knowledge>,
    /// The capacity remembered when the path opened, bytes.
    pub(super) remembered: u64,
    /// The use of the remembered capacity.
    pub(super) resumption: Resumption,
    /// The smallest round trip when acknowledgements last came on the path itself.
    own_rtt: Duration,
    /// Start of the time in which the application has had enough data to send.
    began: Option<Instant>,
    /// The last saved window, and the time of saving.
    saved: Option<(u64, Instant)>,
}

impl Capacity {
    pub(super) fn new(knowledge: Option<Knowledge>) -> Self {
        Self {
            knowledge,
            remembered: 0,
            resumption: Resumption::default(),
            own_rtt: Duration::ZERO,
            began: None,
            saved: None,
        }
    }

    /// Takes an acknowledgement, with the path's largest recent delivery rate in bytes per second;
    /// `is_own` for an acknowledgement on the path itself. Returns a capacity worth remembering.
    pub(super) fn on_ack(
        &mut self,
        ack: &Acked,
        is_own: bool,
        rate: Option<u64>,
    ) -> Option<SavedCapacity> {
        if is_own || self.own_rtt.is_zero() {
            self.own_rtt = ack.rtt.min;
        }
        if ack.delivery_rate.is_none_or(|rate| rate.app_limited) {
            // The path may carry more than the application sends.
            self.began = None;
            return None;
        }
        let began = *self.began.get_or_insert(ack.now);
        let rtt = self.own_rtt;
        let bytes = u128::from(rate?) * rtt.as_nanos() / 1_000_000_000;
        let window = u64::try_from(bytes).unwrap_or(u64::MAX);
        let is_due = self.saved.is_none_or(|(last, at)| {
            window >= 2 * last || ack.now.saturating_duration_since(at) >= SAVING_INTERVAL
        });
        // The rates of a path that starts say little about what it can carry.
        let has_started = ack.now.saturating_duration_since(began) >= rtt * START_ROUNDS;
        if !is_due || (window <= self.remembered && !has_started) {
            return None;
        }
        self.saved = Some((window, ack.now));
        self.remembered = window;
        Some(SavedCapacity { window, rtt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{DeliveryRate, RttSnapshot};

    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn start() -> Instant {
        Instant::now()
    }

    const RTT: Duration = Duration::from_millis(100);

    struct Flow {
        capacity: Capacity,
        start: Instant,
    }

    impl Flow {
        fn new(remembered: u64) -> Self {
            let mut capacity = Capacity::new(None);
            capacity.remembered = remembered;
            Self {
                capacity,
                start: start(),
            }
        }

        /// The window saved at an acknowledgement after this many round trips.
        fn at(&mut self, rounds: u32, rate: u64, app_limited: bool) -> Option<u64> {
            let now = self.start + RTT * rounds;
            let mut ack = Acked::new(now, now, 1200, RttSnapshot::new(RTT));
            let mut sample = DeliveryRate::new(rate, 0, 1200);
            sample.app_limited = app_limited;
            ack.delivery_rate = Some(sample);
            let saved = self.capacity.on_ack(&ack, true, Some(rate));
            saved.map(|saved| saved.window)
        }
    }

    #[test]
    fn application_limited_rates_are_not_saved() {
        let mut flow = Flow::new(0);
        assert_eq!(flow.at(1, 1_000_000, true), None);
        assert_eq!(flow.at(2, 1_000_000, false), Some(100_000));
    }

    #[test]
    fn capacity_is_saved_at_each_doubling_and_once_a_second() {
        let mut flow = Flow::new(0);
        assert_eq!(flow.at(1, 1_000_000, false), Some(100_000));
        assert_eq!(flow.at(2, 1_900_000, false), None);
        assert_eq!(flow.at(3, 2_000_000, false), Some(200_000));
        assert_eq!(flow.at(12, 2_100_000, false), None);
        assert_eq!(flow.at(13, 2_100_000, false), Some(210_000));
    }

    #[test]
    fn a_start_does_not_replace_the_saved_capacity() {
        let mut flow = Flow::new(500_000);
        for round in 0..20 {
            assert_eq!(flow.at(round, 1_000_000, false), None, "{round}");
        }
        // Now the path carries no more.
        assert_eq!(flow.at(20, 1_000_000, false), Some(100_000));
        let mut flow = Flow::new(500_000);
        assert_eq!(flow.at(1, 6_000_000, false), Some(600_000));
    }

    /// Acknowledgements over a shorter path shorten the round trip (RFC 10069 section 5.4), but the
    /// path holds as many bytes as before.
    #[test]
    fn the_round_trip_is_that_of_the_path_itself() {
        let mut capacity = Capacity::new(None);
        let now = start();
        let mut ack = Acked::new(now, now, 1200, RttSnapshot::new(RTT));
        ack.delivery_rate = Some(DeliveryRate::new(1_000_000, 0, 1200));
        capacity.on_ack(&ack, true, Some(1_000_000));
        ack.rtt = RttSnapshot::new(RTT / 2);
        let saved = capacity.on_ack(&ack, false, Some(2_000_000)).unwrap();
        assert_eq!((saved.window, saved.rtt), (200_000, RTT));
    }
}
