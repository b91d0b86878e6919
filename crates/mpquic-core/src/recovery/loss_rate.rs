//! Share of packets lost recently.

/// How many packets the share is taken over.
const WINDOW: usize = 1000;

/// Fate of the last packets, one bit each.
#[derive(Debug, Clone, Default)]
pub(super) struct LossRate {
    /// `None` without lost packets.
    lost_bits: Option<Box<[u64; WINDOW.div_ceil(64)]>>,
    position: usize,
    resolved: usize,
    lost: usize,
}

impl LossRate {
    pub(super) fn on_packet(&mut self, is_lost: bool) {
        if self.lost_bits.is_some() || is_lost {
            let bits = self.lost_bits.get_or_insert_default();
            let word = &mut bits[self.position / 64];
            let bit = 1 << (self.position % 64);
            // The bit still holds the fate of the packet WINDOW packets ago, or 0 if there was
            // none.
            self.lost -= usize::from(*word & bit != 0);
            self.lost += usize::from(is_lost);
            *word = if is_lost { *word | bit } else { *word & !bit };
        }
        self.position = (self.position + 1) % WINDOW;
        self.resolved = (self.resolved + 1).min(WINDOW);
    }

    /// (lost + 1/2) / (resolved + 1)
    pub(super) fn share(&self) -> f64 {
        (self.lost as f64 + 0.5) / (self.resolved as f64 + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_last_thousand() {
        let mut rate = LossRate::default();
        assert_eq!(rate.share(), 0.5);
        for number in 0..1000 {
            rate.on_packet(number % 10 == 0);
        }
        assert_eq!(rate.share(), 100.5 / 1001.0);
        for _ in 0..500 {
            rate.on_packet(false);
        }
        assert_eq!(rate.share(), 50.5 / 1001.0);
        for _ in 0..1000 {
            rate.on_packet(true);
        }
        assert_eq!(rate.share(), 1000.5 / 1001.0);
        for _ in 0..2500 {
            rate.on_packet(true);
        }
        assert_eq!(rate.share(), 1000.5 / 1001.0);
    }
}
