//! The life of a path (RFC 10069 section 3): opened, established, abandoned, forgotten.

use std::time::{Duration, Instant};

use quinn_proto::{ConnectionId, Side};
use rand::RngExt;
use smallvec::SmallVec;

use super::Path;
use super::set::Paths;
use super::shared::Shared;
use super::slot::PathSlot;
use crate::cid::peer::PeerCid;
use crate::congestion::Controller as _;
use crate::error::TransportErrorCode;
use crate::event::{OpenPathError, PathEvent, RouteChange};
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::outbox::Outbox;
use crate::sched::SchedulerEvent;

/// How many of our connection IDs the peer should have for an open path, one of them in use, and
/// for a path that is not open yet (MP-093).
const CIDS_PER_PATH: u64 = 2;
const CIDS_PER_UNUSED_PATH: u64 = 1;
/// Further connection IDs for path 0 of a server with a preferred address.
const CIDS_FOR_PREFERRED: u64 = 2;
/// The first challenge on a new path is repeated after this many times the largest PTO of the other
/// paths.
const KNOWN_TIMEOUTS: u32 = 3;
/// The state of a path which both sides abandoned is kept for this many of the largest PTOs
/// (MP-124).
const DRAIN_TIMEOUTS: u32 = 3;
/// The state of an abandoned path is kept no longer than this: a peer can extend its probe timeout
/// at will by acknowledging late.
const MAX_DRAIN: Duration = Duration::from_secs(60);

/// The result of abandoning a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Abandonment {
    /// The path is abandoned, now or since earlier.
    Done,
    /// There is no other path: the connection is to be closed with NO_VIABLE_PATH (MP-128).
    NoOtherPath,
}

/// The initial state of path 0.
#[derive(Debug)]
pub(crate) struct FirstPath {
    pub(crate) now: Instant,
    pub(crate) four_tuple: FourTuple,
    /// The peer has proven its address, or we chose the address.
    pub(crate) validated: bool,
    /// The path uses the latency spin bit.
    pub(crate) spins: bool,
    /// Our connection ID in the handshake.
    pub(crate) local_cid: ConnectionId,
    /// The peer's connection ID in the handshake.
    pub(crate) peer_cid: ConnectionId,
}

impl Paths {
    /// The paths of a new connection: path 0.
    pub(crate) fn begin(mut shared: Shared, first: &FirstPath) -> Self {
        let (id, side) = (PathId::ZERO, shared.side);
        let mut path = Path::new(id, first.four_tuple, side, first.now, &shared.config);
        path.established = true;
        path.spins = first.spins;
        path.space.skip_numbers(shared.random.bytes());
        if first.validated {
            path.tuple.set_validated();
        }
        let token = shared.reset_key.token(&first.local_cid);
        let mut paths = Self::new(shared);
        // RFC 9000 section 5.1.1
        let preferred = paths.shared.preferred.as_deref();
        let preferred = preferred.map(|it| (it.connection_id, it.stateless_reset_token));
        let slot = paths.slot_or_new(id);
        slot.local_cids.add_announced(first.local_cid, token);
        if let Some((cid, token)) = preferred {
            slot.local_cids.add_announced(cid, token);
        }
        slot.path = Some(Box::new(path));
        slot.set_handshake_cid(first.peer_cid);
        paths
    }

    /// Tells the controller what is remembered of path 0.
    pub(crate) fn resume_first(&mut self, now: Instant, outbox: &mut Outbox) {
        if let Some(path) = self.open_mut(PathId::ZERO) {
            path.resume(now, outbox);
        }
    }

