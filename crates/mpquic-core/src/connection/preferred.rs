//! The server's preferred address (RFC 9000 section 9.6): path 0 moves there, and keeps its ID
//! (MP-018).
//!
//! The client proves the address before it uses it. The server proves the way back, and follows
//! when the client uses it. Until then everything but probes travels between the old addresses.

use std::net::SocketAddr;
use std::time::Instant;

use quinn_proto::Side;

use super::Connection;
use crate::cid::peer::PeerCids;
use crate::congestion::Controller as _;
use crate::event::{Event, PathEvent};
use crate::ids::{FourTuple, PathId};
use crate::packet::arrival::Arrival;
use crate::path::{Candidate, Tuple};
use crate::wire::transport_parameters::PreferredAddress;

impl PreferredAddress {
    /// The address of the same family as another one.
    fn of_family(&self, other: SocketAddr) -> Option<SocketAddr> {
        match other {
            SocketAddr::V4(_) => self.ipv4.map(SocketAddr::V4),
            SocketAddr::V6(_) => self.ipv6.map(SocketAddr::V6),
        }
    }
}

impl Connection {
    /// Client: the handshake is confirmed; probes the address the server would rather be used at.
    pub(super) fn prefer_address(&mut self, now: Instant) {
        if self.side == Side::Server {
            return;
        }
        let (Some(preferred), Some(path)) = (
            self.paths.shared.preferred.take(),
            self.paths.open(PathId::ZERO),
        ) else {
            return;
        };
        let FourTuple { local, remote } = path.tuple.four_tuple;
        let preferred = preferred.of_family(remote).filter(|to| *to != remote);
        if let (true, Some(preferred)) = (self.paths.shared.uses_preferred_address, preferred) {
            self.probe(now, FourTuple::new(local, preferred), true);
        }
    }

    /// Client: its own address is another one now, so that the preferred one is to be proven from
    /// there (RFC 9000 section 9.6.3).
    pub(super) fn prefer_address_from(&mut self, now: Instant, local: SocketAddr) {
        if let Some(path) = self.paths.open_mut(PathId::ZERO)
            && let Some(candidate) = path.candidate.take()
        {
            self.change_cid(PathId::ZERO, |cids| Some(cids.release_candidate()));
            let remote = candidate.tuple.four_tuple.remote;
            self.probe(now, FourTuple::new(local, remote), true);
        }
    }

    /// Begins to prove addresses for path 0. A client needs a connection ID for that (RFC 9000
    /// section 9.5), which preferred_address brings.
    fn probe(&mut self, now: Instant, four_tuple: FourTuple, wanted: bool) {
        let has_cid = self.change_cid(PathId::ZERO, PeerCids::reserve_candidate);
        if !has_cid && self.side == Side::Client {
            return;
        }
        let (side, initial_pto) = (self.side, self.config.initial_pto());
        let delay = self.paths.peer_max_ack_delay();
        let Some(path) = self.paths.open_mut(PathId::ZERO) else {
            return;
        };
        // What came from there counts for the 3x limit.
        let known = path
            .stranger
            .take_if(|known| known.tuple.four_tuple == four_tuple);
        let mut tuple = known.map_or_else(|| Tuple::new(four_tuple, side), |known| known.tuple);
        let pto = path.recovery.pto(delay);
        tuple.validation.start(now, pto, initial_pto);
        path.candidate = Some(Box::new(Candidate { tuple, wanted }));
        tracing::debug!(%four_tuple, "probes the preferred address");
    }

    /// True if one of our addresses is the one we told the client to prefer.
    pub(super) fn is_preferred(&self, local: SocketAddr) -> bool {
        let announced = self.paths.shared.preferred.as_ref();
        announced.and_then(|preferred| preferred.of_family(local)) == Some(local)
    }

    /// Server: true if path 0 is not where the client should use it, and a packet is.
    fn arrived_at_preferred(&self, arrival: &Arrival) -> bool {
        let path = self.paths.open(PathId::ZERO);
        self.side == Side::Server
            && arrival.path == PathId::ZERO
            && self.is_preferred(arrival.four_tuple.local)
            && path.is_some_and(|path| path.tuple.four_tuple.local != arrival.four_tuple.local)
    }

    /// Server: the client probes the preferred address; so do we (RFC 9000 section 9.6.2).
    pub(super) fn on_probed(&mut self, arrival: &Arrival) {
        if !self.arrived_at_preferred(arrival) {
            return;
        }
        let path = self.paths.open_mut(PathId::ZERO);
        let candidate = path.and_then(|path| path.candidate.as_mut());
        match candidate.filter(|candidate| candidate.tuple.four_tuple == arrival.four_tuple) {
            Some(candidate) => candidate.tuple.validation.on_heard(),
            None => self.probe(arrival.now, arrival.four_tuple, false),
        }
    }

    /// Server: a packet came from other addresses than path 0 has. True if that was to or from the
    /// preferred address, so that it is no matter of migration.
    pub(super) fn on_moved_to_preferred(&mut self, arrival: &Arrival, is_newest: bool) -> bool {
        if self.arrived_at_preferred(arrival) {
            if is_newest {
                self.on_probed(arrival);
                self.want_candidate(arrival.now);
            }
            return true;
        }
        // RFC 9000 section 9.6.2: the old address is left for good.
        let path = self.paths.open(PathId::ZERO);
        self.side == Side::Server
            && arrival.path == PathId::ZERO
            && path.is_some_and(|path| {
                let local = path.tuple.four_tuple.local;
                local != arrival.four_tuple.local && self.is_preferred(local)
            })
    }

    fn want_candidate(&mut self, now: Instant) {
        let path = self.paths.open_mut(PathId::ZERO);
        if let Some(candidate) = path.and_then(|path| path.candidate.as_mut()) {
            candidate.wanted = true;
            self.adopt_candidate(now);
        }
    }

    /// Moves path 0 if the address is proven and the client uses it.
    pub(super) fn adopt_candidate(&mut self, now: Instant) {
        let mtu = self.config.initial_mtu;
        let Some(path) = self.paths.open_mut(PathId::ZERO) else {
            return;
        };
        let is_ready =
            |candidate: &mut Box<Candidate>| candidate.wanted && candidate.tuple.validated;
        let Some(candidate) = path.candidate.take_if(is_ready) else {
            return;
        };
        let before = std::mem::replace(&mut path.tuple, candidate.tuple).four_tuple;
        let four_tuple = path.tuple.four_tuple;
        path.previous = None;
        path.on_moved(before.local.ip() == four_tuple.local.ip(), &mut self.outbox);
        // RFC 9000 section 9.4
        path.recovery
            .reset_for_new_address(&mut path.space, &self.config, now);
        path.mtu.reset();
        self.outbox
            .controller
            .on_path_opened(PathId::ZERO, now, mtu);
        self.change_cid(PathId::ZERO, |cids| Some(cids.adopt_candidate()));
        tracing::debug!(%four_tuple, "moves to the preferred address");
        self.log_tuple(PathId::ZERO);
        self.log_mtu(PathId::ZERO);
        let moved = PathEvent::Migrated(PathId::ZERO, four_tuple);
        self.outbox.event(Event::Path(moved));
        self.review_backups();
    }

    /// Validation of the candidate failed: everything stays as it is (RFC 9000 section 9.6.2).
    pub(super) fn on_candidate_failed(&mut self, id: PathId) {
        if let Some(path) = self.paths.open_mut(id) {
            path.candidate = None;
        }
        self.change_cid(id, |cids| Some(cids.release_candidate()));
    }
}
