//! [`Transfer`]: transfers over paths with fixed windows and round trips, one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use mpquic_core::congestion::{CongestionKind, Controller, RttSnapshot};
use mpquic_core::sched::{
    DataSelection, Decision, Needs, PacketInfo, PathView, QueueView, Scheduler, SchedulerEvent,
    Sendable, StreamView, UnackedRange,
};
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::{Dir, PathId, Side, StreamId};
use mpquic_sched::LowestRttFirst;
use mpquic_sim::SplitMix64;

use super::{Change, Counts, Record, Scene, Step};

const MTU: u16 = 1452;
/// Stream bytes in a full datagram.
const PAYLOAD: u64 = 1392;
/// The core shows schedulers this number of streams, the most urgent ones.
const SHOWN_STREAMS: usize = 64;
/// Rate of each path, bytes per second.
const RATE: u64 = 5_000_000;
/// One packet in this number is lost.
const LOST: u64 = 101;
/// The driver reads the acknowledgements of this time together, then asks for packets.
const BATCH: Duration = Duration::from_millis(1);
/// Part of the bytes in flight that waits in the path's local queue.
const LOCAL_PART: u64 = 8;
const MS: Duration = Duration::from_millis(1);

fn round_trip(path: u32) -> Duration {
    (10 + 30 * path) * MS
}

/// A path whose window is one bandwidth-delay product.
fn path(id: u32) -> PathView {
    let mut path = PathView::new(PathId(id));
    path.rtt = RttSnapshot::new(round_trip(id));
    path.rtt.variance = round_trip(id) / 8;
    path.rtt.samples = 100;
    path.window = RATE * round_trip(id).as_millis() as u64 / 1000;
    path.slow_start_threshold = Some(path.window / 2);
    path.mtu = MTU;
    path.packets_sent = 10_000;
    path.bytes_sent = 10_000 * u64::from(MTU);
    path.bytes_acked = 9_900 * u64::from(MTU);
    path.bytes_lost = 100 * u64::from(MTU);
    path.loss_rate = 1.0 / LOST as f64;
    path.delivery_rate = Some(RATE);
    path.local_queue = Some(0);
    path.local_drain_rate = Some(RATE);
    path
}

/// A controller that knows the paths.
pub(super) fn controller(paths: &[PathView], now: Instant) -> Box<dyn Controller> {
    let mut controller = mpquic_cc::default().build();
    for path in paths {
        controller.on_path_opened(path.id, now, path.mtu);
    }
    controller
}

#[derive(Debug)]
struct Packet {
    info: PacketInfo,
    /// When the packet is acknowledged or lost.
    due: Instant,
    data: Option<(StreamId, Range<u64>)>,
}

/// A stream with data that has not been sent.
#[derive(Debug)]
struct Stream {
    id: StreamId,
    priority: i32,
    size: u64,
    unsent: RangeSet,
}

impl Stream {
    fn unsent(&self) -> u64 {
        self.unsent
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    fn view(&self) -> StreamView {
        let first = self.unsent.min().unwrap_or(self.size);
        let mut view = StreamView::new(self.id, first..self.size);
        view.priority = self.priority;
        view.unsent = self.unsent();
        view.finished = self.id.index().is_multiple_of(2);
        view.size = view.finished.then_some(self.size);
        view
    }
}

/// A sender with a scheduler.
pub(super) struct Transfer {
    scheduler: Box<dyn Scheduler>,
    needs: Needs,
    lowest_rtt_first: LowestRttFirst,
    controller: Box<dyn Controller>,
    scene: Scene,
    /// The most urgent stream first. The scene shows the first of them.
    streams: VecDeque<Stream>,
    /// Bytes of all streams that were never sent.
    unsent: u64,
    /// Bytes of each stream that are not acknowledged.
    missing: BTreeMap<StreamId, RangeSet>,
    lost: VecDeque<(StreamId, Range<u64>)>,
    in_flight: Vec<VecDeque<Packet>>,
    next_stream: u64,
    next_number: u64,
    /// Streams of one transfer.
    streams_at_a_time: u64,
    random: SplitMix64,
    changes: Vec<Change>,
    events: Vec<SchedulerEvent>,
    counts: Counts,
}

impl Transfer {
    pub(super) fn new(scheduler: Box<dyn Scheduler>, paths: u32, streams: u64) -> Self {
        let now = crate::now();
        let paths: Vec<_> = (0..paths).map(path).collect();
        let added = paths.iter().map(|path| SchedulerEvent::PathAdded(path.id));
        Self {
            needs: scheduler.needs(),
            scheduler,
            lowest_rtt_first: LowestRttFirst::default(),
            controller: controller(&paths, now),
            streams: VecDeque::new(),
            unsent: 0,
            missing: BTreeMap::new(),
            lost: VecDeque::new(),
            in_flight: paths.iter().map(|_| VecDeque::new()).collect(),
            next_stream: 0,
            next_number: 0,
            streams_at_a_time: streams,
            random: SplitMix64::new(1),
            changes: Vec::new(),
            events: added.collect(),
            counts: Counts::default(),
            scene: Scene {
                now,
                random: 0,
                queue: QueueView::default(),
                paths,
                streams: Vec::new(),
                unacked: Vec::new(),
            },
        }
    }

