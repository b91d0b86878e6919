//! [`PacketNumberSpace`]: numbers, what was received, what was sent. One per path, plus Initial
//! and Handshake.

pub(crate) mod ack_policy;
pub(crate) mod received;
pub(crate) mod sent;

use std::time::Instant;

pub(crate) use ack_policy::{AckPolicy, AckState};
pub(crate) use received::Received;
pub(crate) use sent::{SentPacket, SentPackets};

use crate::ids::SpaceId;

/// One packet number space.
#[derive(Debug)]
pub(crate) struct PacketNumberSpace {
    id: SpaceId,
    /// What the peer sent.
    pub(crate) received: Received,
    /// What we sent.
    pub(crate) sent: SentPackets,
    next: u64,
    largest_acked: Option<u64>,
    /// When the oldest packet below the largest acknowledged one counts as lost by time.
    pub(crate) loss_time: Option<Instant>,
    /// Ack-eliciting packets to send now whatever the congestion window says, because a probe
    /// timeout passed (RFC 9002 section 6.2.4). Each one sent is subtracted.
    pub(crate) probes: u8,
}

impl PacketNumberSpace {
    /// An empty space that skips no numbers.
    pub(crate) fn new(id: SpaceId) -> Self {
        Self {
            id,
            received: Received::new(),
            sent: SentPackets::default(),
            next: 0,
            largest_acked: None,
            loss_time: None,
            probes: 0,
        }
    }

    /// Which space this is.
    pub(crate) fn id(&self) -> SpaceId {
        self.id
    }

    /// From now on skips a number at unpredictable distances, so that a peer that acknowledges
    /// packets it has not seen is caught (RFC 9000 section 21.4). `random` seeds the distances.
    pub(crate) fn skip_numbers(&mut self, _random: u64) {
        todo!()
    }

    /// The number [`Self::take_packet_number`] will return.
    pub(crate) fn next_packet_number(&self) -> u64 {
        self.next
    }

    /// The number for a packet that is about to be sent.
    pub(crate) fn take_packet_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
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
