use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::packet::writer::written;

/// Multipath negotiated: we take `ours` concurrent paths, the peer announced `peer`.
fn negotiated(ours: u32, peer: u32) -> PathIds {
    let mut ids = PathIds::new(ours);
    assert!(ids.set_peer_parameter(Some(PathId(peer))));
    ids
}

fn unused(ids: &PathIds) -> Vec<u32> {
    ids.unused().map(|path| path.0).collect()
}

fn frames(ids: &mut PathIds) -> Vec<Frame> {
    written(100, |w| ids.write_frames(w)).0
}

fn breaks<T>(fault: Fault, result: Result<T, TransportError>) -> bool {
    result.is_err_and(|error| error.fault == fault)
}

#[test]
fn mp_001_both_sides_must_offer_multipath() {
    assert!(!PathIds::new(4).set_peer_parameter(None));
    let mut off = PathIds::new(0);
    assert_eq!(off.initial_max_path_id(), None);
    assert!(!off.set_peer_parameter(Some(PathId(3))));
    assert_eq!(off.limit(), PathId::ZERO);
    assert_eq!(unused(&off), []);
    assert_eq!(off.check(PathId::ZERO), Ok(()));
}

#[test]
fn mp_013_the_parameter_counts_from_zero() {
    assert_eq!(PathIds::new(1).initial_max_path_id(), Some(PathId(0)));
    assert_eq!(PathIds::new(8).initial_max_path_id(), Some(PathId(7)));
    assert_eq!(
        PathIds::new(u32::MAX).initial_max_path_id(),
        Some(PathId(u32::MAX - 1))
    );
}

#[test]
fn mp_015_the_lower_limit_counts() {
    assert_eq!(negotiated(4, 9).limit(), PathId(3));
    assert_eq!(negotiated(4, 2).limit(), PathId(2));
    assert!(!negotiated(4, 2).open(PathId(3)));
    assert!(!negotiated(4, 9).open(PathId(4)));
}

#[test]
fn mp_050_frames_may_not_name_ids_above_our_limit() {
    let ids = negotiated(4, 1);
    assert_eq!(ids.check(PathId(3)), Ok(()));
    assert!(breaks(Fault::PathIdBeyondLimit, ids.check(PathId(4))));
    assert!(breaks(
        Fault::PathIdBeyondLimit,
        ids.check(PathId(u32::MAX))
    ));
}

#[test]
fn mp_099_the_limit_counts_from_the_moment_it_is_sent() {
    let mut ids = negotiated(2, 9);
    assert!(ids.open(PathId(1)));
    ids.close(PathId(1));
    assert!(
        breaks(Fault::PathIdBeyondLimit, ids.check(PathId(2))),
        "not sent yet"
    );
    assert_eq!(unused(&ids), []);
    assert_eq!(ids.issuable().collect::<Vec<_>>(), [PathId(2)]);
    assert_eq!(frames(&mut ids), [Frame::MaxPathId(PathId(2))]);
    assert_eq!(ids.check(PathId(2)), Ok(()), "sent, not acknowledged");
}

#[test]
fn mp_093_mp_094_unused_ids_come_lowest_first_holes_included() {
    let mut ids = negotiated(6, 9);
    assert_eq!(unused(&ids), [1, 2, 3, 4, 5]);
    assert!(ids.open(PathId(4)));
    assert!(ids.open(PathId(2)));
    assert_eq!(unused(&ids), [1, 3, 5]);
}

#[test]
fn mp_096_no_id_above_the_peers_limit_is_offered_for_use() {
    let mut ids = negotiated(6, 2);
    assert_eq!(unused(&ids), [1, 2]);
    assert!(ids.open(PathId(1)) && ids.open(PathId(2)));
    assert_eq!(unused(&ids), []);
    assert_eq!(ids.on_max_path_id(PathId(4)), Ok(true));
    assert_eq!(unused(&ids), [3, 4]);
    assert_eq!(ids.issuable().collect::<Vec<_>>(), [PathId(3), PathId(4)]);
}

#[test]
fn mp_037_an_id_is_never_used_twice() {
    let mut ids = negotiated(3, 9);
    assert!(ids.open(PathId(1)));
    assert!(!ids.open(PathId(1)));
    ids.close(PathId(1));
    assert!(!ids.open(PathId(1)));
    // MP-051: frames that name it are ignored from now on.
    assert!(ids.is_used(PathId(1)) && ids.is_closed(PathId(1)));
    assert!(!ids.open(PathId::ZERO));
}

