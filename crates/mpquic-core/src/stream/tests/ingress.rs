//! Every rule of RFC 9000 a peer may break, with the fault it is.

use super::*;
use crate::stream::ReadStreamError;
use crate::wire::frame::{MAX_STREAM_COUNT, ResetStream, StopSending};

fn reset(id: StreamId, final_size: u64) -> Frame {
    Frame::ResetStream(ResetStream {
        stream_id: id,
        error_code: 9,
        final_size,
    })
}

fn stop(id: StreamId) -> Frame {
    Frame::StopSending(StopSending {
        stream_id: id,
        error_code: 7,
    })
}

fn small() -> TransportConfig {
    checked(TransportOptions {
        initial_stream_receive_window: 100,
        initial_receive_window: 150,
        max_concurrent_bidi_streams: 2,
        max_concurrent_uni_streams: 3,
        ..options()
    })
}

/// RFC 9000 sections 19.4, 19.5, 19.8, 19.10 and 19.13.
#[test]
fn frames_for_the_wrong_kind_of_stream() {
    let config = config();
    let ours = local_uni(0);
    for frame in [
        stream_frame(ours, 0, b"x", false),
        reset(ours, 0),
        stream_data_blocked(ours, 0),
    ] {
        let mut streams = client(&config);
        streams.open(Dir::Uni).expect("credit");
        fails_with(give(&mut streams, frame), Fault::SendOnlyStream);
    }
    for frame in [stop(peer_uni(0)), max_stream_data(peer_uni(0), 1)] {
        let result = give(&mut client(&config), frame);
        fails_with(result, Fault::ReceiveOnlyStream);
    }
}

#[test]
fn frames_for_a_stream_we_have_not_opened() {
    let config = config();
    let id = StreamId::new(Side::Client, Dir::Bi, 1);
    for frame in [
        stream_frame(id, 0, b"x", false),
        reset(id, 0),
        stop(id),
        max_stream_data(id, 1),
        stream_data_blocked(id, 1),
    ] {
        let mut streams = client(&config);
        streams.open(Dir::Bi).expect("credit");
        fails_with(give(&mut streams, frame), Fault::StreamNotOpened);
    }
}

/// RFC 9000 section 4.6.
#[test]
fn more_streams_than_allowed() {
    let mut streams = client(&small());
    assert_eq!(
        give(&mut streams, stream_frame(peer_bidi(1), 0, b"", false)),
        Ok(())
    );
    assert_eq!(
        give(&mut streams, stream_frame(peer_uni(2), 0, b"", false)),
        Ok(())
    );
    let result = give(&mut streams, stop(peer_bidi(2)));
    fails_with(result, Fault::StreamsBeyondLimit);
    let result = give(&mut streams, reset(peer_uni(3), 0));
    fails_with(result, Fault::StreamsBeyondLimit);
    let last = StreamId::new(Side::Server, Dir::Uni, MAX_STREAM_COUNT - 1);
    let result = give(&mut streams, stream_frame(last, 0, b"", false));
    fails_with(result, Fault::StreamsBeyondLimit);
}

/// RFC 9000 section 4.1.
#[test]
fn more_data_than_allowed() {
    let mut streams = client(&small());
    assert_eq!(
        give(&mut streams, stream_frame(peer_uni(0), 50, &[0; 50], false)),
        Ok(())
    );
    let result = give(&mut streams, stream_frame(peer_uni(0), 100, &[0], false));
    fails_with(result, Fault::StreamDataBeyondLimit);

    // The gap below the highest offset counts: 100 bytes are used already.
    let mut streams = client(&small());
    assert_eq!(
        give(&mut streams, stream_frame(peer_uni(0), 99, &[0], false)),
        Ok(())
    );
    assert_eq!(
        give(&mut streams, stream_frame(peer_uni(1), 49, &[0], false)),
        Ok(())
    );
    let result = give(&mut streams, stream_frame(peer_uni(2), 0, &[0], false));
    fails_with(result, Fault::DataBeyondLimit);

    let mut streams = client(&small());
    let result = give(&mut streams, reset(peer_uni(0), 101));
    fails_with(result, Fault::StreamDataBeyondLimit);

    // Data for a stopped stream counts as well.
    let mut streams = client(&small());
    assert_eq!(
        give(&mut streams, stream_frame(peer_uni(0), 0, &[0; 10], false)),
        Ok(())
    );
    streams
        .recv_stream(peer_uni(0))
        .stop(code(1))
        .expect("open");
    let result = give(&mut streams, stream_frame(peer_uni(0), 100, &[0], false));
    fails_with(result, Fault::StreamDataBeyondLimit);
}

