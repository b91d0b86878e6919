//! Movable data: asks the scheduler which path carries what comes next, and holds it to the rules
//! (decision D5).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Connection;
use crate::config::TransportConfig;
use crate::congestion::Controller as _;
use crate::guarded::GuardedScheduler;
use crate::ids::{PathId, PathStatus};
use crate::outbox::Outbox;
use crate::packet::Transmit;
use crate::packet::delivery::Delivery;
use crate::sched::{
    DataSelection, Decision, Needs, PathSet, PathView, SchedulerEvent, StreamView, UnackedRange,
    View,
};

/// Ranges shown per path.
const MAX_UNACKED_RANGES: usize = 64;
/// Copies that wait for the window of one path.
const MAX_COPIES: usize = 256;
/// How long a scheduler may wait for a time while nothing is on its way that could end the wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Least time between two timers of the scheduler, and before a wait ends by itself.
const TIMER_INTERVAL: Duration = Duration::from_millis(1);
/// Orders for certain streams in a row, while something more urgent waits.
const MAX_PASSED_OVER: u32 = 64;
/// Bytes a scheduler may send again for each byte sent first, and before any.
const REPEATS: u64 = 16;
const FREE_REPEATS: u64 = 1 << 16;

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
    scheduler: GuardedScheduler,
    needs: Needs,
    paths: Vec<PathView>,
    streams: Vec<StreamView>,
    unacked: Vec<UnackedRange>,
    copies: VecDeque<Copy>,
    /// The scheduler's [`Decision::Wait`] ends here.
    wait_until: Option<Instant>,
    /// Since when it waits for nothing that is on its way.
    waits_since: Option<Instant>,
    /// It hears of its timer from then on.
    timer_opens: Option<Instant>,
    /// Orders in a row that left aside what is most urgent.
    passed_over: u32,
    /// Bytes it may send again.
    repeats: u64,
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
    copies: PathSet,
}

impl Order {
    /// What is most urgent, without further questions.
    fn next(path: PathId) -> Self {
        Self {
            path,
            data: DataSelection::Next,
            max_bytes: 0,
            tag: 0,
            copies: PathSet::new(),
        }
    }

    /// What a decision says; `None` if it is not to send.
    fn of(decision: Decision) -> Option<Self> {
        let (path, data, max_bytes, tag, copies) = match decision {
            Decision::Send {
                path,
                data,
                max_bytes,
                tag,
            } => (path, data, max_bytes, tag, PathSet::new()),
            Decision::Duplicate {
                path,
                copies,
                data,
                tag,
            } => (path, data, 0, tag, copies),
            Decision::Reinject {
                path,
                stream: id,
                offsets,
                tag,
            } => {
                let length = offsets.end.saturating_sub(offsets.start);
                let data = DataSelection::Range { id, offsets };
                (path, data, length, tag, PathSet::new())
            }
            Decision::Wait { .. } | Decision::Blocked => return None,
        };
        Some(Self {
            path,
            data,
            max_bytes,
            tag,
            copies,
        })
    }

    /// True if it may send again what was sent before.
    fn is_repeat(&self) -> bool {
        matches!(
            self.data,
            DataSelection::StreamAt { .. } | DataSelection::Range { .. }
        )
    }
}

