//! [`Losses`]: losses and ECN marks on a path, by round trip.

use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent};

/// Share of lost bytes in a round trip above which too much was in flight (`LossThresh`).
pub(crate) const LOSS_THRESHOLD: f64 = 0.02;
/// The same share if no packet waited in a queue. An overflowing queue would be visible, so smaller
/// losses are those of the link itself. A policer has no queue, but drops a fifth of the bytes of a
/// probe, more than this share.
pub(super) const WITHOUT_QUEUE: f64 = 0.1;

/// Losses of a path, by round trip.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    bytes: f64,
    /// When the current round trip for counting losses began.
    began: Option<Instant>,
    /// The latest acknowledgement ended a round trip.
    has_ended: bool,
    round: LossRound,
    /// Number of consecutive round trips with ECN marks, up to the last complete round trip.
    pub(super) marked_rounds: u32,
    /// When the last recovery period began; `None` once a packet that left later is acknowledged.
    recovery_start: Option<Instant>,
}

/// Losses and ECN marks of one round trip.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossRound {
    /// Lost bytes.
    pub(super) lost: f64,
    /// Acknowledged bytes.
    pub(super) acked: f64,
    /// Number of batches of losses.
    pub(super) events: u32,
    /// True if a packet had an ECN mark.
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

    /// The losses of a round trip, if the latest acknowledgement ended the round trip.
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

    /// Counts a batch of losses or an ECN mark. True if the event is the first of its round trip.
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

    /// Forgets the losses of the current round trip, which proved spurious, and ends recovery.
    pub(super) fn forgive(&mut self) {
        self.round.events = 0;
        self.round.lost = 0.0;
        self.recovery_start = None;
    }

    /// A new phase of the probing cycle begins: forgets the losses of the current round trip.
    pub(super) fn restart_round(&mut self) {
        self.round = LossRound::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::congestion::CongestionKind;

    use super::*;
    use crate::testing::{acked, congestion, start};

    const MS: Duration = Duration::from_millis(1);

    fn event(kind: CongestionKind, at: Duration, left: Duration, lost: u64) -> CongestionEvent {
        let mut event = congestion(kind, start() + at, start() + left);
        event.lost_bytes = lost;
        event
    }

    /// Acknowledges a packet that left at `left`.
    fn ack(losses: &mut Losses, at: Duration, left: Duration) -> Option<LossRound> {
        losses.on_ack(&acked(start() + at, start() + left, 1200));
        losses.end_round()
    }

    #[test]
    fn a_round_trip_begins_with_its_first_loss() {
        let mut losses = Losses::default();
        assert!(ack(&mut losses, 10 * MS, 5 * MS).is_some(), "the first");
        assert!(losses.on_event(&event(CongestionKind::Loss, 20 * MS, 12 * MS, 2400)));
        assert!(!losses.on_event(&event(CongestionKind::Loss, 22 * MS, 12 * MS, 1200)));
        assert!(ack(&mut losses, 30 * MS, 19 * MS).is_none());
        let round = ack(&mut losses, 31 * MS, 20 * MS).unwrap();
        assert_eq!((round.lost, round.acked), (3600.0, 2400.0));
        assert_eq!((round.events, round.marked), (2, false));
        assert_eq!(losses.bytes(), 3600.0);
        assert!(ack(&mut losses, 40 * MS, 30 * MS).is_none());
        let next = ack(&mut losses, 41 * MS, 31 * MS).unwrap();
        assert_eq!((next.lost, next.events), (0.0, 0));
    }

    #[test]
    fn marked_round_trips_are_counted_in_a_row() {
        let mut losses = Losses::default();
        let mut left = Duration::ZERO;
        for (is_marked, count) in [(true, 1), (true, 2), (false, 0), (true, 1)] {
            if is_marked {
                let mark = event(CongestionKind::Ecn, left, left, 0);
                assert!(losses.on_event(&mark));
                assert!(!losses.on_event(&mark));
            }
            let at = left + 20 * MS;
            let round = ack(&mut losses, at, left).unwrap();
            assert_eq!((round.marked, round.events), (is_marked, 0));
            assert_eq!(losses.marked_rounds, count);
            left = at;
        }
        assert_eq!(losses.bytes(), 0.0);
        losses.on_event(&event(CongestionKind::Loss, left, left, 1));
        let round = ack(&mut losses, left + 20 * MS, left).unwrap();
        assert_eq!((round.marked, round.events), (false, 1), "a byte was lost");
    }

    #[test]
    fn recovery_ends_with_a_packet_that_left_after_it_began() {
        let mut losses = Losses::default();
        losses.on_event(&event(CongestionKind::Loss, 20 * MS, 10 * MS, 1200));
        // This loss belongs to the same round trip, so recovery does not begin anew.
        losses.on_event(&event(CongestionKind::Loss, 25 * MS, 20 * MS, 1200));
        ack(&mut losses, 40 * MS, 20 * MS);
        assert!(losses.in_recovery());
        ack(&mut losses, 41 * MS, 21 * MS);
        assert!(!losses.in_recovery());
        losses.on_event(&event(CongestionKind::Loss, 50 * MS, 30 * MS, 1200));
        losses.on_event(&event(CongestionKind::Loss, 71 * MS, 51 * MS, 1200));
        ack(&mut losses, 80 * MS, 60 * MS);
        assert!(losses.in_recovery(), "a newer loss");
        losses.forgive();
        assert!(!losses.in_recovery());
        assert_eq!((losses.round.events, losses.round.lost), (0, 0.0));
        losses.on_event(&event(CongestionKind::Loss, 90 * MS, 80 * MS, 1200));
        losses.restart_round();
        assert_eq!((losses.round.events, losses.round.lost), (0, 0.0));
        assert!(losses.in_recovery());
    }
}
