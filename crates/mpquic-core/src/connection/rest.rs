//! Rest: an idle connection gives back the memory it kept for reuse. A server may have very many
//! of them.

use std::time::{Duration, Instant};

use super::Connection;

/// How long nothing must have arrived.
const REST_AFTER: Duration = Duration::from_secs(1);
/// The same the first time: what one handshake needed then serves the next ones, of which a server
/// may see thousands in a second.
const FIRST_REST_AFTER: Duration = Duration::from_millis(100);

/// Whether a connection rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// There was a handshake, and nothing was given back since.
    New,
    /// Memory is kept for the next packet.
    Awake,
    /// All was given back, and nothing has arrived since.
    Asleep,
}

impl Connection {
    /// When memory is to be given back.
    pub(super) fn rest_timeout(&self) -> Option<Instant> {
        let silence = match self.rest {
            Rest::New if self.handshake.confirmed => FIRST_REST_AFTER,
            Rest::New | Rest::Awake => REST_AFTER,
            Rest::Asleep => return None,
        };
        Some(self.idle.since() + silence)
    }

    /// Something arrived.
    pub(super) fn wake(&mut self) {
        if self.rest == Rest::Asleep {
            self.rest = Rest::Awake;
        }
    }

    /// Gives memory back if its time has come.
    pub(super) fn on_rest_timeout(&mut self, now: Instant) {
        if self.rest_timeout().is_some_and(|at| at <= now) {
            self.rest = Rest::Asleep;
            self.outcome = None;
            self.premature.shrink_to_fit();
            self.requeued.shrink_to_fit();
            self.outbox.trim();
            self.paths.rest();
            self.movable.rest();
            self.streams.rest();
            self.datagrams.rest();
        }
    }
}
