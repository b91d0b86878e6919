//! The [`Controller`] trait, its inputs and its factories.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::EcnCodepoint;

use crate::ids::PathId;
use crate::named::Named;

/// RTT values of a path at the time of an event (RFC 9002 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RttSnapshot {
    /// The newest sample.
    pub latest: Duration,
    /// The smoothed RTT; the initial RTT before the first sample.
    pub smoothed: Duration,
    /// The variation.
    pub variance: Duration,
    /// The smallest sample since the path started or persistent congestion was found.
    pub min: Duration,
    /// How many samples were taken; 0 means that the values above are assumptions.
    pub samples: u64,
}

impl RttSnapshot {
    /// The values after one sample (RFC 9002 section 5.3).
    pub fn new(sample: Duration) -> Self {
        Self {
            latest: sample,
            smoothed: sample,
            variance: sample / 2,
            min: sample,
            samples: 1,
        }
    }
}

impl Default for RttSnapshot {
    /// The values before the first sample: 333 ms are assumed (RFC 9002 section 6.2.2).
    fn default() -> Self {
        Self {
            samples: 0,
            ..Self::new(Duration::from_millis(333))
        }
    }
}

/// A packet that was sent.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Sent {
    /// When it was sent.
    pub now: Instant,
    /// The packet's number in its space.
    pub packet_number: u64,
    /// Bytes counted in flight (UDP payload).
    pub bytes: u64,
    /// Bytes in flight on the path, this packet included.
    pub in_flight: u64,
}

impl Sent {
    /// A packet of `bytes`; with it, `in_flight` bytes are in flight.
    pub fn new(now: Instant, packet_number: u64, bytes: u64, in_flight: u64) -> Self {
        Self {
            now,
            packet_number,
            bytes,
            in_flight,
        }
    }
}

/// Packets newly acknowledged by one frame, taken together.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Acked {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// When the newest acknowledged packet was sent.
    pub sent_at: Instant,
    /// Largest packet number newly acknowledged.
    pub largest: u64,
    /// Bytes newly acknowledged that had been in flight.
    pub bytes: u64,
    /// Packets newly acknowledged.
    pub packets: u64,
    /// Packets whose ECN-CE marks are reported for the first time: more than `packets` after a lost
    /// acknowledgement. Marks reported without newly acknowledged packets in flight are left out.
    pub marked: u64,
    /// Bytes in flight on the path after the acknowledgement.
    pub in_flight: u64,
    /// True if the window did not limit sending; it must not grow then (RFC 9002 section 7.8).
    pub app_limited: bool,
    /// A delivery rate sample in bytes per second, when there is one.
    pub delivery_rate: Option<DeliveryRate>,
    /// RTT values after the acknowledgement.
    pub rtt: RttSnapshot,
    /// Acknowledgements come on another path than before (RFC 10069 section 5.4): `rtt.min` starts
    /// over with this sample, and RTTs seen earlier no longer tell how long the path is.
    pub rtt_restarted: bool,
}

impl Acked {
    /// An acknowledgement of `bytes` in one unmarked packet, number 0, with the window as the
    /// limit. No bytes remain in flight, and there is no delivery rate sample.
    pub fn new(now: Instant, sent_at: Instant, bytes: u64, rtt: RttSnapshot) -> Self {
        Self {
            now,
            sent_at,
            largest: 0,
            bytes,
            packets: 1,
            marked: 0,
            in_flight: 0,
            app_limited: false,
            delivery_rate: None,
            rtt,
            rtt_restarted: false,
        }
    }
}

/// A delivery rate sample (draft-ietf-ccwg-bbr, "Delivery Rate Samples").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeliveryRate {
    /// Bytes per second over the sample's interval.
    pub bytes_per_second: u64,
    /// True if the sender had no data at some time in the interval.
    pub app_limited: bool,
    /// Bytes delivered on the path when the sampled packet was sent.
    pub prior_delivered: u64,
    /// Bytes delivered on the path now.
    pub delivered: u64,
}

impl DeliveryRate {
    /// A sample of a sender that always had something to send, while the path's delivered bytes
    /// rose from `prior_delivered` to `delivered`.
    pub fn new(bytes_per_second: u64, prior_delivered: u64, delivered: u64) -> Self {
        Self {
            bytes_per_second,
            app_limited: false,
            prior_delivered,
            delivered,
        }
    }
}

/// The kind of congestion detected on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CongestionKind {
    /// Packets were declared lost.
    Loss,
    /// The path's ECN-CE count rose.
    Ecn,
    /// Persistent congestion (RFC 9002 section 7.6).
    Persistent,
    /// An earlier loss event was spurious: all its packets were acknowledged after all.
    Spurious,
}

/// A congestion event on one path. The core reports every batch of losses. With `sent_at`, a
/// controller can start at most one recovery period per round trip (RFC 9002 section 7.3.2).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CongestionEvent {
    /// The kind of event.
    pub kind: CongestionKind,
    /// When it was detected.
    pub now: Instant,
    /// When the newest affected packet was sent.
    pub sent_at: Instant,
    /// Bytes lost (0 for ECN).
    pub lost_bytes: u64,
    /// Bytes in flight on the path after removing the lost packets.
    pub in_flight: u64,
    /// Largest packet number affected.
    pub largest_lost: u64,
}

