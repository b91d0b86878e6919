//! [`OwnLosses`]: losses of the link itself, such as those of a radio link.

use super::losses::LossRound;

/// Number of packets after which all counts are halved: newer packets weigh more than older
/// packets.
const MEMORY: f64 = 2000.0;
/// Packets without a loss that are assumed before the first packet is counted, so that an early
/// loss weighs little.
const PRESUMED: f64 = 200.0;

/// Losses and acknowledgements of round trips in which no packet waited in a queue. No queue
/// overflowed in such a round trip, so the link itself lost the packets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnLosses {
    /// Bytes lost.
    lost: f64,
    /// Bytes acknowledged.
    acked: f64,
}

impl OwnLosses {
    /// Counts a round trip in which no packet of size `mtu` waited in a queue.
    pub(super) fn on_round(&mut self, round: &LossRound, mtu: f64) {
        self.lost += round.lost;
        self.acked += round.acked;
        if self.lost + self.acked > MEMORY * mtu {
            self.lost /= 2.0;
            self.acked /= 2.0;
        }
    }

    /// The share of packets of size `mtu` that the link itself loses, 0 to 1.
    pub(super) fn share(&self, mtu: f64) -> f64 {
        self.lost / (self.lost + self.acked + PRESUMED * mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: f64 = 1000.0;

    fn round(lost: u32, acked: u32) -> LossRound {
        LossRound {
            lost: MTU * f64::from(lost),
            acked: MTU * f64::from(acked),
            events: lost,
            marked: false,
        }
    }

    #[test]
    fn loss_among_first_packets_hardly_raises_share() {
        let mut losses = OwnLosses::default();
        assert_eq!(losses.share(MTU), 0.0);
        losses.on_round(&round(1, 19), MTU);
        assert!((losses.share(MTU) - 1.0 / 220.0).abs() < 1e-9);
    }

    #[test]
    fn share_falls_below_half_a_percent_6000_packets_after_losses_end() {
        let mut losses = OwnLosses::default();
        for _ in 0..100 {
            losses.on_round(&round(4, 96), MTU);
        }
        let before = losses.share(MTU);
        assert!((0.034..0.04).contains(&before), "{before}");
        for _ in 0..60 {
            losses.on_round(&round(0, 100), MTU);
        }
        let after = losses.share(MTU);
        assert!(after < 0.004, "{after}");
    }
}
