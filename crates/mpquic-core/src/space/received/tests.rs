use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::recovery::testing::start;
use crate::space::seen::WINDOW;
use crate::wire::frame::FrameCounts;
use crate::wire::frame::{Ack, Frame, FrameIter, PathAck};

const POLICY: AckPolicy = AckPolicy {
    ack_eliciting_threshold: 2,
    max_ack_delay: Duration::from_millis(25),
    reordering_threshold: 1,
    every_ce: true,
};

fn receive(received: &mut Received, numbers: impl IntoIterator<Item = u64>, now: Instant) {
    for number in numbers {
        assert!(!received.is_duplicate(number));
        received.on_packet(number, now, None, true, &POLICY);
    }
}

/// Writes an acknowledgement and decodes it.
fn acknowledge(received: &mut Received, now: Instant) -> Option<Ack> {
    let mut buf = Vec::new();
    let mut counts = FrameCounts::default();
    let mut w = FrameWriter::new(&mut buf, 1200, &mut counts);
    if !received.write_ack(&mut w, now, Some(PathId(3)), 3) {
        return None;
    }
    assert!(!w.is_ack_eliciting());
    let deliveries = w.into_deliveries();
    let mut frames = FrameIter::new(Bytes::from(buf), true);
    let Some(Ok(Frame::PathAck(PathAck {
        path_id: PathId(3),
        ack,
    }))) = frames.next()
    else {
        panic!("no PATH_ACK");
    };
    let path = PathId(3);
    assert_eq!(
        deliveries[..],
        [Delivery::Ack {
            path,
            largest: ack.largest_acknowledged
        }]
    );
    assert_eq!(frames.next(), None);
    Some(ack)
}

fn ranges(ack: &Ack) -> Vec<(u64, u64)> {
    ack.ranges().map(|range| range.into_inner()).collect()
}

#[test]
fn every_second_packet_is_acknowledged() {
    // RFC 9000 section 13.2.2
    let (now, mut received) = (start(), Received::default());
    assert_eq!(received.ack_state(now), AckState::None);
    assert!(acknowledge(&mut received, now).is_none());
    receive(&mut received, [0], now);
    assert_eq!(received.ack_state(now), AckState::Pending);
    assert_eq!(received.next_timeout(), Some(now + POLICY.max_ack_delay));
    receive(&mut received, [1], now);
    assert_eq!(
        (received.ack_state(now), received.next_timeout()),
        (AckState::Due, None)
    );
    let later = now + Duration::from_micros(800);
    let ack = acknowledge(&mut received, later).unwrap();
    assert_eq!(
        (ranges(&ack), ack.ack_delay, ack.ecn_counts),
        (vec![(0, 1)], 100, None)
    );
    assert_eq!(received.ack_state(later), AckState::None);
}

#[test]
fn a_single_packet_is_acknowledged_within_the_delay() {
    // RFC 9000 section 13.2.1
    let (now, mut received) = (start(), Received::default());
    receive(&mut received, [0], now);
    let deadline = received.next_timeout().unwrap();
    received.on_timeout(deadline - Duration::from_nanos(1));
    assert_eq!(received.ack_state(now), AckState::Pending);
    assert_eq!(received.ack_state(deadline), AckState::Due);
    received.on_timeout(deadline);
    assert_eq!(
        (received.ack_state(deadline), received.next_timeout()),
        (AckState::Due, None)
    );
    // Initial and Handshake packets do not wait.
    let mut received = Received::default();
    received.on_packet(0, now, None, true, &AckPolicy::IMMEDIATE);
    assert_eq!(received.ack_state(now), AckState::Due);
}

#[test]
fn acknowledgements_are_not_acknowledged_by_themselves() {
    // RFC 9000 section 13.2.1
    let (now, mut received) = (start(), Received::default());
    for number in 0..10 {
        received.on_packet(number, now, None, false, &POLICY);
    }
    assert_eq!(
        (received.ack_state(now), received.next_timeout()),
        (AckState::None, None)
    );
    receive(&mut received, [10], now);
    assert_eq!(ranges(&acknowledge(&mut received, now).unwrap()), [(0, 10)]);
}

