//! Validation, and changes of a path's four-tuple: NAT rebinding and migration (RFC 9000
//! sections 8.2 and 9). The path ID, its packet number space and its status stay (MP-082).

use std::net::SocketAddr;
use std::time::Instant;

use quinn_proto::Side;

use super::Connection;
use crate::cid::peer::{PeerCids, ResetTokenChanges};
use crate::congestion::Controller as _;
use crate::error::TransportErrorCode;
use crate::event::{Event, MigrateError, PathEvent};
use crate::ids::{FourTuple, PathId};
use crate::packet::arrival::Arrival;
use crate::path::set::Slot;
use crate::path::validation::Validated;
use crate::path::{Path, Tuple};

impl Connection {
    /// A PATH_CHALLENGE: the response leaves on the four-tuple it came on (MP-077).
    pub(super) fn on_path_challenge(&mut self, arrival: &Arrival, data: [u8; 8]) {
        if let Some(path) = self.paths.open_mut(arrival.path) {
            path.responses.on_path_challenge(arrival.four_tuple, data);
            if path.tuple.four_tuple.matches(&arrival.four_tuple) {
                path.tuple.validation.on_heard();
            }
            self.on_probed(arrival);
            self.set_cid_aside(arrival);
        }
    }

    /// Server: the client probes from addresses of its own choice. They get a connection ID of their
    /// own if there is one (RFC 9000 section 9.5), which stays theirs if the path moves there.
    fn set_cid_aside(&mut self, arrival: &Arrival) {
        let Some(path) = self.paths.open(arrival.path) else {
            return;
        };
        let is_new = path.stranger.as_ref().is_some_and(|stranger| {
            !stranger.has_cid && stranger.tuple.four_tuple == arrival.four_tuple
        });
        // That of the preferred address is not taken away.
        let is_free = self.side == Side::Server && path.candidate.is_none();
        if is_new && is_free && path.is_elsewhere(arrival.four_tuple) {
            let has_cid = self.change_cid(arrival.path, PeerCids::reserve_candidate);
            let path = self.paths.open_mut(arrival.path);
            if let Some(stranger) = path.and_then(|path| path.stranger.as_mut()) {
                stranger.has_cid = has_cid;
            }
        }
    }

    /// A PATH_RESPONSE: may arrive anywhere, names the challenge by its data.
    pub(super) fn on_path_response(&mut self, arrival: &Arrival, data: [u8; 8]) {
        let Some(path) = self.paths.open_mut(arrival.path) else {
            return;
        };
        let now = arrival.now;
        if let Some(candidate) = &mut path.candidate
            && let Some(proof) = candidate.tuple.validation.on_path_response(now, data)
        {
            if proof == Validated::Path {
                candidate.tuple.set_validated();
                self.adopt_candidate(now);
            }
            return;
        }
        if path.tuple.validation.on_path_response(now, data).is_some() {
            path.tuple.set_validated();
            let migrated = path.previous.take().is_some();
            let four_tuple = path.tuple.four_tuple;
            self.establish(arrival.path);
            if migrated {
                self.review_backups();
                self.change_cid(arrival.path, |cids| Some(cids.release_kept()));
                self.outbox
                    .event(Event::Path(PathEvent::Migrated(arrival.path, four_tuple)));
                if self.side == Side::Server {
                    self.offer_token();
                }
            }
        } else if let Some(previous) = &mut path.previous
            && previous.validation.on_path_response(now, data).is_some()
        {
            previous.set_validated();
        }
    }

