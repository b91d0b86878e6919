//! [`Amplification`]: the limit on bytes to an address before the peer has proven to own it.

/// Bytes allowed per received byte (RFC 9000 section 8).
const FACTOR: u64 = 3;
/// The most bytes an earlier proof is good for, whatever window a controller begins with: 32
/// datagrams.
const MAX_VOUCHED: u64 = 32 * 1500;

/// The anti-amplification budget of one four-tuple (RFC 9000 section 8, MP-076).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amplification {
    received: u64,
    sent: u64,
    /// Bytes allowed on top of that.
    vouched: u64,
    validated: bool,
}

impl Amplification {
    /// The budget towards an address that is not validated. A client needs no limit towards the
    /// server that it chose, and uses [`Self::validated`].
    pub(crate) fn unvalidated() -> Self {
        Self {
            received: 0,
            sent: 0,
            vouched: 0,
            validated: false,
        }
    }

    /// No limit.
    pub(crate) fn validated() -> Self {
        Self {
            validated: true,
            ..Self::unvalidated()
        }
    }

    /// A datagram of `bytes` arrived. All of its bytes count, whether or not its packets opened
    /// (RFC 9000 section 8.1).
    pub(crate) fn on_received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
    }

    /// A datagram of `bytes` was sent.
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    /// The address is proven: by path validation, by a token, or by a Handshake packet.
    pub(crate) fn validate(&mut self) {
        self.validated = true;
    }

    /// The peer has proven the address on an earlier connection: `bytes` bytes are allowed before
    /// the next proof (RFC 9000 section 8.1.3).
    pub(crate) fn vouch(&mut self, bytes: u64) {
        self.vouched = bytes.min(MAX_VOUCHED);
    }

    /// True for an address that was proven earlier.
    pub(crate) fn is_vouched_for(&self) -> bool {
        self.vouched > 0
    }

    /// Bytes that may be sent now; `u64::MAX` once validated.
    pub(crate) fn budget(&self) -> u64 {
        if self.validated {
            return u64::MAX;
        }
        // RFC 9000 section 8, MP-076
        self.received
            .saturating_mul(FACTOR)
            .saturating_add(self.vouched)
            .saturating_sub(self.sent)
    }

    /// True if a datagram of `bytes` must wait until more is received.
    pub(crate) fn is_blocked(&self, bytes: usize) -> bool {
        self.budget() < bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mp_075_an_earlier_proof_is_good_for_a_first_window() {
        let mut budget = Amplification::unvalidated();
        assert!(!budget.is_vouched_for());
        budget.on_received(100);
        budget.vouch(12_000);
        assert!(budget.is_vouched_for());
        assert_eq!(budget.budget(), 12_300);
        budget.on_sent(12_300);
        assert!(budget.is_blocked(1));
        budget.vouch(u64::MAX);
        assert_eq!(budget.budget(), MAX_VOUCHED - 12_000);
    }

    #[test]
    fn mp_076_three_times_the_received_bytes() {
        let mut budget = Amplification::unvalidated();
        assert!(budget.is_blocked(1));
        budget.on_received(400);
        assert_eq!(budget.budget(), 1200);
        assert!(!budget.is_blocked(1200));
        budget.on_sent(1200);
        assert!(budget.is_blocked(1));
        budget.on_received(1);
        assert_eq!(budget.budget(), 3);
        budget.validate();
        assert_eq!(budget.budget(), u64::MAX);
        budget.on_sent(1 << 30);
        assert!(!budget.is_blocked(usize::MAX));
    }

    #[test]
    fn mp_076_each_path_has_its_own_count() {
        let mut first = Amplification::unvalidated();
        let second = Amplification::unvalidated();
        first.on_received(1200);
        assert_eq!(first.budget(), 3600);
        assert_eq!(second.budget(), 0);
    }

    #[test]
    fn a_sender_past_its_budget_does_not_wrap() {
        let mut budget = Amplification::unvalidated();
        budget.on_received(10);
        budget.on_sent(1200);
        assert_eq!(budget.budget(), 0);
        budget.on_received(usize::MAX);
        assert!(budget.budget() > 0);
    }
}
