//! What must hold after every step of every connection.

use std::time::Instant;

use mpquic_core::{Connection, PathState, Transmit};

/// Timeouts one connection may handle at one instant.
const MAX_TIMEOUTS_AT_ONCE: u32 = 100;
/// Statistics are checked once in this many steps, because that costs time.
const CHECK_EVERY: u32 = 16;

/// Watches one connection and panics when it breaks a rule: a broken simulation must not go on.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    last_timeout: Option<Instant>,
    timeouts_at_once: u32,
    steps: u32,
    bytes_sent: u64,
    connection_bytes: (u64, u64),
}

impl Invariants {
    /// Time must pass: a timer that fires again and again at one instant never ends.
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

    /// Statistics must agree with what was sent and with each other.
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
