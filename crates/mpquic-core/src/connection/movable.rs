//! Movable data: asks the scheduler which path carries what comes next, and holds it to the rules
//! (decision D5).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rand::RngExt;

use super::Connection;
use crate::congestion::CongestionKind;
use crate::ids::{PathId, PathStatus};
use crate::packet::Transmit;
use crate::packet::delivery::Delivery;
use crate::sched::{
    DataSelection, Decision, Needs, PacketInfo, PathView, Scheduler, SchedulerEvent, StreamView,
    UnackedRange, View,
};
use crate::space::SentPacket;

/// Ranges shown per path.
const MAX_UNACKED_RANGES: usize = 64;
/// Copies that wait for the window of one path.
const MAX_COPIES: usize = 256;

/// A copy of data that a scheduler asked for.
#[derive(Debug)]
struct Copy {
    path: PathId,
    data: DataSelection,
    tag: u64,
}

/// The scheduler, what it has not been told yet, and memory for its views.
#[derive(Debug)]
pub(super) struct Movable {
    scheduler: Box<dyn Scheduler>,
    needs: Needs,
    events: VecDeque<SchedulerEvent>,
    paths: Vec<PathView>,
    streams: Vec<StreamView>,
    unacked: Vec<UnackedRange>,
    copies: VecDeque<Copy>,
    /// The scheduler's [`Decision::Wait`] ends here.
    wait_until: Option<Instant>,
    /// The scheduler knows that flow control blocks sending.
    flow_blocked: bool,
    /// Data waits only for this path's pacer.
    pub(super) pacing: Option<(Instant, PathId)>,
}

/// What to send, after the scheduler's answer was checked.
pub(super) struct Order {
    pub(super) path: PathId,
    pub(super) data: DataSelection,
    pub(super) max_bytes: u64,
    pub(super) tag: u64,
    copies: crate::sched::PathSet,
}

impl Movable {
    pub(super) fn new(scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            needs: scheduler.needs(),
            scheduler,
            events: VecDeque::new(),
            paths: Vec::new(),
            streams: Vec::new(),
            unacked: Vec::new(),
            copies: VecDeque::new(),
            wait_until: None,
            flow_blocked: false,
            pacing: None,
        }
    }

    pub(super) fn on_path_added(&mut self, path: PathId) {
        self.events.push_back(SchedulerEvent::PathAdded(path));
    }

    pub(super) fn on_path_removed(&mut self, path: PathId) {
        self.copies.retain(|copy| copy.path != path);
        self.events.push_back(SchedulerEvent::PathRemoved(path));
    }

    pub(super) fn on_path_status(&mut self, path: PathId, status: PathStatus) {
        self.events
            .push_back(SchedulerEvent::PathStatus(path, status));
    }

    pub(super) fn on_path_suspect(&mut self, path: PathId) {
        self.events.push_back(SchedulerEvent::PathSuspect(path));
    }

    pub(super) fn on_path_recovered(&mut self, path: PathId) {
        self.events.push_back(SchedulerEvent::PathRecovered(path));
    }

    pub(super) fn on_congestion(&mut self, path: PathId, kind: CongestionKind) {
        self.events
            .push_back(SchedulerEvent::Congestion(path, kind));
    }

    pub(super) fn on_rtt_updated(&mut self, path: PathId) {
        if self.needs.packet_events {
            self.events.push_back(SchedulerEvent::RttUpdated(path));
        }
    }

    pub(super) fn on_sent(&mut self, path: PathId, number: u64, packet: &SentPacket) {
        if self.needs.packet_events {
            self.events
                .push_back(SchedulerEvent::Sent(info(path, number, packet)));
        }
    }

    pub(super) fn on_acked(
        &mut self,
        path: PathId,
        number: u64,
        packet: &SentPacket,
        sample: Option<Duration>,
    ) {
        if self.needs.packet_events {
            self.events
                .push_back(SchedulerEvent::Acked(info(path, number, packet), sample));
        }
    }

    pub(super) fn on_lost(&mut self, path: PathId, number: u64, packet: &SentPacket) {
        if self.needs.packet_events {
            self.events
                .push_back(SchedulerEvent::Lost(info(path, number, packet)));
        }
    }

    fn on_flow_control(&mut self, blocked: bool) {
        if blocked && !self.flow_blocked {
            self.events.push_back(SchedulerEvent::FlowControlBlocked);
        }
        self.flow_blocked = blocked;
    }

    /// When the scheduler wants to be asked again.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.wait_until, self.scheduler.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        if self.wait_until.is_some_and(|until| until <= now) {
            self.wait_until = None;
        }
        if self
            .scheduler
            .next_timeout()
            .is_some_and(|until| until <= now)
        {
            self.events.push_back(SchedulerEvent::Timer);
        }
    }

    /// Any path that could take a datagram now, the fastest first.
    fn fallback(&self) -> Option<PathId> {
        self.paths
            .iter()
            .filter(|path| path.can_send())
            .min_by_key(|path| (path.rtt.smoothed, path.id))
            .map(|path| path.id)
    }

    fn can_send(&self, path: PathId) -> bool {
        self.paths
            .iter()
            .any(|view| view.id == path && view.can_send())
    }

    /// Turns an answer into an order that keeps the rules; `None` to send nothing now.
    fn enforce(&mut self, decision: Decision, now: Instant) -> Option<Order> {
        self.wait_until = None;
        let idle = self.paths.iter().all(|path| path.in_flight == 0);
        let order = |path, data, max_bytes, tag, copies| {
            Some(Order {
                path,
                data,
                max_bytes,
                tag,
                copies,
            })
        };
        let none = crate::sched::PathSet::new();
        match decision {
            Decision::Send {
                path,
                data,
                max_bytes,
                tag,
            } if self.can_send(path) => order(path, data, max_bytes, tag, none),
            Decision::Duplicate {
                path,
                copies,
                data,
                tag,
            } if self.can_send(path) => order(path, data, 0, tag, copies),
            Decision::Reinject {
                path,
                stream,
                offsets,
                tag,
            } if self.can_send(path) => {
                let max_bytes = offsets.end.saturating_sub(offsets.start);
                order(
                    path,
                    DataSelection::Range {
                        id: stream,
                        offsets,
                    },
                    max_bytes,
                    tag,
                    none,
                )
            }
            Decision::Wait { on, until } => {
                let until = until.filter(|until| *until > now);
                let legal = until.is_some()
                    || self
                        .paths
                        .iter()
                        .any(|path| path.id == on && path.in_flight > 0);
                if legal {
                    self.wait_until = until;
                    return None;
                }
                order(self.fallback()?, DataSelection::Next, 0, 0, none)
            }
            Decision::Blocked if !idle => None,
            // A path that cannot send was chosen, or all are idle: nothing would ever change.
            Decision::Send { .. }
            | Decision::Duplicate { .. }
            | Decision::Reinject { .. }
            | Decision::Blocked => order(self.fallback()?, DataSelection::Next, 0, 0, none),
        }
    }

    fn forget_views(&mut self) {
        self.paths.clear();
        self.streams.clear();
        self.unacked.clear();
    }
}

