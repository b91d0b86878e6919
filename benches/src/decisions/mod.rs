//! Decisions of a scheduler in transfers over busy paths: recorded once, and played again without
//! the world around the scheduler.
//!
//! A view of idle paths shows only the branch that all schedulers share: the fastest path has room
//! and carries the data. In the transfers here, the window of every path is full most of the time,
//! so each acknowledgement asks whether the data takes the freed path or waits for another one.

mod transfer;

use std::time::Instant;

use mpquic_core::congestion::Controller;
use mpquic_core::sched::{
    Decision, Needs, PathView, QueueView, Scheduler, SchedulerEvent, SchedulerFactory, StreamView,
    UnackedRange, View,
};

use transfer::Transfer;

/// The part of a view that changes from decision to decision.
#[derive(Debug, Clone)]
struct Scene {
    now: Instant,
    random: u64,
    queue: QueueView,
    paths: Vec<PathView>,
    streams: Vec<StreamView>,
    unacked: Vec<UnackedRange>,
}

impl Scene {
    /// The parts that a scheduler with these needs is shown.
    fn view<'a>(&'a self, controller: &'a dyn Controller, needs: Needs) -> View<'a> {
        let mut view = View::new(self.now, &self.paths, controller);
        if needs.unacked {
            view = view.with_unacked(&self.unacked);
        }
        if needs.streams {
            view.streams = &self.streams;
        }
        view.queue = self.queue;
        view.random = self.random;
        view
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Path(index, path) => self.paths[*index] = *path,
            Change::Stream(index, stream) => self.streams[*index] = *stream,
            Change::StreamEnds(index) => {
                self.streams.remove(*index);
            }
            Change::StreamBegins(stream) => self.streams.push(*stream),
            Change::Sent(range) => self.unacked.push(range.clone()),
            Change::Settled(index) => {
                self.unacked.remove(*index);
            }
        }
    }
}

/// One change of a [`Scene`]. A replay applies few of them for each decision, so that the scene
/// stays in the processor's cache as in a connection.
#[derive(Debug, Clone)]
enum Change {
    Path(usize, PathView),
    Stream(usize, StreamView),
    StreamEnds(usize),
    StreamBegins(StreamView),
    Sent(UnackedRange),
    /// The range was acknowledged or declared lost.
    Settled(usize),
}

impl Change {
    /// Whether a scheduler with these needs sees the change.
    fn is_shown(&self, needs: Needs) -> bool {
        match self {
            Self::Path(..) => true,
            Self::Stream(..) | Self::StreamEnds(_) | Self::StreamBegins(_) => needs.streams,
            Self::Sent(_) | Self::Settled(_) => needs.unacked,
        }
    }
}

/// The input of one decision.
#[derive(Debug, Clone)]
struct Step {
    now: Instant,
    random: u64,
    queue: QueueView,
    changes: Vec<Change>,
    events: Vec<SchedulerEvent>,
    decision: Decision,
}

/// How often a case occurred in a [`Record`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Decisions.
    pub decisions: u64,
    /// Decisions that differ from the answer of lowest-RTT-first to the same view. Such a decision
    /// comes from a branch of the scheduler's own.
    pub own: u64,
    /// Decisions for waiting data while the path with the lowest RTT was full.
    pub fast_full: u64,
    /// Decisions to wait although a path could send.
    pub waits: u64,
    /// Decisions without waiting data, when only a repetition can be sent.
    pub idle: u64,
    /// Decisions while lost bytes wait, which come before all plans for streams.
    pub lost_waiting: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets acknowledged.
    pub acked: u64,
    /// Packets lost.
    pub lost: u64,
}

/// Decisions of one scheduler, with their inputs.
#[derive(Debug)]
pub struct Record {
    start: Scene,
    steps: Vec<Step>,
    /// What happened.
    pub counts: Counts,
}

impl Record {
    /// This many decisions of a scheduler on some paths, for transfers of some streams at a time.
    ///
    /// # Panics
    ///
    /// If the scheduler stops a transfer.
    pub fn new(factory: &dyn SchedulerFactory, paths: u32, streams: u64, decisions: usize) -> Self {
        Transfer::new(factory.build(), paths, streams).run(decisions)
    }
}

/// Plays a [`Record`] over and over, each time with a new scheduler.
pub struct Replay<'a> {
    record: &'a Record,
    factory: &'a dyn SchedulerFactory,
    controller: Box<dyn Controller>,
    scene: Scene,
    scheduler: Box<dyn Scheduler>,
    next: usize,
}

impl<'a> Replay<'a> {
    /// A replay of decisions that schedulers of this kind made.
    pub fn new(record: &'a Record, factory: &'a dyn SchedulerFactory) -> Self {
        Self {
            record,
            factory,
            controller: transfer::controller(&record.start.paths, record.start.now),
            scene: record.start.clone(),
            scheduler: factory.build(),
            next: 0,
        }
    }

    /// The next decision, as made now and as recorded.
    pub fn decide(&mut self) -> (Decision, &'a Decision) {
        let step = self.advance();
        let view = self.scene.view(&*self.controller, self.scheduler.needs());
        for event in &step.events {
            self.scheduler.on_event(event, &view);
        }
        (self.scheduler.select(&view), &step.decision)
    }

    /// Prepares the next decision and does not ask the scheduler.
    fn advance(&mut self) -> &'a Step {
        if self.next == self.record.steps.len() {
            self.scene.clone_from(&self.record.start);
            self.scheduler = self.factory.build();
            self.next = 0;
        }
        let step = &self.record.steps[self.next];
        self.next += 1;
        (self.scene.now, self.scene.random, self.scene.queue) = (step.now, step.random, step.queue);
        for change in &step.changes {
            self.scene.apply(change);
        }
        step
    }

    /// Prepares the next decision, without a scheduler: the share of a replay in the time of
    /// [`Self::decide`].
    pub fn skip(&mut self) -> Instant {
        self.advance();
        self.scene.now
    }
}