#[test]
fn reordering_and_gaps_are_reported_at_once() {
    // RFC 9000 section 13.2.1
    let (now, mut received) = (start(), Received::default());
    let mut state_after = |number, ack_eliciting| {
        received.on_packet(number, now, None, ack_eliciting, &POLICY);
        let state = received.ack_state(now);
        let _ = acknowledge(&mut received, now);
        state
    };
    assert_eq!(state_after(5, true), AckState::Pending);
    assert_eq!(state_after(6, false), AckState::None);
    assert_eq!(state_after(7, true), AckState::Pending);
    assert_eq!(state_after(9, true), AckState::Due);
    assert_eq!(state_after(10, true), AckState::Pending);
    assert_eq!(state_after(8, true), AckState::Due);
    assert_eq!(state_after(11, true), AckState::Pending);
}

#[test]
fn congestion_marks_are_reported_at_once() {
    // RFC 9000 section 13.2.1
    let (now, mut received) = (start(), Received::default());
    received.on_packet(0, now, Some(EcnCodepoint::Ect0), true, &POLICY);
    assert_eq!(received.ack_state(now), AckState::Pending);
    let _ = acknowledge(&mut received, now);
    received.on_packet(1, now, Some(EcnCodepoint::Ce), true, &POLICY);
    assert_eq!(received.ack_state(now), AckState::Due);
    received.on_packet(2, now, Some(EcnCodepoint::Ect1), false, &POLICY);
    let ecn = acknowledge(&mut received, now).unwrap().ecn_counts;
    assert_eq!(
        ecn,
        Some(EcnCounts {
            ect0: 1,
            ect1: 1,
            ce: 1
        })
    );
}

/// The numbers of these arrivals after which an acknowledgement is sent at once.
fn urgent(threshold: u64, numbers: &[u64]) -> Vec<u64> {
    let policy = AckPolicy {
        ack_eliciting_threshold: 1000,
        reordering_threshold: threshold,
        ..POLICY
    };
    let (now, mut received) = (start(), Received::default());
    let mut urgent = Vec::new();
    for &number in numbers {
        received.on_packet(number, now, None, true, &policy);
        if received.ack_state(now) == AckState::Due {
            urgent.push(number);
            let _ = acknowledge(&mut received, now);
        }
    }
    urgent
}

/// draft-ietf-quic-ack-frequency-14 section 6.2: its examples, and more.
#[test]
fn a_missing_packet_is_reported_when_it_can_be_declared_lost() {
    assert_eq!(urgent(3, &[0, 1, 3, 4, 5, 8, 9, 10]), [5, 9, 10]);
    assert_eq!(urgent(5, &[0, 1, 3, 5, 6, 7, 8, 9]), [7, 9]);
    assert_eq!(urgent(1, &[0, 1, 3, 4, 5, 8, 9, 10]), [3, 8]);
    // Late ones: within what the sender tolerates, and beyond.
    assert_eq!(urgent(3, &[0, 2, 3, 1, 4]), []);
    assert_eq!(urgent(3, &[0, 2, 3, 4, 1]), [4, 1]);
    // A gap that was reported is not reported again.
    assert_eq!(urgent(3, &[0, 10, 11, 12, 13, 14, 15]), [10, 11, 12]);
    assert_eq!(
        urgent(2, &[0, 1 << 61, (1 << 61) + 1, (1 << 61) + 2]),
        [1 << 61, (1 << 61) + 1]
    );
    assert_eq!(urgent(0, &[0, 5, 1, 90, 3]), []);
    assert_eq!(urgent(u64::MAX, &[0, 5, 1, 90, 3]), []);
}

