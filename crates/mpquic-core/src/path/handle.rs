//! [`PathMut`]: one path, for the application and the driver.

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
/// Its methods concern only this path. Methods that also move data to other paths belong to the
/// connection: [`close_path`](crate::Connection::close_path) and
/// [`set_path_usable`](crate::Connection::set_path_usable).
pub struct PathMut<'a> {
    /// Its place among the slots.
    index: usize,
    paths: &'a mut Paths,
    outbox: &'a mut Outbox,
}

impl<'a> PathMut<'a> {
    /// An open path.
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

    /// Hint from the driver: the amount of data in the local queue below the path. Later sent bytes
    /// are added to the hint, so new values should be reported as often as available.
    #[inline]
    pub fn set_local_queue(&mut self, queue: Option<LocalQueue>) {
        if let Some(path) = self.slot_mut().open_mut() {
            path.set_local_queue(queue);
        }
    }

    /// Client: the path's local address changed, for example because an interface came back with
    /// another address. The path migrates to the new address, and returns without an answer there.
    ///
    /// # Errors
    ///
    /// On a server; before the handshake is confirmed; for a server which forbids migration; and
    /// without an unused connection ID of the server.
    pub fn set_local_address(
        &mut self,
        now: Instant,
        local: SocketAddr,
    ) -> Result<(), MigrateError> {
        self.outbox.set_time(now);
        let (slot, shared) = self.paths.slot_at_and_shared(self.index);
        slot.move_to(now, local, shared, self.outbox)
    }

    /// Addresses to which the path returns without an answer at its new addresses.
    pub fn previous_addresses(&self) -> Option<FourTuple> {
        self.slot().open()?.refuge()
    }

    /// Keeps the path from returning to its previous addresses. Call it after their loss, for
    /// example after closing their socket. The only path then waits for the connection's idle
    /// timeout.
    pub fn forget_previous_addresses(&mut self) {
        let (slot, _) = self.paths.slot_at_and_shared(self.index);
        slot.forget_previous();
    }
}
