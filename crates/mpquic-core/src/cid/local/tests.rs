use super::*;
use crate::packet::writer::written;

const PATH: PathId = PathId(3);

fn cid(n: u8) -> ConnectionId {
    ConnectionId::new(&[n; 8])
}

fn token(n: u8) -> [u8; 16] {
    [n; 16]
}

fn body(sequence: u64, n: u8) -> NewConnectionId {
    NewConnectionId {
        sequence_number: sequence,
        retire_prior_to: 0,
        connection_id: cid(n),
        stateless_reset_token: token(n),
    }
}

fn delivery(sequence: u64) -> PathDelivery {
    PathDelivery::NewConnectionId {
        path: PATH,
        sequence,
    }
}

fn with_two() -> LocalCids {
    let mut cids = LocalCids::new(PATH);
    assert_eq!(cids.issue(cid(1), token(1)), 0);
    assert_eq!(cids.issue(cid(2), token(2)), 1);
    cids
}

#[test]
fn mp_092_sequence_numbers_start_at_zero_on_every_path() {
    let mut cids = with_two();
    let (frames, deliveries) = written(1200, |w| cids.write_frames(w, true));
    assert_eq!(
        frames,
        [
            Frame::PathNewConnectionId(PathNewConnectionId {
                path_id: PATH,
                new_connection_id: body(0, 1)
            }),
            Frame::PathNewConnectionId(PathNewConnectionId {
                path_id: PATH,
                new_connection_id: body(1, 2)
            }),
        ]
    );
    assert_eq!(deliveries[..], [delivery(0).into(), delivery(1).into()]);
    assert!(!cids.wants_to_send());
}

#[test]
fn mp_091_path_0_uses_the_plain_frame_without_multipath_and_the_path_frame_with_it() {
    for multipath in [false, true] {
        let mut cids = LocalCids::new(PathId::ZERO);
        cids.add_announced(cid(9), token(9));
        assert!(!cids.wants_to_send());
        assert_eq!(cids.issue(cid(1), token(1)), 1);
        let (frames, _) = written(1200, |w| cids.write_frames(w, multipath));
        let expected = if multipath {
            Frame::PathNewConnectionId(PathNewConnectionId {
                path_id: PathId::ZERO,
                new_connection_id: body(1, 1),
            })
        } else {
            Frame::NewConnectionId(body(1, 1))
        };
        assert_eq!(frames, [expected]);
    }
}

#[test]
fn a_frame_that_does_not_fit_stays_queued() {
    let mut cids = with_two();
    let (frames, _) = written(40, |w| cids.write_frames(w, true));
    assert_eq!(frames.len(), 1);
    assert!(cids.wants_to_send());
    let (frames, _) = written(40, |w| cids.write_frames(w, true));
    assert_eq!(
        frames,
        [Frame::PathNewConnectionId(PathNewConnectionId {
            path_id: PATH,
            new_connection_id: body(1, 2)
        })]
    );
    assert!(!cids.wants_to_send());
}

#[test]
fn lost_frames_are_repeated_with_the_same_sequence_number_until_acknowledged() {
    let mut cids = with_two();
    let _ = written(1200, |w| cids.write_frames(w, true));
    cids.on_delivery(delivery(1), Fate::Acked);
    cids.on_delivery(delivery(0), Fate::Lost);
    cids.on_delivery(delivery(1), Fate::Lost);
    let (frames, _) = written(1200, |w| cids.write_frames(w, true));
    assert_eq!(
        frames,
        [Frame::PathNewConnectionId(PathNewConnectionId {
            path_id: PATH,
            new_connection_id: body(0, 1)
        })]
    );
    // Lost, then acknowledged after all.
    cids.on_delivery(delivery(0), Fate::Lost);
    cids.on_delivery(delivery(0), Fate::Acked);
    assert_eq!(written(1200, |w| cids.write_frames(w, true)).0, []);
    assert!(!cids.wants_to_send());
}

#[test]
fn mp_106_a_sequence_number_never_issued_is_a_protocol_violation() {
    let mut cids = with_two();
    let error = cids.on_retire(2, &cid(1)).unwrap_err();
    assert_eq!(error.fault, Fault::RetiredNeverIssued);
    assert!(LocalCids::new(PATH).on_retire(0, &cid(1)).is_err());
}

