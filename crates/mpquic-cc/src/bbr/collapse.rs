//! [`Collapse`]: round trips that lose most of their bytes behind a full queue. The bandwidth that
//! such a path has shown before was that of a token bucket that is empty now, or of a link that has
//! become slower.

use std::time::Instant;

use super::bandwidth::MaxBandwidth;
use super::losses::LossRound;
use super::model::Bbr;
use super::phase::Phase;

/// Least share of a round trip's bytes that is lost.
const SHARE: f64 = 0.5;
/// Least number of datagrams lost in the round trip.
const DATAGRAMS: f64 = 6.0;
/// Number of such round trips, one after the other. A short outage makes one.
const ROUNDS: u32 = 2;

/// Counts round trips in a row that lost most of their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Collapse {
    rounds: u32,
}

impl Collapse {
    /// A round trip for counting losses has ended. True if enough of them lost most of their bytes.
    fn on_round(&mut self, round: &LossRound, shows_queue: bool, mtu: f64) -> bool {
        let is_lost =
            round.lost >= DATAGRAMS * mtu && round.lost >= SHARE * (round.lost + round.acked);
        self.rounds = if is_lost && shows_queue {
            self.rounds + 1
        } else {
            0
        };
        self.rounds >= ROUNDS
    }
}

impl Bbr {
    /// Takes bandwidth and bytes in flight from the last round trip alone if the path collapsed.
    pub(super) fn check_collapse(&mut self, now: Instant, round: &LossRound) {
        let shows_queue = self.variant.looks_for_queues && self.min_rtt.shows_queue();
        if !self.collapse.on_round(round, shows_queue, self.mtu) {
            return;
        }
        let latest = self.latest;
        if latest.bandwidth > 0.0 && latest.bandwidth < self.max_bandwidth() {
            let cycles = self.max_bandwidth.cycles();
            self.max_bandwidth = MaxBandwidth::starting_from(latest.bandwidth, cycles);
        }
        self.bounds.long_term = self.bounds.long_term.min(latest.in_flight);
        match self.phase {
            Phase::Startup => self.full_pipe.was_full = true,
            Phase::Refill | Phase::Up => self.start_down(now),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::bandwidth::Latest;
    use super::super::variant::Variant;
    use super::*;
    use crate::testing::start;

    const MTU: u16 = 1000;

    /// A path that has shown 1 MB/s, and delivers 10 kB/s and 20 kB in a round trip now.
    fn path(variant: Variant, rtts: [u64; 2]) -> Bbr {
        let mut bbr = Bbr::with_variant(variant, start(), MTU);
        bbr.max_bandwidth = MaxBandwidth::starting_from(1e6, 0);
        for ms in rtts {
            let rtt = Some(Duration::from_millis(ms));
            bbr.min_rtt.on_ack(start(), rtt, 1.0);
        }
        bbr.latest = Latest {
            bandwidth: 1e4,
            in_flight: 2e4,
        };
        bbr
    }

    /// Ends round trips that lost so many of ten datagrams.
    fn end_rounds(bbr: &mut Bbr, lost: [u32; 2]) {
        for lost in lost {
            let bytes = f64::from(lost) * f64::from(MTU);
            let round = LossRound {
                lost: bytes,
                acked: 10.0 * f64::from(MTU) - bytes,
                events: lost,
                marked: false,
            };
            bbr.check_collapse(start(), &round);
        }
    }

    #[test]
    fn two_round_trips_with_most_bytes_lost_behind_a_queue_count() {
        let queue = [100, 900];
        for (variant, rtts, lost, collapses) in [
            (Variant::QUICK, queue, [6, 6], true),
            (Variant::QUICK, queue, [0, 6], false),
            (Variant::QUICK, queue, [6, 5], false),
            (Variant::QUICK, [100, 101], [6, 6], false),
            (Variant::DRAFT, queue, [6, 6], false),
        ] {
            let mut bbr = path(variant, rtts);
            end_rounds(&mut bbr, lost);
            let bandwidth = if collapses { 1e4 } else { 1e6 };
            assert_eq!(bbr.max_bandwidth.get(), bandwidth, "{rtts:?} {lost:?}");
            assert_eq!(bbr.bounds.long_term == 2e4, collapses);
            assert_eq!(bbr.full_pipe.was_full, collapses, "startup ends");
        }
    }

    #[test]
    fn a_probe_of_a_collapsed_path_ends() {
        for (phase, after) in [
            (Phase::Up, Phase::Down),
            (Phase::Refill, Phase::Down),
            (Phase::Cruise, Phase::Cruise),
        ] {
            let mut bbr = path(Variant::QUICK, [100, 900]);
            bbr.phase = phase;
            end_rounds(&mut bbr, [6, 6]);
            assert_eq!(bbr.phase, after);
        }
    }
}
