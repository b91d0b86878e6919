//! Proportional rate reduction (RFC 9937): the limit on bytes in flight while a window is reduced.
//!
//! Without this limit, halving the window silences the path for half a round trip, until the bytes
//! in flight have shrunk to the new window. With the limit, one packet leaves for two acknowledged
//! packets. At the end of the recovery period, the bytes in flight equal the new window.

use mpquic_core::congestion::{Acked, CongestionEvent, Sent};

/// One recovery period.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateReduction {
    /// Bytes in flight when the recovery period began (`RecoverFS`); above 0.
    flight_at_start: f64,
    /// Bytes delivered since then (`prr_delivered`).
    delivered: f64,
    /// Bytes sent since then (`prr_out`).
    sent: f64,
    /// Bytes in flight after the last acknowledgement or loss.
    in_flight: f64,
    /// Bytes delivered by the last acknowledgement.
    newly_delivered: f64,
    /// The period began with a loss, not an ECN mark, so there is data to send again.
    is_loss: bool,
    /// Bytes that may be in flight now.
    limit: f64,
}

impl RateReduction {
    /// A recovery period begins. The new window is `target`. The acknowledgement that revealed the
    /// loss delivered `delivered` bytes.
    pub(crate) fn new(event: &CongestionEvent, delivered: f64, target: f64, mtu: f64) -> Self {
        let in_flight = event.in_flight as f64;
        let mut reduction = Self {
            flight_at_start: (in_flight + event.lost_bytes as f64 + delivered).max(mtu),
            delivered,
            sent: 0.0,
            in_flight,
            newly_delivered: delivered,
            is_loss: event.lost_bytes > 0,
            limit: 0.0,
        };
        reduction.update(target, mtu, false);
        reduction
    }

    /// Bytes that may be in flight.
    pub(crate) fn limit(&self) -> f64 {
        self.limit
    }

    pub(crate) fn on_packet_sent(&mut self, sent: &Sent) {
        self.sent += sent.bytes as f64;
    }

    /// Handles an acknowledgement. It counts as safe until a loss is reported along with it.
    pub(crate) fn on_ack(&mut self, ack: &Acked, target: f64, mtu: f64) {
        self.newly_delivered = ack.bytes as f64;
        self.delivered += self.newly_delivered;
        self.in_flight = ack.in_flight as f64;
        self.update(target, mtu, true);
    }

    /// Handles further losses: the last acknowledgement was not safe.
    pub(crate) fn on_loss(&mut self, event: &CongestionEvent, target: f64, mtu: f64) {
        self.in_flight = event.in_flight as f64;
        self.is_loss |= event.lost_bytes > 0;
        self.update(target, mtu, false);
    }

