//! A small world for schedulers, and the rules that every decision must keep. In the world, streams
//! are written to, packets are acknowledged or lost, and paths come and go.

use std::ops::Range;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use mpquic_core::congestion::CongestionKind;
use mpquic_core::sched::{
    DataSelection, Decision, PacketInfo, PathView, QueueView, Scheduler, SchedulerEvent, Sendable,
    StreamView, UnackedRange, View,
};
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::{PathId, PathMap, StreamId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::testing::{Growth, MTU, path, queue, sends, start, stream_id, unmeasured};

/// Stream bytes of a full datagram.
const PAYLOAD: u64 = 1150;

/// A view of paths with their own windows; the controller only tells how windows grow.
pub(super) fn view<'a>(now: Instant, paths: &'a [PathView], random: u64) -> View<'a> {
    let mut view = View::new(now, paths, &Growth::Additive(1200));
    view.queue = queue();
    view.random = random;
    view
}

/// A change of the world, and the state of the paths after the change.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) paths: Vec<PathView>,
    pub(super) random: u64,
    /// Time since the last step.
    pub(super) after: Duration,
    /// A stream, and the bytes that an application writes to the stream.
    pub(super) write: Option<(u64, u64)>,
    pub(super) fates: Fates,
    pub(super) flow_credit: u64,
    pub(super) control: bool,
    /// Bytes of DATAGRAMs that always wait.
    pub(super) datagrams: u64,
}

/// The fate of the packets in flight.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fates {
    /// Three bits decide for each packet; the step's paths give the bytes in flight.
    Bits(u64),
    /// The acknowledgement of a packet comes after a round trip of its path. A packet with a
    /// multiple of this number is lost at the same time.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")),
        expect(dead_code, reason = "only the record needs it")
    )]
    InTime(u64),
}

pub(super) fn any_path() -> impl Strategy<Value = PathView> {
    (
        option::weighted(0.8, 0u64..300),
        prop_oneof![4 => Just(true), 1 => Just(false)],
        2u64..200,
        0u64..250,
        0u8..5,
        (0u64..3000, 0u64..40, 0.0..0.2),
        (option::of(0u64..10_000_000), option::of(0u64..100_000)),
    )
        .prop_map(|(rtt, usable, window, in_flight, state, own, measured)| {
            let mut path = rtt.map_or_else(|| unmeasured(0), |rtt| path(0, rtt));
            path.rtt.variance = path.rtt.smoothed / 4;
            path.usable = usable;
            path.window = window * u64::from(MTU);
            path.in_flight = in_flight * u64::from(MTU);
            path.packets_sent = own.0;
            path.bytes_sent = own.0 * PAYLOAD;
            path.loss_rate = own.2;
            path.delivery_rate = measured.0;
            path.local_queue = measured.1;
            path.local_drain_rate = measured.0;
            path.slow_start_threshold = measured.1;
            path.sendable = if path.in_flight + u64::from(MTU) > path.window {
                Sendable::WindowFull
            } else if state == 0 {
                Sendable::At(start() + Duration::from_millis(own.1 + 1))
            } else if state == 1 || !usable {
                Sendable::Unusable
            } else {
                Sendable::Now
            };
            path
        })
}

/// Paths by ID; an absent ID stands for a path that is closed at the step.
pub(super) fn any_steps(most_paths: usize) -> impl Strategy<Value = Vec<Step>> {
    let paths = vec(option::weighted(0.8, any_path()), 1..=most_paths).prop_map(|paths| {
        let numbered = paths.into_iter().zip(0u32..);
        numbered
            .filter_map(|(path, id)| {
                let mut path = path?;
                path.id = PathId(id);
                Some(path)
            })
            .collect::<Vec<_>>()
    });
    let write = option::weighted(
        0.3,
        (0u64..4, prop_oneof![9 => 1u64..5_000, 1 => 1u64..200_000]),
    );
    let credit = prop_oneof![1 => Just(0u64), 4 => 0u64..2_000_000];
    let step = (
        paths,
        any::<u64>(),
        0u64..50,
        write,
        any::<u64>(),
        credit,
        proptest::bool::weighted(0.1),
        option::weighted(0.1, 1u64..100_000),
    )
        .prop_map(
            |(paths, random, after, write, fates, flow_credit, control, datagrams)| Step {
                paths,
                random,
                after: Duration::from_millis(after),
                write,
                fates: Fates::Bits(fates),
                flow_credit,
                control,
                datagrams: datagrams.unwrap_or(0),
            },
        );
    vec(step, 1..30)
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    unsent: RangeSet,
    acked: RangeSet,
    end: u64,
}

