//! RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-11): the beginning of a stream arrives
//! although the stream is reset.

use quinn_proto::WriteError;

use super::*;
use crate::stream::{ReadStreamError, ResetAtError};
use crate::wire::frame::{ResetStream, ResetStreamAt, StopSending};

fn cut(id: StreamId, error_code: u64, final_size: u64, reliable_size: u64) -> Frame {
    Frame::ResetStreamAt(ResetStreamAt {
        stream_id: id,
        error_code,
        final_size,
        reliable_size,
    })
}

fn whole(id: StreamId, error_code: u64, final_size: u64) -> Frame {
    Frame::ResetStream(ResetStream {
        stream_id: id,
        error_code,
        final_size,
    })
}

/// A client with one stream of its own and `bytes` written bytes.
fn writing(bytes: u64) -> (StreamSet, StreamId) {
    let mut client = client(&config());
    let id = client.open(Dir::Uni).expect("credit");
    let mut stream = client.send_stream(id);
    assert_eq!(stream.write(&bytes_of(0..bytes)), Ok(bytes as usize));
    (client, id)
}

/// A client to which the server has sent bytes on its first stream.
fn reading(bytes: u64) -> (StreamSet, StreamId) {
    let mut client = client(&config());
    let id = peer_uni(0);
    give(&mut client, stream_frame(id, 0, &bytes_of(0..bytes), false)).expect("valid");
    (client, id)
}

/// Reads to the end, and returns the number of bytes and the error, if any.
fn read(streams: &mut StreamSet, id: StreamId, ordered: bool) -> (u64, Option<ReadStreamError>) {
    let mut bytes = 0;
    loop {
        match streams.recv_stream(id).read_chunk(100, ordered) {
            Ok(Some(chunk)) => bytes += chunk.bytes.len() as u64,
            Ok(None) => return (bytes, None),
            Err(error) => return (bytes, Some(error)),
        }
    }
}

fn resets(frames: &[Frame]) -> Vec<Frame> {
    let is_reset =
        |frame: &&Frame| matches!(frame, Frame::ResetStream(_) | Frame::ResetStreamAt(_));
    frames.iter().filter(is_reset).cloned().collect()
}

fn data_bytes(frames: &[Frame]) -> u64 {
    let lengths = frames.iter().map(|frame| match frame {
        Frame::Stream(stream) => stream.data.len() as u64,
        _ => 0,
    });
    lengths.sum()
}

/// Section 5: unsent bytes beyond the reliable size are never sent. The frame leaves after the
/// reliable bytes, because its final size needs flow control credit.
#[test]
fn section_4_the_frame_waits_for_the_reliable_bytes() {
    let (mut client, id) = writing(5000);
    let first = next_packet(&mut client, 1000).expect("data");
    assert_eq!(client.send_stream(id).reset_at(code(7), 3000), Ok(()));
    assert_eq!(
        client.send_stream(id).write(b"x"),
        Err(WriteError::ClosedStream)
    );
    assert!(client.send_stream(id).finish().is_err());
    let mut frames = first.frames();
    frames.extend(drain(&mut client));
    assert_eq!(data_bytes(&frames), 3000);
    assert!(
        frames
            .iter()
            .all(|frame| !matches!(frame, Frame::Stream(stream) if stream.fin))
    );
    assert_eq!(resets(&frames), [cut(id, 7, 3000, 3000)]);
}

#[test]
fn section_4_no_frame_exceeds_the_peers_limits() {
    let (mut client, _) = writing(5000);
    client.on_zero_rtt_rejected();
    let parameters = TransportParameters {
        initial_max_data: 2000,
        initial_max_stream_data_uni: 4000,
        ..parameters(&config())
    };
    client.set_peer_parameters(&parameters);
    let id = client.open(Dir::Uni).expect("credit");
    assert_eq!(client.send_stream(id).write(&[0; 5000]), Ok(4000));
    assert_eq!(client.send_stream(id).reset_at(code(7), 3000), Ok(()));
    let frames = drain(&mut client);
    assert_eq!((data_bytes(&frames), resets(&frames)), (2000, vec![]));
    client.on_max_data(2999);
    assert_eq!(resets(&drain(&mut client)), []);
    client.on_max_data(9000);
    assert_eq!(resets(&drain(&mut client)), [cut(id, 7, 3000, 3000)]);
}

