//! Delivery rate samples (draft-ietf-ccwg-bbr, "Delivery Rate Samples").

use std::time::{Duration, Instant};

use crate::congestion::DeliveryRate;
use crate::space::{SendState, SentPacket};

/// Round trips the largest rate is remembered for.
const ROUNDS: usize = 10;

/// Measures how fast the path delivers.
#[derive(Debug, Clone)]
pub(super) struct DeliveryRateEstimator {
    delivered: u64,
    delivered_time: Instant,
    first_sent_time: Instant,
    /// Packets sent before this number of delivered bytes count as application-limited.
    app_limited_until: u64,
    /// The newest packet of the current acknowledgement.
    newest: Option<Newest>,
    /// Once a packet sent after this many bytes were delivered is acknowledged, a round trip ends.
    round_end: u64,
    /// Largest rate of each of the last round trips, the current one first.
    rounds: [u64; ROUNDS],
}

#[derive(Debug, Clone, Copy)]
struct Newest {
    sent: SendState,
    time_sent: Instant,
}

impl DeliveryRateEstimator {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            delivered: 0,
            delivered_time: now,
            first_sent_time: now,
            app_limited_until: 0,
            newest: None,
            round_end: 0,
            rounds: [0; ROUNDS],
        }
    }

    /// The state to remember with a packet that is sent while `in_flight` other bytes are in
    /// flight.
    pub(super) fn on_packet_sent(&mut self, now: Instant, in_flight: u64) -> SendState {
        if in_flight == 0 {
            self.first_sent_time = now;
            self.delivered_time = now;
        }
        SendState {
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_sent_time: self.first_sent_time,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// A packet in flight was acknowledged.
    pub(super) fn on_packet_acked(&mut self, now: Instant, packet: &SentPacket) {
        self.delivered += u64::from(packet.bytes);
        self.delivered_time = now;
        let is_newest = self.newest.is_none_or(|newest| {
            let order = |sent: &SendState, time| (sent.delivered, time);
            order(&packet.rate, packet.time_sent) >= order(&newest.sent, newest.time_sent)
        });
        if is_newest {
            self.newest = Some(Newest {
                sent: packet.rate,
                time_sent: packet.time_sent,
            });
        }
    }

    /// A packet declared lost had been delivered.
    pub(super) fn on_late_packet(&mut self, packet: &SentPacket) {
        self.delivered += u64::from(packet.bytes);
    }

    /// The sample of the packets acknowledged since the last call.
    pub(super) fn sample(&mut self, now: Instant, min_rtt: Duration) -> Option<DeliveryRate> {
        let Newest { sent, time_sent } = self.newest.take()?;
        self.first_sent_time = time_sent;
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        if sent.delivered >= self.round_end {
            self.round_end = self.delivered;
            self.rounds.copy_within(..ROUNDS - 1, 1);
            self.rounds[0] = 0;
        }
        // The slower of sending and acknowledging bounds the rate.
        let send_elapsed = time_sent.saturating_duration_since(sent.first_sent_time);
        let ack_elapsed = now.saturating_duration_since(sent.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        if interval.is_zero() || interval < min_rtt {
            return None;
        }
        let bytes = u128::from(self.delivered.saturating_sub(sent.delivered));
        let rate = bytes * 1_000_000_000 / interval.as_nanos();
        let bytes_per_second = u64::try_from(rate).unwrap_or(u64::MAX);
        // An application-limited sample counts only as a new maximum.
        if !sent.app_limited || self.max().is_none_or(|max| bytes_per_second > max) {
            self.rounds[0] = self.rounds[0].max(bytes_per_second);
        }
        Some(DeliveryRate {
            bytes_per_second,
            app_limited: sent.app_limited,
            prior_delivered: sent.delivered,
            delivered: self.delivered,
        })
    }

    /// The sender runs out of data while `in_flight` bytes are in flight.
    pub(super) fn set_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// The largest rate of the last round trips, bytes per second.
    pub(super) fn max(&self) -> Option<u64> {
        self.rounds.iter().copied().max().filter(|&max| max > 0)
    }
}

#[cfg(test)]
mod tests;
