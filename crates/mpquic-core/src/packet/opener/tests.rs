//! Round trips of packets: the builder seals them, the opener opens them.

use bytes::BytesMut;
use proptest::prelude::*;
use quinn_proto::ConnectionId;

use super::*;
use crate::crypto::Keys;
use crate::crypto::tests::initial_keys;
use crate::ids::SpaceId;
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::version::Version;
use crate::wire::frame::FrameCounts;
use crate::wire::header::{PacketHeader, next_packet};

fn dcid() -> ConnectionId {
    ConnectionId::new(&[0xd; 8])
}

/// A client's keys and the server's that match.
fn keys() -> (Keys, Keys) {
    (
        initial_keys(rustls::Side::Client, &dcid()),
        initial_keys(rustls::Side::Server, &dcid()),
    )
}

fn long() -> PacketHeader {
    PacketHeader::Initial {
        version: Version::V1,
        dcid: dcid(),
        scid: ConnectionId::new(&[]),
        token: Bytes::from_static(b"token"),
    }
}

fn short() -> PacketHeader {
    PacketHeader::Short {
        dcid: dcid(),
        spin: true,
        key_phase: true,
    }
}

fn start(header: &PacketHeader, packet_number: u64, limit: usize) -> PacketStart<'_> {
    PacketStart {
        header,
        space: SpaceId::Data(PathId(3)),
        packet_number,
        largest_acked: packet_number.checked_sub(1),
        tag_length: 16,
        limit,
        clear_quic_bit: false,
    }
}

fn build(
    buf: &mut Vec<u8>,
    packet: PacketStart<'_>,
    payload: &[u8],
    pad_to: Option<usize>,
    keys: &Keys,
) -> Option<usize> {
    let builder = PacketBuilder::start(buf, packet)?;
    let mut counts = FrameCounts::default();
    let mut writer = builder.writer(buf, &mut counts);
    let room = writer.remaining();
    writer
        .buffer()
        .extend_from_slice(&payload[..payload.len().min(room)]);
    Some(builder.finish(buf, &*keys.header.local, &*keys.packet.local, pad_to))
}

fn open_first(
    datagram: &mut BytesMut,
    expected: u64,
    keys: &Keys,
) -> Option<(Unprotected, Result<Bytes, OpenError>)> {
    let mut packet = next_packet(datagram, 8).ok()?;
    let unprotected = unprotect(&mut packet, &*keys.header.remote, expected)?;
    let payload = open(&mut packet, &unprotected, &*keys.packet.remote, PathId(3));
    Some((unprotected, payload))
}

#[test]
fn coalesced_packets_open_one_by_one() {
    let (client, server) = keys();
    let mut buf = vec![1, 2, 3];
    let first = build(&mut buf, start(&long(), 0, 1203), b"first", None, &client).unwrap();
    let end = 3 + first;
    assert_eq!(buf.len(), end);
    build(
        &mut buf,
        start(&short(), 70_000, 1203),
        b"second",
        Some(1203),
        &client,
    )
    .unwrap();
    assert_eq!(buf.len(), 1203);

    let mut datagram = BytesMut::from(&buf[3..]);
    let (unprotected, payload) = open_first(&mut datagram, 0, &server).unwrap();
    assert_eq!(
        (unprotected.packet_number, payload.unwrap()),
        (0, Bytes::from_static(b"first"))
    );
    let (unprotected, payload) = open_first(&mut datagram, 69_990, &server).unwrap();
    assert_eq!(unprotected.packet_number, 70_000);
    assert!(unprotected.key_phase() && unprotected.spin());
    let payload = payload.unwrap();
    assert!(payload.starts_with(b"second\0\0") && payload[6..].iter().all(|byte| *byte == 0));
    assert!(datagram.is_empty());
}

#[test]
fn packets_end_at_the_limit_or_do_not_start() {
    let (client, server) = keys();
    for header in [long(), short()] {
        let mut smallest = None;
        for limit in 0..120 {
            let mut buf = Vec::new();
            let Some(size) = build(&mut buf, start(&header, 5, limit), &[1; 200], None, &client)
            else {
                assert!(buf.is_empty() && smallest.is_none());
                continue;
            };
            smallest.get_or_insert(limit);
            assert_eq!((size, buf.len()), (limit, limit));
            let (_, payload) = open_first(&mut BytesMut::from(&buf[..]), 5, &server).unwrap();
            assert!(payload.unwrap().iter().all(|byte| *byte == 1));
        }
        // One byte of number and three of payload leave a sample.
        assert_eq!(smallest, Some(header.size() + 4 + 16));
    }
}

