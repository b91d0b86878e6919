//! [`Managed`]: a path manager at work on a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::{
    ClosePathError, Connection, FourTuple, MigrateError, OpenPathError, PathId, TransportErrorCode,
};

use crate::local::Local;
use crate::manager::{Action, Event, Outcome, PathManager, PathManagerFactory, Start};
use crate::view::View;

/// If the manager's timeout is not after the last [`Managed::run`], the next run is this much
/// later.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Runs a path manager on a connection: passes events to the manager, polls it, and applies its
/// actions to the [`Connection`]. Drivers (`mpquic-tokio`, the simulator) keep one `Managed` per
/// client connection.
///
/// A driver calls [`Self::on_event`] for every event and then [`Self::run`]. It also calls `run`
/// after each change of the connection and at [`Self::next_timeout`].
#[derive(Debug)]
pub struct Managed {
    manager: Box<dyn PathManager>,
    locals: Arc<[Local]>,
    ran: Option<Instant>,
}

impl Managed {
    /// The most actions that one [`Self::run`] applies. Later actions wait for the next `run`.
    pub const MOST_ACTIONS: usize = 256;

    /// The manager of a connection that starts now.
    pub fn new(factory: &dyn PathManagerFactory, start: &Start) -> Self {
        Self {
            manager: factory.build(start),
            locals: start.locals.clone(),
            ran: None,
        }
    }

    /// Passes an event to the manager.
    pub fn on_event(&mut self, event: &Event<'_>, connection: &Connection, now: Instant) {
        self.manager.on_event(event, &View::new(connection, now));
    }

    /// Replaces the local addresses at which paths can start.
    pub fn set_locals(&mut self, locals: Arc<[Local]>, connection: &Connection, now: Instant) {
        self.on_event(&Event::Locals(&locals), connection, now);
        self.locals = locals;
    }

    /// See [`PathManager::may_use`].
    pub fn may_use(&self, local: &Local) -> bool {
        self.manager.may_use(local)
    }

    /// The time at which [`Self::run`] is due without any event; `None` if the manager waits for
    /// events only.
    pub fn next_timeout(&self) -> Option<Instant> {
        let timeout = self.manager.next_timeout()?;
        let is_late = |ran: &Instant| timeout <= *ran;
        Some(match self.ran.filter(is_late) {
            Some(ran) => ran + SHORTEST_WAIT,
            None => timeout,
        })
    }

    /// Polls the manager and applies its actions. A path that cannot move yet stays at its
    /// addresses if `may_wait` is true for them; otherwise the path is suspended. Returns true if a
    /// path waits to move.
    pub fn run(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        may_wait: impl Fn(FourTuple) -> bool,
    ) -> bool {
        self.ran = Some(now);
        let mut waits = false;
        for _ in 0..Self::MOST_ACTIONS {
            let Some(action) = self.manager.poll(&View::new(connection, now)) else {
                return waits;
            };
            let outcome = self.apply(action, connection, now, &may_wait);
            waits |= outcome == Outcome::Later && matches!(action, Action::Move { .. });
            tracing::trace!(manager = self.manager.name(), ?action, ?outcome);
            let applied = Event::Applied(action, outcome);
            self.on_event(&applied, connection, now);
        }
        tracing::debug!(manager = self.manager.name(), "too many actions");
        waits
    }

    fn apply(
        &self,
        action: Action,
        connection: &mut Connection,
        now: Instant,
        may_wait: &impl Fn(FourTuple) -> bool,
    ) -> Outcome {
        match action {
            Action::Open { four_tuple, status } => {
                opened(connection.open_path(now, four_tuple, status))
            }
            Action::Close { path } => {
                let reason = TransportErrorCode::APPLICATION_ABANDON_PATH;
                match connection.close_path(now, path, reason) {
                    Ok(()) | Err(ClosePathError::NoSuchPath) => Outcome::Done,
                    Err(_) => Outcome::Refused,
                }
            }
            Action::Move { path, local } => {
                let is_lost = |old: FourTuple| {
                    let mut locals = self.locals.iter();
                    !locals.any(|of| of.owns(old.local) && self.manager.may_use(of))
                };
                let moved = move_path(connection, now, (path, local), is_lost);
                let waits = |path| {
                    let stats = connection.path_stats(path);
                    stats.is_some_and(|stats| may_wait(stats.four_tuple))
                };
                match moved {
                    Outcome::Later if waits(path) => Outcome::Later,
                    Outcome::Done => set_usable(connection, now, path, true),
                    _ => {
                        set_usable(connection, now, path, false);
                        Outcome::Refused
                    }
                }
            }
            Action::Suspend { path } => set_usable(connection, now, path, false),
            Action::Resume { path } => set_usable(connection, now, path, true),
            Action::SetStatus { path, status } => match connection.path_mut(path) {
                Ok(mut path) => {
                    path.set_status(status);
                    Outcome::Done
                }
                Err(_) => Outcome::Refused,
            },
        }
    }
}

fn opened(result: Result<PathId, OpenPathError>) -> Outcome {
    match result {
        Ok(path) => Outcome::Opened(path),
        Err(
            OpenPathError::PathsBlocked
            | OpenPathError::NoConnectionId
            | OpenPathError::HandshakeIncomplete,
        ) => Outcome::Later,
        Err(OpenPathError::AddressForbidden) => Outcome::Refused,
        Err(_) => Outcome::Never,
    }
}

fn set_usable(connection: &mut Connection, now: Instant, path: PathId, usable: bool) -> Outcome {
    match connection.set_path_usable(now, path, usable) {
        Ok(()) => Outcome::Done,
        // The path was abandoned: nothing is sent on it anyway.
        Err(_) => Outcome::Refused,
    }
}

/// Moves a path to a local address. Returns [`Outcome::Done`], [`Outcome::Refused`], or
/// [`Outcome::Later`] if the move needs the confirmed handshake or another connection ID of the
/// peer. If `is_lost` is true for the old addresses, the path never returns to them.
pub fn move_path(
    connection: &mut Connection,
    now: Instant,
    (path, local): (PathId, SocketAddr),
    is_lost: impl Fn(FourTuple) -> bool,
) -> Outcome {
    let Ok(mut path) = connection.path_mut(path) else {
        return Outcome::Refused;
    };
    let outcome = match path.set_local_address(now, local) {
        Ok(()) => Outcome::Done,
        Err(MigrateError::NotConfirmed | MigrateError::NoConnectionId) => Outcome::Later,
        Err(_) => Outcome::Refused,
    };
    if path.previous_addresses().is_some_and(is_lost) {
        path.forget_previous_addresses();
    }
    outcome
}
