use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

use quinn_proto::Side;

use super::*;
use crate::config::TransportConfig;
use crate::error::TransportErrorCode;
use crate::event::{Event, OpenPathError, PathEvent};
use crate::ids::{FourTuple, PathStatus};
use crate::packet::arrival::Arrival;
use crate::packet::delivery::{Fate, PathDelivery};
use crate::packet::writer::written;
use crate::path::liveness::Liveness;
use crate::recovery::testing::{ms, start};
use crate::wire::frame::{
    self, Frame, NewConnectionId, PathAbandon, PathCidsBlocked, PathNewConnectionId,
};
use crate::wire::transport_parameters::PreferredAddress;

const FIRST: PathId = PathId(0);
const SECOND: PathId = PathId(1);
const THIRD: PathId = PathId(2);

fn cid(n: u8) -> ConnectionId {
    ConnectionId::new(&[n; 8])
}

fn four_tuple(port: u16) -> FourTuple {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    FourTuple::new(address(443), address(port))
}

fn new_cid(n: u8) -> NewConnectionId {
    NewConnectionId {
        sequence_number: n.into(),
        retire_prior_to: 0,
        connection_id: cid(n),
        stateless_reset_token: [n; 16],
    }
}

/// Port 9 of the server.
fn preferred_address() -> PreferredAddress {
    PreferredAddress {
        ipv4: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9)),
        ipv6: None,
        connection_id: cid(9),
        stateless_reset_token: [9; 16],
    }
}

/// A path that carries data.
fn established(id: PathId, port: u16, side: Side, now: Instant) -> Box<Path> {
    let config = TransportConfig::without_policies();
    let mut path = Path::new(id, four_tuple(port), side, now, &config);
    path.tuple.set_validated();
    path.established = true;
    Box::new(path)
}

/// Multipath negotiated, no path known yet.
fn negotiated() -> Paths {
    let mut paths = Paths::new(Shared::for_tests(Side::Client, 6, 3));
    assert!(paths.ids.set_peer_parameter(Some(PathId(5))));
    paths
}

/// Paths 0, 1 and 2, all of which carry data.
fn three(now: Instant) -> Paths {
    let mut paths = negotiated();
    for id in [FIRST, SECOND, THIRD] {
        paths.slot_or_new(id).path = Some(established(id, id.0 as u16, Side::Client, now));
    }
    paths
}

fn path(paths: &mut Paths, id: PathId) -> &mut Path {
    paths.open_mut(id).unwrap()
}

fn frames(paths: &mut Paths, carrier: PathId) -> Vec<Frame> {
    written(1200, |w| {
        paths.write_frames(w, carrier, &mut Outbox::for_tests())
    })
    .0
}

#[test]
fn mp_108_the_reset_tokens_of_all_paths_count() {
    let mut paths = three(start());
    let mut outbox = Outbox::for_tests();
    for id in [FIRST, SECOND] {
        let n = id.0 as u8 + 1;
        let slot = paths.slot_or_new(id);
        let announced = NewConnectionId {
            sequence_number: 0,
            retire_prior_to: 0,
            connection_id: cid(n),
            stateless_reset_token: [n; 16],
        };
        slot.path = None;
        assert!(slot.on_new_connection_id(&announced, &mut outbox).is_ok());
        assert!(!paths.is_reset_token([n; 16]), "not in use yet");
        let slot = paths.slot_or_new(id);
        let config = TransportConfig::without_policies();
        let mut path = Path::new(id, four_tuple(1), Side::Client, start(), &config);
        path.tuple.peer_cid = slot.peer_cids.take(&mut outbox);
        slot.path = Some(Box::new(path));
    }
    assert!(paths.is_reset_token([1; 16]));
    assert!(paths.is_reset_token([2; 16]));
    assert!(!paths.is_reset_token([3; 16]));
}

/// A peer gives connection IDs for path 2, but none for path 1.
#[test]
fn mp_071_an_id_without_connection_ids_is_passed_over() {
    let mut paths = negotiated();
    let mut outbox = Outbox::for_tests();
    paths.issue_cids(&mut outbox);
    let mut open = |paths: &mut Paths, port| {
        let status = PathStatus::Available;
        paths.open_path(start(), four_tuple(port), status, &mut outbox)
    };
    assert_eq!(open(&mut paths, 1), Err(OpenPathError::NoConnectionId));
    let asks = |frames: &[Frame], id| {
        let is_for =
            |frame: &Frame| matches!(frame, Frame::PathCidsBlocked(it) if it.path_id == id);
        frames.iter().any(is_for)
    };
    assert!(asks(&frames(&mut paths, FIRST), SECOND));

    let announced = PathNewConnectionId {
        path_id: THIRD,
        new_connection_id: NewConnectionId {
            sequence_number: 0,
            retire_prior_to: 0,
            connection_id: cid(7),
            stateless_reset_token: [7; 16],
        },
    };
    let mut news = Outbox::for_tests();
    assert!(
        paths
            .on_path_new_connection_id(&announced, &mut news)
            .is_ok()
    );
    assert_eq!(news.next_event(), Some(Event::Path(PathEvent::Available)));
    assert_eq!(open(&mut paths, 1), Ok(THIRD));
    assert_eq!(open(&mut paths, 2), Err(OpenPathError::NoConnectionId));
}

