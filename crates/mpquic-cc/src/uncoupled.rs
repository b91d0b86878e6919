//! Controllers that treat every path as a separate connection.

use std::fmt;
use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent, Controller, Sent};
use mpquic_core::{PathId, PathMap};

use crate::careful_resume::{Found, Resumable};

/// The limits that a path's controller sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathLimits {
    /// Bytes that the path may have in flight; never below two datagrams.
    pub window: u64,
    /// The slow start threshold, once it has been set.
    pub slow_start_threshold: Option<u64>,
    /// True while the path recovers from a loss event.
    pub in_recovery: bool,
    /// Pacing rate, bytes per second; `None` lets the core choose.
    pub pacing_rate: Option<u64>,
    /// Limits the pacing rate to the next bytes: see [`Controller::burst`].
    pub burst: Option<u64>,
    /// Bytes that may leave together: see [`Controller::send_quantum`].
    pub send_quantum: Option<u64>,
}

impl PathLimits {
    /// A window in bytes, without any other limits.
    pub fn new(window: u64) -> Self {
        Self {
            window,
            slow_start_threshold: None,
            in_recovery: false,
            pacing_rate: None,
            burst: None,
            send_quantum: None,
        }
    }
}

/// Congestion control of one path, independent of other paths. [`Uncoupled`] turns it into a
/// [`Controller`], whose methods of the same names describe these methods.
///
/// ```
/// use std::time::Instant;
///
/// use mpquic_cc::{PathController, PathLimits, Uncoupled};
/// use mpquic_core::PathId;
/// use mpquic_core::congestion::{Acked, CongestionEvent, Controller as _};
///
/// /// A constant window of ten datagrams.
/// #[derive(Debug)]
/// struct TenDatagrams {
///     mtu: u16,
/// }
///
/// impl PathController for TenDatagrams {
///     const NAME: &'static str = "ten";
///
///     fn new(_: Instant, mtu: u16) -> Self {
///         Self { mtu }
///     }
///
///     fn on_mtu_update(&mut self, mtu: u16) {
///         self.mtu = mtu;
///     }
///
///     fn on_ack(&mut self, _: &Acked) {}
///
///     fn on_congestion_event(&mut self, _: &CongestionEvent) {}
///
///     fn limits(&self) -> PathLimits {
///         PathLimits::new(10 * u64::from(self.mtu))
///     }
/// }
///
/// let mut controller = Uncoupled::<TenDatagrams>::default();
/// controller.on_path_opened(PathId(0), Instant::now(), 1200);
/// assert_eq!(controller.window(PathId(0)), 12_000);
/// ```
pub trait PathController: fmt::Debug + Send {
    /// The algorithm's name.
    const NAME: &'static str;

    /// The controller of a path that opens. `mtu` is the largest datagram, bytes.
    fn new(now: Instant, mtu: u16) -> Self;
    /// The size of the largest datagram changed.
    fn on_mtu_update(&mut self, mtu: u16);
    /// A packet that counts as in flight left.
    fn on_packet_sent(&mut self, sent: &Sent) {
        let _ = sent;
    }
    /// Packets were acknowledged.
    fn on_ack(&mut self, ack: &Acked);
    /// A loss, an ECN-CE mark, persistent congestion, or a loss that proved spurious.
    fn on_congestion_event(&mut self, event: &CongestionEvent);
    /// Share of losses, 0 to 1, up to which the startup of the algorithm sees no congestion.
    const TOLERATED_LOSS: f64 = 0.0;
    /// Goes on from a result of [`CarefulResume`](crate::CarefulResume).
    fn adopt(&mut self, found: Found) {
        let _ = found;
    }
    /// The current limits of the path.
    fn limits(&self) -> PathLimits;
    /// Bytes of memory in lists that grow with the traffic.
    fn memory(&self) -> u64 {
        0
    }
    /// The window one loss-free round trip after it was `window`, bytes.
    fn window_after_round(&self, window: u64) -> u64 {
        window
    }
}

