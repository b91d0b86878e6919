//! [`Losses`]: what was lost and marked on a path, by round trip.

use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent};

/// Share of losses in a round trip that shows too much in flight (`LossThresh`).
pub(crate) const LOSS_THRESHOLD: f64 = 0.02;
/// The same where no packet has waited in a queue: a queue that overflows is full, and a policer without any drops a
/// fifth of what is sent in a probe.
pub(super) const WITHOUT_QUEUE: f64 = 0.1;

/// Losses of a path, by round trip.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    bytes: f64,
    /// When the current round trip for counting losses began.
    began: Option<Instant>,
    has_ended: bool,
    round: LossRound,
    pub(super) marked_rounds: u32,
    /// When the last recovery period began, until a packet sent since is acknowledged.
    recovery_start: Option<Instant>,
}

/// A round trip's losses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossRound {
    pub(super) lost: f64,
    pub(super) acked: f64,
    pub(super) events: u32,
    pub(super) marked: bool,
}

impl Losses {
    /// Bytes lost since the path opened.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    pub(super) fn in_recovery(&self) -> bool {
        self.recovery_start.is_some()
    }

    pub(super) fn on_ack(&mut self, ack: &Acked) {
        self.round.acked += ack.bytes as f64;
        self.has_ended = self.began.is_none_or(|began| ack.sent_at >= began);
        if self.has_ended {
            self.began = Some(ack.now);
        }
        if self.recovery_start.is_some_and(|start| ack.sent_at > start) {
            self.recovery_start = None;
        }
    }

    /// The losses of a round trip, if the current acknowledgement ended one.
    pub(super) fn end_round(&mut self) -> Option<LossRound> {
        if !self.has_ended {
            return None;
        }
        self.marked_rounds = if self.round.marked {
            self.marked_rounds + 1
        } else {
            0
        };
        Some(std::mem::take(&mut self.round))
    }

    /// A loss or an ECN mark; true if it is the first in the round trip.
    pub(super) fn on_event(&mut self, event: &CongestionEvent) -> bool {
        let is_first = self.round.events == 0 && !self.round.marked;
        if is_first {
            self.began = Some(event.now);
        }
        let newer = self
            .recovery_start
            .is_none_or(|start| event.sent_at > start);
        if newer {
            self.recovery_start = Some(event.now);
        }
        let lost = event.lost_bytes as f64;
        self.bytes += lost;
        self.round.lost += lost;
        if event.lost_bytes > 0 {
            self.round.events += 1;
        } else {
            self.round.marked = true;
        }
        is_first
    }

    /// Forgets losses that proved spurious.
    pub(super) fn forgive(&mut self) {
        self.round.events = 0;
        self.round.lost = 0.0;
        self.recovery_start = None;
    }

    /// The cycle of probing starts over.
    pub(super) fn restart_round(&mut self) {
        self.round = LossRound::default();
    }
}
