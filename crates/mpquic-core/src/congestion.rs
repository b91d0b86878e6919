//! The [`Controller`] trait: how much each path may have in flight. Algorithms live in `mpquic-cc`.
//!
//! One controller object serves a whole connection and its methods take a [`PathId`], so coupled
//! algorithms (OLIA, LIA, BALIA) see all paths without sharing state behind locks.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ids::PathId;
use crate::named::Named;

/// RTT values of a path at the time of an event (RFC 9002 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A packet that left.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// When.
    pub now: Instant,
    /// The packet's number in its space.
    pub packet_number: u64,
    /// Bytes counted in flight (UDP payload).
    pub bytes: u64,
    /// Bytes in flight on the path, this packet included.
    pub in_flight: u64,
}

/// Packets newly acknowledged by one frame, taken together.
#[derive(Debug, Clone, Copy)]
pub struct Acked {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// When the newest acknowledged packet had left.
    pub sent_at: Instant,
    /// Largest packet number newly acknowledged.
    pub largest: u64,
    /// Bytes newly acknowledged that had been in flight.
    pub bytes: u64,
    /// Bytes in flight on the path after the acknowledgement.
    pub in_flight: u64,
    /// True if the window was not what limited sending: no window growth (RFC 9002 section 7.8).
    pub app_limited: bool,
    /// A delivery rate sample in bytes per second, when there is one.
    pub delivery_rate: Option<DeliveryRate>,
    /// RTT values after the acknowledgement.
    pub rtt: RttSnapshot,
}

/// A delivery rate sample (draft-ietf-ccwg-bbr, "Delivery Rate Samples").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryRate {
    /// Bytes per second over the sample's interval.
    pub bytes_per_second: u64,
    /// True if the sender had nothing to send at some time in the interval.
    pub app_limited: bool,
    /// Bytes delivered on the path when the sampled packet was sent.
    pub prior_delivered: u64,
    /// Bytes delivered on the path now.
    pub delivered: u64,
}

/// Why a path is told to slow down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionKind {
    /// Packets were declared lost.
    Loss,
    /// The path's ECN-CE count rose.
    Ecn,
    /// Persistent congestion (RFC 9002 section 7.6).
    Persistent,
    /// An earlier loss event was wrong: all its packets were acknowledged after all.
    Spurious,
}

/// A congestion event on one path. The core reports every batch of losses; starting at most one
/// recovery period per round trip (RFC 9002 section 7.3.2) is decided by `sent_at`.
#[derive(Debug, Clone, Copy)]
pub struct CongestionEvent {
    /// What happened.
    pub kind: CongestionKind,
    /// When it was noticed.
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

/// The largest window that counts, bytes.
pub const MAX_WINDOW: u64 = 1 << 32;

/// Congestion control for all paths of one connection.
///
/// All sizes are bytes of UDP payload. Methods are never called for a path before
/// `on_path_opened` or after `on_path_closed`.
///
/// A wrong controller costs speed, never correctness. Whatever it answers, a path may have two
/// datagrams in flight (RFC 9002 section 7.2) and not more than [`MAX_WINDOW`], and is paced at no
/// less than two datagrams in a round trip or 100 ms, whichever is longer. Probe timeouts,
/// acknowledgements and path validation wait for no window. After a panic a controller is not asked
/// again, and each path keeps a window of two datagrams, unless
/// [`TransportConfig::contain_panics`](crate::config::TransportConfig::contain_panics) is off.
pub trait Controller: fmt::Debug + Send {
    /// A path starts (or starts over after its address changed, RFC 9000 section 9.4).
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16);
    /// The path is gone.
    fn on_path_closed(&mut self, path: PathId);
    /// The path's maximum datagram size changed.
    fn on_mtu_update(&mut self, path: PathId, mtu: u16);
    /// A packet that counts as in flight left.
    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        let _ = (path, sent);
    }
    /// Packets were acknowledged.
    fn on_ack(&mut self, path: PathId, ack: &Acked);
    /// Loss, ECN-CE, persistent congestion, or the news that a loss was spurious.
    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent);
    /// Bytes the path may have in flight; never below two datagrams.
    fn window(&self, path: PathId) -> u64;
    /// The slow start threshold, if the algorithm has one and it has been set.
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
    /// The window of `path` after one loss-free round trip, if all paths had these windows now.
    /// Pure; schedulers that plan ahead (ETC, STTF) use it. `windows` is sorted by path.
    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        windows
            .iter()
            .find(|(id, _)| *id == path)
            .map_or(0, |(_, window)| *window)
    }
    /// The algorithm's name, for statistics and logs.
    fn name(&self) -> &'static str;
}

/// Makes one controller per connection.
pub trait ControllerFactory: fmt::Debug + Send + Sync {
    /// A controller with no paths yet.
    fn build(&self) -> Box<dyn Controller>;
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
