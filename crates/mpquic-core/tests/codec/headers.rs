//! Headers: the samples of RFC 9001, coalesced packets, malformed input, unknown versions.

use bytes::{Bytes, BytesMut};
use mpquic_core::unstable_wire::header::{
    Header, HeaderError, PacketHeader, PacketKind, encode_retry, encode_version_negotiation,
    next_packet, peek,
};
use mpquic_core::{ConnectionId, Version};

use super::hex;

/// RFC 9001 appendix A: the headers of the sample packets before protection.
#[test]
fn sample_headers() {
    let client = ConnectionId::new(&hex("8394c8f03e515708"));
    let server = ConnectionId::new(&hex("f067a5502a4262b5"));
    let empty = ConnectionId::new(&[]);
    for (bytes, dcid, scid, packet_number, length, size) in [
        (
            "c300000001088394c8f03e5157080000449e00000002",
            client,
            empty,
            2,
            4,
            1200,
        ),
        (
            "c1000000010008f067a5502a4262b50040750001",
            empty,
            server,
            1,
            2,
            135,
        ),
    ] {
        let header = PacketHeader::Initial {
            version: Version::V1,
            dcid,
            scid,
            token: Bytes::new(),
        };
        let mut out = vec![0; 3];
        let encoded = header.encode(&mut out, packet_number, length);
        assert_eq!(encoded.packet_number_offset, 3 + header.size());
        encoded.set_length(&mut out, 3 + size);
        assert_eq!(&out[3..], hex(bytes));
    }
    let header = PacketHeader::Short {
        dcid: empty,
        spin: false,
        key_phase: false,
    };
    let mut out = Vec::new();
    let encoded = header.encode(&mut out, 654_360_564, 3);
    assert_eq!(out, hex("4200bff4"));
    assert_eq!(encoded.length_offset, None);
}

