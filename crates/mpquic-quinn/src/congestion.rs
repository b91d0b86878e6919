//! Congestion control.
//!
//! Without a call of [`TransportConfig::congestion_controller_factory`], mpquic's default
//! controller sees all paths of a connection. A factory of this module gives each path a controller
//! of its own.
//!
//! [`TransportConfig::congestion_controller_factory`]:
//! crate::TransportConfig::congestion_controller_factory

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_tokio::congestion as core;
use mpquic_tokio::controllers::{self, PathController};
use mpquic_tokio::{PathId, PathMap, PathStats};

/// The window of a new path, datagrams (RFC 9002 section 7.2).
const INITIAL_DATAGRAMS: u64 = 10;
/// The size of the datagrams of a new path, bytes.
const BASE_DATAGRAM: u64 = 1200;

/// Round trips of a path.
#[derive(Debug, Copy, Clone)]
pub struct RttEstimator(core::RttSnapshot);

impl RttEstimator {
    /// The smoothed round trip.
    pub fn get(&self) -> Duration {
        self.0.smoothed
    }

    /// The larger one of the smoothed and the latest round trip.
    pub fn conservative(&self) -> Duration {
        self.0.smoothed.max(self.0.latest)
    }

    /// The smallest round trip.
    pub fn min(&self) -> Duration {
        self.0.min
    }
}

/// Limits how much one path may have in flight.
pub trait Controller: Send + Sync {
    /// A packet was sent.
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        let _ = (now, bytes, last_packet_number);
    }

    /// Packets were acknowledged; the latest of them was sent at `sent`.
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let _ = (now, sent, bytes, app_limited, rtt);
    }

    /// All packets of an ACK frame were reported.
    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        let _ = (now, in_flight, app_limited, largest_packet_num_acked);
    }

    /// Packets were lost, or the network marked packets (`lost_bytes` is 0 then). The latest of
    /// them was sent at `sent`.
    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    );

    /// The size of datagrams changed.
    fn on_mtu_update(&mut self, new_mtu: u16);

    /// Bytes that the path may have in flight.
    fn window(&self) -> u64;

    /// Figures for logs.
    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics {
            congestion_window: self.window(),
            ..ControllerMetrics::default()
        }
    }

    /// A copy.
    fn clone_box(&self) -> Box<dyn Controller>;

    /// The window at the start.
    fn initial_window(&self) -> u64;

    /// The same value, for a downcast.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// Makes the controllers of paths.
pub trait ControllerFactory {
    /// A controller for a new path.
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller>;

    /// mpquic's own controller that takes the place of [`Self::build`]; none for controllers of
    /// programs.
    #[doc(hidden)]
    fn built_in(&self) -> Option<Arc<dyn core::ControllerFactory>> {
        None
    }
}

/// Figures of a controller.
#[derive(Debug, Default, Clone)]
#[non_exhaustive]
pub struct ControllerMetrics {
    /// Bytes that may be in flight.
    pub congestion_window: u64,
    /// The slow start threshold, bytes.
    pub ssthresh: Option<u64>,
    /// The pacing rate, bits per second.
    pub pacing_rate: Option<u64>,
}

/// The factory for mpquic: a controller that is built in, or one that keeps a controller of the
/// program for each path.
pub(crate) fn for_mpquic(
    factory: &Arc<dyn ControllerFactory + Send + Sync + 'static>,
) -> Arc<dyn core::ControllerFactory> {
    let of_program = || Arc::new(OfProgram(factory.clone())) as Arc<dyn core::ControllerFactory>;
    factory.built_in().unwrap_or_else(of_program)
}

/// A program's factory.
struct OfProgram(Arc<dyn ControllerFactory + Send + Sync + 'static>);

impl fmt::Debug for OfProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a controller of the program")
    }
}

impl core::ControllerFactory for OfProgram {
    fn build(&self) -> Box<dyn core::Controller> {
        Box::new(EachPath {
            factory: self.0.clone(),
            paths: PathMap::default(),
        })
    }
}

/// A controller of the program for each path of a connection.
struct EachPath {
    factory: Arc<dyn ControllerFactory + Send + Sync + 'static>,
    paths: PathMap<Box<dyn Controller>>,
}

