//! [`OwnLosses`]: what a link loses by itself, as a radio link does.

use super::losses::LossRound;

/// Packets after which half of what was counted is forgotten.
const MEMORY: f64 = 2000.0;
/// Packets without a loss that are presumed before the first one.
const PRESUMED: f64 = 200.0;

/// The packets of round trips in which none waited in a queue: what they lost, no queue has lost.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnLosses {
    /// Bytes.
    lost: f64,
    /// Bytes.
    acked: f64,
}

impl OwnLosses {
    /// A round trip in which no packet waited, of packets of this size.
    pub(super) fn on_round(&mut self, round: &LossRound, mtu: f64) {
        self.lost += round.lost;
        self.acked += round.acked;
        if self.lost + self.acked > MEMORY * mtu {
            self.lost /= 2.0;
            self.acked /= 2.0;
        }
    }

    /// The part of the packets, of this size, that the link loses; 0 to 1.
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
    fn what_is_lost_at_the_very_first_hardly_counts() {
        let mut losses = OwnLosses::default();
        assert_eq!(losses.share(MTU), 0.0);
        losses.on_round(&round(1, 19), MTU);
        assert!((losses.share(MTU) - 1.0 / 220.0).abs() < 1e-9);
    }

    #[test]
    fn a_link_that_loses_less_is_believed_after_some_thousand_packets() {
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
