//! Streams and datagrams over two paths.

use std::time::Duration;

use bytes::Bytes;
use mpquic_core::{
    DatagramOptions, Dir, Event, PathId, ReadStreamError, ResetAtError, SendDatagramError,
    StreamId, VarInt, WriteError,
};
use mpquic_sim::{Change, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn connected(setup: Setup) -> Pair {
    let topology = Topology::new()
        .path("fast", LinkConfig::new(50.0, 5 * MS))
        .path("slow", LinkConfig::new(50.0, 50 * MS).jitter(10 * MS));
    let mut pair = Pair::connected(&topology, setup);
    pair.open_all_paths();
    pair
}

/// Reads available data; `true` at the end of the stream.
fn read(pair: &mut Pair, side: Side, id: StreamId, into: &mut Vec<u8>) -> bool {
    let mut stream = pair.connection(side).recv_stream(id);
    loop {
        match stream.read_chunk(usize::MAX, true) {
            Ok(Some(chunk)) => into.extend_from_slice(&chunk.bytes),
            Ok(None) => return true,
            Err(ReadStreamError::Blocked) => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_bidirectional_stream_carries_a_question_and_an_answer() {
    let mut pair = connected(Setup::new().tls());
    let id = pair.client().streams().open(Dir::Bi).unwrap();
    pair.client().send_stream(id).write(b"question").unwrap();
    pair.client().send_stream(id).finish().unwrap();
    let mut accepted = None;
    pair.run_until(SECOND, |pair| {
        accepted = pair.server().streams().accept(Dir::Bi);
        accepted.is_some()
    })
    .unwrap();
    assert_eq!(accepted, Some(id));
    let mut question = Vec::new();
    pair.run_until(SECOND, |pair| read(pair, Side::Server, id, &mut question))
        .unwrap();
    assert_eq!(question, b"question");
    pair.server().send_stream(id).write(b"answer").unwrap();
    pair.server().send_stream(id).finish().unwrap();
    let mut answer = Vec::new();
    pair.run_until(SECOND, |pair| read(pair, Side::Client, id, &mut answer))
        .unwrap();
    assert_eq!(answer, b"answer");
    pair.close(Side::Client);
}

/// RFC 9000 section 4.6: the limit on streams holds, and rises as streams end.
#[test]
fn many_streams_pass_a_small_limit() {
    let setup = Setup::new().transport(|transport| transport.max_concurrent_uni_streams = 5);
    let mut pair = connected(setup);
    for _ in 0..200 {
        pair.send(Side::Client, 3_000);
    }
    let opened = |pair: &Pair| {
        let hosted = pair.hosted(Side::Client).unwrap();
        hosted.application.outgoing().len()
    };
    assert_eq!(opened(&pair), 5);
    pair.run_transfers(60 * SECOND).unwrap();
    assert_eq!(opened(&pair), 200);
    pair.close(Side::Client);
}

/// Windows hold back a sender whose reader sleeps, and memory stays bounded.
#[test]
fn a_reader_that_sleeps_stops_the_sender_without_stopping_the_connection() {
    let setup = Setup::new().transport(|transport| {
        transport.max_receive_window = 4 << 20;
    });
    let mut pair = connected(setup);
    pair.hosted_mut(Side::Server).application.pause();
    pair.send(Side::Client, 30_000_000);
    pair.drive(5 * SECOND);
    let before = pair.counters("fast")[0].bytes_out + pair.counters("slow")[0].bytes_out;
    assert!(before < (4 << 20) * 12 / 10, "{before} bytes sent");
    pair.drive(5 * SECOND);
    let after = pair.counters("fast")[0].bytes_out + pair.counters("slow")[0].bytes_out;
    assert!(after - before < 20_000, "{} more", after - before);
    // The other direction is not affected.
    pair.send(Side::Server, 1_000_000);
    pair.run_until(5 * SECOND, |pair| pair.is_delivered(Side::Server))
        .unwrap();
    let now = pair.now();
    let hosted = pair.hosted_mut(Side::Server);
    hosted.application.resume(now, &mut hosted.connection);
    pair.run_transfers(20 * SECOND).unwrap();
    pair.close(Side::Server);
}

/// RFC 9000 section 4: windows are raised in time, so a transfer far beyond them is not slowed.
#[test]
fn receive_windows_grow_with_two_fast_paths() {
    let link = LinkConfig::new(300.0, 50 * MS);
    let topology = Topology::new().path("a", link.clone()).path("b", link);
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.open_all_paths();
    pair.transfer(Side::Server, 100_000_000, 60 * SECOND);
    let start = pair.now();
    pair.transfer(Side::Server, 100_000_000, 60 * SECOND);
    // 600 Mbit/s together would take 1.33 s.
    let took = pair.now() - start;
    assert!(took < 2 * SECOND, "{took:?}");
}

#[test]
fn a_reset_and_a_stop_reach_the_other_side() {
    let mut pair = connected(Setup::new());
    let reset = pair.send(Side::Client, 50_000_000).unwrap();
    let stopped = pair.send(Side::Client, 50_000_000).unwrap();
    pair.drive(200 * MS);
    let client = pair.hosted_mut(Side::Client);
    let code = VarInt::from_u32(11);
    client
        .application
        .reset(&mut client.connection, reset, code);
    let server = pair.hosted_mut(Side::Server);
    let code = VarInt::from_u32(12);
    server
        .application
        .stop(&mut server.connection, stopped, code);
    pair.drive(2 * SECOND);
    let server = &pair.hosted(Side::Server).unwrap().application;
    assert_eq!(server.incoming()[&reset].reset, Some(VarInt::from_u32(11)));
    let client = &pair.hosted(Side::Client).unwrap().application;
    let code = client.outgoing()[&stopped].stopped;
    assert_eq!(code, Some(VarInt::from_u32(12)));
    let written = pair.client().send_stream(stopped).write(b"more");
    assert!(
        matches!(
            written,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream)
        ),
        "{written:?}"
    );
    // Credit of both came back: the connection is as good as before.
    pair.transfer(Side::Client, 20_000_000, 10 * SECOND);
    pair.close(Side::Client);
}

/// Urgent streams go first.
#[test]
fn priorities_order_streams() {
    let mut pair = connected(Setup::new());
    let bulk = pair.send(Side::Client, 10_000_000).unwrap();
    let urgent = pair.send(Side::Client, 1_000_000).unwrap();
    pair.client().send_stream(urgent).set_priority(5).unwrap();
    assert_eq!(pair.client().send_stream(urgent).priority(), Ok(5));
    pair.run_transfers(10 * SECOND).unwrap();
    let incoming = pair.hosted(Side::Server).unwrap().application.incoming();
    let finished = |id| incoming[&id].finished.unwrap();
    assert!(finished(urgent) + 500 * MS < finished(bulk));
}

/// Non-incremental streams end one after the other. All but the last end before an incremental
/// stream of the same length.
#[test]
fn streams_that_are_not_incremental_arrive_one_after_the_other() {
    let mut pair = connected(Setup::new());
    let ids: Vec<_> = (0..4)
        .map(|_| pair.send(Side::Client, 1_000_000).unwrap())
        .collect();
    for &id in &ids {
        let client = pair.client();
        client.send_stream(id).set_incremental(false).unwrap();
    }
    pair.run_transfers(10 * SECOND).unwrap();
    let incoming = pair.hosted(Side::Server).unwrap().application.incoming();
    let finished: Vec<_> = ids
        .iter()
        .map(|id| incoming[id].finished.unwrap())
        .collect();
    // One takes some 80 ms alone.
    for pair in finished.windows(2) {
        assert!(pair[0] + 40 * MS < pair[1], "{finished:?}");
    }
}

#[test]
fn unordered_reads_give_every_byte_once() {
    let mut pair = connected(Setup::new());
    let id = pair.client().streams().open(Dir::Bi).unwrap();
    let data: Bytes = (0..100_000u32).flat_map(u32::to_be_bytes).collect();
    let mut rest = data.clone();
    let mut seen = vec![false; data.len()];
    pair.run_until(10 * SECOND, |pair| {
        while !rest.is_empty() {
            match pair.client().send_stream(id).write(&rest) {
                Ok(written) => drop(rest.split_to(written)),
                Err(WriteError::Blocked) => break,
                Err(error) => panic!("{error}"),
            }
            if rest.is_empty() {
                pair.client().send_stream(id).finish().unwrap();
            }
        }
        loop {
            match pair.server().recv_stream(id).read_chunk(5000, false) {
                Ok(Some(chunk)) => {
                    let start = chunk.offset as usize;
                    let range = start..start + chunk.bytes.len();
                    assert_eq!(chunk.bytes, data[range.clone()]);
                    for seen in &mut seen[range] {
                        assert!(!std::mem::replace(seen, true), "a byte came twice");
                    }
                }
                Ok(None) => return true,
                Err(ReadStreamError::Blocked | ReadStreamError::ClosedStream) => return false,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .unwrap();
    assert!(seen.iter().all(|seen| *seen));
}

/// RFC 9221.
#[test]
fn datagrams_arrive_whole_on_any_path() {
    let mut pair = connected(Setup::new());
    let size = pair.client().datagrams().max_size().unwrap();
    assert!(size > 1100, "{size}");
    for number in 0..100u8 {
        let datagram = Bytes::from(vec![number; size]);
        pair.client().datagrams().send(datagram).unwrap();
        pair.drive(MS);
    }
    let too_large = Bytes::from(vec![0; 70_000]);
    let refused = pair.client().datagrams().send(too_large);
    assert_eq!(refused, Err(SendDatagramError::TooLarge));
    pair.drive(SECOND);
    let received = pair.hosted(Side::Server).unwrap().application.datagrams();
    assert_eq!(received.len(), 100);
    let mut numbers: Vec<_> = received.iter().map(|datagram| datagram[0]).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..100));
    assert!(received.iter().all(|datagram| datagram.len() == size));
    pair.close(Side::Client);
}

/// Payloads of one size leave in one train, and an acknowledgement on the first does not end it.
#[test]
fn datagrams_of_one_size_leave_in_one_train() {
    for question in [&b""[..], b"question"] {
        let mut pair = connected(Setup::new());
        pair.server().datagrams().max_size().unwrap();
        pair.drive(SECOND);
        if !question.is_empty() {
            let question = Bytes::copy_from_slice(question);
            pair.client().datagrams().send(question).unwrap();
            pair.drive(10 * MS);
        }
        for size in [1000; 5].into_iter().chain([600, 1000]) {
            let datagram = Bytes::from(vec![1; size]);
            pair.server().datagrams().send(datagram).unwrap();
        }
        let (now, mut train) = (pair.now(), Vec::new());
        let sent = pair.server().poll_transmit(now, 64, &mut train).unwrap();
        let segment = sent.segment_size.unwrap();
        assert!((1000..1060).contains(&segment), "{sent:?}");
        let rest = sent.size - 5 * segment;
        assert!((600..660).contains(&rest), "{sent:?}");
    }
}

/// The size that can be sent fits every usable path; each path tells its own.
#[test]
fn the_size_of_datagrams_follows_the_paths() {
    let link = LinkConfig::new(50.0, 5 * MS);
    let topology = Topology::new()
        .path("wide", link.clone())
        .path("narrow", link.mtu(1300));
    let mut pair = Pair::connected(&topology, Setup::new());
    let at_first = pair.client().datagrams().max_size().unwrap();
    assert!((1150..1200).contains(&at_first), "{at_first}");
    pair.drive(SECOND);
    let wide = pair.client().datagrams().max_size_on(PathId(0)).unwrap();
    assert!(wide > 1380, "{wide}");
    assert_eq!(pair.client().datagrams().max_size(), Some(wide));
    assert_eq!(pair.client().datagrams().max_size_on(PathId(1)), None);
    pair.open_all_paths();
    pair.drive(SECOND);
    let narrow = pair.client().datagrams().max_size_on(PathId(1)).unwrap();
    assert!((1150..1240).contains(&narrow), "{narrow}");
    assert_eq!(pair.client().datagrams().max_size(), Some(narrow));
    let too_large = pair
        .client()
        .datagrams()
        .send(Bytes::from(vec![0; narrow + 1]));
    assert_eq!(too_large, Err(SendDatagramError::TooLarge));
    let now = pair.now();
    let code = mpquic_core::TransportErrorCode::NO_ERROR;
    pair.client().close_path(now, PathId(1), code).unwrap();
    assert_eq!(pair.client().datagrams().max_size(), Some(wide));
}

/// What only a path that is gone could carry must not hold up the rest.
#[test]
fn datagrams_too_large_for_the_remaining_paths_are_dropped() {
    let link = LinkConfig::new(50.0, 5 * MS);
    let topology = Topology::new()
        .path("wide", link.clone())
        .path("narrow", link.mtu(1300));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.drive(SECOND);
    pair.open_path("narrow", mpquic_core::PathStatus::Available)
        .unwrap();
    let size = pair.client().datagrams().max_size().unwrap();
    for _ in 0..50 {
        pair.client()
            .datagrams()
            .send(Bytes::from(vec![1; size]))
            .unwrap();
    }
    pair.run_until(SECOND, |pair| pair.is_established(PathId(1)))
        .unwrap();
    for _ in 0..400 {
        let _full = pair
            .client()
            .datagrams()
            .send(Bytes::from(vec![1; size.min(1100)]));
    }
    let now = pair.now();
    let code = mpquic_core::TransportErrorCode::NO_ERROR;
    pair.client().close_path(now, PathId(0), code).unwrap();
    pair.client()
        .datagrams()
        .send(Bytes::from_static(b"last"))
        .unwrap();
    pair.drive(SECOND);
    let received = pair.hosted(Side::Server).unwrap().application.datagrams();
    assert_eq!(received.last().unwrap()[..], b"last"[..]);
}

#[test]
fn datagrams_are_refused_when_the_peer_takes_none_and_when_the_buffer_is_full() {
    let mut setup = Setup::new();
    setup.server.datagram_receive_buffer = None;
    setup.server.datagram_send_buffer = 10_000;
    let mut pair = connected(setup);
    assert_eq!(pair.client().datagrams().max_size(), None);
    let refused = pair.client().datagrams().send(Bytes::from_static(b"hello"));
    assert_eq!(refused, Err(SendDatagramError::UnsupportedByPeer));
    let datagram = Bytes::from(vec![1; 1000]);
    let mut sent = 0;
    let error = loop {
        match pair.server().datagrams().send(datagram.clone()) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, SendDatagramError::Blocked);
    assert!((9..=11).contains(&sent), "{sent}");
    pair.drive(SECOND);
    assert!(pair.has_event(Side::Server, &Event::DatagramsUnblocked));
    assert!(pair.server().datagrams().send(datagram).is_ok());
}

/// No packet can be sent, but expired DATAGRAMs make room.
#[test]
fn datagrams_whose_deadline_passes_make_room_for_others() {
    let mut setup = Setup::new();
    setup.client.datagram_send_buffer = 10_000;
    let mut pair = connected(setup);
    pair.drive(SECOND);
    let now = pair.now();
    // Until the window is full, and the buffer as well; nothing is acknowledged.
    for path in pair.links().to_vec() {
        for link in path.links() {
            pair.network.change_link(link, &Change::Outage(true));
        }
    }
    let options = DatagramOptions::default().with_deadline(now + SECOND / 10);
    let blocked = (0..1000).any(|_| {
        let sent = pair
            .client()
            .datagrams()
            .send_with(Bytes::from(vec![1; 1000]), options);
        if sent.is_ok() {
            pair.drive(Duration::from_micros(10));
        }
        sent == Err(SendDatagramError::Blocked)
    });
    assert!(blocked);
    assert!(!pair.has_event(Side::Client, &Event::DatagramsUnblocked));
    pair.drive(SECOND / 5);
    assert!(pair.has_event(Side::Client, &Event::DatagramsUnblocked));
    let sent = pair.client().datagrams().send(Bytes::from(vec![1; 1000]));
    assert_eq!(sent, Ok(()));
}

/// draft-ietf-quic-reliable-stream-reset-11: the beginning of a reset stream arrives in full, over
/// both paths and though one of them loses packets and then goes away.
#[test]
fn the_beginning_of_a_reset_stream_arrives_over_two_paths() {
    const SIZE: usize = 2_000_000;
    const RELIABLE: u64 = 1_200_000;
    let topology = Topology::new()
        .path("good", LinkConfig::new(20.0, 5 * MS))
        .path("bad", LinkConfig::new(20.0, 20 * MS).loss(0.02));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.open_all_paths();
    let data: Vec<u8> = (0..SIZE).map(|i| (i / 7) as u8).collect();
    let id = pair.client().streams().open(Dir::Bi).unwrap();
    let mut written = 0;
    let mut received = Vec::new();
    let mut end = None;
    let mut is_cut = false;
    pair.run_until(20 * SECOND, |pair| {
        if written < SIZE {
            let result = pair.client().send_stream(id).write(&data[written..]);
            written += result.unwrap_or(0);
        }
        if !is_cut && received.len() > 400_000 && written > RELIABLE as usize {
            is_cut = true;
            let mut stream = pair.client().send_stream(id);
            stream.reset_at(VarInt::from_u32(9), RELIABLE).unwrap();
            pair.set_outage("bad", true);
        }
        let mut stream = pair.server().recv_stream(id);
        loop {
            match stream.read_chunk(usize::MAX, true) {
                Ok(Some(chunk)) => received.extend_from_slice(&chunk.bytes),
                Ok(None) | Err(ReadStreamError::Blocked | ReadStreamError::ClosedStream) => break,
                Err(error) => {
                    end = Some(error);
                    break;
                }
            }
        }
        end.is_some()
    })
    .unwrap();
    assert_eq!(end, Some(ReadStreamError::Reset(VarInt::from_u32(9))));
    assert!(received.len() as u64 >= RELIABLE);
    assert_eq!(received[..], data[..received.len()]);
    assert!(pair.counters("bad")[0].bytes_out > 100_000);
    // Both sides have forgotten the stream.
    pair.drive(SECOND);
    let again = pair
        .client()
        .send_stream(id)
        .reset_at(VarInt::from_u32(9), 0);
    assert_eq!(again, Err(ResetAtError::ClosedStream));
}
