//! [`Traffic`]: cross traffic. Its packets belong to no connection, and take capacity of links.

use std::time::{Duration, Instant};

use mpquic_core::EcnCodepoint;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// The intervals between packets of cross traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Equal intervals.
    Constant,
    /// Random intervals with an exponential distribution.
    Poisson,
}

/// Cross traffic with a constant mean rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Rate in bit/s of IP packets; positive.
    pub rate: f64,
    /// Size of each IP packet, bytes; at least 28.
    pub packet_bytes: usize,
    /// The intervals between packets.
    pub arrivals: Arrivals,
    /// The ECN codepoint of the packets; [`EcnCodepoint::Ect1`] for senders that keep queues short
    /// (L4S).
    pub ecn: Option<EcnCodepoint>,
    /// When the traffic starts; the first packet leaves one interval later.
    pub from: Instant,
    /// When the traffic ends: no packet leaves at this time or later. `None` for never.
    pub to: Option<Instant>,
}

/// The sender of cross traffic.
pub(crate) struct Source {
    traffic: Traffic,
    /// Index of the route of the packets.
    pub(crate) route: usize,
    random: Xoshiro256PlusPlus,
    /// When the next packet leaves; `None` after the end.
    next: Option<Instant>,
}

impl Source {
    pub(crate) fn new(traffic: Traffic, route: usize, seed: u64) -> Self {
        let mut source = Self {
            traffic,
            route,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            next: None,
        };
        source.schedule(traffic.from);
        source
    }

    /// When the next packet leaves; `None` after the end of the traffic.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Sends a packet. Returns the size of the IP packet in bytes, and its ECN codepoint.
    pub(crate) fn send(&mut self, now: Instant) -> (usize, Option<EcnCodepoint>) {
        self.schedule(now);
        (self.traffic.packet_bytes, self.traffic.ecn)
    }

    fn schedule(&mut self, now: Instant) {
        let gap = self.traffic.packet_bytes as f64 * 8.0 / self.traffic.rate;
        let gap = match self.traffic.arrivals {
            Arrivals::Constant => gap,
            Arrivals::Poisson => -gap * (1.0 - self.random.random::<f64>()).ln(),
        };
        let next = now + Duration::from_secs_f64(gap.max(1e-9));
        self.next = self.traffic.to.is_none_or(|to| next < to).then_some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(arrivals: Arrivals, to: Option<u64>) -> (Source, Instant) {
        let start = crate::lab::epoch();
        let traffic = Traffic {
            rate: 8e6,
            packet_bytes: 1000,
            arrivals,
            ecn: Some(EcnCodepoint::Ect1),
            from: start + Duration::from_millis(5),
            to: to.map(|to| start + Duration::from_millis(to)),
        };
        (Source::new(traffic, 3, 1), start)
    }

    /// The times of the first `most` packets of a source, in ms from the start.
    fn times((mut source, start): (Source, Instant), most: usize) -> Vec<f64> {
        let mut times = Vec::new();
        while let Some(next) = source.next().filter(|_| times.len() < most) {
            assert_eq!(source.send(next), (1000, Some(EcnCodepoint::Ect1)));
            times.push((next - start).as_secs_f64() * 1e3);
        }
        times
    }

    #[test]
    fn constant_packets_leave_from_one_interval_after_the_start_until_the_end() {
        let (source, _) = source(Arrivals::Constant, None);
        assert_eq!(source.route, 3);
        assert_eq!(
            times(self::source(Arrivals::Constant, Some(9)), 99),
            [6.0, 7.0, 8.0]
        );
        let endless = times(self::source(Arrivals::Constant, None), 1000);
        assert!((endless[999] - 1005.0).abs() < 1e-6);
    }

    #[test]
    fn random_intervals_have_the_same_mean_and_vary() {
        let times = times(source(Arrivals::Poisson, None), 20_000);
        assert!(
            (times[19_999] - 20_005.0).abs() < 600.0,
            "{}",
            times[19_999]
        );
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let long = gaps.filter(|gap| *gap > 2.0).count() as f64 / 20_000.0;
        // The share of intervals above twice the mean is e to the power of -2.
        assert!((long - 0.135).abs() < 0.01, "{long}");
    }
}
