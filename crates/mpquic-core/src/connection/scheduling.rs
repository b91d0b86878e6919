//! [`SchedulerHost`]: asks the scheduler which path carries which data, and makes sure that the
//! answer keeps the rules. A wrong scheduler costs speed, never correctness.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::assignment::Assignment;
use super::views::Views;
use crate::config::TransportConfig;
use crate::guarded::GuardedScheduler;
use crate::ids::PathId;
use crate::outbox::{Outbox, Train};
use crate::packet::delivery::{Delivery, StreamDelivery};
use crate::path::set::Paths;
use crate::path::view::Allowance;
use crate::random::QuickRandom;
use crate::sched::{
    DataSelection, Decision, Needs, PathView, SchedulerEvent, UnackedRange, UnackedView, View,
};
use crate::stream::set::StreamSet;
use crate::unacked::Unacked;

/// The most copies that wait for the window of one path.
const MAX_COPIES: usize = 256;
/// How long a scheduler may wait for a point in time while nothing is in flight that could end the
/// wait earlier.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Shortest time between two timers of the scheduler, and shortest wait for a point in time.
const TIMER_INTERVAL: Duration = Duration::from_millis(1);
/// The most decisions in a row for particular streams while something more urgent waits.
const MAX_PASSED_OVER: u32 = 64;
/// How many bytes a scheduler may send again for each byte that is sent for the first time,
const REPEATS: u64 = 16;
/// and before any.
const FREE_REPEATS: u64 = 1 << 16;

/// What waits to be sent and may be carried by any path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Anything waits.
    pub(super) any: bool,
    /// Something other than stream data waits.
    pub(super) control: bool,
    /// What was just assigned could not be carried out.
    pub(super) again: bool,
}

/// A copy of stream data that the scheduler asked for.
#[derive(Debug)]
struct PendingCopy {
    path: PathId,
    data: DataSelection,
    tag: u64,
}

/// The scheduler, and the state needed to check its decisions.
#[derive(Debug)]
pub(super) struct SchedulerHost {
    scheduler: GuardedScheduler,
    /// What the scheduler wants to be told.
    pub(super) needs: Needs,
    views: Views,
    /// Memory for [`View::unacked`].
    unacked: Vec<UnackedRange>,
    random: QuickRandom,
    copies: VecDeque<PendingCopy>,
    /// What was assigned last, if it sends bytes more than once.
    repetition: Option<Assignment>,
    /// The scheduler has not been asked yet since [`Self::survey`].
    undecided: bool,
    /// What to do if its decision can't be carried out.
    instead: Option<Assignment>,
    /// When the scheduler's last [`Decision::Wait`] ends.
    wait_until: Option<Instant>,
    /// Start of the current run of waits with nothing in flight.
    waits_since: Option<Instant>,
    /// Earliest time of the next Timer event.
    timer_opens: Option<Instant>,
    /// Number of assignments in a row that passed over what is most urgent.
    passed_over: u32,
    /// How many bytes the scheduler may send again.
    repeats: u64,
    /// The scheduler was told that flow control blocks sending.
    flow_blocked: bool,
    /// Data waits only for this path's pacer.
    pacing: Option<(Instant, PathId)>,
}

impl SchedulerHost {
    /// The configured scheduler; `seed` is for choices that need not be secret.
    pub(super) fn new(config: &TransportConfig, seed: u64) -> Self {
        let scheduler = GuardedScheduler::new(config);
        Self {
            needs: scheduler.needs(),
            scheduler,
            views: Views::default(),
            unacked: Vec::new(),
            random: QuickRandom::new(seed),
            copies: VecDeque::new(),
            repetition: None,
            undecided: true,
            instead: None,
            wait_until: None,
            waits_since: None,
            timer_opens: None,
            passed_over: 0,
            repeats: FREE_REPEATS,
            flow_blocked: false,
            pacing: None,
        }
    }

    /// A random choice that may be predictable.
    pub(super) fn toss(&mut self) -> bool {
        self.random.next() & 1 == 0
    }

    /// What the scheduler wants to see of these paths.
    fn shown(&self, paths: &Paths) -> Needs {
        self.needs.with_paths(paths.existing().take(2).count())
    }

