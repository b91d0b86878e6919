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
    /// An arriving packet is acknowledged at once if the number of a missing packet is lower by at
    /// least this much; 0 for never.
    pub(crate) reordering_threshold: u64,
    /// Every packet marked ECN-CE is acknowledged at once, not only the first of a run.
    pub(crate) every_ce: bool,
}

impl AckPolicy {
    /// Initial and Handshake packets are acknowledged at once (RFC 9000 section 13.2.1).
    pub(crate) const IMMEDIATE: Self = Self {
        ack_eliciting_threshold: 1,
        max_ack_delay: Duration::ZERO,
        reordering_threshold: 1,
        every_ce: true,
    };

    /// The policy of 0-RTT and 1-RTT packets.
    pub(crate) fn from_config(config: &TransportConfig) -> Self {
        Self {
            ack_eliciting_threshold: config.ack_eliciting_threshold,
            // RFC 9000 section 18.2
            max_ack_delay: config.max_ack_delay.saturating_sub(config.timer_lateness),
            reordering_threshold: 1,
            every_ce: true,
        }
    }
}

/// Whether packets wait to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckState {
    /// No ack-eliciting packet waits for an acknowledgement.
    None,
    /// An acknowledgement may be sent with other frames; without them it can wait for
    /// `next_timeout`.
    Pending,
    /// An acknowledgement should be sent now, even without other frames.
    Due,
}
