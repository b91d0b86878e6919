//! Received packets: detects duplicates, and keeps the ranges to acknowledge.

use std::time::Instant;

use quinn_proto::EcnCodepoint;

use super::ack_policy::{AckPolicy, AckState};
use super::seen::Seen;
use crate::ids::PathId;
use crate::packet::arrival::{Arrival, Content, Opened};
use crate::packet::delivery::{Delivery, Fate};
use crate::packet::writer::FrameWriter;
use crate::range_set::RangeSet;
use crate::wire::frame::encode_ack;
use crate::wire::frame::{EcnCounts, FrameKind};

/// Ranges kept for acknowledgement; the oldest go first. All fit into one packet of 1200 bytes. A
/// range is repeated until the peer confirms it or this many newer ranges exist.
const MAX_RANGES: usize = 256;

/// Beyond this number of ranges, confirmation is requested after [`ACKS_WITH_RANGES`].
const FEW_RANGES: usize = 4;
/// Acknowledgements between two requests for confirmation with many ranges.
const ACKS_WITH_RANGES: u32 = 32;
/// Acknowledgements between requests for confirmation otherwise. This also bounds the memory for
/// sent ACK-only packets.
const ACKS_WITHOUT_RANGES: u32 = 256;

/// Received packets of one packet number space, to be acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Received {
    seen: Seen,
    /// Numbers that acknowledgements report.
    ranges: RangeSet,
    /// Lower numbers are no longer reported, unless they arrive late.
    forgotten_below: u64,
    largest: Option<(u64, Instant)>,
    largest_ack_eliciting: Option<u64>,
    /// The largest number of the last acknowledgement sent.
    largest_reported: Option<u64>,
    /// The smallest number that no acknowledgement has reported yet.
    smallest_unreported: Option<u64>,
    /// Ack-eliciting packets since the last acknowledgement.
    ack_eliciting: u64,
    due: bool,
    deadline: Option<Instant>,
    /// The last acknowledgement may be lost.
    repeat: bool,
    /// The peer may not know that its ack-eliciting packets arrived.
    unconfirmed: bool,
    ecn: EcnCounts,
    /// The last packet was marked ECN-CE.
    ended_with_ce: bool,
    /// Acknowledgements sent since the last one in an ack-eliciting packet.
    unconfirmed_acks: u32,
}

impl Received {
    /// Bytes of memory besides itself.
    pub(crate) fn memory(&self) -> usize {
        self.seen.memory() + self.ranges.memory()
    }

    /// True for a packet seen before, or too old to exclude that: do not process such a packet (RFC
    /// 9000 section 12.3).
    pub(crate) fn is_duplicate(&self, packet_number: u64) -> bool {
        self.seen.contains(packet_number)
    }

    /// Adds an opened packet, which is no duplicate.
    pub(crate) fn on_packet(
        &mut self,
        packet_number: u64,
        now: Instant,
        ecn: Option<EcnCodepoint>,
        ack_eliciting: bool,
        policy: &AckPolicy,
    ) {
        self.seen.insert(packet_number);
        self.ranges.insert_one(packet_number);
        self.drop_excess_range(packet_number);
        if self
            .largest
            .is_none_or(|(largest, _)| packet_number > largest)
        {
            self.largest = Some((packet_number, now));
        }
        let smallest = self.smallest_unreported.unwrap_or(packet_number);
        self.smallest_unreported = Some(smallest.min(packet_number));
        match ecn {
            Some(EcnCodepoint::Ect0) => self.ecn.ect0 += 1,
            Some(EcnCodepoint::Ect1) => self.ecn.ect1 += 1,
            Some(EcnCodepoint::Ce) => self.ecn.ce += 1,
            None => {}
        }
        let is_ce = ecn == Some(EcnCodepoint::Ce);
        let followed_ce = std::mem::replace(&mut self.ended_with_ce, is_ce);
        if !ack_eliciting {
            return;
        }
        self.ack_eliciting += 1;
        self.unconfirmed = true;
        // RFC 9000 section 13.2.1: out of order, or CE-marked
        let urgent = self.is_out_of_order(packet_number, policy.reordering_threshold)
            || is_ce && (policy.every_ce || !followed_ce);
        self.largest_ack_eliciting = self.largest_ack_eliciting.max(Some(packet_number));
        if urgent || self.ack_eliciting >= policy.ack_eliciting_threshold {
            self.set_due();
        } else if !self.due {
            let deadline = now + policy.max_ack_delay;
            self.deadline = Some(
                self.deadline
                    .map_or(deadline, |before| before.min(deadline)),
            );
        }
    }

    /// The frames of a packet were processed.
    #[inline]
    pub(crate) fn on_packet_processed(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        content: &Content,
        policy: &AckPolicy,
    ) {
        let Arrival { now, ecn, .. } = *arrival;
        let number = opened.packet_number;
        self.on_packet(number, now, ecn, content.ack_eliciting, policy);
        if content.immediate_ack {
            self.set_due();
        }
    }

    /// An acknowledgement is due now.
    pub(crate) fn set_due(&mut self) {
        self.due = true;
        self.deadline = None;
    }

    /// The acknowledgement that is due waits until this time.
    pub(crate) fn postpone(&mut self, until: Instant) {
        self.due = false;
        self.deadline = Some(until);
    }

    /// True if the number of the ack-eliciting packet just received calls for an immediate
    /// acknowledgement. With a threshold of 1: for a number below an earlier one, or after missing
    /// numbers.
    fn is_out_of_order(&self, packet_number: u64, threshold: u64) -> bool {
        match threshold {
            0 => false,
            1 => self.largest_ack_eliciting.is_some_and(|largest| {
                let next = (largest + 1).max(self.forgotten_below);
                packet_number < largest || !self.ranges.contains_range(next..packet_number)
            }),
            _ => self.is_beyond(packet_number, threshold),
        }
    }

