//! Sets of ranges against the standard library's set of numbers.

#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::RangeSet;

#[derive(Debug, Arbitrary)]
enum Operation {
    Insert(u8, u8),
    InsertOne(u8),
    Remove(u8, u8),
    RemoveBelow(u8),
    PopMin,
    Overlapping(u8, u8),
    Clear,
}

fn set(range: std::ops::Range<u64>) -> BTreeSet<u64> {
    range.collect()
}

fn range(start: u8, length: u8) -> std::ops::Range<u64> {
    u64::from(start)..u64::from(start) + u64::from(length % 32)
}

fuzz_target!(|operations: Vec<Operation>| {
    let mut ranges = RangeSet::default();
    let mut model = BTreeSet::new();
    for operation in operations {
        match operation {
            Operation::Insert(start, length) => {
                let range = range(start, length);
                let is_new = !set(range.clone()).is_subset(&model);
                assert_eq!(ranges.insert(range.clone()), is_new);
                model.extend(range);
            }
            Operation::InsertOne(value) => {
                assert_eq!(ranges.insert_one(value.into()), model.insert(value.into()));
            }
            Operation::Remove(start, length) => {
                let range = range(start, length);
                let was_there = !set(range.clone()).is_disjoint(&model);
                assert_eq!(ranges.remove(range.clone()), was_there);
                model.retain(|value| !range.contains(value));
            }
            Operation::RemoveBelow(bound) => {
                ranges.remove_below(bound.into());
                model.retain(|value| *value >= u64::from(bound));
            }
            Operation::PopMin => {
                let popped = ranges.pop_min();
                assert_eq!(
                    popped.as_ref().map(|range| range.start),
                    model.first().copied()
                );
                for value in popped.unwrap_or_default() {
                    assert!(model.remove(&value));
                }
            }
            Operation::Overlapping(start, length) => {
                let range = range(start, length);
                let found = ranges.overlapping(range.clone()).flatten();
                let found: BTreeSet<u64> = found.filter(|value| range.contains(value)).collect();
                assert!(found.iter().eq(model.range(range.clone())));
                let all = set(range.clone()).is_subset(&model);
                assert_eq!(ranges.contains_range(range), all);
            }
            Operation::Clear => {
                ranges.clear();
                model.clear();
            }
        }
        check(&ranges, &model);
    }
});

fn check(ranges: &RangeSet, model: &BTreeSet<u64>) {
    assert!(ranges.iter().flatten().eq(model.iter().copied()));
    // None is empty and no two touch.
    let starts = model
        .iter()
        .filter(|value| **value == 0 || !model.contains(&(**value - 1)));
    assert_eq!(ranges.len(), starts.count());
    assert_eq!(ranges.is_empty(), model.is_empty());
    assert_eq!(ranges.min(), model.first().copied());
    assert_eq!(ranges.max(), model.last().copied());
    for value in 0..300 {
        assert_eq!(ranges.contains(value), model.contains(&value));
    }
}
