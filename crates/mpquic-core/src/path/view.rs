//! What a scheduler sees of a path.

use std::time::Instant;

use super::Path;
use crate::congestion::Controller;
use crate::ids::PathStatus;
use crate::sched::{PathView, Sendable};

impl Path {
    /// The path as a scheduler sees it; `usable` is set by the caller, who knows the other paths.
    pub(super) fn view(
        &mut self,
        status: PathStatus,
        now: Instant,
        controller: &dyn Controller,
        pacing: bool,
    ) -> PathView {
        let window = controller.window(self.id);
        let mtu = self.mtu.mtu();
        let in_flight = self.recovery.bytes_in_flight();
        PathView {
            id: self.id,
            status,
            usable: false,
            suspect: self.is_suspect(),
            sendable: self.sendable(now, window, controller.pacing_rate(self.id), pacing),
            rtt: self.recovery.rtt.snapshot(),
            window,
            in_flight,
            slow_start_threshold: controller.slow_start_threshold(self.id),
            in_recovery: controller.in_recovery(self.id),
            mtu,
            packets_sent: self.counters.packets_sent,
            bytes_sent: self.counters.bytes_sent,
            bytes_acked: self.counters.bytes_acked,
            bytes_lost: self.counters.bytes_lost,
            loss_rate: self.recovery.loss_rate(),
            delivery_rate: self.recovery.delivery_rate(),
            local_queue: self
                .local_queue
                .map(|(queue, sent)| queue.bytes + (self.counters.bytes_sent - sent)),
            local_drain_rate: self.local_queue.and_then(|(queue, _)| queue.drain_rate),
        }
    }

    fn sendable(&mut self, now: Instant, window: u64, rate: Option<u64>, pacing: bool) -> Sendable {
        let mtu = u64::from(self.mtu.mtu());
        if !self.tuple.validated || self.tuple.amplification.budget() < mtu {
            return Sendable::Unusable;
        }
        if self.recovery.bytes_in_flight() + mtu > window {
            return Sendable::WindowFull;
        }
        match self.pacing_budget(now, window, rate, pacing) {
            Ok(_) => Sendable::Now,
            Err(at) => Sendable::At(at),
        }
    }

    /// Bytes that the pacer allows to be sent now, or when it will allow some.
    pub(crate) fn pacing_budget(
        &mut self,
        now: Instant,
        window: u64,
        rate: Option<u64>,
        pacing: bool,
    ) -> Result<u64, Instant> {
        if !pacing {
            return Ok(u64::MAX);
        }
        let mtu = self.mtu.mtu();
        let rate = self.recovery.pacing_rate(window, rate, mtu);
        self.recovery.pacer.available(now, rate, mtu)
    }
}
