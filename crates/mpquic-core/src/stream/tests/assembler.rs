//! The assembler against a naive model.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::{byte_at, bytes_of};
use crate::stream::assembler::Assembler;
use crate::stream::piece::Source;

const APART: Source = Source {
    datagram: 0,
    gather: false,
};
const GATHERED: Source = Source {
    datagram: 0,
    gather: true,
};

fn insert(assembler: &mut Assembler, range: std::ops::Range<u64>) {
    assembler.insert(range.start, Bytes::from(bytes_of(range)), APART);
}

#[test]
fn in_order_bytes_are_given_as_they_came() {
    let mut assembler = Assembler::default();
    let data = Bytes::from(bytes_of(0..1000));
    assembler.insert(0, data.slice(..600), APART);
    assembler.insert(600, data.slice(600..), APART);
    let first = assembler.read(usize::MAX).expect("bytes");
    // The same memory: no byte was copied.
    assert_eq!(first.bytes.as_ptr(), data.as_ptr());
    assert_eq!((first.offset, first.bytes.len()), (0, 600));
    let second = assembler.read(100).expect("bytes");
    assert_eq!(second.bytes.as_ptr(), data[600..].as_ptr());
    assert_eq!((second.offset, second.bytes.len()), (600, 100));
    assert_eq!(assembler.read(usize::MAX).map(|c| c.offset), Some(700));
    assert!(assembler.read(usize::MAX).is_none());
    assert_eq!((assembler.unread(), assembler.bytes_read()), (0, 1000));
}

#[test]
fn consecutive_frames_beyond_a_gap_are_one_run() {
    let mut assembler = Assembler::default();
    for start in (1000..100_000).step_by(1000) {
        insert(&mut assembler, start..start + 1000);
    }
    assert_eq!((assembler.runs(), assembler.pieces()), (1, 99));
    assert!(!assembler.is_readable());
    insert(&mut assembler, 0..1000);
    assert_eq!(assembler.runs(), 0);
    let mut offset = 0;
    while let Some(chunk) = assembler.read(usize::MAX) {
        assert_eq!(chunk.offset, offset);
        offset += chunk.bytes.len() as u64;
    }
    assert_eq!(offset, 100_000);
}

#[test]
fn fifty_thousand_gaps_are_no_trouble() {
    let mut assembler = Assembler::default();
    for index in 0..50_000 {
        let start = index * 20 + 10;
        insert(&mut assembler, start..start + 10);
    }
    assert_eq!(assembler.runs(), 50_000);
    for index in (0..50_000).rev() {
        insert(&mut assembler, index * 20..index * 20 + 10);
    }
    assert_eq!(assembler.runs(), 0);
    assert_eq!(assembler.unread(), 1_000_000);
    while let Some(chunk) = assembler.read(usize::MAX) {
        assert_eq!(chunk.bytes[0], byte_at(chunk.offset));
    }
    assert_eq!(assembler.bytes_read(), 1_000_000);
}

/// Runs are added and joined everywhere, and not only at the end.
#[test]
fn single_bytes_in_any_order_take_little_memory() {
    const BYTES: u64 = 5003; // A prime, so that steps of any length meet all.
    for (step, joining_step) in [(1, 1), (1234, 777), (BYTES - 1, 2), (2, BYTES - 1)] {
        let mut assembler = Assembler::default();
        let empty = assembler.memory();
        for index in (0..BYTES).map(|index| index * step % BYTES) {
            insert(&mut assembler, 2 * index + 1..2 * index + 2);
        }
        assert_eq!(assembler.runs(), BYTES as usize);
        let each = (assembler.memory() - empty) / BYTES;
        assert!(each <= 48, "{each} bytes for each");
        for index in (0..BYTES).map(|index| index * joining_step % BYTES) {
            insert(&mut assembler, 2 * index..2 * index + 1);
        }
        assert_eq!((assembler.runs(), assembler.unread()), (0, 2 * BYTES));
        let mut read = Vec::new();
        while let Some(chunk) = assembler.read(usize::MAX) {
            read.extend_from_slice(&chunk.bytes);
        }
        assert_eq!(read, bytes_of(0..2 * BYTES));
        assembler.trim();
        assert_eq!(assembler.memory(), empty);
    }
}

#[test]
fn short_slices_are_gathered_on_request() {
    let mut assembler = Assembler::default();
    for offset in (1..=10_000).chain([0]) {
        let data = Bytes::from(vec![byte_at(offset)]);
        assembler.insert(offset, data, GATHERED);
    }
    assert!(assembler.pieces() < 5, "{} pieces", assembler.pieces());
    let mut read = Vec::new();
    while let Some(chunk) = assembler.read(333) {
        read.extend_from_slice(&chunk.bytes);
    }
    assert_eq!(read, bytes_of(0..10_001));
    assert_eq!(assembler.pieces(), 0);
}

/// True if `bytes` are a slice of `datagram`.
fn is_slice_of(bytes: &Bytes, datagram: &Bytes) -> bool {
    datagram.as_ptr_range().contains(&bytes.as_ptr())
}

