//! The end of paths.

use mpquic_core::unstable_wire::frame::{Frame, NewConnectionId, PathAbandon, PathAck};
use mpquic_core::{
    ConnectionError, ConnectionId, Event, Fault, OpenPathError, PathEvent, PathId, Side, SpaceId,
    TransportErrorCode,
};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, SIDES, Sent};

const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);

fn bytes(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        frame.encode(&mut out);
    }
    out
}

fn close(net: &mut Net, side: Side, path: PathId) {
    let now = net.now;
    net.connection(side)
        .close_path(now, path, TransportErrorCode::NO_ERROR)
        .unwrap();
}

fn abandons(sent: &Sent, path: PathId) -> bool {
    sent.has(|frame| matches!(frame, Frame::PathAbandon(frame) if frame.path_id == path))
}

fn retires(sent: &Sent, path: PathId) -> bool {
    sent.has(|frame| matches!(frame, Frame::PathRetireConnectionId(frame) if frame.path_id == path))
}

/// MP-120 to MP-123: PATH_ABANDON on another path, an answer at once, and nothing more on the path
/// from either side, not even acknowledgements and retirements.
#[test]
fn mp_121_nothing_is_sent_on_an_abandoned_path() {
    for side in SIDES {
        for path in [ZERO, ONE] {
            let other = PathId(1 - path.0);
            let mut net = Net::with_two_paths(Options::default());
            // Packets in flight on the path, and waiting data.
            for _ in 0..2 {
                net.connection(!side).inject(SpaceId::Data(path), &[1]);
            }
            let under_way = net.take(!side);
            net.write(side, 100_000);
            net.write(!side, 100_000);
            close(&mut net, side, path);
            let farewell = net.take(side);
            assert!(farewell.iter().any(|sent| abandons(sent, path)));
            assert!(farewell.iter().all(|sent| sent.path() == Some(other)));
            net.give_all(under_way);
            net.give_all(farewell);
            let answer = net.take(!side);
            assert!(answer.iter().any(|sent| abandons(sent, path)), "at once");
            assert!(answer.iter().all(|sent| sent.path() == Some(other)));
            net.give_all(answer.iter().cloned());
            let mut log = net.wait(5 * SECOND);
            log.extend(answer);
            assert!(log.iter().all(|sent| sent.path() == Some(other)));
            assert!(!log.iter().any(|sent| retires(sent, path)));
        }
    }
}

/// MP-064: packets in flight on the path are acknowledged on another one. MP-063: a PATH_ACK need
/// not travel on its own path.
#[test]
fn mp_064_stragglers_of_an_abandoned_path_are_acknowledged_on_another() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        for _ in 0..2 {
            net.connection(!side).inject(SpaceId::Data(ONE), &[1]);
        }
        let under_way = net.take(!side);
        let number = under_way[1].packets()[0].number;
        close(&mut net, side, ONE);
        let _lost = net.take(side);
        net.give_all(under_way);
        let sent = net.take(side);
        let acknowledges = |sent: &Sent| {
            sent.has(|frame| {
                matches!(frame, Frame::PathAck(frame)
                if frame.path_id == ONE && frame.ack.largest_acknowledged == number)
            })
        };
        let ack = sent.iter().find(|sent| acknowledges(sent)).unwrap();
        assert_eq!(ack.path(), Some(ZERO));
        // The sender takes it.
        assert!(net.connection(!side).path_stats(ONE).unwrap().in_flight > 0);
        net.give(ack.clone());
        assert_eq!(net.connection(!side).path_stats(ONE).unwrap().in_flight, 0);
    }
}

/// MP-131: a path that is gone raises the client's own limit. The peer's limit is higher and none of
/// its frames arrive, so nothing else tells the application to ask again.
#[test]
fn mp_131_a_client_is_told_that_its_own_limit_has_risen() {
    let mut options = Options::default();
    options.client.max_concurrent_paths = 2;
    let mut net = Net::with_two_paths(options);
    assert_eq!(net.open_path(2), Err(OpenPathError::PathsBlocked));
    net.node(Side::Client).events.clear();
    close(&mut net, Side::Client, ONE);
    net.delivers = |sent| !sent.has(|frame| matches!(frame, Frame::MaxPathId(_)));
    let log = net.wait(5 * SECOND);
    let is_raised = |sent: &Sent| {
        sent.from == Side::Client && sent.has(|frame| matches!(frame, Frame::MaxPathId(PathId(2))))
    };
    assert!(log.iter().any(is_raised));
    assert!(net.has_path_event(Side::Client, &PathEvent::Available));
    assert_ne!(net.open_path(2), Err(OpenPathError::PathsBlocked));
}