fn info(path: PathId, packet_number: u64, packet: &SentPacket) -> PacketInfo {
    PacketInfo {
        path,
        packet_number,
        bytes: packet.bytes.into(),
        tag: packet.tag,
        sent_at: packet.time_sent,
    }
}

impl Connection {
    /// True if something waits that any path may carry.
    pub(super) fn has_movable(&self) -> bool {
        self.streams.can_send_data() || self.has_control()
    }

    /// True if anything but stream data is part of that.
    fn has_control(&self) -> bool {
        self.streams.wants_control()
            || self.datagrams.wants_to_send()
            || self.handshake.crypto.wants_to_send()
            || self.wants_management()
    }

    /// True if connection or paths have frames of their own to send.
    pub(super) fn wants_management(&self) -> bool {
        self.handshake.done_pending
            || self.handshake.new_token.is_some()
            || self.ack_frequencies.wants_to_send()
            || self.paths.wants_to_send()
    }

    /// Sends what the scheduler decides.
    pub(super) fn transmit_movable(
        &mut self,
        now: Instant,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.movable.pacing = None;
        let has_data = self.has_movable();
        self.movable
            .on_flow_control(self.streams.wants_data() && !self.streams.can_send_data());
        if !has_data && self.movable.copies.is_empty() && self.movable.events.is_empty() {
            self.note_app_limited();
            if !self.movable.needs.unacked {
                return None;
            }
        }
        self.fill_views(now);
        let transmit = self.transmit_copy(now, buf).or_else(|| {
            let order = self.next_order(now, has_data)?;
            self.transmit_order(now, order, max_datagrams, buf)
        });
        if transmit.is_none() {
            self.note_pacing();
        }
        self.movable.forget_views();
        transmit
    }

    /// Delivers what happened to the scheduler, then asks it.
    fn next_order(&mut self, now: Instant, has_data: bool) -> Option<Order> {
        let random = self.rng.random();
        let mut queue = self.streams.queue_view();
        queue.control = self.has_control();
        queue.idle = !has_data;
        let Movable {
            scheduler,
            events,
            paths,
            streams,
            unacked,
            ..
        } = &mut self.movable;
        let controller = &*self.controller;
        let view = View {
            now,
            paths,
            queue,
            streams,
            unacked,
            controller,
            random,
        };
        for event in events.drain(..) {
            scheduler.on_event(&event, &view);
        }
        if (!has_data && unacked.is_empty()) || !paths.iter().any(PathView::can_send) {
            return None;
        }
        let decision = scheduler.select(&view);
        tracing::trace!(?decision, "scheduler");
        self.movable.enforce(decision, now)
    }