    pub(super) fn run(mut self, decisions: usize) -> Record {
        let start = self.scene.clone();
        let mut steps = Vec::with_capacity(decisions);
        let mut turns = 0;
        while steps.len() < decisions {
            turns += 1;
            assert!(turns < 100 * decisions, "{:?} stands still", self.scheduler);
            if self.is_asked() {
                let step = self.ask();
                let decision = step.decision.clone();
                steps.push(step);
                if self.carry_out(&decision) {
                    continue;
                }
                let until = match decision {
                    Decision::Wait { until, .. } => until,
                    _ => None,
                };
                self.pass_time(until);
            } else {
                self.pass_time(None);
            }
        }
        let counts = self.counts;
        Record {
            start,
            steps,
            counts,
        }
    }

    /// Whether the core would ask: data waits or can be repeated, and a path can send.
    fn is_asked(&self) -> bool {
        let has_copies = self.needs.unacked && !self.scene.unacked.is_empty();
        let has_content = self.has_data() || has_copies;
        has_content && self.scene.paths.iter().any(PathView::can_send)
    }

    fn has_data(&self) -> bool {
        !self.streams.is_empty() || !self.lost.is_empty()
    }

    fn ask(&mut self) -> Step {
        self.scene.random = self.random.next();
        self.scene.queue = self.queue();
        let view = self.scene.view(&*self.controller, self.needs);
        for event in &self.events {
            self.scheduler.on_event(event, &view);
        }
        let decision = self.scheduler.select(&view);
        let counts = &mut self.counts;
        counts.decisions += 1;
        counts.own += u64::from(decision != self.lowest_rtt_first.select(&view));
        counts.idle += u64::from(view.queue.idle);
        counts.lost_waiting += u64::from(view.queue.retransmit > 0);
        let is_full = !view.queue.idle && !view.paths[0].can_send();
        counts.fast_full += u64::from(is_full);
        counts.waits += u64::from(!view.queue.idle && matches!(decision, Decision::Wait { .. }));
        Step {
            now: self.scene.now,
            random: self.scene.random,
            queue: self.scene.queue,
            changes: std::mem::take(&mut self.changes),
            events: std::mem::take(&mut self.events),
            decision,
        }
    }

    /// The flow control window is a quarter larger than the windows of all paths together, so that
    /// it can block.
    fn queue(&self) -> QueueView {
        let windows: u64 = self.scene.paths.iter().map(|path| path.window).sum();
        let in_flight: u64 = self.scene.paths.iter().map(|path| path.in_flight).sum();
        let lost = self.lost.iter().map(|(_, range)| range.end - range.start);
        let mut queue = QueueView::default();
        queue.unsent = self.unsent;
        queue.retransmit = lost.sum();
        queue.idle = !self.has_data();
        queue.flow_window = windows + windows / 4;
        queue.flow_credit = queue.flow_window - in_flight;
        queue.send_buffer = 1 << 23;
        queue
    }

    fn change(&mut self, change: Change) {
        self.scene.apply(&change);
        if change.is_shown(self.needs) {
            self.changes.push(change);
        }
    }

    fn packet_event(&mut self, event: SchedulerEvent) {
        if self.needs.packet_events {
            self.events.push(event);
        }
    }
}

/// Sending.
impl Transfer {
    /// Does as decided; false if nothing was sent.
    fn carry_out(&mut self, decision: &Decision) -> bool {
        match decision {
            Decision::Send {
                path,
                data,
                max_bytes,
                tag,
            } => self.send_train(*path, data, *max_bytes, *tag),
            Decision::Duplicate {
                path,
                copies,
                data,
                tag,
            } => {
                let Some(data) = self.take(data, 0) else {
                    return false;
                };
                self.send(*path, *tag, Some(data.clone()));
                for copy in copies {
                    if self.can_send(*copy) {
                        self.send(*copy, *tag, Some(data.clone()));
                    }
                }
                true
            }
            Decision::Reinject {
                path,
                stream,
                offsets,
                tag,
            } => {
                self.send(*path, *tag, Some((*stream, offsets.clone())));
                true
            }
            _ => false,
        }
    }

