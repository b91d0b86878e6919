//! A peer that breaks the rules: each fault closes the connection with the code the RFCs give and
//! names the frame type; what the RFCs let pass is ignored.

use std::time::Duration;

use mpquic_core::unstable_wire::frame::{
    self, Frame, MaxStreamData, MaxStreams, NewConnectionId, PathAbandon, PathCidsBlocked,
    PathNewConnectionId, PathRetireConnectionId, ResetStreamAt, Stream,
};
use mpquic_core::{
    ConnectionClose, ConnectionError, ConnectionId, Dir, Event, Fault, PathId, PathStatus,
    ResetAtError, SpaceId, StreamId, TransportErrorCode, VarInt,
};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const ZERO: SpaceId = SpaceId::Data(PathId::ZERO);

fn topology() -> Topology {
    Topology::new()
        .path("a", LinkConfig::new(50.0, 5 * MS))
        .path("b", LinkConfig::new(50.0, 5 * MS))
}

fn bytes(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        frame.encode(&mut out);
    }
    out
}

/// The end of the victim's connection.
fn fate(pair: &Pair, victim: Side) -> Option<(Fault, u64)> {
    pair.events(victim)
        .into_iter()
        .find_map(|event| match event {
            Event::ConnectionLost {
                reason: ConnectionError::TransportError(error),
            } => Some((error.fault, error.frame_type)),
            Event::ConnectionLost { reason } => panic!("{reason}"),
            _ => None,
        })
}

/// The CONNECTION_CLOSE at the attacker.
fn told(pair: &Pair, attacker: Side) -> Option<ConnectionClose> {
    pair.events(attacker)
        .into_iter()
        .find_map(|event| match event {
            Event::ConnectionLost {
                reason: ConnectionError::ConnectionClosed(close),
            } => Some(close),
            _ => None,
        })
}

/// Injects into a connection with two paths and says how the victim ended.
fn attack(attacker: Side, payload: &[u8]) -> Option<(Fault, u64)> {
    let mut pair = Pair::connected(&topology(), Setup::new());
    pair.open_all_paths();
    pair.connection(attacker).inject(ZERO, payload);
    pair.drive(100 * MS);
    let fate = fate(&pair, !attacker);
    // The attacker is told the same.
    let expected = fate.map(|(fault, frame_type)| ConnectionClose {
        code: fault.code(),
        frame_type,
        reason: bytes::Bytes::from_static(fault.reason().as_bytes()),
    });
    assert_eq!(told(&pair, attacker), expected);
    fate
}

fn assert_closes(name: &str, attacker: Side, payload: &[u8], fault: Fault, frame_type: u64) {
    assert_eq!(
        attack(attacker, payload),
        Some((fault, frame_type)),
        "{name}"
    );
}

fn new_cid(sequence: u64, retire_prior_to: u64, id: [u8; 8], token: u8) -> NewConnectionId {
    NewConnectionId {
        sequence_number: sequence,
        retire_prior_to,
        connection_id: ConnectionId::new(&id),
        stateless_reset_token: [token; 16],
    }
}

fn path_status(path_id: PathId, status: PathStatus, sequence_number: u64) -> Frame {
    Frame::PathStatus(frame::PathStatus {
        path_id,
        status,
        sequence_number,
    })
}

fn retire(path_id: PathId, sequence_number: u64) -> Frame {
    Frame::PathRetireConnectionId(PathRetireConnectionId {
        path_id,
        sequence_number,
    })
}

fn cids_blocked(path_id: PathId, next_sequence_number: u64) -> Frame {
    Frame::PathCidsBlocked(PathCidsBlocked {
        path_id,
        next_sequence_number,
    })
}