impl CongestionEvent {
    /// An event that concerns packet number 0, with no bytes lost and none left in flight.
    pub fn new(kind: CongestionKind, now: Instant, sent_at: Instant) -> Self {
        Self {
            kind,
            now,
            sent_at,
            lost_bytes: 0,
            in_flight: 0,
            largest_lost: 0,
        }
    }
}

/// Larger windows are treated as this, bytes.
pub const MAX_WINDOW: u64 = 1 << 32;

/// [`Controller::acks_per_window`] of a controller that does not say otherwise.
const ACKS_PER_WINDOW: u64 = 16;

/// The capacity of a path at some time (RFC 9959 section 3, `saved_cwnd` and `saved_rtt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedCapacity {
    /// Bytes that it delivered in a round trip without queues.
    pub window: u64,
    /// That round trip, acknowledgements on the same path.
    pub rtt: Duration,
}

/// How far a path is with the use of what is known of an earlier connection (Careful Resume, RFC
/// 9959 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResumePhase {
    /// The path starts like any path, and checks whether it matches the remembered one.
    Reconnaissance,
    /// For a round trip, the path sends half of the remembered window.
    Unvalidated,
    /// The path waits for the acknowledgements of these bytes.
    Validating,
    /// The remembered window was too large: the path sends half of the arrived bytes.
    SafeRetreat,
    /// The path does not resume a capacity, or no longer does.
    Normal,
}

/// Congestion control for all paths of one connection.
///
/// All sizes are bytes of UDP payload. Methods are never called for a path before
/// `on_path_opened` or after `on_path_closed`.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use mpquic_core::congestion::{
///     Acked, CongestionEvent, CongestionKind, Controller, RttSnapshot, factory,
/// };
/// use mpquic_core::{PathId, PathMap};
///
/// /// Adds what is acknowledged to the window, halves it on a loss, at most once a round trip.
/// #[derive(Debug, Default)]
/// struct Halving {
///     paths: PathMap<HalvingPath>,
/// }
///
/// #[derive(Debug)]
/// struct HalvingPath {
///     window: u64,
///     halved_at: Option<Instant>,
/// }
///
/// impl Controller for Halving {
///     fn on_path_opened(&mut self, path: PathId, _: Instant, mtu: u16) {
///         let window = 10 * u64::from(mtu);
///         self.paths.insert(path, HalvingPath { window, halved_at: None });
///     }
///
///     fn on_path_closed(&mut self, path: PathId) {
///         self.paths.remove(path);
///     }
///
///     fn on_mtu_update(&mut self, _: PathId, _: u16) {}
///
///     fn on_ack(&mut self, path: PathId, ack: &Acked) {
///         if let Some(path) = self.paths.get_mut(path).filter(|_| !ack.app_limited) {
///             path.window += ack.bytes;
///         }
///     }
///
///     fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
///         let Some(path) = self.paths.get_mut(path) else { return };
///         // Packets sent before the last cut tell nothing new.
///         let is_new = path.halved_at.is_none_or(|at| event.sent_at > at);
///         if is_new && event.kind != CongestionKind::Spurious {
///             path.window /= 2;
///             path.halved_at = Some(event.now);
///         }
///     }
///
///     fn window(&self, path: PathId) -> u64 {
///         self.paths.get(path).map_or(0, |path| path.window)
///     }
///
///     fn name(&self) -> &'static str {
///         "halving"
///     }
/// }
///
/// // What `TransportOptions::controller` takes: each connection gets a controller of its own.
/// let factory = factory("halving", || Box::new(Halving::default()));
///
/// // A controller is tested by telling it what happened.
/// let mut controller = factory.build();
/// let (path, rtt, start) = (PathId(0), Duration::from_millis(20), Instant::now());
/// controller.on_path_opened(path, start, 1200);
/// controller.on_ack(path, &Acked::new(start + rtt, start, 2400, RttSnapshot::new(rtt)));
/// assert_eq!(controller.window(path), 14_400);
/// let loss = CongestionEvent::new(CongestionKind::Loss, start + rtt, start);
/// controller.on_congestion_event(path, &loss);
/// controller.on_congestion_event(path, &loss);
/// assert_eq!(controller.window(path), 7_200);
/// ```
///
/// # What the core makes of wrong answers
///
/// A wrong controller costs speed, never correctness. Whatever it answers, a path may have two
/// datagrams in flight (RFC 9002 section 7.2) and not more than [`MAX_WINDOW`], and is paced at no
/// less than two datagrams in a round trip or 100 ms, whichever is longer. Probe timeouts,
/// acknowledgements and path validation wait for no window. After a panic a controller is not asked
/// again, and each path keeps a window of two datagrams, unless
/// [`TransportOptions::contain_panics`](crate::config::TransportOptions::contain_panics) is off.
pub trait Controller: fmt::Debug + Send {
    /// A path starts (or starts over after its address changed, RFC 9000 section 9.4).
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16);
    /// The path is gone.
    fn on_path_closed(&mut self, path: PathId);
    /// A recent capacity between the same addresses; called at most once after `on_path_opened`,
    /// before the first acknowledgement. A controller with RFC 9959 may start with this capacity;
    /// the default ignores it.
    fn resume(&mut self, path: PathId, now: Instant, saved: SavedCapacity) {
        let _ = (path, now, saved);
    }
    /// The path's progress with the saved capacity.
    fn resume_phase(&self, path: PathId) -> ResumePhase {
        let _ = path;
        ResumePhase::Normal
    }
    /// The path's maximum datagram size changed.
    fn on_mtu_update(&mut self, path: PathId, mtu: u16);
    /// A packet that counts as in flight was sent.
    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        let _ = (path, sent);
    }
    /// Packets were acknowledged.
    fn on_ack(&mut self, path: PathId, ack: &Acked);
    /// Loss, ECN-CE, persistent congestion, or a loss that proved spurious.
    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent);
    /// Bytes the path may have in flight; never below two datagrams.
    fn window(&self, path: PathId) -> u64;
    /// The slow start threshold, for an algorithm with a threshold that was set.
    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        let _ = path;
        None
    }
    /// True while the path recovers from a loss event.
    fn in_recovery(&self, path: PathId) -> bool {
        let _ = path;
        false
    }
    /// Bytes per second to pace at; `None` lets the core pace at 1.25 windows per RTT.
    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        let _ = path;
        None
    }
    /// Bytes that may leave at [`Self::pacing_rate`], for a rate that holds for these bytes alone:
    /// after them, the core asks for the rate again. Time without sending does not let more of them
    /// leave in a burst. `None` for the path's rate.
    fn burst(&self, path: PathId) -> Option<u64> {
        let _ = path;
        None
    }
    /// Bytes that may leave together, for one timer of the driver (draft-ietf-ccwg-bbr-06 section
    /// 5.6.3, the send quantum): a longer batch costs less, and lengthens queues. The core sends at
    /// most 64 datagrams together. `None` for the bytes of a millisecond.
    fn send_quantum(&self, path: PathId) -> Option<u64> {
        let _ = path;
        None
    }
    /// The fewest acknowledgements that the algorithm needs in each window: the peer is asked for
    /// more packets to an acknowledgement only where a window has room for these. An algorithm whose
    /// window grows with each acknowledgement needs many acknowledgements.
    fn acks_per_window(&self) -> u64 {
        ACKS_PER_WINDOW
    }
    /// The window of `path` after one loss-free round trip, from these windows of all paths. Pure;
    /// schedulers that plan ahead (ETC, STTF) use it. `windows` is sorted by path.
    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        windows
            .iter()
            .find(|(id, _)| *id == path)
            .map_or(0, |(_, window)| *window)
    }
    /// Bytes of memory in lists that grow with the traffic, for the account of the connection.
    fn memory(&self) -> u64 {
        0
    }
    /// The algorithm's name, for statistics and logs.
    fn name(&self) -> &'static str;
}