/// Section 5: lost bytes are sent again only below the reliable size.
#[test]
fn section_5_only_the_beginning_is_sent_again() {
    let (mut client, id) = writing(3000);
    let packets: Vec<_> = std::iter::from_fn(|| next_packet(&mut client, 1000)).collect();
    assert_eq!(client.send_stream(id).reset_at(code(7), 1500), Ok(()));
    let reset = next_packet(&mut client, 1000).expect("a reset");
    assert_eq!(reset.frames(), [cut(id, 7, 3000, 1500)]);
    for packet in &packets {
        packet.report(&mut client, Fate::Lost);
    }
    reset.report(&mut client, Fate::Lost);
    let again = next_packet(&mut client, 2000).expect("both");
    assert_eq!(data_bytes(&again.frames()), 1500);
    assert_eq!(resets(&again.frames()), [cut(id, 7, 3000, 1500)]);
    assert!(next_packet(&mut client, 2000).is_none());
    again.report(&mut client, Fate::Acked);
    assert!(client.is_idle());
}

/// Section 5.3: done once both the frame and the bytes are acknowledged.
#[test]
fn section_5_3_the_half_ends_with_the_last_acknowledgement() {
    for reset_first in [true, false] {
        let (mut client, id) = writing(900);
        let data = next_packet(&mut client, 1000).expect("data");
        assert_eq!(client.send_stream(id).reset_at(code(7), 500), Ok(()));
        let reset = next_packet(&mut client, 1000).expect("a reset");
        let (one, other) = if reset_first {
            (&reset, &data)
        } else {
            (&data, &reset)
        };
        one.report(&mut client, Fate::Acked);
        assert_eq!(client.open_halves().0, 1);
        other.report(&mut client, Fate::Acked);
        assert!(client.is_idle());
        assert_eq!(events(&mut client), [StreamEvent::ResetReceived { id }]);
        assert_eq!(
            client.send_stream(id).reset_at(code(7), 0),
            Err(ResetAtError::ClosedStream)
        );
    }
}

#[test]
fn section_5_2_the_reliable_size_may_shrink_and_never_grow() {
    let (mut client, id) = writing(900);
    let mut stream = client.send_stream(id);
    assert_eq!(stream.reset_at(code(7), 901), Err(ResetAtError::TooLong));
    assert_eq!(stream.reset_at(code(7), 900), Ok(()));
    assert_eq!(
        stream.reset_at(code(7), 900),
        Err(ResetAtError::ClosedStream)
    );
    let first = next_packet(&mut client, 2000).expect("data");
    let second = next_packet(&mut client, 2000).expect("the reset");
    assert_eq!(resets(&second.frames()), [cut(id, 7, 900, 900)]);
    // The code and the final size stay.
    assert_eq!(client.send_stream(id).reset_at(code(8), 200), Ok(()));
    assert_eq!(
        client.send_stream(id).reset_at(code(8), 300),
        Err(ResetAtError::ClosedStream)
    );
    let third = next_packet(&mut client, 2000).expect("another reset");
    assert_eq!(third.frames(), [cut(id, 7, 900, 200)]);
    // An acknowledgement of an earlier frame does not end the sending half.
    first.report(&mut client, Fate::Acked);
    second.report(&mut client, Fate::Acked);
    assert_eq!(client.open_halves().0, 1);
    assert_eq!(client.send_stream(id).reset(code(9)), Ok(()));
    let fourth = next_packet(&mut client, 2000).expect("a plain reset");
    assert_eq!(fourth.frames(), [whole(id, 7, 900)]);
    second.report(&mut client, Fate::Lost);
    third.report(&mut client, Fate::Lost);
    assert!(next_packet(&mut client, 2000).is_none());
    fourth.report(&mut client, Fate::Lost);
    assert_eq!(drain(&mut client), [whole(id, 7, 900)]);
}