/// When a side dropped the state of a path, counted from `start`.
fn discarded(net: &mut Net, side: Side, path: PathId) -> bool {
    net.has_discarded(side, path)
}

/// MP-124: connection IDs and the receiving half stay for three probe timeouts after the peer's
/// PATH_ABANDON, so that stragglers get no stateless reset.
#[test]
fn mp_124_state_stays_for_three_probe_timeouts() {
    let mut net = Net::with_two_paths(Options::default());
    let straggler = |net: &Net, number| {
        let kind = Kind::OneRtt(ONE);
        net.forge(&Forgery::new(Side::Client, kind, number, &[Frame::Ping]))
    };
    close(&mut net, Side::Client, ONE);
    net.exchange();
    // Acknowledgements of packets it never sent would puzzle the client.
    net.delivers = |sent| {
        !sent.has(|frame| {
            matches!(
                frame,
                Frame::PathAck(PathAck {
                    path_id: PathId(1),
                    ..
                })
            )
        })
    };
    let start = net.now;
    let mut number = 1000;
    let mut late_packets = |net: &mut Net| {
        for _ in 0..2 {
            let late = straggler(net, number);
            assert_eq!(net.give(late), None, "no stateless reset");
            number += 1;
        }
        let sent = net.exchange();
        let acknowledges =
            |frame: &Frame| matches!(frame, Frame::PathAck(PathAck { path_id: ONE, .. }));
        sent.iter().any(|sent| sent.has(acknowledges))
    };
    while !discarded(&mut net, Side::Server, ONE) {
        assert!(late_packets(&mut net), "stragglers are acknowledged");
        net.wait(5 * MS);
        assert!(net.now < start + 10 * SECOND);
    }
    // The smoothed RTT is two milliseconds; the peer's delay of 25 ms is part of the timeout.
    let took = net.now - start;
    assert!(took >= 3 * 27 * MS && took < SECOND, "{took:?}");
    assert!(!late_packets(&mut net), "forgotten by now");
}

/// MP-125: an unused ID can be abandoned, and is spent. MP-123: the answer is repeated until its
/// arrival, for any time.
#[test]
fn mp_123_a_lost_answer_is_repeated() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        net.delivers = match side {
            Side::Client => |sent| sent.from.is_client() || !abandons(sent, ONE),
            Side::Server => |sent| sent.from.is_server() || !abandons(sent, ONE),
        };
        close(&mut net, side, ONE);
        // Three probe timeouts are over long before.
        net.wait(5 * SECOND);
        for side in SIDES {
            assert!(!net.has_discarded(side, ONE));
        }
        net.delivers = |_| true;
        net.wait(20 * SECOND);
        for side in SIDES {
            assert!(net.has_discarded(side, ONE), "{side:?}");
        }
    }
}

/// Each side abandons the path that the other one keeps, and only the client can still be heard:
/// the server learns of the loss of its last path, closes, and can only answer with a stateless
/// reset.
#[test]
fn mp_128_both_sides_give_up_the_path_the_other_keeps() {
    let mut net = Net::with_two_paths(Options::default());
    net.write(Side::Client, 60_000);
    net.delivers = |_| false;
    net.wait(2 * SECOND);
    close(&mut net, Side::Server, ZERO);
    close(&mut net, Side::Client, ONE);
    net.wait(SECOND);
    net.delivers = |sent| sent.from.is_client();
    net.wait(20 * SECOND);
    let no_path = (Fault::NoPathLeft, 0);
    assert_eq!(net.fault(Side::Server), Some(no_path));
    assert_eq!(net.lost(Side::Client), Some(ConnectionError::Reset));
}

#[test]
fn mp_125_an_unused_path_can_be_abandoned() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        let abandon = Frame::PathAbandon(PathAbandon {
            path_id: PathId(1),
            error_code: TransportErrorCode::NO_ERROR,
        });
        net.connection(side)
            .inject(SpaceId::Data(ZERO), &bytes(&[abandon]));
        let log = net.wait(SECOND);
        let answered = log
            .iter()
            .any(|sent| sent.from == !side && abandons(sent, ONE));
        assert!(answered, "{side:?}");
        for side in SIDES {
            assert_eq!(net.fault(side), None);
        }
        // MP-131: another one in exchange.
        let raised = |frame: &Frame| *frame == Frame::MaxPathId(PathId(8));
        assert!(log.iter().any(|sent| sent.has(raised)));
        assert_eq!(net.open_path(1), Ok(PathId(2)), "1 is spent");
    }
}