    /// What to send on which path: copies that wait, then what the scheduler decides, then something
    /// else on the same path; and what that path allows. `None` to send nothing now.
    pub(super) fn assign(
        &mut self,
        now: Instant,
        demand: Demand,
        paths: &mut Paths,
        streams: &mut StreamSet,
        outbox: &mut Outbox,
    ) -> Option<(Assignment, Allowance)> {
        if !demand.again && !self.survey(now, demand, paths, streams, outbox) {
            return None;
        }
        let Some(assignment) = self.next(now, demand, paths, streams, outbox) else {
            self.pacing = self.views.first_pacer();
            return None;
        };
        self.repetition = assignment.repeats().then(|| assignment.clone());
        let allowance = self.views.allowance(assignment.path)?;
        Some((assignment, allowance))
    }

    /// Takes in what came of the last assignment, and collects the state of the paths; false if
    /// nothing may be sent.
    fn survey(
        &mut self,
        now: Instant,
        demand: Demand,
        paths: &mut Paths,
        streams: &mut StreamSet,
        outbox: &mut Outbox,
    ) -> bool {
        outbox.stats.bytes_repeated += self.settle_train(&mut outbox.train);
        self.views.clear();
        self.pacing = None;
        outbox.scheduler_events().extend(streams.drain_news());
        self.on_flow_control(streams.wants_data() && !streams.can_send_data(), outbox);
        if !demand.any && self.copies.is_empty() {
            paths.note_app_limited(&outbox.controller);
            if !self.shown(paths).unacked && outbox.scheduler_events().is_empty() {
                return false;
            }
        }
        let shown = self.shown(paths).streams.then_some(&*streams);
        self.views.fill(now, paths, shown, &outbox.controller);
        self.undecided = true;
        self.instead = None;
        true
    }

    /// What to try next.
    fn next(
        &mut self,
        now: Instant,
        demand: Demand,
        paths: &Paths,
        streams: &StreamSet,
        outbox: &mut Outbox,
    ) -> Option<Assignment> {
        if let Some(copy) = self.next_copy(streams) {
            return Some(copy);
        }
        if std::mem::take(&mut self.undecided) {
            let decided = self.decide(now, demand, paths, streams, outbox);
            self.instead = decided.as_ref().and_then(Assignment::instead);
            return decided;
        }
        self.instead.take()
    }

    fn on_flow_control(&mut self, blocked: bool, outbox: &mut Outbox) {
        if blocked && !self.flow_blocked {
            outbox.scheduler_event(SchedulerEvent::FlowControlBlocked);
        }
        self.flow_blocked = blocked;
    }

    /// A copy whose path has room. One whose original arrived is dropped.
    fn next_copy(&mut self, streams: &StreamSet) -> Option<Assignment> {
        while let Some(index) = self
            .copies
            .iter()
            .position(|copy| self.views.can_send(copy.path))
        {
            let PendingCopy { path, data, tag } = self.copies.remove(index)?;
            if let DataSelection::Range { id, offsets } = &data
                && streams.is_unacked(*id, offsets.clone())
            {
                return Some(Assignment {
                    data,
                    tag,
                    ..Assignment::next(path)
                });
            }
        }
        None
    }

    /// Tells the scheduler what happened, then asks it.
    fn decide(
        &mut self,
        now: Instant,
        demand: Demand,
        paths: &Paths,
        streams: &StreamSet,
        outbox: &mut Outbox,
    ) -> Option<Assignment> {
        let mut queue = streams.queue_view();
        queue.control = demand.control;
        queue.idle = !demand.any;
        let (events, controller) = outbox.scheduler_news();
        let unacked = Unacked::new(paths, streams, &mut self.unacked);
        let view = View {
            now,
            paths: &self.views.paths,
            queue,
            streams: &self.views.streams,
            unacked: match self.shown(paths).unacked {
                true => UnackedView::Lazy(&unacked),
                false => UnackedView::default(),
            },
            controller,
            random: self.random.next(),
        };
        for event in events.drain(..) {
            if let SchedulerEvent::PathRemoved(path) = event {
                self.copies.retain(|copy| copy.path != path);
            }
            self.scheduler.on_event(&event, &view);
        }
        let can_send = self.views.paths.iter().any(PathView::can_send);
        let has_work = can_send && (demand.any || view.has_unacked());
        let decision = has_work.then(|| self.scheduler.select(&view));
        self.unacked = unacked.into_memory();
        let decision = decision?;
        tracing::trace!(?decision, "scheduler");
        let urgent = queue.control || queue.retransmit > 0;
        self.enforce(decision, now, urgent)
    }

