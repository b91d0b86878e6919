//! ACK and PATH_ACK and their ranges.

use std::iter::FusedIterator;
use std::ops::RangeInclusive;

use bytes::Bytes;

use super::fields::{truncated, varint};
use super::frame_type;
use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::range_set::RangeSet;
use crate::wire::buf::{Counter, Sink, put_varint, take_bytes, take_varint, varint_size};

/// An acknowledgement, of either frame type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Largest packet number acknowledged.
    pub largest_acknowledged: u64,
    /// ACK Delay as on the wire: to be shifted left by the peer's ack_delay_exponent, microseconds.
    pub ack_delay: u64,
    /// ECN counts, if the frame carried them.
    pub ecn_counts: Option<EcnCounts>,
    /// First Range onwards, validated when the frame was decoded, still in wire form.
    ranges: Bytes,
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
    /// Acknowledges all numbers in `received`; `None` for an empty set. `ack_delay` is already
    /// shifted.
    #[doc(hidden)]
    pub fn new(received: &RangeSet, ack_delay: u64, ecn_counts: Option<EcnCounts>) -> Option<Self> {
        let mut ranges = Vec::new();
        let largest_acknowledged = put_ranges(&mut ranges, received, usize::MAX)?;
        Some(Self {
            largest_acknowledged,
            ack_delay,
            ecn_counts,
            ranges: ranges.into(),
        })
    }

    /// Acknowledged packet numbers, highest range first; no two ranges touch.
    pub fn ranges(&self) -> AckRanges<'_> {
        AckRanges {
            rest: &self.ranges,
            start: self.largest_acknowledged,
            is_first: true,
        }
    }

    /// Decodes what follows the type and the path ID.
    #[inline]
    pub(super) fn decode(buf: &mut Bytes, has_ecn: bool) -> Result<Self, TransportError> {
        let largest_acknowledged = varint(buf)?;
        let ack_delay = varint(buf)?;
        let range_count = varint(buf)?;
        let mut rest: &[u8] = buf;
        let first = varint(&mut rest)?;
        let mut smallest = largest_acknowledged
            .checked_sub(first)
            .ok_or_else(below_zero)?;
        // Ends with the packet at the latest: a range takes two bytes at least.
        for _ in 0..range_count {
            let gap = varint(&mut rest)?;
            let length = varint(&mut rest)?;
            // RFC 9000 section 19.3.1, MP-055
            smallest = smallest
                .checked_sub(gap + 2 + length)
                .ok_or_else(below_zero)?;
        }
        let size = buf.len() - rest.len();
        let ranges = take_bytes(buf, size as u64).ok_or_else(truncated)?;
        let ecn_counts = has_ecn.then(|| EcnCounts::decode(buf)).transpose()?;
        Ok(Self {
            largest_acknowledged,
            ack_delay,
            ecn_counts,
            ranges,
        })
    }

    /// Writes what follows the type and the path ID.
    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.largest_acknowledged);
        out.varint(self.ack_delay);
        out.varint(self.ranges().skip(1).count() as u64);
        out.bytes(&self.ranges);
        if let Some(ecn) = &self.ecn_counts {
            ecn.write(out);
        }
    }
}

fn below_zero() -> TransportError {
    TransportError::new(Fault::AckBelowZero)
}

impl EcnCounts {
    fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            ect0: varint(buf)?,
            ect1: varint(buf)?,
            ce: varint(buf)?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        out.varint(self.ect0);
        out.varint(self.ect1);
        out.varint(self.ce);
    }
}

/// The ranges of an [`Ack`], highest first.
#[derive(Debug, Clone)]
pub struct AckRanges<'a> {
    /// Ranges not yet read.
    rest: &'a [u8],
    /// Start of the last range read, or the largest number acknowledged before the first.
    start: u64,
    is_first: bool,
}

impl Iterator for AckRanges<'_> {
    type Item = RangeInclusive<u64>;

    #[inline]
    fn next(&mut self) -> Option<RangeInclusive<u64>> {
        let end = if self.is_first {
            self.is_first = false;
            self.start
        } else {
            self.start.checked_sub(take_varint(&mut self.rest)? + 2)?
        };
        self.start = end.checked_sub(take_varint(&mut self.rest)?)?;
        Some(self.start..=end)
    }
}

impl FusedIterator for AckRanges<'_> {}

/// Appends ACK, or PATH_ACK with a `path`: the newest ranges of `received` within `max_size` bytes.
/// Returns the number of written ranges, or `None`, with nothing appended, without room for one
/// range. `delay` is already shifted.
pub fn encode_ack(
    out: &mut Vec<u8>,
    path: Option<PathId>,
    received: &RangeSet,
    delay: u64,
    ecn: Option<EcnCounts>,
    max_size: usize,
) -> Option<usize> {
    let largest = received.max()?;
    let mut fixed = Counter::default();
    put_start(&mut fixed, path, ecn.is_some(), largest, delay);
    if let Some(ecn) = &ecn {
        ecn.write(&mut fixed);
    }
    let count = count_that_fit(received, max_size.checked_sub(fixed.0)?)?;

    put_start(out, path, ecn.is_some(), largest, delay);
    put_varint(out, count as u64 - 1);
    put_ranges(out, received, count);
    if let Some(ecn) = &ecn {
        ecn.write(out);
    }
    Some(count)
}

/// Type to ACK Delay.
fn put_start(out: &mut impl Sink, path: Option<PathId>, has_ecn: bool, largest: u64, delay: u64) {
    match path {
        Some(path) => {
            out.varint(frame_type::PATH_ACK | u64::from(has_ecn));
            out.varint(path.into());
        }
        None => out.varint(frame_type::ACK | u64::from(has_ecn)),
    }
    out.varint(largest);
    out.varint(delay);
}

/// The gap before a range and its length as they go on the wire, newest first; the first range has
/// no gap.
fn gaps_and_lengths(received: &RangeSet) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
    let mut above = None;
    received.iter().rev().map(move |range| {
        let gap = above.map(|start: u64| start - range.end - 1);
        above = Some(range.start);
        (gap, range.end - range.start - 1)
    })
}

/// How many of the newest ranges fit into `room` together with their count; `None` if none does.
fn count_that_fit(received: &RangeSet, room: usize) -> Option<usize> {
    let mut count = 0;
    let mut size = 0;
    for (gap, length) in gaps_and_lengths(received) {
        size += gap.map_or(0, varint_size) + varint_size(length);
        if size + varint_size(count) > room {
            break;
        }
        count += 1;
    }
    usize::try_from(count).ok().filter(|&count| count > 0)
}

/// Appends the newest `limit` ranges. Returns the largest number, or `None` without ranges.
fn put_ranges(out: &mut Vec<u8>, received: &RangeSet, limit: usize) -> Option<u64> {
    let largest = received.max()?;
    for (gap, length) in gaps_and_lengths(received).take(limit) {
        if let Some(gap) = gap {
            put_varint(out, gap);
        }
        put_varint(out, length);
    }
    Some(largest)
}
