//! Statistics of a path, and its events for qlog.

use std::time::Duration;

use super::Path;
use super::set::Paths;
use crate::congestion::Controller;
use crate::event::{PathState, PathStats};
use crate::ids::{PathId, PathStatus};
use crate::outbox::Outbox;
use crate::qlog::{EcnValidation, Event, Metrics};
use crate::recovery::ecn::Validation;

impl Path {
    /// Logs the addresses of the path.
    pub(super) fn report_tuple(&self, outbox: &mut Outbox) {
        let (path, four_tuple) = (self.id, self.tuple.four_tuple);
        outbox
            .log
            .event(|| Event::TupleAssigned { path, four_tuple });
    }

    /// Logs the state of MTU discovery.
    pub(super) fn report_mtu(&self, outbox: &mut Outbox) {
        outbox.log.event(|| Event::MtuUpdated {
            path: self.id,
            mtu: self.mtu.mtu(),
            done: self.mtu.is_done(),
        });
    }

    /// Logs the path's metrics.
    #[inline]
    pub(crate) fn report_metrics(&self, outbox: &mut Outbox) {
        if outbox.log.is_on() {
            let controller = &outbox.controller;
            let metrics = Metrics {
                rtt: self.recovery.rtt.snapshot(),
                pto_count: self.recovery.pto_count(),
                congestion_window: controller.window(self.id),
                bytes_in_flight: self.recovery.bytes_in_flight(),
                pacing_rate: controller.pacing_rate(self.id),
                ecn: ecn_validation(self.recovery.ecn.validation()),
            };
            let path = self.id;
            outbox.log.event(|| Event::MetricsUpdated { path, metrics });
        }
    }

    /// The current rate in bytes per second: 0 for a path that does not answer, or without a
    /// measured round trip.
    pub(crate) fn rate(&self, controller: &dyn Controller) -> u64 {
        let rtt = self.recovery.rtt.snapshot();
        if !self.is_usable() || self.is_suspect() || rtt.samples == 0 {
            return 0;
        }
        let seconds = rtt.smoothed.as_secs_f64().max(1e-6);
        let of_window = || (controller.window(self.id) as f64 / seconds) as u64;
        controller.pacing_rate(self.id).unwrap_or_else(of_window)
    }

    /// The statistics for the application. `controller` is `None` for an abandoned path, whose
    /// window no longer exists; `max_ack_delay` is the peer's.
    pub(super) fn stats(
        &self,
        controller: Option<&dyn Controller>,
        max_ack_delay: Duration,
    ) -> PathStats {
        let rtt = self.recovery.rtt.snapshot();
        let state = if controller.is_none() {
            PathState::Abandoned
        } else if !self.tuple.validated {
            PathState::Validating
        } else if self.is_suspect() {
            PathState::Suspect
        } else {
            PathState::Active
        };
        PathStats {
            id: self.id,
            four_tuple: self.tuple.four_tuple,
            state,
            // `Paths::stats` sets both: statuses belong to the path ID.
            status: PathStatus::Available,
            peer_status: None,
            rtt: rtt.smoothed,
            min_rtt: rtt.min,
            probe_timeout: self.recovery.pto(max_ack_delay),
            window: controller.map_or(0, |controller| controller.window(self.id)),
            slow_start_threshold: controller
                .and_then(|controller| controller.slow_start_threshold(self.id)),
            pacing_rate: controller.and_then(|controller| controller.pacing_rate(self.id)),
            in_flight: self.recovery.bytes_in_flight(),
            ecn: ecn_validation(self.recovery.ecn.validation()),
            mtu: self.mtu.mtu(),
            bytes_sent: self.counters.bytes_sent,
            bytes_received: self.counters.bytes_received,
            packets_sent: self.counters.packets_sent,
            packets_received: self.counters.packets_received,
            packets_lost: self.counters.packets_lost,
            congestion_events: self.counters.congestion_events,
            probe_timeouts: self.counters.probe_timeouts,
            resumption: self.capacity.resumption,
        }
    }
}

impl Paths {
    /// Logs the addresses and the state of MTU discovery of all open paths.
    pub(crate) fn report(&self, outbox: &mut Outbox) {
        for path in self.iter() {
            path.report_tuple(outbox);
            path.report_mtu(outbox);
        }
    }

    /// IDs of the paths that are not discarded, in order.
    pub(crate) fn existing(&self) -> impl Iterator<Item = PathId> + '_ {
        let slots = self.slots().iter();
        slots.filter(|slot| slot.path.is_some()).map(|slot| slot.id)
    }

    /// Statistics of a path.
    pub(crate) fn stats(&self, id: PathId, controller: &dyn Controller) -> Option<PathStats> {
        let slot = self.slot(id)?;
        let controller = slot.abandon.is_none().then_some(controller);
        let max_ack_delay = self.peer_max_ack_delay();
        let path = slot.path.as_ref();
        let statuses = slot.statuses();
        path.map(|path| PathStats {
            status: statuses.local(),
            peer_status: statuses.peer(),
            ..path.stats(controller, max_ack_delay)
        })
    }
}

fn ecn_validation(validation: Validation) -> EcnValidation {
    match validation {
        Validation::Testing { .. } => EcnValidation::Testing,
        Validation::Unknown { .. } => EcnValidation::Unknown,
        Validation::Capable => EcnValidation::Capable,
        Validation::Failed => EcnValidation::Failed,
    }
}