    fn transmit_order(
        &mut self,
        now: Instant,
        mut order: Order,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let copies = std::mem::take(&mut order.copies);
        let transmit = self.transmit_batch(now, &order, max_datagrams, buf);
        if transmit.is_some() {
            if !copies.is_empty() {
                self.queue_copies(&order, &copies);
            }
            return transmit;
        }
        if order.data == DataSelection::Next {
            return None;
        }
        // The chosen stream has nothing it may send: something else might.
        order.data = DataSelection::Next;
        self.transmit_batch(now, &order, 1, buf)
    }

    /// Notes that the datagram just sent is wanted on other paths too.
    fn queue_copies(&mut self, order: &Order, copies: &[PathId]) {
        let Some(path) = self.paths.open(order.path) else {
            return;
        };
        let Some((_, packet)) = path.space.sent.iter().next_back() else {
            return;
        };
        for delivery in &packet.deliveries {
            if let Delivery::Stream {
                id, offset, length, ..
            } = *delivery
            {
                let offsets = offset..offset + u64::from(length);
                for path in copies.iter().filter(|path| **path != order.path) {
                    let waiting = self.movable.copies.iter();
                    if waiting.filter(|copy| copy.path == *path).count() < MAX_COPIES {
                        let data = DataSelection::Range {
                            id,
                            offsets: offsets.clone(),
                        };
                        let copy = Copy {
                            path: *path,
                            data,
                            tag: order.tag,
                        };
                        self.movable.copies.push_back(copy);
                    }
                }
            }
        }
    }

    /// Sends a copy whose path has room. A copy whose original arrived is dropped.
    fn transmit_copy(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        while let Some(index) = self
            .movable
            .copies
            .iter()
            .position(|copy| self.movable.can_send(copy.path))
        {
            let Copy { path, data, tag } = self.movable.copies.remove(index)?;
            let DataSelection::Range { id, offsets } = &data else {
                continue;
            };
            if !self.streams.is_unacked(*id, offsets.clone()) {
                continue;
            }
            let copies = crate::sched::PathSet::new();
            let order = Order {
                path,
                data,
                max_bytes: 0,
                tag,
                copies,
            };
            if let Some(transmit) = self.transmit_batch(now, &order, 1, buf) {
                return Some(transmit);
            }
        }
        None
    }

    /// Builds the scheduler's view of the paths and, on request, of streams and unacked ranges.
    fn fill_views(&mut self, now: Instant) {
        let pacing = self.config.pacing;
        let mut views = std::mem::take(&mut self.movable.paths);
        views.clear();
        for slot in self.paths.slots_mut() {
            let status = slot.statuses.effective();
            if let Some(path) = slot.open_mut().filter(|path| path.is_usable()) {
                views.push(path.view(status, now, &*self.controller, pacing));
            }
        }
        // While every path is suspect, none is worse than another.
        let live = views.iter().any(|view| !view.suspect);
        let candidate = |view: &PathView| !(live && view.suspect);
        let available = views
            .iter()
            .any(|view| candidate(view) && view.status == PathStatus::Available);
        for view in &mut views {
            view.usable = candidate(view) && !(available && view.status == PathStatus::Backup);
        }
        self.movable.paths = views;
        if self.movable.needs.streams {
            self.streams.fill_stream_views(&mut self.movable.streams);
        }
        if self.movable.needs.unacked {
            self.fill_unacked();
        }
    }

    fn fill_unacked(&mut self) {
        let mut ranges = std::mem::take(&mut self.movable.unacked);
        for path in self.paths.iter() {
            let start = ranges.len();
            for (_, packet) in path.space.sent.iter() {
                for delivery in &packet.deliveries {
                    if let Delivery::Stream {
                        id, offset, length, ..
                    } = *delivery
                        && self
                            .streams
                            .is_unacked(id, offset..offset + u64::from(length))
                    {
                        ranges.push(UnackedRange {
                            stream: id,
                            offsets: offset..offset + u64::from(length),
                            path: path.id,
                            sent_at: packet.time_sent,
                            reinjected: packet.reinjected,
                            tag: packet.tag,
                        });
                    }
                }
                if ranges.len() - start >= MAX_UNACKED_RANGES {
                    break;
                }
            }
        }
        ranges.sort_unstable_by_key(|range| (range.sent_at, range.stream, range.offsets.start));
        self.movable.unacked = ranges;
    }

    /// The window had room and nothing used it (RFC 9002 section 7.8).
    fn note_app_limited(&mut self) {
        for path in self.paths.iter_mut() {
            let used = path.recovery.bytes_in_flight() + u64::from(path.mtu.mtu());
            if used <= self.controller.window(path.id) {
                path.recovery.set_app_limited();
            }
        }
    }

    /// Remembers when the first pacer opens if nothing else holds the data back.
    fn note_pacing(&mut self) {
        self.movable.pacing = self
            .movable
            .paths
            .iter()
            .filter(|path| path.usable)
            .filter_map(|path| match path.sendable {
                crate::sched::Sendable::At(at) => Some((at, path.id)),
                _ => None,
            })
            .min();
    }
}
