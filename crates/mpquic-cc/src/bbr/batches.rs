//! The bytes that leave together. A timer and a call to the kernel for each batch cost the sender
//! more than its packets do, so batches are as long as the path's queue bears.

use std::time::Duration;

use super::model::Bbr;

/// A batch has the bytes of so many seconds, but at most so many datagrams. The longest of these
/// batches counts. A faster path sends the batches of the core, a millisecond long.
const BATCHES: [(f64, f64); 2] = [(0.004, 7.0), (0.002, 20.0)];
/// A batch has at most this part of the bandwidth-delay product: packets of a batch wait for each
/// other at the bottleneck.
const PART_OF_PRODUCT: f64 = 1.0 / 8.0;
/// A batch of at most so many datagrams may have a larger part of the product. Few packets are in
/// flight on a slow link, and a timer for each of them would cost the most.
const FEW: (f64, f64) = (4.0, 1.0 / 4.0);

impl Bbr {
    /// Bytes of a batch; `None` for the bytes of a millisecond.
    pub(super) fn batch(&self) -> Option<f64> {
        // While a path starts, batches would hide the queue that ends the start.
        if !self.variant.looks_for_queues || !self.full_pipe.was_full {
            return None;
        }
        let rate = self.pacing_rate?;
        let product = self.bandwidth_delay_product()?;
        let (datagrams, part) = FEW;
        let most = (product * PART_OF_PRODUCT).max((datagrams * self.mtu).min(product * part));
        let of_rate = |(seconds, datagrams): (f64, f64)| (rate * seconds).min(datagrams * self.mtu);
        let longest = BATCHES.into_iter().map(of_rate).fold(0.0, f64::max);
        Some(longest.min(most)).filter(|batch| *batch > rate * 0.001)
    }

    /// The time that the bottleneck needs for a batch.
    pub(super) fn batch_time(&self) -> Duration {
        let seconds = self.batch().map_or(0.0, |batch| batch / self.bandwidth());
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bbr::Variant;
    use crate::testing::start;

    const MS: Duration = Duration::from_millis(1);

    /// A path of this rate, bytes per second, and RTT, whose start is over.
    fn path(variant: Variant, rate: f64, rtt: Duration) -> Bbr {
        let mut bbr = Bbr::with_variant(variant, start(), 1000);
        bbr.full_pipe.was_full = true;
        bbr.pacing_rate = Some(rate);
        bbr.max_bandwidth.on_sample(rate, false);
        bbr.min_rtt.on_ack(start(), Some(rtt), 1.0);
        bbr
    }

    #[test]
    fn batches_are_longer_on_slow_links() {
        for (rate, batch, millis) in [
            (1e6, Some(4000.0), 4.0),
            (2e6, Some(7000.0), 3.5),
            (3e6, Some(7000.0), 7.0 / 3.0),
            (5e6, Some(10_000.0), 2.0),
            (15e6, Some(20_000.0), 4.0 / 3.0),
            // The batches of the core are as long.
            (20e6, None, 0.0),
        ] {
            let path = path(Variant::QUICK, rate, 100 * MS);
            assert_eq!(path.batch(), batch, "{rate}");
            let time = path.batch_time().as_secs_f64() * 1000.0;
            assert!((time - millis).abs() < 1e-6, "{rate}: {time}");
        }
    }

    #[test]
    fn batch_is_a_small_part_of_the_bandwidth_delay_product() {
        let batch = |rtt| path(Variant::QUICK, 2e6, rtt).batch();
        assert_eq!(batch(24 * MS), Some(6000.0));
        // Up to four datagrams, a quarter.
        assert_eq!(batch(16 * MS), Some(4000.0));
        assert_eq!(batch(8 * MS), Some(4000.0));
        assert_eq!(batch(6 * MS), Some(3000.0));
        assert_eq!(batch(4 * MS), None);
    }

    #[test]
    fn starting_paths_and_the_draft_keep_the_batches_of_the_core() {
        let mut starting = path(Variant::QUICK, 2e6, 100 * MS);
        starting.full_pipe.was_full = false;
        assert_eq!(starting.batch(), None);
        assert_eq!(path(Variant::DRAFT, 2e6, 100 * MS).batch(), None);
    }
}
