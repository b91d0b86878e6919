#![expect(
    clippy::single_range_in_vec_init,
    reason = "acknowledgements are lists of ranges, often of one"
)]

use super::*;
use crate::config::TransportOptions;
use crate::congestion::CongestionKind;
use crate::recovery::testing::{TestPath, ms};

/// Sends packets marked as the state wants; returns how many were marked.
fn send(path: &mut TestPath, count: u64) -> u64 {
    let mut marked = 0;
    for _ in 0..count {
        let mark = path.recovery.ecn.codepoint().is_some();
        path.send_with(|packet| packet.ecn_marked = mark);
        marked += u64::from(mark);
    }
    marked
}

fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
    Some(EcnCounts { ect0, ect1, ce })
}

#[test]
fn ten_packets_test_the_path() {
    let mut path = TestPath::new();
    assert_eq!(send(&mut path, 15), 10);
    path.at(ms(10))
        .ack_with(&[0..4], 0, counts(4, 0, 0))
        .unwrap();
    assert!(path.recovery.ecn.is_capable());
    assert_eq!(send(&mut path, 5), 5);
    // Counts of lost acknowledgements come with the next one.
    path.at(ms(20))
        .ack_with(&[0..20], 0, counts(15, 0, 0))
        .unwrap();
    assert!(path.recovery.ecn.is_capable());
}

#[test]
fn marking_can_be_turned_off() {
    let mut options = TransportOptions::without_policies();
    options.ecn = false;
    let mut path = TestPath::with(options.build().unwrap(), crate::ids::SpaceId::Initial);
    assert_eq!(send(&mut path, 3), 0);
}

#[test]
fn bad_counts_end_marking() {
    // RFC 9000 section 13.4.2.1: none, too few, too many, ECT(1), shrinking
    for bad in [
        None,
        counts(3, 0, 0),
        counts(11, 0, 0),
        counts(5, 1, 0),
        counts(0, 0, 8),
    ] {
        let mut path = TestPath::new();
        send(&mut path, 10);
        path.at(ms(10))
            .ack_with(&[0..2], 0, counts(2, 0, 0))
            .unwrap();
        assert!(path.recovery.ecn.is_capable());
        path.at(ms(11)).ack_with(&[0..5], 0, bad).unwrap();
        assert_eq!(path.recovery.ecn.codepoint(), None, "{bad:?}");
        assert!(path.out.congestion.is_empty());
    }
}

#[test]
fn reordered_acknowledgements_are_not_checked() {
    let mut path = TestPath::new();
    send(&mut path, 10);
    path.at(ms(10))
        .ack_with(&[0..3, 5..6], 0, counts(4, 0, 0))
        .unwrap();
    path.at(ms(11))
        .ack_with(&[0..4], 0, counts(3, 0, 0))
        .unwrap();
    path.at(ms(11)).ack_with(&[0..5], 0, None).unwrap();
    assert!(path.recovery.ecn.is_capable());
}

#[test]
fn congestion_experienced_is_reported_once() {
    let mut path = TestPath::new();
    send(&mut path, 10);
    path.at(ms(10))
        .ack_with(&[0..4], 0, counts(3, 0, 1))
        .unwrap();
    assert_eq!(path.out.kinds(), [CongestionKind::Ecn]);
    assert_eq!(
        (
            path.out.congestion[0].largest_lost,
            path.out.congestion[0].lost_bytes
        ),
        (3, 0)
    );
    path.at(ms(11))
        .ack_with(&[0..6], 0, counts(5, 0, 1))
        .unwrap();
    assert!(path.out.congestion.is_empty());
    path.at(ms(12))
        .ack_with(&[0..8], 0, counts(5, 0, 3))
        .unwrap();
    assert_eq!(path.out.kinds(), [CongestionKind::Ecn]);
}