/// RFC 9000 section 4.5.
#[test]
fn the_final_size_never_changes() {
    let id = peer_uni(0);
    let first = [
        (stream_frame(id, 0, &[0; 20], true), "a FIN"),
        (reset(id, 20), "a reset"),
    ];
    for (first, what) in first {
        for second in [
            stream_frame(id, 20, &[0], false),
            stream_frame(id, 0, &[0; 21], true),
            stream_frame(id, 0, &[0; 19], true),
            reset(id, 19),
            reset(id, 21),
        ] {
            let mut streams = client(&small());
            assert_eq!(give(&mut streams, first.clone()), Ok(()));
            let result = give(&mut streams, second.clone());
            let result = result.map_err(|error| error.fault);
            let expected = Err(Fault::FinalSizeChanged);
            assert_eq!(result, expected, "{second:?} after {what}");
        }
        for harmless in [
            stream_frame(id, 5, &[0; 15], true),
            stream_frame(id, 20, &[], true),
            reset(id, 20),
        ] {
            let mut streams = client(&small());
            assert_eq!(give(&mut streams, first.clone()), Ok(()));
            assert_eq!(give(&mut streams, harmless), Ok(()));
        }
    }
    for below in [stream_frame(id, 10, &[0; 9], true), reset(id, 19)] {
        let mut streams = client(&small());
        assert_eq!(
            give(&mut streams, stream_frame(id, 19, &[0], false)),
            Ok(())
        );
        fails_with(give(&mut streams, below), Fault::FinalSizeChanged);
    }
}

/// RFC 9000 sections 19.11 and 19.14.
#[test]
fn stream_counts_that_no_stream_id_could_name() {
    let mut streams = client(&config());
    let allowed = max_streams(Dir::Bi, MAX_STREAM_COUNT);
    assert_eq!(give(&mut streams, allowed), Ok(()));
    for frame in [
        max_streams(Dir::Uni, MAX_STREAM_COUNT + 1),
        streams_blocked(Dir::Uni, MAX_STREAM_COUNT + 1),
    ] {
        fails_with(give(&mut streams, frame), Fault::StreamCountTooLarge);
    }
}

/// Gives every second piece of this length until that fails; returns how many were taken.
fn every_second_piece(streams: &mut StreamSet, length: usize, most: u64) -> (u64, Option<Fault>) {
    let piece = vec![0; length];
    for count in 0..most {
        let offset = (1 + 2 * count) * length as u64;
        let frame = stream_frame(peer_uni(0), offset, &piece, false);
        if let Err(error) = give(streams, frame) {
            return (count, Some(error.fault));
        }
    }
    (most, None)
}

/// RFC 9000 section 21.6: single bytes far apart cost their sender little and us much.
#[test]
fn gaps_are_bounded_by_the_bytes_held() {
    let config = checked(TransportOptions {
        initial_stream_receive_window: 64 << 20,
        initial_receive_window: 64 << 20,
        ..options()
    });
    let bytes = every_second_piece(&mut client(&config), 1, 1 << 20);
    assert_eq!(bytes, (4104, Some(Fault::TooManyGaps)));
    // Two long paths whose packets arrive in turns are no attack.
    let packets = every_second_piece(&mut client(&config), 1200, 27_000);
    assert_eq!(packets, (27_000, None));
}

/// The ranges that an unordered reader has read are kept in memory, so their number is bounded.
#[test]
fn gaps_that_an_unordered_reader_leaves_are_bounded() {
    let config = checked(TransportOptions {
        initial_stream_receive_window: 64 << 20,
        initial_receive_window: 64 << 20,
        ..options()
    });
    let give_and_read = |length: usize, most: u64| {
        let mut streams = client(&config);
        let piece = vec![0; length];
        for count in 0..most {
            let offset = (1 + 2 * count) * length as u64;
            if let Err(error) = give(
                &mut streams,
                stream_frame(peer_uni(0), offset, &piece, false),
            ) {
                return (count, Some(error.fault));
            }
            let mut recv = streams.recv_stream(peer_uni(0));
            assert!(matches!(recv.read_chunk(length, false), Ok(Some(_))));
        }
        (most, None)
    };
    assert_eq!(give_and_read(1, 1 << 20), (4104, Some(Fault::TooManyGaps)));
    assert_eq!(give_and_read(1200, 27_000), (27_000, None));
}

