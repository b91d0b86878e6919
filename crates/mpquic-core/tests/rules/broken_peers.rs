//! Old and broken peers: a clear error or nothing at all, never a hang, never memory without bound.

use mpquic_core::unstable_wire::frame::{
    self, Frame, NewConnectionId, PathAbandon, PathCidsBlocked, PathNewConnectionId,
    PathRetireConnectionId,
};
use mpquic_core::{
    ConnectionId, Fault, OpenPathError, PathEvent, PathId, PathStatus, Side, SpaceId,
    TransportErrorCode,
};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, SIDES, Sent, path_ack};

const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);

/// draft-ietf-quic-multipath-05 section 4: `enable_multipath`, without a value.
const DRAFT_05_PARAMETER: [u8; 9] = [0xcf, 0x73, 0x9b, 0xbc, 0x1b, 0x66, 0x6d, 0x05, 0];

/// Frames of that draft (sections 8.1 to 8.3), for its connection ID number 0, with their types.
fn draft_05_frames() -> [(Vec<u8>, u64); 4] {
    let frame = |frame_type: u32, fields: &[u8]| {
        let mut bytes = (0x8000_0000 | frame_type).to_be_bytes().to_vec();
        bytes.extend_from_slice(fields);
        (bytes, u64::from(frame_type))
    };
    [
        frame(0x1522_8c00, &[0, 0, 0, 0, 0]),          // ACK_MP
        frame(0x1522_8c01, &[0, 0, 0, 0, 0, 1, 0, 0]), // ACK_MP with ECN counts
        frame(0x1522_8c05, &[0, 0, 0]),                // PATH_ABANDON
        frame(0x1522_8c06, &[0, 1, 1]),                // PATH_STATUS
    ]
}

fn transfers(net: &mut Net, bytes: usize) {
    for side in SIDES {
        let id = net.write(side, bytes);
        net.wait(5 * SECOND);
        assert_eq!(net.read(!side, id), bytes, "from {side:?}");
    }
}

/// The old parameter is one we do not know: the connection works, with one path.
#[test]
fn a_peer_that_speaks_draft_05_gets_one_path() {
    let mut options = Options::default();
    options.client.max_concurrent_paths = 0;
    options.client_parameters = DRAFT_05_PARAMETER.to_vec();
    let mut net = Net::connected(options);
    assert!(!net.server().is_multipath());
    let log = net.exchange();
    assert!(
        log.iter()
            .all(|sent| !sent.has(|frame| matches!(frame, Frame::PathAck(_))))
    );
    transfers(&mut net, 100_000);
    assert_eq!(net.open_path(1), Err(OpenPathError::NotNegotiated));
}

/// The draft's frame types are unknown, with and without RFC 10069.
#[test]
fn frames_of_draft_05_are_unknown() {
    for max_concurrent_paths in [0, 8] {
        for (bytes, frame_type) in draft_05_frames() {
            let mut options = Options::default();
            options.client.max_concurrent_paths = max_concurrent_paths;
            options.client_parameters = DRAFT_05_PARAMETER.to_vec();
            let mut net = Net::connected(options);
            let forged = net.forge(&Forgery {
                frames: bytes,
                ..Forgery::new(Side::Client, Kind::OneRtt(ZERO), 3000, &[])
            });
            net.give(forged);
            let unknown = (Fault::UnknownFrameType, frame_type);
            assert_eq!(net.fault(Side::Server), Some(unknown));
        }
    }
}

/// Replaces PATH_ABANDON of the server by PADDING.
fn without_answer(sent: &mut Sent) {
    let abandon = [0x7e, 0x75];
    let found = sent.data.windows(2).position(|bytes| bytes == abandon);
    if let Some(at) = found.filter(|_| sent.from.is_server()) {
        sent.data[at..at + 4].fill(0);
    }
}

/// MP-126: the path stays abandoned and everything else goes on; the ceiling on paths bounds the
/// kept state.
#[test]
fn a_peer_that_never_answers_path_abandon_costs_one_path_id_each_time() {
    let options = Options::default().transport(|transport| transport.max_concurrent_paths = 4);
    let mut net = Net::connected(options);
    net.rewrite = without_answer;
    for id in 1..4 {
        assert_eq!(net.open_path(1), Ok(PathId(id)));
        net.wait(SECOND);
        let now = net.now;
        let code = TransportErrorCode::NO_ERROR;
        net.client().close_path(now, PathId(id), code).unwrap();
        net.wait(10 * SECOND);
        assert!(!net.has_discarded(Side::Client, PathId(id)));
        transfers(&mut net, 100_000);
    }
    assert_eq!(net.open_path(1), Err(OpenPathError::PathsBlocked));
    transfers(&mut net, 100_000);
    net.close(Side::Client);
    net.wait(60 * SECOND);
    assert!(net.client().is_drained() && net.server().is_drained());
}