#[test]
fn scalable_senders_mark_ect1_and_learn_how_many_packets_were_marked() {
    let mut options = TransportOptions::without_policies();
    let unused = || unreachable!("nothing is controlled");
    options.controller = crate::congestion::scalable("unused", unused);
    let mut path = TestPath::with(options.build().unwrap(), crate::ids::SpaceId::Initial);
    assert_eq!(path.recovery.ecn.codepoint(), Some(EcnCodepoint::Ect1));
    assert_eq!(send(&mut path, 10), 10);
    path.at(ms(10))
        .ack_with(&[0..4], 0, counts(0, 3, 1))
        .unwrap();
    let marks = |path: &TestPath| path.out.summary.map(|ack| (ack.packets, ack.marked));
    assert_eq!(marks(&path), Some((4, 1)));
    assert_eq!(path.out.kinds(), [CongestionKind::Ecn]);
    path.at(ms(11))
        .ack_with(&[0..6], 0, counts(0, 3, 3))
        .unwrap();
    assert_eq!(marks(&path), Some((2, 2)));
    path.at(ms(12))
        .ack_with(&[0..7], 0, counts(0, 4, 3))
        .unwrap();
    assert_eq!(marks(&path), Some((1, 0)));
    // RFC 9331 section 4.1: nobody turns one mark into the other.
    path.at(ms(13))
        .ack_with(&[0..8], 0, counts(1, 4, 3))
        .unwrap();
    assert_eq!(path.recovery.ecn.validation, Validation::Failed);
}

#[test]
fn losing_all_marked_packets_ends_marking() {
    // RFC 9000 A.4
    let mut path = TestPath::new();
    assert_eq!(send(&mut path, 14), 10);
    path.at(ms(10)).ack_with(&[13..14], 0, None).unwrap();
    assert_eq!(path.recovery.ecn.validation, Validation::Failed);
}

#[test]
fn probe_timeouts_suspend_marking() {
    let mut path = TestPath::new();
    send(&mut path, 1);
    for _ in 0..2 {
        path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    }
    assert_eq!(send(&mut path, 1), 0);
    path.at(ms(10))
        .ack_with(&[0..2], 0, counts(1, 0, 0))
        .unwrap();
    assert!(path.recovery.ecn.is_capable());
}

#[test]
fn spaces_have_their_own_counts() {
    // MP-056
    let mut path = TestPath::new();
    send(&mut path, 4);
    path.at(ms(10))
        .ack_with(&[0..4], 0, counts(4, 0, 0))
        .unwrap();
    path.space = PacketNumberSpace::new(crate::ids::SpaceId::Handshake);
    send(&mut path, 2);
    path.at(ms(20))
        .ack_with(&[0..2], 0, counts(2, 0, 0))
        .unwrap();
    assert!(path.recovery.ecn.is_capable());
}

#[test]
fn one_marked_packet_that_arrives_keeps_marking_possible() {
    // RFC 9000 A.4: only the loss of all of them ends it
    let mut path = TestPath::new();
    assert_eq!(send(&mut path, 10), 10);
    for _ in 0..9 {
        path.recovery.ecn.on_marked_packet_lost();
        assert_ne!(path.recovery.ecn.validation, Validation::Failed);
    }
    path.recovery.ecn.on_marked_packet_lost();
    assert_eq!(path.recovery.ecn.validation, Validation::Failed);
}

#[test]
fn losses_during_the_test_count() {
    let mut path = TestPath::new();
    send(&mut path, 4);
    for _ in 0..4 {
        path.recovery.ecn.on_marked_packet_lost();
    }
    send(&mut path, 6);
    for _ in 0..5 {
        path.recovery.ecn.on_marked_packet_lost();
    }
    assert_eq!(path.recovery.ecn.codepoint(), None);
    assert_ne!(path.recovery.ecn.validation, Validation::Failed);
    path.recovery.ecn.on_marked_packet_lost();
    assert_eq!(path.recovery.ecn.validation, Validation::Failed);
}

#[test]
fn one_probe_timeout_does_not_suspend_marking() {
    let mut path = TestPath::new();
    send(&mut path, 1);
    path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    assert_eq!(send(&mut path, 1), 1);
}

#[test]
fn probe_timeouts_before_any_marked_packet_say_nothing() {
    // Probe timeouts of a slow handshake, whose packets are not marked.
    let mut path = TestPath::new();
    path.send();
    for _ in 0..3 {
        path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    }
    assert_eq!(send(&mut path, 3), 3);
}