    /// Turns an answer into an assignment that keeps the rules; `None` to send nothing now. With
    /// `urgent`, something waits that [`DataSelection::Next`] would send first.
    fn enforce(
        &mut self,
        decision: Option<Decision>,
        now: Instant,
        urgent: bool,
    ) -> Option<Assignment> {
        self.wait_until = None;
        let is_broken = decision.is_none();
        let wanted = match decision {
            Some(Decision::Wait { on, until }) if self.may_wait(on, until, now) => return None,
            Some(Decision::Blocked) if self.views.has_usable(|path| path.in_flight > 0) => {
                return None;
            }
            Some(decision) => Assignment::of(decision),
            None => None,
        };
        let wanted = wanted.filter(|wanted| self.views.can_send(wanted.path));
        // Otherwise a path was chosen that cannot send, or nothing would ever change.
        let mut assignment = match wanted {
            Some(wanted) => wanted,
            None => Assignment::next(self.views.fastest()?),
        };
        if is_broken {
            assignment.max_bytes = u64::MAX;
        }
        self.waits_since = None;
        let may_repeat = self.repeats > 0 || !assignment.is_repeat();
        if self.passed_over >= MAX_PASSED_OVER || !may_repeat {
            assignment.data = DataSelection::Next;
        }
        let passes_over = urgent && assignment.data != DataSelection::Next;
        self.passed_over = if passes_over { self.passed_over + 1 } else { 0 };
        Some(assignment)
    }

    /// True if the wait is certain to end: by an acknowledgement or a probe timeout on the path
    /// that is waited for, or at a point in time that is not too late.
    fn may_wait(&mut self, on: PathId, until: Option<Instant>, now: Instant) -> bool {
        let until = until.filter(|until| *until > now);
        let until = until.map(|until| until.max(now + TIMER_INTERVAL));
        if self
            .views
            .has_usable(|path| path.id == on && path.in_flight > 0)
        {
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

    /// Counts what was sent for the limit on repetitions, and queues the copies that other paths are
    /// to carry. Returns the bytes that were repeated.
    fn settle_train(&mut self, train: &mut Train) -> u64 {
        let Train { bytes, new, .. } = *train;
        (train.bytes, train.new) = (0, 0);
        self.repeats = self.repeats.saturating_add(new.saturating_mul(REPEATS));
        let Some(repetition) = self.repetition.take() else {
            return 0;
        };
        let mut repeated = 0;
        if repetition.is_repeat() {
            repeated = bytes.saturating_sub(new);
            self.repeats = self.repeats.saturating_sub(repeated);
        }
        for delivery in train.content.drain(..) {
            self.queue_copies(&repetition, &delivery);
        }
        repeated
    }

    /// Queues copies of stream bytes just sent for other paths.
    fn queue_copies(&mut self, assignment: &Assignment, delivery: &Delivery) {
        let Delivery::Stream(StreamDelivery::Data {
            id, offset, length, ..
        }) = *delivery
        else {
            return;
        };
        let offsets = offset..offset + u64::from(length);
        let copies = &assignment.copies;
        for (index, path) in copies.iter().enumerate() {
            let is_new = *path != assignment.path && !copies[..index].contains(path);
            if is_new && self.has_room_for_copy(*path) {
                self.copies.push_back(PendingCopy {
                    path: *path,
                    data: DataSelection::Range {
                        id,
                        offsets: offsets.clone(),
                    },
                    tag: assignment.tag,
                });
            }
        }
    }

    /// True if the path can carry a copy now or later, and not too many wait for it.
    fn has_room_for_copy(&self, path: PathId) -> bool {
        let waiting = self.copies.iter().filter(|copy| copy.path == path);
        let is_known = self.views.allowance(path).is_some();
        is_known && self.repeats > 0 && waiting.count() < MAX_COPIES
    }

    /// The path whose pacer alone holds data back, and when it allows more.
    pub(super) fn pacing(&self) -> Option<(Instant, PathId)> {
        self.pacing
    }

    /// When the scheduler has to be asked again.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.wait_until, self.scheduler_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The scheduler's timer, limited to one event in each [`TIMER_INTERVAL`].
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

    /// Frees memory that is kept for reuse.
    pub(super) fn trim(&mut self) {
        self.views.trim();
        self.unacked.shrink_to_fit();
        self.copies.shrink_to_fit();
    }
}