#[derive(Debug, Clone)]
struct Packet {
    info: PacketInfo,
    data: Option<(StreamId, Range<u64>)>,
}

/// Packets of a path.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    sent: u64,
    acked: u64,
    lost: u64,
}

/// The state between steps.
#[derive(Debug)]
pub(super) struct World {
    now: Instant,
    open: Vec<PathId>,
    streams: Vec<Stream>,
    packets: Vec<Packet>,
    lost: Vec<(StreamId, Range<u64>)>,
    next_number: u64,
    /// Streams whose last byte was acknowledged.
    finished: Vec<StreamId>,
    totals: PathMap<Totals>,
    /// Allocations inside the scheduler's calls.
    pub(super) allocations: u64,
}

impl World {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            now,
            open: Vec::new(),
            streams: Vec::new(),
            packets: Vec::new(),
            lost: Vec::new(),
            next_number: 0,
            finished: Vec::new(),
            totals: PathMap::default(),
            allocations: 0,
        }
    }

    /// Writes to a stream; the first write opens the stream. The stream of known size grows like
    /// the other streams.
    fn write(&mut self, index: u64, bytes: u64) -> Vec<SchedulerEvent> {
        let mut events = Vec::new();
        let id = stream_id(index);
        let stream = match self.streams.iter_mut().find(|stream| stream.id == id) {
            Some(stream) => stream,
            None => {
                events.push(SchedulerEvent::StreamOpened(id));
                self.streams.push(Stream {
                    id,
                    unsent: RangeSet::default(),
                    acked: RangeSet::default(),
                    end: 0,
                });
                self.streams.last_mut().expect("just added")
            }
        };
        stream.unsent.insert(stream.end..stream.end + bytes);
        stream.end += bytes;
        if index == 1 {
            events.push(SchedulerEvent::StreamSizeKnown(id, stream.end));
        }
        self.finished.retain(|finished| *finished != id);
        events
    }

    /// Streams that became completely acknowledged after the last call.
    fn note_finished(&mut self) -> Vec<SchedulerEvent> {
        let is_done = |stream: &&Stream| stream.acked.contains_range(0..stream.end);
        let done = self.streams.iter().filter(is_done).map(|stream| stream.id);
        let done = done.filter(|id| !self.finished.contains(id));
        let new: Vec<_> = done.collect();
        self.finished.extend(&new);
        new.into_iter()
            .map(SchedulerEvent::StreamFinished)
            .collect()
    }

    fn stream(&mut self, id: StreamId) -> &mut Stream {
        let mut streams = self.streams.iter_mut();
        streams
            .find(|stream| stream.id == id)
            .expect("a known stream")
    }

    fn stream_views(&self) -> Vec<StreamView> {
        let with_data = self.streams.iter().filter(|s| !s.unsent.is_empty());
        with_data
            .map(|stream| {
                let first = stream.unsent.min().expect("not empty");
                let mut view = StreamView::new(stream.id, first..stream.end);
                view.priority = 16 * stream.id.index() as i32 - 16;
                view.unsent = stream.unsent.iter().map(|r| r.end - r.start).sum();
                view.finished = stream.id.index() == 1;
                view.size = view.finished.then_some(stream.end);
                view
            })
            .collect()
    }

    fn unacked(&self) -> Vec<UnackedRange> {
        let acked = |id: StreamId, range: &Range<u64>| {
            let stream = self.streams.iter().find(|stream| stream.id == id);
            stream.is_some_and(|stream| stream.acked.contains_range(range.clone()))
        };
        let mut ranges: Vec<_> = self
            .packets
            .iter()
            .filter_map(|packet| {
                let (stream, offsets) = packet.data.clone()?;
                if acked(stream, &offsets) {
                    return None;
                }
                let PacketInfo {
                    path, sent_at, tag, ..
                } = packet.info;
                let mut range = UnackedRange::new(stream, offsets, path, sent_at);
                range.tag = tag;
                Some(range)
            })
            .collect();
        ranges.sort_unstable_by_key(|r| (r.sent_at, r.stream, r.offsets.start));
        ranges
    }

    /// Puts one packet on a path.
    fn send(&mut self, path: PathId, tag: u64, data: Option<(StreamId, Range<u64>)>) -> PacketInfo {
        let mut info = PacketInfo::new(path, self.next_number, u64::from(MTU), self.now);
        info.tag = tag;
        self.next_number += 1;
        self.totals_of(path).sent += 1;
        self.packets.push(Packet { info, data });
        info
    }

    /// Takes the bytes of a decision off the waiting data.
    fn take(&mut self, data: &DataSelection, limit: u64) -> Option<(StreamId, Range<u64>)> {
        let (id, from) = match data {
            DataSelection::Next => match self.lost.pop() {
                Some(lost) => return Some(lost),
                None => {
                    let first = self.streams.iter().find(|s| !s.unsent.is_empty())?;
                    (first.id, 0)
                }
            },
            DataSelection::Stream(id) => (*id, 0),
            DataSelection::StreamAt { id, offset } => (*id, *offset),
            _ => return None,
        };
        let stream = self.stream(id);
        let range = stream.unsent.overlapping(from..u64::MAX).next()?;
        let begin = range.start.max(from);
        let range = begin..range.end.min(begin + limit.min(PAYLOAD));
        stream.unsent.remove(range.clone());
        Some((id, range))
    }

    fn apply(&mut self, decision: &Decision, paths: &[PathView]) -> Vec<SchedulerEvent> {
        let can_send = |id: PathId| paths.iter().any(|path| path.id == id && path.can_send());
        let mut sent = Vec::new();
        match decision {
            Decision::Send {
                path,
                data,
                max_bytes,
                tag,
            } => {
                let limit = if *data == DataSelection::Next || *max_bytes == 0 {
                    PAYLOAD
                } else {
                    *max_bytes
                };
                let data = self.take(data, limit);
                sent.push(self.send(*path, *tag, data));
            }
            Decision::Duplicate {
                path,
                copies,
                data,
                tag,
            } => {
                let data = self.take(data, PAYLOAD);
                sent.push(self.send(*path, *tag, data.clone()));
                for copy in copies.iter().filter(|copy| can_send(**copy)) {
                    sent.push(self.send(*copy, *tag, data.clone()));
                }
            }
            Decision::Reinject {
                path,
                stream,
                offsets,
                tag,
            } => sent.push(self.send(*path, *tag, Some((*stream, offsets.clone())))),
            _ => {}
        }
        sent.into_iter().map(SchedulerEvent::Sent).collect()
    }

    /// The fate of a packet: true for acknowledged, false for lost, `None` for still in flight.
    fn fate(&self, fates: Fates, index: usize, packet: &PacketInfo, on: &PathView) -> Option<bool> {
        match fates {
            Fates::Bits(bits) => match bits >> (3 * (index % 21)) & 7 {
                0..3 => None,
                bits => Some(bits != 3),
            },
            Fates::InTime(lost) => {
                let is_over = self.now - packet.sent_at >= on.rtt.smoothed;
                is_over.then_some(!packet.packet_number.is_multiple_of(lost))
            }
        }
    }

    /// Acknowledges and loses packets.
    fn decide_fates(&mut self, fates: Fates, paths: &[PathView]) -> Vec<SchedulerEvent> {
        let mut events = Vec::new();
        for (index, packet) in std::mem::take(&mut self.packets).into_iter().enumerate() {
            let on = paths.iter().find(|path| path.id == packet.info.path);
            match on.map_or(Some(false), |on| self.fate(fates, index, &packet.info, on)) {
                None => self.packets.push(packet),
                Some(false) => {
                    self.totals_of(packet.info.path).lost += 1;
                    events.push(SchedulerEvent::Lost(packet.info));
                    let kind = CongestionKind::Loss;
                    events.push(SchedulerEvent::Congestion(packet.info.path, kind));
                    if let Some((id, range)) = packet.data
                        && !self.stream(id).acked.contains_range(range.clone())
                    {
                        self.lost.push((id, range));
                    }
                }
                Some(true) => {
                    self.totals_of(packet.info.path).acked += 1;
                    let rtt = self.now - packet.info.sent_at;
                    events.push(SchedulerEvent::Acked(packet.info, Some(rtt)));
                    events.push(SchedulerEvent::RttUpdated(packet.info.path));
                    if let Some((id, range)) = packet.data {
                        self.stream(id).acked.insert(range);
                    }
                }
            }
        }
        events
    }

    fn queue(&self, step: &Step) -> QueueView {
        let unsent = self.streams.iter().flat_map(|s| s.unsent.iter());
        let unsent = unsent.map(|range| range.end - range.start).sum();
        let retransmit = self.lost.iter().map(|(_, range)| range.end - range.start);
        let mut queue = QueueView::default();
        queue.unsent = unsent;
        queue.retransmit = retransmit.sum();
        queue.datagrams = step.datagrams;
        queue.control = step.control || step.datagrams > 0;
        queue.idle =
            (unsent == 0 || step.flow_credit == 0) && self.lost.is_empty() && !queue.control;
        queue.flow_credit = step.flow_credit;
        queue.flow_window = step.flow_credit + 50_000;
        queue.send_buffer = 1 << 20;
        queue.app_limited = unsent == 0;
        queue
    }

    fn totals_of(&mut self, path: PathId) -> &mut Totals {
        self.totals.get_or_insert_with(path, Totals::default)
    }

    /// Sets sent bytes and bytes in flight in the views of the paths.
    fn fill(&mut self, paths: &mut [PathView]) {
        for path in paths {
            let Totals { sent, acked, lost } = *self.totals_of(path.id);
            path.packets_sent = sent;
            path.bytes_sent = sent * u64::from(MTU);
            path.bytes_acked = acked * u64::from(MTU);
            path.bytes_lost = lost * u64::from(MTU);
            path.loss_rate = lost as f64 / sent.max(1) as f64;
            let sent_here = self.packets.iter().filter(|it| it.info.path == path.id);
            path.in_flight = sent_here.count() as u64 * u64::from(MTU);
            if path.sendable == Sendable::Now && path.available_window() < u64::from(MTU) {
                path.sendable = Sendable::WindowFull;
            }
        }
    }

    /// Runs a step as the core would: first the events, then decisions until no data is sent.
    pub(super) fn step(
        &mut self,
        scheduler: &mut dyn Scheduler,
        step: &Step,
    ) -> Result<Vec<Decision>, TestCaseError> {
        self.now += step.after;
        let mut events: Vec<_> = Vec::new();
        if let Some((stream, bytes)) = step.write {
            events.extend(self.write(stream, bytes));
        }
        let mut paths = step.paths.clone();
        for path in &mut paths {
            if let Sendable::At(time) = &mut path.sendable {
                *time = self.now + Duration::from_millis(3);
            }
        }
        let ids: Vec<_> = paths.iter().map(|path| path.id).collect();
        let before = std::mem::replace(&mut self.open, ids.clone());
        let removed = before.iter().filter(|id| !ids.contains(id));
        events.extend(removed.map(|id| SchedulerEvent::PathRemoved(*id)));
        let added = ids.iter().filter(|id| !before.contains(id));
        events.extend(added.map(|id| SchedulerEvent::PathAdded(*id)));
        events.extend(self.decide_fates(step.fates, &paths));
        events.extend(self.note_finished());
        if scheduler.next_timeout().is_some_and(|at| at <= self.now) {
            events.push(SchedulerEvent::Timer);
        }
        let mut decisions = Vec::new();
        for turn in 0..12 {
            if let Fates::InTime(_) = step.fates {
                self.fill(&mut paths);
            }
            let streams = self.stream_views();
            let unacked = self.unacked();
            let mut view = view(self.now, &paths, step.random.rotate_left(7 * turn));
            view.queue = self.queue(step);
            let needs = scheduler.needs();
            if needs.streams {
                view.streams = &streams;
            }
            if needs.unacked {
                view = view.with_unacked(&unacked);
            }
            for event in events.drain(..) {
                let of_packets = matches!(
                    event,
                    SchedulerEvent::Sent(_)
                        | SchedulerEvent::Acked(..)
                        | SchedulerEvent::Lost(_)
                        | SchedulerEvent::RttUpdated(_)
                );
                if needs.packet_events || !of_packets {
                    let counts = measure(|| scheduler.on_event(&event, &view));
                    self.allocations += counts.count_total;
                }
            }
            let can_send = paths.iter().any(PathView::can_send);
            if !can_send || (view.queue.idle && view.unacked().is_empty()) {
                break;
            }
            let mut decision = Decision::Blocked;
            let counts = measure(|| decision = scheduler.select(&view));
            self.allocations += counts.count_total;
            check(&view, &decision)?;
            events = self.apply(&decision, &paths);
            decisions.push(decision);
            if events.is_empty() {
                break;
            }
        }
        Ok(decisions)
    }
}

