//! [`SendWindow`]: the limit on buffered stream bytes of a connection.

use std::time::{Duration, Instant};

use super::window_target::WindowTarget;
use crate::config::TransportConfig;

/// Below this size, in bytes, the window also follows the congestion windows. A congestion window can leap to the rate of an
/// earlier connection (Careful Resume), and acknowledgements show the new rate a round trip later.
const SMALL: u64 = 4 << 20;

/// Congestion windows in a small window: one is in flight, and one waits to be sent.
const CONGESTION_WINDOWS: u64 = 2;

/// The limit of unsent bytes before the rate of the paths is known.
const FIRST_QUEUE: u64 = 64 << 10;
/// The smallest limit of unsent bytes.
const MIN_QUEUE: u64 = 16 << 10;
/// How often the limit of unsent bytes follows the rate of the paths.
const QUEUE_INTERVAL: Duration = Duration::from_millis(10);

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
    queue: Option<Queue>,
}

/// The limit on unsent bytes.
#[derive(Debug)]
struct Queue {
    /// The time in which the paths send the bytes.
    time: Duration,
    limit: u64,
    /// When to look at the rate of the paths again.
    due: Instant,
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
            queue: config.send_queue_time.map(|time| Queue {
                time,
                limit: FIRST_QUEUE,
                due: now,
            }),
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
        let queue = self.queue.as_mut().filter(|queue| queue.due <= now);
        let more_queue = queue.is_some_and(|queue| {
            queue.due = now + QUEUE_INTERVAL;
            queue.adapt((paths.rate)(), (paths.largest_rtt)())
        });
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
            Some(queue) => room.min(queue.limit.saturating_sub(unsent)),
        }
    }

    /// The limit of unsent bytes.
    #[inline]
    pub(super) fn queue_limit(&self) -> u64 {
        self.queue.as_ref().map_or(u64::MAX, |queue| queue.limit)
    }
}

impl Queue {
    /// Follows the rate of the paths in bytes per second; true if the limit has grown. A path with a
    /// longer delay carries bytes that stand further behind in the queue, so the queue is longer by
    /// the longest round trip.
    fn adapt(&mut self, rate: u64, largest_rtt: Duration) -> bool {
        let seconds = (self.time + largest_rtt).as_secs_f64();
        let limit = ((rate as f64 * seconds) as u64).max(MIN_QUEUE);
        let has_grown = limit > self.limit;
        self.limit = limit;
        has_grown
    }
}
