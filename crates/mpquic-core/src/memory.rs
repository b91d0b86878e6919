//! The memory of a connection and of an endpoint, and its limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of a connection in bytes, by purpose. Received data counts with its whole datagrams, and
/// lists with their capacity, so the sum is no less than the allocated memory. Memory of TLS, the
/// scheduler and the congestion controller is estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Stream data that has arrived and was not read.
    pub received: u64,
    /// Stream data that was written and is not acknowledged.
    pub to_send: u64,
    /// The state of streams, and events about them.
    pub streams: u64,
    /// DATAGRAMs that wait to be read or sent.
    pub datagrams: u64,
    /// The handshake: CRYPTO data, packets that cannot be opened yet, TLS.
    pub handshake: u64,
    /// Paths: records of packets, connection IDs, addresses.
    pub paths: u64,
    /// Everything else: the connection itself, and events that wait.
    pub other: u64,
}

impl MemoryUse {
    /// All of it.
    pub const fn total(&self) -> u64 {
        let content = self.received + self.to_send + self.datagrams;
        content + self.streams + self.handshake + self.paths + self.other
    }
}

/// The memory of all connections of an endpoint together, as of the last review of each connection.
#[derive(Debug)]
pub(crate) struct EndpointMemory {
    limit: u64,
    connections: AtomicU64,
    used: AtomicU64,
    /// Bytes kept by the driver's buffers.
    buffers: AtomicU64,
}

impl EndpointMemory {
    /// For an endpoint that may keep this many bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            connections: AtomicU64::new(0),
            used: AtomicU64::new(0),
            buffers: AtomicU64::new(0),
        }
    }

    /// Bytes that connections and buffers keep.
    pub(crate) fn total(&self) -> u64 {
        let buffers = self.buffers.load(Ordering::Relaxed);
        self.used.load(Ordering::Relaxed).saturating_add(buffers)
    }

    /// Sets what the driver's buffers keep.
    pub(crate) fn set_buffers(&self, bytes: u64) {
        self.buffers.store(bytes, Ordering::Relaxed);
    }

    /// True while less than a quarter of the limit is left.
    pub(crate) fn is_short(&self) -> bool {
        self.total() > self.limit / 4 * 3
    }

    /// True while nothing is left.
    pub(crate) fn is_full(&self) -> bool {
        self.total() > self.limit
    }

    /// The limit of each connection while memory is short.
    fn share(&self) -> Option<u64> {
        let connections = self.connections.load(Ordering::Relaxed);
        self.is_short().then(|| self.limit / connections.max(1))
    }
}

/// A connection's part of its endpoint's memory. It goes with the connection.
#[derive(Debug)]
pub(crate) struct MemoryPart {
    endpoint: Arc<EndpointMemory>,
    bytes: u64,
}

impl MemoryPart {
    /// The part of a connection that keeps this many bytes at first.
    pub(crate) fn new(endpoint: Arc<EndpointMemory>, bytes: u64) -> Self {
        endpoint.connections.fetch_add(1, Ordering::Relaxed);
        endpoint.used.fetch_add(bytes, Ordering::Relaxed);
        Self { endpoint, bytes }
    }

