//! Sent frames, their order, and counts.

use quinn_proto::WriteError;

use super::*;
use crate::wire::frame;

fn opened(streams: &mut StreamSet, count: usize) -> Vec<StreamId> {
    (0..count)
        .map(|_| streams.open(Dir::Uni).expect("credit"))
        .collect()
}

fn write(streams: &mut StreamSet, id: StreamId, length: u64) {
    let data = bytes_of(0..length);
    assert_eq!(streams.send_stream(id).write(&data), Ok(data.len()));
}

fn send(
    streams: &mut StreamSet,
    room: usize,
    selection: &DataSelection,
    max: usize,
) -> Option<Packet> {
    packet(room, |writer| {
        let before = writer.remaining();
        let written = streams.write_data(writer, selection, max);
        assert!(written <= max && written <= before);
    })
}

fn stream_frames(packet: &Packet) -> Vec<frame::Stream> {
    let frames = packet.frames().into_iter();
    frames
        .map(|frame| match frame {
            Frame::Stream(frame) => frame,
            other => unreachable!("{other:?}"),
        })
        .collect()
}

/// The streams that the next packets carry.
fn order(streams: &mut StreamSet, room: usize) -> Vec<u64> {
    std::iter::from_fn(|| send(streams, room, &DataSelection::Next, usize::MAX))
        .flat_map(|packet| stream_frames(&packet))
        .map(|frame| frame.stream_id.index())
        .collect()
}

#[test]
fn equals_take_turns_and_the_urgent_go_first() {
    let mut streams = client(&config());
    let ids = opened(&mut streams, 4);
    for &id in &ids {
        // Two packets each.
        write(&mut streams, id, 98 + 96);
    }
    assert_eq!(streams.send_stream(ids[2]).set_priority(5), Ok(()));
    assert_eq!(streams.send_stream(ids[2]).priority(), Ok(5));
    assert_eq!(streams.send_stream(ids[0]).set_priority(-1), Ok(()));
    assert_eq!(order(&mut streams, 100), [2, 2, 1, 3, 1, 3, 0, 0]);
    for &id in &ids {
        write(&mut streams, id, 10);
    }
    // Short ones share a packet.
    let packet = next_packet(&mut streams, 100).expect("data");
    let order: Vec<u64> = stream_frames(&packet)
        .iter()
        .map(|f| f.stream_id.index())
        .collect();
    assert_eq!(order, [2, 1, 3, 0]);
}

