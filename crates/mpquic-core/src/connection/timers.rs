//! The earliest timeout with its reason, and what happens when it expires.

use std::time::Instant;

use super::{Connection, State};
use crate::error::ConnectionError;
use crate::event::{Event, RouteChange, TimeoutReason};
use crate::ids::{PathId, SpaceId};
use crate::path::Path;
use crate::recovery::PacketNumberSpace;
use crate::recovery::{RecoveryTimeout, TimeoutContext, TimeoutKind};

impl Connection {
    /// When [`Self::handle_timeout`] must be called next, and why. Call this again after every
    /// other call.
    pub fn poll_timeout(&self) -> Option<(Instant, TimeoutReason)> {
        if !self.state.is_open() {
            let end = self.state.next_timeout();
            return end.map(|at| (at, TimeoutReason::Close));
        }
        let mut earliest = Earliest(None);
        for slot in self.paths.slots() {
            if let Some((at, reason)) = slot.next_timeout(&self.paths.shared) {
                earliest.note(Some(at), reason);
            }
            if let Some(path) = slot.open() {
                let recovery = self.recovery_timeout(path).map(|timeout| timeout.at);
                earliest.note(recovery, TimeoutReason::LossDetection(path.id));
            }
        }
        for level in self.handshake.levels() {
            let ack = level.space.received.next_timeout();
            earliest.note(ack, TimeoutReason::AckDelay(PathId::ZERO));
        }
        if let Some((at, path)) = self.scheduling.pacing() {
            earliest.note(Some(at), TimeoutReason::Pacing(path));
        }
        earliest.note(self.scheduling.next_timeout(), TimeoutReason::Scheduler);
        let idle = self.idle.deadline(|| self.paths.largest_pto());
        earliest.note(idle, TimeoutReason::Idle);
        earliest.note(self.handshake.deadline(), TimeoutReason::Handshake);
        earliest.note(self.handshake.next_timeout(), TimeoutReason::KeyDiscard);
        earliest.note(self.idle.trim_timeout(), TimeoutReason::Trim);
        earliest.note(self.streams.next_timeout(), TimeoutReason::Deadline);
        earliest.note(self.datagrams.next_timeout(), TimeoutReason::Deadline);
        earliest.0
    }

    fn recovery_timeout(&self, path: &Path) -> Option<RecoveryTimeout> {
        let first = path.id == PathId::ZERO;
        let levels = self.handshake.levels();
        let handshake = levels.filter(|_| first).map(|level| &level.space);
        let spaces = handshake.chain(std::iter::once(&path.space));
        let cx = TimeoutContext {
            max_backoff: self.paths.max_backoff(path),
            has_alternative: self.paths.alternative(path.id).is_some(),
            peer_max_ack_delay: self.paths.peer_max_ack_delay(),
            handshake_confirmed: self.handshake.is_confirmed(),
            peer_validated_address: !first || !self.handshake.peer_may_be_blocked(),
            amplification_limited: path.is_amplification_limited(),
            has_handshake_keys: self.handshake.level(SpaceId::Handshake).is_some(),
        };
        path.recovery.next_timeout(spaces, &cx)
    }