    /// True if a sender that tolerates less reordering than `threshold` packets can declare a
    /// packet lost, or learn of a wrong declaration (draft-ietf-quic-ack-frequency-14 section 6.2).
    fn is_beyond(&self, packet_number: u64, threshold: u64) -> bool {
        // With the last acknowledgement, the sender could decide on all lower numbers.
        let judged = self
            .largest_reported
            .and_then(|largest| (largest + 1).checked_sub(threshold))
            .unwrap_or(0);
        let largest = self
            .largest_ack_eliciting
            .map_or(packet_number, |largest| largest.max(packet_number));
        let first = judged.max(self.forgotten_below);
        let received = self.ranges.overlapping(first..u64::MAX).next();
        let missing = match received {
            Some(range) if range.start == first => range.end,
            _ => first,
        };
        packet_number < judged || missing < largest && largest - missing >= threshold
    }

    /// Keeps the number of ranges bounded, but never forgets the packet just received.
    fn drop_excess_range(&mut self, just_received: u64) {
        if self.ranges.len() > MAX_RANGES {
            let oldest = self
                .ranges
                .iter()
                .find(|range| !range.contains(&just_received));
            if let Some(oldest) = oldest {
                self.ranges.remove(oldest);
            }
        }
    }

    /// The largest packet number received.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.largest.map(|(largest, _)| largest)
    }

    /// Whether an acknowledgement is due.
    pub(crate) fn ack_state(&self, now: Instant) -> AckState {
        if self.ack_eliciting == 0 && !self.repeat {
            AckState::None
        } else if self.due || self.deadline.is_some_and(|deadline| deadline <= now) {
            AckState::Due
        } else {
            AckState::Pending
        }
    }

    /// When a pending acknowledgement becomes due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Makes a pending acknowledgement due after its timer.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.due = true;
        }
    }

    /// Writes ACK (`path` is `None`) or PATH_ACK; false without anything to acknowledge, or without
    /// room for one range. ECN marks are always reported (RFC 9000 section 13.4.1).
    #[must_use]
    pub(crate) fn write_ack(
        &mut self,
        w: &mut FrameWriter<'_>,
        now: Instant,
        path: Option<PathId>,
        ack_delay_exponent: u8,
    ) -> bool {
        let Some((largest, received_at)) = self.largest else {
            return false;
        };
        let delay = now.saturating_duration_since(received_at).as_micros() as u64;
        let delay = delay >> ack_delay_exponent.min(20);
        let ecn = Some(self.ecn).filter(|counts| *counts != EcnCounts::default());
        let room = w.remaining();
        if encode_ack(w.buffer(), path, &self.ranges, delay, ecn, room).is_none() {
            return false;
        }
        let kind = path.map_or(FrameKind::Ack, |_| FrameKind::PathAck);
        let path = path.unwrap_or(PathId::ZERO);
        w.note(Some(kind), Delivery::Ack { path, largest }, false);
        self.smallest_unreported = None;
        self.largest_reported = Some(largest);
        self.ack_eliciting = 0;
        self.due = false;
        self.deadline = None;
        self.repeat = false;
        self.unconfirmed_acks = self.unconfirmed_acks.saturating_add(1);
        true
    }

    /// True if the packet with the next acknowledgement should carry a PING (when the window
    /// allows), so that the peer confirms it and old ranges can be forgotten (RFC 9000 section
    /// 13.2.4).
    pub(crate) fn wants_confirmation(&self) -> bool {
        let patience = if self.ranges.len() > FEW_RANGES {
            ACKS_WITH_RANGES
        } else {
            ACKS_WITHOUT_RANGES
        };
        self.unconfirmed_acks >= patience
    }

    /// An acknowledgement of this space was sent in an ack-eliciting packet.
    pub(crate) fn on_confirmation_requested(&mut self) {
        self.unconfirmed_acks = 0;
    }

    /// The last acknowledgement may be lost: the next packet repeats it, but no packet is sent only
    /// for that. So a peer that receives our probe need not send its own.
    pub(crate) fn repeat(&mut self) {
        self.repeat = self.largest_reported.is_some();
    }

    /// A packet is about to ask whether the peer is there: repeats an acknowledgement that the peer
    /// may lack. Without the repetition, the peer would hear the packet and still wait for its own
    /// probe timeout.
    pub(crate) fn repeat_unconfirmed(&mut self) {
        if self.unconfirmed {
            self.repeat();
        }
    }

    /// Our acknowledgement with the largest number `largest` was acknowledged or lost.
    pub(crate) fn on_delivery(&mut self, largest: u64, fate: Fate) {
        match fate {
            Fate::Acked => self.on_confirmed(largest),
            Fate::Lost if self.largest_reported == Some(largest) => self.repeat(),
            Fate::Lost => {}
        }
    }

    /// The peer has received an acknowledgement: its ranges need not be repeated (RFC 9000 section
    /// 13.2.4).
    fn on_confirmed(&mut self, largest: u64) {
        if self.largest_reported == Some(largest) && self.ack_eliciting == 0 {
            self.unconfirmed = false;
        }
        let Some((newest, _)) = self.largest else {
            return;
        };
        // The largest number stays, because the peer's ECN validation needs it (RFC 9000 section
        // 13.2.3). Numbers that arrived late and were never reported stay, too.
        let bound = (largest + 1)
            .min(newest)
            .min(self.smallest_unreported.unwrap_or(u64::MAX));
        self.ranges.remove_below(bound);
        self.forgotten_below = self.forgotten_below.max(bound);
    }
}

#[cfg(test)]
mod tests;