#[test]
fn mp_106_a_packet_may_not_retire_its_own_destination() {
    let mut cids = with_two();
    let error = cids.on_retire(0, &cid(1)).unwrap_err();
    assert_eq!(error.fault, Fault::RetiredItself);
    assert_eq!(cids.on_retire(0, &cid(2)), Ok(Some(cid(1))));
    assert_eq!(cids.on_retire(0, &cid(2)), Ok(None));
}

#[test]
fn mp_100_retired_connection_ids_are_replaced_while_the_path_is_open() {
    let mut cids = with_two();
    assert_eq!(cids.wanted(2), 0);
    assert_eq!(cids.wanted(3), 1);
    assert_eq!(cids.wanted(u64::MAX), 6);
    let _ = cids.on_retire(0, &cid(2)).unwrap();
    assert_eq!(cids.wanted(2), 1);
    cids.abandon();
    assert_eq!(cids.wanted(2), 0);
}

#[test]
fn mp_102_retiring_every_connection_id_leaves_the_path_able_to_issue() {
    let mut cids = with_two();
    let _ = cids.on_retire(0, &cid(7)).unwrap();
    let _ = cids.on_retire(1, &cid(7)).unwrap();
    assert_eq!(cids.active().len(), 0);
    assert_eq!(cids.issue(cid(3), token(3)), 2);
}

#[test]
fn mp_124_an_abandoned_path_keeps_its_connection_ids_until_drained() {
    let mut cids = with_two();
    cids.abandon();
    assert!(!cids.wants_to_send());
    assert_eq!(cids.active().copied().collect::<Vec<_>>(), [cid(1), cid(2)]);
    // MP-130
    cids.on_delivery(delivery(0), Fate::Lost);
    assert!(!cids.wants_to_send());
    assert_eq!(cids.drain().collect::<Vec<_>>(), [cid(1), cid(2)]);
    assert_eq!(cids.active().len(), 0);
}

#[test]
fn mp_143_cids_blocked_beyond_the_issued_ids_is_a_protocol_violation() {
    let cids = with_two();
    assert_eq!(cids.on_cids_blocked(1), Ok(()));
    assert_eq!(cids.on_cids_blocked(2), Ok(()));
    let error = cids.on_cids_blocked(3).unwrap_err();
    assert_eq!(error.fault, Fault::ConnectionIdsBlockedAhead);
}

/// RFC 9000 section 5.1.2 and 19.15.
#[test]
fn replaced_connection_ids_give_way_to_new_ones() {
    let mut cids = with_two();
    let (frames, _) = written(1200, |w| cids.write_frames(w, true));
    assert_eq!((frames.len(), cids.wanted(2)), (2, 0));
    cids.replace();
    assert_eq!(cids.wanted(2), 2, "the peer's limit counts those that stay");
    cids.issue(cid(3), token(3));
    cids.issue(cid(4), token(4));
    // One of the old IDs is lost: its frame is repeated, so the peer can retire the ID.
    cids.on_delivery(delivery(1), Fate::Lost);
    let (frames, _) = written(1200, |w| cids.write_frames(w, false));
    let retiring = |frame: &Frame| match frame {
        Frame::NewConnectionId(body) => (body.sequence_number, body.retire_prior_to),
        other => panic!("{other:?}"),
    };
    let retiring: Vec<_> = frames.iter().map(retiring).collect();
    assert_eq!(retiring, [(1, 1), (2, 2), (3, 2)]);
    assert_eq!(cids.wanted(2), 0);
    for sequence in 0..2 {
        assert!(cids.on_retire(sequence, &cid(3)).unwrap().is_some());
        assert_eq!(cids.wanted(2), 0, "what was replaced is not replaced again");
    }
    assert!(cids.active().eq([&cid(3), &cid(4)]));
}

#[test]
fn a_peer_that_retires_nothing_is_given_only_so_many() {
    let mut cids = with_two();
    for round in 0..100_u8 {
        cids.replace();
        for number in 0..cids.wanted(8) {
            cids.issue(ConnectionId::new(&[round, number as u8, 9, 9]), token(1));
        }
    }
    assert_eq!(cids.active().len(), MAX_KNOWN);
    assert_eq!(cids.wanted(8), 0);
}
