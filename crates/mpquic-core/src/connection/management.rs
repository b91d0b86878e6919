//! Path management (RFC 10069 section 3): opening, connection IDs, abandoning, forgetting.

use std::time::{Duration, Instant};

use quinn_proto::Side;
use rand::RngExt;
use smallvec::SmallVec;

use super::{Connection, State};
use crate::cid::peer::ResetTokenChanges;
use crate::congestion::Controller as _;
use crate::error::{ConnectionError, Fault, TransportError, TransportErrorCode};
use crate::event::{Event, OpenPathError, PathEvent, RouteChange};
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::packet::arrival::{Arrival, Opened};
use crate::path::Path;
use crate::sched::SchedulerEvent;
use crate::wire::frame::{
    self, NewConnectionId, PathAbandon, PathCidsBlocked, PathNewConnectionId,
    PathRetireConnectionId,
};

/// Connection IDs kept ready on a path that is open, one of them in use, and on one that is not
/// (MP-093).
const CIDS_PER_PATH: u64 = 2;
const CIDS_PER_UNUSED_PATH: u64 = 1;
/// The same on path 0 of a server with a preferred address, in addition.
const CIDS_FOR_PREFERRED: u64 = 2;
/// A new path's first challenge is repeated after so many of the largest PTO of the others.
const KNOWN_TIMEOUTS: u32 = 3;
/// State of a path that both sides abandoned stays for this many of the largest PTO (MP-124).
const DRAIN_TIMEOUTS: u32 = 3;

impl Connection {
    /// Opens a path as a client (MP-070, MP-071).
    pub(super) fn start_path(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        status: PathStatus,
    ) -> Result<PathId, OpenPathError> {
        if !self.state.is_open() {
            return Err(OpenPathError::Closed);
        }
        if self.side == Side::Server {
            return Err(OpenPathError::ServerSide);
        }
        if !self.handshake.is_confirmed() {
            return Err(OpenPathError::NotConfirmed);
        }
        if !self.paths.ids.is_multipath() {
            return Err(OpenPathError::NotNegotiated);
        }
        // MP-017
        if self.paths.shared.peer.disable_active_migration
            && four_tuple.remote == self.paths.shared.handshake_address
        {
            return Err(OpenPathError::AddressForbidden);
        }
        let Some(id) = self.paths.ids.unused().next() else {
            self.paths.ids.request();
            return Err(OpenPathError::PathsBlocked);
        };
        let slot = self.paths.slot_or_new(id);
        // MP-072: a fresh connection ID of the unused path ID.
        let Some(changes) = slot.peer_cids.rotate() else {
            slot.peer_cids.request();
            return Err(OpenPathError::NoConnectionId);
        };
        slot.statuses_mut().set_local(status);
        self.apply_token_changes(changes);
        self.create_path(now, id, four_tuple);
        Ok(id)
    }

    /// Sets up a path and begins to validate it (MP-074, MP-075).
    fn create_path(&mut self, now: Instant, id: PathId, four_tuple: FourTuple) {
        if !self.paths.ids.open(id) {
            return;
        }
        // A four-tuple that another path has validated needs no validation of its own.
        let validated = self
            .paths
            .iter()
            .any(|path| path.is_usable() && path.tuple.four_tuple == four_tuple);
        let mut path = Path::new(id, four_tuple, self.side, now, &self.config);
        if validated {
            path.tuple.set_validated();
        }
        path.mtu
            .limit_to(self.paths.shared.peer.max_udp_payload_size);
        let random = &mut self.paths.shared.random;
        path.space.skip_numbers(random.random());
        path.spins = self.config.spin_bit && random.random_ratio(15, 16);
        // Also on a validated tuple: the challenge checks that full datagrams pass (MP-079) and
        // makes the client's new path known to the server.
        // A lost challenge is repeated as soon as the other paths' experience suggests, not only
        // after the second or more that an unknown path would be given.
        let known = self.paths.largest_pto();
        let pto = path.recovery.pto(self.paths.peer_max_ack_delay());
        path.tuple.validation.start(
            now,
            pto.min(KNOWN_TIMEOUTS * known),
            self.config.initial_pto(),
        );
        self.outbox
            .controller
            .on_path_opened(id, now, path.mtu.mtu());
        if let Some(slot) = self.paths.slot_mut(id) {
            slot.path = Some(Box::new(path));
        }
        self.log_tuple(id);
        self.log_mtu(id);
        // A client waits for the response all the same: until then the server may lack a connection
        // ID to answer with, and drop what it gets.
        if validated && self.side == Side::Server {
            self.establish(id);
        }
        self.issue_cids();
    }