    /// Handles timeouts. Call it at the time of [`Self::poll_timeout`]; at other times it does
    /// nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outbox.set_time(now);
        if self.state.on_timeout(now) {
            self.outbox.endpoint_event(RouteChange::Drained);
        }
        if !self.state.is_open() {
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let is_late = is_due(self.handshake.deadline());
        if is_late || is_due(self.idle.deadline(|| self.paths.largest_pto())) {
            // RFC 9000 section 10.1: the connection is closed silently.
            self.state = State::Drained;
            self.lose(if is_late {
                ConnectionError::HandshakeTimedOut
            } else {
                ConnectionError::TimedOut
            });
            self.outbox.endpoint_event(RouteChange::Drained);
            return;
        }
        self.paths.on_ack_timeout(now);
        self.handshake.on_ack_timeout(now);
        let ids: smallvec::SmallVec<[PathId; 8]> = self.paths.iter().map(|path| path.id).collect();
        for id in ids {
            self.on_recovery_timeout(now, id);
            if self.paths.on_keep_alive_timeout(now, id) {
                self.on_probe_timeout(id, SpaceId::Data(id));
            }
            let outbox = &mut self.outbox;
            if let Some(abandonment) = self.paths.on_validation_timeout(now, id, outbox) {
                self.after_abandonment(now, abandonment);
            }
        }
        self.paths.discard_abandoned(now, &mut self.outbox);
        self.repeat_frames();
        self.scheduling.on_timeout(now, &mut self.outbox);
        self.streams.on_timeout(now);
        self.datagrams.on_timeout(now);
        if self.datagrams.take_unblocked() {
            self.outbox.event(Event::DatagramsUnblocked);
        }
        if self.idle.take_trim(now) {
            self.trim(now);
        }
        let keys = self.handshake.on_timeout(now, &mut self.outbox);
        self.close_on_error(now, keys);
    }

    /// Frees memory that is kept for reuse.
    fn trim(&mut self, now: Instant) {
        self.outcome = None;
        self.handshake.trim();
        self.outbox.trim();
        self.paths.trim();
        self.scheduling.trim();
        self.streams.trim();
        self.datagrams.trim();
        self.review_memory(now);
    }

    fn on_recovery_timeout(&mut self, now: Instant, id: PathId) {
        let cx = self.ack_context(now);
        let Some(due) = self
            .paths
            .open(id)
            .and_then(|path| self.recovery_timeout(path))
            .filter(|timeout| timeout.at <= now)
        else {
            return;
        };
        let mut outcome = self.outcome.take().unwrap_or_default();
        if let Some((recovery, space)) =
            recovery_of(&mut self.paths, &mut self.handshake, id, due.space)
        {
            match due.kind {
                TimeoutKind::Loss => recovery.detect_lost(space, &cx, &mut outcome),
                TimeoutKind::Probe => recovery.on_probe_timeout(space, now),
            }
        }
        self.settle(now, due.space, outcome);
        if due.kind == TimeoutKind::Probe {
            self.on_probe_timeout(id, due.space);
        }
    }

    fn on_probe_timeout(&mut self, id: PathId, space: SpaceId) {
        if let Some(path) = self.paths.open_mut(id) {
            path.on_probe_timeout(space, &mut self.outbox);
        }
        match space {
            SpaceId::Data(_) => {
                self.paths.on_silent(id, &mut self.outbox);
                self.repeat_frames();
            }
            SpaceId::Initial | SpaceId::Handshake => {
                self.handshake.on_probe_timeout();
                self.paths.on_handshake_probe(id);
            }
        }
    }
}

/// The recovery state of a path and one of its spaces.
pub(super) fn recovery_of<'a>(
    paths: &'a mut crate::path::set::Paths,
    handshake: &'a mut crate::handshake::Handshake,
    id: PathId,
    space: SpaceId,
) -> Option<(&'a mut crate::recovery::Recovery, &'a mut PacketNumberSpace)> {
    let path = paths.any_mut(id)?;
    match space {
        SpaceId::Data(_) => Some((&mut path.recovery, &mut path.space)),
        SpaceId::Initial | SpaceId::Handshake => {
            Some((&mut path.recovery, &mut handshake.level_mut(space)?.space))
        }
    }
}

/// Keeps the earliest of several timeouts.
struct Earliest(Option<(Instant, TimeoutReason)>);

impl Earliest {
    fn note(&mut self, at: Option<Instant>, reason: TimeoutReason) {
        if let Some(at) = at
            && self.0.is_none_or(|(earliest, _)| at < earliest)
        {
            self.0 = Some((at, reason));
        }
    }
}
