use proptest::prelude::*;

use RouteChange::{ResetTokenAdded as Added, ResetTokenRemoved as Removed};

use super::*;
use crate::cid::testing::User;
use crate::event::RouteChange;
use crate::packet::writer::written;
use crate::wire::frame::{Frame, PathCidsBlocked, PathRetireConnectionId};

const PATH: PathId = PathId(2);
const LIMIT: u64 = 3;

fn cid(n: u64) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes())
}

fn token(n: u64) -> [u8; 16] {
    u128::from(n).to_be_bytes()
}

fn frame(sequence: u64, retire_prior_to: u64) -> NewConnectionId {
    NewConnectionId {
        sequence_number: sequence,
        retire_prior_to,
        connection_id: cid(sequence),
        stateless_reset_token: token(sequence),
    }
}

fn retire(sequence: u64) -> Frame {
    Frame::PathRetireConnectionId(PathRetireConnectionId {
        path_id: PATH,
        sequence_number: sequence,
    })
}

/// Path 0 with the connection ID of the handshake.
fn of_handshake(cid: ConnectionId) -> User {
    let mut user = User::new(PathId::ZERO, LIMIT);
    user.is_open = true;
    user.own = Some(user.cids.of_handshake(cid));
    user
}

/// An open path with sequence numbers `0..count`, 0 in use.
fn open(count: u64) -> User {
    let mut user = User::new(PATH, LIMIT);
    for sequence in 0..count {
        assert!(user.receive(&frame(sequence, 0)).unwrap().is_empty());
    }
    assert_eq!(user.current(), None);
    assert_eq!(user.rotate().unwrap(), [Added(token(0))]);
    user
}

fn fault<T: std::fmt::Debug>(result: Result<T, TransportError>) -> Fault {
    result.unwrap_err().fault
}

#[test]
fn mp_098_rotation_takes_the_next_of_the_same_path_and_retires_the_old() {
    let mut user = open(3);
    assert_eq!(user.current(), Some(cid(0)));
    let changes = user.rotate().unwrap();
    assert_eq!(changes[..], [Removed(token(0)), Added(token(1))]);
    assert_eq!(user.current(), Some(cid(1)));
    assert_eq!(user.frames(), [retire(0)]);
    assert!(user.rotate().is_some());
    assert!(!user.cids.has_unused());
    assert!(user.rotate().is_none());
    assert_eq!(user.current(), Some(cid(2)));
}

#[test]
fn mp_108_only_the_token_of_the_connection_id_in_use_counts() {
    let mut user = of_handshake(cid(0));
    let own = user.own.as_mut().unwrap();
    own.set_handshake_token(token(0), &mut user.outbox);
    assert_eq!(user.told(), [Added(token(0))]);
    assert!(user.receive(&frame(1, 0)).unwrap().is_empty());
    let changes = user.receive(&frame(2, 2)).unwrap();
    assert_eq!(changes[..], [Removed(token(0)), Added(token(2))]);
}

#[test]
fn mp_091_path_0_retires_with_the_plain_frame_without_multipath() {
    let mut user = of_handshake(cid(0));
    user.cids.add_preferred(cid(1), token(1));
    assert!(user.rotate().is_some());
    let (frames, deliveries) = written(1200, |w| user.cids.write_frames(w, false));
    assert_eq!(frames, [Frame::RetireConnectionId(0)]);
    let delivery = PathDelivery::RetireConnectionId {
        path: PathId::ZERO,
        sequence: 0,
    };
    assert_eq!(deliveries[..], [delivery.into()]);
}

#[test]
fn the_handshake_connection_id_can_be_replaced() {
    let mut user = of_handshake(cid(70));
    user.own = Some(user.cids.of_handshake(cid(80)));
    assert_eq!(user.current(), Some(cid(80)));
    assert!(user.knows(&cid(80)) && !user.knows(&cid(70)));
    assert!(!user.cids.wants_to_send());
}

#[test]
fn mp_103_retire_prior_to_moves_to_a_newer_connection_id() {
    let mut user = open(3);
    let changes = user.receive(&frame(3, 2)).unwrap();
    assert_eq!(changes[..], [Removed(token(0)), Added(token(2))]);
    let mut retired = user.frames();
    retired.sort_by_key(|f| format!("{f:?}"));
    assert_eq!(retired, [retire(0), retire(1)]);
    assert!(user.cids.has_unused());
}