    /// After a 1-RTT packet: adopts an address change the packet proves.
    pub(super) fn after_one_rtt(&mut self, arrival: &Arrival, newest_non_probing: bool) {
        let Some(path) = self.paths.open_mut(arrival.path) else {
            return;
        };
        let known = path.tuple.four_tuple;
        if known == arrival.four_tuple {
            return;
        }
        if known.matches(&arrival.four_tuple) {
            // The operating system has chosen the address that was left open.
            if !arrival.four_tuple.local.ip().is_unspecified() {
                path.tuple.four_tuple.local = arrival.four_tuple.local;
                self.log_tuple(arrival.path);
            }
            return;
        }
        if self.on_moved_to_preferred(arrival, newest_non_probing) {
            return;
        }
        // RFC 9000 section 9.3: only the newest non-probing packet moves the path.
        if self.side == Side::Server && newest_non_probing && self.accepts_migration(arrival) {
            self.follow(arrival.now, arrival.path, arrival.four_tuple);
            if let Some(path) = self.paths.open_mut(arrival.path) {
                path.tuple.amplification.on_received(arrival.size);
            }
        }
    }

    /// Server: true for a packet from other addresses of a client that was told to stay. It is
    /// dropped (RFC 9000 section 9).
    pub(super) fn is_unwanted_migration(&self, arrival: &Arrival) -> bool {
        let path = self.paths.open(arrival.path);
        let is_elsewhere = |path: &Path| !path.tuple.four_tuple.matches(&arrival.four_tuple);
        self.paths.shared.handshake_confirmed
            && !self.accepts_migration(arrival)
            && path.is_some_and(is_elsewhere)
    }

    fn accepts_migration(&self, arrival: &Arrival) -> bool {
        // RFC 9000 section 18.2: disable_active_migration is about the handshake's address.
        let shared = &self.paths.shared;
        self.side == Side::Client
            || shared.handshake_confirmed
                && (shared.allows_migration || self.is_preferred(arrival.four_tuple.local))
    }

    /// Moves a path of a client to another local address.
    pub(super) fn move_path(
        &mut self,
        now: Instant,
        id: PathId,
        local: SocketAddr,
    ) -> Result<(), MigrateError> {
        let path = self.paths.open(id).ok_or(MigrateError::Closed)?;
        let remote = path.tuple.four_tuple.remote;
        if self.side == Side::Server {
            return Err(MigrateError::ServerSide);
        }
        // RFC 9000 section 9
        if !self.paths.shared.handshake_confirmed {
            return Err(MigrateError::NotConfirmed);
        }
        // RFC 9000 section 18.2, MP-017
        if self.paths.shared.peer.disable_active_migration
            && remote == self.paths.shared.handshake_address
        {
            return Err(MigrateError::AddressForbidden);
        }
        // RFC 9000 section 9.5: another connection ID, so that the addresses cannot be linked.
        if !self.change_cid(id, PeerCids::rotate) {
            if let Some(slot) = self.paths.slot_mut(id) {
                slot.peer_cids.request();
            }
            return Err(MigrateError::NoConnectionId);
        }
        self.migrate(now, id, FourTuple::new(local, remote));
        if id == PathId::ZERO {
            self.prefer_address_from(now, local);
        }
        Ok(())
    }

    /// Changes which of the peer's connection IDs a path uses; false if it cannot be done.
    pub(super) fn change_cid(
        &mut self,
        id: PathId,
        change: impl FnOnce(&mut PeerCids) -> Option<ResetTokenChanges>,
    ) -> bool {
        let Some(slot) = self.paths.slot_mut(id) else {
            return false;
        };
        let changes = change(&mut slot.peer_cids);
        if let Some(path) = &mut slot.path {
            // RFC 9000 section 17.4
            path.spin = false;
        }
        let is_done = changes.is_some();
        self.apply_token_changes(changes.unwrap_or_default());
        is_done
    }

    /// Follows a client to the addresses a packet came from (RFC 9000 section 9.3).
    fn follow(&mut self, now: Instant, id: PathId, four_tuple: FourTuple) {
        let is_back = |path: &Path| {
            let previous = path.previous.as_ref();
            previous.is_some_and(|old| old.four_tuple == four_tuple)
        };
        // RFC 9000 section 9.5: if there is another connection ID, the client's addresses cannot be
        // linked by ours.
        if self.paths.open(id).is_some_and(is_back) {
            self.change_cid(id, |cids| Some(cids.return_to_kept()));
        } else if self.has_candidate(id, four_tuple) {
            self.change_cid(id, |cids| Some(cids.move_to_candidate()));
        } else {
            self.change_cid(id, PeerCids::rotate_keeping);
        }
        self.migrate(now, id, four_tuple);
        if self
            .paths
            .open(id)
            .is_some_and(|path| path.previous.is_none())
        {
            self.change_cid(id, |cids| Some(cids.release_kept()));
        }
    }