#[test]
fn a_connection_id_of_any_path_was_issued() {
    let mut paths = negotiated();
    assert!(!is_issued(&paths.slots, &cid(2)));
    for (id, n) in [(FIRST, 1), (SECOND, 2)] {
        paths.slot_or_new(id).local_cids.issue(cid(n), [n; 16]);
    }
    assert!(is_issued(&paths.slots, &cid(1)) && is_issued(&paths.slots, &cid(2)));
    assert!(!is_issued(&paths.slots, &cid(3)));
}

#[test]
fn the_largest_rtt_is_one_that_was_measured_on_a_usable_path() {
    let now = start();
    let mut paths = three(now);
    assert_eq!(paths.largest_rtt(), ms(0), "nothing but the initial RTT");
    for (id, rtt) in [(FIRST, 40), (SECOND, 90)] {
        let rtt_of = &mut path(&mut paths, id).recovery.rtt;
        rtt_of.on_sample(now, ms(rtt), ms(0));
    }
    // The third path still assumes a larger one.
    assert!(path(&mut paths, THIRD).recovery.rtt.smoothed() > ms(90));
    assert_eq!(paths.largest_rtt(), ms(90));
    path(&mut paths, SECOND).established = false;
    assert_eq!(paths.largest_rtt(), ms(40));
}

#[test]
fn the_alternative_is_a_path_that_answers_if_there_is_one() {
    let mut paths = three(start());
    assert_eq!(paths.alternative(FIRST), Some(SECOND));
    path(&mut paths, FIRST).liveness = Liveness::Suspect;
    assert_eq!(paths.alternative(SECOND), Some(THIRD));
    path(&mut paths, THIRD).liveness = Liveness::Down;
    assert_eq!(paths.alternative(SECOND), Some(FIRST), "none answers");
    path(&mut paths, FIRST).established = false;
    assert_eq!(paths.alternative(SECOND), Some(THIRD));
    path(&mut paths, THIRD).tuple.validated = false;
    assert_eq!(paths.alternative(SECOND), None);
}

#[test]
fn mp_121_mp_122_a_path_is_abandoned_on_another_one_and_once() {
    let mut paths = three(start());
    let code = TransportErrorCode::NO_ERROR;
    let mut outbox = Outbox::for_tests();
    assert!(paths.slot_or_new(SECOND).abandon(code, &mut outbox));
    assert_eq!(frames(&mut paths, SECOND), []);
    assert!(paths.wants_to_send());
    let expected = [Frame::PathAbandon(PathAbandon {
        path_id: SECOND,
        error_code: code,
    })];
    assert_eq!(frames(&mut paths, FIRST), expected);
    assert!(!paths.wants_to_send());
    assert_eq!(frames(&mut paths, THIRD), [], "under way");
    paths.on_delivery(PathDelivery::Abandon(SECOND), Fate::Lost);
    assert_eq!(frames(&mut paths, SECOND), []);
    assert_eq!(frames(&mut paths, THIRD), expected);
    paths.on_delivery(PathDelivery::Abandon(SECOND), Fate::Acked);
    assert_eq!(frames(&mut paths, FIRST), []);
}

