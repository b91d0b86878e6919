//! Paths, queues and controllers for tests.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, Controller, RttSnapshot};
use mpquic_core::sched::{
    Decision, PacketInfo, PathView, QueueView, SchedulerEvent, Sendable, StreamView, UnackedRange,
    View,
};
use mpquic_core::{Dir, PathId, PathStatus, Side, StreamId};

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

/// A measured path with a free window of ten datagrams.
pub(crate) fn path(id: u32, rtt_ms: u64) -> PathView {
    let rtt = Duration::from_millis(rtt_ms);
    PathView {
        id: PathId(id),
        status: PathStatus::Available,
        usable: true,
        suspect: false,
        sendable: Sendable::Now,
        rtt: RttSnapshot {
            latest: rtt,
            smoothed: rtt,
            variance: Duration::ZERO,
            min: rtt,
            samples: 1,
        },
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
    }
}

/// The path with its window used up.
pub(crate) fn full(mut path: PathView) -> PathView {
    path.in_flight = path.window;
    path.sendable = Sendable::WindowFull;
    path
}

/// How windows grow in a round trip.
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

/// What a view borrows from.
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
            queue: QueueView {
                unsent: 1 << 20,
                flow_credit: 1 << 20,
                flow_window: 1 << 20,
                send_buffer: 1 << 20,
                ..QueueView::default()
            },
            streams: Vec::new(),
            unacked: Vec::new(),
            controller: Growth::None,
            random: 0,
        }
    }

    pub(crate) fn view(&self) -> View<'_> {
        View {
            now: self.now,
            paths: &self.paths,
            queue: self.queue,
            streams: &self.streams,
            unacked: &self.unacked,
            controller: &self.controller,
            random: self.random,
        }
    }
}

pub(crate) fn stream_id(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

/// A stream with this many bytes written and none sent.
pub(crate) fn stream(index: u64, priority: i32, unsent: u64) -> StreamView {
    StreamView {
        id: stream_id(index),
        priority,
        size: None,
        unsent,
        offset: 0,
        end: unsent,
        finished: false,
    }
}

/// A packet as told to schedulers.
pub(crate) fn packet(path: PathId, tag: u64) -> PacketInfo {
    PacketInfo {
        path,
        packet_number: 0,
        bytes: 1200,
        tag,
        sent_at: start(),
    }
}

/// The news that a packet left.
pub(crate) fn sent(path: PathId, bytes: u64, tag: u64) -> SchedulerEvent {
    let packet = packet(path, tag);
    SchedulerEvent::Sent(PacketInfo { bytes, ..packet })
}

/// The path a decision sends on, if it sends.
pub(crate) fn chosen(decision: &Decision) -> Option<u32> {
    match decision {
        Decision::Send { path, .. }
        | Decision::Duplicate { path, .. }
        | Decision::Reinject { path, .. } => Some(path.0),
        Decision::Wait { .. } | Decision::Blocked => None,
    }
}

/// Bytes of the first stream that left on a path this many milliseconds ago.
pub(crate) fn unacked(
    scene: &Scene,
    path: u32,
    offsets: std::ops::Range<u64>,
    age: u64,
) -> UnackedRange {
    UnackedRange {
        stream: stream_id(0),
        offsets,
        path: PathId(path),
        sent_at: scene.now - Duration::from_millis(age),
        reinjected: false,
        tag: 0,
    }
}