// RFC 9218 section 10
#[test]
fn non_incremental_streams_share_one_turn() {
    let mut streams = client(&config());
    let ids = opened(&mut streams, 5);
    for &id in &ids {
        // Two packets each.
        write(&mut streams, id, 98 + 96);
    }
    for number in [3, 1, 4] {
        let mut stream = streams.send_stream(ids[number]);
        assert_eq!(stream.incremental(), Ok(true));
        assert_eq!(stream.set_incremental(false), Ok(()));
        assert_eq!(stream.incremental(), Ok(false));
    }
    let mut views = Vec::new();
    streams.fill_stream_views(&mut views);
    let seen = views.iter().map(|view| (view.id.index(), view.incremental));
    let expected = [(0, true), (2, true), (1, false), (3, false), (4, false)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert_eq!(order(&mut streams, 100), [0, 2, 1, 0, 2, 1, 3, 3, 4, 4]);
}

/// A stream whose new data comes after other streams began keeps its place.
#[test]
fn a_stream_in_order_keeps_its_place_with_an_empty_buffer() {
    let mut streams = client(&config());
    let ids = opened(&mut streams, 3);
    for &id in &ids {
        assert_eq!(streams.send_stream(id).set_incremental(false), Ok(()));
    }
    for id in [ids[1], ids[2]] {
        write(&mut streams, id, 98 + 96);
    }
    let packet = next_packet(&mut streams, 100).expect("data");
    assert_eq!(stream_frames(&packet)[0].stream_id, ids[1]);
    write(&mut streams, ids[0], 98);
    let mut order = order(&mut streams, 100);
    order.dedup();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn equals_share_packet_by_packet() {
    let mut streams = client(&config());
    for id in opened(&mut streams, 3) {
        write(&mut streams, id, 240);
    }
    let turns: Vec<u64> = (0..6)
        .filter_map(|_| send(&mut streams, 83, &DataSelection::Next, usize::MAX))
        .flat_map(|packet| stream_frames(&packet))
        .map(|frame| frame.stream_id.index())
        .collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn frames_fill_packets_to_the_last_byte() {
    for room in 20..200 {
        let mut streams = client(&config());
        for id in opened(&mut streams, 2) {
            write(&mut streams, id, 90);
        }
        let mut bytes = 0;
        while let Some(packet) = send(&mut streams, room, &DataSelection::Next, usize::MAX) {
            for frame in stream_frames(&packet) {
                assert_eq!(
                    frame.data,
                    bytes_of(frame.offset..frame.offset + frame.data.len() as u64)
                );
                bytes += frame.data.len();
            }
            assert!(
                packet.payload.len() == room || room - packet.payload.len() < 20 || bytes == 180
            );
        }
        assert_eq!(bytes, 180, "room for {room}");
    }
}

#[test]
fn lost_data_goes_first_and_ends_the_stream_again() {
    let mut streams = client(&config());
    let ids = opened(&mut streams, 2);
    write(&mut streams, ids[0], 50);
    streams.send_stream(ids[0]).finish().expect("open");
    let first = next_packet(&mut streams, 1200).expect("data");
    write(&mut streams, ids[1], 50);
    streams.send_stream(ids[1]).set_priority(100).expect("open");
    first.report(&mut streams, Fate::Lost);
    first.report(&mut streams, Fate::Lost);
    assert_eq!(streams.queue_view().retransmit, 50);
    let second = next_packet(&mut streams, 1200).expect("data");
    let frames = stream_frames(&second);
    assert_eq!((frames[0].stream_id, frames[0].fin), (ids[0], true));
    assert_eq!(frames[1].stream_id, ids[1]);
    // The first copy arrived after all: the second one's loss does not matter.
    first.report(&mut streams, Fate::Acked);
    assert_eq!(events(&mut streams), [StreamEvent::Finished { id: ids[0] }]);
    second.report(&mut streams, Fate::Lost);
    let third = next_packet(&mut streams, 1200).expect("data");
    assert_eq!(stream_frames(&third).len(), 1);
    assert!(next_packet(&mut streams, 1200).is_none());
    third.report(&mut streams, Fate::Acked);
    second.report(&mut streams, Fate::Acked);
    assert!(streams.queue_view().app_limited);
}

#[test]
fn a_lost_fin_is_sent_alone() {
    let mut streams = client(&config());
    let id = opened(&mut streams, 1)[0];
    write(&mut streams, id, 50);
    let data = next_packet(&mut streams, 1200).expect("data");
    streams.send_stream(id).finish().expect("open");
    let fin = next_packet(&mut streams, 1200).expect("fin");
    fin.report(&mut streams, Fate::Lost);
    data.report(&mut streams, Fate::Acked);
    assert!(streams.wants_data());
    let again = next_packet(&mut streams, 1200).expect("fin");
    let frames = stream_frames(&again);
    assert_eq!(
        (frames[0].offset, frames[0].data.len(), frames[0].fin),
        (50, 0, true)
    );
    again.report(&mut streams, Fate::Acked);
    assert!(streams.is_idle());
    again.report(&mut streams, Fate::Lost);
    assert!(streams.is_idle());
}

#[test]
fn selections_choose_stream_offset_and_range() {
    let mut streams = client(&config());
    let ids = opened(&mut streams, 2);
    for &id in &ids {
        write(&mut streams, id, 1000);
    }
    let id = ids[1];
    let ranges = |packet: Option<Packet>| -> Vec<(u64, u64)> {
        let frames = packet
            .map(|packet| stream_frames(&packet))
            .unwrap_or_default();
        assert!(frames.iter().all(|frame| frame.stream_id == id));
        let end = |f: &frame::Stream| f.offset + f.data.len() as u64;
        frames
            .iter()
            .map(|frame| (frame.offset, end(frame)))
            .collect()
    };
    let stream = DataSelection::Stream(id);
    assert_eq!(ranges(send(&mut streams, 1200, &stream, 100)), [(0, 100)]);
    let at = DataSelection::StreamAt { id, offset: 900 };
    assert_eq!(ranges(send(&mut streams, 1200, &at, 1200)), [(900, 1000)]);
    assert_eq!(streams.queue_view().unsent, 1800);
    assert!(!streams.is_unacked(id, 100..900));
    assert!(streams.is_unacked(id, 99..900));
    let mut views = Vec::new();
    streams.fill_stream_views(&mut views);
    let seen: Vec<_> = views.iter().map(|v| (v.id, v.unsent, v.offset)).collect();
    assert_eq!(seen, [(ids[0], 1000, 0), (id, 800, 100)]);
    // What was passed over is next; what was sent can be repeated, the rest cannot.
    let again = |offsets| DataSelection::Range { id, offsets };
    assert_eq!(
        ranges(send(&mut streams, 1200, &again(50..950), 1200)),
        [(50, 100), (900, 950)]
    );
    assert_eq!(ranges(send(&mut streams, 1200, &stream, 300)), [(100, 400)]);
    let first = send(&mut streams, 1200, &again(0..100), 1200).expect("sent before");
    first.report(&mut streams, Fate::Acked);
    assert!(send(&mut streams, 1200, &again(0..100), 1200).is_none());
    let from_start = DataSelection::StreamAt { id, offset: 0 };
    assert_eq!(
        ranges(send(&mut streams, 1200, &from_start, 350)),
        [(100, 450)]
    );
    assert_eq!(
        ranges(send(&mut streams, 1200, &stream, 5000)),
        [(450, 900)]
    );
    assert!(send(&mut streams, 1200, &stream, 5000).is_none());
    let unknown = DataSelection::Stream(local_uni(9));
    assert!(send(&mut streams, 1200, &unknown, 5000).is_none());
    assert!(send(&mut streams, 1200, &DataSelection::Next, 0).is_none());
}

#[test]
fn the_connections_credit_is_used_by_new_bytes_only() {
    let config = checked(TransportOptions {
        initial_receive_window: 100,
        ..options()
    });
    let mut streams = client(&config);
    let ids = opened(&mut streams, 2);
    write(&mut streams, ids[0], 80);
    write(&mut streams, ids[1], 80);
    let first = send(&mut streams, 1200, &DataSelection::Next, 1200).expect("credit");
    let lengths: Vec<usize> = stream_frames(&first).iter().map(|f| f.data.len()).collect();
    assert_eq!(lengths, [80, 20]);
    assert!(streams.wants_data() && !streams.can_send_data());
    let view = streams.queue_view();
    assert_eq!(
        (view.unsent, view.flow_credit, view.flow_window),
        (60, 0, 100)
    );
    assert!(!view.app_limited);
    // The peer is told once (RFC 9000 section 4.1), and again after a loss.
    let told = next_packet(&mut streams, 1200).expect("told");
    assert_eq!(told.frames(), [Frame::DataBlocked(100)]);
    assert!(next_packet(&mut streams, 1200).is_none());
    told.report(&mut streams, Fate::Lost);
    assert_eq!(drain(&mut streams), [Frame::DataBlocked(100)]);
    first.report(&mut streams, Fate::Lost);
    assert!(streams.can_send_data());
    let again = next_packet(&mut streams, 1200).expect("no credit needed");
    assert_eq!(stream_frames(&again).len(), 2);
    // A bare end of stream needs none either.
    streams.send_stream(ids[0]).finish().expect("open");
    assert!(streams.can_send_data());
    assert!(next_packet(&mut streams, 1200).is_some());
    again.report(&mut streams, Fate::Acked);
    assert_eq!(streams.queue_view().flow_window, 0);
    streams.on_max_data(150);
    streams.on_max_data(120);
    assert_eq!(streams.queue_view().flow_credit, 50);
    let rest = next_packet(&mut streams, 1200).expect("credit");
    assert_eq!(stream_frames(&rest)[0].data.len(), 50);
}

#[test]
fn a_stream_without_credit_blocks_its_writer_alone() {
    let config = checked(TransportOptions {
        initial_stream_receive_window: 100,
        ..options()
    });
    let mut streams = client(&config);
    let ids = opened(&mut streams, 2);
    let id = ids[0];
    assert_eq!(streams.send_stream(id).write(&[0; 300]), Ok(100));
    assert_eq!(
        streams.send_stream(id).write(&[0; 300]),
        Err(WriteError::Blocked)
    );
    assert_eq!(streams.send_stream(ids[1]).write(&[0; 50]), Ok(50));
    assert!(drain(&mut streams).contains(&stream_data_blocked(id, 100)));
    assert_eq!(give(&mut streams, max_stream_data(id, 100)), Ok(()));
    assert_eq!(events(&mut streams), []);
    assert_eq!(give(&mut streams, max_stream_data(id, 150)), Ok(()));
    assert_eq!(events(&mut streams), [StreamEvent::Writable { id }]);
    let mut chunks = [Bytes::from(vec![1; 30]), Bytes::from(vec![2; 30])];
    let written = streams
        .send_stream(id)
        .write_chunks(&mut chunks)
        .expect("credit");
    assert_eq!((written.bytes, written.chunks), (50, 1));
    assert_eq!((chunks[0].len(), chunks[1].len()), (0, 10));
}

#[test]
fn a_full_send_window_blocks_writers_until_a_part_is_free() {
    let config = checked(TransportOptions {
        send_window: 800,
        ..options()
    });
    let mut streams = client(&config);
    let ids = opened(&mut streams, 2);
    assert_eq!(streams.send_stream(ids[0]).write(&[0; 900]), Ok(800));
    let written = streams.send_stream(ids[0]).write(&[0; 900]);
    assert_eq!(written, Err(WriteError::Blocked));
    let ack = |streams: &mut StreamSet, bytes| {
        let packet = send(streams, 1200, &DataSelection::Next, bytes).expect("data");
        packet.report(streams, Fate::Acked);
    };
    ack(&mut streams, 99);
    assert_eq!(events(&mut streams), []);
    ack(&mut streams, 1);
    assert_eq!(events(&mut streams), [StreamEvent::Writable { id: ids[0] }]);
    assert_eq!(streams.send_stream(ids[0]).write(&[0; 900]), Ok(100));
    // A stream without bytes may write an eighth of a small window.
    assert_eq!(streams.send_stream(ids[1]).write(&[0; 900]), Ok(100));
    let written = streams.send_stream(ids[1]).write(&[0; 900]);
    assert_eq!(written, Err(WriteError::Blocked));
    // A reset makes room at once.
    streams.send_stream(ids[0]).reset(code(0)).expect("open");
    assert_eq!(events(&mut streams), [StreamEvent::Writable { id: ids[1] }]);
    assert_eq!(streams.queue_view().unsent, 100);
}

#[test]
fn windows_grow_to_the_target_and_no_further_than_the_cap() {
    let mut streams = client(&checked(TransportOptions {
        initial_stream_receive_window: 100,
        initial_receive_window: 200,
        max_receive_window: 1000,
        ..options()
    }));
    let id = peer_uni(0);
    give(&mut streams, stream_frame(id, 0, &[0; 100], false)).expect("credit");
    streams.set_receive_window_target(600);
    assert_eq!(drain(&mut streams), [Frame::MaxData(600)]);
    assert!(matches!(
        streams.recv_stream(id).read_chunk(99, true),
        Ok(Some(_))
    ));
    let packet = next_packet(&mut streams, 1200).expect("limits");
    assert_eq!(packet.frames(), [max_stream_data(id, 699)]);
    streams.set_receive_window_target(50);
    streams.set_receive_window_target(u64::MAX);
    assert_eq!(drain(&mut streams), [Frame::MaxData(1099)]);
    // A lost limit is sent again with what holds now, unless the end of the stream is known.
    packet.report(&mut streams, Fate::Lost);
    assert_eq!(drain(&mut streams), [max_stream_data(id, 699)]);
    give(&mut streams, stream_frame(id, 100, &[], true)).expect("valid");
    packet.report(&mut streams, Fate::Lost);
    assert_eq!(drain(&mut streams), []);
}

#[test]
fn lost_control_frames_are_sent_again() {
    let (mut client, mut server) = pair(&config());
    let id = client.open(Dir::Bi).expect("credit");
    write(&mut client, id, 10);
    next_packet(&mut client, 1200)
        .expect("data")
        .give_to(&mut server)
        .expect("valid");
    server.recv_stream(id).stop(code(3)).expect("open");
    let stop = next_packet(&mut server, 1200).expect("STOP_SENDING");
    stop.report(&mut server, Fate::Lost);
    let stop = next_packet(&mut server, 1200).expect("STOP_SENDING");
    stop.give_to(&mut client).expect("valid");
    let reset = next_packet(&mut client, 1200).expect("RESET_STREAM");
    reset.report(&mut client, Fate::Lost);
    let again = next_packet(&mut client, 1200).expect("RESET_STREAM");
    assert_eq!(again.frames(), reset.frames());
    reset.report(&mut client, Fate::Acked);
    again.report(&mut client, Fate::Lost);
    assert!(next_packet(&mut client, 1200).is_none());
    again.give_to(&mut server).expect("valid");
    stop.report(&mut server, Fate::Lost);
    assert!(next_packet(&mut server, 1200).is_none(), "the end is known");
}

#[test]
fn opening_too_many_streams_is_reported_once() {
    let mut streams = client(&checked(TransportOptions {
        max_concurrent_uni_streams: 1,
        ..options()
    }));
    assert!(streams.open(Dir::Uni).is_some());
    assert!(streams.open(Dir::Uni).is_none());
    assert!(streams.open(Dir::Uni).is_none());
    assert_eq!(drain(&mut streams), [streams_blocked(Dir::Uni, 1)]);
    assert_eq!(give(&mut streams, max_streams(Dir::Uni, 1)), Ok(()));
    assert_eq!(events(&mut streams), []);
    assert_eq!(give(&mut streams, max_streams(Dir::Uni, 2)), Ok(()));
    assert_eq!(
        events(&mut streams),
        [StreamEvent::Available { dir: Dir::Uni }]
    );
    assert!(streams.open(Dir::Uni).is_some());
}

#[test]
fn control_frames_that_do_not_fit_stay_due() {
    let mut streams = client(&config());
    for id in opened(&mut streams, 20) {
        streams.send_stream(id).reset(code(1)).expect("open");
    }
    let mut resets = 0;
    while let Some(packet) = packet(10, |writer| streams.write_control(writer)) {
        resets += packet.frames().len();
    }
    assert_eq!(resets, 20);
    assert!(!streams.wants_control());
}