    fn can_send(&self, path: PathId) -> bool {
        self.scene.paths[path.0 as usize].can_send()
    }

    fn send_train(&mut self, path: PathId, data: &DataSelection, limit: u64, tag: u64) -> bool {
        let mut sent = 0;
        while sent == 0 || sent + u64::from(MTU) <= limit {
            if !self.can_send(path) {
                break;
            }
            let Some(data) = self.take(data, limit) else {
                break;
            };
            self.send(path, tag, Some(data));
            sent += u64::from(MTU);
        }
        sent > 0
    }

    /// Takes a datagram's bytes off the waiting data. A limit below a datagram holds for bytes
    /// from an offset on.
    fn take(&mut self, data: &DataSelection, limit: u64) -> Option<(StreamId, Range<u64>)> {
        let (index, from, most) = match data {
            DataSelection::Next => match self.lost.pop_front() {
                Some(lost) => return Some(lost),
                None => (0, 0, PAYLOAD),
            },
            DataSelection::Stream(id) => (self.stream_index(*id)?, 0, PAYLOAD),
            DataSelection::StreamAt { id, offset } => {
                let most = if limit == 0 {
                    PAYLOAD
                } else {
                    limit.min(PAYLOAD)
                };
                (self.stream_index(*id)?, *offset, most)
            }
            _ => return None,
        };
        let stream = self.streams.get_mut(index)?;
        let range = stream.unsent.overlapping(from..u64::MAX).next()?;
        let begin = range.start.max(from);
        let range = begin..range.end.min(begin + most);
        stream.unsent.remove(range.clone());
        self.unsent -= range.end - range.start;
        let (id, view) = (stream.id, stream.view());
        if view.unsent > 0 {
            self.change(Change::Stream(index, view));
            return Some((id, range));
        }
        self.streams.remove(index);
        self.change(Change::StreamEnds(index));
        if let Some(stream) = self.streams.get(SHOWN_STREAMS - 1) {
            let view = stream.view();
            self.change(Change::StreamBegins(view));
        }
        Some((id, range))
    }

    fn stream_index(&self, id: StreamId) -> Option<usize> {
        let shown = self.streams.iter().take(SHOWN_STREAMS);
        shown.into_iter().position(|stream| stream.id == id)
    }

    fn send(&mut self, path: PathId, tag: u64, data: Option<(StreamId, Range<u64>)>) {
        let mut info = PacketInfo::new(path, self.next_number, u64::from(MTU), self.scene.now);
        info.tag = tag;
        self.next_number += 1;
        self.counts.sent += 1;
        if let Some((stream, offsets)) = data.clone() {
            let mut range = UnackedRange::new(stream, offsets, path, self.scene.now);
            range.tag = tag;
            self.change(Change::Sent(range));
        }
        // The link carries one packet after the other.
        let packets = &mut self.in_flight[path.0 as usize];
        let on_link = Duration::from_nanos(u64::from(MTU) * 1_000_000_000 / RATE);
        let earliest = self.scene.now + round_trip(path.0);
        let due = packets
            .back()
            .map_or(earliest, |last| earliest.max(last.due + on_link));
        packets.push_back(Packet { info, due, data });
        self.change_path(path, |path| {
            path.in_flight += u64::from(MTU);
            path.packets_sent += 1;
            path.bytes_sent += u64::from(MTU);
        });
        self.packet_event(SchedulerEvent::Sent(info));
    }

    fn change_path(&mut self, id: PathId, change: impl FnOnce(&mut PathView)) {
        let index = id.0 as usize;
        let mut path = self.scene.paths[index];
        change(&mut path);
        path.local_queue = Some(path.in_flight / LOCAL_PART);
        path.sendable = if path.in_flight + u64::from(MTU) > path.window {
            Sendable::WindowFull
        } else {
            Sendable::Now
        };
        self.change(Change::Path(index, path));
    }
}

/// Time, acknowledgements and losses.
impl Transfer {
    /// Goes on to the next acknowledgements, or to the end of a wait; begins a transfer when the
    /// last one is over.
    fn pass_time(&mut self, until: Option<Instant>) {
        let paths = 0..self.in_flight.len();
        let arrival = paths.filter_map(|path| self.next_arrival(path)).min();
        let timer = self.scheduler.next_timeout();
        let timer = timer.map(|timer| timer.max(self.scene.now + MS));
        let until = until.map(|until| until.max(self.scene.now + MS));
        let alarm = [timer, until].into_iter().flatten().min();
        match (arrival, alarm) {
            (Some(at), Some(alarm)) if alarm < at => self.ring(alarm, timer),
            (Some(at), _) => self.settle_batch(at),
            (None, _) if !self.has_data() => self.begin_transfer(),
            (None, Some(alarm)) => self.ring(alarm, timer),
            (None, None) => self.scene.now += MS,
        }
    }

