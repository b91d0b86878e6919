//! The state that a scheduler sees.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use quinn_proto::StreamId;

use crate::congestion::{Controller, RttSnapshot};
use crate::ids::{PathId, PathStatus};

/// Whether and when a path could take a full datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sendable {
    /// Now.
    Now,
    /// The pacer opens at this time.
    At(Instant),
    /// The congestion window is full.
    WindowFull,
    /// Its address is not validated, or the anti-amplification limit (RFC 9000 section 8.1) leaves
    /// no room for a full datagram. A suspect path is never `Unusable` for being suspect: see
    /// [`PathView::usable`].
    Unusable,
}

/// One path as a scheduler sees it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PathView {
    /// The path.
    pub id: PathId,
    /// The status that counts for our sending: backup if either side says so.
    pub status: PathStatus,
    /// Whether new data may go here, now or later. A suspect path is usable only while every path
    /// is suspect, and a backup path only while no available one could be used in its place.
    pub usable: bool,
    /// A probe timeout passed and nothing was heard since, or the driver said that the path's
    /// interface is down.
    pub suspect: bool,
    /// Whether it can send now.
    pub sendable: Sendable,
    /// RTT values; check `rtt.samples` before trusting them.
    pub rtt: RttSnapshot,
    /// How long acknowledgements take to come back, if another path carries them: half of that
    /// path's smoothed RTT. The rest of `rtt` is the way there. `None` if they come on the path
    /// itself.
    pub return_delay: Option<Duration>,
    /// Congestion window, bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Slow start threshold, bytes.
    pub slow_start_threshold: Option<u64>,
    /// True while recovering from a loss.
    pub in_recovery: bool,
    /// Largest datagram, bytes.
    pub mtu: u16,
    /// Packets sent, over the path's life.
    pub packets_sent: u64,
    /// Bytes sent, over the path's life.
    pub bytes_sent: u64,
    /// Bytes acknowledged, over the path's life.
    pub bytes_acked: u64,
    /// Bytes declared lost, over the path's life.
    pub bytes_lost: u64,
    /// Share of packets lost recently, 0 to 1: (lost + 1/2) / (resolved + 1) over the last 1000.
    pub loss_rate: f64,
    /// Delivery rate, bytes per second: the largest sample of the last ten round trips.
    pub delivery_rate: Option<u64>,
    /// Bytes waiting in the local socket or interface queue, for schedulers that want this number
    /// ([`Needs::local_queue`](super::Needs::local_queue)): the driver's report ([`LocalQueue`])
    /// and later sent bytes. `None` without a report.
    pub local_queue: Option<u64>,
    /// Drain rate of that queue, bytes per second, if known.
    pub local_drain_rate: Option<u64>,
    /// The rate the congestion controller paces at, bytes per second; `None` if it limits only by
    /// its window.
    pub pacing_rate: Option<u64>,
}

impl PathView {
    /// A fresh path, for tests of schedulers: available, usable, free to send datagrams of 1200
    /// bytes in a window of ten, with nothing sent yet and no RTT sample
    /// ([`RttSnapshot::default`]).
    pub fn new(id: PathId) -> Self {
        Self {
            id,
            status: PathStatus::Available,
            usable: true,
            suspect: false,
            sendable: Sendable::Now,
            rtt: RttSnapshot::default(),
            return_delay: None,
            window: 12_000,
            in_flight: 0,
            slow_start_threshold: None,
            in_recovery: false,
            mtu: 1200,
            packets_sent: 0,
            bytes_sent: 0,
            bytes_acked: 0,
            bytes_lost: 0,
            loss_rate: 0.0,
            delivery_rate: None,
            local_queue: None,
            local_drain_rate: None,
            pacing_rate: None,
        }
    }

    /// True if a full datagram could leave now.
    pub fn can_send(&self) -> bool {
        self.usable && self.sendable == Sendable::Now
    }

    /// Window not yet in flight, bytes.
    pub fn available_window(&self) -> u64 {
        self.window.saturating_sub(self.in_flight)
    }
}

/// The socket or interface queue into which a path sends, as reported by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LocalQueue {
    /// Bytes waiting.
    pub bytes: u64,
    /// How fast they leave, bytes per second, if known.
    pub drain_rate: Option<u64>,
}

