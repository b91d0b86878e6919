//! From open to freed: states of RFC 9000 section 3, and what the application hears.

use quinn_proto::{FinishError, WriteError};

use super::*;
use crate::stream::ReadStreamError;

/// Exchanges packets without loss until neither side has anything to say.
fn settle(a: &mut StreamSet, b: &mut StreamSet) {
    loop {
        let packets = (next_packet(a, 1200), next_packet(b, 1200));
        if let Some(packet) = &packets.0 {
            packet.give_to(b).expect("a keeps the rules");
            packet.report(a, Fate::Acked);
        }
        if let Some(packet) = &packets.1 {
            packet.give_to(a).expect("b keeps the rules");
            packet.report(b, Fate::Acked);
        }
        if packets.0.is_none() && packets.1.is_none() {
            return;
        }
    }
}

fn read_all(streams: &mut StreamSet, id: StreamId) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some(chunk) = streams.recv_stream(id).read_chunk(777, true).expect("data") {
        data.extend_from_slice(&chunk.bytes);
    }
    data
}

#[test]
fn a_request_and_its_answer_leave_nothing_behind() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Bi).expect("credit");
    assert_eq!(client.send_stream(id).write(&bytes_of(0..5000)), Ok(5000));
    assert_eq!(client.send_stream(id).finish(), Ok(()));
    assert_eq!(
        client.send_stream(id).finish(),
        Err(FinishError::ClosedStream)
    );
    assert_eq!(
        client.send_stream(id).write(b"x"),
        Err(WriteError::ClosedStream)
    );
    settle(&mut client, &mut server);
    assert_eq!(events(&mut client), [StreamEvent::Finished { id }]);
    let expected = [
        StreamEvent::Opened { dir: Dir::Bi },
        StreamEvent::Readable { id },
    ];
    assert_eq!(events(&mut server), expected);
    assert_eq!(server.accept(Dir::Bi), Some(id));
    assert_eq!(read_all(&mut server, id), bytes_of(0..5000));
    let mut answer = [Bytes::from(bytes_of(0..3000))];
    let written = server.send_stream(id).write_chunks(&mut answer);
    assert_eq!(written.map(|w| (w.bytes, w.chunks)), Ok((3000, 1)));
    server.send_stream(id).finish().expect("open");
    settle(&mut client, &mut server);
    assert_eq!(read_all(&mut client, id), bytes_of(0..3000));
    settle(&mut client, &mut server);
    assert!(client.is_idle() && server.is_idle());
    assert!(client.recv_stream(id).read_chunk(1, true).is_err());
    assert!(client.send_stream(id).stopped().is_err());
    assert!(client.send_stream(id).reset(code(0)).is_err());
    assert!(client.recv_stream(id).stop(code(0)).is_err());
}

#[test]
fn closed_streams_make_room_for_new_ones() {
    let config = checked(TransportOptions {
        max_concurrent_uni_streams: 4,
        ..options()
    });
    let (mut client, mut server) = pair(&config);
    let mut served = 0;
    for _ in 0..100 {
        while let Some(id) = client.open(Dir::Uni) {
            client.send_stream(id).write(b"hello").expect("room");
            client.send_stream(id).finish().expect("open");
        }
        settle(&mut client, &mut server);
        while let Some(id) = server.accept(Dir::Uni) {
            assert_eq!(read_all(&mut server, id), b"hello");
            served += 1;
        }
        settle(&mut client, &mut server);
        let events = events(&mut client);
        assert!(events.contains(&StreamEvent::Available { dir: Dir::Uni }));
    }
    assert_eq!(served, 400);
    assert!(client.is_idle() && server.is_idle());
}

#[test]
fn a_reset_discards_and_gives_credit_back() {
    let config = checked(TransportOptions {
        initial_stream_receive_window: 1000,
        initial_receive_window: 1000,
        ..options()
    });
    let (mut client, mut server) = pair(&config);
    for round in 0..5 {
        let id = client.open(Dir::Uni).expect("credit");
        assert_eq!(
            client.send_stream(id).write(&[0; 2000]),
            Ok(1000),
            "round {round}"
        );
        settle(&mut client, &mut server);
        client.send_stream(id).reset(code(42)).expect("open");
        assert_eq!(
            client.send_stream(id).reset(code(43)),
            Err(Default::default())
        );
        assert_eq!(
            client.send_stream(id).write(b"x"),
            Err(WriteError::ClosedStream)
        );
        settle(&mut client, &mut server);
        assert_eq!(server.accept(Dir::Uni), Some(id));
        let read = server.recv_stream(id).read_chunk(1, true);
        assert_eq!(read.map(|_| ()), Err(ReadStreamError::Reset(code(42))));
        let read = server.recv_stream(id).read_chunk(1, true);
        assert_eq!(read.map(|_| ()), Err(ReadStreamError::ClosedStream));
        settle(&mut client, &mut server);
        assert!(client.is_idle() && server.is_idle());
        // Only the first reset or read of each stream is of interest here.
        events(&mut client);
    }
}