/// MP-037 and MP-125: an ID abandoned before its use is spent at once, not only at the end of its
/// state.
#[test]
fn mp_125_an_abandoned_unused_path_is_not_opened_meanwhile() {
    let mut net = Net::connected(Options::default());
    let abandon = Frame::PathAbandon(PathAbandon {
        path_id: ONE,
        error_code: TransportErrorCode::NO_ERROR,
    });
    net.server().inject(SpaceId::Data(ZERO), &bytes(&[abandon]));
    let sent = net.take(Side::Server);
    net.give_all(sent);
    assert_eq!(net.open_path(1), Ok(PathId(2)), "1 is spent");
    let log = net.wait(20 * MS);
    let for_it =
        |frame: &Frame| matches!(frame, Frame::PathNewConnectionId(new) if new.path_id == ONE);
    assert!(!log.iter().any(|sent| sent.has(for_it)), "1 is spent");
}

/// MP-129: every code is accepted.
#[test]
fn mp_129_unknown_codes_in_path_abandon_are_no_fault() {
    let mut net = Net::with_two_paths(Options::default());
    let error_code = TransportErrorCode::from_u64(0x1234_5678);
    let abandon = bytes(&[Frame::PathAbandon(PathAbandon {
        path_id: ONE,
        error_code,
    })]);
    net.client().inject(SpaceId::Data(ZERO), &abandon);
    net.wait(50 * MS);
    let abandoned = PathEvent::Abandoned {
        path: ONE,
        error_code,
        by_peer: true,
    };
    assert!(net.has_path_event(Side::Server, &abandoned));
    assert_eq!(net.fault(Side::Server), None);
}

/// MP-132: the plain frames mean path 0, and path 0 is gone.
#[test]
fn mp_132_plain_frames_are_ignored_once_path_0_is_gone() {
    let mut net = Net::with_two_paths(Options::default());
    close(&mut net, Side::Client, ZERO);
    net.wait(5 * SECOND);
    assert!(discarded(&mut net, Side::Server, ZERO));
    let new = NewConnectionId {
        sequence_number: 90,
        retire_prior_to: 90,
        connection_id: ConnectionId::new(&[9; 8]),
        stateless_reset_token: [9; 16],
    };
    let mut frames = bytes(&[Frame::RetireConnectionId(1000), Frame::NewConnectionId(new)]);
    // ACK of a number never sent.
    frames.extend([0x02, 0x7f, 0xff, 0, 0, 0]);
    net.client().inject(SpaceId::Data(ONE), &frames);
    net.wait(SECOND);
    assert_eq!(net.fault(Side::Server), None);
    let id = net.write(Side::Server, 1000);
    net.wait(SECOND);
    assert_eq!(net.read(Side::Client, id), 1000);
}

/// MP-127: data lost with the path is sent again on another one.
#[test]
fn mp_127_data_of_an_abandoned_path_moves() {
    let mut net = Net::with_two_paths(Options::default());
    let id = net.write(Side::Server, 60_000);
    let flight = net.take(Side::Server);
    let on_one = |sent: &&Sent| sent.path() == Some(ONE);
    assert!(flight.iter().filter(on_one).count() > 1, "path 0 is full");
    // Only what path 0 carried arrives.
    net.give_all(flight.into_iter().filter(|sent| sent.path() == Some(ZERO)));
    close(&mut net, Side::Server, ONE);
    net.wait(2 * SECOND);
    assert_eq!(net.read(Side::Client, id), 60_000);
    let lost = |event: &Event| matches!(event, Event::ConnectionLost { .. });
    assert!(!net.events(Side::Client).iter().any(lost));
}

/// What only the abandoned path could carry must not hold up the rest.
#[test]
fn datagrams_too_large_for_the_remaining_paths_are_dropped() {
    let mut net = Net::connected(Options::default());
    net.client().datagrams().max_size();
    net.wait(5 * SECOND);
    let size = net.client().datagrams().max_size().unwrap();
    assert!(size > 1300, "{size}");
    // Path 0 answers no more, to keep most DATAGRAMs waiting, and path 1 carries small datagrams
    // only.
    net.delivers = |sent| sent.path() == Some(ONE) && sent.data.len() <= 1250;
    net.open_path(1).unwrap();
    for _ in 0..100 {
        let datagram = vec![1; size].into();
        net.client().datagrams().send(datagram).unwrap();
    }
    net.exchange();
    assert!(net.has_path_event(Side::Client, &PathEvent::Established(ONE)));
    close(&mut net, Side::Client, ZERO);
    let last = b"last"[..].into();
    net.client().datagrams().send(last).unwrap();
    net.wait(SECOND);
    let received = net.server().datagrams().recv();
    assert_eq!(received.as_deref(), Some(&b"last"[..]));
}
