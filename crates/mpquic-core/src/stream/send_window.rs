//! [`SendWindow`]: the limit on buffered stream bytes of a connection.

use std::time::{Duration, Instant};

use super::window_target::WindowTarget;
use crate::config::TransportConfig;

/// Below this size, in bytes, the window also follows the congestion windows. A congestion window can leap to the rate of an
/// earlier connection (Careful Resume), and acknowledgements show the new rate a round trip later.
const SMALL: u64 = 4 << 20;

/// Congestion windows in a small window: one is in flight, and one waits to be sent.
const CONGESTION_WINDOWS: u64 = 2;

/// Blocked writers are woken when this part of the window is free.
const WAKE_SHARE: u64 = 8;

/// Blocked writers are woken at this many free bytes if no stream data waits to be sent.
const WAKE_IDLE: u64 = 16 << 10;

/// The limit on buffered bytes of all streams, sent or not, up to the last unacknowledged byte. The
/// window grows with the rate of acknowledgements.
#[derive(Debug)]
pub(super) struct SendWindow {
    /// The size now, in bytes.
    size: u64,
    /// The configured size at the start, in bytes.
    initial: u64,
    /// The configured limit of the size, in bytes.
    max: u64,
    target: WindowTarget,
    /// Stream bytes acknowledged since the last call of [`Self::adapt`].
    acked: u64,
}

impl SendWindow {
    /// The window of a new connection.
    pub(super) fn new(config: &TransportConfig, now: Instant) -> Self {
        let (initial, max) = (config.initial_send_window, config.send_window);
        Self {
            size: initial.min(max),
            initial,
            max,
            target: WindowTarget::new(now),
            acked: 0,
        }
    }

    /// The size now, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Changes the limit of the size.
    pub(super) fn set_max(&mut self, max: u64) {
        self.max = max;
        self.size = self.target.target().max(self.initial).min(max);
    }

    /// Stream bytes were acknowledged.
    #[inline]
    pub(super) fn on_acked(&mut self, bytes: u64) {
        self.acked += bytes;
    }

    /// All acknowledgements of a packet were processed; true if the window has grown. `congestion_windows` is the
    /// sum of the congestion windows of all paths, in bytes.
    pub(super) fn adapt(
        &mut self,
        now: Instant,
        largest_rtt: impl FnOnce() -> Duration,
        congestion_windows: impl FnOnce() -> u64,
    ) -> bool {
        let acked = std::mem::take(&mut self.acked);
        if acked == 0 {
            return false;
        }
        let before = self.size;
        if let Some(target) = self.target.on_bytes(acked, now, largest_rtt) {
            self.grow(target);
        }
        if self.size < SMALL.min(self.max) {
            let target = CONGESTION_WINDOWS.saturating_mul(congestion_windows());
            self.grow(target.min(SMALL));
        }
        self.size > before
    }

    fn grow(&mut self, target: u64) {
        self.size = self.size.max(target.min(self.max));
    }

    /// Bytes that may still be written on top of `buffered` unacknowledged bytes.
    #[inline]
    pub(super) fn room(&self, buffered: u64) -> u64 {
        self.size.saturating_sub(buffered)
    }

    /// True with enough room to wake blocked writers. `buffered` bytes are not acknowledged, and
    /// `unsent` of them not sent. Writers are not woken for every acknowledgement, but earlier
    /// without stream data to send.
    #[inline]
    pub(super) fn is_worth_waking(&self, buffered: u64, unsent: u64) -> bool {
        let share = self.size / WAKE_SHARE;
        let enough = if unsent == 0 {
            share.min(WAKE_IDLE)
        } else {
            share
        };
        self.room(buffered) >= enough.max(1)
    }
}
