//! Asking the peer for fewer acknowledgements: once in a round trip, all paths are reviewed.

use std::time::{Duration, Instant};

use super::Path;
use super::set::Paths;
use crate::congestion::Controller;
use crate::recovery::ack_frequency::Conditions;

impl Paths {
    /// The longest time the peer may take to acknowledge a 1-RTT packet.
    pub(crate) fn peer_max_ack_delay(&self) -> Duration {
        self.shared.peer_max_ack_delay()
    }

    /// Reviews, once in a round trip, what the peer is asked for.
    pub(crate) fn review_ack_frequency(&mut self, now: Instant, controller: &dyn Controller) {
        let shared = &self.shared;
        if shared.config.ack_frequency.is_none()
            || !shared.handshake_confirmed
            || !shared.ack_frequencies.is_due(now)
        {
            return;
        }
        let measured =
            |path: &&Path| path.is_usable() && path.recovery.rtt.first_sample().is_some();
        let paths = || self.iter().filter(measured);
        let round_trip = paths().map(|path| path.recovery.rtt.smoothed()).min();
        let window = paths().map(|path| {
            let datagram = path.datagram_size() as u64;
            controller.window(path.id) / datagram
        });
        let (Some(round_trip), Some(window)) = (round_trip, window.min()) else {
            return;
        };
        let next = now + self.largest_rtt();
        let conditions = Conditions { round_trip, window };
        let shared = &mut self.shared;
        shared
            .ack_frequencies
            .review(&shared.config, conditions, next);
    }
}