#[test]
fn mp_103_a_path_left_without_connection_id_takes_the_next_that_arrives() {
    let mut user = open(1);
    let _ = user.receive(&frame(3, 0)).unwrap();
    assert!(user.rotate().is_some());
    assert_eq!(user.current(), Some(cid(3)));
    let _ = user.receive(&frame(1, 0)).unwrap();
    assert!(user.rotate().is_some());
    // 3 was retired before; repeated with a higher bound it takes 1 away, too.
    assert_eq!(user.receive(&frame(3, 2)).unwrap()[..], [Removed(token(1))]);
    assert_eq!(user.current(), None);
    assert_eq!(user.receive(&frame(4, 2)).unwrap()[..], [Added(token(4))]);
    assert_eq!(user.current(), Some(cid(4)));
}

#[test]
fn mp_104_a_late_connection_id_is_retired_at_once() {
    let mut user = open(1);
    let _ = user.receive(&frame(5, 4)).unwrap();
    assert_eq!(user.frames(), [retire(0)]);
    assert!(user.receive(&frame(2, 0)).unwrap().is_empty());
    assert_eq!(user.frames(), [retire(2)]);
    assert!(!user.cids.has_unused());
    assert_eq!(user.current(), Some(cid(5)));
}

/// Each makes us send a frame, and its sender may go on like that without end.
#[test]
fn late_connection_ids_are_bounded_even_if_their_retirement_is_acknowledged() {
    let mut user = open(1);
    let _ = user.receive(&frame(20_000, 20_000)).unwrap();
    let mut accepted = 0;
    let error = loop {
        match user.receive(&frame(1 + accepted % 4, 0)) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        let (_, deliveries) = written(1200, |w| user.cids.write_frames(w, true));
        for delivery in deliveries {
            user.cids.on_delivery(delivery.of_path(), Fate::Acked);
        }
        assert!(accepted < 1000);
    };
    assert_eq!(error.fault, Fault::TooManyRetirements);
    assert_eq!(accepted, u64::from(MIN_LATE));
}

/// A peer that replaces its connection IDs again and again may have a few late IDs each time.
#[test]
fn late_connection_ids_are_counted_anew_after_each_replacement() {
    let mut user = open(1);
    for bound in (10..5000).step_by(10) {
        let _ = user.receive(&frame(bound, bound)).unwrap();
        for late in bound - 3..bound {
            assert!(user.receive(&frame(late, 0)).is_ok());
        }
        let (_, deliveries) = written(1200, |w| user.cids.write_frames(w, true));
        for delivery in deliveries {
            user.cids.on_delivery(delivery.of_path(), Fate::Acked);
        }
    }
}

#[test]
fn mp_104_bad_fields_are_frame_encoding_errors() {
    let mut user = open(1);
    let above = user.receive(&frame(1, 2));
    assert_eq!(fault(above), Fault::RetirePriorToTooLarge);
    let mut empty = frame(1, 0);
    empty.connection_id = ConnectionId::new(&[]);
    let empty = user.receive(&empty);
    assert_eq!(fault(empty), Fault::ConnectionIdLength);
}

#[test]
fn a_peer_with_a_zero_length_connection_id_may_not_issue_others() {
    let mut user = of_handshake(ConnectionId::new(&[]));
    let result = user.receive(&frame(1, 0));
    assert_eq!(fault(result), Fault::ConnectionIdNotWanted);
}

#[test]
fn mp_095_contradicting_frames_are_protocol_violations() {
    let original = frame(1, 0);
    let other_sequence = NewConnectionId {
        sequence_number: 2,
        ..original
    };
    let other_token = NewConnectionId {
        stateless_reset_token: token(9),
        ..original
    };
    let other_cid = NewConnectionId {
        connection_id: cid(9),
        ..original
    };
    for contradiction in [other_sequence, other_token, other_cid] {
        let mut user = open(2);
        // A plain repetition is fine.
        assert!(user.receive(&original).unwrap().is_empty());
        let result = user.receive(&contradiction);
        assert_eq!(fault(result), Fault::ConnectionIdConflict);
    }
}

#[test]
fn mp_095_a_path_knows_its_own_connection_ids() {
    let user = open(2);
    assert!(user.knows(&cid(0)) && user.knows(&cid(1)));
    assert!(!user.knows(&cid(2)));
}