/// multipath-wire section 13, row by row, where one frame is enough.
#[test]
fn multipath_faults_close_with_their_code() {
    const FAR: Fault = Fault::PathIdBeyondLimit;
    let far = PathId(1000);
    let abandon = Frame::PathAbandon(PathAbandon {
        path_id: far,
        error_code: TransportErrorCode::NO_ERROR,
    });
    let cases: &[(&str, Frame, Fault, u64)] = &[
        // MP-050: above the limit we announced, any of the nine.
        ("PATH_ABANDON", abandon, FAR, 0x3e75),
        (
            "STATUS",
            path_status(far, PathStatus::Backup, 0),
            FAR,
            0x3e76,
        ),
        (
            "AVAILABLE",
            path_status(far, PathStatus::Available, 0),
            FAR,
            0x3e77,
        ),
        (
            "NEW_CID",
            Frame::PathNewConnectionId(PathNewConnectionId {
                path_id: far,
                new_connection_id: new_cid(0, 0, [9; 8], 9),
            }),
            FAR,
            0x3e78,
        ),
        ("RETIRE", retire(far, 0), FAR, 0x3e79),
        ("PATHS_BLOCKED", Frame::PathsBlocked(far), FAR, 0x3e7b),
        ("CIDS_BLOCKED", cids_blocked(far, 0), FAR, 0x3e7c),
        // MP-140: below the peer's own parameter (8 paths allowed: highest ID 7).
        (
            "MAX_PATH_ID",
            Frame::MaxPathId(PathId(3)),
            Fault::MaxPathIdBelowInitial,
            0x3e7a,
        ),
        // MP-143: we never issued that many.
        (
            "next sequence",
            cids_blocked(PathId(1), 1000),
            Fault::ConnectionIdsBlockedAhead,
            0x3e7c,
        ),
        // MP-106: never issued.
        (
            "retire",
            retire(PathId(1), 1000),
            Fault::RetiredNeverIssued,
            0x3e79,
        ),
        (
            "plain retire",
            Frame::RetireConnectionId(1000),
            Fault::RetiredNeverIssued,
            0x19,
        ),
    ];
    for attacker in [Side::Client, Side::Server] {
        for (name, frame, fault, frame_type) in cases {
            let payload = bytes(std::slice::from_ref(frame));
            assert_closes(name, attacker, &payload, *fault, *frame_type);
        }
    }
}

/// Rows of section 13 that need raw bytes or several frames.
#[test]
fn malformed_multipath_frames_close_with_their_code() {
    // MP-050 for PATH_ACK: path 1000.
    assert_closes(
        "PATH_ACK",
        Side::Client,
        &[0x3e, 0x43, 0xe8, 0, 0, 0, 0],
        Fault::PathIdBeyondLimit,
        0x3e,
    );
    // MP-055: numbers never sent, on a live path.
    assert_closes(
        "unsent",
        Side::Client,
        &[0x3e, 1, 0x7f, 0xff, 0, 0, 0],
        Fault::AckOfUnsent,
        0x3e,
    );
    // MP-055: ranges below zero.
    assert_closes(
        "negative",
        Side::Client,
        &[0x3e, 1, 5, 0, 0, 9],
        Fault::AckBelowZero,
        0x3e,
    );
    // MP-140: MAX_PATH_ID above 2^32-1.
    let above = [0x7e, 0x7a, 0xc0, 0, 0, 1, 0, 0, 0, 0];
    assert_closes("max", Side::Client, &above, Fault::PathIdTooLarge, 0x3e7a);
    // MP-052: truncated.
    assert_closes(
        "truncated",
        Side::Server,
        &[0x7e, 0x75, 1],
        Fault::TruncatedFrame,
        0x3e75,
    );
    // MP-104: Retire Prior To above the sequence number.
    let early = Frame::PathNewConnectionId(PathNewConnectionId {
        path_id: PathId(1),
        new_connection_id: new_cid(5, 6, [9; 8], 9),
    });
    assert_closes(
        "retire prior to",
        Side::Client,
        &bytes(&[early]),
        Fault::RetirePriorToTooLarge,
        0x3e78,
    );
    // MP-104: connection ID of length 0 and 21.
    let mut short = vec![0x7e, 0x78, 1, 5, 0, 0];
    short.extend([7; 16]);
    assert_closes(
        "empty CID",
        Side::Client,
        &short,
        Fault::ConnectionIdLength,
        0x3e78,
    );
    let mut long = vec![0x7e, 0x78, 1, 5, 0, 21];
    long.extend([7; 37]);
    assert_closes(
        "long CID",
        Side::Client,
        &long,
        Fault::ConnectionIdLength,
        0x3e78,
    );
}

