//! The queues of RFC 9221.

use std::time::Duration;

use super::*;
use crate::ids::PathId;
use crate::packet::delivery::Delivery;
use crate::recovery::testing::start;
use crate::stream::DatagramOptions;
use crate::stream::datagrams::DatagramQueues;
use crate::wire::transport_parameters::TransportParameters;

fn datagrams(limit: u64) -> DatagramQueues {
    let mut datagrams = DatagramQueues::new(&checked(TransportOptions {
        datagram_send_buffer: 1000,
        datagram_receive_buffer: Some(1000),
        ..options()
    }));
    datagrams.set_peer_parameters(&TransportParameters {
        max_datagram_frame_size: limit,
        ..TransportParameters::default()
    });
    datagrams
}

/// Queues a payload that any path may carry; false if there is no room.
fn queue(datagrams: &mut DatagramQueues, data: impl Into<Bytes>) -> bool {
    datagrams.send(data.into(), DatagramOptions::default())
}

/// A packet of this size for the first path with what any path may carry.
fn sent(datagrams: &mut DatagramQueues, size: usize) -> Option<Packet> {
    packet(size, |writer| {
        datagrams.write_frames(writer, start(), PathId::ZERO, false);
    })
}

fn payloads(packet: &Packet) -> Vec<Bytes> {
    let frames = packet.frames().into_iter();
    frames
        .filter_map(|frame| match frame {
            Frame::Datagram(data) => Some(data),
            Frame::Padding => None,
            other => unreachable!("{other:?}"),
        })
        .collect()
}

#[test]
fn sizes_respect_the_peer_and_the_packet() {
    assert_eq!(datagrams(0).max_payload(1200), None);
    assert_eq!(datagrams(1 << 16).max_payload(1200), Some(1199));
    assert_eq!(datagrams(100).max_payload(1200), Some(97));
    assert_eq!(datagrams(1).max_payload(1200), Some(0));
}

#[test]
fn the_free_send_buffer_is_the_largest_payload() {
    let mut datagrams = datagrams(1 << 16);
    assert_eq!(datagrams.send_buffer_space(), 1000);
    assert!(queue(&mut datagrams, vec![0; 100]));
    let space = datagrams.send_buffer_space();
    assert!((800..900).contains(&space), "{space}");
    assert!(!queue(&mut datagrams, vec![0; space + 1]));
    assert!(queue(&mut datagrams, vec![0; space]));
    assert_eq!(datagrams.send_buffer_space(), 0);
}

#[test]
fn datagrams_behind_the_first_are_sent_first_and_in_order() {
    let mut datagrams = datagrams(1 << 16);
    for number in 0..5_u8 {
        assert!(queue(&mut datagrams, vec![number; 50]));
    }
    let mut behind = |bytes| {
        let sent = packet(120, |writer| {
            datagrams.write_behind(writer, start(), PathId::ZERO, bytes);
        });
        let payloads = sent.map_or_else(Vec::new, |sent| payloads(&sent));
        (
            payloads
                .iter()
                .map(|payload| payload[0])
                .collect::<Vec<_>>(),
            datagrams.unsent(),
        )
    };
    // Not a part of one, but all of it.
    assert_eq!(behind(60), (vec![2, 3], 150));
    // The place is within the last one: it is that one, and not the first.
    assert_eq!(behind(120), (vec![4], 100));
    assert_eq!(behind(100), (vec![], 100));
    assert_eq!(behind(0), (vec![0, 1], 0));
    assert_eq!(datagrams.sent_bytes(), 250);
    // All of the room is there again.
    assert!(queue(&mut datagrams, vec![0; 900]));
}

/// A flood fills packets only beside the other flows, however much of it waits.
#[test]
fn flows_take_turns() {
    let mut datagrams = datagrams(1 << 16);
    let flood = DatagramOptions::default().with_flow(1);
    let call = DatagramOptions::default().with_flow(2);
    for number in 0..6_u8 {
        assert!(datagrams.send(vec![number; 50].into(), flood));
    }
    assert_eq!(datagrams.flow_share(Some(1)), (6 * 114, 1));
    assert_eq!(datagrams.flow_share(Some(2)), (0, 2));
    for number in [20, 21] {
        assert!(datagrams.send(vec![number; 50].into(), call));
    }
    assert!(datagrams.send(vec![30; 50].into(), DatagramOptions::default()));
    let mut order = Vec::new();
    while let Some(packet) = sent(&mut datagrams, 120) {
        order.extend(payloads(&packet).iter().map(|payload| payload[0]));
    }
    assert_eq!(order, [0, 20, 30, 1, 21, 2, 3, 4, 5]);
    assert_eq!(datagrams.flow_share(Some(1)), (0, 1));
}

/// RFC 9221 section 3.
#[test]
fn datagrams_we_did_not_ask_for() {
    let mut datagrams = DatagramQueues::new(&checked(TransportOptions {
        datagram_receive_buffer: None,
        ..options()
    }));
    let result = datagrams
        .on_datagram(Bytes::from_static(b"x"), 1)
        .map(|_| ());
    fails_with(result, Fault::DatagramTooLarge);
}

