#![expect(
    clippy::single_range_in_vec_init,
    reason = "acknowledgements are lists of ranges, often of one"
)]

use std::time::Duration;

use crate::config::TransportConfig;
use crate::error::Fault;
use crate::ids::{PathId, SpaceId};
use crate::recovery::testing::{BYTES, TestPath, ms};

#[test]
fn the_summary_has_all_numbers_for_controllers() {
    let mut path = TestPath::new();
    path.send_many(2);
    path.at(ms(3)).send_many(2);
    path.at(ms(43)).ack(&[0..1, 2..3]);
    let summary = path.out.summary.unwrap();
    assert_eq!(path.out.acked_numbers(), [2, 0]);
    assert_eq!((summary.largest, summary.bytes), (2, 2 * u64::from(BYTES)));
    assert_eq!(summary.in_flight, 2 * u64::from(BYTES));
    assert_eq!(path.since_start(summary.sent_at), ms(3));
    assert_eq!(summary.rtt.latest, ms(40));
    assert_eq!(path.out.rtt_sample, Some(ms(40)));
}

#[test]
fn unsent_numbers_are_a_violation() {
    // RFC 9000 section 13.1, MP-055
    let mut path = TestPath::new();
    path.send_many(3);
    let error = path.ack_with(&[0..4], 0, None).unwrap_err();
    assert_eq!(error.fault, Fault::AckOfUnsent);
    let error = path.ack_with(&[0..1 << 61], 0, None).unwrap_err();
    assert_eq!(error.fault, Fault::AckOfUnsent);
    assert!(path.ack_with(&[0..3], 0, None).is_ok());
}

#[test]
fn skipped_numbers_are_a_violation() {
    // RFC 9000 section 21.4
    let mut path = TestPath::new();
    path.space.skip_numbers([1; 32]);
    let mut numbers = vec![path.send()];
    while path.space.skipped.is_none() {
        numbers.push(path.send());
    }
    let skipped = path.space.skipped.unwrap();
    numbers.push(path.send());
    assert!(!numbers.contains(&skipped));
    assert_eq!(
        path.at(ms(9)).ack(&[0..skipped]).acked.len() as u64,
        skipped
    );
    assert!(path.ack_with(&[0..skipped + 2], 0, None).is_err());
    let acked = path.ack(&[0..skipped, skipped + 1..skipped + 2]);
    assert_eq!(acked.acked_numbers(), [skipped + 1]);
}

#[test]
fn repeated_and_reordered_acknowledgements_change_nothing() {
    let mut path = TestPath::new();
    path.send_many(6);
    path.at(ms(20)).ack(&[0..6]);
    assert_eq!(path.out.acked.len(), 6);
    path.at(ms(30)).ack(&[0..6]);
    assert!(path.out.acked.is_empty() && path.out.summary.is_none());
    path.ack(&[0..3]);
    assert!(path.out.acked.is_empty() && path.out.rtt_sample.is_none());
    assert_eq!(path.space.largest_acked(), Some(5));
    assert_eq!(path.recovery.rtt.latest(), ms(20));
}

#[test]
fn rtt_samples_need_the_largest_and_an_ack_eliciting_packet() {
    // RFC 9002 section 5.1
    let mut path = TestPath::new();
    path.send_with(|packet| packet.ack_eliciting = false);
    assert_eq!(path.at(ms(10)).ack(&[0..1]).rtt_sample, None);
    path.send_many(2);
    assert_eq!(path.at(ms(30)).ack(&[2..3]).rtt_sample, Some(ms(20)));
    assert_eq!(path.at(ms(40)).ack(&[0..3]).rtt_sample, None);
}

#[test]
fn ack_delay_is_limited_once_the_handshake_is_confirmed() {
    // RFC 9002 section 5.3
    let smoothed_after_delay = |space, confirmed, exponent, delay| {
        let mut path = TestPath::with(TransportConfig::without_policies(), space);
        path.settle_rtt(ms(100));
        path.cx.peer_max_ack_delay = ms(25);
        path.cx.handshake_confirmed = confirmed;
        path.cx.peer_ack_delay_exponent = exponent;
        let number = path.send();
        path.at(ms(180))
            .ack_with(&[number..number + 1], delay, None)
            .unwrap();
        path.recovery.rtt.smoothed()
    };
    let data = SpaceId::Data(PathId(1));
    // Samples of 180, minus nothing, minus 8, minus 25 at most, minus 80.
    assert_eq!(smoothed_after_delay(data, true, 3, 0), ms(110));
    assert_eq!(smoothed_after_delay(data, true, 3, 1000), ms(109));
    assert_eq!(
        smoothed_after_delay(data, true, 3, 10_000),
        Duration::from_micros(106_875)
    );
    assert_eq!(
        smoothed_after_delay(data, true, 20, u64::MAX >> 2),
        Duration::from_micros(106_875)
    );
    assert_eq!(smoothed_after_delay(data, false, 4, 5000), ms(100));
    assert_eq!(
        smoothed_after_delay(SpaceId::Handshake, false, 3, 10_000),
        ms(100)
    );
    assert_eq!(
        smoothed_after_delay(SpaceId::Initial, false, 3, 10_000),
        ms(110)
    );
}

#[test]
fn exponents_beyond_the_limit_do_no_harm() {
    let mut path = TestPath::new();
    path.send();
    path.cx.peer_ack_delay_exponent = 255;
    path.at(ms(10))
        .ack_with(&[0..1], u64::MAX >> 2, None)
        .unwrap();
    assert_eq!(path.recovery.rtt.latest(), ms(10));
}

#[test]
fn a_thousand_ranges() {
    let mut path = TestPath::new();
    path.send_many(4000);
    let ranges: Vec<_> = (0..1000).map(|n| n * 4 + 1..n * 4 + 3).collect();
    path.at(ms(50)).ack(&ranges);
    assert_eq!(path.out.acked.len(), 2000);
    // The largest is 3998: packets three or more below are lost.
    assert_eq!(path.out.lost.len(), 1998);
    let open: Vec<_> = path.space.sent.iter().map(|(number, _)| number).collect();
    assert_eq!(open, [3996, 3999]);
}