impl LocalQueue {
    /// A queue of `bytes` that drains at `drain_rate` bytes per second; `None` for an unknown rate.
    pub fn new(bytes: u64, drain_rate: Option<u64>) -> Self {
        Self { bytes, drain_rate }
    }
}

/// A stream with data to send.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StreamView {
    /// The stream.
    pub id: StreamId,
    /// Larger is more urgent.
    pub priority: i32,
    /// Takes turns with others that are equally urgent; else it goes in order, and stands here
    /// behind those before it.
    pub incremental: bool,
    /// Total size, after the application has finished the stream or announced its size. An
    /// announced size is never below the written bytes, and may be wrong.
    pub size: Option<u64>,
    /// Bytes written and not yet sent for the first time.
    pub unsent: u64,
    /// Offset of the first byte never sent.
    pub offset: u64,
    /// Offset after the last written byte. Bytes in between may have been sent already, after a
    /// decision with an offset.
    pub end: u64,
    /// The application has finished the stream.
    pub finished: bool,
}

impl StreamView {
    /// A stream of priority 0 that takes turns, whose bytes of this range wait to be sent for the
    /// first time, and which is not finished.
    pub fn new(id: StreamId, unsent: Range<u64>) -> Self {
        Self {
            id,
            priority: 0,
            incremental: true,
            size: None,
            unsent: unsent.end.saturating_sub(unsent.start),
            offset: unsent.start,
            end: unsent.end,
            finished: false,
        }
    }

    /// Bytes never sent: up to the size, or up to the last written byte.
    pub fn left(&self) -> u64 {
        let unwritten = self.size.map_or(0, |size| size.saturating_sub(self.end));
        self.unsent.saturating_add(unwritten)
    }
}

/// Bytes sent and not yet acknowledged, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnackedRange {
    /// The stream.
    pub stream: StreamId,
    /// Offsets within it.
    pub offsets: Range<u64>,
    /// The path that carries it.
    pub path: PathId,
    /// When it was sent.
    pub sent_at: Instant,
    /// A copy is in flight on another path, because this path is suspect or was abandoned.
    pub reinjected: bool,
    /// The tag of the decision that sent them.
    pub tag: u64,
}

impl UnackedRange {
    /// Bytes of a stream that left on a path once, by a decision with the tag 0.
    pub fn new(stream: StreamId, offsets: Range<u64>, path: PathId, sent_at: Instant) -> Self {
        Self {
            stream,
            offsets,
            path,
            sent_at,
            reinjected: false,
            tag: 0,
        }
    }
}

/// Collects unacknowledged ranges when asked for the first time.
pub(crate) trait Ranges: fmt::Debug {
    fn ranges(&self) -> &[UnackedRange];
    fn find(
        &self,
        path: PathId,
        is_wanted: &mut dyn FnMut(&UnackedRange) -> bool,
    ) -> Option<UnackedRange>;
}

/// Where [`View::unacked`] comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnackedView<'a> {
    Known(&'a [UnackedRange]),
    Lazy(&'a dyn Ranges),
}

impl Default for UnackedView<'_> {
    fn default() -> Self {
        Self::Known(&[])
    }
}

/// The queue of data for any path, and the connection's credit. Data bound to a path is not
/// counted.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct QueueView {
    /// Stream bytes buffered and never sent.
    pub unsent: u64,
    /// Stream bytes declared lost (or taken from a suspect path) that wait to be sent again.
    pub retransmit: u64,
    /// Bytes of DATAGRAMs that wait.
    pub datagrams: u64,
    /// Anything but stream data waits to be sent: control frames, datagrams, handshake data.
    pub control: bool,
    /// Flow control allows nothing new to be sent, or nothing new waits. Only schedulers with
    /// [`Needs::unacked`](super::Needs::unacked) are asked then: they may send unacknowledged bytes
    /// again, or nothing.
    pub idle: bool,
    /// Connection flow control credit not yet used, bytes.
    pub flow_credit: u64,
    /// Peer's MAX_DATA minus the bytes acknowledged in order, as far as the sender can tell.
    pub flow_window: u64,
    /// Send buffer limit of the connection, bytes.
    pub send_buffer: u64,
    /// The application, not a window, limits sending.
    pub app_limited: bool,
}