    /// Makes sure that the path of an opened packet exists; false if the packet must be dropped.
    pub(super) fn admit_path(&mut self, arrival: &Arrival) -> bool {
        let Some(slot) = self.paths.slot(arrival.path) else {
            return false;
        };
        if slot.path.is_some() {
            return true;
        }
        if !self.paths.may_be_opened(slot) {
            return false;
        }
        let slot = self.paths.slot_or_new(arrival.path);
        let Some(changes) = slot.peer_cids.rotate() else {
            return false;
        };
        self.apply_token_changes(changes);
        self.create_path(arrival.now, arrival.path, arrival.four_tuple);
        // The path did not exist yet when its first datagram was counted.
        self.credit_datagram(arrival);
        true
    }

    /// The path works: tells application and scheduler.
    pub(super) fn establish(&mut self, id: PathId) {
        if let Some(path) = self.paths.open_mut(id)
            && !path.established
        {
            path.established = true;
            self.outbox.scheduler_event(SchedulerEvent::PathAdded(id));
            self.outbox.event(Event::Path(PathEvent::Established(id)));
            if self.side == Side::Server && id != PathId::ZERO {
                self.offer_token();
            }
        }
    }

    /// Keeps the peer supplied with connection IDs for open paths and for those it may open next
    /// (MP-093, MP-094, MP-096).
    pub(super) fn issue_cids(&mut self) {
        let limit = self.paths.shared.peer.active_connection_id_limit;
        // A client that moves to the preferred address and has to change its own meanwhile needs
        // one for each pair of addresses (RFC 9000 section 9.6.3).
        let announced = self.side == Side::Server && self.paths.shared.preferred.is_some();
        let for_moves = if announced { CIDS_FOR_PREFERRED } else { 0 };
        let open = self.paths.iter().map(|path| match path.id {
            PathId::ZERO => (path.id, CIDS_PER_PATH + for_moves),
            id => (id, CIDS_PER_PATH),
        });
        let unused = self.paths.ids.issuable();
        let unused = unused.map(|id| (id, CIDS_PER_UNUSED_PATH));
        let targets: SmallVec<[(PathId, u64); 16]> = open.chain(unused).collect();
        for (id, target) in targets {
            let wanted = self
                .paths
                .slot_or_new(id)
                .local_cids
                .wanted(target.min(limit));
            for _ in 0..wanted {
                let Some(cid) = self.paths.new_cid() else {
                    return;
                };
                let token = self.paths.shared.reset_key.token(&cid);
                self.paths.slot_or_new(id).local_cids.issue(cid, token);
                self.outbox
                    .endpoint_event(RouteChange::ConnectionIdIssued(cid, id));
            }
        }
    }

    pub(super) fn apply_token_changes(&mut self, changes: ResetTokenChanges) {
        self.outbox.reset_tokens(changes);
    }

    /// PATH_NEW_CONNECTION_ID.
    pub(super) fn on_path_new_connection_id(
        &mut self,
        frame: &PathNewConnectionId,
    ) -> Result<(), TransportError> {
        self.paths.ids.check(frame.path_id)?;
        self.on_new_connection_id(frame.path_id, &frame.new_connection_id)
    }

