//! Tests of settings and queries of streams in use.

use std::time::Duration;

use quinn_proto::WriteError;

use super::*;
use crate::wire::frame::{ResetStream, ResetStreamAt};

#[test]
fn more_streams_are_allowed_at_once_and_fewer_as_streams_end() {
    let (mut client, mut server) = pair(&config());
    let max_streams_to_client = |server: &mut StreamSet| {
        let limits = drain(server).into_iter();
        limits
            .filter_map(|frame| match frame {
                Frame::MaxStreams(limit) => Some((limit.dir, limit.maximum_streams)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    server.counts.set_max_concurrent(Dir::Uni, 101);
    server.counts.set_max_concurrent(Dir::Bi, 99);
    assert!(server.wants_control());
    assert_eq!(max_streams_to_client(&mut server), [(Dir::Uni, 101)]);

    // Two bidirectional streams that end make no room for a new one, the next does.
    for index in 0..3 {
        assert!(client.open(Dir::Bi).is_some());
        let id = StreamId::new(Side::Client, Dir::Bi, index);
        give(&mut server, stream_frame(id, 0, b"x", true)).expect("valid");
        server.counts.set_max_concurrent(Dir::Bi, 99);
        while let Ok(Some(_)) = server.recv_stream(id).read_chunk(10, true) {}
        server.send_stream(id).finish().expect("open");
        let sent = next_packet(&mut server, 1200).expect("an end");
        sent.report(&mut server, Fate::Acked);
    }
    server.counts.set_max_concurrent(Dir::Bi, 99);
    assert_eq!(max_streams_to_client(&mut server), [(Dir::Bi, 102)]);
}

#[test]
fn writers_go_on_when_the_send_window_is_widened() {
    let mut options = options();
    options.send_window = 1000;
    let config = checked(options);
    let mut client = client(&config);
    let id = client.open(Dir::Uni).expect("credit");
    assert_eq!(client.send_stream(id).write(&[1; 2000]), Ok(1000));
    let blocked = client.send_stream(id).write(&[1; 2000]);
    assert_eq!(blocked, Err(WriteError::Blocked));
    events(&mut client);
    client.set_send_window(1500);
    assert_eq!(events(&mut client), [StreamEvent::Writable { id }]);
    assert_eq!(client.send_stream(id).write(&[1; 2000]), Ok(500));
    client.set_send_window(100);
    let blocked = client.send_stream(id).write(&[1; 2000]);
    assert_eq!(blocked, Err(WriteError::Blocked));
}

#[test]
fn the_send_window_grows_with_acknowledgements_up_to_its_limit() {
    const MIB: u64 = 1 << 20;
    let mut options = options();
    options.send_window = 20 * MIB;
    options.initial_stream_receive_window = 64 * MIB;
    options.initial_receive_window = 64 * MIB;
    options.max_receive_window = 64 * MIB;
    let config = checked(options);
    let mut client = client(&config);
    let id = client.open(Dir::Uni).expect("credit");
    let room = |client: &mut StreamSet| client.send_stream(id).room().expect("room") as u64;
    assert_eq!(room(&mut client), 4 * MIB, "at the start");
    let (rtt, mut now) = (
        Duration::from_millis(100),
        crate::recovery::testing::start(),
    );
    let mut acknowledge = |client: &mut StreamSet, bytes| {
        // Measured over a quarter of a round trip.
        now += rtt / 4;
        client.writers.window_mut().on_acked(bytes);
        client.on_acked(now, &paths(rtt, 0, 0));
    };
    acknowledge(&mut client, MIB / 4);
    let grown = room(&mut client);
    assert!(
        grown.abs_diff(6 * MIB) < MIB / 10,
        "six round trips: {grown}"
    );
    acknowledge(&mut client, MIB / 8);
    assert_eq!(room(&mut client), grown, "it does not shrink");
    acknowledge(&mut client, MIB);
    assert_eq!(room(&mut client), 20 * MIB, "the limit");
    client.set_send_window(8 * MIB);
    assert_eq!(room(&mut client), 8 * MIB);
    client.set_send_window(30 * MIB);
    assert_eq!(room(&mut client), 24 * MIB, "six round trips of four MiB");
}

/// A congestion window that leaps to the rate of an earlier connection is filled at once.
#[test]
fn a_small_send_window_follows_the_congestion_windows() {
    const MIB: u64 = 1 << 20;
    let config = checked(TransportOptions {
        initial_send_window: MIB / 16,
        ..options()
    });
    let mut client = client(&config);
    let now = crate::recovery::testing::start();
    let mut room_after = |acked, congestion_windows| {
        client.writers.window_mut().on_acked(acked);
        client.on_acked(now, &paths(Duration::ZERO, congestion_windows, 0));
        client.writers.window_mut().room(0, 0)
    };
    assert_eq!(room_after(0, MIB), MIB / 16, "nothing was acknowledged");
    assert_eq!(room_after(1, MIB), 2 * MIB);
    assert_eq!(room_after(1, 30 * MIB), 4 * MIB, "no further");
    assert_eq!(room_after(1, 40 * MIB), 4 * MIB);
}

#[test]
fn the_receive_window_follows_its_cap() {
    let config = config();
    let mut client = client(&config);
    let max_data = |client: &mut StreamSet| {
        let limits = drain(client).into_iter();
        limits
            .filter_map(|frame| match frame {
                Frame::MaxData(limit) => Some(limit),
                _ => None,
            })
            .next_back()
    };
    // A higher cap lets the window grow to what was measured, and no further.
    client.set_receive_window_target(config.max_receive_window * 4);
    assert_eq!(max_data(&mut client), Some(config.max_receive_window));
    client
        .receive_windows
        .set_max(config.max_receive_window * 2);
    assert_eq!(max_data(&mut client), None);
    client.set_receive_window_target(config.max_receive_window * 4);
    assert_eq!(max_data(&mut client), Some(config.max_receive_window * 2));
    // A lower one takes nothing back.
    client.receive_windows.set_max(1000);
    assert_eq!(max_data(&mut client), None);
    client.set_receive_window_target(config.max_receive_window);
    assert_eq!(max_data(&mut client), None);
}

/// A window that began at its cap gets all of a higher cap, without a measured rate.
#[test]
fn a_receive_window_at_its_cap_stays_at_it() {
    let mut client = client(&checked(TransportOptions {
        initial_stream_receive_window: 1000,
        initial_receive_window: 1000,
        max_receive_window: 1000,
        ..options()
    }));
    for (cap, expected) in [
        (50_000, Some(50_000)),
        (20_000, None),
        (60_000, Some(60_000)),
    ] {
        client.receive_windows.set_max(cap);
        let limits = drain(&mut client).into_iter();
        let told = limits.filter_map(|frame| match frame {
            Frame::MaxData(limit) => Some(limit),
            _ => None,
        });
        assert_eq!(told.last(), expected, "{cap}");
    }
}

/// A stream that is not read gets more only up to its own cap, and leaves the rest to the others.
#[test]
fn a_stream_has_a_cap_of_its_own() {
    for (cap, expected) in [(Some(3000), 3000), (None, 50_000)] {
        let mut client = client(&checked(TransportOptions {
            initial_stream_receive_window: 1000,
            max_stream_receive_window: cap,
            initial_receive_window: 50_000,
            max_receive_window: 50_000,
            ..options()
        }));
        let id = client.open(Dir::Bi).expect("credit");
        client.set_receive_window_target(1_000_000);
        // A reader waits for what is missing.
        assert!(client.recv_stream(id).read_chunk(1, true).is_err());
        let blocked = StreamDataBlocked {
            stream_id: id,
            maximum_stream_data: 1000,
        };
        client.on_stream_data_blocked(&blocked).expect("a stream");
        let limits = drain(&mut client).into_iter();
        let limits: Vec<_> = limits
            .filter_map(|frame| match frame {
                Frame::MaxStreamData(limit) => Some(limit.maximum_stream_data),
                _ => None,
            })
            .collect();
        assert_eq!(limits, [expected]);
    }
}

#[test]
fn a_writer_can_ask_for_room_without_data() {
    let config = checked(TransportOptions {
        initial_stream_receive_window: 800,
        send_window: 1000,
        ..options()
    });
    let mut client = client(&config);
    let [first, second] = [0, 1].map(|_| client.open(Dir::Uni).expect("credit"));
    let room = |client: &mut StreamSet, id| client.send_stream(id).room();
    assert_eq!(room(&mut client, first), Ok(800), "the peer's limit");
    assert_eq!(client.send_stream(first).write(&[1; 800]), Ok(800));
    assert_eq!(room(&mut client, second), Ok(200), "the send window");
    assert_eq!(room(&mut client, first), Err(WriteError::Blocked));
    events(&mut client);
    give(&mut client, max_stream_data(first, 900)).expect("valid");
    assert_eq!(events(&mut client), [StreamEvent::Writable { id: first }]);
    assert_eq!(room(&mut client, first), Ok(100));
    let stop = crate::wire::frame::StopSending {
        stream_id: second,
        error_code: 5,
    };
    give(&mut client, Frame::StopSending(stop)).expect("valid");
    let stopped = Err(WriteError::Stopped(code(5)));
    assert_eq!(room(&mut client, second), stopped);
}

#[test]
fn a_reset_is_told_without_reading() {
    let mut client = client(&config());
    let id = peer_uni(0);
    let received = |client: &mut StreamSet| client.recv_stream(id).received_reset();
    give(&mut client, stream_frame(id, 0, &[1; 100], false)).expect("valid");
    assert_eq!(received(&mut client), Ok(None));
    let reset = ResetStream {
        stream_id: id,
        error_code: 7,
        final_size: 200,
    };
    events(&mut client);
    give(&mut client, Frame::ResetStream(reset)).expect("valid");
    assert_eq!(events(&mut client), [StreamEvent::Readable { id }]);
    assert_eq!(received(&mut client), Ok(Some(VarInt::from_u32(7))));
    assert!(received(&mut client).is_err(), "told once");
    assert_eq!(client.open_halves(), (0, 0));
    assert_eq!(
        client.receive_windows.credit.held(),
        0,
        "nobody will read it"
    );
}

#[test]
fn no_reset_comes_after_the_end_or_a_stop() {
    let mut client = client(&config());
    let (ended, stopped) = (peer_uni(0), peer_uni(1));
    give(&mut client, stream_frame(ended, 0, &[1; 100], true)).expect("valid");
    assert!(client.recv_stream(ended).received_reset().is_err());
    let chunk = client.recv_stream(ended).read_chunk(1000, true);
    let chunk = chunk.expect("readable").expect("not the end");
    assert_eq!(chunk.bytes.len(), 100, "it can still be read");
    give(&mut client, stream_frame(stopped, 0, &[1; 100], false)).expect("valid");
    let stop = client.recv_stream(stopped).stop(VarInt::from_u32(1));
    stop.expect("open");
    assert!(client.recv_stream(stopped).received_reset().is_err());
}

/// draft-ietf-quic-reliable-stream-reset-11: not before the beginning was read.
#[test]
fn a_reset_after_the_beginning_waits_for_the_reader() {
    let mut client = client(&config());
    let id = peer_uni(0);
    give(&mut client, stream_frame(id, 0, &[1; 100], false)).expect("valid");
    let reset = ResetStreamAt {
        stream_id: id,
        error_code: 7,
        final_size: 200,
        reliable_size: 100,
    };
    give(&mut client, Frame::ResetStreamAt(reset)).expect("valid");
    assert_eq!(client.recv_stream(id).received_reset(), Ok(None));
    let chunk = client.recv_stream(id).read_chunk(1000, true);
    let chunk = chunk.expect("readable").expect("not the end");
    assert_eq!(chunk.bytes.len(), 100);
    let reset = client.recv_stream(id).received_reset();
    assert_eq!(reset, Ok(Some(VarInt::from_u32(7))));
    assert_eq!(client.receive_windows.credit.held(), 0);
}
