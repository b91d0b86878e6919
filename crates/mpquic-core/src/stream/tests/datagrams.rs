//! The queues of RFC 9221.

use super::*;
use crate::packet::delivery::Delivery;
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
fn the_space_of_the_send_buffer_is_what_a_payload_may_have() {
    let mut datagrams = datagrams(1 << 16);
    assert_eq!(datagrams.send_buffer_space(), 1000);
    assert!(datagrams.send(Bytes::from(vec![0; 100])).is_ok());
    let space = datagrams.send_buffer_space();
    assert!((800..900).contains(&space), "{space}");
    let too_large = Bytes::from(vec![0; space + 1]);
    assert!(datagrams.send(too_large).is_err());
    assert!(datagrams.send(Bytes::from(vec![0; space])).is_ok());
    assert_eq!(datagrams.send_buffer_space(), 0);
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
        datagrams.send(data.clone()).expect("room");
        let packet = packet(100, |writer| datagrams.write_frames(writer));
        let packet = packet.unwrap_or_else(|| panic!("{length} bytes fit"));
        assert_eq!(payloads(&packet), [data]);
        assert!(!datagrams.wants_to_send());
    }
}

#[test]
fn several_share_a_packet_in_order() {
    let mut datagrams = datagrams(1 << 16);
    for length in [30, 30, 30, 5] {
        datagrams
            .send(Bytes::from(bytes_of(0..length)))
            .expect("room");
    }
    let first = packet(100, |writer| datagrams.write_frames(writer)).expect("datagrams");
    let lengths: Vec<usize> = payloads(&first).iter().map(Bytes::len).collect();
    assert_eq!(lengths, [30, 30, 30]);
    assert_eq!(first.deliveries[..], [Delivery::Datagram; 3]);
    let second = packet(100, |writer| datagrams.write_frames(writer)).expect("datagrams");
    assert_eq!(payloads(&second)[0].len(), 5);
}

#[test]
fn a_full_send_buffer_blocks_until_half_of_it_is_free() {
    let mut datagrams = datagrams(1 << 16);
    let mut sent = 0;
    let data = Bytes::from(vec![0; 100]);
    while datagrams.send(data.clone()).is_ok() {
        sent += 1;
    }
    assert!((5..10).contains(&sent), "{sent}");
    assert!(!datagrams.take_unblocked());
    while datagrams.wants_to_send() {
        packet(110, |writer| datagrams.write_frames(writer)).expect("datagram");
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
fn what_has_waited_leaves_the_datagram_it_came_in() {
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
fn what_no_packet_carries_is_dropped() {
    let mut datagrams = datagrams(1 << 16);
    for length in [50, 300, 99, 100] {
        datagrams.send(Bytes::from(vec![0; length])).expect("room");
    }
    datagrams.drop_oversized(None);
    datagrams.drop_oversized(Some(100));
    let packet = packet(1200, |writer| datagrams.write_frames(writer)).expect("datagrams");
    let lengths: Vec<usize> = payloads(&packet).iter().map(Bytes::len).collect();
    assert_eq!(lengths, [50, 99]);
}