/// RFC 9000 section 3.2: a reset after all data changes nothing.
#[test]
fn data_that_arrived_in_full_survives_a_reset() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Uni).expect("credit");
    client.send_stream(id).write(b"all").expect("room");
    client.send_stream(id).finish().expect("open");
    let packet = next_packet(&mut client, 1200).expect("data");
    packet.give_to(&mut server).expect("valid");
    client
        .send_stream(id)
        .reset(code(1))
        .expect("not acknowledged yet");
    settle(&mut client, &mut server);
    assert_eq!(read_all(&mut server, id), b"all");
    assert!(client.is_idle() && server.is_idle());
}

/// RFC 9000 section 3.5.
#[test]
fn stop_sending_is_answered_with_a_reset() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Uni).expect("credit");
    client.send_stream(id).write(&[0; 3000]).expect("room");
    settle(&mut client, &mut server);
    client.send_stream(id).write(&[0; 3000]).expect("room");
    server.recv_stream(id).stop(code(5)).expect("open");
    assert_eq!(
        server.recv_stream(id).stop(code(5)),
        Err(Default::default())
    );
    let read = server.recv_stream(id).read_chunk(1, true);
    assert_eq!(read.map(|_| ()), Err(ReadStreamError::ClosedStream));
    settle(&mut client, &mut server);
    let error_code = code(5);
    assert_eq!(
        events(&mut client),
        [StreamEvent::Stopped { id, error_code }]
    );
    // The server is done; the client's half waits until the application knows.
    assert_eq!(server.open_halves(), (0, 0));
    assert_eq!(client.open_halves(), (1, 0));
    assert_eq!(client.send_stream(id).stopped(), Ok(Some(code(5))));
    let error = client.send_stream(id).write(b"x");
    assert_eq!(error, Err(WriteError::Stopped(code(5))));
    assert!(client.is_idle());
    assert_eq!(
        client.send_stream(id).write(b"x"),
        Err(WriteError::ClosedStream)
    );
    settle(&mut client, &mut server);
    assert!(server.is_idle());
}

#[test]
fn stopping_a_finished_stream_leaks_nothing() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Uni).expect("credit");
    client.send_stream(id).write(&[0; 3000]).expect("room");
    client.send_stream(id).finish().expect("open");
    let first = next_packet(&mut client, 1200).expect("data");
    first.give_to(&mut server).expect("valid");
    server.recv_stream(id).stop(code(5)).expect("open");
    settle(&mut client, &mut server);
    assert!(client.is_idle() && server.is_idle());
}

#[test]
fn stopping_after_the_end_is_known_needs_no_frame() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Uni).expect("credit");
    client.send_stream(id).write(b"bye").expect("room");
    client.send_stream(id).finish().expect("open");
    settle(&mut client, &mut server);
    server.recv_stream(id).stop(code(5)).expect("open");
    assert_eq!(server.open_halves(), (0, 0));
    let frames = drain(&mut server);
    assert!(!frames.iter().any(|f| matches!(f, Frame::StopSending(_))));
}

#[test]
fn an_empty_stream_is_a_bare_fin() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Uni).expect("credit");
    assert_eq!(client.send_stream(id).write(b""), Ok(0));
    assert!(!client.wants_data());
    client.send_stream(id).finish().expect("open");
    assert!(client.can_send_data());
    settle(&mut client, &mut server);
    assert_eq!(read_all(&mut server, id), b"");
    settle(&mut client, &mut server);
    assert!(client.is_idle() && server.is_idle());
}

#[test]
fn readers_are_told_once_until_they_find_nothing() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Uni).expect("credit");
    for _ in 0..3 {
        client.send_stream(id).write(b"x").expect("room");
        settle(&mut client, &mut server);
    }
    let told = |streams: &mut StreamSet| {
        let readable = StreamEvent::Readable { id };
        events(streams)
            .into_iter()
            .filter(|e| *e == readable)
            .count()
    };
    assert_eq!(told(&mut server), 1);
    while server.recv_stream(id).read_chunk(9, true).is_ok() {}
    client.send_stream(id).write(b"y").expect("room");
    settle(&mut client, &mut server);
    assert_eq!(told(&mut server), 1);
}

#[test]
fn unordered_reads_give_available_data() {
    let mut streams = client(&config());
    let id = peer_uni(0);
    give(&mut streams, stream_frame(id, 10, &bytes_of(10..20), true)).expect("valid");
    let read = streams.recv_stream(id).read_chunk(99, true);
    assert_eq!(read.map(|_| ()), Err(ReadStreamError::Blocked));
    let chunk = streams
        .recv_stream(id)
        .read_chunk(99, false)
        .expect("bytes")
        .expect("bytes");
    assert_eq!((chunk.offset, chunk.bytes.len()), (10, 10));
    events(&mut streams);
    let read = streams.recv_stream(id).read_chunk(99, false);
    assert_eq!(read.map(|_| ()), Err(ReadStreamError::Blocked));
    let read = streams.recv_stream(id).read_chunk(99, true);
    assert_eq!(read.map(|_| ()), Err(ReadStreamError::IllegalOrderedRead));
    give(&mut streams, stream_frame(id, 0, &bytes_of(0..15), false)).expect("valid");
    assert_eq!(events(&mut streams), [StreamEvent::Readable { id }]);
    let chunk = streams
        .recv_stream(id)
        .read_chunk(99, false)
        .expect("bytes")
        .expect("bytes");
    assert_eq!((chunk.offset, chunk.bytes.len()), (0, 10));
    assert!(matches!(
        streams.recv_stream(id).read_chunk(99, false),
        Ok(None)
    ));
    assert_eq!(streams.open_halves(), (0, 0));
}