/// Everything a scheduler may look at.
///
/// The core makes it. To test a scheduler without a connection, make one yourself:
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use mpquic_core::PathId;
/// use mpquic_core::congestion::RttSnapshot;
/// use mpquic_core::sched::{Decision, PathView, Scheduler as _, Sendable, View};
///
/// // A near path whose window is full, and a far one with room.
/// let mut near = PathView::new(PathId(0));
/// near.rtt = RttSnapshot::new(Duration::from_millis(10));
/// near.in_flight = near.window;
/// near.sendable = Sendable::WindowFull;
/// let mut far = PathView::new(PathId(1));
/// far.rtt = RttSnapshot::new(Duration::from_millis(80));
///
/// let paths = [near, far];
/// let controller = mpquic_cc::default().build();
/// let mut view = View::new(Instant::now(), &paths, &*controller);
/// view.queue.unsent = 1_000_000;
///
/// let mut lowest_rtt_first = mpquic_sched::by_name("lrf")?.build();
/// let decision = lowest_rtt_first.select(&view);
/// assert!(matches!(decision, Decision::Send { path: PathId(1), .. }));
/// # Ok::<(), mpquic_sched::UnknownScheduler>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct View<'a> {
    /// The time of the decision.
    pub now: Instant,
    /// Every validated path that is not closing, sorted by ID.
    pub paths: &'a [PathView],
    /// The data that waits to be sent.
    pub queue: QueueView,
    /// Streams with data, most urgent first, if [`Needs::streams`](super::Needs::streams).
    pub streams: &'a [StreamView],
    /// See [`Self::unacked`].
    pub(crate) unacked: UnackedView<'a>,
    /// The congestion controller, for [`Controller::window_after_round`].
    pub controller: &'a dyn Controller,
    /// A random number, different for each call, from the connection's seed.
    pub random: u64,
}

impl<'a> View<'a> {
    /// A view of these paths (sorted by ID) with an empty queue; `random` is 0.
    pub fn new(now: Instant, paths: &'a [PathView], controller: &'a dyn Controller) -> Self {
        Self {
            now,
            paths,
            queue: QueueView::default(),
            streams: &[],
            unacked: UnackedView::default(),
            controller,
            random: 0,
        }
    }

    /// The view with these unacknowledged ranges, oldest first.
    #[must_use]
    pub fn with_unacked(mut self, ranges: &'a [UnackedRange]) -> Self {
        self.unacked = UnackedView::Known(ranges);
        self
    }

    /// Oldest unacknowledged ranges, for [`Needs::unacked`](super::Needs::unacked); about 64 per
    /// path at most. The first call in a decision collects the ranges; without a call, they cost
    /// nothing.
    pub fn unacked(&self) -> &'a [UnackedRange] {
        match self.unacked {
            UnackedView::Known(ranges) => ranges,
            UnackedView::Lazy(source) => source.ranges(),
        }
    }

    /// True if unacknowledged stream data is in flight.
    pub(crate) fn has_unacked(&self) -> bool {
        let mut paths = self.paths.iter();
        paths.any(|path| self.find_unacked(path.id, |_| true).is_some())
    }

    /// The oldest unacknowledged range of a path for which `is_wanted` is true. The search ends at
    /// this range, and is much cheaper than [`Self::unacked`].
    pub fn find_unacked(
        &self,
        path: PathId,
        mut is_wanted: impl FnMut(&UnackedRange) -> bool,
    ) -> Option<UnackedRange> {
        match self.unacked {
            UnackedView::Known(ranges) => {
                let mut of_path = ranges.iter().filter(|range| range.path == path);
                of_path.find(|range| is_wanted(range)).cloned()
            }
            UnackedView::Lazy(source) => source.find(path, &mut is_wanted),
        }
    }

    /// The path with this ID in the view.
    pub fn path(&self, id: PathId) -> Option<&'a PathView> {
        self.paths
            .binary_search_by_key(&id, |path| path.id)
            .ok()
            .map(|index| &self.paths[index])
    }

    /// Paths that can send a full datagram now.
    pub fn sendable(&self) -> impl Iterator<Item = &'a PathView> + '_ {
        self.paths.iter().filter(|path| path.can_send())
    }

    /// Paths that may carry data, now or later.
    pub fn usable(&self) -> impl Iterator<Item = &'a PathView> + '_ {
        self.paths.iter().filter(|path| path.usable)
    }
}
