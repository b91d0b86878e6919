//! [`MemoryLink`]: the link of a socket in memory.

use std::hash::Hasher;
use std::net::SocketAddr;
use std::time::Duration;

use rustc_hash::FxHasher;
use tokio::time::Instant;

/// The default length of a link's queue, in bytes.
const QUEUE: usize = 256 << 10;

/// The effects of a [`MemorySocket`](crate::MemorySocket)'s link on the datagrams of each
/// direction, on top of the network's delay. By default, the link has no effect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLink {
    delay: Duration,
    /// Bits per second.
    rate: Option<u64>,
    queue: usize,
    loss: f64,
}

impl Default for MemoryLink {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            rate: None,
            queue: QUEUE,
            loss: 0.0,
        }
    }
}

impl MemoryLink {
    /// Delays each datagram.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Limits the rate, in bits per second, at least 1. Excess datagrams wait ([`Self::queue`]).
    #[must_use]
    pub fn rate(mut self, bits_per_second: u64) -> Self {
        self.rate = Some(bits_per_second.max(1));
        self
    }

    /// The most bytes that may wait in front of a datagram on a link with a [`Self::rate`]; 256 KiB
    /// by default. Behind a longer queue a datagram is lost.
    #[must_use]
    pub fn queue(mut self, bytes: usize) -> Self {
        self.queue = bytes;
        self
    }

    /// Loses this part of the datagrams, from 0 to 1. The choice is random, but repeats in each run
    /// with equal datagrams.
    #[must_use]
    pub fn loss(mut self, part: f64) -> Self {
        self.loss = part;
        self
    }
}

/// One direction of a link.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The time at which the link has sent all earlier datagrams.
    free_at: Option<Instant>,
    /// Datagrams so far.
    count: u64,
}

impl Way {
    /// The time at which a datagram that reaches the link at `at` leaves the link; `None` if the
    /// datagram is lost.
    pub(crate) fn pass(
        &mut self,
        link: &MemoryLink,
        socket: SocketAddr,
        at: Instant,
        bytes: usize,
    ) -> Option<Instant> {
        self.count += 1;
        let mut left_at = at;
        if let Some(rate) = link.rate {
            let start = self.free_at.map_or(at, |free_at| free_at.max(at));
            let waiting = (start - at).as_secs_f64() * rate as f64 / 8.0;
            if waiting > link.queue as f64 {
                return None;
            }
            left_at = start + Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
            self.free_at = Some(left_at);
        }
        let is_lost = dice(socket, self.count) < link.loss;
        (!is_lost).then(|| left_at + link.delay)
    }
}

/// A number from 0 to 1.
fn dice(socket: SocketAddr, count: u64) -> f64 {
    let mut hasher = FxHasher::default();
    hasher.write(socket.to_string().as_bytes());
    hasher.write_u64(count);
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1000;

    fn socket() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 1))
    }

    /// The arrival times of datagrams that come to a link at once.
    fn arrivals(link: MemoryLink, count: usize) -> Vec<Option<Duration>> {
        let (mut way, now) = (Way::default(), Instant::now());
        let pass = |_| way.pass(&link, socket(), now, SIZE);
        let passed = (0..count).map(pass);
        passed.map(|at| at.map(|at| at - now)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn datagrams_leave_at_a_rate_and_those_that_find_a_full_queue_are_lost() {
        let ms = Duration::from_millis;
        let link = MemoryLink::default().rate(8_000_000).delay(ms(20));
        let expected: Vec<_> = (1..=5).map(|sent| Some(ms(20 + sent))).collect();
        assert_eq!(arrivals(link, 5), expected);
        let short = link.queue(2 * SIZE);
        let first: Vec<_> = expected[..3].iter().copied().chain([None, None]).collect();
        assert_eq!(arrivals(short, 5), first);
        assert_eq!(
            arrivals(MemoryLink::default(), 2),
            [Some(Duration::ZERO); 2]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn link_losses_repeat_in_each_run() {
        let count = 100_000;
        for part in [0.0, 0.01, 0.1, 1.0] {
            let link = MemoryLink::default().loss(part);
            let once = arrivals(link, count);
            let lost = once.iter().filter(|at| at.is_none()).count() as f64 / count as f64;
            assert!((lost - part).abs() < 0.002, "{lost} instead of {part}");
            assert_eq!(arrivals(link, count), once);
        }
    }
}
