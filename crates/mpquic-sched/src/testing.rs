//! Paths, queues and controllers for tests.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, Controller, RttSnapshot};
use mpquic_core::sched::{
    Decision, PacketInfo, PathView, QueueView, SchedulerEvent, Sendable, StreamView, UnackedRange,
    View,
};
use mpquic_core::{Dir, PathId, Side, StreamId};

/// The same instant at each call, so that no result depends on the duration of a test.
pub(crate) fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

/// Largest datagram of all paths, bytes.
pub(crate) const MTU: u16 = 1200;

/// A measured path with a free window of ten datagrams.
pub(crate) fn path(id: u32, rtt_ms: u64) -> PathView {
    let mut path = PathView::new(PathId(id));
    path.rtt = RttSnapshot::new(Duration::from_millis(rtt_ms));
    path.rtt.variance = Duration::ZERO;
    path
}

/// A path without an RTT sample.
pub(crate) fn unmeasured(id: u32) -> PathView {
    PathView::new(PathId(id))
}

/// The path with its window used up.
pub(crate) fn full(mut path: PathView) -> PathView {
    path.in_flight = path.window;
    path.sendable = Sendable::WindowFull;
    path
}

/// A controller: how windows grow in a round trip.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Growth {
    None,
    Additive(u64),
    Double,
}

impl Controller for Growth {
    fn on_path_opened(&mut self, _: PathId, _: Instant, _: u16) {}
    fn on_path_closed(&mut self, _: PathId) {}
    fn on_mtu_update(&mut self, _: PathId, _: u16) {}
    fn on_ack(&mut self, _: PathId, _: &Acked) {}
    fn on_congestion_event(&mut self, _: PathId, _: &CongestionEvent) {}
    fn window(&self, _: PathId) -> u64 {
        0
    }
    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        let window = windows.iter().find(|(id, _)| *id == path).unwrap().1;
        match self {
            Self::None => window,
            Self::Additive(bytes) => window + bytes,
            Self::Double => 2 * window,
        }
    }
    fn name(&self) -> &'static str {
        "growth"
    }
}

/// A megabyte of data to send, and as much flow control credit.
pub(crate) fn queue() -> QueueView {
    let mut queue = QueueView::default();
    queue.unsent = 1 << 20;
    queue.flow_credit = 1 << 20;
    queue.flow_window = 1 << 20;
    queue.send_buffer = 1 << 20;
    queue
}

/// The values that a view borrows from.
pub(crate) struct Scene {
    pub(crate) now: Instant,
    pub(crate) paths: Vec<PathView>,
    pub(crate) queue: QueueView,
    pub(crate) streams: Vec<StreamView>,
    pub(crate) unacked: Vec<UnackedRange>,
    pub(crate) controller: Growth,
    pub(crate) random: u64,
}

impl Scene {
    pub(crate) fn new(paths: Vec<PathView>) -> Self {
        Self {
            now: start(),
            paths,
            queue: queue(),
            streams: Vec::new(),
            unacked: Vec::new(),
            controller: Growth::None,
            random: 0,
        }
    }

    /// Two paths with opposite merits: 10 Mbit/s at 5 ms and 40 Mbit/s at 25 ms, one way.
    pub(crate) fn near_and_fast() -> Self {
        let mut scene = Self::new(vec![path(0, 10), path(1, 50)]);
        scene.paths[0].delivery_rate = Some(1_250_000);
        scene.paths[1].delivery_rate = Some(5_000_000);
        scene
    }

    pub(crate) fn view(&self) -> View<'_> {
        let view = View::new(self.now, &self.paths, &self.controller);
        let mut view = view.with_unacked(&self.unacked);
        view.queue = self.queue;
        view.streams = &self.streams;
        view.random = self.random;
        view
    }
}

pub(crate) fn stream_id(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

/// A stream with `unsent` written bytes, before the first byte is sent, and with a weight of HTTP/2.
pub(crate) fn stream(index: u64, weight: i32, unsent: u64) -> StreamView {
    let mut stream = StreamView::new(stream_id(index), 0..unsent);
    stream.priority = weight - 16;
    stream
}

/// A packet as reported to schedulers.
pub(crate) fn packet(path: PathId, tag: u64) -> PacketInfo {
    let mut packet = PacketInfo::new(path, 0, 1200, start());
    packet.tag = tag;
    packet
}

/// The event that a packet left.
pub(crate) fn sent(path: PathId, bytes: u64, tag: u64) -> SchedulerEvent {
    let mut packet = packet(path, tag);
    packet.bytes = bytes;
    SchedulerEvent::Sent(packet)
}

/// The path of a decision to send, and the number of bytes that the decision asks for.
pub(crate) fn sends(decision: &Decision) -> Option<(PathId, u64)> {
    match decision {
        Decision::Send {
            path, max_bytes, ..
        } => Some((*path, *max_bytes)),
        Decision::Duplicate { path, .. } | Decision::Reinject { path, .. } => Some((*path, 0)),
        _ => None,
    }
}

/// The path of a decision to send.
pub(crate) fn chosen(decision: &Decision) -> Option<u32> {
    sends(decision).map(|(path, _)| path.0)
}

/// Bytes of the first stream that left on a path `age` milliseconds ago.
pub(crate) fn unacked(
    scene: &Scene,
    path: u32,
    offsets: std::ops::Range<u64>,
    age: u64,
) -> UnackedRange {
    let sent_at = scene.now - Duration::from_millis(age);
    UnackedRange::new(stream_id(0), offsets, PathId(path), sent_at)
}
