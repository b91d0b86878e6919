//! [`PacketNumberSpace`]: packet numbers, received packets and sent packets. Each path has a packet
//! number space, and so do Initial and Handshake packets.

use std::time::Instant;

use crate::ids::SpaceId;
use crate::random::SeededRandom;
use crate::space::{LostPackets, Received, SentPackets};
use crate::wire::buf::VARINT_MAX;
use crate::wire::frame::EcnCounts;

/// One packet number space.
#[derive(Debug)]
pub(crate) struct PacketNumberSpace {
    id: SpaceId,
    /// Packets received from the peer.
    pub(crate) received: Received,
    /// Packets sent to the peer.
    pub(crate) sent: SentPackets,
    next: u64,
    skipping: Option<Skipping>,
    /// The packet number that was last skipped.
    pub(super) skipped: Option<u64>,
    pub(super) largest_acked: Option<u64>,
    /// Packets that were declared lost recently.
    pub(super) lost: LostPackets,
    /// When the oldest packet below the largest acknowledged one counts as lost by time.
    pub(super) loss_time: Option<Instant>,
    /// When the first ack-eliciting packet of an unbroken run of lost ones was sent (RFC 9002
    /// section 7.6).
    pub(super) lost_since: Option<Instant>,
    pub(super) last_ack_eliciting_sent: Option<Instant>,
    /// Start of the time with ack-eliciting packets in flight and without any acknowledgement.
    pub(super) waiting_since: Option<Instant>,
    /// The peer owes an acknowledgement since then.
    pub(super) owed_since: Option<Instant>,
    /// Ack-eliciting packets to send now, regardless of the congestion window, because a probe
    /// timeout passed (RFC 9002 section 6.2.4). Each one sent is subtracted.
    pub(super) probes: u8,
    pub(super) ecn: SpaceEcn,
}

/// ECN counts of one space (MP-056).
#[derive(Debug, Default)]
pub(super) struct SpaceEcn {
    /// Packets sent with ECT(0).
    pub(super) marked: u64,
    /// The counts that the peer reported last.
    pub(super) reported: EcnCounts,
}

impl PacketNumberSpace {
    /// Bytes of memory besides itself.
    pub(crate) fn memory(&self) -> usize {
        self.sent.memory() + self.received.memory() + self.lost.memory()
    }

    /// An empty space that skips no numbers.
    pub(crate) fn new(id: SpaceId) -> Self {
        Self {
            id,
            received: Received::default(),
            sent: SentPackets::default(),
            next: 0,
            skipping: None,
            skipped: None,
            largest_acked: None,
            lost: LostPackets::default(),
            loss_time: None,
            lost_since: None,
            last_ack_eliciting_sent: None,
            waiting_since: None,
            owed_since: None,
            probes: 0,
            ecn: SpaceEcn::default(),
        }
    }

    /// Which space this is.
    pub(crate) fn id(&self) -> SpaceId {
        self.id
    }

    /// From now on, skips packet numbers at unpredictable distances, to detect a peer that
    /// acknowledges packets it has not seen (RFC 9000 section 21.4). `seed` must be secret.
    pub(crate) fn skip_numbers(&mut self, seed: [u8; 32]) {
        self.skipping = Some(Skipping::new(seed, self.next));
    }

    /// False once all numbers are used: no more packets may be sent (RFC 9000 section 12.3).
    pub(crate) fn has_numbers(&self) -> bool {
        self.next <= VARINT_MAX
    }

    /// The number [`Self::take_packet_number`] will return.
    pub(crate) fn next_packet_number(&self) -> u64 {
        self.next
    }

    /// The number for the next packet.
    pub(crate) fn take_packet_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        if let Some(skipping) = &mut self.skipping
            && skipping.at <= self.next
        {
            self.skipped = Some(self.next);
            self.next += 1;
            skipping.plan(self.next);
        }
        number
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.sent.trim();
        self.lost.trim();
    }

    /// True if a probe is to be sent now, regardless of the congestion window.
    pub(crate) fn wants_probe(&self) -> bool {
        self.probes > 0
    }

    /// The largest number the peer acknowledged.
    pub(crate) fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// The number expected next from the peer, for expanding truncated numbers (RFC 9000 A.3).
    pub(crate) fn expected_next(&self) -> u64 {
        self.received.largest().map_or(0, |largest| largest + 1)
    }
}

/// Which packet numbers to skip.
#[derive(Debug)]
struct Skipping {
    /// The peer sees all earlier distances and must not be able to predict the next one from them.
    random: SeededRandom,
    /// The next number to skip.
    at: u64,
    /// Distances lie between this and twice as much.
    distance: u64,
}

impl Skipping {
    const FIRST_DISTANCE: u64 = 32;
    const MAX_DISTANCE: u64 = 1 << 16;

    fn new(seed: [u8; 32], next: u64) -> Self {
        let mut skipping = Self {
            random: SeededRandom::new(seed),
            at: 0,
            distance: Self::FIRST_DISTANCE,
        };
        skipping.plan(next);
        skipping
    }

    /// Chooses the number to skip after `next`.
    fn plan(&mut self, next: u64) {
        let random = u64::from_le_bytes(self.random.bytes());
        self.at = next + self.distance + random % self.distance;
        self.distance = (self.distance * 2).min(Self::MAX_DISTANCE);
    }
}

#[cfg(test)]
mod tests;
