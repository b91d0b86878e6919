//! When an acknowledgement is due.

use std::time::Duration;

use crate::config::TransportConfig;

/// How long acknowledgements may wait (RFC 9000 section 13.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckPolicy {
    /// Ack-eliciting packets received before one is sent at once.
    pub(crate) ack_eliciting_threshold: u64,
    /// Longest wait after an ack-eliciting packet.
    pub(crate) max_ack_delay: Duration,
}

impl AckPolicy {
    /// Initial and Handshake packets are acknowledged at once (RFC 9000 section 13.2.1).
    pub(crate) const IMMEDIATE: Self = Self {
        ack_eliciting_threshold: 1,
        max_ack_delay: Duration::ZERO,
    };

    /// The policy of 0-RTT and 1-RTT packets.
    pub(crate) fn from_config(config: &TransportConfig) -> Self {
        Self {
            ack_eliciting_threshold: config.ack_eliciting_threshold.max(1),
            // RFC 9000 section 18.2
            max_ack_delay: config
                .max_ack_delay
                .min(Duration::from_millis((1 << 14) - 1)),
        }
    }
}

/// Whether there is something to acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckState {
    /// No ack-eliciting packet waits for an acknowledgement.
    None,
    /// One may ride along with other frames; on its own it can wait for `next_timeout`.
    Pending,
    /// One should be sent now, even on its own.
    Due,
}