#[test]
fn mp_125_an_id_can_be_spent_without_being_opened() {
    let mut ids = negotiated(3, 1);
    // Above the peer's own limit, below ours: the peer may still abandon it.
    ids.abandon(PathId(2));
    assert_eq!(ids.on_max_path_id(PathId(2)), Ok(true));
    assert_eq!(unused(&ids), [1]);
    assert!(!ids.open(PathId(2)) && !ids.is_closed(PathId(2)));
    ids.close(PathId(2));
    assert_eq!(frames(&mut ids), [Frame::MaxPathId(PathId(3))]);
}

#[test]
fn mp_131_closing_paths_raises_our_limit() {
    let mut ids = negotiated(2, 100);
    assert!(ids.open(PathId(1)));
    assert!(!ids.wants_to_send());
    ids.close(PathId(1));
    ids.close(PathId(1));
    assert_eq!(frames(&mut ids), [Frame::MaxPathId(PathId(2))]);
    ids.close(PathId::ZERO);
    assert_eq!(frames(&mut ids), [Frame::MaxPathId(PathId(3))]);
    // Only the newest one is repeated.
    ids.on_delivery(PathLimitDelivery::MaxPathId(PathId(2)), Fate::Lost);
    assert!(!ids.wants_to_send());
    ids.on_delivery(PathLimitDelivery::MaxPathId(PathId(3)), Fate::Lost);
    assert_eq!(frames(&mut ids), [Frame::MaxPathId(PathId(3))]);
    ids.on_delivery(PathLimitDelivery::MaxPathId(PathId(3)), Fate::Acked);
    ids.on_delivery(PathLimitDelivery::MaxPathId(PathId(3)), Fate::Lost);
    assert!(!ids.wants_to_send());
}

#[test]
fn mp_140_the_peers_limit_may_not_fall_below_its_parameter() {
    let mut ids = negotiated(8, 3);
    assert!(breaks(
        Fault::MaxPathIdBelowInitial,
        ids.on_max_path_id(PathId(2))
    ));
    assert_eq!(ids.on_max_path_id(PathId(3)), Ok(false));
}

#[test]
fn mp_140_our_limit_ends_with_the_32_bits() {
    let mut ids = negotiated(u32::MAX, u32::MAX);
    for path in 1..5 {
        ids.close(PathId(path));
    }
    assert_eq!(frames(&mut ids), [Frame::MaxPathId(PathId(u32::MAX))]);
    assert_eq!(ids.limit(), PathId(u32::MAX));
    assert_eq!(ids.check(PathId(u32::MAX)), Ok(()));
    assert!(ids.open(PathId(u32::MAX)));
    assert_eq!(ids.unused().next(), Some(PathId(5)));
    ids.close(PathId(5));
    assert!(!ids.wants_to_send(), "there is no higher one to announce");
}

#[test]
fn mp_141_a_limit_that_does_not_rise_is_ignored() {
    let mut ids = negotiated(8, 3);
    assert_eq!(ids.on_max_path_id(PathId(5)), Ok(true));
    assert_eq!(ids.on_max_path_id(PathId(4)), Ok(false));
    assert_eq!(ids.on_max_path_id(PathId(5)), Ok(false));
    assert_eq!(ids.limit(), PathId(5));
}

#[test]
fn mp_097_we_say_once_that_the_peers_limit_binds() {
    let mut ids = negotiated(4, 1);
    ids.request();
    assert!(!ids.wants_to_send(), "path 1 is unused");
    assert!(ids.open(PathId(1)));
    ids.request();
    assert_eq!(frames(&mut ids), [Frame::PathsBlocked(PathId(1))]);
    ids.on_delivery(PathLimitDelivery::PathsBlocked(PathId(1)), Fate::Lost);
    assert_eq!(frames(&mut ids), [Frame::PathsBlocked(PathId(1))]);
    ids.on_delivery(PathLimitDelivery::PathsBlocked(PathId(1)), Fate::Acked);
    ids.request();
    assert!(!ids.wants_to_send(), "MP-144: no answer means no");
    assert_eq!(ids.on_max_path_id(PathId(2)), Ok(true));
    ids.on_delivery(PathLimitDelivery::PathsBlocked(PathId(1)), Fate::Lost);
    assert!(!ids.wants_to_send(), "no longer blocked");
    assert!(ids.open(PathId(2)));
    ids.request();
    assert_eq!(frames(&mut ids), [Frame::PathsBlocked(PathId(2))]);
}

/// Whether the frame still waits, or was sent and lost: the peer has answered already.
#[test]
fn mp_097_nothing_is_said_of_a_limit_that_has_risen_since() {
    for is_sent in [false, true] {
        let mut ids = negotiated(4, 1);
        assert!(ids.open(PathId(1)));
        ids.request();
        assert!(ids.wants_to_send());
        if is_sent {
            assert_eq!(frames(&mut ids), [Frame::PathsBlocked(PathId(1))]);
        }
        assert_eq!(ids.on_max_path_id(PathId(2)), Ok(true));
        if is_sent {
            ids.on_delivery(PathLimitDelivery::PathsBlocked(PathId(1)), Fate::Lost);
        }
        assert!(!ids.wants_to_send(), "sent: {is_sent}");
    }
}

