//! Validation, and changes of a path's four-tuple: NAT rebinding and migration (RFC 9000
//! sections 8.2 and 9). The path ID, its packet number space and its status stay (MP-082).

use std::net::SocketAddr;
use std::time::Instant;

use quinn_proto::Side;

use super::Path;
use super::shared::Shared;
use super::slot::PathSlot;
use super::tuple::Tuple;
use super::validation::Validated;
use crate::cid::peer::PeerCids;
use crate::congestion::Controller as _;
use crate::event::{MigrateError, PathEvent};
use crate::ids::{FourTuple, PathId};
use crate::outbox::Outbox;
use crate::packet::arrival::Arrival;
use crate::sched::SchedulerEvent;

impl Path {
    /// Path validation succeeded: tells application and scheduler.
    pub(super) fn establish(&mut self, outbox: &mut Outbox) {
        if !self.established {
            self.established = true;
            outbox.scheduler_event(SchedulerEvent::PathAdded(self.id));
            outbox.path_event(PathEvent::Established(self.id));
        }
    }

    /// True if the scheduler knows the path.
    pub(crate) fn is_established(&self) -> bool {
        self.established || self.id == PathId::ZERO
    }

    /// Moves the path to other addresses. Until the new addresses are validated, the old addresses
    /// stay for a fallback. Returns dropped addresses.
    pub(super) fn replace_tuple(&mut self, tuple: Tuple) -> Option<Tuple> {
        // RFC 9000 section 17.4
        self.spin = false;
        let left = std::mem::replace(&mut self.tuple, tuple);
        if left.validated && !self.tuple.validated {
            let earlier = self.previous.replace(Box::new(left));
            earlier.map(|tuple| *tuple)
        } else {
            Some(left)
        }
    }

    /// Forgets the RTT, the MTU and other measurements of the old addresses (RFC 9000 section 9.4).
    pub(super) fn forget_network(&mut self, now: Instant, shared: &Shared, outbox: &mut Outbox) {
        let config = &shared.config;
        self.recovery
            .reset_for_new_address(&mut self.space, config, now);
        self.mtu.reset();
        outbox
            .controller
            .on_path_opened(self.id, now, config.initial_mtu);
        self.resume(now, outbox);
    }

    /// Starts to validate the addresses that the path has moved to (RFC 9000 section 9.3).
    fn start_anew(&mut self, now: Instant, left: FourTuple, shared: &Shared, outbox: &mut Outbox) {
        let four_tuple = self.tuple.four_tuple;
        let pto = self.recovery.pto(shared.peer_max_ack_delay());
        let initial_pto = shared.config.initial_pto();
        self.tuple.validation.start(now, pto, initial_pto);
        // RFC 9000 section 9.3.3: a server also validates the old address, because the new address
        // may be spoofed. A client knows of its own move.
        if let (Side::Server, Some(previous)) = (shared.side, &mut self.previous) {
            previous.validation.start(now, pto, initial_pto);
        }
        let is_same_host = |old: &Tuple| old.four_tuple.remote.ip() == four_tuple.remote.ip();
        let same_host = self.previous.as_deref().is_some_and(is_same_host);
        // RFC 9000 section 9.4: after a mere change of the peer's port, the estimates may stay.
        if !same_host || shared.side == Side::Client {
            self.forget_network(now, shared, outbox);
        }
        let same_interface = left.local.ip() == four_tuple.local.ip();
        self.liveness.on_moved(same_interface, self.id, outbox);
        tracing::debug!(path = %self.id, %four_tuple, "path migrates");
        self.report_tuple(outbox);
        self.report_mtu(outbox);
    }
}

impl PathSlot {
    /// PATH_CHALLENGE: the response is sent on the four-tuple that the challenge came on (MP-077).
    pub(super) fn on_path_challenge(
        &mut self,
        arrival: &Arrival,
        data: [u8; 8],
        shared: &Shared,
        outbox: &mut Outbox,
    ) {
        let Some(path) = self.open_mut() else {
            return;
        };
        path.responses.on_path_challenge(arrival.four_tuple, data);
        if path.tuple.four_tuple.matches(&arrival.four_tuple) {
            path.tuple.validation.on_heard();
        }
        self.on_probed(arrival, shared, outbox);
        self.set_cid_aside(arrival, shared, outbox);
    }

    /// Server: the client probes from other addresses. They get a connection ID of their own,
    /// within supply (RFC 9000 section 9.5), and keep the ID after a move of the path.
    fn set_cid_aside(&mut self, arrival: &Arrival, shared: &Shared, outbox: &mut Outbox) {
        let Some((path, cids)) = self.open_and_cids() else {
            return;
        };
        let is_new = |tuple: &&mut Box<Tuple>| {
            tuple.peer_cid.is_none() && tuple.four_tuple == arrival.four_tuple
        };
        // Addresses that are being validated for the preferred address keep their place.
        let is_free = shared.side == Side::Server && path.candidate.is_none();
        if let Some(tuple) = path.unknown.as_mut().filter(is_new)
            && is_free
            && cids.may_retire()
        {
            tuple.peer_cid = cids.take(outbox);
        }
    }

