//! Spreads packets over the round trip (RFC 9002 section 7.7).

use std::time::Instant;

/// A token bucket.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    tokens: u64,
    last: Instant,
}

impl Pacer {
    /// A full bucket.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            tokens: u64::MAX,
            last: now,
        }
    }

    /// Bytes that may leave now (at least one `mtu`), or when to ask again. `rate` is in bytes per
    /// second, see [`Recovery::pacing_rate`](super::Recovery::pacing_rate).
    pub(crate) fn available(
        &mut self,
        _now: Instant,
        _rate: u64,
        _mtu: u16,
    ) -> Result<u64, Instant> {
        todo!()
    }

    /// A packet that counts as in flight left.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(bytes);
    }
}