/// The rules that a decision must keep.
pub(super) fn check(view: &View<'_>, decision: &Decision) -> Result<(), TestCaseError> {
    if let Some((id, bytes)) = sends(decision) {
        let path = view.path(id).expect("a path that is open");
        prop_assert!(path.can_send(), "{decision:?} on {path:?}");
        prop_assert!(bytes <= path.available_window(), "{decision:?} on {path:?}");
    }
    match decision {
        Decision::Blocked => {
            prop_assert!(view.queue.idle || !view.paths.iter().any(PathView::can_send));
        }
        Decision::Wait { on, until } => {
            let path = view.path(*on).expect("a path that is open");
            prop_assert!(path.usable);
            prop_assert!(until.is_some() || path.in_flight > 0);
        }
        Decision::Duplicate { path, copies, .. } => {
            for copy in copies {
                let copy = view.path(*copy).expect("a path that is open");
                prop_assert!(copy.usable && copy.id != *path);
            }
        }
        Decision::Reinject {
            path,
            stream,
            offsets,
            ..
        } => {
            let mut held = view.unacked().iter();
            prop_assert!(
                held.any(|r| r.stream == *stream && r.offsets == *offsets && r.path != *path)
            );
        }
        Decision::Send { data, .. } => {
            prop_assert!(!view.queue.idle);
            let stream = |id| view.streams.iter().find(|stream| stream.id == id);
            match data {
                DataSelection::Next => {}
                DataSelection::Datagram => prop_assert!(view.queue.datagrams > 0),
                DataSelection::DatagramsBehind(bytes) => {
                    prop_assert!(*bytes < view.queue.datagrams);
                }
                DataSelection::Stream(id) => prop_assert!(stream(*id).is_some()),
                DataSelection::StreamAt { id, offset } => {
                    let stream = stream(*id);
                    prop_assert!(stream.is_some_and(|s| (s.offset..s.end).contains(offset)));
                }
                _ => prop_assert!(false, "{decision:?}"),
            }
        }
        _ => prop_assert!(false, "{decision:?}"),
    }
    Ok(())
}