#[test]
fn waiting_slices_leave_their_datagram() {
    let mut assembler = Assembler::default();
    let datagram = Bytes::from(bytes_of(0..60_000));
    // Read at once, ready for long, and behind a gap.
    for range in [0..1000, 1000..1001, 1001..40_000, 50_000..51_000] {
        assembler.insert(range.start as u64, datagram.slice(range), APART);
    }
    let soon = assembler.read(usize::MAX).expect("bytes");
    assert!(is_slice_of(&soon.bytes, &datagram));
    drop(soon);
    assembler.detach_waiting();
    let soon = assembler.read(usize::MAX).expect("bytes");
    assert!(is_slice_of(&soon.bytes, &datagram), "copied too early");
    drop(soon);
    assembler.insert(40_000, datagram.slice(40_000..40_001), APART);
    assembler.detach_waiting();
    let mut read = Vec::new();
    while read.len() < 38_999 {
        let chunk = assembler.read(usize::MAX).expect("bytes");
        assert!(!is_slice_of(&chunk.bytes, &datagram), "{}", chunk.offset);
        read.extend_from_slice(&chunk.bytes);
    }
    assert_eq!(read, bytes_of(1001..40_000));
    assert!(!datagram.is_unique(), "the newest piece was copied");
    assembler.detach_waiting();
    assert!(datagram.is_unique(), "something keeps the datagram");
    assert_eq!((assembler.unread(), assembler.pieces()), (1001, 2));
}

#[test]
fn slices_that_leave_their_datagrams_are_gathered() {
    let mut assembler = Assembler::default();
    for round in 0..100 {
        for offset in round * 100..round * 100 + 100 {
            insert(&mut assembler, offset..offset + 1);
        }
        assembler.detach_waiting();
    }
    // The newest ones wait for the next call.
    assert!(assembler.pieces() <= 102, "{} pieces", assembler.pieces());
    assembler.detach_waiting();
    assert_eq!(assembler.pieces(), 1);
    let all = assembler.read(usize::MAX).expect("bytes");
    assert_eq!(&all.bytes[..], bytes_of(0..10_000));
}

#[derive(Debug, Clone)]
enum Operation {
    Insert {
        offset: u64,
        length: u64,
        gather: bool,
    },
    Read {
        max_length: usize,
    },
    Detach,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let insert = (0u64..400, 0u64..60, any::<bool>()).prop_map(|(offset, length, gather)| {
        Operation::Insert {
            offset,
            length,
            gather,
        }
    });
    let read = (1usize..80).prop_map(|max_length| Operation::Read { max_length });
    let detach = Just(Operation::Detach);
    prop::collection::vec(prop_oneof![8 => insert, 2 => read, 1 => detach], 1..120)
}

/// The bytes received and not read, one by one.
#[derive(Default)]
struct Model {
    held: BTreeMap<u64, u8>,
    seen: std::collections::BTreeSet<u64>,
    next: u64,
}

impl Model {
    fn insert(&mut self, range: std::ops::Range<u64>) {
        for offset in range {
            if self.seen.insert(offset) {
                self.held.insert(offset, byte_at(offset));
            }
        }
    }

    fn ready(&self) -> u64 {
        (self.next..)
            .find(|o| !self.held.contains_key(o))
            .unwrap_or(self.next)
    }
}

proptest! {
    #[test]
    fn ordered_reads_give_each_byte_once(operations in operations()) {
        let mut assembler = Assembler::default();
        let mut model = Model::default();
        for operation in operations {
            match operation {
                Operation::Insert { offset, length, gather } => {
                    let data = Bytes::from(bytes_of(offset..offset + length));
                    assembler.insert(offset, data, Source { datagram: 0, gather });
                    model.insert(offset..offset + length);
                }
                Operation::Detach => assembler.detach_waiting(),
                Operation::Read { max_length } => {
                    let ready = model.ready() - model.next;
                    match assembler.read(max_length) {
                        None => prop_assert_eq!(ready, 0),
                        Some(chunk) => {
                            prop_assert_eq!(chunk.offset, model.next);
                            let length = chunk.bytes.len() as u64;
                            prop_assert!(0 < length && length <= ready.min(max_length as u64));
                            prop_assert_eq!(&chunk.bytes[..], &bytes_of(model.next..model.next + length)[..]);
                            for offset in model.next..model.next + length {
                                model.held.remove(&offset);
                            }
                            model.next += length;
                        }
                    }
                }
            }
            prop_assert_eq!(assembler.unread(), model.held.len() as u64);
            prop_assert_eq!(assembler.is_readable(), model.ready() > model.next);
            prop_assert_eq!(assembler.bytes_read(), model.next);
        }
    }

    #[test]
    fn unordered_reads_give_each_byte_once(
        operations in operations(),
        ordered_first in 0usize..40,
    ) {
        let mut assembler = Assembler::default();
        let mut model = Model::default();
        let mut read = 0;
        for (index, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Insert { offset, length, gather } => {
                    let data = Bytes::from(bytes_of(offset..offset + length));
                    assembler.insert(offset, data, Source { datagram: 0, gather });
                    model.insert(offset..offset + length);
                }
                Operation::Detach => assembler.detach_waiting(),
                Operation::Read { max_length } => {
                    let chunk = if index < ordered_first {
                        assembler.read(max_length)
                    } else {
                        let chunk = assembler.read_unordered(max_length);
                        prop_assert_eq!(chunk.is_some(), !model.held.is_empty());
                        chunk
                    };
                    let Some(chunk) = chunk else { continue };
                    prop_assert!(!chunk.bytes.is_empty() && chunk.bytes.len() <= max_length);
                    for (offset, &byte) in (chunk.offset..).zip(&chunk.bytes) {
                        prop_assert_eq!(model.held.remove(&offset), Some(byte));
                    }
                    read += chunk.bytes.len() as u64;
                }
            }
            prop_assert_eq!(assembler.unread(), model.held.len() as u64);
            prop_assert_eq!(assembler.bytes_read(), read);
        }
    }
}
