//! Delivery rate samples (draft-ietf-ccwg-bbr, "Delivery Rate Samples").

use std::time::Instant;

/// What the estimator remembers with each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendState {
    /// Bytes delivered on the path when the packet was sent.
    pub(crate) delivered: u64,
    /// When that many had been delivered.
    pub(crate) delivered_time: Instant,
    /// When the flight the packet belongs to started.
    pub(crate) first_sent_time: Instant,
    /// The sender had run out of data.
    pub(crate) app_limited: bool,
}

impl SendState {
    /// A state that means nothing, until the estimator fills it in.
    pub(crate) fn unset(now: Instant) -> Self {
        Self {
            delivered: 0,
            delivered_time: now,
            first_sent_time: now,
            app_limited: false,
        }
    }
}
