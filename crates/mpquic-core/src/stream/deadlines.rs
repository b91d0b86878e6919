//! [`Deadlines`]: the times from which streams are of no use any more.

use std::collections::BTreeSet;
use std::time::Instant;

use quinn_proto::StreamId;

/// Approximate memory for one deadline, in bytes.
const ENTRY: usize = 48;

/// The deadlines of streams, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    order: BTreeSet<(Instant, StreamId)>,
    /// The number of streams that were reset at their deadline.
    expired: u64,
}

impl Deadlines {
    /// Adds the deadline of a stream.
    pub(super) fn insert(&mut self, at: Instant, id: StreamId) {
        self.order.insert((at, id));
    }

    /// Drops the deadline of a stream.
    pub(super) fn remove(&mut self, at: Instant, id: StreamId) {
        self.order.remove(&(at, id));
    }

    /// The earliest deadline.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes out a stream whose deadline has passed.
    pub(super) fn pop(&mut self, now: Instant) -> Option<StreamId> {
        self.next().filter(|at| *at <= now)?;
        self.order.pop_first().map(|(_, id)| id)
    }

    /// A stream was reset at its deadline.
    pub(super) fn on_expired(&mut self) {
        self.expired += 1;
    }

    /// The number of streams that were reset at their deadline.
    pub(super) fn expired(&self) -> u64 {
        self.expired
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.order.len() * ENTRY
    }
}