#[test]
fn mp_105_too_many_active_connection_ids() {
    let mut user = open(3);
    // Repetitions do not count, and neither does an ID that retires another.
    let _ = user.receive(&frame(2, 0)).unwrap();
    let _ = user.receive(&frame(3, 1)).unwrap();
    let result = user.receive(&frame(4, 1));
    assert_eq!(fault(result), Fault::ConnectionIdsBeyondLimit);
}

#[test]
fn mp_107_retirements_the_peer_does_not_acknowledge_are_bounded() {
    let mut user = open(1);
    let mut accepted = 0;
    let error = loop {
        let next = accepted + 1;
        match user.receive(&frame(next, next)) {
            Ok(_) => accepted = next,
            Err(error) => break error,
        }
    };
    assert_eq!(error.fault, Fault::TooManyRetirements);
    // RFC 9000 section 5.1.2 asks for room for twice the limit.
    assert!((2 * LIMIT..100).contains(&accepted), "{accepted}");
}

#[test]
fn sequence_numbers_that_never_arrive_do_not_add_up() {
    let mut user = open(1);
    for next in (2..200).step_by(2) {
        let _ = user.receive(&frame(next, next)).unwrap();
        assert_eq!(user.current(), Some(cid(next)));
        let (_, deliveries) = written(1200, |w| user.cids.write_frames(w, true));
        for delivery in deliveries {
            user.cids.on_delivery(delivery.of_path(), Fate::Acked);
        }
    }
}

#[test]
fn mp_107_our_own_rotations_stop_before_the_bound() {
    let mut user = open(1);
    let mut next = 1;
    while user.receive(&frame(next, 0)).is_ok() && user.rotate().is_some() {
        next += 1;
        assert!(next < 100);
    }
    assert_eq!(user.cids.retirements(), MIN_RETIREMENTS);
    let _ = user.frames();
    user.cids.on_delivery(
        PathDelivery::RetireConnectionId {
            path: PATH,
            sequence: 0,
        },
        Fate::Acked,
    );
    assert!(user.rotate().is_some());
}

#[test]
fn lost_retirements_are_repeated_until_acknowledged() {
    let mut user = open(2);
    assert!(user.rotate().is_some());
    let (_, deliveries) = written(1200, |w| user.cids.write_frames(w, true));
    user.cids.on_delivery(deliveries[0].of_path(), Fate::Lost);
    assert!(user.cids.wants_to_send());
    assert_eq!(user.frames(), [retire(0)]);
    user.cids.on_delivery(deliveries[0].of_path(), Fate::Acked);
    user.cids.on_delivery(deliveries[0].of_path(), Fate::Lost);
    assert!(!user.cids.wants_to_send());
}

#[test]
fn after_the_last_sequence_number_nothing_is_asked_for() {
    let mut user = open(1);
    assert!(user.receive(&frame((1 << 62) - 1, (1 << 62) - 1)).is_ok());
    assert_eq!(user.current(), Some(cid((1 << 62) - 1)));
    user.cids.request();
    assert!((user.frames().iter()).all(|frame| matches!(frame, Frame::PathRetireConnectionId(_))));
}

#[test]
fn mp_101_an_empty_path_asks_once_per_state_of_affairs() {
    let mut user = User::new(PATH, LIMIT);
    user.cids.request();
    assert_eq!(
        user.frames(),
        [Frame::PathCidsBlocked(PathCidsBlocked {
            path_id: PATH,
            next_sequence_number: 0
        })]
    );
    let delivery = PathDelivery::CidsBlocked {
        path: PATH,
        next_sequence: 0,
    };
    user.cids.request();
    assert!(!user.cids.wants_to_send());
    user.cids.on_delivery(delivery, Fate::Lost);
    assert_eq!(
        user.frames(),
        [Frame::PathCidsBlocked(PathCidsBlocked {
            path_id: PATH,
            next_sequence_number: 0
        })]
    );
    // MP-144: no answer after an acknowledgement means no.
    user.cids.on_delivery(delivery, Fate::Acked);
    user.cids.on_delivery(delivery, Fate::Lost);
    user.cids.request();
    assert!(!user.cids.wants_to_send());
    let _ = user.receive(&frame(0, 0)).unwrap();
    user.cids.request();
    user.cids.on_delivery(delivery, Fate::Lost);
    assert!(!user.cids.wants_to_send(), "there is an unused one");
    assert!(user.rotate().is_some());
    user.cids.request();
    let (frames, deliveries) = written(1200, |w| user.cids.write_frames(w, true));
    assert_eq!(
        frames,
        [Frame::PathCidsBlocked(PathCidsBlocked {
            path_id: PATH,
            next_sequence_number: 1
        })]
    );
    let _ = user.receive(&frame(1, 0)).unwrap();
    user.cids.on_delivery(deliveries[0].of_path(), Fate::Lost);
    assert!(!user.cids.wants_to_send(), "no longer blocked");
}

