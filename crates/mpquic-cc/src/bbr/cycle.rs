//! [`Cycle`]: the cycle of probing for bandwidth, as far as it has come.

use std::time::{Duration, Instant};

/// What acknowledgements currently show of a probe (`ack_phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feedback {
    /// Nothing.
    None,
    Refilling,
    /// It has begun.
    Starting,
    /// They show its effects.
    Probing,
    /// It is over, and its last effects are to come.
    Stopping,
}

/// The cycle of probing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cycle {
    pub(super) feedback: Feedback,
    /// Samples are of packets sent while probing (`is_bw_probe_sample`).
    pub(super) is_probe_sample: bool,
    /// The newest sample was held down by the application.
    pub(super) app_limited: bool,
    /// Round trips since the last probe (`rounds_since_probe_up`).
    pub(super) rounds: u64,
    pub(super) began: Instant,
    pub(super) wait: Duration,
    /// The last probe lost too much (`prev_probe_too_high`).
    pub(super) was_too_high: bool,
    /// The last probe ended early as a precaution (`prev_probe_precautionary`).
    pub(super) was_precautionary: bool,
    /// The path was filled for a round trip.
    pub(super) is_refilled: bool,
    /// Bytes acknowledged towards the next increment of the long-term bound,
    pub(super) acked: f64,
    /// what an increment needs,
    pub(super) acked_per_increment: f64,
    /// and how often that was halved.
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
