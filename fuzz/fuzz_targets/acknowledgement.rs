//! Acknowledgements of any ranges against a list of sent packets: each packet is acknowledged or
//! lost once, the bytes in flight are the sum of the other packets, and the acknowledgement of an
//! unsent packet is a fault.

#![no_main]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mpquic_core::Fault;
use mpquic_core::testing::Sender;
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{Ack, EcnCounts};
use mpquic_fuzz::number::Varint;

#[derive(Debug, Arbitrary)]
enum Operation {
    Send {
        bytes: u16,
        count: u8,
    },
    /// Ranges from this distance below the next number downwards: gaps and lengths.
    Ack {
        below: u8,
        ranges: Vec<(u8, u8)>,
        delay: Varint,
        ecn: Option<[Varint; 3]>,
    },
    /// Ranges of any numbers, whether packets were sent with them or not.
    Wild(Vec<(Varint, Varint)>),
    Wait(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    Acked,
    Lost,
}

struct Model {
    sender: Sender,
    now: Instant,
    packets: BTreeMap<u64, (u64, State)>,
    largest_acked: Option<u64>,
    /// A spurious loss has raised the sender's packet threshold.
    is_patient: bool,
}

impl Model {
    fn next(&self) -> u64 {
        self.packets.len() as u64
    }

    fn send(&mut self, bytes: u16, count: u8) {
        let bytes = bytes.clamp(40, 1500);
        for _ in 0..count % 32 {
            let expected = self.next();
            assert_eq!(self.sender.send(self.now, bytes), expected);
            self.packets
                .insert(expected, (bytes.into(), State::InFlight));
        }
    }

    fn acknowledge(&mut self, ranges: &RangeSet, delay: u64, ecn: Option<EcnCounts>) {
        let Some(ack) = Ack::new(ranges, delay, ecn) else {
            return;
        };
        let result = self.sender.on_ack(self.now, &ack);
        if ack.largest_acknowledged >= self.next() {
            assert_eq!(result.unwrap_err().fault, Fault::AckOfUnsent);
            return;
        }
        let counts = result.expect("all of them were sent");
        let mut acked = 0;
        let mut late = 0;
        for range in ack.ranges() {
            let (newly, after_loss) = self.mark(range);
            acked += newly;
            late += after_loss;
        }
        assert_eq!(counts.acked, acked);
        // Lost packets are remembered for some time only.
        assert!(counts.late <= late, "{counts:?}");
        self.is_patient |= counts.late > 0;
        self.largest_acked = self.largest_acked.max(Some(ack.largest_acknowledged));
        self.check_lost(counts.lost, acked + counts.late > 0);
    }

    /// Marks numbers as acknowledged. Returns the number of packets in flight among them, and of
    /// lost packets.
    fn mark(&mut self, range: RangeInclusive<u64>) -> (usize, usize) {
        let (mut newly, mut late) = (0, 0);
        for (_, state) in self.packets.range_mut(range).map(|(_, packet)| packet) {
            newly += usize::from(*state == State::InFlight);
            late += usize::from(*state == State::Lost);
            *state = State::Acked;
        }
        (newly, late)
    }

    fn check_lost(&mut self, count: usize, is_news: bool) {
        let lost: Vec<u64> = self.sender.lost().collect();
        assert_eq!(lost.len(), count);
        let largest = self.largest_acked.expect("one was acknowledged");
        for number in lost {
            assert!(number < largest);
            let (_, state) = self.packets.get_mut(&number).expect("it was sent");
            assert_eq!(*state, State::InFlight, "packet {number}");
            *state = State::Lost;
        }
        // RFC 9002 section 6.1.1
        let threshold = if self.is_patient { 128 } else { 3 };
        if is_news && let Some(below) = largest.checked_sub(threshold) {
            let mut old = self.packets.range(..=below);
            let waiting = old.find(|(_, (_, state))| *state == State::InFlight);
            assert_eq!(waiting, None, "far below {largest}, and not lost");
        }
    }

    fn check(&self) {
        let in_flight = self
            .packets
            .values()
            .filter(|(_, state)| *state == State::InFlight);
        let bytes: u64 = in_flight.map(|(bytes, _)| bytes).sum();
        assert_eq!(self.sender.bytes_in_flight(), bytes);
    }
}

fuzz_target!(|operations: Vec<Operation>| {
    let now = Instant::now();
    let mut model = Model {
        sender: Sender::new(now),
        now,
        packets: BTreeMap::new(),
        largest_acked: None,
        is_patient: false,
    };
    for operation in operations.into_iter().take(100) {
        match operation {
            Operation::Send { bytes, count } => model.send(bytes, count),
            Operation::Ack {
                below,
                ranges,
                delay,
                ecn,
            } => {
                let mut end = (model.next() + 1).saturating_sub(u64::from(below));
                let mut set = RangeSet::default();
                for (gap, length) in ranges {
                    let start = end.saturating_sub(u64::from(length));
                    set.insert(start..end);
                    end = start.saturating_sub(u64::from(gap));
                }
                let ecn = ecn.map(|[ect0, ect1, ce]| EcnCounts {
                    ect0: ect0.0,
                    ect1: ect1.0,
                    ce: ce.0,
                });
                model.acknowledge(&set, delay.0, ecn);
            }
            Operation::Wild(ranges) => {
                let range = |(start, length): &(Varint, Varint)| {
                    start.0..start.0.saturating_add(length.0).min(1 << 62)
                };
                let set: RangeSet = ranges.iter().map(range).collect();
                model.acknowledge(&set, 0, None);
            }
            Operation::Wait(milliseconds) => {
                model.now += Duration::from_millis(milliseconds.into());
            }
        }
        model.check();
    }
});