/// RFC 9001 appendix A.4.
#[test]
fn sample_retry() {
    let bytes = hex("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
    let packet = next_packet(&mut BytesMut::from(&bytes[..]), 8).unwrap();
    assert_eq!(packet.data, bytes);
    assert_eq!(packet.packet_number_offset, bytes.len());
    let (dcid, scid) = (ConnectionId::new(&[]), ConnectionId::new(&bytes[7..15]));
    let expected = Header::Retry {
        version: Version::V1,
        dcid,
        scid,
        token: Bytes::from_static(b"token"),
        tag: bytes[20..].try_into().unwrap(),
    };
    assert_eq!(packet.header, expected);
    let mut out = Vec::new();
    encode_retry(&mut out, Version::V1, &dcid, &scid, b"token");
    // The low bits of the first byte mean nothing.
    assert_eq!(out[0] & 0xf0, bytes[0] & 0xf0);
    assert_eq!(out[1..], bytes[1..20]);
}

/// RFC 9369 section 3.2: version 2 numbers its packet types otherwise.
#[test]
fn rfc_9369_3_2_each_version_has_its_packet_types() {
    let (dcid, scid) = (ConnectionId::new(&[1; 8]), ConnectionId::new(&[2; 4]));
    for (version, number, types) in [
        (Version::V1, 1, [0, 1, 2, 3]),
        (Version::V2, 0x6b33_43cf, [1, 2, 3, 0]),
    ] {
        let token = Bytes::new();
        #[rustfmt::skip]
        let headers = [
            PacketHeader::Initial { version, dcid, scid, token },
            PacketHeader::ZeroRtt { version, dcid, scid },
            PacketHeader::Handshake { version, dcid, scid },
        ];
        let mut encoded: Vec<Vec<u8>> = Vec::new();
        for header in headers {
            encoded.push(Vec::new());
            header.encode(encoded.last_mut().unwrap(), 5, 2);
        }
        let mut retry = Vec::new();
        encode_retry(&mut retry, version, &dcid, &scid, b"token");
        encoded.push(retry);
        for (packet, kind) in encoded.iter().zip(types) {
            assert_eq!(packet[0] >> 4, 0b1100 | kind);
            assert_eq!(packet[1..5], u32::to_be_bytes(number));
        }
    }
}

#[test]
fn coalesced_packets_are_cut_apart() {
    Version::ALL.into_iter().for_each(coalesced_packets_of);
}

fn coalesced_packets_of(version: Version) {
    let (dcid, scid) = (ConnectionId::new(&[1; 8]), ConnectionId::new(&[2; 4]));
    let token = Bytes::from_static(b"token");
    #[rustfmt::skip]
    let headers = [
        PacketHeader::Initial { version, dcid, scid, token: token.clone() },
        PacketHeader::Handshake { version, dcid, scid },
        PacketHeader::ZeroRtt { version, dcid, scid },
        PacketHeader::Short { dcid, spin: true, key_phase: true },
    ];
    #[rustfmt::skip]
    let expected = [
        Header::Initial { version, dcid, scid, token },
        Header::Handshake { version, dcid, scid },
        Header::ZeroRtt { version, dcid, scid },
        Header::Short { dcid },
    ];
    let mut datagram = Vec::new();
    let mut ends = Vec::new();
    for header in headers {
        let encoded = header.encode(&mut datagram, 5, 2);
        datagram.extend_from_slice(&[0xab; 30]);
        let end = datagram.len();
        encoded.set_length(&mut datagram, end);
        ends.push((encoded.packet_number_offset, end));
    }
    let mut rest = BytesMut::from(&datagram[..]);
    let mut start = 0;
    for (header, (offset, end)) in expected.into_iter().zip(ends) {
        let packet = next_packet(&mut rest, 8).unwrap();
        assert_eq!(packet.header, header);
        assert_eq!(packet.header.dcid(), &dcid);
        assert_eq!(packet.data, datagram[start..end]);
        assert_eq!(packet.packet_number_offset, offset - start);
        assert_eq!(packet.first, datagram[start]);
        assert!(packet.has_fixed_bit());
        start = end;
    }
    assert!(rest.is_empty());
}

#[test]
fn malformed_headers_are_refused_and_end_the_datagram() {
    let long_cid = "00".repeat(21);
    for (bytes, error) in [
        ("", HeaderError::Truncated),
        ("40 01020304050607", HeaderError::Truncated),
        ("c0 000000", HeaderError::Truncated),
        ("c0 00000001 08 0102", HeaderError::Truncated),
        ("c0 00000001 00 00 05 0102", HeaderError::Truncated),
        // The longest connection ID that is allowed, cut.
        ("c0 00000001 14 0102", HeaderError::Truncated),
        ("c0 00000001 00 14 0102", HeaderError::Truncated),
        ("c0 00000001 00 00 00 4005 01020304", HeaderError::Truncated),
        ("e0 00000001 00 00", HeaderError::Truncated),
        (
            "e0 00000001 00 00 ffffffffffffffff 00",
            HeaderError::Truncated,
        ),
        (
            "f0 00000001 00 00 000102030405060708090a0b0c0d0e",
            HeaderError::Truncated,
        ),
        // RFC 9000 section 17.2.5.2: a Retry without token
        (
            "f0 00000001 00 00 000102030405060708090a0b0c0d0e0f",
            HeaderError::Malformed,
        ),
        // The same in version 2, where its type is 0.
        (
            "c0 6b3343cf 00 00 000102030405060708090a0b0c0d0e0f",
            HeaderError::Malformed,
        ),
        // Section 17.2: connection IDs of 21 bytes
        (
            &format!("c0 00000001 15 {long_cid} 00"),
            HeaderError::Malformed,
        ),
        (
            &format!("c0 00000001 00 15 {long_cid}"),
            HeaderError::Malformed,
        ),
        ("80 00000000 00 00", HeaderError::Malformed),
        ("80 00000000 00 00 0000000102", HeaderError::Malformed),
        (
            "c0 709a50c4 00 00 00",
            HeaderError::UnsupportedVersion(0x709a_50c4),
        ),
    ] {
        let mut datagram = BytesMut::from(&hex(bytes)[..]);
        assert_eq!(next_packet(&mut datagram, 8), Err(error), "{bytes}");
        assert!(datagram.is_empty(), "{bytes}");
    }
}

/// RFC 8999 section 5.1, RFC 9000 section 6.
#[test]
fn unknown_versions_can_be_answered() {
    let (dcid, scid) = ([7; 255], [8; 30]);
    let datagram = [&hex("ff 1a2a3a4a ff")[..], &dcid, &[30], &scid, b"whatever"].concat();
    let start = peek(&datagram, 8).unwrap();
    assert_eq!(start.kind, PacketKind::UnsupportedVersion);
    assert_eq!((start.version, start.long), (0x1a2a_3a4a, true));
    assert_eq!((start.dcid, start.scid), (&dcid[..], &scid[..]));
    let mut out = Vec::new();
    encode_version_negotiation(&mut out, start.scid, start.dcid, &[1]);
    let answer = [
        &hex("c0 00000000 1e")[..],
        &scid,
        &[255],
        &dcid,
        &[0, 0, 0, 1],
    ]
    .concat();
    assert_eq!(out, answer);
    // We never send such connection IDs, so the packet cannot answer ours.
    assert_eq!(peek(&out, 8), None);
}

#[test]
fn version_negotiation() {
    let versions = vec![1, 0x0a0a_0a0a];
    let mut out = Vec::new();
    encode_version_negotiation(&mut out, &[1; 8], &[2; 8], &versions);
    out[0] = 0x80; // The other bits mean nothing (RFC 8999 section 6).
    assert_eq!(peek(&out, 8).unwrap().kind, PacketKind::VersionNegotiation);
    let packet = next_packet(&mut BytesMut::from(&out[..]), 8).unwrap();
    assert!(packet.has_fixed_bit());
    let (dcid, scid) = (ConnectionId::new(&[1; 8]), ConnectionId::new(&[2; 8]));
    let expected = Header::VersionNegotiation {
        dcid,
        scid,
        versions,
    };
    assert_eq!(packet.header, expected);
}

/// RFC 9287: the QUIC bit is reported, not judged.
#[test]
fn the_quic_bit_is_reported() {
    for (first, has_fixed_bit) in [(0x40, true), (0x00, false)] {
        let mut datagram = BytesMut::from(&[first, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]);
        let start = peek(&datagram, 8).unwrap();
        assert_eq!((start.kind, start.long), (PacketKind::OneRtt, false));
        assert_eq!(start.has_fixed_bit, has_fixed_bit);
        assert_eq!(start.dcid, [1, 2, 3, 4, 5, 6, 7, 8]);
        let packet = next_packet(&mut datagram, 8).unwrap();
        assert_eq!(packet.has_fixed_bit(), has_fixed_bit);
        assert_eq!(packet.packet_number_offset, 9);
    }
}
