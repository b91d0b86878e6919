//! Asking the peer for fewer acknowledgements: once in a round trip, all paths are reviewed.

use std::time::Duration;

use super::Path;
use super::set::Paths;
use crate::congestion::{Acked, Controller};
use crate::recovery::ack_frequency::Conditions;

impl Paths {
    /// The longest time the peer may take to acknowledge a 1-RTT packet.
    pub(crate) fn peer_max_ack_delay(&self) -> Duration {
        self.shared.peer_max_ack_delay()
    }

    /// Reviews, once in a round trip, what the peer is asked for.
    pub(crate) fn review_ack_frequency(&mut self, acked: &Acked, controller: &dyn Controller) {
        let shared = &self.shared;
        if shared.config.ack_frequency.is_none()
            || !shared.handshake_confirmed
            || !shared.ack_frequencies.is_due(acked.now)
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
        let datagram = paths().map(|path| path.datagram_size() as u64).max();
        let (Some(round_trip), Some(window), Some(datagram)) = (round_trip, window.min(), datagram)
        else {
            return;
        };
        let next = acked.now + self.largest_rtt();
        let conditions = Conditions {
            round_trip,
            window,
            acks_per_window: controller.acks_per_window(),
            in_flight: (acked.in_flight + acked.bytes) / datagram,
        };
        let shared = &mut self.shared;
        shared
            .ack_frequencies
            .review(&shared.config, conditions, next);
    }
}