/// A path abandoned by the peer is acknowledged on another path, and forgotten three probe timeouts
/// after the answer arrived.
#[test]
fn mp_123_mp_124_a_path_that_the_peer_abandons_is_forgotten_in_time() {
    let now = start();
    let mut paths = three(now);
    let mut outbox = Outbox::for_tests();
    let error_code = TransportErrorCode::NO_ERROR;
    let frame = PathAbandon {
        path_id: SECOND,
        error_code,
    };
    assert!(paths.on_path_abandon(now, &frame, &mut outbox).is_ok());
    let abandoned = PathEvent::Abandoned {
        path: SECOND,
        error_code,
        by_peer: true,
    };
    assert_eq!(outbox.next_event(), Some(Event::Path(abandoned)));
    assert!(frames(&mut paths, FIRST).contains(&Frame::PathAbandon(frame)));
    let end = now + paths.drain_period();
    paths.discard_abandoned(end, &mut outbox);
    assert!(paths.any(SECOND).is_some(), "the answer may be lost");
    paths.on_delivery(PathDelivery::Abandon(SECOND), Fate::Acked);
    paths.discard_abandoned(end - ms(1), &mut outbox);
    let last = paths.stats(SECOND, &outbox.controller).expect("it exists");
    assert_eq!(outbox.next_event(), None);
    let discarded = Event::Path(PathEvent::Discarded(Box::new(last)));
    paths.discard_abandoned(end, &mut outbox);
    assert!(paths.any(SECOND).is_none());
    assert_eq!(outbox.next_event(), Some(discarded));
    // Late copies mean nothing.
    assert!(paths.on_path_abandon(end, &frame, &mut outbox).is_ok());
    assert_eq!(outbox.next_event(), None);
    assert!(paths.any(SECOND).is_none());
}

#[test]
fn the_peers_status_of_a_path_is_told_when_it_changes() {
    let now = start();
    let mut paths = three(now);
    let mut outbox = Outbox::for_tests();
    let mut status = |status, sequence_number| {
        let frame = frame::PathStatus {
            path_id: SECOND,
            status,
            sequence_number,
        };
        assert!(paths.on_path_status(now, &frame, &mut outbox).is_ok());
        outbox.next_event()
    };
    let told = |status| Some(Event::Path(PathEvent::RemoteStatus(SECOND, status)));
    let backup = PathStatus::Backup;
    assert_eq!(status(backup, 2), told(backup));
    assert_eq!(status(PathStatus::Available, 1), None, "it is older");
    let available = PathStatus::Available;
    assert_eq!(status(available, 3), told(available));
}

#[test]
fn mp_141_a_higher_limit_of_the_peer_makes_paths_available() {
    let now = start();
    let mut paths = negotiated();
    let mut outbox = Outbox::for_tests();
    let mut raise = |maximum| {
        assert!(paths.on_max_path_id(now, maximum, &mut outbox).is_ok());
        outbox.next_event()
    };
    let available = Some(Event::Path(PathEvent::Available));
    assert_eq!(raise(PathId(7)), available);
    assert_eq!(raise(PathId(7)), None);
    assert_eq!(raise(PathId(6)), None);
}

#[test]
fn blocked_peers_may_name_only_allowed_and_issued_ids() {
    let now = start();
    let mut paths = three(now);
    let mut outbox = Outbox::for_tests();
    paths.issue_cids(&mut outbox);
    assert!(paths.on_paths_blocked(now, PathId(3)).is_ok());
    assert!(paths.on_paths_blocked(now, PathId(1000)).is_err());
    let mut blocked = |path_id, next_sequence_number| {
        let frame = PathCidsBlocked {
            path_id,
            next_sequence_number,
        };
        paths.on_path_cids_blocked(now, &frame, &mut outbox)
    };
    assert!(blocked(SECOND, 0).is_ok());
    assert!(blocked(SECOND, 1000).is_err());
    assert!(blocked(PathId(1000), 0).is_err());
}

/// RFC 9000 section 9.6: a client probes the preferred address, again from an address that it moves
/// to, and path 0 moves once it has proven to work; if it does not, the path stays.
#[test]
fn a_client_moves_to_a_preferred_address_that_works() {
    let now = start();
    let preferred = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 5000));
    for works in [true, false] {
        let mut paths = three(now);
        let mut outbox = Outbox::for_tests();
        let (slot, shared) = paths.slot_and_shared(FIRST).unwrap();
        slot.peer_cids.add_preferred(cid(9), [9; 16]);
        // The path needs a connection ID for itself, and one more for each probe.
        for n in [2, 3] {
            assert!(slot.on_new_connection_id(&new_cid(n), &mut outbox).is_ok());
        }
        shared.preferred = Some(Box::new(preferred_address()));
        slot.prefer_address(now, shared, &mut outbox);
        let before = slot.open().unwrap().tuple.four_tuple;
        let probed = |slot: &PathSlot| {
            let candidate = slot.open()?.candidate.as_ref()?;
            Some(candidate.tuple.four_tuple)
        };
        assert_eq!(probed(slot), Some(FourTuple::new(before.local, preferred)));
        slot.prefer_address_from(now, local, shared, &mut outbox);
        assert_eq!(probed(slot), Some(FourTuple::new(local, preferred)));
        while outbox.next_event().is_some() {}
        if works {
            let candidate = slot.open_mut().unwrap().candidate.as_mut().unwrap();
            candidate.tuple.set_validated();
        } else {
            for second in 1..60 {
                slot.on_candidate_timeout(now + ms(1000 * second), &mut outbox);
            }
        }
        assert_eq!(slot.adopt_candidate(now, shared, &mut outbox), works);
        let moved = Event::Path(PathEvent::Migrated(FIRST, FourTuple::new(local, preferred)));
        assert_eq!(outbox.next_event(), works.then_some(moved));
        assert_eq!(probed(slot), None);
        let now_at = slot.open().unwrap().tuple.four_tuple.remote;
        assert_eq!(now_at == preferred, works);
    }
}

