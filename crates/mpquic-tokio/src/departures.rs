//! [`Departures`]: sockets that the endpoint has given up and that a connection still needs.
//!
//! A client must not move before its handshake is confirmed (RFC 9000 section 9), and not without
//! an unused connection ID of the peer. Until then the connection continues from its old address.

use std::sync::Arc;
use std::time::Instant;

use mpquic_core::{Connection, FourTuple, PathState, Side};
use mpquic_paths::{Event, Managed, Outcome, move_path};

use crate::socket::Socket;
use crate::sockets::Leaving;

/// Sockets that paths of one connection have to leave.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    left: Vec<Departure>,
    /// The sockets that the endpoint has now.
    locals: Vec<Arc<Socket>>,
}

/// A socket to leave, and the replacement, if the application named a replacement.
#[derive(Debug)]
struct Departure {
    from: Arc<Leaving>,
    to: Option<Arc<Socket>>,
}

impl Departures {
    /// True if no socket has to be left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Forgets every socket: the connection sends no more packets.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The endpoint has given up the sockets `from`, in favour of the socket `to` if given.
    /// `locals` are the remaining sockets.
    pub(crate) fn add(
        &mut self,
        from: &[Arc<Leaving>],
        to: Option<&Arc<Socket>>,
        locals: Vec<Arc<Socket>>,
    ) {
        let is_gone = |socket: &Arc<Socket>| from.iter().any(|gone| gone.is(socket));
        for departure in &mut self.left {
            if departure.to.as_ref().is_some_and(is_gone) {
                departure.to = to.cloned();
            }
        }
        for from in from {
            if !self.left.iter().any(|known| Arc::ptr_eq(&known.from, from)) {
                let (from, to) = (from.clone(), to.cloned());
                self.left.push(Departure { from, to });
            }
        }
        if !self.left.is_empty() {
            self.locals = locals;
        }
    }

    /// Moves the paths that can move now, and lets go of the sockets without a waiting path.
    pub(crate) fn follow(
        &mut self,
        core: &mut Connection,
        mut managed: Option<&mut Managed>,
        now: Instant,
    ) {
        let mut waits = core.side() == Side::Client && !core.is_handshake_confirmed();
        for departure in &self.left {
            if let Some(to) = &departure.to {
                waits |= self.move_paths(departure, to, core, &mut managed, now);
            }
        }
        if let Some(managed) = managed {
            let may_wait = |tuple: FourTuple| self.left.iter().any(|of| of.from.owns(tuple.local));
            waits |= managed.run(core, now, may_wait);
        }
        let paths = core.paths().filter_map(|path| core.path_stats(path));
        let open = paths.filter(|path| path.state != PathState::Abandoned);
        let used: Vec<FourTuple> = open.map(|path| path.four_tuple).collect();
        let locals = &self.locals;
        self.left.retain(|departure| {
            waits && used.iter().any(|tuple| departure.is_lost(locals, *tuple))
        });
        if self.left.is_empty() {
            self.clear(); // So that it keeps no socket.
        }
    }

    /// Moves paths to the replacement of their socket. True if a path has to wait.
    fn move_paths(
        &self,
        departure: &Departure,
        to: &Socket,
        core: &mut Connection,
        managed: &mut Option<&mut Managed>,
        now: Instant,
    ) -> bool {
        let mut waits = false;
        let paths: Vec<_> = core.paths().collect();
        for path in paths {
            let stats = core.path_stats(path);
            let four_tuple = stats.map(|stats| stats.four_tuple);
            let Some(four_tuple) = four_tuple.filter(|of| departure.is_lost(&self.locals, *of))
            else {
                continue;
            };
            let local = to.local_towards(four_tuple.remote);
            let is_lost = |tuple| {
                self.left
                    .iter()
                    .any(|left| left.is_lost(&self.locals, tuple))
            };
            let moved = if to.reaches(four_tuple.remote) {
                move_path(core, now, (path, local), is_lost)
            } else {
                Outcome::Refused
            };
            if moved == Outcome::Later {
                waits = true;
                continue;
            }
            // Fails only for an abandoned path, which sends no packets anyway.
            let _ = core.set_path_usable(now, path, moved == Outcome::Done);
            if let (Outcome::Done, Some(managed)) = (moved, &mut *managed) {
                managed.on_event(&Event::Moved(path, local), core, now);
            }
        }
        waits
    }
}

impl Departure {
    /// True if the tuple begins at the removed socket, and at no current socket of the endpoint.
    fn is_lost(&self, locals: &[Arc<Socket>], tuple: FourTuple) -> bool {
        let owns = |socket: &Arc<Socket>| socket.owns(tuple.local);
        self.from.owns(tuple.local) && !locals.iter().any(owns)
    }
}