/// Makes one controller per connection.
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// A controller with no paths yet.
    fn build(&self) -> Box<dyn Controller>;
    /// How packets are marked where
    /// [`TransportOptions::ecn`](crate::config::TransportOptions::ecn) is on: ECT(0), or ECT(1) if
    /// the controllers are scalable (see [`scalable`]).
    fn ecn_codepoint(&self) -> EcnCodepoint {
        EcnCodepoint::Ect0
    }
}

impl<F> ControllerFactory for Named<F>
where
    F: Fn() -> Box<dyn Controller> + Send + Sync,
{
    fn build(&self) -> Box<dyn Controller> {
        (self.make)()
    }
}

/// Wraps a closure as a [`ControllerFactory`].
pub fn factory<F>(name: &'static str, make: F) -> Arc<dyn ControllerFactory>
where
    F: Fn() -> Box<dyn Controller> + Send + Sync + 'static,
{
    Arc::new(Named { name, make })
}

/// Like [`factory`], for controllers that answer the share of packets with ECN-CE marks
/// ([`Acked::marked`]), as RFC 9331 section 4.3 demands: their packets are marked ECT(1), for which
/// L4S queues (RFC 9332) keep a short line.
pub fn scalable<F>(name: &'static str, make: F) -> Arc<dyn ControllerFactory>
where
    F: Fn() -> Box<dyn Controller> + Send + Sync + 'static,
{
    Arc::new(Scalable(Named { name, make }))
}

struct Scalable<F>(Named<F>);

impl<F> fmt::Debug for Scalable<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<F> ControllerFactory for Scalable<F>
where
    F: Fn() -> Box<dyn Controller> + Send + Sync,
{
    fn build(&self) -> Box<dyn Controller> {
        self.0.build()
    }

    fn ecn_codepoint(&self) -> EcnCodepoint {
        EcnCodepoint::Ect1
    }
}