/// RFC 9221 section 3: the announced size counts the frame, not only its payload.
#[test]
fn datagrams_larger_than_announced() {
    let mut datagrams = datagrams(1 << 16);
    let mut give = |length: usize| {
        datagrams
            .on_datagram(Bytes::from(vec![0; length]), length)
            .map(|_| ())
    };
    assert_eq!(give(999), Ok(()));
    fails_with(give(1000), Fault::DatagramTooLarge);
}

#[test]
fn every_size_up_to_the_largest_fits_a_packet() {
    for length in 0..=99 {
        let mut datagrams = datagrams(1 << 16);
        let data = Bytes::from(bytes_of(0..length));
        assert!(queue(&mut datagrams, data.clone()));
        let packet = sent(&mut datagrams, 100);
        let packet = packet.unwrap_or_else(|| panic!("{length} bytes fit"));
        assert_eq!(payloads(&packet), [data]);
        assert!(!datagrams.wants_to_send());
    }
}

#[test]
fn several_share_a_packet_in_order() {
    let mut datagrams = datagrams(1 << 16);
    for length in [30, 30, 30, 5] {
        assert!(queue(&mut datagrams, bytes_of(0..length)));
    }
    let first = sent(&mut datagrams, 100).expect("datagrams");
    let lengths: Vec<usize> = payloads(&first).iter().map(Bytes::len).collect();
    assert_eq!(lengths, [30, 30, 30]);
    assert_eq!(first.deliveries[..], [Delivery::Datagram; 3]);
    let second = sent(&mut datagrams, 100).expect("datagrams");
    assert_eq!(payloads(&second)[0].len(), 5);
}

#[test]
fn a_full_send_buffer_blocks_until_half_of_it_is_free() {
    let mut datagrams = datagrams(1 << 16);
    let mut count = 0;
    while queue(&mut datagrams, vec![0; 100]) {
        count += 1;
    }
    assert!((5..10).contains(&count), "{count}");
    assert!(!datagrams.take_unblocked());
    while datagrams.wants_to_send() {
        sent(&mut datagrams, 110).expect("datagram");
    }
    assert!(datagrams.take_unblocked());
    assert!(!datagrams.take_unblocked());
}

#[test]
fn the_oldest_make_room_for_new_ones() {
    let mut datagrams = datagrams(0);
    assert_eq!(
        datagrams.on_datagram(Bytes::from(vec![1; 400]), 400),
        Ok(true)
    );
    assert_eq!(
        datagrams.on_datagram(Bytes::from(vec![2; 400]), 400),
        Ok(false)
    );
    assert_eq!(
        datagrams.on_datagram(Bytes::from(vec![3; 400]), 400),
        Ok(false)
    );
    assert_eq!(datagrams.recv(), Some(Bytes::from(vec![2; 400])));
    assert_eq!(datagrams.recv(), Some(Bytes::from(vec![3; 400])));
    assert_eq!(datagrams.recv(), None);
    assert_eq!(datagrams.on_datagram(Bytes::new(), 0), Ok(true));
    assert_eq!(datagrams.recv(), Some(Bytes::new()));
}

#[test]
fn waiting_payloads_leave_their_datagram() {
    let mut datagrams = datagrams(0);
    let udp = Bytes::from(bytes_of(0..1000));
    let mut give = |range: std::ops::Range<usize>| {
        datagrams
            .on_datagram(udp.slice(range), udp.len())
            .expect("asked for");
    };
    (0..3).for_each(|index| give(index * 100..index * 100 + 100));
    datagrams.detach_waiting();
    let is_slice = |data: &Bytes| udp.as_ptr_range().contains(&data.as_ptr());
    let soon = datagrams.recv().expect("a payload");
    assert!(is_slice(&soon) && soon == udp[..100]);
    datagrams
        .on_datagram(udp.slice(300..400), udp.len())
        .expect("asked for");
    datagrams.detach_waiting();
    for (range, copied) in [(100..200, true), (200..300, true), (300..400, false)] {
        let data = datagrams.recv().expect("a payload");
        assert_eq!(is_slice(&data), !copied, "{range:?}");
        assert_eq!(data, udp[range]);
    }
    assert_eq!(datagrams.recv(), None);
}

#[test]
fn tiny_datagrams_are_bounded_too() {
    let mut datagrams = datagrams(0);
    for _ in 0..10_000 {
        datagrams
            .on_datagram(Bytes::from_static(b"x"), 1)
            .expect("asked for");
    }
    let held = std::iter::from_fn(|| datagrams.recv()).count();
    assert!(held <= 16, "{held}");
}

