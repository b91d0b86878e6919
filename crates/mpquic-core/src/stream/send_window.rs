//! [`SendWindow`]: the limit on buffered stream bytes of a connection.

use std::time::{Duration, Instant};

use super::send_queue::SendQueue;
use super::window_target::WindowTarget;
use crate::config::TransportConfig;

/// Below this size, in bytes, the window also follows the congestion windows. A congestion window
/// can leap to the rate of an earlier connection (Careful Resume), and acknowledgements show the
/// new rate a round trip later.
const SMALL: u64 = 4 << 20;

/// Congestion windows in a small window: one window is in flight, the other waits to be sent.
const CONGESTION_WINDOWS: u64 = 2;

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
    queue: Option<SendQueue>,
}

/// The paths of a connection, as far as the window depends on them.
pub(crate) struct PathsNow<Rtt, Windows, Rate> {
    /// The largest smoothed RTT.
    pub(crate) largest_rtt: Rtt,
    /// The sum of the congestion windows, in bytes.
    pub(crate) congestion_windows: Windows,
    /// The sum of the rates, in bytes per second.
    pub(crate) rate: Rate,
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
            queue: config.send_queue_time.map(|time| SendQueue::new(time, now)),
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

    /// All acknowledgements of a packet were processed; true if the window or the limit of unsent
    /// bytes has grown.
    pub(super) fn adapt(
        &mut self,
        now: Instant,
        paths: &PathsNow<impl Fn() -> Duration, impl Fn() -> u64, impl Fn() -> u64>,
    ) -> bool {
        let acked = std::mem::take(&mut self.acked);
        if acked == 0 {
            return false;
        }
        let before = self.size;
        if let Some(target) = self.target.on_bytes(acked, now, &paths.largest_rtt) {
            self.grow(target);
        }
        if self.size < SMALL.min(self.max) {
            let target = CONGESTION_WINDOWS.saturating_mul((paths.congestion_windows)());
            self.grow(target.min(SMALL));
        }
        let queue = self.queue.as_mut();
        let more_queue = queue
            .is_some_and(|queue| queue.on_acked(acked, now, (&paths.largest_rtt, &paths.rate)));
        self.size > before || more_queue
    }

    fn grow(&mut self, target: u64) {
        self.size = self.size.max(target.min(self.max));
    }

    /// Bytes that may still be written on top of `buffered` unacknowledged bytes, of which `unsent`
    /// are not sent.
    #[inline]
    pub(super) fn room(&self, buffered: u64, unsent: u64) -> u64 {
        let room = self.size.saturating_sub(buffered);
        match &self.queue {
            None => room,
            Some(queue) => room.min(queue.limit().saturating_sub(unsent)),
        }
    }

    /// The limit of unsent bytes.
    #[inline]
    pub(super) fn queue_limit(&self) -> u64 {
        self.queue.as_ref().map_or(u64::MAX, SendQueue::limit)
    }
}