impl Movable {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let scheduler = GuardedScheduler::new(config);
        Self {
            needs: scheduler.needs(),
            scheduler,
            paths: Vec::new(),
            streams: Vec::new(),
            unacked: Vec::new(),
            copies: VecDeque::new(),
            wait_until: None,
            waits_since: None,
            timer_opens: None,
            passed_over: 0,
            repeats: FREE_REPEATS,
            flow_blocked: false,
            pacing: None,
        }
    }

    pub(super) fn needs_local_queues(&self) -> bool {
        self.needs.local_queue
    }

    /// What the scheduler asks to be told.
    pub(super) fn needs(&self) -> Needs {
        self.needs
    }

    fn on_flow_control(&mut self, blocked: bool, outbox: &mut Outbox) {
        if blocked && !self.flow_blocked {
            outbox.scheduler_event(SchedulerEvent::FlowControlBlocked);
        }
        self.flow_blocked = blocked;
    }

    /// When the scheduler wants to be asked again.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.wait_until, self.scheduler_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The scheduler's timer: one that is always due comes once in [`TIMER_INTERVAL`].
    fn scheduler_timeout(&self) -> Option<Instant> {
        let at = self.scheduler.next_timeout()?;
        Some(self.timer_opens.map_or(at, |opens| at.max(opens)))
    }

    pub(super) fn on_timeout(&mut self, now: Instant, outbox: &mut Outbox) {
        if self.wait_until.is_some_and(|until| until <= now) {
            self.wait_until = None;
        }
        if self.scheduler_timeout().is_some_and(|until| until <= now) {
            self.timer_opens = Some(now + TIMER_INTERVAL);
            outbox.scheduler_event(SchedulerEvent::Timer);
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

    /// Turns an answer into an order that keeps the rules; `None` to send nothing now. Something
    /// `urgent` is what [`DataSelection::Next`] begins with.
    fn enforce(&mut self, decision: Option<Decision>, now: Instant, urgent: bool) -> Option<Order> {
        self.wait_until = None;
        let is_broken = decision.is_none();
        let wanted = match decision {
            Some(Decision::Wait { on, until }) if self.may_wait(on, until, now) => return None,
            Some(Decision::Blocked) if self.has_usable(|path| path.in_flight > 0) => return None,
            Some(decision) => Order::of(decision),
            None => None,
        };
        let wanted = wanted.filter(|order| self.can_send(order.path));
        // A path that cannot send was chosen, or nothing would ever change.
        let mut order = match wanted {
            Some(order) => order,
            None => Order::next(self.fallback()?),
        };
        if is_broken {
            order.max_bytes = u64::MAX;
        }
        self.waits_since = None;
        if self.passed_over >= MAX_PASSED_OVER || order.is_repeat() && self.repeats == 0 {
            order.data = DataSelection::Next;
        }
        let passes_over = urgent && order.data != DataSelection::Next;
        self.passed_over = if passes_over { self.passed_over + 1 } else { 0 };
        Some(order)
    }

    /// True if waiting is bound to end: by an acknowledgement or a probe timeout on the path waited
    /// for, or at a time not too far off.
    fn may_wait(&mut self, on: PathId, until: Option<Instant>, now: Instant) -> bool {
        let until = until.filter(|until| *until > now);
        let until = until.map(|until| until.max(now + TIMER_INTERVAL));
        if self.has_usable(|path| path.id == on && path.in_flight > 0) {
            self.wait_until = until;
            return true;
        }
        let Some(until) = until else {
            return false;
        };
        let end = *self.waits_since.get_or_insert(now) + LONGEST_WAIT;
        self.wait_until = Some(until.min(end)).filter(|_| now < end);
        self.wait_until.is_some()
    }

    fn has_usable(&self, is_wanted: impl Fn(&PathView) -> bool) -> bool {
        self.paths.iter().any(|path| path.usable && is_wanted(path))
    }

    /// Counts what an order sent against what may be sent again.
    fn on_order_sent(&mut self, order: &Order, sent: u64, new: u64) {
        if order.is_repeat() {
            self.repeats = self.repeats.saturating_sub(sent.saturating_sub(new));
        }
        self.repeats = self.repeats.saturating_add(new.saturating_mul(REPEATS));
    }

    /// True if the path can carry a copy some time, and not too many wait for it.
    fn has_room_for_copy(&self, path: PathId) -> bool {
        let is_known = self.paths.iter().any(|view| view.id == path);
        let waiting = self.copies.iter().filter(|copy| copy.path == path);
        is_known && self.repeats > 0 && waiting.count() < MAX_COPIES
    }

    /// Gives memory back.
    pub(super) fn rest(&mut self) {
        self.paths.shrink_to_fit();
        self.streams.shrink_to_fit();
        self.unacked.shrink_to_fit();
        self.copies.shrink_to_fit();
    }

    fn forget_views(&mut self) {
        self.paths.clear();
        self.streams.clear();
        self.unacked.clear();
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
            || (self.handshake.crypto.as_ref()).is_some_and(|crypto| crypto.wants_to_send())
            || self.wants_management()
    }

    /// True if connection or paths have frames of their own to send.
    pub(super) fn wants_management(&self) -> bool {
        self.handshake.done_pending
            || self.handshake.new_token.is_some()
            || self.paths.shared.ack_frequencies.wants_to_send()
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
        self.outbox
            .scheduler_events()
            .extend(self.streams.drain_news());
        let has_data = self.has_movable();
        let blocked = self.streams.wants_data() && !self.streams.can_send_data();
        self.movable.on_flow_control(blocked, &mut self.outbox);
        if !has_data && self.movable.copies.is_empty() {
            self.note_app_limited();
            if !self.movable.needs.unacked && self.outbox.scheduler_events().is_empty() {
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
        let random = self.quick_random.next();
        let mut queue = self.streams.queue_view();
        queue.control = self.has_control();
        queue.idle = !has_data;
        // A path that is gone takes its copies with it.
        for event in self.outbox.scheduler_events() {
            if let SchedulerEvent::PathRemoved(path) = event {
                self.movable.copies.retain(|copy| copy.path != *path);
            }
        }
        let Movable {
            scheduler,
            paths,
            streams,
            unacked,
            ..
        } = &mut self.movable;
        let (events, controller) = self.outbox.scheduler_news();
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
        let urgent = queue.control || queue.retransmit > 0;
        self.movable.enforce(decision, now, urgent)
    }

    fn transmit_order(
        &mut self,
        now: Instant,
        mut order: Order,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let copies = std::mem::take(&mut order.copies);
        let transmit = self.transmit_counted(now, &order, max_datagrams, buf);
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
        self.transmit_counted(now, &order, 1, buf)
    }

    /// Carries out an order and counts what it repeated.
    fn transmit_counted(
        &mut self,
        now: Instant,
        order: &Order,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let before = self.streams.unsent();
        let transmit = self.transmit_batch(now, order, max_datagrams, buf)?;
        let new = before.saturating_sub(self.streams.unsent());
        self.movable.on_order_sent(order, transmit.size as u64, new);
        Some(transmit)
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
                for (index, path) in copies.iter().enumerate() {
                    let is_new = *path != order.path && !copies[..index].contains(path);
                    if is_new && self.movable.has_room_for_copy(*path) {
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
            let order = Order {
                data,
                tag,
                ..Order::next(path)
            };
            if let Some(transmit) = self.transmit_counted(now, &order, 1, buf) {
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
        if views.capacity() == 0 {
            views.reserve_exact(1);
        }
        for slot in self.paths.slots_mut() {
            let status = slot.statuses().effective();
            if let Some(path) = slot.open_mut().filter(|path| path.is_usable()) {
                views.push(path.view(status, now, &self.outbox.controller, pacing));
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
            if used <= self.outbox.controller.window(path.id) {
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
