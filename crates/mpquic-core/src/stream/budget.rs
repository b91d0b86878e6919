//! The memory of streams, and the measures of a connection near its limit of memory.

use std::sync::Arc;

use super::event::StreamEvent;
use super::queue::Rank;
use super::recv::RecvHalf;
use super::send::SendHalf;
use super::set::StreamSet;
use crate::error::{Fault, TransportError};
use crate::memory::{EndpointMemory, MemoryPart, MemoryUse};
use crate::sched::SchedulerEvent;

/// Memory for one stream: its two halves, its places in queues, and an event. Lists have up to
/// twice the room they need.
const STREAM: u64 = 2 * (size_of::<SendHalf>() + size_of::<RecvHalf>() + 256) as u64;

/// A new connection's share of the endpoint's memory before its first review, bytes.
const NEW_CONNECTION: u64 = 24 << 10;

/// Part of the default limit of memory that depends on no option.
const BASE: u64 = 16 << 20;

impl StreamSet {
    /// Adds what streams keep in memory.
    pub(crate) fn add_memory(&self, used: &mut MemoryUse) {
        used.received += self.held.memory;
        used.to_send += self.backlogs.all.memory;
        let halves = self.sends.capacity() * size_of::<SendHalf>()
            + self.recvs.capacity() * size_of::<RecvHalf>();
        let queues = [&self.send_control, &self.recv_control];
        let queues = queues.iter().map(|queue| queue.memory()).sum::<usize>();
        let queues = queues + self.writers.memory();
        let deadlines = self.deadlines.memory();
        let tables = self.tables.memory();
        let events = self.events.capacity() * size_of::<StreamEvent>()
            + self.news.capacity() * size_of::<SchedulerEvent>();
        used.streams +=
            (halves + queues + self.ready.memory() + deadlines + tables + events) as u64;
    }

    /// The most bytes of memory for the connection. Without a configured limit, full windows,
    /// buffers and streams fit, with all their bookkeeping.
    fn memory_limit(&self) -> u64 {
        self.budget.configured().unwrap_or_else(|| {
            let streams = self.counts.max_concurrent().saturating_mul(STREAM);
            let buffers = (self.writers.size()).saturating_add(self.datagram_buffers);
            (self.receive_windows.memory_limit())
                .saturating_add(buffers.saturating_mul(2))
                .saturating_add(streams)
                .saturating_add(BASE)
        })
    }

    /// Compares the memory in use with its limit.
    pub(crate) fn review_memory(&mut self, used: &MemoryUse) -> Result<(), TransportError> {
        let held_credit = self.budget.holds_credit();
        let fits = self
            .budget
            .review(self.memory_limit(), used, self.held.bytes == 0);
        self.after_review(held_credit);
        if fits {
            Ok(())
        } else {
            Err(Fault::TooMuchMemory.into())
        }
    }

    /// The application has read data while credit was held back.
    #[cold]
    pub(super) fn review_credit(&mut self) {
        self.budget.judge(self.held.memory, self.held.bytes == 0);
        self.after_review(true);
    }

    /// Counts the connection as part of an endpoint.
    pub(crate) fn part_of(mut self, endpoint: Arc<EndpointMemory>) -> Self {
        self.budget.join(MemoryPart::new(endpoint, NEW_CONNECTION));
        self
    }

    /// Queues what was held back.
    fn after_review(&mut self, held_credit: bool) {
        if held_credit && !self.budget.holds_credit() {
            for (key, recv) in &self.recvs {
                if recv.limit_due() {
                    self.recv_control.insert(key as u32, Rank::default());
                }
            }
        }
    }

    /// Reserves memory for `streams` more streams.
    pub(super) fn make_room(&mut self, streams: u64) -> Result<(), TransportError> {
        let limit = match self.budget.limit() {
            0 => self.memory_limit(),
            reviewed => reviewed,
        };
        if self.budget.add(limit, streams.saturating_mul(STREAM)) {
            Ok(())
        } else {
            Err(Fault::TooMuchMemory.into())
        }
    }

    /// True while the connection is near its limit of memory: then it is to be reviewed with each
    /// datagram.
    pub(crate) fn is_memory_tight(&self) -> bool {
        self.budget.is_tight()
    }

    /// True while the peer gets no credit, and DATAGRAMs are dropped.
    #[inline]
    pub(crate) fn holds_credit(&self) -> bool {
        self.budget.holds_credit()
    }

    /// True if MAX_DATA or MAX_STREAMS is due.
    pub(super) fn limits_due(&self) -> bool {
        !self.holds_credit()
            && (self.receive_windows.credit.wants_update() || self.counts.is_limit_due())
    }
}