/// draft-ietf-quic-ack-frequency-14 section 6.3
#[test]
fn the_first_congestion_mark_of_a_run_is_reported_at_once() {
    let policy = AckPolicy {
        ack_eliciting_threshold: 1000,
        every_ce: false,
        ..POLICY
    };
    let (now, mut received) = (start(), Received::default());
    let marks = [false, true, true, true, false, false, true];
    let states = (0..).zip(marks).map(|(number, is_ce)| {
        let mark = if is_ce {
            EcnCodepoint::Ce
        } else {
            EcnCodepoint::Ect0
        };
        received.on_packet(number, now, Some(mark), true, &policy);
        let state = received.ack_state(now);
        if state == AckState::Due {
            let _ = acknowledge(&mut received, now);
        }
        state == AckState::Due
    });
    let due: Vec<_> = states.collect();
    assert_eq!(due, [false, true, false, false, false, false, true]);
}

#[test]
fn a_shorter_delay_counts_for_packets_that_wait() {
    let (now, mut received) = (start(), Received::default());
    receive(&mut received, [0], now);
    let policy = AckPolicy {
        ack_eliciting_threshold: 9,
        max_ack_delay: Duration::from_millis(3),
        ..POLICY
    };
    received.on_packet(1, now, None, true, &policy);
    assert_eq!(received.next_timeout(), Some(now + policy.max_ack_delay));
    let policy = AckPolicy {
        ack_eliciting_threshold: 9,
        ..POLICY
    };
    received.on_packet(2, now, None, true, &policy);
    assert_eq!(
        received.next_timeout(),
        Some(now + Duration::from_millis(3))
    );
}

#[test]
fn only_the_last_acknowledgement_is_repeated_and_with_something_else() {
    let start = start();
    let mut received = Received::default();
    received.repeat();
    assert_eq!(received.ack_state(start), AckState::None);
    receive(&mut received, 0..2, start);
    acknowledge(&mut received, start).unwrap();
    receive(&mut received, 2..4, start);
    acknowledge(&mut received, start).unwrap();
    received.on_delivery(1, Fate::Lost);
    assert_eq!(received.ack_state(start), AckState::None);
    received.on_delivery(3, Fate::Lost);
    assert_eq!(received.ack_state(start), AckState::Pending);
    assert_eq!(received.next_timeout(), None);
    let again = acknowledge(&mut received, start).unwrap();
    assert_eq!(ranges(&again), [(0, 3)]);
    assert_eq!(received.ack_state(start), AckState::None);
}

#[test]
fn confirmed_ranges_are_forgotten() {
    // RFC 9000 section 13.2.4
    let (now, mut received) = (start(), Received::default());
    receive(&mut received, [0, 1, 3, 4, 7], now);
    let _ = acknowledge(&mut received, now);
    receive(&mut received, [8, 9, 2], now);
    received.on_delivery(7, Fate::Acked);
    // 2 arrived late and was never reported.
    let ack = acknowledge(&mut received, now).unwrap();
    assert_eq!(ranges(&ack), [(7, 9), (2, 4)]);
    received.on_delivery(9, Fate::Acked);
    received.on_packet(10, now, None, true, &POLICY);
    assert_eq!(received.ack_state(now), AckState::Pending);
    // RFC 9000 section 13.2.3: the largest number is never forgotten.
    assert_eq!(ranges(&acknowledge(&mut received, now).unwrap()), [(9, 10)]);
    received.on_delivery(1 << 61, Fate::Acked);
    assert_eq!(
        ranges(&acknowledge(&mut received, now).unwrap()),
        [(10, 10)]
    );
    // Forgotten is not unseen.
    assert!((0..11).all(|number| received.is_duplicate(number) != [5, 6].contains(&number)));
    receive(&mut received, [6], now);
    assert_eq!(
        ranges(&acknowledge(&mut received, now).unwrap()),
        [(10, 10), (6, 6)]
    );
}

