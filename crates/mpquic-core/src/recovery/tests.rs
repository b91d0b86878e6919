#![expect(
    clippy::single_range_in_vec_init,
    reason = "acknowledgements are lists of ranges, often of one"
)]

use std::time::Duration;

use proptest::prelude::*;

use super::testing::{BYTES, TestPath, ms};

#[test]
fn bytes_in_flight_follow_the_packets() {
    let mut path = TestPath::new();
    path.send_many(4);
    path.send_with(|packet| {
        packet.ack_eliciting = false;
        packet.in_flight = false;
    });
    assert_eq!(path.recovery.bytes_in_flight(), 4 * u64::from(BYTES));
    path.at(ms(10)).ack(&[0..2, 4..5]);
    assert_eq!(path.recovery.bytes_in_flight(), 2 * u64::from(BYTES));
    let mut drained = Vec::new();
    path.recovery.discard_space(&mut path.space, &mut drained);
    assert_eq!(drained.len(), 2);
    assert_eq!(path.recovery.bytes_in_flight(), 0);
}

#[test]
fn a_space_is_usable_after_discarding() {
    // 0-RTT rejected: the same space goes on with 1-RTT packets.
    let mut path = TestPath::new();
    path.send_many(3);
    path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    path.recovery
        .discard_space(&mut path.space, &mut Vec::new());
    assert_eq!((path.recovery.pto_count(), path.space.probes), (0, 0));
    assert_eq!(path.space.loss_time, None);
    assert_eq!(path.send(), 3);
    // A late acknowledgement of discarded packets changes nothing.
    assert!(path.at(ms(5)).ack(&[0..3]).acked.is_empty());
    assert_eq!(path.at(ms(10)).ack(&[0..4]).acked_numbers(), [3]);
}

#[test]
fn app_limited_holds_until_the_next_packet() {
    let mut path = TestPath::new();
    path.send_many(3);
    path.recovery.set_app_limited();
    let limited = |path: &mut TestPath, number| {
        path.cx.now += ms(5);
        path.ack(&[number..number + 1]).summary.unwrap().app_limited
    };
    assert!(limited(&mut path, 0));
    assert!(limited(&mut path, 1));
    path.send();
    assert!(!limited(&mut path, 2));
}

#[test]
fn paces_faster_before_the_first_congestion() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(100));
    assert_eq!(
        path.recovery.pacing_rate(10_000, Some(70_000), 1200),
        70_000
    );
    assert_eq!(path.recovery.pacing_rate(10_000, None, 1200), 200_000);
    path.send_many(5);
    let first = path.space.next_packet_number() - 5;
    path.at(ms(100)).ack(&[first + 3..first + 4]);
    assert_eq!(path.out.lost_numbers(), [first]);
    assert_eq!(path.recovery.pacing_rate(10_000, None, 1200), 125_000);
    assert_eq!(path.recovery.pacing_rate(u64::MAX, None, 1200), u64::MAX);
}

#[test]
fn old_packets_do_not_count_after_an_address_change() {
    // RFC 9000 section 9.4
    let mut path = TestPath::new();
    path.settle_rtt(ms(50));
    let first = path.space.next_packet_number();
    path.send_many(8);
    path.at(ms(10));
    let (config, now) = (path.config.clone(), path.cx.now);
    path.recovery
        .reset_for_new_address(&mut path.space, &config, now);
    assert_eq!(path.recovery.bytes_in_flight(), 0);
    assert_eq!(path.recovery.rtt.snapshot().samples, 0);
    path.at(ms(12)).send();
    assert_eq!(path.recovery.bytes_in_flight(), u64::from(BYTES));

    path.at(ms(60)).ack(&[first + 6..first + 7]);
    assert_eq!(
        path.out.lost_numbers(),
        (first..first + 4).collect::<Vec<_>>()
    );
    assert!(path.out.congestion.is_empty());
    assert_eq!(
        (path.out.rtt_sample, path.out.summary.is_some()),
        (None, false)
    );
    assert_eq!(path.recovery.bytes_in_flight(), u64::from(BYTES));

    path.at(ms(212)).ack(&[first + 8..first + 9]);
    assert_eq!(path.out.rtt_sample, Some(ms(200)));
    assert_eq!(path.recovery.bytes_in_flight(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Send { bytes: u16, kind: u8 },
    Ack { ranges: Vec<(u64, u64)> },
    Wait(u64),
    Timer,
    Probe,
    Discard,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..1500u16, 0..6u8).prop_map(|(bytes, kind)| Step::Send { bytes, kind }),
        6 => prop::collection::vec((0..80u64, 1..12u64), 1..5).prop_map(|ranges| Step::Ack { ranges }),
        4 => (0..120_000u64).prop_map(Step::Wait),
        2 => Just(Step::Timer),
        1 => Just(Step::Probe),
        1 => Just(Step::Discard),
    ]
}

