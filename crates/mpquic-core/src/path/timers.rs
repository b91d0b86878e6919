//! The timers of a single path: of its end, of acknowledgements, of validation and of keep-alive.
//! Those of recovery need the handshake's packet number spaces as well and are elsewhere.

use std::time::{Duration, Instant};

use super::Path;
use super::life::Abandonment;
use super::set::Paths;
use super::shared::Shared;
use super::slot::PathSlot;
use crate::error::TransportErrorCode;
use crate::event::TimeoutReason;
use crate::ids::{PathId, SpaceId};
use crate::outbox::Outbox;
use crate::recovery::pto::MAX_BACKOFF;

/// Longest time between probes of a suspect path while another path carries the data, without
/// stretch. Full stretch trebles the time, which makes a second on average. Equal times would keep
/// the order of the paths forever: a host that sends few ICMP messages would report the closed port
/// of one path only.
const SUSPECT_PROBE_INTERVAL: Duration = Duration::from_millis(500);

impl PathSlot {
    /// The earliest of the path's own timers.
    #[inline]
    pub(crate) fn next_timeout(&self, shared: &Shared) -> Option<(Instant, TimeoutReason)> {
        let drain = self.drain_deadline();
        let path = self.path.as_deref();
        let ack = path.and_then(|path| path.space.received.next_timeout());
        let open = self.open();
        let validation = open.and_then(Path::validation_timeout);
        let interval = shared.keep_alive_interval();
        let silent = open.and_then(|path| Some(path.last_activity + interval?));
        let timeouts = [
            drain.map(|at| (at, TimeoutReason::PathDrain(self.id))),
            ack.map(|at| (at, TimeoutReason::AckDelay(self.id))),
            validation.map(|at| (at, TimeoutReason::PathValidation(self.id))),
            silent.map(|at| (at, TimeoutReason::KeepAlive(self.id))),
        ];
        timeouts.into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

impl Path {
    /// The earliest timer of validation.
    pub(super) fn validation_timeout(&self) -> Option<Instant> {
        self.proven_tuples()
            .filter_map(|tuple| tuple.validation.next_timeout())
            .min()
    }

    /// The path was silent for the keep-alive interval. While packets wait for acknowledgement, no
    /// PING is sent: each PING would delay their probe timeout. After a probe timeout, a probe with
    /// possibly lost data is sent instead. True for a probe.
    fn keep_alive(&mut self, now: Instant) -> bool {
        self.last_activity = now;
        if self.space.sent.ack_eliciting() == 0 {
            self.ping = true;
            return false;
        }
        let has_timed_out = self.recovery.pto_count() > 0;
        if has_timed_out {
            self.recovery.on_probe_timeout(&mut self.space, now);
        }
        has_timed_out
    }

    /// A probe timeout passed in a packet number space of the path.
    pub(crate) fn on_probe_timeout(&mut self, space: SpaceId, outbox: &mut Outbox) {
        self.counters.probe_timeouts += 1;
        let count = self.recovery.pto_count();
        tracing::debug!(path = %self.id, ?space, count, "probe timeout");
        self.report_metrics(outbox);
    }
}

impl Paths {
    /// Acknowledgements whose timer has expired stay due until a packet can carry them.
    pub(crate) fn on_ack_timeout(&mut self, now: Instant) {
        let paths = self.slots_mut().iter_mut();
        for path in paths.filter_map(|slot| slot.path.as_deref_mut()) {
            path.space.received.on_timeout(now);
        }
    }

    /// Keeps a path alive after its keep-alive timer. True if a probe must be sent.
    pub(crate) fn on_keep_alive_timeout(&mut self, now: Instant, id: PathId) -> bool {
        let Some(interval) = self.shared.keep_alive_interval() else {
            return false;
        };
        let path = self.open_mut(id);
        let path = path.filter(|path| path.last_activity + interval <= now);
        path.is_some_and(|path| path.keep_alive(now))
    }

    /// A timer of path validation may have expired. After failed validation, the path is abandoned,
    /// unless it can fall back to other addresses.
    pub(crate) fn on_validation_timeout(
        &mut self,
        now: Instant,
        id: PathId,
        outbox: &mut Outbox,
    ) -> Option<Abandonment> {
        let is_only = self.iter().all(|path| path.id == id);
        let (slot, shared) = self.slot_and_shared(id)?;
        if slot.on_validation_timeout(now, is_only, shared, outbox) {
            return None;
        }
        let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR;
        Some(self.abandon(id, code, false, outbox))
    }

    /// Longest time between probes of a path. While another path carries its data, a small probe
    /// now and then costs little, and shows soon when the path works again.
    pub(crate) fn max_backoff(&self, path: &Path) -> Duration {
        if path.is_suspect() && self.alternative(path.id).is_some() {
            let stretch = 2 * u32::from(path.probe_stretch);
            SUSPECT_PROBE_INTERVAL + SUSPECT_PROBE_INTERVAL * stretch / u32::from(u8::MAX)
        } else {
            MAX_BACKOFF
        }
    }
}