#[test]
fn ranges_are_bounded_and_the_newest_are_kept() {
    let (now, mut received) = (start(), Received::default());
    receive(&mut received, (100..1000).map(|n| n * 2), now);
    assert_eq!(received.ranges.len(), MAX_RANGES);
    let ack = acknowledge(&mut received, now).unwrap();
    assert_eq!(
        (ack.ranges().count(), ack.largest_acknowledged),
        (MAX_RANGES, 1998)
    );
    // A straggler is reported even below all kept ranges.
    receive(&mut received, [3], now);
    assert_eq!(received.ranges.len(), MAX_RANGES);
    let ack = acknowledge(&mut received, now).unwrap();
    assert!(ack.ranges().any(|range| range.contains(&3)));
}

#[test]
fn too_little_room_keeps_the_acknowledgement_due() {
    let (now, mut received) = (start(), Received::default());
    receive(&mut received, [0, 1], now);
    let mut buf = Vec::new();
    let mut counts = FrameCounts::default();
    let mut w = FrameWriter::new(&mut buf, 3, &mut counts);
    assert!(!received.write_ack(&mut w, now, None, 3));
    assert!(w.into_deliveries().is_empty() && buf.is_empty());
    assert_eq!(received.ack_state(now), AckState::Due);
}

#[test]
fn confirmation_is_asked_for_now_and_then() {
    let (now, mut received) = (start(), Received::default());
    let acks_until_asked = |received: &mut Received| {
        let mut acks = 0;
        while !received.wants_confirmation() {
            assert!(acknowledge(received, now).is_some());
            acks += 1;
        }
        received.on_confirmation_requested();
        acks
    };
    receive(&mut received, [0], now);
    assert_eq!(acks_until_asked(&mut received), ACKS_WITHOUT_RANGES);
    receive(&mut received, [2, 4, 6, 8], now);
    assert_eq!(acks_until_asked(&mut received), ACKS_WITH_RANGES);
}

#[test]
fn numbers_far_below_the_largest_count_as_duplicates() {
    // RFC 9000 section 12.3
    let (now, mut received) = (start(), Received::default());
    receive(&mut received, [0, 1 << 61], now);
    assert!(received.is_duplicate(1) && received.is_duplicate((1 << 61) - WINDOW));
    assert!(!received.is_duplicate((1 << 61) - WINDOW + 64));
}

/// Mostly rising numbers with gaps, stragglers and leaps.
fn arrivals() -> impl Strategy<Value = Vec<(i64, u8)>> {
    let step = prop_oneof![
        20 => Just(1i64), 4 => -40..40i64, 2 => -700..700i64, 1 => -20_000..20_000i64
    ];
    prop::collection::vec((step, any::<u8>()), 1..400)
}

proptest! {
    #[test]
    fn duplicates_never_pass_and_all_is_acknowledged(arrivals in arrivals()) {
        let (now, mut received) = (start(), Received::default());
        let (mut model, mut reported) = (BTreeSet::new(), BTreeSet::new());
        let mut written = Vec::new();
        let mut number = 1i64 << 20;
        for (step, action) in arrivals {
            number = (number + step).max(0);
            let arrived = number as u64;
            let largest = model.last().copied().unwrap_or(0);
            let is_duplicate = received.is_duplicate(arrived);
            if model.contains(&arrived) {
                prop_assert!(is_duplicate);
            } else if arrived + WINDOW > largest + 64 {
                prop_assert!(!is_duplicate);
            }
            if !is_duplicate {
                received.on_packet(arrived, now, None, action % 4 != 0, &POLICY);
                model.insert(arrived);
            }
            if (action % 3 == 0 || received.ack_state(now) == AckState::Due)
                && let Some(ack) = acknowledge(&mut received, now)
            {
                written.push(ack.largest_acknowledged);
                reported.extend(ack.ranges().flatten());
            }
            if action % 7 == 0 && !written.is_empty() {
                received.on_delivery(written[usize::from(action) % written.len()], Fate::Acked);
            }
        }
        let ack = acknowledge(&mut received, now).unwrap();
        prop_assert_eq!(Some(&ack.largest_acknowledged), model.last());
        reported.extend(ack.ranges().flatten());
        prop_assert_eq!(reported, model);
    }
}
