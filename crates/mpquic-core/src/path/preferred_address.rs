//! The server's preferred address (RFC 9000 section 9.6): path 0 moves there, and keeps its ID
//! (MP-018).
//!
//! The client validates the address before it uses it. The server validates the way back, and
//! follows when the client uses the address. Until then, only probes are sent between the new
//! addresses.

use std::net::SocketAddr;
use std::time::Instant;

use quinn_proto::Side;

use super::migration::retire_cid_of;
use super::shared::Shared;
use super::slot::PathSlot;
use super::tuple::{Candidate, Tuple};
use crate::event::PathEvent;
use crate::ids::{FourTuple, PathId};
use crate::outbox::Outbox;
use crate::packet::arrival::Arrival;
use crate::server_address::is_usable;

/// Called for path 0 only.
impl PathSlot {
    /// Client: the handshake is confirmed; probes the server's preferred address.
    pub(super) fn prefer_address(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        outbox: &mut Outbox,
    ) {
        if shared.side == Side::Server {
            return;
        }
        let (Some(preferred), Some(path)) = (shared.preferred.take(), self.open()) else {
            return;
        };
        let FourTuple { local, remote } = path.tuple.four_tuple;
        let preferred = preferred.of_family(remote);
        let preferred = preferred.filter(|to| *to != remote && is_usable(*to, remote));
        if let (true, Some(preferred)) = (shared.uses_preferred_address, preferred) {
            let four_tuple = FourTuple::new(local, preferred);
            self.probe(now, four_tuple, shared, outbox);
        }
    }

    /// Client: after a change of its own address, validates the preferred address from the new one
    /// (RFC 9000 section 9.6.3).
    pub(super) fn prefer_address_from(
        &mut self,
        now: Instant,
        local: SocketAddr,
        shared: &Shared,
        outbox: &mut Outbox,
    ) {
        if let Some((path, cids)) = self.open_and_cids()
            && let Some(candidate) = path.candidate.take()
        {
            let remote = candidate.tuple.four_tuple.remote;
            retire_cid_of(Some(candidate.tuple), cids, outbox);
            self.probe(now, FourTuple::new(local, remote), shared, outbox);
        }
    }

    /// Starts to validate addresses for path 0. A client needs a connection ID for that (RFC 9000
    /// section 9.5), which comes with the preferred_address parameter.
    fn probe(&mut self, now: Instant, four_tuple: FourTuple, shared: &Shared, outbox: &mut Outbox) {
        let side = shared.side;
        let Some((path, cids)) = self.open_and_cids() else {
            return;
        };
        if side == Side::Client && !(cids.has_unused() && cids.may_retire()) {
            return;
        }
        // Bytes received from there before count for the anti-amplification limit.
        let is_there = |known: &mut Box<Tuple>| known.four_tuple == four_tuple;
        let known = path.unknown.take_if(is_there);
        let mut tuple = known.map_or_else(|| Tuple::new(four_tuple, side), |known| *known);
        let mut replaced = path.candidate.take().map(|replaced| replaced.tuple);
        if tuple.peer_cid.is_none() && cids.may_retire() {
            tuple.peer_cid = cids.take(outbox);
        }
        if let (None, Some(replaced)) = (tuple.peer_cid, &mut replaced) {
            tuple.peer_cid = replaced.peer_cid.take();
        }
        retire_cid_of(replaced, cids, outbox);
        let pto = path.recovery.pto(shared.peer_max_ack_delay());
        tuple
            .validation
            .start(now, pto, shared.config.initial_pto());
        // A client wants to move; a server waits until the client has moved.
        let wanted = side == Side::Client;
        path.candidate = Some(Box::new(Candidate { tuple, wanted }));
        tracing::debug!(%four_tuple, "probes the preferred address");
    }

