//! Events for the tests of this crate.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, RttSnapshot, Sent};

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

pub(crate) fn rtt(rtt: Duration) -> RttSnapshot {
    RttSnapshot {
        latest: rtt,
        smoothed: rtt,
        variance: rtt / 4,
        min: rtt,
        samples: 1,
    }
}

/// `bytes` newly acknowledged on a path whose window is the limit.
pub(crate) fn acked(now: Instant, sent_at: Instant, bytes: u64) -> Acked {
    Acked {
        now,
        sent_at,
        largest: 0,
        bytes,
        in_flight: u64::MAX / 2,
        app_limited: false,
        delivery_rate: None,
        rtt: rtt(Duration::from_millis(20)),
    }
}

pub(crate) fn congestion(kind: CongestionKind, now: Instant, sent_at: Instant) -> CongestionEvent {
    CongestionEvent {
        kind,
        now,
        sent_at,
        lost_bytes: 1200,
        in_flight: 12_000,
        largest_lost: 0,
    }
}

/// A packet after which `in_flight` bytes are under way.
pub(crate) fn sent(now: Instant, bytes: u64, in_flight: u64) -> Sent {
    Sent {
        now,
        packet_number: 0,
        bytes,
        in_flight,
    }
}
