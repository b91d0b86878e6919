//! [`RangeSet`]: ordered ranges of `u64`, for packet numbers and stream offsets.

use std::collections::VecDeque;
use std::collections::vec_deque;
use std::ops::Range;

/// A set of integers kept as disjoint half-open ranges that do not touch, in ascending order.
///
/// Growing at the upper end and shrinking at the lower one takes constant time; changes elsewhere
/// cost a binary search and a move of the ranges on the shorter side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self {
            ranges: VecDeque::new(),
        }
    }

    /// Bytes of memory for the ranges.
    pub(crate) fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<Range<u64>>()
    }

    /// Adds every integer of `range`; returns whether any of them was missing.
    pub fn insert(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        match self.ranges.back_mut() {
            Some(last) if range.start > last.end => self.ranges.push_back(range),
            Some(last) if range.start >= last.start => {
                let grows = range.end > last.end;
                last.end = last.end.max(range.end);
                return grows;
            }
            Some(_) => return self.insert_below_last(range),
            None => {
                if self.ranges.capacity() == 0 {
                    // Most sets never have a second range.
                    self.ranges.reserve_exact(1);
                }
                self.ranges.push_back(range);
            }
        }
        true
    }

    /// The general case: `range` starts below the last range.
    fn insert_below_last(&mut self, range: Range<u64>) -> bool {
        // Ranges `first..end` overlap or touch the new one and become one with it.
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let end = self.ranges.partition_point(|r| r.start <= range.end);
        if first == end {
            self.ranges.insert(first, range);
            return true;
        }
        let (Some(lowest), Some(highest)) = (self.ranges.get(first), self.ranges.get(end - 1))
        else {
            return false;
        };
        let merged = lowest.start.min(range.start)..highest.end.max(range.end);
        if *lowest == merged {
            return false;
        }
        if let Some(target) = self.ranges.get_mut(first) {
            *target = merged;
        }
        self.ranges.drain(first + 1..end);
        true
    }

    /// Adds one integer below `u64::MAX`; returns whether it was missing.
    pub fn insert_one(&mut self, value: u64) -> bool {
        self.insert(value..value.saturating_add(1))
    }

    /// Removes every integer of `range`; returns whether any of them was there.
    pub fn remove(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let mut first = self.ranges.partition_point(|r| r.end <= range.start);
        let mut end = self.ranges.partition_point(|r| r.start < range.end);
        if first >= end {
            return false;
        }
        // The parts of the outermost ranges that reach beyond `range` stay.
        let below = self.ranges[first].start..range.start;
        let above = range.end..self.ranges[end - 1].end;
        match (below.is_empty(), above.is_empty()) {
            (false, false) if end - first == 1 => {
                self.ranges[first] = above;
                self.ranges.insert(first, below);
                return true;
            }
            (keeps_none_below, keeps_none_above) => {
                if !keeps_none_below {
                    self.ranges[first] = below;
                    first += 1;
                }
                if !keeps_none_above {
                    self.ranges[end - 1] = above;
                    end -= 1;
                }
            }
        }
        self.ranges.drain(first..end);
        true
    }

    /// Removes every integer below `bound`.
    pub fn remove_below(&mut self, bound: u64) {
        while let Some(lowest) = self.ranges.front_mut() {
            if lowest.end > bound {
                lowest.start = lowest.start.max(bound);
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// True if `value` is in the set.
    pub fn contains(&self, value: u64) -> bool {
        self.range_around(value).is_some_and(|r| r.start <= value)
    }

    /// True if every integer of `range` is in the set; true for an empty range.
    pub fn contains_range(&self, range: Range<u64>) -> bool {
        range.is_empty()
            || self
                .range_around(range.start)
                .is_some_and(|r| r.start <= range.start && range.end <= r.end)
    }

    /// The range that holds `value`, or else the next one above it.
    fn range_around(&self, value: u64) -> Option<&Range<u64>> {
        // Questions are mostly about the newest range.
        match self.ranges.back() {
            Some(last) if last.start <= value => Some(last).filter(|r| r.end > value),
            _ => self
                .ranges
                .get(self.ranges.partition_point(|r| r.end <= value)),
        }
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.ranges.iter())
    }

    /// The parts of `range` that are in the set, in ascending order.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = match self.ranges.back() {
            // Questions are mostly about what lies above the set.
            Some(last) if last.end <= range.start => self.ranges.len(),
            _ => self.ranges.partition_point(|r| r.end <= range.start),
        };
        self.ranges
            .range(first..)
            .take_while(move |r| r.start < range.end)
            .map(move |r| r.start.max(range.start)..r.end.min(range.end))
    }

    /// The lowest integer.
    pub fn min(&self) -> Option<u64> {
        self.ranges.front().map(|r| r.start)
    }

    /// The highest integer.
    pub fn max(&self) -> Option<u64> {
        self.ranges.back().map(|r| r.end - 1)
    }

    /// Number of ranges, not of integers.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Removes and returns the lowest range.
    pub fn pop_min(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    /// Removes everything, but keeps the memory.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

impl<'a> IntoIterator for &'a RangeSet {
    type Item = Range<u64>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

/// Ranges of a [`RangeSet`] in ascending order.
#[derive(Debug, Clone)]
pub struct Iter<'a>(vec_deque::Iter<'a, Range<u64>>);

impl Iterator for Iter<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        self.0.next().cloned()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Range<u64>> {
        self.0.next_back().cloned()
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(ranges: &[Range<u64>]) -> RangeSet {
        ranges.iter().cloned().collect()
    }

    fn ranges(set: &RangeSet) -> Vec<Range<u64>> {
        set.iter().collect()
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut set = set(&[0..2, 4..6, 8..10]);
        assert!(set.insert(2..4));
        assert_eq!(ranges(&set), [0..6, 8..10]);
        assert!(set.insert(5..9));
        assert_eq!((set.len(), set.iter().next()), (1, Some(0..10)));
        assert!(!set.insert(3..10));
        assert!(!set.insert_one(9));
        assert!(set.insert_one(10));
        assert!(!set.insert(7..7));
        assert_eq!((set.min(), set.max(), set.len()), (Some(0), Some(10), 1));
    }

    #[test]
    fn removing_splits_and_trims() {
        let mut set = set(&[0..10, 20..30]);
        assert!(set.remove(3..5));
        assert_eq!(ranges(&set), [0..3, 5..10, 20..30]);
        assert!(set.remove(8..25));
        assert_eq!(ranges(&set), [0..3, 5..8, 25..30]);
        assert!(!set.remove(8..25));
        set.remove_below(6);
        assert_eq!(ranges(&set), [6..8, 25..30]);
        assert_eq!(set.pop_min(), Some(6..8));
        assert!(set.contains_range(25..30) && !set.contains_range(24..26));
        set.remove_below(u64::MAX);
        assert!(set.is_empty() && set.min().is_none() && set.pop_min().is_none());
    }

    #[test]
    fn the_end_of_the_number_space_is_safe() {
        let mut set = RangeSet::new();
        assert!(set.insert(u64::MAX - 2..u64::MAX));
        assert!(!set.insert_one(u64::MAX - 1));
        assert!(!set.insert_one(u64::MAX));
        assert_eq!(set.max(), Some(u64::MAX - 1));
    }

    #[derive(Debug, Clone)]
    enum Operation {
        Insert(Range<u64>),
        Remove(Range<u64>),
        RemoveBelow(u64),
        PopMin,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let range = (0u64..100, 0u64..20).prop_map(|(start, length)| start..start + length);
        prop_oneof![
            4 => range.clone().prop_map(Operation::Insert),
            2 => range.prop_map(Operation::Remove),
            1 => (0u64..100).prop_map(Operation::RemoveBelow),
            1 => Just(Operation::PopMin),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_integers(operations in prop::collection::vec(operation(), 0..60)) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for operation in operations {
                let before = model.len();
                match operation {
                    Operation::Insert(range) => {
                        model.extend(range.clone());
                        prop_assert_eq!(set.insert(range), model.len() > before);
                    }
                    Operation::Remove(range) => {
                        model.retain(|value| !range.contains(value));
                        prop_assert_eq!(set.remove(range), model.len() < before);
                    }
                    Operation::RemoveBelow(bound) => {
                        model.retain(|value| *value >= bound);
                        set.remove_below(bound);
                    }
                    Operation::PopMin => {
                        if let Some(range) = set.pop_min() {
                            prop_assert!(range.clone().all(|value| model.remove(&value)));
                        }
                    }
                }
                let ranges = ranges(&set);
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert!(ranges.iter().cloned().flatten().eq(model.iter().copied()));
                for value in 0..125 {
                    prop_assert_eq!(set.contains(value), model.contains(&value));
                    let end = (value + 5).min(125);
                    let all = (value..end).all(|value| model.contains(&value));
                    prop_assert_eq!(set.contains_range(value..end), all);
                    let overlap = set.overlapping(value..value + 30);
                    prop_assert!(overlap.flatten().eq(model.range(value..value + 30).copied()));
                }
            }
        }
    }
}