    /// NEW_CONNECTION_ID, of this path.
    pub(super) fn on_new_connection_id(
        &mut self,
        id: PathId,
        new: &NewConnectionId,
    ) -> Result<(), TransportError> {
        // MP-051: a path that was abandoned or forgotten is past.
        if self.paths.ids.is_used(id) && self.paths.open(id).is_none() {
            return Ok(());
        }
        // MP-095: the same bytes on a second path ID.
        if self
            .paths
            .slots()
            .iter()
            .any(|slot| slot.id != id && slot.peer_cids.contains(&new.connection_id))
        {
            return Err(Fault::ConnectionIdOnTwoPaths.into());
        }
        let slot = self.paths.slot_or_new(id);
        if slot.abandon.is_some() {
            return Ok(());
        }
        let changes = slot.peer_cids.on_new_connection_id(new)?;
        if let (false, Some(path)) = (changes.is_empty(), &mut slot.path) {
            // RFC 9000 section 17.4: another connection ID is in use.
            path.spin = false;
        }
        self.apply_token_changes(changes);
        if self.side == Side::Client
            && self.paths.ids.is_multipath()
            && self.paths.ids.unused().next() == Some(id)
        {
            self.outbox.event(Event::Path(PathEvent::Available));
        }
        Ok(())
    }

    /// PATH_RETIRE_CONNECTION_ID.
    pub(super) fn on_path_retire(
        &mut self,
        frame: &PathRetireConnectionId,
        opened: &Opened,
    ) -> Result<(), TransportError> {
        self.paths.ids.check(frame.path_id)?;
        self.on_retire(frame.path_id, frame.sequence_number, opened)
    }

    /// RETIRE_CONNECTION_ID, of this path.
    pub(super) fn on_retire(
        &mut self,
        id: PathId,
        sequence: u64,
        opened: &Opened,
    ) -> Result<(), TransportError> {
        if self.paths.ids.is_closed(id) {
            return Ok(());
        }
        // MP-106: a path without a slot was never given a connection ID.
        let slot = self.paths.slot_or_new(id);
        if let Some(cid) = slot.local_cids.on_retire(sequence, &opened.destination)? {
            self.outbox
                .endpoint_event(RouteChange::ConnectionIdRetired(cid));
            // MP-100
            self.issue_cids();
        }
        Ok(())
    }

    /// PATH_STATUS_BACKUP or PATH_STATUS_AVAILABLE.
    pub(super) fn on_path_status(
        &mut self,
        now: Instant,
        frame: &frame::PathStatus,
    ) -> Result<(), TransportError> {
        let (id, status) = (frame.path_id, frame.status);
        self.paths.ids.check(id)?;
        self.advisory_frames.on_frame(now)?;
        if self.paths.ids.is_used(id) && self.paths.open(id).is_none() {
            return Ok(());
        }
        let statuses = self.paths.slot_or_new(id).statuses_mut();
        if statuses.on_path_status(status, frame.sequence_number) {
            self.outbox
                .scheduler_event(SchedulerEvent::PathStatus(id, status));
            self.outbox.path_event(PathEvent::RemoteStatus(id, status));
        }
        Ok(())
    }

    /// MAX_PATH_ID.
    pub(super) fn on_max_path_id(
        &mut self,
        now: Instant,
        maximum: PathId,
    ) -> Result<(), TransportError> {
        self.advisory_frames.on_frame(now)?;
        let raised = self.paths.ids.on_max_path_id(maximum)?;
        self.issue_cids();
        if raised {
            self.outbox.path_event(PathEvent::Available);
        }
        Ok(())
    }

    /// PATHS_BLOCKED. Our limit rises by itself as paths close; the frame is only checked.
    pub(super) fn on_paths_blocked(
        &mut self,
        now: Instant,
        maximum: PathId,
    ) -> Result<(), TransportError> {
        self.paths.ids.check(maximum)?;
        self.advisory_frames.on_frame(now)
    }

    /// PATH_CIDS_BLOCKED.
    pub(super) fn on_path_cids_blocked(
        &mut self,
        now: Instant,
        frame: &PathCidsBlocked,
    ) -> Result<(), TransportError> {
        let id = frame.path_id;
        self.paths.ids.check(id)?;
        self.advisory_frames.on_frame(now)?;
        if !self.paths.ids.is_closed(id) {
            let cids = &self.paths.slot_or_new(id).local_cids;
            // MP-143
            cids.on_cids_blocked(frame.next_sequence_number)?;
            self.issue_cids();
        }
        Ok(())
    }

