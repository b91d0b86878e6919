//! [`PathMut`]: what the application and the driver do with one path.

use std::net::SocketAddr;
use std::time::Instant;

use super::set::Paths;
use super::slot::PathSlot;
use crate::event::{ClosedPath, MigrateError};
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::outbox::Outbox;
use crate::sched::{LocalQueue, SchedulerEvent};

/// An open path of a connection, borrowed from it.
///
/// Its methods concern only this path. Those that move data to other paths are methods of the
/// connection: [`close_path`](crate::Connection::close_path) and
/// [`set_path_usable`](crate::Connection::set_path_usable).
pub struct PathMut<'a> {
    /// Its place among the slots.
    index: usize,
    paths: &'a mut Paths,
    outbox: &'a mut Outbox,
}

impl<'a> PathMut<'a> {
    /// The path, if it is open.
    #[inline]
    pub(crate) fn new(
        id: PathId,
        paths: &'a mut Paths,
        outbox: &'a mut Outbox,
    ) -> Result<Self, ClosedPath> {
        let index = paths.position(id).map_err(|_| ClosedPath)?;
        paths.slots()[index].open().ok_or(ClosedPath)?;
        Ok(Self {
            index,
            paths,
            outbox,
        })
    }

    fn slot(&self) -> &PathSlot {
        &self.paths.slots()[self.index]
    }

    fn slot_mut(&mut self) -> &mut PathSlot {
        &mut self.paths.slots_mut()[self.index]
    }

    /// The path's ID.
    pub fn id(&self) -> PathId {
        self.slot().id
    }

    /// Our status for the path, and the peer's if it announced one.
    pub fn status(&self) -> (PathStatus, Option<PathStatus>) {
        let statuses = self.slot().statuses();
        (statuses.local(), statuses.peer())
    }

    /// Sets the status of the path: the peer is told, and our scheduler sees it.
    pub fn set_status(&mut self, status: PathStatus) {
        self.slot_mut().statuses_mut().set_local(status);
        self.paths.review_backups();
        let changed = SchedulerEvent::PathStatus(self.id(), status);
        self.outbox.scheduler_event(changed);
    }

    /// Sends a PING on the path.
    pub fn ping(&mut self) {
        if let Some(path) = self.slot_mut().open_mut() {
            path.request_ping();
        }
    }

    /// Hint from the driver: how much waits in the local queue that the path sends into. Bytes sent
    /// after the hint are added to it, so it should be repeated as often as new values are
    /// available.
    #[inline]
    pub fn set_local_queue(&mut self, queue: Option<LocalQueue>) {
        if let Some(path) = self.slot_mut().open_mut() {
            path.set_local_queue(queue);
        }
    }

    /// Client: its local address for the path changed, for example because an interface came back
    /// with another one. The path migrates to it, and returns if nothing arrives there.
    ///
    /// # Errors
    ///
    /// On a server; before the handshake is confirmed; if the server does not allow migration; or
    /// if it has not issued a connection ID to migrate with.
    pub fn set_local_address(
        &mut self,
        now: Instant,
        local: SocketAddr,
    ) -> Result<(), MigrateError> {
        self.outbox.set_time(now);
        let (slot, shared) = self.paths.slot_at_and_shared(self.index);
        slot.move_to(now, local, shared, self.outbox)
    }

    /// The addresses that the path returns to if nothing arrives at those that it has moved to.
    pub fn previous_addresses(&self) -> Option<FourTuple> {
        self.slot().open()?.refuge()
    }

    /// The path does not return to its previous addresses: call it if they are gone, for example
    /// because their socket was closed. The only path then waits for as long as the connection may be
    /// idle.
    pub fn forget_previous_addresses(&mut self) {
        let (slot, _) = self.paths.slot_at_and_shared(self.index);
        slot.forget_previous();
    }
}
