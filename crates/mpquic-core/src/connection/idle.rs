//! [`IdleTimer`]: when an idle connection ends, and when it frees memory.

use std::time::{Duration, Instant};

use crate::wire::transport_parameters::TransportParameters;

/// Time without arriving datagrams until memory is freed.
const TRIM_AFTER: Duration = Duration::from_secs(1);
/// The delay before the first trim. It is shorter, so that a server with thousands of handshakes
/// per second can reuse the memory of finished ones.
const FIRST_TRIM_AFTER: Duration = Duration::from_millis(100);

/// The connection's idle timer (RFC 9000 section 10.1), which counts packets on all paths (MP-147).
#[derive(Debug)]
pub(super) struct IdleTimer {
    ours: Option<Duration>,
    peer: Option<Duration>,
    since: Instant,
    began: Instant,
    /// Time from the beginning to the arrival of the peer's last packet.
    received: Duration,
    /// An ack-eliciting packet was sent since the last one received.
    sent: bool,
    memory: Memory,
    handshake_confirmed: bool,
}

/// Whether memory is kept for reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The handshake took memory, and none was freed since.
    New,
    Kept,
    /// Memory was freed, and nothing has arrived since.
    Trimmed,
}

impl IdleTimer {
    pub(super) fn new(ours: Option<Duration>, now: Instant) -> Self {
        Self {
            ours,
            peer: None,
            since: now,
            began: now,
            received: Duration::ZERO,
            sent: false,
            memory: Memory::New,
            handshake_confirmed: false,
        }
    }

    /// Considers the peer's timeout.
    pub(super) fn set_peer_parameters(&mut self, peer: &TransportParameters) {
        let timeout = peer.max_idle_timeout;
        self.peer = Some(timeout).filter(|timeout| !timeout.is_zero());
    }

    pub(super) fn on_received(&mut self, now: Instant) {
        // Buffered packets are processed long after they arrived.
        self.since = self.since.max(now);
        self.received = (self.received).max(now.saturating_duration_since(self.began));
        self.sent = false;
    }

    /// Time from the start of the connection to the arrival of the peer's last packet.
    pub(super) fn last_received(&self) -> Duration {
        self.received
    }

    pub(super) fn on_ack_eliciting_sent(&mut self, now: Instant) {
        if !self.sent {
            self.since = now;
            self.sent = true;
        }
    }

    /// When the connection times out; never before three of the largest PTO (MP-148).
    pub(super) fn deadline(&self, largest_pto: impl FnOnce() -> Duration) -> Option<Instant> {
        let timeout = match (self.ours, self.peer) {
            (Some(ours), Some(peer)) => ours.min(peer),
            (ours, peer) => ours.or(peer)?,
        };
        Some(self.since + timeout.max(3 * largest_pto()))
    }

    /// A datagram arrived: memory for handling it is needed again.
    pub(super) fn on_datagram(&mut self) {
        if self.memory == Memory::Trimmed {
            self.memory = Memory::Kept;
        }
    }

    pub(super) fn on_handshake_confirmed(&mut self) {
        self.handshake_confirmed = true;
    }

    /// When an idle connection frees memory kept for reuse: a server may have a great many
    /// connections.
    pub(super) fn trim_timeout(&self) -> Option<Instant> {
        let silence = match self.memory {
            Memory::New if self.handshake_confirmed => FIRST_TRIM_AFTER,
            Memory::New | Memory::Kept => TRIM_AFTER,
            Memory::Trimmed => return None,
        };
        Some(self.since + silence)
    }

    /// True once when memory is to be freed.
    pub(super) fn take_trim(&mut self, now: Instant) -> bool {
        let is_due = self.trim_timeout().is_some_and(|at| at <= now);
        if is_due {
            self.memory = Memory::Trimmed;
        }
        is_due
    }
}