    /// Opens a path as a client (MP-070, MP-071).
    pub(crate) fn open_path(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        status: PathStatus,
        outbox: &mut Outbox,
    ) -> Result<PathId, OpenPathError> {
        let shared = &self.shared;
        if shared.side == Side::Server {
            return Err(OpenPathError::ServerSide);
        }
        if !shared.handshake_complete {
            return Err(OpenPathError::HandshakeIncomplete);
        }
        if !self.ids.is_multipath() {
            return Err(OpenPathError::NotNegotiated);
        }
        // MP-017
        if shared.peer.disable_active_migration && four_tuple.remote == shared.handshake_address {
            return Err(OpenPathError::AddressForbidden);
        }
        let Some(first) = self.ids.unused().next() else {
            self.ids.request();
            return Err(OpenPathError::PathsBlocked);
        };
        // MP-072: with a connection ID that the peer issued for this path ID.
        let openable = self.openable();
        let slot = self.slot_or_new(openable.unwrap_or(first));
        let (Some(id), Some(cid)) = (openable, slot.peer_cids.take(outbox)) else {
            slot.peer_cids.request();
            return Err(OpenPathError::NoConnectionId);
        };
        slot.statuses_mut().set_local(status);
        self.create(now, id, four_tuple, cid, outbox);
        Ok(id)
    }

    /// The smallest unused ID for which both sides have issued connection IDs (MP-071).
    pub(super) fn openable(&self) -> Option<PathId> {
        self.ids.unused().find(|id| {
            let slot = self.slot(*id);
            slot.is_some_and(|slot| {
                slot.peer_cids.has_unused() && slot.local_cids.active().len() > 0
            })
        })
    }

    /// Sets up a path and begins to validate it (MP-074, MP-075).
    pub(super) fn create(
        &mut self,
        now: Instant,
        id: PathId,
        four_tuple: FourTuple,
        cid: PeerCid,
        outbox: &mut Outbox,
    ) {
        if !self.ids.open(id) {
            return;
        }
        // A four-tuple validated by another path counts here, too.
        let has_validated = |path: &Path| path.is_validated() && path.is_usable();
        let validated = self
            .iter()
            .any(|path| has_validated(path) && path.tuple.four_tuple == four_tuple);
        // The round-trip times of other paths tell when to repeat a lost challenge. Without other
        // paths, an unknown path is given a second or more.
        let known = KNOWN_TIMEOUTS * self.largest_pto();
        let first = self
            .any(PathId::ZERO)
            .map(|path| path.recovery.rtt.smoothed());
        let handshake_round_trip = first.filter(|_| !self.shared.handshake_confirmed);
        let is_proven = self.shared.take_proven(four_tuple.remote);
        let shared = &mut self.shared;
        let config = &shared.config;
        let mut path = Path::new(id, four_tuple, shared.side, now, config);
        path.tuple.peer_cid = Some(cid);
        if let Some(round_trip) = handshake_round_trip {
            path.recovery.await_handshake(round_trip);
        }
        if validated {
            path.tuple.set_validated();
        }
        path.mtu.limit_to(shared.peer.max_udp_payload_size);
        path.space.skip_numbers(shared.random.bytes());
        path.spins = config.spin_bit && shared.random.random_ratio(15, 16);
        // Even a validated tuple gets a challenge: the challenge checks full datagrams (MP-079) and
        // makes the client's new path known to the server.
        let pto = path.recovery.pto(shared.peer_max_ack_delay()).min(known);
        let initial_pto = shared.config.initial_pto();
        path.tuple.validation.start(now, pto, initial_pto);
        outbox.controller.on_path_opened(id, now, path.mtu.mtu());
        path.resume(now, outbox);
        if is_proven {
            // The peer may forge acknowledgements, so at most a first window leaves before its
            // answer.
            path.tuple.amplification.vouch(outbox.controller.window(id));
        }
        path.report_tuple(outbox);
        path.report_mtu(outbox);
        // A client waits for the response all the same. Before the response, the server may lack a
        // connection ID for its answer, and would drop the client's packets.
        if path.tuple.may_carry_data() && shared.side == Side::Server {
            path.establish(outbox);
        }
        if let Some(slot) = self.slot_mut(id) {
            slot.path = Some(Box::new(path));
        }
        self.issue_cids(outbox);
    }

