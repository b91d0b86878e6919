//! [`Ways`]: the round-trip time between each local address and each server, kept for later
//! connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mpquic_core::path_memory::LIFETIME;
use mpquic_core::{Connection, FourTuple};

/// The most ways that are kept. The oldest way is dropped for a new one.
const MOST: usize = 256;
/// Round-trip times are compared in steps of this length, so that small differences do not count.
const STEP: Duration = Duration::from_millis(100);

/// The round-trip time between a local address and a server's address. `ClientConfig` of
/// `mpquic-tokio` returns learnt values (`known_ways`) and takes values of an earlier process
/// (`add_known_ways`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownWay {
    /// Our IP address.
    pub local: IpAddr,
    /// The server's address.
    pub remote: SocketAddr,
    /// The smallest round-trip time; `None` if the server did not answer.
    pub rtt: Option<Duration>,
    /// The time of the measurement, which counts for one hour.
    pub noted: Instant,
}

impl KnownWay {
    /// A value measured at `noted`.
    pub fn new(local: IpAddr, remote: SocketAddr, rtt: Option<Duration>, noted: Instant) -> Self {
        Self {
            local,
            remote,
            rtt,
            noted,
        }
    }

    fn is(&self, four_tuple: FourTuple) -> bool {
        self.local == four_tuple.local.ip() && self.remote == four_tuple.remote
    }

    fn is_good(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.noted) < LIFETIME
    }
}

/// Round-trip times that a client's connections measured, so that the next connection starts from
/// the local address that the server answers first.
#[derive(Debug, Default)]
pub struct Ways(Mutex<Vec<KnownWay>>);

impl Ways {
    /// Notes a measured round-trip time, or `None` for a server that did not answer.
    pub fn note(&self, four_tuple: FourTuple, rtt: Option<Duration>, now: Instant) {
        let local = four_tuple.local.ip();
        self.add(KnownWay::new(local, four_tuple.remote, rtt, now));
    }

    /// Notes the round-trip time of each path of a connection that began at `since` and ends now.
    pub fn learn(&self, connection: &Connection, since: Instant, now: Instant) {
        let paths = connection.paths();
        for path in paths.filter_map(|path| connection.path_stats(path)) {
            if path.packets_received > 0 {
                self.note(path.four_tuple, Some(path.min_rtt), now);
            } else if now.saturating_duration_since(since) >= STEP {
                self.note(path.four_tuple, None, now);
            }
        }
    }

    /// Adds a way, and drops the earlier value for the same addresses.
    pub fn add(&self, way: KnownWay) {
        let mut ways = self.lock();
        ways.retain(|known| (known.local, known.remote) != (way.local, way.remote));
        if ways.len() == MOST {
            ways.remove(0);
        }
        ways.push(way);
    }

    /// All ways, the latest at the end.
    pub fn all(&self) -> Vec<KnownWay> {
        self.lock().clone()
    }

    /// Sorts four-tuples by their known round-trip time, unanswered four-tuples at the end. A
    /// four-tuple without a known value counts as fast.
    pub fn sort(&self, four_tuples: &mut [FourTuple], now: Instant) {
        let ways = self.lock();
        four_tuples.sort_by_key(|four_tuple| {
            let mut known = ways.iter().filter(|way| way.is_good(now));
            match known.find(|way| way.is(*four_tuple)) {
                Some(way) => way
                    .rtt
                    .map_or(u128::MAX, |rtt| rtt.as_nanos() / STEP.as_nanos()),
                None => 0,
            }
        });
    }

    /// True if a packet came back to this local address from this address of a server.
    pub fn has_heard(&self, four_tuple: FourTuple, now: Instant) -> bool {
        let ways = self.lock();
        let mut heard = ways.iter().filter(|way| way.rtt.is_some());
        heard.any(|way| way.is_good(now) && way.is(four_tuple))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<KnownWay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    fn way(local: u8) -> FourTuple {
        let address = |ip: [u8; 4], port| SocketAddr::from((ip, port));
        FourTuple::new(address([10, 0, local, 1], 1), address([10, 0, 0, 1], 443))
    }

    fn sorted(ways: &Ways, now: Instant) -> Vec<u8> {
        let mut all = [1, 2, 3].map(way);
        ways.sort(&mut all, now);
        let third = |tuple: &FourTuple| match tuple.local.ip() {
            IpAddr::V4(ip) => ip.octets()[2],
            IpAddr::V6(_) => 0,
        };
        all.iter().map(third).collect()
    }

    #[test]
    fn slow_and_silent_ways_come_last() {
        let (ways, now) = (Ways::default(), epoch());
        assert_eq!(sorted(&ways, now), [1, 2, 3]);
        let ms = Duration::from_millis;
        ways.note(way(1), Some(ms(600)), now);
        assert_eq!(sorted(&ways, now), [2, 3, 1]);
        ways.note(way(2), None, now);
        assert_eq!(sorted(&ways, now), [3, 1, 2]);
        // A later value replaces an earlier one, and counts for an hour.
        ways.note(way(1), Some(ms(99)), now);
        ways.note(way(3), Some(ms(100)), now);
        assert_eq!(sorted(&ways, now), [1, 3, 2]);
        ways.note(way(2), Some(ms(1)), now + ms(1));
        assert_eq!(sorted(&ways, now), [1, 2, 3]);
        ways.note(way(1), None, now);
        assert_eq!(sorted(&ways, now + LIFETIME - ms(1)), [2, 3, 1]);
        assert_eq!(sorted(&ways, now + LIFETIME), [1, 2, 3]);
        let heard = |at| [1, 2, 3].map(|local| ways.has_heard(way(local), at));
        assert_eq!(heard(now), [false, true, true]);
        assert_eq!(heard(now + LIFETIME), [false, true, false]);
    }

    #[test]
    fn ways_differ_by_both_addresses_and_are_limited() {
        let (ways, now) = (Ways::default(), epoch());
        let mut elsewhere = way(1);
        elsewhere.remote.set_port(444);
        ways.note(elsewhere, None, now);
        assert_eq!(sorted(&ways, now), [1, 2, 3]);
        // The local port does not matter.
        let mut again = way(1);
        again.local.set_port(2);
        ways.note(again, None, now);
        assert_eq!(sorted(&ways, now), [2, 3, 1]);
        for port in 0..MOST as u16 - 1 {
            let mut other = way(9);
            other.remote.set_port(port);
            ways.note(other, None, now);
        }
        assert_eq!(ways.lock().len(), MOST);
        assert_eq!(sorted(&ways, now), [2, 3, 1]);
        ways.note(way(8), None, now);
        assert_eq!(ways.lock().len(), MOST);
        assert_eq!(sorted(&ways, now), [1, 2, 3]);
    }
}