#[test]
fn datagrams_too_large_for_any_packet_are_dropped() {
    let mut datagrams = datagrams(1 << 16);
    for length in [50, 300, 99, 100] {
        assert!(queue(&mut datagrams, vec![0; length]));
    }
    datagrams.drop_oversized(None, |_| 0);
    datagrams.drop_oversized(Some(100), |_| 0);
    let packet = sent(&mut datagrams, 1200).expect("datagrams");
    let lengths: Vec<usize> = payloads(&packet).iter().map(Bytes::len).collect();
    assert_eq!(lengths, [50, 99]);
    assert_eq!(datagrams.counts().unplaced, 2);
}

/// DATAGRAMs bound to a path wait for this path, do not hold up others, and share the send buffer.
#[test]
fn bound_datagrams_travel_on_no_other_path() {
    let mut datagrams = datagrams(1 << 16);
    let other = PathId(1);
    let bound = DatagramOptions::default().with_path(other);
    assert!(datagrams.send(Bytes::from(vec![1; 400]), bound));
    assert!(queue(&mut datagrams, vec![2; 400]));
    assert!(!queue(&mut datagrams, vec![3; 400]), "the buffer is shared");
    assert_eq!(datagrams.unsent(), 400, "the scheduler sees one");
    let first = sent(&mut datagrams, 1200).expect("the one that is not bound");
    assert_eq!(payloads(&first), [Bytes::from(vec![2; 400])]);
    assert!(sent(&mut datagrams, 1200).is_none());
    assert_eq!(datagrams.bound_paths().collect::<Vec<_>>(), [other]);
    let on_other = packet(1200, |writer| datagrams.write_bound(writer, start(), other));
    assert_eq!(
        payloads(&on_other.expect("it")),
        [Bytes::from(vec![1; 400])]
    );
    assert!(!datagrams.has_bound(other));
    // An abandoned path takes its bound DATAGRAMs along.
    assert!(datagrams.send(Bytes::from(vec![1; 400]), bound));
    datagrams.release(other);
    assert!(!datagrams.has_bound(other));
    assert_eq!(datagrams.counts().unplaced, 1);
    assert_eq!(datagrams.send_buffer_space(), 1000);
}

/// A late DATAGRAM is not sent, makes room for others, and is counted.
#[test]
fn late_datagrams_are_dropped() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut datagrams = datagrams(1 << 16);
    let start = start();
    for seconds in [3, 1, 2] {
        let options = DatagramOptions::default().with_deadline(start + seconds * SECOND);
        assert!(datagrams.send(Bytes::from(vec![seconds as u8; 250]), options));
    }
    assert_eq!(datagrams.next_timeout(), Some(start + SECOND));
    assert!(!queue(&mut datagrams, vec![9; 250]));
    datagrams.on_timeout(start + SECOND);
    assert_eq!(datagrams.next_timeout(), Some(start + 2 * SECOND));
    assert!(queue(&mut datagrams, vec![9; 250]), "there is room again");
    // The timer may be late; packets are not.
    let packet = packet(1200, |writer| {
        datagrams.write_frames(writer, start + 2 * SECOND, PathId::ZERO, false);
    });
    let first: Vec<u8> = (payloads(&packet.expect("two")).iter())
        .map(|data| data[0])
        .collect();
    assert_eq!(first, [3, 9]);
    assert_eq!(datagrams.counts().expired, 2);
    datagrams.on_timeout(start + 9 * SECOND);
    assert_eq!(datagrams.next_timeout(), None);
}

/// DATAGRAMs without end, beside a stream.
fn beside_datagrams(priority_floor: bool, packets: usize) -> (usize, usize) {
    let config = checked(TransportOptions {
        priority_floor,
        initial_stream_receive_window: 1 << 20,
        datagram_send_buffer: 1000,
        ..options()
    });
    let mut streams = client(&config);
    let mut datagrams = DatagramQueues::new(&config);
    datagrams.set_peer_parameters(&TransportParameters {
        max_datagram_frame_size: 1 << 16,
        ..TransportParameters::default()
    });
    let mut sums = (0, 0);
    for index in 0..packets {
        while queue(&mut datagrams, vec![0; 400]) {}
        // Two DATAGRAM frames fill a packet.
        let packet = packet(806, |writer| {
            datagrams.write_beside(&mut streams, writer, (start(), PathId::ZERO), 806);
        });
        for frame in packet.expect("there is enough").frames() {
            match frame {
                Frame::Datagram(data) => sums.0 += data.len(),
                Frame::Stream(frame) => sums.1 += frame.data.len(),
                other => unreachable!("{other:?}"),
            }
        }
        if index == 0 {
            let id = streams.open(Dir::Uni).expect("credit");
            streams.send_stream(id).write(&[1; 400_000]).expect("room");
        }
    }
    sums
}

#[test]
fn streams_have_a_tenth_beside_datagrams_with_a_floor() {
    assert_eq!(beside_datagrams(false, 1000), (800_000, 0));
    let (of_datagrams, of_streams) = beside_datagrams(true, 1000);
    assert!(
        of_streams * 10 > of_datagrams,
        "{of_datagrams} {of_streams}"
    );
    // A stream that begins to wait goes first.
    let (_, at_once) = beside_datagrams(true, 2);
    assert!(at_once > 700, "{at_once}");
}