/// Frames for unused path IDs: above the limit, an error (see `tests/hostile.rs`). Within the
/// limit, an error for acknowledgements and retirements; other frames are kept until the path
/// opens.
#[test]
fn frames_for_unused_paths_are_errors_or_wait_for_the_path() {
    let new = NewConnectionId {
        sequence_number: 7,
        retire_prior_to: 0,
        connection_id: ConnectionId::new(&[0xab; 8]),
        stateless_reset_token: [0xcd; 16],
    };
    let five = PathId(5);
    for side in SIDES {
        for (frame, expected) in [
            (path_ack(five, 0..1), Some((Fault::AckOfUnusedPath, 0x3e))),
            (
                Frame::PathRetireConnectionId(PathRetireConnectionId {
                    path_id: five,
                    sequence_number: 9,
                }),
                Some((Fault::RetiredNeverIssued, 0x3e79)),
            ),
            (
                Frame::PathCidsBlocked(PathCidsBlocked {
                    path_id: five,
                    next_sequence_number: 9,
                }),
                Some((Fault::ConnectionIdsBlockedAhead, 0x3e7c)),
            ),
            (
                Frame::PathNewConnectionId(PathNewConnectionId {
                    path_id: five,
                    new_connection_id: new,
                }),
                None,
            ),
            (
                Frame::PathStatus(frame::PathStatus {
                    path_id: five,
                    status: PathStatus::Backup,
                    sequence_number: 3,
                }),
                None,
            ),
            (
                Frame::PathAbandon(PathAbandon {
                    path_id: five,
                    error_code: TransportErrorCode::NO_ERROR,
                }),
                None,
            ),
        ] {
            let mut net = Net::connected(Options::default());
            let kind = Kind::OneRtt(ZERO);
            let forged = net.forge(&Forgery::new(!side, kind, 3000, &[frame]));
            net.give(forged);
            assert_eq!(net.fault(side), expected);
        }
    }
}

/// Packets of a path ID without a connection ID of ours go nowhere.
#[test]
fn packets_of_an_unknown_path_are_dropped() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        let forged = net.forge(&Forgery {
            dcid: Some(ConnectionId::new(&[0xee; 8])),
            ..Forgery::new(!side, Kind::OneRtt(PathId(6)), 0, &[Frame::Ping])
        });
        let before = net.connection(side).stats();
        net.give(forged);
        assert_eq!(
            net.connection(side).stats().datagrams_received,
            before.datagrams_received
        );
        // A connection ID of another path: the nonce does not fit.
        let mut forged = net.forge(&Forgery::new(
            !side,
            Kind::OneRtt(ZERO),
            3000,
            &[Frame::Ping],
        ));
        let tag = forged.data.len() - 12;
        forged.data[tag + 3] ^= 2;
        net.give(forged);
        let after = net.connection(side).stats();
        assert_eq!(after.packets_dropped, before.packets_dropped + 1);
        transfers(&mut net, 10_000);
    }
}

/// Every kind of advice, as often as it comes: closed, and soon.
#[test]
fn floods_of_advice_are_violations() {
    type Make = fn(u64) -> Frame;
    let kinds: [(Make, u64); 6] = [
        (|_| Frame::PathsBlocked(PathId(7)), 0x3e7b),
        (
            |_| {
                Frame::PathCidsBlocked(PathCidsBlocked {
                    path_id: PathId(1),
                    next_sequence_number: 0,
                })
            },
            0x3e7c,
        ),
        (
            |n| {
                Frame::PathStatus(frame::PathStatus {
                    path_id: ONE,
                    status: PathStatus::Backup,
                    sequence_number: n,
                })
            },
            0x3e76,
        ),
        (
            |n| {
                Frame::PathStatus(frame::PathStatus {
                    path_id: PathId(6),
                    status: PathStatus::Available,
                    sequence_number: n,
                })
            },
            0x3e77,
        ),
        (|n| Frame::MaxPathId(PathId(7 + n as u32)), 0x3e7a),
        (
            |_| {
                Frame::PathAbandon(PathAbandon {
                    path_id: PathId(6),
                    error_code: TransportErrorCode::NO_ERROR,
                })
            },
            0x3e75,
        ),
    ];
    for side in SIDES {
        for (make, frame_type) in kinds {
            let mut net = Net::connected(Options::default());
            let mut count = 0;
            for number in 3000..3050 {
                let frames: Vec<_> = (count..count + 50).map(make).collect();
                count += 50;
                let kind = Kind::OneRtt(ZERO);
                let forged = net.forge(&Forgery::new(!side, kind, number, &frames));
                net.give(forged);
                net.take(side);
            }
            let violation = (Fault::TooMuchAdvice, frame_type);
            assert_eq!(net.fault(side), Some(violation));
        }
    }
}