#[test]
fn section_5_1_a_finished_stream_can_be_reset() {
    let (mut client, id) = writing(900);
    client.send_stream(id).finish().expect("open");
    let data = next_packet(&mut client, 2000).expect("data");
    assert_eq!(client.send_stream(id).reset_at(code(7), 100), Ok(()));
    assert_eq!(drain(&mut client), [cut(id, 7, 900, 100)]);
    data.report(&mut client, Fate::Lost);
    let again = drain(&mut client);
    assert_eq!(again, [stream_frame(id, 0, &bytes_of(0..100), false)]);
}

/// Section 5.4: after STOP_SENDING, not even the beginning is delivered.
#[test]
fn section_5_4_stop_sending_is_answered_with_a_plain_reset() {
    let (mut client, id) = writing(900);
    let data = next_packet(&mut client, 2000).expect("data");
    assert_eq!(client.send_stream(id).reset_at(code(7), 500), Ok(()));
    assert_eq!(drain(&mut client), [cut(id, 7, 900, 500)]);
    let stop = Frame::StopSending(StopSending {
        stream_id: id,
        error_code: 3,
    });
    give(&mut client, stop).expect("valid");
    assert_eq!(drain(&mut client), [whole(id, 7, 900)]);
    data.report(&mut client, Fate::Lost);
    assert!(drain(&mut client).is_empty());
    assert_eq!(events(&mut client), [], "the application had given it up");
}

#[test]
fn section_3_a_peer_without_the_parameter_gets_no_frame() {
    let config = config();
    let mut client = StreamSet::new(Side::Client, &config, crate::recovery::testing::start());
    client.set_peer_parameters(&TransportParameters {
        reset_stream_at: false,
        ..parameters(&config)
    });
    let id = client.open(Dir::Uni).expect("credit");
    assert_eq!(
        client.send_stream(id).reset_at(code(7), 0),
        Err(ResetAtError::UnsupportedByPeer)
    );
}

/// The reliable bytes are read before the reset, in whichever order the frames arrive.
#[test]
fn section_5_the_beginning_is_read_before_the_reset() {
    let reset = Some(ReadStreamError::Reset(code(9)));
    for ordered in [true, false] {
        let (mut client, id) = reading(300);
        give(&mut client, cut(id, 9, 1000, 600)).expect("valid");
        let blocked = Some(ReadStreamError::Blocked);
        assert_eq!(read(&mut client, id, ordered), (300, blocked));
        events(&mut client);
        give(
            &mut client,
            stream_frame(id, 400, &bytes_of(400..800), false),
        )
        .expect("valid");
        if !ordered {
            assert_eq!(
                read(&mut client, id, ordered),
                (200, blocked),
                "nothing beyond 600"
            );
        }
        give(
            &mut client,
            stream_frame(id, 300, &bytes_of(300..400), false),
        )
        .expect("valid");
        assert_eq!(
            events(&mut client).last(),
            Some(&StreamEvent::Readable { id })
        );
        let left = if ordered { 300 } else { 100 };
        assert_eq!(read(&mut client, id, ordered), (left, reset));
        // All flow control credit has returned, also that of bytes that never arrived.
        assert_eq!(client.receive_windows.credit.held(), 0);
        assert_eq!(client.receive_windows.credit.received(), 1000);
        assert!(client.recv_stream(id).read_chunk(1, ordered).is_err());
        assert_eq!(client.open_halves().1, 0);
    }
}

/// A reader that has read all reliable bytes learns of the reset at once.
#[test]
fn section_5_reset_after_the_last_reliable_byte_is_reported_at_once() {
    let (mut client, id) = reading(300);
    assert_eq!(
        read(&mut client, id, true),
        (300, Some(ReadStreamError::Blocked))
    );
    events(&mut client);
    give(&mut client, cut(id, 9, 1000, 300)).expect("valid");
    assert_eq!(events(&mut client), [StreamEvent::Readable { id }]);
    let reset = Some(ReadStreamError::Reset(code(9)));
    assert_eq!(read(&mut client, id, true), (0, reset));
    assert_eq!(client.receive_windows.credit.held(), 0);
}

