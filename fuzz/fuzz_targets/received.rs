//! The receiving side of a packet number space against a set of numbers: duplicates are found, and
//! acknowledgements name received packets only.

#![no_main]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::PathId;
use mpquic_core::testing::Receiver;
use mpquic_core::unstable_wire::frame::{Frame, FrameIter};
use mpquic_fuzz::number::{VARINT_MAX, Varint};

/// A packet may count as a duplicate if its number lies this far below the largest number.
const WINDOW: u64 = 8192 - 64;
/// More ranges than these need not be reported.
const MAX_RANGES: usize = 256;

#[derive(Debug, Arbitrary)]
enum Operation {
    /// A packet whose number differs from the next number by this much.
    Packet(i16),
    Packets {
        count: u8,
        step: u8,
    },
    Number(Varint),
    WriteAck {
        room: u16,
    },
    /// The peer has received this acknowledgement, counted back from the last one.
    Delivered(u8),
    Wait(u8),
}

struct Model {
    receiver: Receiver,
    now: Instant,
    arrived: BTreeSet<u64>,
    /// Largest numbers of the sent acknowledgements.
    sent: Vec<u64>,
    /// Acknowledgements below this number have reached the peer, and need not be repeated.
    confirmed_below: u64,
    /// Ranges of received numbers now.
    ranges: usize,
    /// The largest number of ranges so far.
    most_ranges: usize,
}

impl Model {
    fn arrive(&mut self, number: u64) {
        let largest = self.arrived.last().copied().unwrap_or(0);
        let is_new = self.receiver.on_packet(self.now, number);
        let is_known = self.arrived.contains(&number);
        assert!(!(is_new && is_known), "{number} is a duplicate");
        let is_old = number + WINDOW < largest;
        assert!(is_new || is_known || is_old, "{number} is new");
        if is_new {
            self.arrived.insert(number);
            let below = number
                .checked_sub(1)
                .is_some_and(|n| self.arrived.contains(&n));
            let above = self.arrived.contains(&(number + 1));
            self.ranges = self.ranges + 1 - usize::from(below) - usize::from(above);
            self.most_ranges = self.most_ranges.max(self.ranges);
        }
    }

    fn write_ack(&mut self, room: usize) {
        let mut frame = Vec::new();
        let written = self.receiver.write_ack(self.now, &mut frame, room);
        assert!(frame.len() <= room && written != frame.is_empty());
        assert!(
            written || room < 40 || self.arrived.is_empty(),
            "there was room"
        );
        if !written {
            return;
        }
        let mut frames = FrameIter::new(Bytes::from(frame), true);
        let Some(Ok(Frame::PathAck(ack))) = frames.next() else {
            panic!("no PATH_ACK");
        };
        assert_eq!(frames.next(), None);
        assert_eq!(ack.path_id, PathId(1));
        let largest = ack.ack.largest_acknowledged;
        assert_eq!(Some(&largest), self.arrived.last());
        let mut named = BTreeSet::new();
        for range in ack.ack.ranges() {
            let length = range.end() - range.start() + 1;
            let arrived = self.arrived.range(range.clone()).count() as u64;
            assert_eq!(arrived, length, "{range:?} did not arrive");
            named.extend(range);
        }
        if room >= 4096 && self.most_ranges <= MAX_RANGES {
            let mut owed = self.arrived.range(self.confirmed_below..);
            assert_eq!(
                owed.find(|number| !named.contains(number)),
                None,
                "not reported"
            );
            assert!(!self.receiver.is_ack_due(self.now));
        }
        self.sent.push(largest);
    }

    fn delivered(&mut self, which: u8) {
        let Some(index) = self.sent.len().checked_sub(1 + usize::from(which)) else {
            return;
        };
        let largest = self.sent[index];
        self.receiver.on_ack_delivered(largest);
        self.confirmed_below = self.confirmed_below.max(largest + 1);
    }
}

fuzz_target!(|operations: Vec<Operation>| {
    let now = Instant::now();
    let mut model = Model {
        receiver: Receiver::default(),
        now,
        arrived: BTreeSet::new(),
        sent: Vec::new(),
        confirmed_below: 0,
        ranges: 0,
        most_ranges: 0,
    };
    for operation in operations.into_iter().take(200) {
        let next = model.arrived.last().map_or(0, |last| last + 1);
        match operation {
            Operation::Packet(distance) => {
                let number = next.saturating_add_signed(distance.into());
                model.arrive(number.min(VARINT_MAX));
            }
            Operation::Packets { count, step } => {
                for index in 0..u64::from(count % 64) {
                    model.arrive((next + index * u64::from(step)).min(VARINT_MAX));
                }
            }
            Operation::Number(number) => model.arrive(number.0),
            Operation::WriteAck { room } => model.write_ack(room.into()),
            Operation::Delivered(which) => model.delivered(which),
            Operation::Wait(milliseconds) => {
                model.now += Duration::from_millis(milliseconds.into());
            }
        }
    }
    model.write_ack(1 << 16);
});
