//! Settings of one stream: a path, a second copy, a deadline.

use std::time::Instant;

use quinn_proto::{ClosedStream, StreamId, VarInt};

use super::application::{SendStream, closed};
use super::event::StreamEvent;
use super::send::Deadline;
use super::set::StreamSet;
use crate::ids::PathId;
use crate::packet::delivery::{Delivery, StreamDelivery};

impl SendStream<'_> {
    /// Binds the stream to a path. From now on, its data leaves on that path only, even on a backup
    /// path, and waits while the path is suspect and another path is not. Schedulers do not see the
    /// stream. `None`, an unknown or an abandoned path releases the stream to any path.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn set_path(&mut self, path: Option<PathId>) -> Result<(), ClosedStream> {
        let is_open = self.streams.set_path(self.id, path);
        is_open.then_some(()).ok_or_else(closed)
    }

    /// The path to which the stream is bound.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn path(&self) -> Result<Option<PathId>, ClosedStream> {
        let send = self.streams.sending_half(self.id).ok_or_else(closed)?;
        Ok(send.path)
    }

    /// Sends later data of the stream twice: a copy leaves on the fastest other path for data,
    /// within
    /// [`TransportOptions::max_redundancy`](crate::config::TransportOptions::max_redundancy). A
    /// copy of acknowledged data is not sent. `false` ends the copies.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
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

    /// Stops sending the stream at `deadline`. An incomplete stream is reset with `error_code`
    /// then: an unfinished stream, or one with bytes still to be sent or lost later. Bytes in time
    /// are not touched. A second call replaces the deadline.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
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

    /// True from the reset at the deadline until the peer acknowledges the reset.
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

    /// A path is abandoned: any path may carry its bound streams.
    pub(crate) fn release(&mut self, path: PathId) {
        let halves = self.sends.iter().map(|(_, send)| send);
        let bound = halves.filter(|send| send.path == Some(path));
        let ids: Vec<StreamId> = bound.map(|send| send.id).collect();
        for id in ids {
            self.set_path(id, None);
        }
        self.ready.forget(path);
    }

    /// Paths with bound streams that have data and credit.
    pub(crate) fn bound_paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.ready.bound_paths(self.send_credit.available())
    }

    /// True if bound data waits for the path and credit allows sending.
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

    /// True if a stream is redundant.
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

    /// Resets a stream after its deadline.
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
        self.after_end(id);
    }
}
