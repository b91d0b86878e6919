//! The connection's scheduler and controller, wrapped against harm: answers are limited to allowed
//! values, and a policy is not asked again after a panic.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::config::TransportConfig;
use crate::congestion::{
    Acked, CongestionEvent, Controller, MAX_WINDOW, ResumePhase, SavedCapacity, Sent,
};
use crate::ids::PathId;
use crate::path_map::PathMap;
use crate::sched::{Decision, Needs, Scheduler, SchedulerEvent, View};

/// Datagrams in the smallest window (RFC 9002 section 7.2).
const MIN_WINDOW: u64 = 2;

/// A policy that may panic.
struct Contained<T: ?Sized> {
    policy: Box<T>,
    /// Which policy it is, for the log.
    role: &'static str,
    /// Whether panics are caught.
    contain: bool,
    /// Whether it has panicked.
    broken: Cell<bool>,
}

impl<T: ?Sized> Contained<T> {
    fn new(policy: Box<T>, role: &'static str, contain: bool) -> Self {
        Self {
            policy,
            role,
            contain,
            broken: Cell::new(false),
        }
    }

    /// The policy's answer, or `otherwise` after a panic.
    fn ask<R>(&self, otherwise: R, question: impl FnOnce(&T) -> R) -> R {
        if !self.contain {
            return question(&self.policy);
        }
        if self.broken.get() {
            return otherwise;
        }
        // The policy is not used again after a panic, so a broken state does not matter.
        let answer = catch_unwind(AssertUnwindSafe(|| question(&self.policy)));
        answer.unwrap_or_else(|_| self.fail(otherwise))
    }

    /// Calls the policy, which may change its state; returns `otherwise` after a panic.
    fn call<R>(&mut self, otherwise: R, call: impl FnOnce(&mut T) -> R) -> R {
        if !self.contain {
            return call(&mut self.policy);
        }
        if self.broken.get() {
            return otherwise;
        }
        let policy = &mut self.policy;
        let answer = catch_unwind(AssertUnwindSafe(|| call(policy)));
        answer.unwrap_or_else(|_| self.fail(otherwise))
    }

    #[cold]
    fn fail<R>(&self, otherwise: R) -> R {
        tracing::error!("the {} panicked and is not asked again", self.role);
        self.broken.set(true);
        otherwise
    }
}

impl<T: ?Sized> fmt::Debug for Contained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role)
    }
}

/// The scheduler.
#[derive(Debug)]
pub(crate) struct GuardedScheduler(Contained<dyn Scheduler>);

impl GuardedScheduler {
    pub(crate) fn new(config: &TransportConfig) -> Self {
        Self::of(config.scheduler.build(), config.contain_panics)
    }

    /// Another scheduler than the configured one.
    pub(crate) fn of(scheduler: Box<dyn Scheduler>, contain_panics: bool) -> Self {
        Self(Contained::new(scheduler, "scheduler", contain_panics))
    }

    pub(crate) fn needs(&self) -> Needs {
        self.0.ask(Needs::default(), |scheduler| scheduler.needs())
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.0.ask(None, |scheduler| scheduler.next_timeout())
    }

    pub(crate) fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.0.call((), |scheduler| scheduler.on_event(event, view));
    }

    /// `None` once it panicked.
    pub(crate) fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        self.0.call(None, |scheduler| Some(scheduler.select(view)))
    }
}

/// The controller. Windows are at least two datagrams and at most [`MAX_WINDOW`]; once it panicked
/// they are two datagrams.
#[derive(Debug)]
pub(crate) struct GuardedController {
    controller: Contained<dyn Controller>,
    /// Largest datagram of each path.
    mtus: PathMap<u16>,
}

impl GuardedController {
    pub(crate) fn new(config: &TransportConfig) -> Self {
        let controller = config.controller.build();
        Self {
            controller: Contained::new(controller, "controller", config.contain_panics),
            mtus: PathMap::new(),
        }
    }

    /// Puts another controller in the place of the present one. The new controller starts with the
    /// open paths.
    pub(crate) fn replace(&mut self, controller: Box<dyn Controller>, now: Instant) {
        let contain = self.controller.contain;
        self.controller = Contained::new(controller, "controller", contain);
        for (path, mtu) in self.mtus.iter() {
            self.controller
                .call((), |inner| inner.on_path_opened(path, now, *mtu));
        }
    }

    /// The smallest window of an open path.
    fn min_window(&self, path: PathId) -> Option<u64> {
        let mtu = *self.mtus.get(path)?;
        Some(MIN_WINDOW * u64::from(mtu))
    }
}

impl Controller for GuardedController {
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        self.mtus.insert(path, mtu);
        self.controller
            .call((), |inner| inner.on_path_opened(path, now, mtu));
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.mtus.remove(path);
        self.controller.call((), |inner| inner.on_path_closed(path));
    }

    fn resume(&mut self, path: PathId, now: Instant, saved: SavedCapacity) {
        self.controller
            .call((), |inner| inner.resume(path, now, saved));
    }

    fn resume_phase(&self, path: PathId) -> ResumePhase {
        let broken = ResumePhase::Normal;
        self.controller
            .ask(broken, |inner| inner.resume_phase(path))
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        self.mtus.insert(path, mtu);
        self.controller
            .call((), |inner| inner.on_mtu_update(path, mtu));
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        self.controller
            .call((), |inner| inner.on_packet_sent(path, sent));
    }

    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        self.controller.call((), |inner| inner.on_ack(path, ack));
    }

    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        self.controller
            .call((), |inner| inner.on_congestion_event(path, event));
    }

    fn window(&self, path: PathId) -> u64 {
        let Some(least) = self.min_window(path) else {
            return 0;
        };
        let window = self.controller.ask(least, |inner| inner.window(path));
        window.clamp(least, MAX_WINDOW)
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.controller
            .ask(None, |inner| inner.slow_start_threshold(path))
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.controller.ask(false, |inner| inner.in_recovery(path))
    }

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        self.controller.ask(None, |inner| inner.pacing_rate(path))
    }

    fn burst(&self, path: PathId) -> Option<u64> {
        self.controller.ask(None, |inner| inner.burst(path))
    }

    fn send_quantum(&self, path: PathId) -> Option<u64> {
        self.controller.ask(None, |inner| inner.send_quantum(path))
    }

    fn acks_per_window(&self) -> u64 {
        self.controller
            .ask(1, |inner| inner.acks_per_window())
            .max(1)
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        let least = self.min_window(path).unwrap_or(0);
        let window = self
            .controller
            .ask(least, |inner| inner.window_after_round(path, windows));
        window.min(MAX_WINDOW)
    }

    fn memory(&self) -> u64 {
        self.controller.ask(0, |inner| inner.memory())
    }

    fn name(&self) -> &'static str {
        self.controller.ask("broken", |inner| inner.name())
    }
}
