//! Packet-timed round trips (draft-ietf-ccwg-bbr-06 section 5.5.1).

use std::time::Instant;

/// Counts round trips: one ends when a packet that was sent after its beginning is acknowledged.
/// The draft compares bytes delivered; sending times grow in the same order, so they do as well.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rounds {
    began: Option<Instant>,
    /// Round trips so far.
    pub(super) count: u64,
    /// The current acknowledgement ended one.
    pub(super) just_ended: bool,
}

impl Rounds {
    /// Begins a round trip without counting the last one.
    pub(super) fn restart(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// An acknowledgement at `now` whose newest packet left at `sent_at`.
    pub(super) fn on_ack(&mut self, now: Instant, sent_at: Instant) {
        self.just_ended = self.began.is_none_or(|began| sent_at >= began);
        if self.just_ended {
            self.began = Some(now);
            self.count += 1;
        }
    }
}