    /// PATH_RESPONSE: it may arrive on any four-tuple; its data says which challenge it answers.
    /// True if the path has moved.
    pub(super) fn on_path_response(
        &mut self,
        now: Instant,
        data: [u8; 8],
        shared: &mut Shared,
        outbox: &mut Outbox,
    ) -> bool {
        let Some((path, cids)) = self.open_and_cids() else {
            return false;
        };
        if let Some(candidate) = &mut path.candidate
            && let Some(proof) = candidate.tuple.validation.on_path_response(now, data)
        {
            if proof == Validated::Path {
                candidate.tuple.set_validated();
                return self.adopt_candidate(now, shared, outbox);
            }
            return false;
        }
        if path.tuple.validation.on_path_response(now, data).is_some() {
            shared.address_validated |= path.id != PathId::ZERO && !path.tuple.validated;
            path.tuple.set_validated();
            path.recovery.on_peer_ready(now);
            path.establish(outbox);
            if let Some(previous) = path.previous.take() {
                retire_cid_of(Some(*previous), cids, outbox);
                let moved = PathEvent::Migrated(path.id, path.tuple.four_tuple);
                outbox.path_event(moved);
                shared.address_validated = true;
                return true;
            }
        } else if let Some(previous) = &mut path.previous
            && previous.validation.on_path_response(now, data).is_some()
        {
            previous.set_validated();
        }
        false
    }

    /// Follows a change of addresses that a 1-RTT packet shows.
    pub(super) fn on_addresses(
        &mut self,
        arrival: &Arrival,
        newest_non_probing: bool,
        shared: &Shared,
        outbox: &mut Outbox,
    ) -> bool {
        let Some(path) = self.open_mut() else {
            return false;
        };
        let known = path.tuple.four_tuple;
        if known == arrival.four_tuple {
            return false;
        }
        if known.matches(&arrival.four_tuple) {
            // The local address was unspecified until now; the packet shows which one the operating
            // system chose.
            if !arrival.four_tuple.local.ip().is_unspecified() {
                path.tuple.four_tuple.local = arrival.four_tuple.local;
                path.report_tuple(outbox);
            }
            return false;
        }
        if self.concerns_preferred(arrival, shared) {
            return newest_non_probing && self.on_used_at_preferred(arrival, shared, outbox);
        }
        // RFC 9000 section 9.3: only the newest non-probing packet moves the path.
        if shared.side == Side::Server && newest_non_probing && shared.accepts_migration(arrival) {
            self.follow(arrival, shared, outbox);
        }
        false
    }

    /// Moves a client's path to another local address.
    pub(super) fn move_to(
        &mut self,
        now: Instant,
        local: SocketAddr,
        shared: &Shared,
        outbox: &mut Outbox,
    ) -> Result<(), MigrateError> {
        let (path, cids) = self.open_and_cids().ok_or(MigrateError::Closed)?;
        let left = path.tuple.four_tuple;
        if shared.side == Side::Server {
            return Err(MigrateError::ServerSide);
        }
        // RFC 9000 section 9
        if !shared.handshake_confirmed {
            return Err(MigrateError::NotConfirmed);
        }
        // RFC 9000 section 18.2, MP-017
        if shared.peer.disable_active_migration && left.remote == shared.handshake_address {
            return Err(MigrateError::AddressForbidden);
        }
        // RFC 9000 section 9.5: a different connection ID, to keep observers from linking the
        // addresses. The old addresses keep their ID as long as the path may return.
        let four_tuple = FourTuple::new(local, left.remote);
        let returns = path.has_cid_at(four_tuple);
        let has_another = cids.has_unused() && cids.may_retire();
        if !returns && !has_another {
            cids.request();
            return Err(MigrateError::NoConnectionId);
        }
        let known = path.take_tuple(four_tuple);
        let mut next = known.unwrap_or_else(|| Tuple::new(four_tuple, shared.side));
        if !returns {
            next.peer_cid = cids.take(outbox);
        }
        let forgotten = path.replace_tuple(next);
        retire_cid_of(forgotten, cids, outbox);
        path.start_anew(now, left, shared, outbox);
        self.prefer_address_from(now, local, shared, outbox);
        Ok(())
    }

    /// Follows a client to the addresses a packet came from (RFC 9000 section 9.3).
    fn follow(&mut self, arrival: &Arrival, shared: &Shared, outbox: &mut Outbox) {
        let Some((path, cids)) = self.open_and_cids() else {
            return;
        };
        let left = path.tuple.four_tuple;
        let known = path.take_tuple(arrival.four_tuple);
        let mut next = known.unwrap_or_else(|| {
            let mut tuple = Tuple::new(arrival.four_tuple, shared.side);
            tuple.amplification.on_received(arrival.size);
            tuple
        });
        // RFC 9000 section 9.5: a different connection ID, within supply, to keep observers from
        // linking the client's addresses. Earlier addresses have an ID already.
        if next.peer_cid.is_none() && !next.validated && cids.may_retire() {
            next.peer_cid = cids.take(outbox);
        }
        let forgotten = path.replace_tuple(next);
        path.share_cids(forgotten, cids, outbox);
        path.start_anew(arrival.now, left, shared, outbox);
    }

