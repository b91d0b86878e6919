//! [`SchedulerHost`]: asks the scheduler which path carries which data, and makes sure that the
//! answer keeps the rules. A wrong scheduler costs speed, never correctness.

use std::time::{Duration, Instant};

use super::assignment::Assignment;
use super::copies::Copies;
use super::parts::Parts;
use super::turns::{Turn, Turns};
use super::views::Views;
use crate::config::TransportConfig;
use crate::guarded::GuardedScheduler;
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::path::set::Paths;
use crate::path::view::Allowance;
use crate::random::QuickRandom;
use crate::sched::{
    DataSelection, Decision, Needs, PathView, SchedulerEvent, UnackedRange, UnackedView, View,
};
use crate::unacked::Unacked;

/// How long a scheduler may wait for a point in time while nothing is in flight that could end the
/// wait earlier.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Shortest time between two timers of the scheduler, and shortest wait for a point in time.
const TIMER_INTERVAL: Duration = Duration::from_millis(1);
/// The most decisions in a row for particular streams while something more urgent waits.
const MAX_PASSED_OVER: u32 = 64;
/// Data waiting for any path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Anything waits.
    pub(crate) any: bool,
    /// Data other than stream data waits.
    pub(crate) control: bool,
    /// Frames other than STREAM and DATAGRAM wait.
    pub(crate) frames: bool,
    /// The last assignment could not be carried out.
    pub(crate) again: bool,
}

/// The scheduler, and the state needed to check its decisions.
#[derive(Debug)]
pub(crate) struct SchedulerHost {
    scheduler: GuardedScheduler,
    /// The parts of the view and the events for which the scheduler asks.
    pub(crate) needs: Needs,
    views: Views,
    /// Memory for [`View::unacked`].
    unacked: Vec<UnackedRange>,
    random: QuickRandom,
    copies: Copies,
    /// The last assignment, if it was a copy or a reinjection.
    repetition: Option<Assignment>,
    turns: Turns,
    /// When the scheduler's last [`Decision::Wait`] ends.
    wait_until: Option<Instant>,
    /// Start of the current run of waits with nothing in flight.
    waits_since: Option<Instant>,
    /// Earliest time of the next Timer event.
    timer_opens: Option<Instant>,
    /// Number of assignments in a row that passed over the most urgent data.
    passed_over: u32,
    /// The scheduler was told that flow control blocks sending.
    flow_blocked: bool,
    /// Data waits only for this path's pacer.
    pacing: Option<(Instant, PathId)>,
}

impl SchedulerHost {
    /// The configured scheduler; `seed` is for choices that need not be secret.
    pub(crate) fn new(config: &TransportConfig, seed: u64) -> Self {
        let scheduler = GuardedScheduler::new(config);
        Self {
            needs: scheduler.needs(),
            scheduler,
            views: Views::default(),
            unacked: Vec::new(),
            random: QuickRandom::new(seed),
            copies: Copies::new(config.max_redundancy),
            repetition: None,
            turns: Turns::new(),
            wait_until: None,
            waits_since: None,
            timer_opens: None,
            passed_over: 0,
            flow_blocked: false,
            pacing: None,
        }
    }

    /// Puts another scheduler in the place of the present one. The new scheduler hears of the open
    /// paths first.
    pub(crate) fn replace(
        &mut self,
        scheduler: GuardedScheduler,
        paths: &Paths,
        outbox: &mut Outbox,
    ) {
        self.needs = scheduler.needs();
        self.scheduler = scheduler;
        (self.wait_until, self.waits_since, self.timer_opens) = (None, None, None);
        (self.flow_blocked, self.passed_over) = (false, 0);
        let known = paths.iter().filter(|path| path.is_established());
        let added = known.map(|path| SchedulerEvent::PathAdded(path.id));
        outbox.greet_scheduler(self.needs, added);
    }

    /// A random choice that may be predictable.
    pub(crate) fn toss(&mut self) -> bool {
        self.random.next() & 1 == 0
    }

    /// The parts of the view that the scheduler needs for these paths.
    fn shown(&self, paths: &Paths) -> Needs {
        self.needs.with_paths(paths.existing().take(2).count())
    }

    /// The next assignment, with the allowance of its path: waiting copies first, then in turn data
    /// that the application has bound to a path and data that the scheduler assigns, then the
    /// replacement of a failed decision. `None` to send nothing now.
    pub(crate) fn assign(
        &mut self,
        now: Instant,
        demand: Demand,
        parts: &mut Parts<'_>,
    ) -> Option<(Assignment, Allowance)> {
        if !demand.again && !self.survey(now, demand, parts) {
            return None;
        }
        let Some(assignment) = self.next(now, demand, parts) else {
            self.pacing = self.views.first_pacer(|path| parts.has_bound(path));
            return None;
        };
        self.repetition = assignment.repeats().then(|| assignment.clone());
        let allowance = self.views.allowance(assignment.path)?;
        Some((assignment, allowance))
    }

