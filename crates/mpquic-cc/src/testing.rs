//! Events for the tests of this crate.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, RttSnapshot, Sent};

/// The same instant at each call, so that no result depends on the duration of a test.
pub(crate) fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

pub(crate) fn rtt(rtt: Duration) -> RttSnapshot {
    let mut snapshot = RttSnapshot::new(rtt);
    snapshot.variance = rtt / 4;
    snapshot
}

/// An acknowledgement of `bytes` on a path that is limited by its window.
pub(crate) fn acked(now: Instant, sent_at: Instant, bytes: u64) -> Acked {
    let mut acked = Acked::new(now, sent_at, bytes, rtt(Duration::from_millis(20)));
    acked.in_flight = u64::MAX / 2;
    acked
}

pub(crate) fn congestion(kind: CongestionKind, now: Instant, sent_at: Instant) -> CongestionEvent {
    let mut event = CongestionEvent::new(kind, now, sent_at);
    event.lost_bytes = 1200;
    event.in_flight = 12_000;
    event
}

/// A packet that leaves; afterwards `in_flight` bytes are in flight.
pub(crate) fn sent(now: Instant, bytes: u64, in_flight: u64) -> Sent {
    Sent::new(now, 0, bytes, in_flight)
}