/// Every packet is resolved once, or late after having been lost; sums always agree.
fn check(path: &mut TestPath, steps: Vec<Step>) {
    let mut open = std::collections::BTreeSet::new();
    let mut lost = std::collections::BTreeSet::new();
    for step in steps {
        path.out.clear();
        match step {
            Step::Send { bytes, kind } => {
                open.insert(path.send_with(|packet| {
                    packet.bytes = bytes;
                    packet.ack_eliciting = kind > 1;
                    packet.in_flight = kind > 0;
                    packet.mtu_probe = kind == 2;
                    packet.ecn_marked = kind > 3;
                }));
            }
            Step::Ack { ranges } => {
                let Some(last) = path.space.next_packet_number().checked_sub(1) else {
                    continue;
                };
                let ranges: Vec<_> = ranges
                    .iter()
                    .map(|(below, length)| {
                        last.saturating_sub(*below).saturating_sub(*length)
                            ..last.saturating_sub(*below) + 1
                    })
                    .collect();
                path.ack(&ranges);
                for number in path
                    .out
                    .acked_numbers()
                    .into_iter()
                    .chain(path.out.late_numbers())
                {
                    assert!(ranges.iter().any(|range| range.contains(&number)));
                }
                for range in ranges {
                    assert!(
                        path.space
                            .sent
                            .iter()
                            .all(|(number, _)| !range.contains(&number))
                    );
                }
            }
            Step::Wait(micros) => path.cx.now += Duration::from_micros(micros),
            Step::Timer => {
                path.detect_lost();
            }
            Step::Probe => path.recovery.on_probe_timeout(&mut path.space, path.cx.now),
            Step::Discard => {
                path.recovery
                    .discard_space(&mut path.space, &mut Vec::new());
                open.clear();
                lost.clear();
            }
        }
        for number in path.out.acked_numbers() {
            assert!(open.remove(&number), "{number} acknowledged twice");
        }
        for number in path.out.lost_numbers() {
            assert!(
                open.remove(&number) && lost.insert(number),
                "{number} lost twice"
            );
        }
        for number in path.out.late_numbers() {
            assert!(lost.remove(&number), "{number} was not lost");
        }
        check_sums(path);
    }
}

fn check_sums(path: &TestPath) {
    let sent = &path.space.sent;
    let in_flight = sent.iter().filter(|(_, packet)| packet.in_flight);
    let bytes: u64 = in_flight.map(|(_, packet)| u64::from(packet.bytes)).sum();
    assert_eq!(bytes, sent.bytes_in_flight());
    assert_eq!(bytes, path.recovery.bytes_in_flight());
    let ack_eliciting = sent.iter().filter(|(_, packet)| packet.ack_eliciting);
    assert_eq!(ack_eliciting.count(), sent.ack_eliciting());
    // No packet that should be lost still waits.
    if let (Some(largest), Some((first, _))) = (path.space.largest_acked(), sent.iter().next()) {
        assert!(first > largest || path.space.loss_time.is_some());
        assert!(first + 128 > largest);
    }
}

proptest! {
    #[test]
    fn every_packet_has_one_fate(steps in prop::collection::vec(step(), 1..200)) {
        check(&mut TestPath::new(), steps.clone());
        let mut skipping = TestPath::new();
        skipping.space.skip_numbers([7; 32]);
        // Acknowledging skipped numbers is an error, and `check` expects success.
        let sends = steps.into_iter().filter(|step| !matches!(step, Step::Ack { .. }));
        check(&mut skipping, sends.collect());
    }
}