    /// RFC 9937 section 6.2. `safe` stands for `SafeACK`. QUIC has no cumulative acknowledgement
    /// that could advance, so an acknowledgement is safe if no loss comes with it.
    fn update(&mut self, target: f64, mtu: f64, safe: bool) {
        let room = if self.in_flight > target {
            self.delivered * target / self.flight_at_start - self.sent
        } else {
            let mut room = (self.delivered - self.sent).max(self.newly_delivered);
            if safe {
                room += mtu;
            }
            room.min(target - self.in_flight)
        };
        // The first lost packet has to be sent again without delay.
        let is_repair_due = self.is_loss && self.sent == 0.0;
        let least = if is_repair_due { mtu } else { 0.0 };
        self.limit = self.in_flight + room.max(least);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::congestion::CongestionKind;

    use super::*;
    use crate::testing::{acked, congestion, sent, start};

    const MTU: u64 = 1200;

    /// A sender with unlimited data, and its packets in flight.
    struct Flight {
        reduction: RateReduction,
        target: f64,
        packets: u64,
    }

    impl Flight {
        /// `packets` are in flight. The acknowledgement of one packet shows that `lost` packets are
        /// lost.
        fn new(packets: u64, lost: u64, target: u64) -> Self {
            let mut event = congestion(CongestionKind::Loss, start(), start());
            event.lost_bytes = lost * MTU;
            let packets = packets - lost - 1;
            event.in_flight = packets * MTU;
            let target = (target * MTU) as f64;
            let reduction = RateReduction::new(&event, MTU as f64, target, MTU as f64);
            Self {
                reduction,
                target,
                packets,
            }
        }

        /// Sends packets up to the limit and returns their number.
        fn send(&mut self) -> u64 {
            let mut count = 0;
            while ((self.packets + 1) * MTU) as f64 <= self.reduction.limit() + 1e-6 {
                self.packets += 1;
                count += 1;
                self.reduction
                    .on_packet_sent(&sent(start(), MTU, self.packets * MTU));
            }
            count
        }

        fn acknowledge(&mut self, packets: u64) -> u64 {
            self.packets -= packets;
            let now = start() + Duration::from_millis(20);
            let mut ack = acked(now, start(), packets * MTU);
            ack.in_flight = self.packets * MTU;
            self.reduction.on_ack(&ack, self.target, MTU as f64);
            self.send()
        }
    }

    #[test]
    fn one_packet_is_sent_for_two_acknowledged() {
        let mut flight = Flight::new(20, 1, 10);
        assert_eq!(flight.send(), 1, "the repair");
        let sent: Vec<_> = (0..18).map(|_| flight.acknowledge(1)).collect();
        assert_eq!(sent.iter().sum::<u64>(), 9);
        // Only while more than the target is in flight.
        let reducing = &sent[..14];
        assert!(
            reducing.windows(2).all(|two| two[0] + two[1] <= 1),
            "{sent:?}"
        );
        assert_eq!(flight.packets, 10, "the target is in flight");
    }

    /// Half of the flight was lost at once. Fewer bytes than the target are in flight, so the flow
    /// slow starts back (PRR-SSRB) with two packets for each acknowledged packet.
    #[test]
    fn flow_below_its_target_sends_two_packets_for_one_acknowledged() {
        let mut flight = Flight::new(20, 15, 10);
        assert_eq!(flight.send(), 1);
        assert_eq!(flight.packets, 5);
        let sent: Vec<_> = (0..4).map(|_| flight.acknowledge(1)).collect();
        assert_eq!(sent, [2, 2, 2, 2]);
        assert_eq!(flight.packets, 9);
    }

    /// While losses go on, one packet is sent for each acknowledged packet (PRR-CRB).
    #[test]
    fn an_acknowledgement_that_brings_more_losses_conserves_packets() {
        let mut flight = Flight::new(20, 12, 10);
        flight.send();
        flight.packets -= 1;
        let mut ack = acked(start(), start(), MTU);
        ack.in_flight = flight.packets * MTU;
        flight.reduction.on_ack(&ack, flight.target, MTU as f64);
        flight.packets -= 1;
        let mut event = congestion(CongestionKind::Loss, start(), start());
        event.in_flight = flight.packets * MTU;
        flight.reduction.on_loss(&event, flight.target, MTU as f64);
        assert_eq!(flight.send(), 1);
    }

    /// After an ECN mark there is no packet to send again, until a packet is lost as well.
    #[test]
    fn only_a_loss_is_repaired_at_once() {
        let mut flight = Flight::new(20, 0, 10);
        assert_eq!(flight.send(), 0);
        let mut event = congestion(CongestionKind::Ecn, start(), start());
        event.in_flight = flight.packets * MTU;
        event.lost_bytes = 0;
        flight.reduction.on_loss(&event, flight.target, MTU as f64);
        assert_eq!(flight.send(), 0, "another mark");
        event.lost_bytes = 1;
        flight.reduction.on_loss(&event, flight.target, MTU as f64);
        flight.packets = event.in_flight / MTU;
        assert_eq!(flight.send(), 1);
    }

    #[test]
    fn one_acknowledgement_of_nearly_all_does_not_burst_past_the_target() {
        let mut flight = Flight::new(20, 1, 10);
        flight.send();
        assert!(flight.acknowledge(18) <= 10);
        assert!(flight.packets <= 10);
    }
}