#[test]
fn long_headers_never_overflow_their_length() {
    let (client, server) = keys();
    let mut buf = Vec::new();
    let size = build(
        &mut buf,
        start(&long(), 5, 60_000),
        &[1; 60_000],
        Some(60_000),
        &client,
    )
    .unwrap();
    assert_eq!(size, long().size() + (1 << 14) - 1);
    let (_, payload) = open_first(&mut BytesMut::from(&buf[..]), 5, &server).unwrap();
    assert_eq!(payload.unwrap().len(), (1 << 14) - 1 - 1 - 16);
}

#[test]
fn payload_is_not_copied() {
    let (client, server) = keys();
    let mut buf = Vec::new();
    build(
        &mut buf,
        start(&short(), 5, 1200),
        &[1; 1200],
        None,
        &client,
    )
    .unwrap();
    let mut datagram = BytesMut::from(&buf[..]);
    let address = datagram.as_ptr() as usize;
    let (unprotected, payload) = open_first(&mut datagram, 5, &server).unwrap();
    assert_eq!(
        payload.unwrap().as_ptr() as usize,
        address + unprotected.header_length
    );
}

#[test]
fn rfc_9000_17_reserved_bits_and_12_4_empty_packets() {
    let (client, server) = keys();
    for (header, reserved) in [(long(), 0x0c), (short(), 0x18)] {
        for bits in [0x04, 0x08, 0x10, 0] {
            let mut buf = Vec::new();
            let encoded = header.encode(&mut buf, 5, 4);
            buf[0] |= bits & reserved;
            let header_length = buf.len();
            let payload = if bits == 0 { 0 } else { 20 };
            buf.resize(header_length + payload + 16, 1);
            let end = buf.len();
            encoded.set_length(&mut buf, end);
            client
                .packet
                .local
                .encrypt(PathId(3), 5, &mut buf, header_length);
            client
                .header
                .local
                .encrypt(encoded.packet_number_offset, &mut buf);
            let (_, opened) = open_first(&mut BytesMut::from(&buf[..]), 5, &server).unwrap();
            if bits & reserved == 0 && bits != 0 {
                assert_eq!(opened.unwrap().len(), 20);
                continue;
            }
            let Err(OpenError::Transport(error)) = opened else {
                panic!("{bits:#x}: {opened:?}");
            };
            let expected = match bits {
                0 => Fault::EmptyPacket,
                _ => Fault::ReservedBits,
            };
            assert_eq!(error.fault, expected);
        }
    }
}

proptest! {
    #[test]
    fn any_packet_number_and_payload_survive(
        number in 0u64..1 << 62,
        payload in prop::collection::vec(any::<u8>(), 4..1100),
        is_long: bool,
    ) {
        let (client, server) = keys();
        let header = if is_long { long() } else { short() };
        let mut buf = Vec::new();
        build(&mut buf, start(&header, number, 1200), &payload, None, &client).unwrap();
        let (unprotected, opened) = open_first(&mut BytesMut::from(&buf[..]), number, &server).unwrap();
        prop_assert_eq!(unprotected.packet_number, number);
        prop_assert_eq!(opened.unwrap(), payload);
    }

    #[test]
    fn changed_packets_do_not_open(
        bytes in prop::collection::vec((0usize..80, 1u8..), 1..4),
        is_long: bool,
    ) {
        let (client, server) = keys();
        let header = if is_long { long() } else { short() };
        let mut buf = Vec::new();
        build(&mut buf, start(&header, 5, 1200), &[6; 40], None, &client).unwrap();
        let sent = buf.clone();
        for (at, change) in bytes {
            let at = at % buf.len();
            buf[at] ^= change;
        }
        prop_assume!(buf != sent);
        let opened = open_first(&mut BytesMut::from(&buf[..]), 5, &server);
        prop_assert!(!matches!(opened, Some((_, Ok(_)))), "{opened:?}");
    }

    #[test]
    fn noise_is_harmless(noise in prop::collection::vec(any::<u8>(), 0..100)) {
        let (_, server) = keys();
        let mut datagram = BytesMut::from(&noise[..]);
        while !datagram.is_empty() {
            let before = datagram.len();
            let opened = open_first(&mut datagram, 5, &server);
            prop_assert!(!matches!(opened, Some((_, Ok(_)))));
            prop_assert!(datagram.len() < before);
        }
    }
}