impl fmt::Debug for EachPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows = self.paths.values().map(|controller| controller.window());
        f.debug_list().entries(windows).finish()
    }
}

impl core::Controller for EachPath {
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        self.paths
            .insert(path, self.factory.clone().build(now, mtu));
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.paths.remove(path);
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        if let Some(controller) = self.paths.get_mut(path) {
            controller.on_mtu_update(mtu);
        }
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &core::Sent) {
        if let Some(controller) = self.paths.get_mut(path) {
            controller.on_sent(sent.now, sent.bytes, sent.packet_number);
        }
    }

    fn on_ack(&mut self, path: PathId, ack: &core::Acked) {
        if let Some(controller) = self.paths.get_mut(path) {
            let (now, idle, rtt) = (ack.now, ack.app_limited, RttEstimator(ack.rtt));
            controller.on_ack(now, ack.sent_at, ack.bytes, idle, &rtt);
            controller.on_end_acks(now, ack.in_flight, idle, Some(ack.largest));
        }
    }

    fn on_congestion_event(&mut self, path: PathId, event: &core::CongestionEvent) {
        let persistent = match event.kind {
            core::CongestionKind::Loss | core::CongestionKind::Ecn => false,
            core::CongestionKind::Persistent => true,
            // quinn does not report that a loss was none.
            _ => return,
        };
        if let Some(controller) = self.paths.get_mut(path) {
            controller.on_congestion_event(event.now, event.sent_at, persistent, event.lost_bytes);
        }
    }

    fn window(&self, path: PathId) -> u64 {
        let controller = self.paths.get(path);
        let window = controller.map_or(0, |controller| controller.window());
        window.min(core::MAX_WINDOW)
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.paths.get(path)?.metrics().ssthresh
    }

    fn name(&self) -> &'static str {
        "program"
    }
}

/// One of mpquic's controllers on one path, by quinn's trait.
#[derive(Debug, Clone)]
struct OnePath<C> {
    inner: C,
    in_flight: u64,
}

impl<C: PathController> OnePath<C> {
    fn new(now: Instant, mtu: u16) -> Self {
        Self {
            inner: C::new(now, mtu),
            in_flight: 0,
        }
    }

    fn on_sent(&mut self, now: Instant, bytes: u64, packet_number: u64) {
        self.in_flight = self.in_flight.saturating_add(bytes);
        let sent = core::Sent::new(now, packet_number, bytes, self.in_flight);
        self.inner.on_packet_sent(&sent);
    }

    fn on_ack(
        &mut self,
        (now, sent): (Instant, Instant),
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        let mut ack = core::Acked::new(now, sent, bytes, rtt.0);
        ack.in_flight = self.in_flight;
        ack.app_limited = app_limited;
        // A path's bytes of one round trip: the time from sending to acknowledgement.
        let elapsed = now.saturating_duration_since(sent).as_nanos().max(1);
        let rate = u128::from(self.in_flight.saturating_add(bytes)) * 1_000_000_000 / elapsed;
        let rate = core::DeliveryRate::new(rate.try_into().unwrap_or(u64::MAX), 0, bytes);
        ack.delivery_rate = Some(rate);
        self.inner.on_ack(&ack);
    }

    fn on_congestion_event(
        &mut self,
        (now, sent): (Instant, Instant),
        is_persistent: bool,
        lost_bytes: u64,
    ) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        let kind = match (is_persistent, lost_bytes) {
            (true, _) => core::CongestionKind::Persistent,
            (false, 0) => core::CongestionKind::Ecn,
            (false, _) => core::CongestionKind::Loss,
        };
        let mut event = core::CongestionEvent::new(kind, now, sent);
        event.lost_bytes = lost_bytes;
        event.in_flight = self.in_flight;
        self.inner.on_congestion_event(&event);
    }

    fn metrics(&self) -> ControllerMetrics {
        let limits = self.inner.limits();
        ControllerMetrics {
            congestion_window: limits.window,
            ssthresh: limits.slow_start_threshold,
            pacing_rate: limits.pacing_rate.map(|bytes| bytes.saturating_mul(8)),
        }
    }
}