/// RFC 9001 section 4.6.2.
#[test]
fn rejected_zero_rtt_never_happened() {
    let config = config();
    let (mut client, mut server) = pair(&config);
    for _ in 0..3 {
        let id = client.open(Dir::Bi).expect("credit");
        client.send_stream(id).write(&[1; 5000]).expect("room");
    }
    let lost = next_packet(&mut client, 1200).expect("data");
    client.on_zero_rtt_rejected();
    assert!(client.is_idle());
    assert_eq!(client.queue_view().unsent, 0);
    assert_eq!(
        client.open(Dir::Bi),
        None,
        "the remembered limits do not hold"
    );
    client.set_peer_parameters(&parameters(&config));
    let id = client.open(Dir::Bi).expect("credit");
    assert_eq!(id.index(), 0);
    client.send_stream(id).write(b"again").expect("room");
    client.send_stream(id).finish().expect("open");
    // Fates of packets sent before are harmless.
    lost.report(&mut client, Fate::Lost);
    settle(&mut client, &mut server);
    assert_eq!(read_all(&mut server, id), b"again");
}

#[test]
fn parameters_after_zero_rtt_raise_the_limits_of_open_streams() {
    let remembered = checked(TransportOptions {
        initial_stream_receive_window: 10,
        initial_receive_window: 10,
        max_concurrent_bidi_streams: 1,
        ..options()
    });
    let mut streams = client(&remembered);
    let id = streams.open(Dir::Bi).expect("credit");
    assert_eq!(streams.send_stream(id).write(&[0; 20]), Ok(10));
    assert_eq!(
        streams.send_stream(id).write(&[0; 10]),
        Err(WriteError::Blocked)
    );
    assert_eq!(streams.open(Dir::Bi), None);
    streams.set_peer_parameters(&parameters(&config()));
    let expected = [
        StreamEvent::Available { dir: Dir::Bi },
        StreamEvent::Writable { id },
    ];
    assert_eq!(events(&mut streams), expected);
    assert_eq!(streams.send_stream(id).write(&[0; 10]), Ok(10));
    assert!(streams.open(Dir::Bi).is_some());
}

#[test]
fn ten_thousand_streams_come_and_go() {
    let config = checked(TransportOptions {
        max_concurrent_bidi_streams: 10_000,
        ..options()
    });
    let (mut client, mut server) = pair(&config);
    for _ in 0..3 {
        while let Some(id) = client.open(Dir::Bi) {
            client.send_stream(id).write(b"ping").expect("room");
            client.send_stream(id).finish().expect("open");
        }
        settle(&mut client, &mut server);
        while let Some(id) = server.accept(Dir::Bi) {
            assert_eq!(read_all(&mut server, id), b"ping");
            server.send_stream(id).write(b"pong").expect("room");
            server.send_stream(id).finish().expect("open");
        }
        settle(&mut client, &mut server);
        for event in events(&mut client) {
            if let StreamEvent::Readable { id } = event {
                assert_eq!(read_all(&mut client, id), b"pong");
            }
        }
        settle(&mut client, &mut server);
        assert!(client.is_idle() && server.is_idle());
    }
}

/// A watched stream keeps its end for the application, until nobody watches it any more.
#[test]
fn a_watched_stream_keeps_the_code_of_a_stop() {
    for is_watched in [false, true] {
        let (mut client, mut server) = pair(&config());
        let id = client.open(Dir::Uni).expect("credit");
        assert_eq!(client.send_stream(id).write(&bytes_of(0..5000)), Ok(5000));
        assert_eq!(client.send_stream(id).finish(), Ok(()));
        assert_eq!(client.send_stream(id).set_watched(is_watched), Ok(()));
        let first = next_packet(&mut client, 1200).expect("data");
        first.give_to(&mut server).expect("the rules are kept");
        server.recv_stream(id).stop(code(7)).expect("open");
        settle(&mut client, &mut server);
        assert_eq!(client.is_idle(), !is_watched);
        let stopped = StreamEvent::Stopped {
            id,
            error_code: code(7),
        };
        if is_watched {
            assert_eq!(events(&mut client), [stopped]);
            assert_eq!(client.send_stream(id).stopped(), Ok(Some(code(7))));
            assert_eq!(client.send_stream(id).set_watched(false), Ok(()));
        }
        let ends = events(&mut client);
        assert_eq!(ends.last(), Some(&StreamEvent::ResetReceived { id }));
        assert!(client.send_stream(id).stopped().is_err());
        assert!(client.is_idle());
    }
}