/// RFC 9000 section 9.6.2: a server probes back where the client probes its preferred address,
/// moves there when the client uses it, and then takes what still comes to the old address for no
/// migration.
#[test]
fn a_server_follows_to_its_preferred_address() {
    let now = start();
    let mut paths = Paths::new(Shared::for_tests(Side::Server, 1, 3));
    let mut outbox = Outbox::for_tests();
    let before = four_tuple(5000);
    paths.slot_or_new(FIRST).path = Some(established(FIRST, 5000, Side::Server, now));
    let (slot, shared) = paths.slot_and_shared(FIRST).unwrap();
    for n in [1, 2, 3] {
        assert!(slot.on_new_connection_id(&new_cid(n), &mut outbox).is_ok());
    }
    shared.preferred = Some(Box::new(preferred_address()));
    let preferred = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let after = FourTuple::new(preferred, before.remote);
    let arrival = |four_tuple| Arrival {
        now,
        four_tuple,
        ecn: None,
        path: FIRST,
        size: 1200,
    };
    let (at_old, at_new) = (arrival(before), arrival(after));
    let probed = |slot: &PathSlot| Some(slot.open()?.candidate.as_ref()?.tuple.four_tuple);

    assert!(!slot.concerns_preferred(&at_old, shared));
    slot.on_probed(&at_old, shared, &mut outbox);
    assert_eq!(probed(slot), None);
    slot.prefer_address(now, shared, &mut outbox);
    assert_eq!(probed(slot), None, "that is for clients");

    assert!(slot.concerns_preferred(&at_new, shared));
    slot.on_probed(&at_new, shared, &mut outbox);
    slot.on_probed(&at_new, shared, &mut outbox);
    assert_eq!(probed(slot), Some(after));
    let candidate = slot.open_mut().unwrap().candidate.as_mut().unwrap();
    candidate.tuple.set_validated();
    assert!(!slot.adopt_candidate(now, shared, &mut outbox), "not used");
    assert!(!slot.on_used_at_preferred(&at_old, shared, &mut outbox));

    while outbox.next_event().is_some() {}
    assert!(slot.on_used_at_preferred(&at_new, shared, &mut outbox));
    assert_eq!(slot.open().unwrap().tuple.four_tuple, after);
    let moved = Event::Path(PathEvent::Migrated(FIRST, after));
    assert_eq!(outbox.next_event(), Some(moved));
    assert!(slot.concerns_preferred(&at_old, shared), "it has left");
    let rebound = FourTuple::new(preferred, four_tuple(5001).remote);
    assert!(!slot.concerns_preferred(&arrival(rebound), shared));
}

#[test]
fn memory_for_slots_is_taken_once_for_all_ids_that_both_sides_allow() {
    let mut paths = Paths::new(Shared::for_tests(Side::Client, 6, 3));
    paths.slot_or_new(FIRST);
    assert_eq!(paths.slots.capacity(), 1, "no more without multipath");
    assert!(paths.ids.set_peer_parameter(Some(PathId(5))));
    for id in 1..6 {
        assert_eq!(paths.slot_or_new(PathId(id)).id, PathId(id));
        assert_eq!(paths.slots.capacity(), 6);
    }
}

#[test]
fn paths_at_rest_keep_no_memory_for_responses() {
    let mut paths = three(start());
    for id in [FIRST, SECOND] {
        let responses = &mut path(&mut paths, id).responses;
        responses.on_path_challenge(four_tuple(9), [1; 8]);
        responses.clear();
        assert!(responses.capacity() > 0);
    }
    // What was abandoned is not forgotten here.
    assert!(
        paths
            .slot_or_new(SECOND)
            .abandon(TransportErrorCode::NO_ERROR, &mut Outbox::for_tests())
    );
    paths.trim();
    for id in [FIRST, SECOND] {
        assert_eq!(paths.any(id).unwrap().responses.capacity(), 0);
    }
}