    /// Keeps the path from returning to its former addresses.
    pub(super) fn forget_previous(&mut self) {
        if let Some(path) = self.open_mut()
            && let Some(previous) = &mut path.previous
        {
            previous.is_gone = true;
        }
    }

    /// Validation of the path's tuple failed: falls back to the previous tuple (MP-084). False
    /// without a previous tuple: then the path must be abandoned.
    fn fall_back(&mut self, now: Instant, shared: &Shared, outbox: &mut Outbox) -> bool {
        let Some((path, cids)) = self.open_and_cids() else {
            return false;
        };
        let Some(previous) = path.previous.take_if(|previous| !previous.is_gone) else {
            return false;
        };
        let failed = path.replace_tuple(*previous);
        match shared.side {
            // RFC 9000 section 9.3.2
            Side::Server => path.share_cids(failed, cids, outbox),
            // RFC 9000 section 9.5: a connection ID that was sent from the other address is used
            // here under no circumstances.
            Side::Client => {
                retire_cid_of(failed, cids, outbox);
                if path.tuple.peer_cid.is_none() {
                    path.tuple.peer_cid = cids.take(outbox);
                }
                // Nothing is known of the way at the moment, and probes do not wait any longer.
                path.forget_network(now, shared, outbox);
            }
        }
        path.report_tuple(outbox);
        path.tuple.peer_cid.is_some()
    }

    /// A timer of path validation has expired. False if the path must be abandoned, also for a
    /// proven address where no full datagram passes (MP-079). The only path is given more time.
    pub(super) fn on_validation_timeout(
        &mut self,
        now: Instant,
        is_only: bool,
        shared: &Shared,
        outbox: &mut Outbox,
    ) -> bool {
        let Some(path) = self.open_mut() else {
            return true;
        };
        if let Some(previous) = &mut path.previous {
            previous.validation.on_timeout(now);
        }
        let failed = if is_only && path.refuge().is_none() {
            path.tuple.validation.on_timeout_of_the_last(now)
        } else {
            path.tuple.validation.on_timeout(now)
        };
        self.on_candidate_timeout(now, outbox);
        !failed || self.fall_back(now, shared, outbox)
    }
}

impl Path {
    /// The addresses to fall back to.
    pub(super) fn refuge(&self) -> Option<FourTuple> {
        let previous = self.previous.as_deref()?;
        (!previous.is_gone).then_some(previous.four_tuple)
    }

    /// True for addresses to which the path may return with its former connection ID.
    fn has_cid_at(&self, four_tuple: FourTuple) -> bool {
        let previous = self.previous.as_deref();
        previous.is_some_and(|it| it.four_tuple == four_tuple && it.peer_cid.is_some())
    }

    /// Takes what is known of the addresses that the path moves to.
    fn take_tuple(&mut self, four_tuple: FourTuple) -> Option<Tuple> {
        let is_there = |tuple: &mut Box<Tuple>| tuple.four_tuple == four_tuple;
        // The path returns to addresses that it had before: no need to prove them again.
        let known = self.previous.take_if(is_there);
        let known = known.or_else(|| self.unknown.take_if(is_there));
        known.map(|tuple| Tuple {
            is_gone: false,
            ..*tuple
        })
    }

    /// After a change of addresses, gives the path a connection ID of the peer: if necessary, the
    /// ID of the addresses left behind. `forgotten` are addresses without a way back.
    pub(super) fn share_cids(
        &mut self,
        mut forgotten: Option<Tuple>,
        cids: &mut PeerCids,
        outbox: &mut Outbox,
    ) {
        let previous = self.previous.as_deref_mut();
        if self.tuple.peer_cid.is_none()
            && let Some(left) = forgotten.as_mut().or(previous)
        {
            self.tuple.peer_cid = left.peer_cid.take();
        }
        if let Some(previous) = &mut self.previous
            && previous.peer_cid.is_none()
            && let Some(forgotten) = &mut forgotten
        {
            previous.peer_cid = forgotten.peer_cid.take();
        }
        retire_cid_of(forgotten, cids, outbox);
    }
}

/// Retires the connection ID of addresses with no further use.
pub(super) fn retire_cid_of(tuple: Option<Tuple>, cids: &mut PeerCids, outbox: &mut Outbox) {
    if let Some(cid) = tuple.and_then(|tuple| tuple.peer_cid) {
        cids.retire(cid, outbox);
    }
}

#[cfg(test)]
mod tests;