    /// When the oldest packet of a path is acknowledged or lost.
    fn next_arrival(&self, path: usize) -> Option<Instant> {
        let first = self.in_flight[path].front()?;
        Some(first.due)
    }

    fn ring(&mut self, alarm: Instant, timer: Option<Instant>) {
        self.scene.now = alarm;
        if timer == Some(alarm) {
            self.events.push(SchedulerEvent::Timer);
        }
    }

    fn begin_transfer(&mut self) {
        self.scene.now += MS;
        let windows: u64 = self.scene.paths.iter().map(|path| path.window).sum();
        let size = (2 * windows / self.streams_at_a_time).max(1_000);
        let mut streams = Vec::new();
        for number in 0..self.streams_at_a_time {
            let id = StreamId::new(Side::Server, Dir::Uni, self.next_stream);
            self.next_stream += 1;
            let mut unsent = RangeSet::default();
            unsent.insert(0..size);
            self.missing.insert(id, unsent.clone());
            self.events.push(SchedulerEvent::StreamOpened(id));
            if id.index().is_multiple_of(2) {
                self.events.push(SchedulerEvent::StreamSizeKnown(id, size));
            }
            let priority = (number % 5) as i32;
            streams.push(Stream {
                id,
                priority,
                size,
                unsent,
            });
        }
        streams.sort_by_key(|stream| -stream.priority);
        for stream in streams.iter().take(SHOWN_STREAMS) {
            self.change(Change::StreamBegins(stream.view()));
        }
        self.unsent = size * self.streams_at_a_time;
        self.streams = streams.into();
    }

    /// The packets whose time is this one, or soon after, are acknowledged or lost.
    fn settle_batch(&mut self, first: Instant) {
        self.scene.now = first + BATCH;
        for path in 0..self.in_flight.len() {
            let mut news = false;
            while self
                .next_arrival(path)
                .is_some_and(|at| at <= self.scene.now)
                && let Some(packet) = self.in_flight[path].pop_front()
            {
                self.settle(packet);
                news = true;
            }
            if news {
                self.packet_event(SchedulerEvent::RttUpdated(PathId(path as u32)));
            }
        }
    }

    fn settle(&mut self, packet: Packet) {
        let Packet { info, data, .. } = packet;
        let is_lost = info.packet_number % LOST == LOST - 1;
        let latest = self.scene.now - info.sent_at;
        self.change_path(info.path, |path| {
            path.in_flight -= info.bytes;
            if is_lost {
                path.bytes_lost += info.bytes;
            } else {
                path.bytes_acked += info.bytes;
                path.rtt.latest = latest;
            }
        });
        if is_lost {
            self.counts.lost += 1;
            self.packet_event(SchedulerEvent::Lost(info));
            let kind = CongestionKind::Loss;
            self.events
                .push(SchedulerEvent::Congestion(info.path, kind));
        } else {
            self.counts.acked += 1;
            self.packet_event(SchedulerEvent::Acked(info, Some(latest)));
        }
        if let Some((stream, offsets)) = data {
            self.settle_data(info.path, stream, offsets, is_lost);
        }
    }

    /// An acknowledgement settles all copies of the bytes, a loss only the lost copy.
    fn settle_data(&mut self, path: PathId, stream: StreamId, offsets: Range<u64>, lost: bool) {
        let mut index = 0;
        let mut copies = 0;
        while let Some(range) = self.scene.unacked.get(index) {
            let is_copy = range.stream == stream && range.offsets == offsets;
            if is_copy && (!lost || range.path == path) {
                self.change(Change::Settled(index));
            } else {
                copies += u64::from(is_copy);
                index += 1;
            }
        }
        let Some(missing) = self.missing.get_mut(&stream) else {
            return;
        };
        if lost {
            if copies == 0 && missing.contains_range(offsets.clone()) {
                self.lost.push_back((stream, offsets));
            }
            return;
        }
        missing.remove(offsets);
        if missing.is_empty() {
            self.missing.remove(&stream);
            self.events.push(SchedulerEvent::StreamFinished(stream));
        }
    }
}
