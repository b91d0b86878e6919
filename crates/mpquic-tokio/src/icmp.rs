//! The effect of ICMP messages on a connection.

use std::time::Instant;

use mpquic_core::{ConnectionError, PathState, PathStats};
use smallvec::SmallVec;

use crate::connection_state::LockedConnection;
use crate::error_queue::Unreachable;
use crate::socket::Socket;

impl LockedConnection<'_> {
    /// An ICMP message reports that a datagram from a socket did not reach an address of the peer.
    /// Anybody can forge an ICMP message, so the message ends no working connection: the message
    /// only causes a probe of the path. A client without any packet from its server gives up after
    /// a report of a closed port, if the report quotes the random connection ID that the client
    /// sent (RFC 9000 section 14.2.1).
    pub(crate) fn on_unreachable(&mut self, socket: &Socket, error: &Unreachable, now: Instant) {
        if self.error.is_some() {
            return;
        }
        let core = &self.core;
        let paths = core.paths().filter_map(|id| core.path_stats(id));
        let concerned = paths.filter(|path| {
            path.four_tuple.remote == error.remote && socket.owns(path.four_tuple.local)
        });
        let concerned: SmallVec<[PathStats; 2]> = concerned.collect();
        let is_unheard = concerned.iter().all(|path| path.packets_received == 0);
        if concerned.is_empty() {
            return;
        }
        if error.is_port && is_unheard && !self.connected && self.sending.has_sent(error.quoted()) {
            self.broken = true;
            let notifications = &self.connection.notifications;
            self.end(notifications, ConnectionError::PortUnreachable);
            self.wake_task(); // It ends.
            return;
        }
        if error.is_port {
            let engine = &mut **self;
            let is_open = |id| engine.core.paths().any(|open| open == id);
            for path in &concerned {
                engine.closed_ports.on_report(path.id, now, is_open);
            }
        }
        if !self.closed_ports.may_probe(now) {
            return;
        }
        for path in concerned {
            if path.state == PathState::Active
                && let Ok(mut path) = self.core.path_mut(path.id)
            {
                path.ping();
            }
        }
        self.run(now);
    }

    /// True if, since the peer's last packet, each path in use has a report that no program listens
    /// on the peer's port.
    pub(crate) fn are_ports_closed(&self) -> bool {
        let core = &self.core;
        let heard = self.connection.began + core.stats().last_received;
        let paths = core.paths().filter_map(|id| core.path_stats(id));
        let mut used = paths.filter(is_used).peekable();
        let is_any = used.peek().is_some();
        is_any && used.all(|path| self.closed_ports.has_report(path.id, heard))
    }
}

/// True for a path that was validated and is open, also while the path fails.
pub(crate) fn is_used(path: &PathStats) -> bool {
    matches!(path.state, PathState::Active | PathState::Suspect)
}