/// Frames for a path gone for good are not free.
#[test]
fn a_flood_of_ends_of_a_path_that_is_gone_is_a_violation() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        let now = net.now;
        let closed = net
            .client()
            .close_path(now, ONE, TransportErrorCode::NO_ERROR);
        closed.unwrap();
        // Both have forgotten it.
        net.wait(20 * SECOND);
        assert!(net.connection(side).path_stats(ONE).is_none());
        for number in 3000..3050 {
            let frame = Frame::PathAbandon(PathAbandon {
                path_id: ONE,
                error_code: TransportErrorCode::NO_ERROR,
            });
            let frames = vec![frame; 50];
            let forged = net.forge(&Forgery::new(!side, Kind::OneRtt(ZERO), number, &frames));
            net.give(forged);
            net.take(side);
        }
        assert_eq!(net.fault(side), Some((Fault::TooMuchAdvice, 0x3e75)));
    }
}

/// A frame asks to retire more IDs than the path was ever issued. Each further connection ID is
/// late: it is retired, so another ID is issued, and so on. The exchange ends.
#[test]
fn connection_ids_that_are_late_again_and_again_are_a_violation() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        let frame = Frame::PathNewConnectionId(PathNewConnectionId {
            path_id: ONE,
            new_connection_id: NewConnectionId {
                sequence_number: 16_385,
                retire_prior_to: 16_385,
                connection_id: ConnectionId::new(&[9; 8]),
                stateless_reset_token: [9; 16],
            },
        });
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        net.connection(!side).inject(SpaceId::Data(ZERO), &bytes);
        let sent = net.wait(10 * SECOND).len();
        let violation = (Fault::TooManyRetirements, 0x3e78);
        assert_eq!(net.fault(side), Some(violation), "after {sent} datagrams");
        assert!(sent < 400, "{sent} datagrams");
    }
}

/// A slow drip of the same is no reason to close, and nothing piles up.
#[test]
fn advice_now_and_then_is_ignored() {
    let mut net = Net::connected(Options::default());
    for number in 3000..5000 {
        let kind = Kind::OneRtt(ZERO);
        let frames = [
            Frame::PathsBlocked(PathId(7)),
            Frame::PathCidsBlocked(PathCidsBlocked {
                path_id: PathId(1),
                next_sequence_number: 0,
            }),
        ];
        let forged = net.forge(&Forgery::new(Side::Client, kind, number, &frames));
        net.give(forged);
        net.take(Side::Server);
        net.now += 25 * MS;
    }
    assert_eq!(net.fault(Side::Server), None);
}

/// A hundred frames of 8 bytes in a packet of the peer's on path 1.
fn inject_on_path_1(net: &mut Net, from: Side, number: u64, make: fn([u8; 8]) -> Frame) {
    let mut bytes = Vec::new();
    for i in 0..100u8 {
        make([number as u8, i, 1, 2, 3, 4, 5, 6]).encode(&mut bytes);
    }
    net.connection(from).inject(SpaceId::Data(ONE), &bytes);
}

/// Challenges: each is answered at most once, on its path, within the bytes received, and few
/// answers wait after any burst.
#[test]
fn a_flood_of_challenges_is_answered_within_bounds() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        let (mut received, mut sent, mut answers) = (0, 0, 0);
        for number in 0..200 {
            inject_on_path_1(&mut net, !side, number, Frame::PathChallenge);
            for datagram in net.take(!side) {
                received += datagram.data.len();
                net.give(datagram);
            }
            // Four at a time.
            if number % 4 < 3 {
                continue;
            }
            for datagram in net.take(side) {
                sent += datagram.data.len();
                let frames = datagram.frames();
                let responses = frames
                    .iter()
                    .filter(|f| matches!(f, Frame::PathResponse(_)));
                answers += responses.count();
                assert_eq!(datagram.path(), Some(ONE));
                net.give(datagram);
            }
        }
        assert!(sent < received, "{sent} bytes for {received}");
        assert!((50..=50 * 32).contains(&answers), "{answers}");
        transfers(&mut net, 10_000);
    }
}