    /// PATH_ABANDON.
    pub(super) fn on_path_abandon(
        &mut self,
        now: Instant,
        frame: &PathAbandon,
    ) -> Result<(), TransportError> {
        let id = frame.path_id;
        self.paths.ids.check(id)?;
        self.advisory_frames.on_frame(now)?;
        if self.paths.ids.is_closed(id) {
            return Ok(());
        }
        // MP-125: also valid for a path never used.
        self.paths.slot_or_new(id);
        // MP-123
        self.abandon_path(now, id, frame.error_code, true);
        let deadline = now + self.drain_period();
        if let Some(slot) = self.paths.slot_mut(id) {
            slot.on_peer_abandon(deadline);
        }
        Ok(())
    }

    fn drain_period(&self) -> Duration {
        DRAIN_TIMEOUTS * self.paths.largest_pto()
    }

    /// Closing and draining last three times the largest PTO (MP-146).
    pub(super) fn closing_period(&self) -> Duration {
        self.drain_period()
    }

    /// Stops using a path: sends PATH_ABANDON, retires the peer's connection IDs, moves what was
    /// in flight to other paths (MP-120, MP-121).
    pub(super) fn abandon_path(
        &mut self,
        now: Instant,
        id: PathId,
        error_code: TransportErrorCode,
        by_peer: bool,
    ) {
        let open = self.paths.open(id).is_some();
        if open && self.paths.iter().all(|path| path.id == id) {
            self.close_without_path(now, by_peer);
            return;
        }
        let Some(slot) = self.paths.slot_mut(id) else {
            return;
        };
        if !slot.abandon(error_code) {
            return;
        }
        let changes = slot.peer_cids.abandon();
        slot.local_cids.abandon();
        slot.statuses_mut().abandon();
        if let Some(path) = &mut slot.path {
            path.responses.clear();
        }
        let existed = slot.path.is_some();
        self.apply_token_changes(changes);
        // MP-125: an ID that was never used is spent all the same.
        self.paths.ids.abandon(id);
        if existed {
            self.outbox.controller.on_path_closed(id);
            self.outbox.scheduler_event(SchedulerEvent::PathRemoved(id));
            let event = PathEvent::Abandoned {
                path: id,
                error_code,
                by_peer,
            };
            self.outbox.event(Event::Path(event));
            self.reinject(id);
            self.drop_oversized_datagrams();
        }
    }

    /// The last path is gone (MP-128).
    fn close_without_path(&mut self, now: Instant, by_peer: bool) {
        if !self.state.is_open() {
            return;
        }
        let error = TransportError::new(Fault::NoPathLeft);
        let until = now + self.closing_period();
        self.state = State::fault(&error, until);
        if by_peer {
            self.lose(ConnectionError::TransportError(error));
        } else {
            self.lose(ConnectionError::LocallyClosed);
        }
    }

    /// Drops the state of abandoned paths whose time is over (MP-127).
    pub(super) fn discard_paths(&mut self, now: Instant) {
        while let Some(id) = self
            .paths
            .slots()
            .iter()
            .find(|slot| {
                slot.drain_deadline()
                    .is_some_and(|deadline| deadline <= now)
            })
            .map(|slot| slot.id)
        {
            self.forget_path(id);
        }
    }

    fn forget_path(&mut self, id: PathId) {
        self.reinject(id);
        let Some(mut slot) = self.paths.remove(id) else {
            return;
        };
        // MP-131: the ID is spent, and our limit rises in exchange.
        self.paths.ids.close(id);
        for cid in slot.local_cids.drain() {
            self.outbox
                .endpoint_event(RouteChange::ConnectionIdRetired(cid));
        }
        if slot.path.is_some() {
            self.outbox.event(Event::Path(PathEvent::Discarded(id)));
        }
        self.issue_cids();
    }
}