    /// True if one of the peer's connection IDs is set aside for these addresses.
    fn has_candidate(&self, id: PathId, four_tuple: FourTuple) -> bool {
        let is_set_aside = |slot: &Slot| {
            let path = slot.path.as_deref();
            slot.peer_cids.candidate().is_some()
                && path.is_some_and(|path| path.is_candidate(four_tuple))
        };
        self.paths.slot(id).is_some_and(is_set_aside)
    }

    /// Moves a path to another four-tuple and validates it (RFC 9000 section 9.3).
    fn migrate(&mut self, now: Instant, id: PathId, four_tuple: FourTuple) {
        let mtu = self.config.initial_mtu;
        let side = self.side;
        let peer_max_ack_delay = self.paths.peer_max_ack_delay();
        let Some(path) = self.paths.open_mut(id) else {
            return;
        };
        let same_interface = path.tuple.four_tuple.local.ip() == four_tuple.local.ip();
        let Path {
            tuple, previous, ..
        } = path;
        if previous
            .as_ref()
            .is_some_and(|old| old.four_tuple == four_tuple)
        {
            // Back to where it was before: no need to prove it again.
            *tuple = previous
                .take()
                .map_or_else(|| Tuple::new(four_tuple, side), |old| *old);
        } else {
            let new = Tuple::new(four_tuple, side);
            let old = std::mem::replace(tuple, new);
            if old.validated {
                *previous = Some(Box::new(old));
            }
        }
        let pto = path.recovery.pto(peer_max_ack_delay);
        let initial_pto = self.config.initial_pto();
        tuple.validation.start(now, pto, initial_pto);
        // RFC 9000 section 9.3.3: ask at the old address too, the new one may have been spoofed. A
        // client knows that it moved.
        if let (Side::Server, Some(previous)) = (side, previous) {
            previous.validation.start(now, pto, initial_pto);
        }
        let same_host = path
            .previous
            .as_ref()
            .is_some_and(|old| old.four_tuple.remote.ip() == four_tuple.remote.ip());
        // RFC 9000 section 9.4: a new port alone may keep the estimates.
        if !same_host || side == Side::Client {
            path.recovery
                .reset_for_new_address(&mut path.space, &self.config, now);
            path.mtu.reset();
            self.outbox.controller.on_path_opened(id, now, mtu);
        }
        path.on_moved(same_interface, &mut self.outbox);
        tracing::debug!(path = %id, %four_tuple, "path migrates");
        self.log_tuple(id);
        self.log_mtu(id);
    }

    /// Validation of the path's tuple failed: fall back or give the path up (MP-084).
    pub(super) fn on_validation_failed(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_mut(id) else {
            return;
        };
        let previous = path.previous.take();
        let returned = match (previous, self.side) {
            (None, _) => false,
            // RFC 9000 section 9.3.2
            (Some(previous), Side::Server) => {
                path.tuple = *previous;
                self.change_cid(id, |cids| Some(cids.return_to_kept()))
            }
            // RFC 9000 section 9.5: the connection ID in use was sent from the other address.
            (Some(previous), Side::Client) => {
                path.tuple = *previous;
                self.change_cid(id, PeerCids::rotate)
            }
        };
        if returned {
            self.log_tuple(id);
        } else {
            // Also if the address was proven, but no full datagram passes (MP-079).
            self.abandon_path(now, id, TransportErrorCode::PATH_UNSTABLE_OR_POOR, false);
        }
    }
}