#[test]
fn section_5_2_a_smaller_size_counts_and_a_larger_one_does_not() {
    let reset = Some(ReadStreamError::Reset(code(9)));
    let (mut client, id) = reading(300);
    for size in [700, 300, 600] {
        give(&mut client, cut(id, 9, 1000, size)).expect("valid");
    }
    assert_eq!(read(&mut client, id, true), (300, reset));
    // RESET_STREAM counts as a reliable size of 0.
    let (mut client, id) = reading(300);
    give(&mut client, cut(id, 9, 1000, 700)).expect("valid");
    give(&mut client, whole(id, 9, 1000)).expect("valid");
    give(&mut client, cut(id, 9, 1000, 800)).expect("valid");
    assert_eq!(read(&mut client, id, true), (0, reset));
    // A reliable size of 0 also discards all data.
    let (mut client, id) = reading(300);
    give(&mut client, cut(id, 9, 1000, 0)).expect("valid");
    assert_eq!(read(&mut client, id, true), (0, reset));
    assert_eq!(client.receive_windows.credit.held(), 0);
}

#[test]
fn section_5_2_a_second_reset_says_the_same() {
    let id = peer_uni(0);
    for (frame, fault) in [
        (cut(id, 8, 1000, 300), Some(Fault::ResetCodeChanged)),
        (whole(id, 8, 1000), Some(Fault::ResetCodeChanged)),
        (cut(id, 9, 1001, 300), Some(Fault::FinalSizeChanged)),
        (whole(id, 9, 999), Some(Fault::FinalSizeChanged)),
        (stream_frame(id, 1000, b"", true), None),
        (
            stream_frame(id, 998, b"x", true),
            Some(Fault::FinalSizeChanged),
        ),
        (
            stream_frame(id, 1000, b"x", false),
            Some(Fault::FinalSizeChanged),
        ),
    ] {
        let (mut client, _) = reading(300);
        give(&mut client, cut(id, 9, 1000, 700)).expect("valid");
        let result = give(&mut client, frame);
        assert_eq!(result.err().map(|error| error.fault), fault);
    }
}

#[test]
fn section_4_the_final_size_counts_for_flow_control() {
    let config = checked(TransportOptions {
        initial_stream_receive_window: 100,
        initial_receive_window: 150,
        ..options()
    });
    let id = peer_uni(0);
    let mut streams = client(&config);
    fails_with(
        give(&mut streams, cut(id, 9, 101, 1)),
        Fault::StreamDataBeyondLimit,
    );
    give(&mut streams, cut(id, 9, 100, 1)).expect("within both limits");
    let second = cut(peer_uni(1), 9, 51, 1);
    fails_with(give(&mut streams, second), Fault::DataBeyondLimit);
}

/// After `stop`, the reset ends the receiving half although reliable bytes are missing.
#[test]
fn a_stopped_stream_ends_with_the_reset() {
    let (mut client, id) = reading(300);
    client.recv_stream(id).stop(code(1)).expect("open");
    give(&mut client, cut(id, 9, 1000, 700)).expect("valid");
    assert_eq!(client.open_halves().1, 0);
    assert_eq!(client.receive_windows.credit.held(), 0);
}

/// draft-ietf-quic-reliable-stream-reset-11 section 3: a side that does not announce the parameter
/// still takes RESET_STREAM.
#[test]
fn side_without_reset_stream_at_takes_plain_resets() {
    let mut options = options();
    options.reset_stream_at = false;
    let mut client = client(&checked(options));
    let id = peer_uni(0);
    give(&mut client, stream_frame(id, 0, &bytes_of(0..10), false)).expect("valid");
    let refused = give(&mut client, cut(id, 7, 10, 5)).expect_err("not announced");
    assert_eq!(refused.fault, Fault::ResetStreamAtNotNegotiated);
    give(&mut client, whole(id, 7, 10)).expect("valid");
    let code = VarInt::from_u32(7);
    let end = read(&mut client, id, true).1;
    assert_eq!(end, Some(ReadStreamError::Reset(code)));
}
