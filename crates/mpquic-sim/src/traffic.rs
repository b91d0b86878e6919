//! [`Traffic`]: cross traffic, packets that belong to no connection and use up links.

use std::time::{Duration, Instant};

use mpquic_core::EcnCodepoint;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// When packets of cross traffic are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals.
    Constant,
    /// At random: the intervals are exponentially distributed.
    Poisson,
}

/// Cross traffic of one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Bit/s of IP packets; positive.
    pub rate: f64,
    /// Bytes of each IP packet; at least 28.
    pub packet_bytes: usize,
    /// When packets are sent.
    pub arrivals: Arrivals,
    /// How they are marked; [`EcnCodepoint::Ect1`] for senders that keep queues short (L4S).
    pub ecn: Option<EcnCodepoint>,
    /// When it starts.
    pub from: Instant,
    /// When it ends; `None` for never.
    pub to: Option<Instant>,
}

/// Cross traffic that is being sent.
pub(crate) struct Source {
    traffic: Traffic,
    pub(crate) route: usize,
    random: Xoshiro256PlusPlus,
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

    /// When it sends its next packet.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Sends a packet: its size in IP bytes, and its mark.
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
