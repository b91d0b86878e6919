//! [`ReceiveWindows`]: how far the peer may send ahead of the application.

use std::time::{Duration, Instant};

use super::flow::ReceiveCredit;
use super::window_target::WindowTarget;
use crate::config::TransportConfig;

/// The limit of memory is at least this many times the receive window: with the datagrams that data
/// is a slice of, the data takes up to twice its own size, and a little more for its lists.
const WINDOWS_PER_LIMIT: u64 = 4;

/// The receive windows of a connection and of its streams. They grow with the rate of arriving
/// bytes.
#[derive(Debug)]
pub(super) struct ReceiveWindows {
    /// Our MAX_DATA.
    pub(super) credit: ReceiveCredit,
    /// The configured limit of the connection's window, in bytes.
    max: u64,
    /// The connection's window began at its limit, and stays there.
    is_whole: bool,
    /// The largest window for which the configured limit of memory has room.
    affordable: u64,
    /// Window of a new stream, as in the transport parameters.
    initial_stream: u64,
    /// Window of a stream now.
    stream: u64,
    /// The configured limit of a stream's window, in bytes.
    max_stream: u64,
    target: WindowTarget,
}

impl ReceiveWindows {
    /// The configured windows.
    pub(super) fn new(config: &TransportConfig, now: Instant) -> Self {
        Self {
            credit: ReceiveCredit::new(config.initial_receive_window),
            max: config.max_receive_window,
            is_whole: config.initial_receive_window == config.max_receive_window,
            affordable: config.memory_limit.unwrap_or(u64::MAX) / WINDOWS_PER_LIMIT,
            initial_stream: config.initial_stream_receive_window,
            stream: config.initial_stream_receive_window,
            max_stream: config.max_stream_receive_window.unwrap_or(u64::MAX),
            target: WindowTarget::new(now),
        }
    }

    /// Window of a stream that is opened.
    pub(super) fn initial_stream(&self) -> u64 {
        self.initial_stream
    }

    /// Window of a stream that the application reads now.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }

    /// The limit of memory that leaves room for the largest window, in bytes.
    pub(super) fn memory_limit(&self) -> u64 {
        self.max.saturating_mul(WINDOWS_PER_LIMIT)
    }

    /// The largest window: the configured one, unless less memory is allowed. The peer never has
    /// credit beyond our memory.
    fn largest(&self) -> u64 {
        self.max.min(self.affordable)
    }

    /// Changes the limit of windows. The connection's window is cut down to the limit; a window
    /// that began at its limit also grows with the limit. Windows of streams only stop growing:
    /// their sum cannot exceed the connection's window.
    pub(super) fn set_max(&mut self, max: u64) {
        self.max = max;
        let wanted = if self.is_whole {
            max
        } else {
            self.credit.window().max(self.target.target())
        };
        self.credit.set_window(wanted.min(self.largest()));
        self.stream = self.stream.min(max.max(self.initial_stream));
    }

    /// New stream bytes arrived. Returns the size of windows that keeps all paths busy, in bytes,
    /// after each growth.
    #[inline]
    pub(super) fn on_bytes(
        &mut self,
        bytes: u64,
        now: Instant,
        largest_rtt: impl FnOnce() -> Duration,
    ) -> Option<u64> {
        self.target.on_bytes(bytes, now, largest_rtt)
    }

    /// Lets windows grow to `bytes`, at most to their limits.
    pub(super) fn grow(&mut self, bytes: u64) {
        let window = bytes.min(self.largest());
        self.credit.grow(window);
        self.stream = self
            .stream
            .max(window.min(self.max_stream))
            .max(self.initial_stream);
    }
}