#[test]
fn mp_121_abandoning_retires_everything_without_frames() {
    let mut user = open(3);
    assert!(user.rotate().is_some());
    user.cids.request();
    let used = user.own.take().into_iter();
    user.cids.abandon(used, &mut user.outbox);
    assert_eq!(user.told(), [Removed(token(1))]);
    assert_eq!(user.current(), None);
    assert!(!user.cids.wants_to_send() && !user.cids.has_unused());
    assert!(user.rotate().is_none());
    user.cids.request();
    assert!(!user.cids.wants_to_send());
    // MP-130: whatever still arrives is ignored, even nonsense.
    assert!(user.receive(&frame(7, 9)).unwrap().is_empty());
    assert_eq!(user.current(), None);
}

proptest! {
    /// Whatever arrives, nothing panics and memory stays bounded until the connection is closed.
    #[test]
    fn hostile_frames_are_refused_or_cost_little(
        frames in prop::collection::vec((0..60u64, 0..60u64, prop::bool::weighted(0.2)), 1..200),
    ) {
        let mut user = User::new(PATH, LIMIT);
        for (sequence, bound, rotate) in frames {
            if user.receive(&frame(sequence, bound.min(sequence))).is_err() {
                break;
            }
            if rotate {
                let _ = user.rotate();
            }
            prop_assert!(user.cids.unused.len() + usize::from(user.own.is_some()) <= LIMIT as usize);
            prop_assert!(user.cids.retirements() <= MIN_RETIREMENTS);
            prop_assert!(user.cids.gaps() <= LIMIT as usize + EXTRA_GAPS);
            prop_assert!(user.cids.unused.is_sorted_by_key(|known| known.sequence));
        }
    }
}

#[test]
fn mp_108_every_bit_of_a_reset_token_counts() {
    let mut user = open(3);
    assert!(user.rotate().is_some());
    let own = user.own.unwrap();
    assert!(own.is_reset_token(token(1)));
    for bit in 0..128 {
        let other = (1 ^ (1_u128 << bit)).to_be_bytes();
        assert!(!own.is_reset_token(other), "bit {bit}");
        // Two differences must not cancel out.
        let two = (1 ^ (1_u128 << bit) ^ (1_u128 << ((bit + 8) % 128))).to_be_bytes();
        assert!(!own.is_reset_token(two), "bit {bit}");
    }
    // That of a client's handshake has none.
    let unknown = of_handshake(cid(0)).own.unwrap();
    assert!(!unknown.is_reset_token([0; 16]));
}

#[test]
fn mp_103_retire_prior_to_reaches_every_connection_id_in_use() {
    for (bound, left) in [(1, None), (0, Some(cid(0)))] {
        let mut user = open(2);
        user.other = user.own.take();
        user.own = user.cids.take(&mut user.outbox);
        assert_eq!(user.told(), [Added(token(1))]);
        let told = user.receive(&frame(2, bound)).unwrap();
        assert_eq!(told.len(), usize::from(left.is_none()));
        assert_eq!(user.other.map(|other| other.cid), left);
        assert_eq!(user.current(), Some(cid(1)));
    }
}

/// MP-105: those in use count, wherever they are used.
#[test]
fn mp_105_connection_ids_in_use_count_towards_the_limit() {
    let mut user = open(3);
    user.other = user.cids.take(&mut user.outbox);
    let result = user.receive(&frame(3, 0));
    assert_eq!(fault(result), Fault::ConnectionIdsBeyondLimit);
}

#[test]
fn gaps_in_sequence_numbers_are_bounded() {
    let mut user = open(1);
    let most = LIMIT + EXTRA_GAPS as u64;
    // Every second number: a range of numbers seen each time.
    for gap in 1..most {
        let _ = user.receive(&frame(2 * gap, 0)).unwrap();
        let _ = user.rotate().unwrap();
    }
    let result = user.receive(&frame(2 * most, 0));
    assert_eq!(fault(result), Fault::SequenceGaps);
}