    /// Keeps the peer supplied with connection IDs for open paths and for those it may open next
    /// (MP-093, MP-094, MP-096).
    pub(crate) fn issue_cids(&mut self, outbox: &mut Outbox) {
        let limit = self.shared.peer.active_connection_id_limit;
        // A client that moves to the preferred address while its own address changes needs a
        // connection ID for each pair of addresses (RFC 9000 section 9.6.3).
        let announced = self.shared.side == Side::Server && self.shared.preferred.is_some();
        let for_moves = if announced { CIDS_FOR_PREFERRED } else { 0 };
        let open = self.iter().map(|path| match path.id {
            PathId::ZERO => (path.id, CIDS_PER_PATH + for_moves),
            id => (id, CIDS_PER_PATH),
        });
        let unused = self.ids.issuable();
        let unused = unused.map(|id| (id, CIDS_PER_UNUSED_PATH));
        // Packets before the end of the handshake must be short.
        let (open_now, unused_now) = if self.shared.handshake_complete {
            (usize::MAX, usize::MAX)
        } else {
            (0, 1)
        };
        let targets = open.take(open_now).chain(unused.take(unused_now));
        let targets: SmallVec<[(PathId, u64); 16]> = targets.collect();
        for (id, target) in targets {
            let target = target.min(limit);
            let wanted = self.slot_or_new(id).local_cids.wanted(target);
            for _ in 0..wanted {
                let Some(cid) = self.new_cid() else {
                    return;
                };
                let token = self.shared.reset_key.token(&cid);
                self.slot_or_new(id).local_cids.issue(cid, token);
                outbox.endpoint_event(RouteChange::ConnectionIdIssued(cid, id));
            }
        }
    }

    /// From now on, new connection IDs of ours replace all issued ones, on all paths (RFC 9000
    /// section 5.1.2).
    pub(crate) fn replace_cids(&mut self) {
        for slot in self.slots_mut() {
            slot.local_cids.replace();
        }
    }

    /// Stops using a path: queues PATH_ABANDON, retires the peer's connection IDs, and moves what
    /// was in flight to other paths (MP-120, MP-121).
    pub(crate) fn abandon(
        &mut self,
        id: PathId,
        error_code: TransportErrorCode,
        by_peer: bool,
        outbox: &mut Outbox,
    ) -> Abandonment {
        let is_open = self.open(id).is_some();
        if is_open && self.iter().all(|path| path.id == id) {
            return Abandonment::NoOtherPath;
        }
        let Some(slot) = self.slot_mut(id) else {
            return Abandonment::Done;
        };
        if !slot.abandon(error_code, outbox) {
            return Abandonment::Done;
        }
        if let Some(path) = &mut slot.path {
            outbox.controller.on_path_closed(id);
            outbox.scheduler_event(SchedulerEvent::PathRemoved(id));
            outbox.path_event(PathEvent::Abandoned {
                path: id,
                error_code,
                by_peer,
            });
            path.reinject(outbox);
        }
        // MP-125: even a never used ID is not used from now on.
        self.ids.abandon(id);
        Abandonment::Done
    }

    /// How long packets sent before may still arrive. The state of an abandoned path is kept for
    /// that long (MP-124), and closing and draining take that long (MP-146).
    pub(crate) fn drain_period(&self) -> Duration {
        (DRAIN_TIMEOUTS * self.largest_pto()).min(MAX_DRAIN)
    }

    /// Drops the state of abandoned paths whose drain period is over (MP-127).
    pub(crate) fn discard_abandoned(&mut self, now: Instant, outbox: &mut Outbox) {
        let is_over = |slot: &&PathSlot| slot.drain_deadline().is_some_and(|at| at <= now);
        while let Some(id) = self.slots().iter().find(is_over).map(|slot| slot.id) {
            self.discard(id, outbox);
        }
    }

    fn discard(&mut self, id: PathId, outbox: &mut Outbox) {
        let last = self.stats(id, &outbox.controller);
        let Some(mut slot) = self.remove(id) else {
            return;
        };
        if let Some(path) = &mut slot.path {
            path.reinject(outbox);
        }
        if let Some(last) = last {
            outbox.path_event(PathEvent::Discarded(Box::new(last)));
        }
        // MP-131: the ID is never used again, and our limit rises in exchange.
        self.ids.close(id);
        for cid in slot.local_cids.drain() {
            outbox.endpoint_event(RouteChange::ConnectionIdRetired(cid));
        }
        self.issue_cids(outbox);
    }
}
