//! A scheduler's view of a path, and the limits of sending on the path now.

use std::time::Instant;

use quinn_proto::{EcnCodepoint, Side};
use smallvec::SmallVec;

use super::Path;
use super::set::Paths;
use crate::congestion::Controller;
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::recovery::pacer::Pace;
use crate::sched::{PathView, Sendable};
use crate::wire::buf::MIN_DATAGRAM;

/// Limits of sending on a path now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    pub(crate) four_tuple: FourTuple,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// Of a datagram, bytes.
    pub(crate) size: usize,
    /// Bytes that window and pacer allow.
    pub(crate) bytes: u64,
}

/// The controller's limits for a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    window: u64,
    pacing_rate: Option<u64>,
    burst: Option<u64>,
    quantum: Option<u64>,
}

impl Limits {
    pub(super) fn of(path: PathId, controller: &dyn Controller) -> Self {
        Self {
            window: controller.window(path),
            pacing_rate: controller.pacing_rate(path),
            burst: controller.burst(path),
            quantum: controller.send_quantum(path),
        }
    }
}

impl Path {
    /// The path as a scheduler sees it; the caller sets `usable`, from its knowledge of other
    /// paths.
    pub(super) fn view(
        &self,
        status: PathStatus,
        controller: &dyn Controller,
        limits: Limits,
        sendable: Sendable,
    ) -> PathView {
        let Limits {
            window,
            pacing_rate,
            ..
        } = limits;
        let mtu = self.mtu.mtu();
        let in_flight = self.recovery.bytes_in_flight();
        PathView {
            id: self.id,
            status,
            usable: false,
            suspect: self.is_suspect(),
            sendable,
            rtt: self.recovery.rtt.snapshot(),
            return_delay: None,
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
            pacing_rate,
        }
    }

    /// How to send this many bytes.
    fn allowance(&self, bytes: u64) -> Allowance {
        Allowance {
            four_tuple: self.four_tuple(),
            ecn: self.recovery.ecn.codepoint(),
            size: self.datagram_size(),
            bytes,
        }
    }

    /// Whether sending is allowed, and how many bytes. `is_handshake` for a server during the
    /// handshake.
    pub(super) fn sendable(
        &mut self,
        now: Instant,
        limits: Limits,
        pacing: bool,
        is_handshake: bool,
    ) -> (Sendable, u64) {
        let mtu = u64::from(self.mtu.mtu());
        let spare = self.spare(is_handshake);
        if spare < mtu {
            return (Sendable::Unusable, 0);
        }
        let room = limits
            .window
            .saturating_sub(self.recovery.bytes_in_flight());
        if room < mtu {
            return (Sendable::WindowFull, 0);
        }
        match self.pacing_budget(now, limits, pacing) {
            Ok(paced) => (Sendable::Now, room.min(paced).min(spare)),
            Err(at) => (Sendable::At(at), 0),
        }
    }

    /// Bytes that the anti-amplification limit leaves for data (RFC 9000 section 8). During the
    /// handshake, a server may answer an address without validation, and an address proven on an
    /// earlier connection; one datagram is left to the handshake or to validation then.
    fn spare(&self, is_handshake: bool) -> u64 {
        let budget = self.tuple.amplification.budget();
        if self.tuple.validated {
            budget
        } else if is_handshake || self.tuple.may_carry_data() {
            budget.saturating_sub(MIN_DATAGRAM as u64)
        } else {
            0
        }
    }

    /// Bytes allowed by the pacer now, or the time of the next allowance.
    fn pacing_budget(
        &mut self,
        now: Instant,
        limits: Limits,
        pacing: bool,
    ) -> Result<u64, Instant> {
        if !pacing {
            return Ok(u64::MAX);
        }
        let mtu = self.mtu.mtu();
        let rate = (self.recovery).pacing_rate(limits.window, limits.pacing_rate, mtu);
        let pace = Pace {
            rate,
            burst: limits.burst,
            quantum: limits.quantum,
            mtu,
        };
        self.recovery.pacer.available(now, pace)
    }
}

impl Paths {
    /// Fills in the scheduler's view and the limits of each usable path.
    pub(crate) fn fill_views(
        &mut self,
        now: Instant,
        controller: &dyn Controller,
        views: &mut Vec<PathView>,
        allowances: &mut SmallVec<[Allowance; 1]>,
    ) {
        let pacing = self.shared.config.pacing;
        let is_handshake = self.shared.side == Side::Server && !self.shared.handshake_complete;
        for slot in self.slots_mut() {
            let status = slot.statuses().effective();
            if let Some(path) = slot
                .open_mut()
                .filter(|path| path.is_usable() || is_handshake)
            {
                let limits = Limits::of(path.id, controller);
                let (sendable, bytes) = path.sendable(now, limits, pacing, is_handshake);
                views.push(path.view(status, controller, limits, sendable));
                allowances.push(path.allowance(bytes));
            }
        }
        if views.len() > 1 {
            self.fill_return_delays(views);
        }
    }

    fn fill_return_delays(&self, views: &mut [PathView]) {
        for view in views {
            let carrier = self
                .open(view.id)
                .and_then(|path| path.recovery.ack_carrier());
            if let Some(carrier) = carrier.and_then(|carrier| self.any(carrier)) {
                view.return_delay = Some(carrier.recovery.rtt.smoothed() / 2);
            }
        }
    }

    /// Marks paths whose window has room as application-limited, because no data is left to send
    /// (RFC 9002 section 7.8).
    pub(crate) fn note_app_limited(&mut self, controller: &dyn Controller) {
        for path in self.iter_mut() {
            let used = path.recovery.bytes_in_flight() + u64::from(path.mtu.mtu());
            if used <= controller.window(path.id) {
                path.recovery.set_app_limited();
            }
        }
    }
}