/// Opening streams only to reset them costs a peer little, and an application much.
#[test]
fn resets_are_bounded() {
    const STREAMS: u64 = 20_000;
    let config = checked(TransportOptions {
        max_concurrent_uni_streams: STREAMS,
        ..options()
    });
    let mut streams = client(&config);
    let mut now = crate::recovery::testing::start();
    let mut next = 0;
    let mut reset_until_fault = |now| {
        let first = next;
        loop {
            let frame = ResetStream {
                stream_id: peer_uni(next),
                error_code: 9,
                final_size: 0,
            };
            next += 1;
            if let Err(error) = streams.on_reset_stream(&frame, now) {
                return (next - first - 1, error.fault);
            }
        }
    };
    assert_eq!(reset_until_fault(now), (10_000, Fault::TooManyResets));
    now += Duration::from_millis(100);
    assert_eq!(reset_until_fault(now), (100, Fault::TooManyResets));
}

/// The peer gets no streams in exchange for streams that nobody accepted.
#[test]
fn streams_reset_at_once_are_replaced_once_they_were_taken() {
    let mut streams = client(&small());
    for index in 0..3 {
        assert_eq!(give(&mut streams, reset(peer_uni(index), 0)), Ok(()));
    }
    let gives_streams = |streams: &mut StreamSet| {
        let sent = drain(streams);
        sent.iter()
            .any(|frame| matches!(frame, Frame::MaxStreams(_)))
    };
    assert!(!gives_streams(&mut streams));
    let id = streams.accept(Dir::Uni).expect("a stream");
    assert!(!gives_streams(&mut streams));
    assert_eq!(streams.recv_stream(id).received_reset(), Ok(Some(code(9))));
    assert!(gives_streams(&mut streams));
}

/// A peer with repetitions sends no bytes that we would have to hold.
#[test]
fn duplicates_do_not_widen_receive_windows() {
    let config = config();
    let mut streams = client(&config);
    let mut now = crate::recovery::testing::start();
    let mut give_again = |streams: &mut StreamSet, length: usize| {
        let Frame::Stream(frame) = stream_frame(peer_uni(0), 0, &vec![7; length], false) else {
            unreachable!("it is a STREAM frame");
        };
        now += Duration::from_millis(1);
        let rtt = || Duration::from_millis(50);
        assert_eq!(streams.receive(frame, length, now, rtt), Ok(()));
    };
    for _ in 0..10_000 {
        give_again(&mut streams, 20_000);
    }
    let windows = |streams: &StreamSet| {
        (
            streams.receive_windows.credit.window(),
            streams.receive_windows.stream(),
        )
    };
    let initial = (
        config.initial_receive_window,
        config.initial_stream_receive_window,
    );
    assert_eq!(windows(&streams), initial);
    // New bytes do.
    for length in (60_000..1_000_000).step_by(60_000) {
        give_again(&mut streams, length);
    }
    for _ in 0..100 {
        give_again(&mut streams, 1);
    }
    assert!(windows(&streams) > initial, "{:?}", windows(&streams));
}

/// Fast arrival and STREAM_DATA_BLOCKED do not widen the window of an unread stream.
#[test]
fn the_window_of_a_stream_does_not_grow_while_it_is_not_read() {
    let mut streams = client(&small());
    let id = peer_uni(0);
    let first = stream_frame(id, 0, &[0; 100], false);
    assert_eq!(give(&mut streams, first), Ok(()));
    streams.set_receive_window_target(1000);
    let blocked = stream_data_blocked(id, 100);
    assert_eq!(give(&mut streams, blocked.clone()), Ok(()));
    assert_eq!(drain(&mut streams), [Frame::MaxData(1000)]);
    let read = |streams: &mut StreamSet| streams.recv_stream(id).read_chunk(10, true).is_ok();
    assert!(read(&mut streams));
    assert_eq!(drain(&mut streams), [max_stream_data(id, 1010)]);
    // Nor because the peer asks again while the reader pauses.
    streams.set_receive_window_target(2000);
    assert_eq!(give(&mut streams, blocked), Ok(()));
    assert_eq!(drain(&mut streams), [Frame::MaxData(2010)]);
}

