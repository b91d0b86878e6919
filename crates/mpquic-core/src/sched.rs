//! The [`Scheduler`] trait: which path carries which data. Algorithms live in `mpquic-sched`.
//!
//! A scheduler sees an immutable [`View`] and returns a [`Decision`]. The core then sends at most
//! what the decision allows and never more than window, pacing, validation and the
//! anti-amplification limit permit, so a wrong scheduler cannot break the protocol.
//! Acknowledgements, path validation and probes do not pass through the scheduler.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::StreamId;

use crate::congestion::{Controller, RttSnapshot};
use crate::ids::{PathId, PathStatus};
use crate::named::Named;

/// Decides on which path the next bytes travel. One object per connection.
///
/// A wrong scheduler costs speed, never correctness. The core sees to it:
///
/// - A decision for a path that cannot send is replaced: the fastest path that can send takes one
///   datagram of what is most urgent. Window, pacer and the anti-amplification limit bound every
///   decision, whatever its budget.
/// - Waiting ends, see [`Decision::Wait`] and [`Decision::Blocked`].
/// - Bytes sent again by decision are at most 16 times those sent first and 64 KiB; after that,
///   repetitions are replaced by what is most urgent, and copies are not made. At most 256 copies
///   wait for a path.
/// - While control frames or lost bytes wait, every 65th decision in a row for something else is
///   replaced by what is most urgent.
/// - Timers and waits shorter than a millisecond take one.
/// - A scheduler that panics is not asked again: the fastest path that can send carries everything
///   from then on, unless [`TransportConfig::contain_panics`] is off or panics abort the process.
///
/// [`TransportConfig::contain_panics`]: crate::config::TransportConfig::contain_panics
pub trait Scheduler: fmt::Debug + Send {
    /// What to do next. Called whenever there is movable data and some path could send, and again
    /// until it answers [`Decision::Wait`] or [`Decision::Blocked`] or the data runs out.
    fn select(&mut self, view: &View<'_>) -> Decision;

    /// Something happened. `view` is the state after the event.
    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        let _ = (event, view);
    }

    /// Which optional parts of the view this scheduler reads; the others stay empty.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// When to be called with [`SchedulerEvent::Timer`].
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The algorithm's name, for statistics and logs.
    fn name(&self) -> &'static str;
}

/// Optional parts of a [`View`] and kinds of events, filled or delivered only on request because
/// they cost time per packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Fill [`View::streams`].
    pub streams: bool,
    /// Fill [`View::unacked`], and ask even when nothing new can be sent ([`QueueView::idle`]).
    pub unacked: bool,
    /// Deliver [`SchedulerEvent::Sent`], [`SchedulerEvent::Acked`] and [`SchedulerEvent::Lost`].
    pub packet_events: bool,
    /// Let the driver say what waits in local queues ([`PathView::local_queue`]).
    pub local_queue: bool,
}

/// Whether and when a path could take a full datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Bytes waiting in the local socket or interface queue, if known and wanted
    /// ([`Needs::local_queue`]): what the driver said ([`LocalQueue`]) and what was sent since.
    pub local_queue: Option<u64>,
    /// Drain rate of that queue, bytes per second, if known.
    pub local_drain_rate: Option<u64>,
}

/// What a driver knows of the socket or interface queue that a path sends into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalQueue {
    /// Bytes waiting.
    pub bytes: u64,
    /// How fast they leave, bytes per second, if known.
    pub drain_rate: Option<u64>,
}

impl PathView {
    /// True if a full datagram could leave now.
    pub fn can_send(&self) -> bool {
        self.usable && self.sendable == Sendable::Now
    }

    /// Window not yet in flight, bytes.
    pub fn available_window(&self) -> u64 {
        self.window.saturating_sub(self.in_flight)
    }
}

/// A stream with data to send.
#[derive(Debug, Clone, Copy)]
pub struct StreamView {
    /// The stream.
    pub id: StreamId,
    /// Larger is more urgent.
    pub priority: i32,
    /// Total size, once the application has finished the stream.
    pub size: Option<u64>,
    /// Bytes written and not yet sent for the first time.
    pub unsent: u64,
    /// Offset of the first byte never sent.
    pub offset: u64,
    /// Offset after the last byte written so far. Bytes in between may have been sent already if
    /// a decision named an offset.
    pub end: u64,
    /// The application has finished the stream.
    pub finished: bool,
}

/// Bytes sent and not yet acknowledged, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnackedRange {
    /// The stream.
    pub stream: StreamId,
    /// Offsets within it.
    pub offsets: Range<u64>,
    /// The path that carries it.
    pub path: PathId,
    /// When it was sent.
    pub sent_at: Instant,
    /// A copy is already under way on another path because this one is suspect or was abandoned.
    pub reinjected: bool,
    /// The tag of the decision that sent them.
    pub tag: u64,
}

/// The queue of movable data and the connection's credit.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueView {
    /// Stream bytes buffered and never sent.
    pub unsent: u64,
    /// Stream bytes declared lost (or taken from a suspect path) that wait to be sent again.
    pub retransmit: u64,
    /// Anything but stream data waits to be sent: control frames, datagrams, handshake data.
    pub control: bool,
    /// Flow control allows nothing new to be sent, or nothing new waits. Only schedulers with
    /// [`Needs::unacked`] are asked then: they may send unacknowledged bytes again, or nothing.
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
pub struct View<'a> {
    /// The time of the decision.
    pub now: Instant,
    /// Every validated path that is not closing, sorted by ID.
    pub paths: &'a [PathView],
    /// What waits to be sent.
    pub queue: QueueView,
    /// Streams with data, most urgent first, if [`Needs::streams`].
    pub streams: &'a [StreamView],
    /// Oldest unacknowledged ranges, if [`Needs::unacked`]; about 64 per path at most.
    pub unacked: &'a [UnackedRange],
    /// The congestion controller, for [`Controller::window_after_round`].
    pub controller: &'a dyn Controller,
    /// A random number, different for each call, from the connection's seed.
    pub random: u64,
}

