//! [`PathMut`]: what the application and the driver do with one path.

use std::net::SocketAddr;
use std::time::Instant;

use super::set::Paths;
use super::slot::PathSlot;
use crate::event::{ClosedPath, MigrateError};
use crate::ids::{PathId, PathStatus};
use crate::outbox::Outbox;
use crate::sched::{LocalQueue, SchedulerEvent};

/// An open path of a connection, lent by it.
///
/// It has the verbs that concern this path alone. What moves data to other paths is asked of the
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

    /// Which one.
    pub fn id(&self) -> PathId {
        self.slot().id
    }

    /// Our status of the path and the peer's, if it sent one.
    pub fn status(&self) -> (PathStatus, Option<PathStatus>) {
        let statuses = self.slot().statuses();
        (statuses.local(), statuses.peer())
    }

    /// Tells the peer how to treat the path, and treats it so ourselves.
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

    /// Hint from the driver: what waits in the queue the path sends into. Bytes sent since are
    /// added, so the hint is best repeated as often as it can be had.
    #[inline]
    pub fn set_local_queue(&mut self, queue: Option<LocalQueue>) {
        if let Some(path) = self.slot_mut().open_mut() {
            path.set_local_queue(queue);
        }
    }

    /// Tells a client that its local address for the path changed (an interface came back with
    /// another one): the path migrates to it.
    ///
    /// # Errors
    ///
    /// On a server, before the handshake is confirmed, if the server takes no migration, or if it
    /// has not sent a connection ID to migrate with.
    pub fn set_local_address(
        &mut self,
        now: Instant,
        local: SocketAddr,
    ) -> Result<(), MigrateError> {
        self.outbox.set_time(now);
        let (slot, shared) = self.paths.slot_at_and_shared(self.index);
        slot.move_to(now, local, shared, self.outbox)
    }
}