/// MP-095 and MP-105.
#[test]
fn connection_id_abuse_closes_with_its_code() {
    let conflict = Fault::ConnectionIdConflict;
    let on_two_paths = Fault::ConnectionIdOnTwoPaths;
    let frame = |path, new| {
        Frame::PathNewConnectionId(PathNewConnectionId {
            path_id: PathId(path),
            new_connection_id: new,
        })
    };
    let two_tokens = [
        frame(3, new_cid(5, 5, [9; 8], 1)),
        frame(3, new_cid(5, 5, [9; 8], 2)),
    ];
    assert_closes(
        "two tokens",
        Side::Client,
        &bytes(&two_tokens),
        conflict,
        0x3e78,
    );
    let two_values = [
        frame(3, new_cid(5, 5, [9; 8], 1)),
        frame(3, new_cid(5, 5, [8; 8], 1)),
    ];
    assert_closes(
        "two values",
        Side::Client,
        &bytes(&two_values),
        conflict,
        0x3e78,
    );
    let two_paths = [
        frame(3, new_cid(5, 5, [9; 8], 1)),
        frame(4, new_cid(5, 5, [9; 8], 1)),
    ];
    assert_closes(
        "two paths",
        Side::Client,
        &bytes(&two_paths),
        on_two_paths,
        0x3e78,
    );
    let many: Vec<_> = (5..11)
        .map(|n| frame(3, new_cid(n, 0, [n as u8; 8], n as u8)))
        .collect();
    let limit = Fault::ConnectionIdsBeyondLimit;
    assert_closes("too many", Side::Client, &bytes(&many), limit, 0x3e78);
}

fn stream(stream_id: StreamId, offset: u64, data: &'static [u8], fin: bool) -> Frame {
    Frame::Stream(Stream {
        stream_id,
        offset,
        fin,
        data: bytes::Bytes::from_static(data),
    })
}

/// RFC 9000: one fault of each kind in a frame.
#[test]
fn plain_faults_close_with_their_code() {
    let id = |side, dir, index| StreamId::new(side, dir, index);
    let client_uni = id(Side::Client, Dir::Uni, 0);
    let limit = MaxStreamData {
        stream_id: client_uni,
        maximum_stream_data: 5,
    };
    let count = MaxStreams {
        dir: Dir::Bi,
        maximum_streams: 1 << 61,
    };
    let cases: Vec<(&str, Vec<Frame>, Fault, u64)> = vec![
        (
            "window",
            vec![stream(client_uni, 1 << 40, b"x", false)],
            Fault::StreamDataBeyondLimit,
            0x0c,
        ),
        (
            "stream count",
            vec![stream(id(Side::Client, Dir::Uni, 5000), 0, b"x", false)],
            Fault::StreamsBeyondLimit,
            0x08,
        ),
        (
            "final size",
            vec![
                stream(client_uni, 10, b"x", true),
                stream(client_uni, 20, b"y", false),
            ],
            Fault::FinalSizeChanged,
            0x08,
        ),
        (
            "our stream, never opened",
            vec![stream(id(Side::Server, Dir::Bi, 0), 0, b"x", false)],
            Fault::StreamNotOpened,
            0x08,
        ),
        (
            "receive-only",
            vec![Frame::MaxStreamData(limit)],
            Fault::ReceiveOnlyStream,
            0x11,
        ),
        (
            "done",
            vec![Frame::HandshakeDone],
            Fault::HandshakeDoneFromClient,
            0x1e,
        ),
        (
            "token",
            vec![Frame::NewToken(bytes::Bytes::from_static(b"t"))],
            Fault::NewTokenFromClient,
            0x07,
        ),
        (
            "count",
            vec![Frame::MaxStreams(count)],
            Fault::StreamCountTooLarge,
            0x12,
        ),
    ];
    for (name, frames, fault, frame_type) in cases {
        let payload = self::bytes(&frames);
        match attack(Side::Client, &payload) {
            Some((got, at)) => {
                assert_eq!(got, fault, "{name}");
                // STREAM has eight types; the flags depend on how it was written.
                assert_eq!(at & !0x07, frame_type & !0x07, "{name}");
            }
            None => panic!("{name}: not closed"),
        }
    }
    // RFC 9000 section 12.4: unknown frame types.
    assert_closes(
        "unknown",
        Side::Client,
        &[0x40, 0x50],
        Fault::UnknownFrameType,
        0x50,
    );
}