    /// Server: true if a packet came to the preferred address while path 0 is still at another one.
    fn arrived_at_preferred(&self, arrival: &Arrival, shared: &Shared) -> bool {
        let local = arrival.four_tuple.local;
        shared.side == Side::Server
            && self.id == PathId::ZERO
            && shared.is_preferred(local)
            && self
                .open()
                .is_some_and(|path| path.tuple.four_tuple.local != local)
    }

    /// Server: the client probes the preferred address, so we probe back (RFC 9000 section 9.6.2).
    pub(super) fn on_probed(&mut self, arrival: &Arrival, shared: &Shared, outbox: &mut Outbox) {
        if !self.arrived_at_preferred(arrival, shared) {
            return;
        }
        let candidate = self.open_mut().and_then(|path| path.candidate.as_mut());
        match candidate.filter(|candidate| candidate.tuple.four_tuple == arrival.four_tuple) {
            Some(candidate) => candidate.tuple.validation.on_heard(),
            None => self.probe(arrival.now, arrival.four_tuple, shared, outbox),
        }
    }

    /// Server: true for a packet off the addresses of path 0 that is not a migration of the client.
    /// Either the packet came to the preferred address, or the path has moved there and left the
    /// old address for good (RFC 9000 section 9.6.2).
    pub(super) fn concerns_preferred(&self, arrival: &Arrival, shared: &Shared) -> bool {
        let has_left = || {
            self.open().is_some_and(|path| {
                let local = path.tuple.four_tuple.local;
                local != arrival.four_tuple.local && shared.is_preferred(local)
            })
        };
        self.arrived_at_preferred(arrival, shared)
            || shared.side == Side::Server && self.id == PathId::ZERO && has_left()
    }

    /// Server: the newest packet came to the preferred address. True if the path has moved there.
    pub(super) fn on_used_at_preferred(
        &mut self,
        arrival: &Arrival,
        shared: &Shared,
        outbox: &mut Outbox,
    ) -> bool {
        if !self.arrived_at_preferred(arrival, shared) {
            return false;
        }
        self.on_probed(arrival, shared, outbox);
        let candidate = self.open_mut().and_then(|path| path.candidate.as_mut());
        if let Some(candidate) = candidate {
            candidate.wanted = true;
        }
        self.adopt_candidate(arrival.now, shared, outbox)
    }

    /// Moves path 0 if the address is validated and the client uses it. Returns whether it moved.
    pub(super) fn adopt_candidate(
        &mut self,
        now: Instant,
        shared: &Shared,
        outbox: &mut Outbox,
    ) -> bool {
        let Some((path, cids)) = self.open_and_cids() else {
            return false;
        };
        let is_ready =
            |candidate: &mut Box<Candidate>| candidate.wanted && candidate.tuple.validated;
        let Some(candidate) = path.candidate.take_if(is_ready) else {
            return false;
        };
        retire_cid_of(path.previous.take().map(|old| *old), cids, outbox);
        let before = path.tuple.four_tuple;
        let left = path.replace_tuple(candidate.tuple);
        path.share_cids(left, cids, outbox);
        let four_tuple = path.tuple.four_tuple;
        let same_interface = before.local.ip() == four_tuple.local.ip();
        path.liveness.on_moved(same_interface, path.id, outbox);
        path.forget_network(now, shared, outbox);
        tracing::debug!(%four_tuple, "moves to the preferred address");
        path.report_tuple(outbox);
        path.report_mtu(outbox);
        outbox.path_event(PathEvent::Migrated(path.id, four_tuple));
        true
    }

    /// A timer of the candidate's validation has expired. After a failure, the path stays at its
    /// addresses (RFC 9000 section 9.6.2).
    pub(super) fn on_candidate_timeout(&mut self, now: Instant, outbox: &mut Outbox) {
        let Some((path, cids)) = self.open_and_cids() else {
            return;
        };
        let has_failed =
            |candidate: &mut Box<Candidate>| candidate.tuple.validation.on_timeout(now);
        if let Some(candidate) = path.candidate.take_if(has_failed) {
            retire_cid_of(Some(candidate.tuple), cids, outbox);
        }
    }
}
