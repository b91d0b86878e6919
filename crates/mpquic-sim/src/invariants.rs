//! Rules that must hold after every step of every connection.

use std::time::Instant;

use mpquic_core::{Connection, PathState, Transmit};

/// Most timeouts of one connection at one instant.
const MAX_TIMEOUTS_AT_ONCE: u32 = 100;
/// The number of steps from a check of statistics to the next, because a check takes time.
const CHECK_EVERY: u32 = 16;

/// Watches a connection and panics when the connection breaks a rule, because a broken simulation
/// must not go on.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    last_timeout: Option<Instant>,
    timeouts_at_once: u32,
    steps: u32,
    bytes_sent: u64,
    connection_bytes: (u64, u64),
}

impl Invariants {
    /// Time must pass: a timer that fires again and again at one instant would never end.
    pub(crate) fn on_timeout(&mut self, now: Instant, connection: &Connection) {
        if self.last_timeout != Some(now) {
            self.last_timeout = Some(now);
            self.timeouts_at_once = 0;
        }
        self.timeouts_at_once += 1;
        assert!(
            self.timeouts_at_once <= MAX_TIMEOUTS_AT_ONCE,
            "{:?} fires without end",
            connection.poll_timeout()
        );
    }

    /// A batch must consist of whole datagrams of a legal size.
    pub(crate) fn on_transmit(&mut self, transmit: &Transmit, buffer: &[u8]) {
        assert_eq!(transmit.size, buffer.len(), "size of the batch");
        assert!(transmit.size > 0, "an empty batch");
        if let Some(segment) = transmit.segment_size {
            assert!(segment > 0 && segment < transmit.size, "{transmit:?}");
        }
        assert!(transmit.path.is_some(), "a connection sends on paths");
        self.bytes_sent += transmit.size as u64;
    }

    /// Statistics must agree with the sent bytes and with each other.
    pub(crate) fn check(&mut self, now: Instant, connection: &Connection) {
        self.steps += 1;
        if !self.steps.is_multiple_of(CHECK_EVERY) || connection.is_drained() {
            return;
        }
        if let Some((time, reason)) = connection.poll_timeout() {
            assert!(
                time > now || self.timeouts_at_once < MAX_TIMEOUTS_AT_ONCE,
                "{reason:?} is overdue"
            );
        }
        let stats = connection.stats();
        assert_eq!(stats.bytes_sent, self.bytes_sent, "bytes sent");
        let bytes = (stats.bytes_sent, stats.bytes_received);
        let before = std::mem::replace(&mut self.connection_bytes, bytes);
        assert!(before.0 <= bytes.0 && before.1 <= bytes.1, "counters fell");
        let mut last = None;
        for path in connection.paths() {
            assert!(last < Some(path), "paths are not in order");
            last = Some(path);
            let Some(stats) = connection.path_stats(path) else {
                panic!("no statistics of path {path}");
            };
            assert!(stats.mtu >= 1200, "MTU of path {path}");
            assert!(stats.packets_lost <= stats.packets_sent);
            if stats.state == PathState::Active {
                assert!(stats.window >= 2 * u64::from(stats.mtu), "{stats:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::PathId;

    use super::*;
    use crate::link::LinkConfig;
    use crate::pair::{Pair, Setup};
    use crate::topology::Topology;

    fn pair() -> Pair {
        let link = LinkConfig::new(8.0, Duration::from_millis(10));
        Pair::connected(&Topology::new().path("a", link), Setup::new())
    }

    fn fire(invariants: &mut Invariants, pair: &mut Pair, times: u32, wait: u64) {
        let now = pair.now() + Duration::from_secs(wait);
        for _ in 0..times {
            invariants.on_timeout(now, pair.client());
        }
    }

    #[test]
    fn timer_may_fire_a_hundred_times_at_one_instant() {
        let (mut pair, mut invariants) = (pair(), Invariants::default());
        fire(&mut invariants, &mut pair, 100, 0);
        fire(&mut invariants, &mut pair, 100, 1);
    }

    #[test]
    #[should_panic(expected = "fires without end")]
    fn timer_that_fires_without_end_is_noticed() {
        fire(&mut Invariants::default(), &mut pair(), 101, 0);
    }

    #[test]
    #[should_panic(expected = "bytes sent")]
    fn bytes_sent_without_a_transmit_are_noticed() {
        let (mut pair, mut invariants) = (pair(), Invariants::default());
        for _ in 0..CHECK_EVERY {
            let now = pair.now();
            invariants.check(now, pair.client());
        }
    }

    #[test]
    fn statistics_are_checked_once_in_sixteen_steps() {
        let (mut pair, mut invariants) = (pair(), Invariants::default());
        let now = pair.now();
        for _ in 1..CHECK_EVERY {
            invariants.check(now, pair.client());
        }
        invariants.bytes_sent = pair.client().stats().bytes_sent;
        invariants.check(now, pair.client());
        assert_eq!(invariants.steps, 16);
        let stats = pair.client().stats();
        let bytes = (stats.bytes_sent, stats.bytes_received);
        assert_eq!(invariants.connection_bytes, bytes);
    }

    fn transmit(size: usize, segment_size: Option<usize>) -> Transmit {
        Transmit {
            path: Some(PathId::ZERO),
            four_tuple: pair().four_tuple(0),
            ecn: None,
            size,
            segment_size,
        }
    }

    #[test]
    fn batches_are_counted() {
        let mut invariants = Invariants::default();
        invariants.on_transmit(&transmit(30, None), &[0; 30]);
        invariants.on_transmit(&transmit(30, Some(20)), &[0; 30]);
        assert_eq!(invariants.bytes_sent, 60);
    }

    #[test]
    #[should_panic(expected = "size of the batch")]
    fn batch_of_a_wrong_size_is_noticed() {
        Invariants::default().on_transmit(&transmit(31, None), &[0; 30]);
    }

    #[test]
    #[should_panic(expected = "segment_size: Some(30)")]
    fn a_segment_is_smaller_than_its_batch() {
        Invariants::default().on_transmit(&transmit(30, Some(30)), &[0; 30]);
    }
}