impl<'a> View<'a> {
    /// The path with this ID, if it is in the view.
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

/// Which data a decision means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSelection {
    /// Whatever is most urgent: control frames, retransmissions, then streams by priority.
    Next,
    /// This stream's next bytes.
    Stream(StreamId),
    /// This stream from an offset; bytes that are not buffered or already acknowledged are left out.
    StreamAt {
        /// The stream.
        id: StreamId,
        /// First byte.
        offset: u64,
    },
    /// Bytes already sent once.
    Range {
        /// The stream.
        id: StreamId,
        /// Offsets within it.
        offsets: Range<u64>,
    },
}

/// What a scheduler wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Send on one path.
    Send {
        /// Where.
        path: PathId,
        /// What.
        data: DataSelection,
        /// At most this many bytes of datagrams before asking again; 0 means one datagram.
        max_bytes: u64,
        /// Given back with every event about the packets of this decision.
        tag: u64,
    },
    /// Send one datagram on a path, and the same content on others as their windows allow.
    Duplicate {
        /// Where the original goes.
        path: PathId,
        /// Where copies go.
        copies: PathSet,
        /// What.
        data: DataSelection,
        /// Given back with every event about the packets of this decision.
        tag: u64,
    },
    /// Send unacknowledged bytes again on another path, before they are lost.
    Reinject {
        /// Where.
        path: PathId,
        /// The stream.
        stream: StreamId,
        /// Offsets within it.
        offsets: Range<u64>,
        /// Given back with every event about the packets of this decision.
        tag: u64,
    },
    /// A path could send, but it is better to wait for another one.
    ///
    /// If `on` is usable and has packets in flight, the wait ends at its next acknowledgement or
    /// probe timeout, and at `until` if that is earlier. Otherwise it ends at `until`, and at the
    /// latest one second after the first such wait in a row; without `until` the core ignores the
    /// wait.
    Wait {
        /// The path waited for.
        on: PathId,
        /// Ask again at this time, at the latest.
        until: Option<Instant>,
    },
    /// No path can send. Overridden when nothing is in flight on any usable path.
    Blocked,
}

impl Decision {
    /// Sends whatever is next on `path`, one datagram.
    pub fn send(path: PathId) -> Self {
        Self::Send {
            path,
            data: DataSelection::Next,
            max_bytes: 0,
            tag: 0,
        }
    }

    /// Sends whatever is next on `path`, up to `max_bytes` of datagrams before asking again.
    pub fn send_up_to(path: PathId, max_bytes: u64) -> Self {
        Self::Send {
            path,
            data: DataSelection::Next,
            max_bytes,
            tag: 0,
        }
    }
}

/// A small set of paths.
pub type PathSet = smallvec::SmallVec<[PathId; 8]>;

/// A packet, as told to schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketInfo {
    /// The path that carried it.
    pub path: PathId,
    /// Its number on that path.
    pub packet_number: u64,
    /// Its size, bytes.
    pub bytes: u64,
    /// The tag of the decision that sent it; 0 for packets no decision asked for.
    pub tag: u64,
    /// When it left.
    pub sent_at: Instant,
}

/// What happened since the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulerEvent {
    /// A path was validated and can carry data.
    PathAdded(PathId),
    /// A path was abandoned or died.
    PathRemoved(PathId),
    /// A path's status changed.
    PathStatus(PathId, PathStatus),
    /// A probe timeout passed on the path with nothing heard since.
    PathSuspect(PathId),
    /// A suspect path was heard of again.
    PathRecovered(PathId),
    /// A new RTT sample on the path.
    RttUpdated(PathId),
    /// The path's window was cut.
    Congestion(PathId, crate::congestion::CongestionKind),
    /// A stream on which we may send was opened, by either side.
    StreamOpened(StreamId),
    /// The application finished a stream, or cut it short: its size is known.
    StreamSizeKnown(StreamId, u64),
    /// All of a stream's bytes and its end were acknowledged, or it was reset, or 0-RTT was
    /// rejected and it never existed.
    StreamFinished(StreamId),
    /// Connection flow control blocks sending.
    FlowControlBlocked,
    /// A packet left.
    Sent(PacketInfo),
    /// A packet was acknowledged. The sample is the one of the newest packet of the same frame.
    Acked(PacketInfo, Option<Duration>),
    /// A packet was declared lost.
    Lost(PacketInfo),
    /// The time of [`Scheduler::next_timeout`] has come.
    Timer,
}

/// Makes one scheduler per connection.
pub trait SchedulerFactory: fmt::Debug + Send + Sync {
    /// A scheduler that knows no path yet.
    fn build(&self) -> Box<dyn Scheduler>;
}

impl<F: Fn() -> Box<dyn Scheduler> + Send + Sync> SchedulerFactory for Named<F> {
    fn build(&self) -> Box<dyn Scheduler> {
        (self.make)()
    }
}

/// Wraps a closure as a [`SchedulerFactory`].
pub fn factory<F>(name: &'static str, make: F) -> Arc<dyn SchedulerFactory>
where
    F: Fn() -> Box<dyn Scheduler> + Send + Sync + 'static,
{
    Arc::new(Named { name, make })
}