    fn set(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let used = &self.endpoint.used;
        used.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for MemoryPart {
    fn drop(&mut self) {
        self.set(0);
        self.endpoint.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The memory limit of a connection, and how near the connection is to it.
///
/// Buffers, streams and frames have limits of their own. The budget limits their sum: from half of
/// the limit on, receive windows grow no more; from three quarters on, the peer gets no further
/// credit until the application has read data; beyond the limit, the connection ends. While the
/// endpoint is short of memory, an equal share per connection takes the place of the three
/// quarters.
#[derive(Debug, Default)]
pub(crate) struct MemoryBudget {
    /// The configured limit.
    configured: Option<u64>,
    limit: u64,
    part: Option<MemoryPart>,
    share: Option<u64>,
    /// At the last review: all but what was received and not read.
    others: u64,
    received: u64,
    is_tight: bool,
    holds_credit: bool,
}

impl MemoryBudget {
    /// The budget of a new connection.
    pub(crate) fn new(configured: Option<u64>) -> Self {
        Self {
            configured,
            ..Self::default()
        }
    }

    /// The configured limit.
    pub(crate) fn configured(&self) -> Option<u64> {
        self.configured
    }

    /// Sets the limit and the memory in use; `is_read` if all data was read. False above the limit.
    /// Data written by the application does not count there: the peer is not to blame for it.
    pub(crate) fn review(&mut self, limit: u64, used: &MemoryUse, is_read: bool) -> bool {
        self.limit = limit;
        if let Some(part) = &mut self.part {
            part.set(used.total());
            self.share = part.endpoint.share();
        }
        self.others = used.total() - used.received;
        self.judge(used.received, is_read);
        used.total() - used.to_send <= limit
    }

    /// Counts what the peer has made us keep since the last review; false if there is no room.
    pub(crate) fn add(&mut self, limit: u64, bytes: u64) -> bool {
        self.others = self.others.saturating_add(bytes);
        self.others.saturating_add(self.received) <= limit
    }

    /// The amount of kept received data has changed; `is_read` for none left.
    pub(crate) fn judge(&mut self, received: u64, is_read: bool) {
        self.received = received;
        let used = self.others.saturating_add(received);
        let share = self.share.unwrap_or(u64::MAX);
        self.is_tight = self.share.is_some() || used > self.limit / 2;
        // A connection without unread data gets on. So no connection is stuck for the memory of
        // others, or for its own memory besides received data.
        self.holds_credit = !is_read && used > share.min(self.limit / 4 * 3);
    }

    /// Counts the connection as part of an endpoint.
    pub(crate) fn join(&mut self, part: MemoryPart) {
        self.part = Some(part);
    }

    /// The limit of the last review, or 0 before.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// True if receive windows must not grow.
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// True if the peer must not get any credit.
    #[inline]
    pub(crate) fn holds_credit(&self) -> bool {
        self.holds_credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1000;

    fn used(received: u64, to_send: u64) -> MemoryUse {
        MemoryUse {
            received,
            to_send,
            ..MemoryUse::default()
        }
    }

    #[test]
    fn pressure_comes_before_the_end() {
        let mut budget = MemoryBudget::default();
        let mut at = |received| {
            let fits = budget.review(LIMIT, &used(received, 0), received == 0);
            (budget.is_tight(), budget.holds_credit(), fits)
        };
        assert_eq!(at(500), (false, false, true));
        assert_eq!(at(501), (true, false, true));
        assert_eq!(at(750), (true, false, true));
        assert_eq!(at(751), (true, true, true));
        assert_eq!(at(1000), (true, true, true));
        assert_eq!(at(1001), (true, true, false));
        assert_eq!(at(0), (false, false, true));
    }

    #[test]
    fn written_data_holds_credit_and_ends_no_connection() {
        let mut budget = MemoryBudget::default();
        assert!(budget.review(LIMIT, &used(1, 5000), false));
        assert!(budget.holds_credit());
        // The reader has caught up.
        budget.judge(0, true);
        assert!(!budget.holds_credit() && budget.is_tight());
    }

    #[test]
    fn the_only_connection_may_keep_all_that_its_endpoint_may() {
        let endpoint = Arc::new(EndpointMemory::new(LIMIT));
        let mut budget = MemoryBudget::default();
        budget.join(MemoryPart::new(endpoint.clone(), 10));
        assert!(budget.review(u64::MAX, &used(750, 0), false));
        assert!(!endpoint.is_short() && !budget.is_tight());
        assert!(budget.review(u64::MAX, &used(751, 0), false));
        assert!(endpoint.is_short() && budget.is_tight());
        assert!(!budget.holds_credit(), "there is nobody to share with");
        assert!(budget.review(u64::MAX, &used(1001, 0), false));
        assert!(budget.holds_credit() && endpoint.is_full());
    }

    #[test]
    fn each_connection_of_an_endpoint_in_need_may_keep_as_much() {
        let endpoint = Arc::new(EndpointMemory::new(LIMIT));
        let mut budgets = [MemoryBudget::default(), MemoryBudget::default()];
        for budget in &mut budgets {
            budget.join(MemoryPart::new(endpoint.clone(), 10));
        }
        assert_eq!(endpoint.total(), 20);
        let [large, small] = &mut budgets;
        let no_limit = u64::MAX;
        assert!(large.review(no_limit, &used(700, 0), false));
        assert!(!large.is_tight() && !endpoint.is_short());
        assert!(small.review(no_limit, &used(200, 0), false));
        assert!(endpoint.is_short() && !endpoint.is_full());
        assert!(small.is_tight() && !small.holds_credit());
        assert!(large.review(no_limit, &used(700, 0), false));
        assert!(large.holds_credit(), "it has more than half");
        endpoint.set_buffers(101);
        assert!(endpoint.is_full());
        endpoint.set_buffers(0);
        assert!(large.review(no_limit, &used(100, 0), false));
        assert!(!large.is_tight());
        drop(budgets);
        assert_eq!(
            (
                endpoint.total(),
                endpoint.connections.load(Ordering::Relaxed)
            ),
            (0, 0)
        );
    }
}
