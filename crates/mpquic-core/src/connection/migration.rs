//! Validation, and changes of a path's four-tuple: NAT rebinding and migration (RFC 9000
//! sections 8.2 and 9). The path ID, its packet number space and its status stay (MP-082).

use std::time::Instant;

use quinn_proto::Side;

use super::ingress::Arrival;
use super::{Connection, Event, PathEvent};
use crate::error::TransportErrorCode;
use crate::ids::{FourTuple, PathId};
use crate::path::{Path, Tuple};

impl Connection {
    /// A PATH_CHALLENGE: the response leaves on the four-tuple it came on (MP-077).
    pub(super) fn on_path_challenge(&mut self, arrival: &Arrival, data: [u8; 8]) {
        if let Some(path) = self.paths.open_mut(arrival.path) {
            path.responses.on_path_challenge(arrival.four_tuple, data);
            if path.tuple.four_tuple.matches(&arrival.four_tuple) {
                path.tuple.validation.on_heard();
            }
        }
    }

    /// A PATH_RESPONSE: may arrive anywhere, names the challenge by its data.
    pub(super) fn on_path_response(&mut self, arrival: &Arrival, data: [u8; 8]) {
        let Some(path) = self.paths.open_mut(arrival.path) else {
            return;
        };
        let now = arrival.now;
        if path.tuple.validation.on_path_response(now, data).is_some() {
            path.tuple.set_validated();
            let migrated = path.previous.take().is_some();
            let four_tuple = path.tuple.four_tuple;
            self.establish(arrival.path);
            if migrated {
                self.events
                    .push_back(Event::Path(PathEvent::Migrated(arrival.path, four_tuple)));
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
        // RFC 9000 section 9.3: only the newest non-probing packet moves the path.
        if self.side == Side::Server && newest_non_probing && self.accepts_migration() {
            self.migrate(arrival.now, arrival.path, arrival.four_tuple);
            if let Some(path) = self.paths.open_mut(arrival.path) {
                path.tuple.amplification.on_received(arrival.size);
            }
        }
    }

    fn accepts_migration(&self) -> bool {
        match &self.handshake.role {
            super::Role::Server(server) => self.handshake.confirmed && server.config.migration,
            super::Role::Client(_) => true,
        }
    }

    /// Moves a path to another four-tuple and validates it (RFC 9000 section 9.3).
    pub(super) fn migrate(&mut self, now: Instant, id: PathId, four_tuple: FourTuple) {
        let mtu = self.config.initial_mtu;
        let side = self.side;
        let Some(path) = self.paths.open_mut(id) else {
            return;
        };
        let Path {
            tuple, previous, ..
        } = path;
        if previous
            .as_ref()
            .is_some_and(|old| old.four_tuple == four_tuple)
        {
            // Back to where it was before: no need to prove it again.
            let old = previous
                .take()
                .unwrap_or_else(|| Tuple::new(four_tuple, side));
            *tuple = old;
        } else {
            let new = Tuple::new(four_tuple, side);
            let old = std::mem::replace(tuple, new);
            if old.validated {
                *previous = Some(old);
            }
        }
        let pto = path.recovery.pto(self.peer.max_ack_delay);
        let initial_pto = self.config.initial_pto();
        tuple.validation.start(now, pto, initial_pto);
        // RFC 9000 section 9.3.3: ask at the old address too, it may have been spoofed.
        if let Some(previous) = previous {
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
            self.controller.on_path_opened(id, now, mtu);
        }
        path.suspect = false;
        tracing::debug!(path = %id, %four_tuple, "path migrates");
        self.log_tuple(id);
    }

    /// Validation of the path's tuple failed: fall back or give the path up (MP-084).
    pub(super) fn on_validation_failed(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_mut(id) else {
            return;
        };
        if let Some(previous) = path.previous.take() {
            path.tuple = previous;
            self.log_tuple(id);
        } else {
            // Also if the address was proven, but no full datagram passes (MP-079).
            self.abandon_path(now, id, TransportErrorCode::PATH_UNSTABLE_OR_POOR, false);
        }
    }
}