/// Responses to challenges that were never sent prove and change nothing.
#[test]
fn a_flood_of_responses_is_ignored() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        for number in 0..200 {
            inject_on_path_1(&mut net, !side, number, Frame::PathResponse);
            net.exchange();
        }
        transfers(&mut net, 10_000);
    }
}

/// A path without any acknowledgement: its data moves elsewhere, the path is tried again now and
/// then, and the state of these trials does not grow.
#[test]
fn a_peer_that_acknowledges_nothing_on_a_path_is_served_on_the_others() {
    let options = Options::default().transport(|transport| transport.max_idle_timeout = None);
    let mut net = Net::with_two_paths(options);
    let in_flight = |net: &mut Net| net.client().path_stats(ONE).unwrap().in_flight;
    net.delivers = |sent| {
        let acks_path =
            |frame: &Frame| matches!(frame, Frame::PathAck(frame) if frame.path_id == ONE);
        sent.from.is_client() || !sent.has(acks_path)
    };
    transfers(&mut net, 200_000);
    assert!(net.has_path_event(Side::Client, &PathEvent::Suspect(ONE)));
    net.wait(600 * SECOND);
    let before = in_flight(&mut net);
    for _ in 0..20 {
        net.wait(600 * SECOND);
        transfers(&mut net, 10_000);
    }
    let after = in_flight(&mut net);
    assert!(after <= before + 2400, "{before} then {after} bytes");
    let timeouts = net.client().path_stats(ONE).unwrap().probe_timeouts;
    assert!(timeouts > 2000, "{timeouts}");
    // It answers again: everything is acknowledged, and the path is used.
    net.delivers = |_| true;
    transfers(&mut net, 100_000);
    assert!(net.has_path_event(Side::Client, &PathEvent::Recovered(ONE)));
}

/// The same on the only path, from a peer that goes on sending: perhaps it has our data, and no
/// packets pile up.
#[test]
fn a_peer_that_acknowledges_nothing_at_all_does_not_fill_our_memory() {
    let mut net = Net::connected(Options::default());
    net.write(Side::Server, 500_000);
    let mut in_flight = Vec::new();
    let mut sent = 0;
    for round in 0..2000u64 {
        for number in [3000 + 2 * round, 3001 + 2 * round] {
            let forged = net.forge(&Forgery::new(
                Side::Client,
                Kind::OneRtt(ZERO),
                number,
                &[Frame::Ping],
            ));
            net.give(forged);
        }
        sent += net.take(Side::Server).len();
        net.now += 5 * SECOND;
        net.tick(Side::Server);
        sent += net.take(Side::Server).len();
        in_flight.push(net.server().path_stats(ZERO).unwrap().in_flight);
    }
    assert_eq!(net.lost(Side::Server), None);
    assert!(sent > 2000);
    let (early, late) = (in_flight[300], in_flight[1999]);
    assert!(late <= early + 4000, "{early} then {late}");
}

/// Answers to challenges in small packets, 1200 bytes each, keep to the congestion window of a peer
/// that acknowledges nothing, but for a few (RFC 9000 section 8.2.2).
#[test]
fn rfc_9000_8_2_2_a_flood_of_small_challenges_keeps_to_the_window() {
    let mut net = Net::connected(Options::default());
    let (mut received, mut sent) = (0, 0);
    let start = net.now;
    for number in 5000..6000u64 {
        let frames = [Frame::PathChallenge(number.to_be_bytes())];
        let forgery = Forgery::new(Side::Client, Kind::OneRtt(ZERO), number, &frames);
        let datagram = net.forge(&forgery);
        received += datagram.data.len();
        net.give(datagram);
        let answers = net.take(Side::Server);
        sent += answers.iter().map(|sent| sent.data.len()).sum::<usize>();
        net.now += MS;
    }
    assert_eq!(net.fault(Side::Server), None);
    let seconds = (net.now - start).as_secs() as usize + 1;
    // The initial window, sixteen datagrams, ten more each second, and acknowledgements.
    let answers = 1200 * (10 + 16 + 10 * seconds);
    assert!(sent <= answers + 1000 * 50, "{sent} bytes for {received}");
}
