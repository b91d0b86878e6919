//! [`Arrived`]: the bytes that a reader has read from a stream in any order.

use std::collections::BTreeMap;

/// Ranges of bytes: the end of each range by its start. Ranges neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arrived(BTreeMap<u64, u64>);

impl Arrived {
    /// Adds a range of bytes; false if the range overlaps an earlier range.
    pub(crate) fn insert(&mut self, offset: u64, length: u64) -> bool {
        let (mut start, mut end) = (offset, offset + length);
        let before = self.0.range(..=offset).next_back();
        let before = before.map(|(start, end)| (*start, *end));
        let after = self.0.range(offset + 1..).next();
        let after = after.map(|(start, end)| (*start, *end));
        let overlaps = before.is_some_and(|before| before.1 > start)
            || after.is_some_and(|after| after.0 < end);
        if overlaps {
            return false;
        }
        if let Some(before) = before.filter(|before| before.1 == start) {
            start = before.0;
        }
        if let Some(after) = after.filter(|after| after.0 == end) {
            self.0.remove(&after.0);
            end = after.1;
        }
        self.0.insert(start, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_that_arrives_twice_is_noticed() {
        let mut arrived = Arrived::default();
        for (offset, length) in [(10, 10), (30, 10), (0, 10), (20, 10)] {
            assert!(arrived.insert(offset, length), "{offset}");
        }
        assert_eq!(arrived.0, BTreeMap::from([(0, 40)]));
        for (offset, length) in [(0, 1), (39, 1), (39, 5), (15, 30), (0, 50)] {
            assert!(!arrived.insert(offset, length), "{offset}");
        }
        assert!(arrived.insert(50, 5));
        for (offset, length) in [(45, 6), (40, 50), (54, 1)] {
            assert!(!arrived.insert(offset, length), "{offset}");
        }
        assert!(arrived.insert(45, 5));
        assert!(arrived.insert(40, 5));
        assert_eq!(arrived.0, BTreeMap::from([(0, 55)]));
    }
}
