//! [`Cycle`]: the state of the probing cycle.

use std::time::{Duration, Instant};

/// The part of a probe that acknowledgements currently reflect (`ack_phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feedback {
    /// No part.
    None,
    Refilling,
    /// The probe has begun.
    Starting,
    /// Acknowledgements show the effects of the probe.
    Probing,
    /// The probe is over, and its last effects are still to come.
    Stopping,
}

/// The state of the probing cycle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cycle {
    pub(super) feedback: Feedback,
    /// Rate samples are of packets that were sent while probing (`is_bw_probe_sample`).
    pub(super) is_probe_sample: bool,
    /// The newest rate sample was application-limited.
    pub(super) app_limited: bool,
    /// Number of round trips since the last probe (`rounds_since_probe_up`).
    pub(super) rounds: u64,
    pub(super) began: Instant,
    pub(super) wait: Duration,
    /// The last probe lost too many packets (`prev_probe_too_high`).
    pub(super) was_too_high: bool,
    /// The last probe ended early as a precaution (`prev_probe_precautionary`).
    pub(super) was_precautionary: bool,
    /// The path was filled for a round trip.
    pub(super) is_refilled: bool,
    /// Bytes acknowledged towards the next increment of the long-term bound.
    pub(super) acked: f64,
    /// Bytes acknowledged per increment of the long-term bound.
    pub(super) acked_per_increment: f64,
    /// How often [`Self::acked_per_increment`] was halved.
    pub(super) doublings: u32,
}

impl Cycle {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            feedback: Feedback::None,
            is_probe_sample: false,
            app_limited: false,
            rounds: 0,
            began: now,
            wait: Duration::ZERO,
            was_too_high: false,
            was_precautionary: false,
            is_refilled: false,
            acked: 0.0,
            acked_per_increment: f64::INFINITY,
            doublings: 0,
        }
    }

    pub(super) fn stop_feedback(&mut self) {
        self.feedback = Feedback::Stopping;
    }
}
