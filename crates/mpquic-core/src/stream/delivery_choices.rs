//! What the application asks for one stream: a path, a second copy, a deadline.

use std::time::Instant;

use quinn_proto::{ClosedStream, StreamId, VarInt};

use super::application::{SendStream, closed};
use super::event::StreamEvent;
use super::send::Deadline;
use super::set::StreamSet;
use crate::ids::PathId;
use crate::packet::delivery::{Delivery, StreamDelivery};

impl SendStream<'_> {
    /// Binds the stream to a path: what is sent of it from now on travels there, also if the path is
    /// a backup, and waits while the path is suspect and others are not. Schedulers see nothing of
    /// it. Without such a path, or once it is abandoned, any path may carry the stream again, as with
    /// `None`.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] if the stream is closed, or does not exist.
    pub fn set_path(&mut self, path: Option<PathId>) -> Result<(), ClosedStream> {
        let is_open = self.streams.set_path(self.id, path);
        is_open.then_some(()).ok_or_else(closed)
    }

    /// The path that the stream is bound to.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] if the stream is closed, or does not exist.
    pub fn path(&self) -> Result<Option<PathId>, ClosedStream> {
        let send = self.streams.sending_half(self.id).ok_or_else(closed)?;
        Ok(send.path)
    }

    /// Sends what is sent from now on a second time, on the fastest other path that may carry data,
    /// as far as [`TransportOptions::max_redundancy`](crate::config::TransportOptions::max_redundancy)
    /// allows. A copy whose original was acknowledged is not sent. False ends it.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] if the stream is closed, or does not exist.
    pub fn set_redundant(&mut self, is_redundant: bool) -> Result<(), ClosedStream> {
        let changed = self.streams.with_half(self.id, |send| {
            std::mem::replace(&mut send.redundant, is_redundant) != is_redundant
        });
        if changed.ok_or_else(closed)? {
            let count = &mut self.streams.redundant;
            *count = count.wrapping_add_signed(if is_redundant { 1 } else { -1 });
        }
        Ok(())
    }

    /// From `deadline` on, nothing of the stream is sent any more: if something is missing then (the
    /// stream is not finished, bytes wait to be sent) or is lost later, the stream is reset with
    /// `error_code`. What arrives in time is not touched. It replaces a deadline set before.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] if the stream is closed, or does not exist.
    pub fn set_deadline(
        &mut self,
        deadline: Instant,
        error_code: VarInt,
    ) -> Result<(), ClosedStream> {
        let next = Deadline {
            at: deadline,
            error_code,
            has_passed: false,
        };
        let before = (self.streams).with_half(self.id, |send| send.deadline.replace(next));
        if let Some(before) = before.ok_or_else(closed)? {
            self.streams.deadlines.remove(before.at, self.id);
        }
        self.streams.deadlines.insert(deadline, self.id);
        Ok(())
    }

    /// True if the stream was reset at its deadline, and the peer has not acknowledged that.
    pub fn is_expired(&self) -> bool {
        let send = self.streams.sending_half(self.id);
        send.is_some_and(|send| send.is_expired)
    }
}

impl StreamSet {
    /// Binds a stream to a path, or to none; false if the stream is closed.
    pub(crate) fn set_path(&mut self, id: StreamId, path: Option<PathId>) -> bool {
        let Some(key) = self.use_send(id) else {
            return false;
        };
        let Some(send) = self.sends.get_mut(key as usize) else {
            return false;
        };
        let before = std::mem::replace(&mut send.path, path);
        if before != path {
            self.backlogs.rebind(send, before);
            if let Some(ready) = self.ready.of_mut(before) {
                ready.remove(key);
            }
            self.update_send(key);
        }
        true
    }

    /// The path that a stream is bound to.
    pub(crate) fn path_of(&self, id: StreamId) -> Option<PathId> {
        self.sending_half(id)?.path
    }

    /// A path is abandoned: any path may carry what was bound to it.
    pub(crate) fn release(&mut self, path: PathId) {
        let halves = self.sends.iter().map(|(_, send)| send);
        let bound = halves.filter(|send| send.path == Some(path));
        let ids: Vec<StreamId> = bound.map(|send| send.id).collect();
        for id in ids {
            self.set_path(id, None);
        }
        self.ready.forget(path);
    }

    /// Paths that streams are bound to which could send now.
    pub(crate) fn bound_paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.ready.bound_paths(self.send_credit.available())
    }

    /// True if something waits that is bound to the path and could be sent now.
    pub(crate) fn has_bound(&self, path: PathId) -> bool {
        self.bound_paths().any(|bound| bound == path)
    }

    /// The frames that are to be sent twice.
    pub(crate) fn redundant_of(&self, sent: &[Delivery]) -> impl Iterator<Item = Delivery> {
        let is_redundant = |delivery: &&Delivery| {
            let Delivery::Stream(StreamDelivery::Data { id, .. }) = delivery else {
                return false;
            };
            self.sending_half(*id).is_some_and(|send| send.redundant)
        };
        sent.iter().filter(is_redundant).copied()
    }

    /// True if there is such a stream.
    #[inline]
    pub(crate) fn has_redundant(&self) -> bool {
        self.redundant > 0
    }

    /// When [`Self::on_timeout`] is to be called.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// How many streams were reset at their deadline.
    pub(crate) fn expired(&self) -> u64 {
        self.deadlines.expired()
    }

    /// Resets streams that were not sent in time.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        while let Some(id) = self.deadlines.pop(now) {
            let is_late = self.with_half(id, |send| {
                if let Some(deadline) = &mut send.deadline {
                    deadline.has_passed = true;
                }
                send.is_late()
            });
            if is_late == Some(true) {
                self.expire(id);
            }
        }
    }

    /// Resets a stream that is of no use any more.
    #[cold]
    pub(super) fn expire(&mut self, id: StreamId) {
        let was_cut = self.with_half(id, |send| {
            let error_code = send.deadline.map(|deadline| deadline.error_code);
            send.is_expired = error_code.is_some_and(|code| send.reset(code));
            send.is_expired
        });
        if was_cut == Some(true) {
            self.deadlines.on_expired();
            self.push_event(StreamEvent::Expired { id });
        }
        self.after_reset(id);
    }
}