/// MP-051, MP-112, MP-141: not faults.
#[test]
fn stale_frames_are_ignored() {
    let mut pair = Pair::connected(&topology(), Setup::new());
    pair.open_all_paths();
    let now = pair.now();
    pair.client()
        .close_path(now, PathId(1), TransportErrorCode::NO_ERROR)
        .expect("path 1 is open");
    pair.drive(Duration::from_secs(3));
    let stale = [
        Frame::PathAbandon(PathAbandon {
            path_id: PathId(1),
            error_code: TransportErrorCode::NO_ERROR,
        }),
        path_status(PathId(1), PathStatus::Backup, 99),
        Frame::PathNewConnectionId(PathNewConnectionId {
            path_id: PathId(1),
            new_connection_id: new_cid(50, 0, [9; 8], 9),
        }),
        retire(PathId(1), 1000),
        cids_blocked(PathId(1), 1000),
        path_status(PathId::ZERO, PathStatus::Backup, 5),
        path_status(PathId::ZERO, PathStatus::Available, 5),
        path_status(PathId::ZERO, PathStatus::Available, 4),
        Frame::MaxPathId(PathId(7)),
        // PATH_ACK for the path that is gone.
    ];
    let mut payload = bytes(&stale);
    payload.extend([0x3e, 1, 0x40, 0x63, 0, 0, 0]);
    pair.client().inject(ZERO, &payload);
    pair.drive(200 * MS);
    assert_eq!(fate(&pair, Side::Server), None);
    let status = pair
        .server()
        .path_mut(PathId::ZERO)
        .expect("path 0 is open")
        .status();
    assert_eq!(status.1, Some(PathStatus::Backup));
    pair.transfer(Side::Server, 100_000, Duration::from_secs(2));
}

/// MP-002: without negotiation the types are unknown.
#[test]
fn multipath_frames_are_unknown_to_a_peer_without_multipath() {
    let setup = Setup::new().transport(|config| config.max_concurrent_paths = 0);
    let mut pair = Pair::connected(&topology(), setup);
    let payload = bytes(&[Frame::MaxPathId(PathId(9))]);
    pair.client().inject(ZERO, &payload);
    pair.drive(100 * MS);
    assert_eq!(
        fate(&pair, Side::Server),
        Some((Fault::UnknownFrameType, 0x3e7a))
    );
}

/// draft-ietf-quic-reliable-stream-reset-11 section 3: without our announcement, the frame is
/// unknown, and the peer is told not to use it.
#[test]
fn reset_stream_at_is_unknown_without_the_parameter() {
    let setup = Setup::new().transport(|config| config.reset_stream_at = false);
    let mut pair = Pair::connected(&topology(), setup);
    let id = pair.client().streams().open(Dir::Uni).expect("credit");
    let mut stream = pair.client().send_stream(id);
    assert_eq!(
        stream.reset_at(VarInt::from_u32(1), 0),
        Err(ResetAtError::UnsupportedByPeer)
    );
    let reset = ResetStreamAt {
        stream_id: id,
        error_code: 1,
        final_size: 0,
        reliable_size: 0,
    };
    let payload = bytes(&[Frame::ResetStreamAt(reset)]);
    pair.client().inject(ZERO, &payload);
    pair.drive(100 * MS);
    assert_eq!(
        fate(&pair, Side::Server),
        Some((Fault::ResetStreamAtNotNegotiated, 0x24))
    );
}

/// MP-004, RFC 9000 section 12.5: frames that may not travel in this packet type.
#[test]
fn frames_in_the_wrong_packet_type_are_violations() {
    let stream = Stream {
        stream_id: StreamId::new(Side::Client, Dir::Bi, 0),
        offset: 0,
        fin: false,
        data: bytes::Bytes::from_static(b"x"),
    };
    for (frame, frame_type) in [
        (Frame::HandshakeDone, 0x1e),
        (Frame::MaxData(9), 0x10),
        (Frame::PathChallenge([1; 8]), 0x1a),
        (Frame::Stream(stream), 0x08),
    ] {
        for space in [SpaceId::Initial, SpaceId::Handshake] {
            let mut pair = Pair::new(&topology(), Setup::new());
            pair.connect();
            let payload = bytes(std::slice::from_ref(&frame));
            pair.client().inject(space, &payload);
            pair.drive(300 * MS);
            // The server may refuse before there is a connection: ask the attacker.
            let told = told(&pair, Side::Client).unwrap_or_else(|| {
                panic!(
                    "{frame:?} in {space:?}: {:?} {:?}",
                    pair.events(Side::Client),
                    pair.events(Side::Server)
                )
            });
            let fault = Fault::FrameNotAllowed;
            assert_eq!(told.code, fault.code(), "{frame:?} in {space:?}");
            assert_eq!(told.reason, fault.reason(), "{frame:?} in {space:?}");
            assert_eq!(told.frame_type & !0x07, frame_type & !0x07);
        }
    }
}
