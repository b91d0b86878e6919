use std::collections::BTreeMap;

use proptest::prelude::*;
use quinn_proto::{Dir, Side, StreamId};

use super::*;
use crate::recovery::testing::start;

/// Packets of a long connection; Miri is some hundred times slower.
const MANY: u64 = if cfg!(miri) { 10_000 } else { 100_000 };

fn packet(kind: u8, bytes: u16) -> SentPacket {
    let mut packet = SentPacket {
        ack_eliciting: kind > 1,
        in_flight: kind > 0,
        ..SentPacket::new(start(), bytes)
    };
    if kind == 3 {
        packet.deliveries.push(Delivery::Datagram);
        packet
            .deliveries
            .push(Delivery::Stream(StreamDelivery::Data {
                id: StreamId::new(Side::Client, Dir::Bi, 0),
                offset: 0,
                length: 1,
                fin: false,
            }));
    }
    packet
}

fn numbers(sent: &SentPackets) -> Vec<u64> {
    sent.iter().map(|(number, _)| number).collect()
}

#[test]
fn cost_does_not_depend_on_the_numbers_named() {
    let mut sent = SentPackets::default();
    let base = 1 << 60;
    for number in 0..100 {
        sent.insert(base + number * (1 << 40), packet(2, 1200));
    }
    let mut acked = Vec::new();
    sent.acknowledge(&(0..=base - 1), &mut acked);
    assert!(acked.is_empty());
    sent.acknowledge(&(0..=u64::MAX), &mut acked);
    assert_eq!(acked.len(), 100);
    assert!(sent.pop_resolved());
    assert_eq!(sent.first_number(), None);
    sent.acknowledge(&(0..=u64::MAX), &mut acked);
    assert_eq!(acked.len(), 100);
}

#[test]
fn bare_acknowledgements_do_not_pile_up() {
    // A peer that sends for ever and acknowledges nothing.
    let mut sent = SentPackets::default();
    sent.insert(0, packet(2, 1200));
    for number in 1..MANY {
        sent.insert(number, packet(0, 40));
        assert!(sent.slots.len() <= 2 * MANY_BARE_ACKS);
    }
    assert_eq!(numbers(&sent)[0], 0);
    let mut acked = Vec::new();
    sent.acknowledge(&(MANY - 10..=MANY - 1), &mut acked);
    assert_eq!(acked.len(), 10);
    sent.acknowledge(&(0..=0), &mut acked);
    assert_eq!((acked.len(), sent.bytes_in_flight()), (11, 0));
    assert_eq!(numbers(&sent).len(), sent.bare_acks);
}

#[test]
fn acknowledgements_behind_stream_data_are_not_looked_at() {
    let mut sent = SentPackets::default();
    sent.insert(0, packet(3, 1200));
    for number in 1..500 {
        sent.insert(number, packet(0, 40));
    }
    let mut shown = sent.with_stream_data();
    assert!(shown.next().is_some_and(|packet| packet.bytes == 1200));
    // It knows that there is nothing more.
    assert_eq!(shown.size_hint(), (0, Some(0)));
}

#[test]
fn nothing_is_allocated_once_warm() {
    let mut sent = SentPackets::default();
    let mut acked = Vec::new();
    for number in 0..1000 {
        sent.insert(number, packet(2, 1200));
    }
    let capacity = sent.slots.capacity();
    for number in 1000..MANY {
        sent.acknowledge(&(number - 1000..=number - 1000), &mut acked);
        acked.clear();
        sent.pop_resolved();
        sent.insert(number, packet(2, 1200));
    }
    assert_eq!(sent.slots.capacity(), capacity);
}

#[test]
fn a_packet_is_small() {
    // Three cache lines per packet under way, its deliveries included.
    assert!(size_of::<Slot>() <= 208, "{}", size_of::<Slot>());
}

#[derive(Debug, Clone)]
enum Step {
    Insert { gap: u64, kind: u8, bytes: u16 },
    Acknowledge { below: u64, length: u64 },
    PopFront,
    LeaveFlight,
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![8 => Just(0u64), 1 => 1..4u64, 1 => 1..100u64];
    prop_oneof![
        20 => (gap, 0..4u8, 1..1500u16)
            .prop_map(|(gap, kind, bytes)| Step::Insert { gap, kind, bytes }),
        8 => (0..60u64, 0..20u64).prop_map(|(below, length)| Step::Acknowledge { below, length }),
        4 => Just(Step::PopFront),
        1 => Just(Step::LeaveFlight),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_map(steps in prop::collection::vec(step(), 1..300)) {
        let mut sent = SentPackets::default();
        let mut model: BTreeMap<u64, SentPacket> = BTreeMap::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Insert { gap, kind, bytes } => {
                    next += gap;
                    sent.insert(next, packet(kind, bytes));
                    model.insert(next, packet(kind, bytes));
                    next += 1;
                }
                Step::Acknowledge { below, length } => {
                    let end = next.saturating_sub(below);
                    let range = end.saturating_sub(length)..=end;
                    let mut acked = Vec::new();
                    sent.acknowledge(&range, &mut acked);
                    let expected: Vec<u64> = model.range(range.clone()).map(|(n, _)| *n).collect();
                    model.retain(|number, _| !range.contains(number));
                    let acked: Vec<u64> = acked.into_iter().map(|(number, _)| number).collect();
                    prop_assert_eq!(acked, expected);
                }
                Step::PopFront => {
                    sent.pop_resolved();
                    let front = sent.pop_front().map(|(number, _)| number);
                    prop_assert_eq!(front, model.pop_first().map(|(number, _)| number));
                }
                Step::LeaveFlight => {
                    sent.leave_flight();
                    model.values_mut().for_each(|packet| packet.in_flight = false);
                }
                Step::Drain => {
                    let drained: Vec<u64> = sent.drain().map(|(number, _)| number).collect();
                    prop_assert_eq!(drained, model.keys().copied().collect::<Vec<_>>());
                    model.clear();
                }
            }
            prop_assert_eq!(numbers(&sent), model.keys().copied().collect::<Vec<_>>());
            let in_flight = model.values().filter(|packet| packet.in_flight);
            prop_assert_eq!(sent.bytes_in_flight(), in_flight.map(|p| u64::from(p.bytes)).sum::<u64>());
            prop_assert_eq!(sent.ack_eliciting(), model.values().filter(|p| p.ack_eliciting).count());
            prop_assert_eq!(sent.bare_acks, model.values().filter(|p| p.is_bare_ack()).count());
            let with_data = model.values().filter(|p| !p.deliveries.is_empty()).count();
            prop_assert_eq!(sent.with_stream_data().count(), with_data);
        }
    }
}
