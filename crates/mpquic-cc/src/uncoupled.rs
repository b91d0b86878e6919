//! Controllers that treat every path as a connection of its own.

use std::fmt;
use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent, Controller, Sent};
use mpquic_core::{PathId, PathMap};

/// Congestion control of one path that needs to know nothing of the others. [`Uncoupled`] makes a
/// [`Controller`] of it; the methods mean what they mean there.
pub trait PathController: fmt::Debug + Send {
    /// The algorithm's name.
    const NAME: &'static str;

    /// A path with this largest datagram, in bytes, starts.
    fn new(now: Instant, mtu: u16) -> Self;
    /// The largest datagram changed.
    fn on_mtu_update(&mut self, mtu: u16);
    /// A packet that counts as in flight left.
    fn on_packet_sent(&mut self, sent: &Sent) {
        let _ = sent;
    }
    /// Packets were acknowledged.
    fn on_ack(&mut self, ack: &Acked);
    /// Loss, ECN-CE, persistent congestion, or the news that a loss was spurious.
    fn on_congestion_event(&mut self, event: &CongestionEvent);
    /// Bytes the path may have in flight; never below two datagrams.
    fn window(&self) -> u64;
    /// The slow start threshold, once it has been set.
    fn slow_start_threshold(&self) -> Option<u64> {
        None
    }
    /// True while the path recovers from a loss event.
    fn in_recovery(&self) -> bool {
        false
    }
    /// Bytes per second to pace at; `None` lets the core choose.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    /// The window after one loss-free round trip, if it were `window` now.
    fn window_after_round(&self, window: u64) -> u64 {
        window
    }
}

/// Runs one `C` per path. The paths of a connection then take as many fair shares of a bottleneck
/// they have in common.
#[derive(Debug)]
pub struct Uncoupled<C> {
    paths: PathMap<C>,
}

impl<C> Default for Uncoupled<C> {
    fn default() -> Self {
        Self {
            paths: PathMap::default(),
        }
    }
}

impl<C: PathController> Controller for Uncoupled<C> {
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        self.paths.insert(path, C::new(now, mtu));
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.paths.remove(path);
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        if let Some(controller) = self.paths.get_mut(path) {
            controller.on_mtu_update(mtu);
        }
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        if let Some(controller) = self.paths.get_mut(path) {
            controller.on_packet_sent(sent);
        }
    }

    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        if let Some(controller) = self.paths.get_mut(path) {
            controller.on_ack(ack);
        }
    }

    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        if let Some(controller) = self.paths.get_mut(path) {
            controller.on_congestion_event(event);
        }
    }

    fn window(&self, path: PathId) -> u64 {
        self.paths.get(path).map_or(0, C::window)
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.paths.get(path).and_then(C::slow_start_threshold)
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.paths.get(path).is_some_and(C::in_recovery)
    }

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        self.paths.get(path).and_then(C::pacing_rate)
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        let window = windows
            .iter()
            .find(|(id, _)| *id == path)
            .map_or(0, |(_, window)| *window);
        self.paths
            .get(path)
            .map_or(window, |controller| controller.window_after_round(window))
    }

    fn name(&self) -> &'static str {
        C::NAME
    }
}
