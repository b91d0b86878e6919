//! Reassembly of a stream against a naive model: each byte is a function of its offset, and the
//! model is a map of the offsets whose bytes arrived and were read.

#![no_main]

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::testing::Reassembly;

#[derive(Debug, Arbitrary)]
enum Operation {
    /// A piece at the end of the last piece, or elsewhere.
    Insert {
        at: Option<u16>,
        length: u8,
        datagram: u16,
        gather: bool,
    },
    Read {
        most: u8,
    },
    ReadUnordered {
        most: u8,
    },
    ReadAll,
    DetachWaiting,
    Trim,
    Clear,
}

#[derive(Default)]
struct Model {
    held: BTreeSet<u64>,
    read: BTreeSet<u64>,
    /// True after [`Operation::Clear`], which drops unread bytes and ends the stream.
    cleared: bool,
    unordered: bool,
    last_end: u64,
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Model {
    /// The first offset that an ordered reader has not read.
    fn offset(&self) -> u64 {
        self.read
            .iter()
            .zip(0..)
            .take_while(|(read, at)| *read == at)
            .count() as u64
    }

    /// Bytes that an ordered read may return.
    fn ready(&self) -> u64 {
        let start = self.offset();
        (start..).take_while(|at| self.held.contains(at)).count() as u64
    }

    fn take(&mut self, chunk: &mpquic_core::Chunk, most: usize) {
        assert!(!chunk.bytes.is_empty() && chunk.bytes.len() <= most);
        for (at, byte) in (chunk.offset..).zip(&chunk.bytes) {
            assert_eq!(*byte, byte_at(at), "at {at}");
            assert!(self.held.remove(&at), "{at} was not there");
            assert!(self.read.insert(at), "{at} was read before");
        }
    }

    fn read(&mut self, stream: &mut Reassembly, most: usize) -> bool {
        if most == 0 {
            return false;
        }
        if self.unordered {
            return self.read_unordered(stream, most);
        }
        let offset = self.offset();
        let chunk = stream.read(most);
        assert_eq!(chunk.is_some(), self.ready() > 0);
        let Some(chunk) = chunk else {
            return false;
        };
        assert_eq!(chunk.offset, offset);
        self.take(&chunk, most);
        true
    }

    fn read_unordered(&mut self, stream: &mut Reassembly, most: usize) -> bool {
        if most == 0 {
            return false;
        }
        self.unordered = true;
        let lowest = self.held.first().copied();
        let chunk = stream.read_unordered(most);
        assert_eq!(chunk.as_ref().map(|chunk| chunk.offset), lowest);
        let Some(chunk) = chunk else {
            return false;
        };
        self.take(&chunk, most);
        true
    }

    fn check(&self, stream: &Reassembly) {
        assert_eq!(stream.unread(), self.held.len() as u64);
        assert_eq!(stream.bytes_read(), self.read.len() as u64);
        let readable = if self.unordered {
            !self.held.is_empty()
        } else {
            self.ready() > 0
        };
        assert_eq!(stream.is_readable(), readable);
        // The accounted memory covers all held bytes, also if they are slices of larger buffers.
        assert!(stream.memory() >= stream.unread());
        if self.cleared {
            return;
        }
        let offset = self.offset();
        assert!(stream.is_read_up_to(offset) && !stream.is_read_up_to(offset + 1));
        if !self.unordered {
            assert_eq!(stream.offset(), offset);
            let ready_end = offset + self.ready();
            let beyond = self.held.range(ready_end..);
            let starts = beyond.filter(|at| !self.held.contains(&(**at - 1)));
            assert_eq!(stream.runs(), starts.count());
        }
    }
}

fuzz_target!(|operations: Vec<Operation>| {
    let mut stream = Reassembly::default();
    let mut model = Model::default();
    for operation in operations.iter().take(200) {
        match *operation {
            Operation::Insert {
                at,
                length,
                datagram,
                gather,
            } if !model.cleared => {
                let start = at.map_or(model.last_end, |at| u64::from(at % 2048));
                let end = start + u64::from(length);
                model.last_end = end;
                let data: Vec<u8> = (start..end).map(byte_at).collect();
                let new = (start..end).filter(|at| !model.read.contains(at));
                model.held.extend(new.collect::<Vec<_>>());
                let datagram = u32::from(datagram).max(u32::from(length));
                stream.insert(start, Bytes::from(data), datagram, gather);
            }
            Operation::Insert { .. } => {}
            Operation::Read { most } => drop(model.read(&mut stream, most.into())),
            Operation::ReadUnordered { most } => {
                model.read_unordered(&mut stream, most.into());
            }
            Operation::ReadAll => while model.read(&mut stream, usize::MAX) {},
            Operation::DetachWaiting => stream.detach_waiting(),
            Operation::Trim => stream.trim(),
            Operation::Clear => {
                stream.clear();
                model.held.clear();
                model.cleared = true;
                model.unordered = false;
            }
        }
        model.check(&stream);
    }
    while !model.cleared && model.read_unordered(&mut stream, usize::MAX) {}
    assert_eq!(stream.unread(), 0);
    if model.held.is_empty() && !model.cleared {
        stream.trim();
        let ranges = model
            .read
            .iter()
            .filter(|at| !model.read.contains(&(**at + 1)));
        // The stream holds only the list of the ranges that were given to the reader.
        let most = 512 + 64 * ranges.count() as u64;
        assert!(
            stream.memory() <= most,
            "{} bytes of memory",
            stream.memory()
        );
    }
});
