//! [`Policies`]: the scheduler and the congestion controller of a connection that runs.

use std::time::Instant;

use super::host::SchedulerHost;
use crate::config::TransportConfig;
use crate::congestion::ControllerFactory;
use crate::guarded::GuardedScheduler;
use crate::outbox::Outbox;
use crate::path::set::Paths;
use crate::sched::SchedulerFactory;

/// The scheduler and the congestion controller of a connection. Others may take their place while
/// the connection runs.
#[derive(Debug)]
pub struct Policies<'a> {
    config: &'a TransportConfig,
    host: &'a mut SchedulerHost,
    paths: &'a Paths,
    outbox: &'a mut Outbox,
}

impl<'a> Policies<'a> {
    pub(crate) fn new(
        config: &'a TransportConfig,
        host: &'a mut SchedulerHost,
        paths: &'a Paths,
        outbox: &'a mut Outbox,
    ) -> Self {
        Self {
            config,
            host,
            paths,
            outbox,
        }
    }

    /// True if the scheduler uses local queues: the driver should call
    /// [`PathMut::set_local_queue`](crate::PathMut::set_local_queue).
    pub fn needs_local_queues(&self) -> bool {
        self.host.needs.local_queue
    }

    /// Lets another scheduler decide from now on. The scheduler hears of the open paths
    /// ([`SchedulerEvent::PathAdded`](crate::sched::SchedulerEvent::PathAdded)), but of no earlier
    /// event of paths, packets or streams.
    pub fn set_scheduler(&mut self, scheduler: &dyn SchedulerFactory) {
        let scheduler = GuardedScheduler::of(scheduler.build(), self.config.contain_panics);
        self.host.replace(scheduler, self.paths, self.outbox);
    }

    /// Lets another congestion controller set the windows from now on. Each open path begins as a
    /// new path does.
    ///
    /// Returns false, and changes nothing, if the controller wants packets marked otherwise
    /// ([`ControllerFactory::ecn_codepoint`]): the marks of a connection stay the same.
    pub fn set_controller(&mut self, now: Instant, controller: &dyn ControllerFactory) -> bool {
        let present = &self.config.controller;
        if self.config.ecn && present.ecn_codepoint() != controller.ecn_codepoint() {
            return false;
        }
        self.outbox.set_time(now);
        self.outbox.controller.replace(controller.build(), now);
        true
    }
}