/// Defines a controller over one of mpquic's, and the configuration that makes it.
macro_rules! built_in {
    ($($(#[$doc:meta])* $name:ident, $config:ident, $by_name:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(OnePath<controllers::$name>);

        impl Controller for $name {
            fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
                self.0.on_sent(now, bytes, last_packet_number);
            }

            fn on_ack(
                &mut self,
                now: Instant,
                sent: Instant,
                bytes: u64,
                app_limited: bool,
                rtt: &RttEstimator,
            ) {
                self.0.on_ack((now, sent), bytes, app_limited, rtt);
            }

            fn on_congestion_event(
                &mut self,
                now: Instant,
                sent: Instant,
                is_persistent_congestion: bool,
                lost_bytes: u64,
            ) {
                self.0.on_congestion_event((now, sent), is_persistent_congestion, lost_bytes);
            }

            fn on_mtu_update(&mut self, new_mtu: u16) {
                self.0.inner.on_mtu_update(new_mtu);
            }

            fn window(&self) -> u64 {
                self.0.inner.limits().window
            }

            fn metrics(&self) -> ControllerMetrics {
                self.0.metrics()
            }

            fn clone_box(&self) -> Box<dyn Controller> {
                Box::new(self.clone())
            }

            fn initial_window(&self) -> u64 {
                INITIAL_DATAGRAMS * BASE_DATAGRAM
            }

            fn into_any(self: Box<Self>) -> Box<dyn Any> {
                self
            }
        }

        #[doc = concat!("Makes [`", stringify!($name), "`] controllers.")]
        #[derive(Debug, Clone, Default)]
        #[non_exhaustive]
        pub struct $config {}

        impl $config {
            /// No effect: mpquic starts with the window of RFC 9002 section 7.2.
            pub fn initial_window(&mut self, value: u64) -> &mut Self {
                let _ = value;
                self
            }
        }

        impl ControllerFactory for $config {
            fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
                Box::new($name(OnePath::new(now, current_mtu)))
            }

            fn built_in(&self) -> Option<Arc<dyn core::ControllerFactory>> {
                controllers::by_name($by_name).ok()
            }
        }
    )*};
}

built_in! {
    /// NewReno (RFC 9002 section 7).
    NewReno, NewRenoConfig, "newreno";
    /// CUBIC (RFC 9438).
    Cubic, CubicConfig, "cubic";
    /// BBR, version 3 of mpquic.
    Bbr, BbrConfig, "bbr";
}

impl NewReno {
    /// A controller for a new path.
    pub fn new(config: Arc<NewRenoConfig>, now: Instant, current_mtu: u16) -> Self {
        drop(config);
        Self(OnePath::new(now, current_mtu))
    }
}

impl Cubic {
    /// A controller for a new path.
    pub fn new(config: Arc<CubicConfig>, now: Instant, current_mtu: u16) -> Self {
        drop(config);
        Self(OnePath::new(now, current_mtu))
    }
}

impl Bbr {
    /// A controller for a new path.
    pub fn new(config: Arc<BbrConfig>, current_mtu: u16) -> Self {
        drop(config);
        Self(OnePath::new(
            tokio::time::Instant::now().into_std(),
            current_mtu,
        ))
    }
}

impl NewRenoConfig {
    /// No effect: a loss halves the window.
    pub fn loss_reduction_factor(&mut self, value: f32) -> &mut Self {
        let _ = value;
        self
    }
}

/// The state of all paths of a connection at one moment. The state does not change with events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    window: u64,
    metrics: ControllerMetrics,
}

impl Snapshot {
    pub(crate) fn of<'a>(paths: impl Iterator<Item = &'a PathStats>) -> Self {
        let mut all = Self::default();
        for path in paths {
            all.window += path.window;
            let add = |sum: &mut Option<u64>, value: Option<u64>| {
                if let Some(value) = value {
                    *sum = Some(sum.unwrap_or(0).saturating_add(value));
                }
            };
            add(&mut all.metrics.ssthresh, path.slow_start_threshold);
            let bits = path.pacing_rate.map(|bytes| bytes.saturating_mul(8));
            add(&mut all.metrics.pacing_rate, bits);
        }
        all.metrics.congestion_window = all.window;
        all
    }
}

impl Controller for Snapshot {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.window
    }

    fn metrics(&self) -> ControllerMetrics {
        self.metrics.clone()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL_DATAGRAMS * BASE_DATAGRAM
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