/// Runs one `C` per path. If several paths share a bottleneck, the connection takes one fair share
/// of it for each of these paths.
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

impl<C: PathController> Uncoupled<C> {
    fn limits(&self, path: PathId) -> Option<PathLimits> {
        self.paths.get(path).map(C::limits)
    }
}

impl<C: PathController> Resumable for Uncoupled<C> {
    const TOLERATED_LOSS: f64 = C::TOLERATED_LOSS;

    fn adopt(&mut self, path: PathId, found: Found) {
        if let Some(controller) = self.paths.get_mut(path) {
            controller.adopt(found);
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
        self.limits(path).map_or(0, |limits| limits.window)
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.limits(path)?.slow_start_threshold
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.limits(path).is_some_and(|limits| limits.in_recovery)
    }

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        self.limits(path)?.pacing_rate
    }

    fn burst(&self, path: PathId) -> Option<u64> {
        self.limits(path)?.burst
    }

    fn send_quantum(&self, path: PathId) -> Option<u64> {
        self.limits(path)?.send_quantum
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

    fn memory(&self) -> u64 {
        self.paths.iter().map(|(_, path)| path.memory()).sum()
    }

    fn name(&self) -> &'static str {
        C::NAME
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acked, congestion, sent, start};
    use mpquic_core::congestion::CongestionKind;

    const PATH: PathId = PathId(2);

    /// The smallest possible controller.
    #[derive(Debug)]
    struct TenDatagrams(u64);

    impl PathController for TenDatagrams {
        const NAME: &'static str = "ten";

        fn new(_: Instant, mtu: u16) -> Self {
            Self(10 * u64::from(mtu))
        }

        fn on_mtu_update(&mut self, mtu: u16) {
            self.0 = 10 * u64::from(mtu);
        }

        fn on_ack(&mut self, _: &Acked) {}

        fn on_congestion_event(&mut self, _: &CongestionEvent) {}

        fn limits(&self) -> PathLimits {
            PathLimits::new(self.0)
        }
    }

    #[test]
    fn default_methods_change_nothing() {
        let mut controller = Uncoupled::<TenDatagrams>::default();
        let now = start();
        controller.on_path_opened(PATH, now, 1200);
        controller.on_packet_sent(PATH, &sent(now, 1200, 1200));
        controller.on_ack(PATH, &acked(now, now, 1200));
        let loss = congestion(CongestionKind::Loss, now, now);
        controller.on_congestion_event(PATH, &loss);
        controller.adopt(PATH, Found::AtLeast(100_000));
        assert_eq!(controller.window(PATH), 12_000);
        assert_eq!(controller.slow_start_threshold(PATH), None);
        assert_eq!(controller.pacing_rate(PATH), None);
        assert!(!controller.in_recovery(PATH));
        assert_eq!(controller.memory(), 0);
        controller.on_mtu_update(PATH, 1400);
        assert_eq!(controller.window(PATH), 14_000);
        assert_eq!(TenDatagrams::TOLERATED_LOSS, 0.0);
    }

    #[test]
    fn default_window_after_round_is_the_window() {
        let mut controller = Uncoupled::<TenDatagrams>::default();
        controller.on_path_opened(PATH, start(), 1200);
        let windows = [(PathId(1), 5_000), (PATH, 7_000)];
        let after = |path, windows: &[_]| controller.window_after_round(path, windows);
        assert_eq!(after(PATH, &windows), 7_000);
        assert_eq!(after(PathId(1), &windows), 5_000, "a path that is not open");
        assert_eq!(after(PATH, &windows[..1]), 0, "one that has no window");
    }

    #[test]
    fn a_path_that_is_not_open_may_send_nothing() {
        let mut controller = Uncoupled::<TenDatagrams>::default();
        controller.on_path_opened(PATH, start(), 1200);
        controller.on_path_closed(PATH);
        assert_eq!(controller.window(PATH), 0);
        assert_eq!(controller.pacing_rate(PATH), None);
        assert!(!controller.in_recovery(PATH));
    }
}
