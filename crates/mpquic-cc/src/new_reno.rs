//! NewReno (RFC 9002 section 7 and appendix B).

use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent, Sent};

use crate::careful_resume::Found;
use crate::uncoupled::{PathController, PathLimits};
use crate::window::Window;

/// Factor that a loss leaves of the window.
const LOSS_FACTOR: f64 = 0.5;

/// Adds one datagram per round trip to the window, and halves it after a loss.
#[derive(Debug, Clone)]
pub struct NewReno {
    window: Window,
}

impl PathController for NewReno {
    const NAME: &'static str = "newreno";

    fn new(_: Instant, mtu: u16) -> Self {
        Self {
            window: Window::new(mtu),
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.window.on_mtu_update(mtu);
    }

    fn on_packet_sent(&mut self, sent: &Sent) {
        self.window.on_packet_sent(sent);
    }

    fn on_ack(&mut self, ack: &Acked) {
        if let Some(acked) = self.window.on_ack(ack) {
            let bytes = self.window.bytes;
            self.window.set(bytes + self.window.mtu() * acked / bytes);
        }
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        self.window.on_congestion_event(event, LOSS_FACTOR);
    }

    fn adopt(&mut self, found: Found) {
        self.window.adopt(found);
    }

    fn limits(&self) -> PathLimits {
        self.window.limits()
    }

    fn window_after_round(&self, window: u64) -> u64 {
        let window = window as f64;
        let next = self.window.slow_start_round(window);
        next.unwrap_or(window + self.window.mtu()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::congestion::CongestionKind;

    use super::*;
    use crate::testing::{acked, congestion, start};

    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn one_datagram_per_round_trip_after_slow_start() {
        let mut now = start();
        let mut reno = NewReno::new(now, 1200);
        reno.on_congestion_event(&congestion(CongestionKind::Loss, now, now));
        assert_eq!(reno.window.rounded(), 6_000);
        for round in 1..=20 {
            let sent_at = now + RTT / 2;
            now += RTT;
            reno.on_ack(&acked(now, sent_at, reno.window.rounded()));
            assert!(reno.limits().window.abs_diff(6_000 + round * 1200) <= 1);
        }
    }

    #[test]
    fn window_after_round_doubles_below_the_threshold_then_adds_a_datagram() {
        let now = start();
        let mut reno = NewReno::new(now, 1200);
        assert_eq!(reno.window_after_round(12_000), 24_000);
        reno.on_congestion_event(&congestion(CongestionKind::Loss, now, now));
        assert_eq!(reno.window_after_round(4_000), 6_000);
        assert_eq!(reno.window_after_round(6_000), 7_200);
        assert_eq!(reno.window_after_round(24_000), 25_200);
    }
}
