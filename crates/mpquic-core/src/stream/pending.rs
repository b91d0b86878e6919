//! [`Pending`]: byte ranges that wait to be sent, and the number of their bytes.

use std::ops::Range;

use crate::range_set::RangeSet;

/// A set of offsets that keeps track of its size.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    ranges: RangeSet,
    bytes: u64,
}

impl Pending {
    /// Bytes of memory for the ranges.
    pub(super) fn memory(&self) -> usize {
        self.ranges.memory()
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True without any offset.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.ranges.iter().next()
    }

    /// The first part of `range` that is in the set.
    pub(crate) fn first_in(&self, range: &Range<u64>) -> Option<Range<u64>> {
        self.ranges.overlapping(range.clone()).next()
    }

    /// Adds `range`.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        self.bytes += length(&range) - self.overlap(&range);
        self.ranges.insert(range);
    }

    /// Takes `range` out.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if self.bytes > 0 {
            self.bytes -= self.overlap(&range);
            self.ranges.remove(range);
        }
    }

    fn overlap(&self, range: &Range<u64>) -> u64 {
        self.ranges
            .overlapping(range.clone())
            .map(|part| length(&part))
            .sum()
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}