#[test]
fn mp_097_nothing_is_said_when_our_own_limit_binds() {
    let mut ids = negotiated(2, 9);
    assert!(ids.open(PathId(1)));
    ids.request();
    assert!(!ids.wants_to_send());
}

#[test]
fn mp_097_paths_blocked_is_not_sent_if_both_limits_bind() {
    let mut ids = negotiated(2, 1);
    assert!(ids.open(PathId(1)));
    ids.request();
    assert!(!ids.wants_to_send(), "a higher limit would not help");
}

#[test]
fn mp_131_no_limit_is_announced_without_multipath() {
    let mut ids = PathIds::new(4);
    assert!(!ids.set_peer_parameter(None));
    ids.close(PathId::ZERO);
    assert!(!ids.wants_to_send());
    assert_eq!(frames(&mut ids), []);
}

#[derive(Debug, Clone)]
enum Op {
    OpenLowest,
    Open(u32),
    Close(u32),
    MaxPathId(u32),
    Write(usize),
    Lose(prop::sample::Index),
    Ack(prop::sample::Index),
    Request,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(Op::OpenLowest),
        (0..40u32).prop_map(Op::Open),
        (0..40u32).prop_map(Op::Close),
        (5..40u32).prop_map(Op::MaxPathId),
        (0..20usize).prop_map(Op::Write),
        any::<prop::sample::Index>().prop_map(Op::Lose),
        any::<prop::sample::Index>().prop_map(Op::Ack),
        Just(Op::Request),
    ]
}

proptest! {
    #[test]
    fn ids_follow_the_model(ours in 1..7u32, ops in prop::collection::vec(op(), 1..150)) {
        let mut ids = negotiated(ours, 5);
        let (mut used, mut closed) = (BTreeSet::from([0]), BTreeSet::new());
        let (mut announced, mut peer) = (ours - 1, 5);
        let mut sent = Vec::new();
        for op in ops {
            match op {
                Op::OpenLowest => {
                    let lowest = (0..=announced.min(peer)).find(|id| !used.contains(id));
                    prop_assert_eq!(ids.unused().next().map(|path| path.0), lowest);
                    if let Some(id) = lowest {
                        prop_assert!(ids.open(PathId(id)));
                        used.insert(id);
                    }
                }
                Op::Open(id) => {
                    let allowed = id <= announced.min(peer) && !used.contains(&id);
                    prop_assert_eq!(ids.open(PathId(id)), allowed);
                    if allowed {
                        used.insert(id);
                    }
                }
                Op::Close(id) => {
                    prop_assert_eq!(ids.check(PathId(id)).is_ok(), id <= announced);
                    if id <= announced {
                        ids.close(PathId(id));
                        used.insert(id);
                        closed.insert(id);
                    }
                }
                Op::MaxPathId(id) => {
                    prop_assert_eq!(ids.on_max_path_id(PathId(id)), Ok(id > peer));
                    peer = peer.max(id);
                }
                Op::Write(room) => {
                    let (frames, deliveries) = written(room, |w| ids.write_frames(w));
                    for frame in frames {
                        match frame {
                            Frame::MaxPathId(PathId(id)) => {
                                prop_assert!(id >= announced);
                                announced = id;
                            }
                            Frame::PathsBlocked(PathId(id)) => prop_assert!(id <= peer),
                            other => return Err(TestCaseError::fail(format!("{other:?}"))),
                        }
                    }
                    sent.extend(deliveries);
                }
                Op::Lose(index) if !sent.is_empty() => {
                    ids.on_delivery(index.get(&sent).of_path_limit(), Fate::Lost);
                }
                Op::Ack(index) if !sent.is_empty() => {
                    ids.on_delivery(index.get(&sent).of_path_limit(), Fate::Acked);
                }
                Op::Lose(_) | Op::Ack(_) => {}
                Op::Request => ids.request(),
            }
            prop_assert_eq!(ids.limit().0, announced.min(peer));
            // Never more of them unused or open than configured: the bound on memory.
            prop_assert!((announced as usize + 1) - closed.len() <= ours as usize);
            let unused: Vec<_> = (0..=announced.min(peer)).filter(|id| !used.contains(id)).collect();
            prop_assert_eq!(ids.unused().map(|path| path.0).collect::<Vec<_>>(), unused);
            prop_assert!(ids.used.len() <= ours as usize + 1);
            prop_assert!(ids.closed.len() <= ours as usize + 1);
        }
    }
}