    /// Takes in what came of the last assignment, and collects the state of the paths; false if
    /// nothing may be sent.
    fn survey(&mut self, now: Instant, demand: Demand, parts: &mut Parts<'_>) -> bool {
        let assigned = self.repetition.take();
        self.copies.settle(assigned, &self.views, parts);
        // Copies of DATAGRAMs are bound to paths from now on.
        let has_bound = parts.review_bound();
        self.views.clear();
        self.pacing = None;
        let Parts {
            paths,
            streams,
            outbox,
            ..
        } = parts;
        outbox.scheduler_events().extend(streams.drain_news());
        self.on_flow_control(streams.wants_data() && !streams.can_send_data(), outbox);
        if !demand.any && !has_bound && self.copies.is_empty() {
            paths.note_app_limited(&outbox.controller);
            if !self.shown(paths).unacked && outbox.scheduler_events().is_empty() {
                return false;
            }
        }
        let shown = self.shown(paths).streams.then_some(&**streams);
        self.views.fill(now, paths, shown, &outbox.controller);
        self.turns.begin(has_bound);
        true
    }

    /// The next assignment to try.
    fn next(&mut self, now: Instant, demand: Demand, parts: &mut Parts<'_>) -> Option<Assignment> {
        if let Some(copy) = self.copies.next(&self.views) {
            return Some(copy);
        }
        while let Some(turn) = self.turns.take() {
            let assignment = match turn {
                Turn::Bound => self.next_bound(parts),
                Turn::Scheduler => self.decide(now, demand, parts),
                Turn::SecondChoice => self.turns.take_second_choice(),
            };
            if assignment.is_some() {
                return assignment;
            }
        }
        None
    }

    /// Bound data of a path that can send it, the paths in turn.
    fn next_bound(&mut self, parts: &Parts<'_>) -> Option<Assignment> {
        let able = parts.bound_paths();
        let able = able.filter(|path| self.views.can_send_bound(*path));
        self.turns.next_bound(able)
    }

    fn on_flow_control(&mut self, blocked: bool, outbox: &mut Outbox) {
        if blocked && !self.flow_blocked {
            outbox.scheduler_event(SchedulerEvent::FlowControlBlocked);
        }
        self.flow_blocked = blocked;
    }

    /// Tells the scheduler what happened, then asks it.
    fn decide(
        &mut self,
        now: Instant,
        demand: Demand,
        parts: &mut Parts<'_>,
    ) -> Option<Assignment> {
        let Parts {
            paths,
            streams,
            datagrams,
            outbox,
        } = parts;
        let (paths, streams) = (&**paths, &**streams);
        let mut queue = streams.queue_view();
        queue.control = demand.control;
        queue.datagrams = datagrams.unsent();
        queue.idle = !demand.any;
        let (events, controller) = outbox.scheduler_news();
        let unacked = Unacked::new(paths, streams, &mut self.unacked);
        let view = View {
            now,
            paths: &self.views.paths,
            queue,
            streams: &self.views.streams,
            unacked: if self.shown(paths).unacked {
                UnackedView::Lazy(&unacked)
            } else {
                UnackedView::default()
            },
            controller,
            random: self.random.next(),
        };
        for event in events.drain(..) {
            self.copies.on_event(&event);
            self.scheduler.on_event(&event, &view);
        }
        let can_send = self.views.paths.iter().any(PathView::can_send);
        let has_work = can_send && (demand.any || view.has_unacked());
        let decision = has_work.then(|| self.scheduler.select(&view));
        self.unacked = unacked.into_memory();
        let decision = decision?;
        tracing::trace!(?decision, "scheduler");
        let urgent = |data: Option<&DataSelection>| {
            let control = match data {
                Some(DataSelection::Datagram | DataSelection::DatagramsBehind(_)) => demand.frames,
                _ => queue.control,
            };
            control || queue.retransmit > 0
        };
        let mut assignment = self.enforce(decision, now, urgent)?;
        // The application's word counts more than the scheduler's.
        let path = assignment.stream().and_then(|id| streams.path_of(id));
        if path.is_some_and(|path| path != assignment.path) {
            assignment.data = Some(DataSelection::Next);
        }
        self.turns.on_decided(&assignment);
        Some(assignment)
    }

    /// Turns an answer into an assignment that keeps the rules; `None` to send nothing now.
    /// `urgent` tells whether something waits that [`DataSelection::Next`] would send before a
    /// selection.
    fn enforce(
        &mut self,
        decision: Option<Decision>,
        now: Instant,
        urgent: impl Fn(Option<&DataSelection>) -> bool,
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
        // Otherwise the chosen path cannot send, or the wait would never end.
        let mut assignment = match wanted {
            Some(wanted) => wanted,
            None => Assignment::next(self.views.fastest()?),
        };
        if is_broken {
            assignment.max_bytes = u64::MAX;
        }
        self.waits_since = None;
        let may_repeat = self.copies.may_repeat() || !assignment.is_repeat();
        if self.passed_over >= MAX_PASSED_OVER || !may_repeat {
            assignment.data = Some(DataSelection::Next);
        }
        let passes_over =
            urgent(assignment.data.as_ref()) && assignment.data != Some(DataSelection::Next);
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

    /// The path whose pacer alone holds data back, and when it allows more.
    pub(crate) fn pacing(&self) -> Option<(Instant, PathId)> {
        self.pacing
    }

    /// When the scheduler has to be asked again.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
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

    pub(crate) fn on_timeout(&mut self, now: Instant, outbox: &mut Outbox) {
        if self.wait_until.is_some_and(|until| until <= now) {
            self.wait_until = None;
        }
        if self.scheduler_timeout().is_some_and(|until| until <= now) {
            self.timer_opens = Some(now + TIMER_INTERVAL);
            outbox.scheduler_event(SchedulerEvent::Timer);
        }
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.views.trim();
        self.unacked.shrink_to_fit();
        self.copies.trim();
    }
}