/// A gap may last several round trips; meanwhile the reader counts as waiting.
#[test]
fn the_window_of_a_stream_grows_while_its_reader_waits_for_a_gap() {
    let mut streams = client(&small());
    let id = peer_uni(0);
    streams.set_receive_window_target(1000);
    let blocked = stream_data_blocked(id, 100);
    // Before anything arrived, and before anybody has come to read.
    assert_eq!(give(&mut streams, blocked.clone()), Ok(()));
    let beyond = stream_frame(id, 1, &[0; 99], false);
    assert_eq!(give(&mut streams, beyond), Ok(()));
    assert_eq!(give(&mut streams, blocked.clone()), Ok(()));
    assert_eq!(drain(&mut streams), [Frame::MaxData(1000)]);
    let nothing = streams.recv_stream(id).read_chunk(10, true);
    assert!(nothing.is_err());
    assert_eq!(give(&mut streams, blocked), Ok(()));
    assert_eq!(drain(&mut streams), [max_stream_data(id, 1000)]);
}

#[test]
fn frames_for_closed_streams_are_old_news() {
    let mut streams = client(&small());
    let id = peer_uni(0);
    let data = stream_frame(id, 0, &[1; 5], true);
    assert_eq!(give(&mut streams, data.clone()), Ok(()));
    assert_eq!(streams.accept(Dir::Uni), Some(id));
    assert!(matches!(
        streams.recv_stream(id).read_chunk(9, true),
        Ok(Some(_))
    ));
    assert!(matches!(
        streams.recv_stream(id).read_chunk(9, true),
        Ok(None)
    ));
    assert_eq!(streams.open_halves(), (0, 0));
    for frame in [data, reset(id, 5), stream_data_blocked(id, 3)] {
        assert_eq!(give(&mut streams, frame), Ok(()));
    }
    assert_eq!(streams.open_halves(), (0, 0));
}

#[test]
fn lower_streams_are_opened_with_a_higher_one() {
    let mut streams = client(&config());
    assert_eq!(
        give(&mut streams, stream_frame(peer_bidi(2), 0, b"x", false)),
        Ok(())
    );
    let expected = [
        StreamEvent::Opened { dir: Dir::Bi },
        StreamEvent::Readable { id: peer_bidi(2) },
    ];
    assert_eq!(events(&mut streams), expected);
    assert_eq!(streams.open_halves(), (0, 1), "only what is used is kept");
    for index in 0..3 {
        assert_eq!(streams.accept(Dir::Bi), Some(peer_bidi(index)));
    }
    assert_eq!(streams.accept(Dir::Bi), None);
    assert_eq!(streams.open_halves(), (3, 1));
    // RFC 9000 section 19.5: STOP_SENDING opens a stream, too.
    assert_eq!(give(&mut streams, stop(peer_bidi(4))), Ok(()));
    assert_eq!(streams.open_halves(), (4, 1));
    // An unused half counts like a used one.
    let unused = peer_bidi(3);
    let blocked = streams.recv_stream(unused).read_chunk(9, true);
    assert_eq!(blocked, Err(ReadStreamError::Blocked));
    assert_eq!(streams.send_stream(unused).write(b"x"), Ok(1));
    assert_eq!(streams.open_halves(), (5, 2));
    streams
        .recv_stream(peer_bidi(4))
        .stop(code(1))
        .expect("open");
    assert_eq!(streams.open_halves(), (5, 3));
}

#[test]
fn a_blocked_peer_gets_the_available_credit() {
    let mut streams = client(&small());
    let id = peer_uni(0);
    assert_eq!(
        give(&mut streams, stream_frame(id, 0, &[0; 100], false)),
        Ok(())
    );
    assert!(matches!(
        streams.recv_stream(id).read_chunk(10, true),
        Ok(Some(_))
    ));
    assert!(!streams.wants_control(), "a tenth is not worth a frame");
    assert_eq!(give(&mut streams, Frame::DataBlocked(150)), Ok(()));
    assert_eq!(give(&mut streams, stream_data_blocked(id, 100)), Ok(()));
    let expected = [Frame::MaxData(160), max_stream_data(id, 110)];
    assert_eq!(drain(&mut streams), expected);
    // Asking again changes nothing.
    assert_eq!(give(&mut streams, Frame::DataBlocked(150)), Ok(()));
    assert!(!streams.wants_control());
}
