//! Frames: golden encodings, the frame table, malformed input, acknowledgements.

use std::ops::Range;

use bytes::Bytes;
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{
    self, Ack, AckFrequency, AddressEntry, AlternativeAddress, Close, Crypto, CryptoHeader,
    DatagramHeader, EcnCounts, Frame, FrameIter, MaxStreamData, MaxStreams, NewConnectionId,
    PacketType, PathAbandon, PathAck, PathCidsBlocked, PathNewConnectionId, PathRetireConnectionId,
    ResetStream, ResetStreamAt, StopSending, Stream, StreamDataBlocked, StreamHeader,
    StreamsBlocked, encode_ack,
};
use mpquic_core::{
    ApplicationClose, ConnectionClose, ConnectionId, Dir, Fault, PathId, PathStatus,
    TransportError, TransportErrorCode,
};

use super::{hex, stream_id};

pub(super) fn decoded(bytes: &[u8], multipath: bool) -> Result<Vec<Frame>, TransportError> {
    FrameIter::new(Bytes::copy_from_slice(bytes), multipath).collect()
}

pub(super) fn encoded(frame: &Frame) -> Vec<u8> {
    let mut out = vec![0xee];
    frame.encode(&mut out);
    out.remove(0);
    assert_eq!(out.len(), frame.size(), "{frame:?}");
    out
}

fn ack(received: impl Iterator<Item = u64>, delay: u64, ecn: Option<[u64; 3]>) -> Ack {
    let received = received.map(|number| number..number + 1).collect();
    let ecn = ecn.map(|[ect0, ect1, ce]| EcnCounts { ect0, ect1, ce });
    Ack::new(&received, delay, ecn).unwrap()
}

fn stream(id: u64, offset: u64, fin: bool, data: &'static [u8]) -> Frame {
    Frame::Stream(Stream {
        stream_id: stream_id(id),
        offset,
        fin,
        data: Bytes::from_static(data),
    })
}

fn application_close(error_code: u32, reason: &'static str) -> ApplicationClose {
    ApplicationClose {
        error_code: error_code.into(),
        reason: Bytes::from_static(reason.as_bytes()),
    }
}

fn new_connection_id(cid: &[u8]) -> NewConnectionId {
    NewConnectionId {
        sequence_number: 0,
        retire_prior_to: 0,
        connection_id: ConnectionId::new(cid),
        stateless_reset_token: std::array::from_fn(|i| i as u8),
    }
}

/// The frames of RFC 10069 section 4.
fn multipath_frames() -> Vec<(&'static str, Frame)> {
    use TransportErrorCode as Code;
    let one = PathId(1);
    let cid = new_connection_id(&[0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7]);
    let counted = ack(0..6, 0, Some([6, 0, 0]));
    vec![
        (
            "3e0105000005",
            Frame::PathAck(PathAck {
                path_id: one,
                ack: ack(0..6, 0, None),
            }),
        ),
        (
            "3f0105000005060000",
            Frame::PathAck(PathAck {
                path_id: one,
                ack: counted,
            }),
        ),
        (
            "7e75013e",
            Frame::PathAbandon(PathAbandon {
                path_id: one,
                error_code: Code::APPLICATION_ABANDON_PATH,
            }),
        ),
        (
            "7e75027e75",
            Frame::PathAbandon(PathAbandon {
                path_id: PathId(2),
                error_code: Code::PATH_RESOURCE_LIMIT_REACHED,
            }),
        ),
        (
            "7e760107",
            Frame::PathStatus(frame::PathStatus {
                path_id: one,
                status: PathStatus::Backup,
                sequence_number: 7,
            }),
        ),
        (
            "7e770108",
            Frame::PathStatus(frame::PathStatus {
                path_id: one,
                status: PathStatus::Available,
                sequence_number: 8,
            }),
        ),
        (
            "7e7801000008a0a1a2a3a4a5a6a7000102030405060708090a0b0c0d0e0f",
            Frame::PathNewConnectionId(PathNewConnectionId {
                path_id: one,
                new_connection_id: cid,
            }),
        ),
        (
            "7e790100",
            Frame::PathRetireConnectionId(PathRetireConnectionId {
                path_id: one,
                sequence_number: 0,
            }),
        ),
        ("7e7a04", Frame::MaxPathId(PathId(4))),
        ("7e7ac0000000ffffffff", Frame::MaxPathId(PathId(u32::MAX))),
        ("7e7b02", Frame::PathsBlocked(PathId(2))),
        (
            "7e7c0102",
            Frame::PathCidsBlocked(PathCidsBlocked {
                path_id: one,
                next_sequence_number: 2,
            }),
        ),
    ]
}

/// The frames of RFC 9000 section 19 and RFC 9221 section 4, written down from their field lists.
fn single_path_frames() -> Vec<(&'static str, Frame)> {
    let data = Bytes::from_static(b"mpquic");
    let reset = ResetStream {
        stream_id: stream_id(4),
        error_code: 7,
        final_size: 1024,
    };
    let stop = StopSending {
        stream_id: stream_id(4),
        error_code: 7,
    };
    let crypto = Crypto {
        offset: 256,
        data: data.clone(),
    };
    let close = ConnectionClose {
        code: TransportErrorCode::PROTOCOL_VIOLATION,
        frame_type: 0x3e75,
        reason: data.clone(),
    };
    let cid = new_connection_id(&[0xaa]);
    let mut frames = vec![
        ("00", Frame::Padding),
        ("01", Frame::Ping),
        (
            "02 09 4064 01 01 02 03",
            Frame::Ack(ack((1..5).chain(8..10), 100, None)),
        ),
        (
            "03 00 00 00 00 01 02 4040",
            Frame::Ack(ack(0..1, 0, Some([1, 2, 64]))),
        ),
        ("04 04 07 4400", Frame::ResetStream(reset)),
        ("05 04 07", Frame::StopSending(stop)),
        ("06 4100 06 6d7071756963", Frame::Crypto(crypto)),
        ("07 06 6d7071756963", Frame::NewToken(data.clone())),
        ("0a 00 06 6d7071756963", stream(0, 0, false, b"mpquic")),
        ("0f 03 4040 00", stream(3, 64, true, b"")),
    ];
    frames.extend(limit_frames());
    frames.extend([
        (
            "18 00 00 01 aa 000102030405060708090a0b0c0d0e0f",
            Frame::NewConnectionId(cid),
        ),
        ("19 02", Frame::RetireConnectionId(2)),
        (
            "1a 0102030405060708",
            Frame::PathChallenge([1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        (
            "1b 0102030405060708",
            Frame::PathResponse([1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        (
            "1c 0a 7e75 06 6d7071756963",
            Frame::ConnectionClose(Close::Connection(close)),
        ),
        (
            "1d 4100 00",
            Frame::ConnectionClose(Close::Application(application_close(256, ""))),
        ),
        ("1e", Frame::HandshakeDone),
        ("31 06 6d7071756963", Frame::Datagram(data)),
    ]);
    frames
}

/// The frames of RFC 9000 sections 19.9 to 19.14.
fn limit_frames() -> Vec<(&'static str, Frame)> {
    vec![
        ("10 8000ffff", Frame::MaxData(65535)),
        (
            "11 08 8000ffff",
            Frame::MaxStreamData(MaxStreamData {
                stream_id: stream_id(8),
                maximum_stream_data: 65535,
            }),
        ),
        (
            "12 10",
            Frame::MaxStreams(MaxStreams {
                dir: Dir::Bi,
                maximum_streams: 16,
            }),
        ),
        (
            "13 d000000000000000",
            Frame::MaxStreams(MaxStreams {
                dir: Dir::Uni,
                maximum_streams: 1 << 60,
            }),
        ),
        ("14 05", Frame::DataBlocked(5)),
        (
            "15 02 05",
            Frame::StreamDataBlocked(StreamDataBlocked {
                stream_id: stream_id(2),
                maximum_stream_data: 5,
            }),
        ),
        (
            "16 03",
            Frame::StreamsBlocked(StreamsBlocked {
                dir: Dir::Bi,
                maximum_streams: 3,
            }),
        ),
        (
            "17 03",
            Frame::StreamsBlocked(StreamsBlocked {
                dir: Dir::Uni,
                maximum_streams: 3,
            }),
        ),
    ]
}

/// Frames of drafts: draft-ietf-quic-ack-frequency-14 sections 4 and 5,
/// draft-ietf-quic-reliable-stream-reset-11 section 4,
/// draft-munizaga-quic-alternative-server-address-01 section 5.
fn extension_frames() -> Vec<(&'static str, Frame)> {
    let request = AckFrequency {
        sequence_number: 5,
        ack_eliciting_threshold: 9,
        requested_max_ack_delay: 25_000,
        reordering_threshold: 3,
    };
    let reset = ResetStreamAt {
        stream_id: stream_id(4),
        error_code: 7,
        final_size: 1024,
        reliable_size: 512,
    };
    vec![
        ("40af 05 09 800061a8 03", Frame::AckFrequency(request)),
        ("1f", Frame::ImmediateAck),
        ("24 04 07 4400 4200", Frame::ResetStreamAt(reset)),
        (
            "9d5845e2 4102 04 01 05 c0000201 01bb 01 05 c0000202 20fb 00 \
             02 00 20010db8000000000000000000000001 01bb",
            Frame::AlternativeAddress(AlternativeAddress {
                sequence_number: 0x102,
                preferred: vec![entry(5, "192.0.2.1:443"), entry(5, "192.0.2.2:8443")],
                backup: vec![entry(0, "[2001:db8::1]:443")],
            }),
        ),
        (
            "9d5845e2 00 01 00",
            Frame::AlternativeAddress(AlternativeAddress {
                sequence_number: 0,
                preferred: Vec::new(),
                backup: Vec::new(),
            }),
        ),
    ]
}

fn entry(priority_hint: u64, address: &str) -> AddressEntry {
    AddressEntry {
        priority_hint,
        address: address.parse().unwrap(),
    }
}

fn all_frames() -> impl Iterator<Item = (&'static str, Frame)> {
    multipath_frames()
        .into_iter()
        .chain(single_path_frames())
        .chain(extension_frames())
}

#[test]
fn golden_encodings() {
    for (bytes, frame) in all_frames() {
        let bytes = hex(bytes);
        assert_eq!(encoded(&frame), bytes, "{frame:?}");
        assert_eq!(
            decoded(&bytes, true),
            Ok(vec![frame.clone()]),
            "{bytes:02x?}"
        );
        let frame_type = match bytes[..] {
            [first @ 0..0x40, ..] => first.into(),
            [first @ 0x40..0x80, second, ..] => u64::from(first & 0x3f) << 8 | u64::from(second),
            [a @ 0x80..0xc0, b, c, d, ..] => u32::from_be_bytes([a & 0x3f, b, c, d]).into(),
            _ => panic!("no type"),
        };
        assert_eq!(frame.frame_type(), frame_type, "{frame:?}");
    }
}

#[test]
fn forms_we_do_not_send_are_understood() {
    assert_eq!(
        decoded(&hex("09 00 6162"), false),
        Ok(vec![stream(0, 0, true, b"ab")])
    );
    // RFC 9000 section 19.8: the last byte of the largest stream there can be.
    let largest = (1 << 62) - 2;
    assert_eq!(
        decoded(&hex("0e 00 fffffffffffffffe 01 61"), false),
        Ok(vec![stream(0, largest, false, b"a")])
    );
    let all = decoded(&hex("01 0000000000 30 6162"), false);
    let datagram = Frame::Datagram(Bytes::from_static(b"ab"));
    assert_eq!(all, Ok(vec![Frame::Ping, Frame::Padding, datagram]));
    // Values, unlike frame types, may be longer than necessary.
    assert_eq!(
        decoded(&hex("10 c000000000000005"), false),
        Ok(vec![Frame::MaxData(5)])
    );
}

#[test]
fn headers_precede_their_data() {
    let stream = StreamHeader {
        stream_id: stream_id(5),
        offset: 70,
        fin: true,
        length: None,
    };
    let crypto = CryptoHeader {
        offset: 0,
        length: 100,
    };
    let datagram = DatagramHeader { length: None };
    let mut out = Vec::new();
    stream.encode(&mut out);
    assert_eq!(out.len(), stream.size());
    crypto.encode(&mut out);
    datagram.encode(&mut out);
    assert_eq!(out, hex("0d 05 4046  06 00 4064  30"));
    assert_eq!(out.len(), stream.size() + crypto.size() + datagram.size());
}

fn error(bytes: &str, multipath: bool) -> (Fault, u64) {
    let mut frames = FrameIter::new(hex(bytes).into(), multipath);
    let error = frames.by_ref().find_map(Result::err).expect(bytes);
    assert_eq!(frames.next(), None, "{bytes}: nothing follows an error");
    (error.fault, error.frame_type)
}

#[test]
fn malformed_frames_are_errors_with_the_right_code() {
    for (bytes, fault, frame_type) in [
        // RFC 9000 section 12.4: a packet without frames, unknown and needlessly long types
        ("", Fault::EmptyPacket, 0),
        ("2f", Fault::UnknownFrameType, 0x2f),
        ("20", Fault::UnknownFrameType, 0x20),
        ("40ff", Fault::UnknownFrameType, 0xff),
        ("7e74", Fault::UnknownFrameType, 0x3e74),
        ("7e7d", Fault::UnknownFrameType, 0x3e7d),
        ("ffffffffffffffff", Fault::UnknownFrameType, (1 << 62) - 1),
        ("4001", Fault::FrameTypeNotShortest, 1),
        ("80003e75 00 00", Fault::FrameTypeNotShortest, 0x3e75),
        ("7e", Fault::TruncatedFrame, 0),
        // Sections 19.3 and 19.3.1: below zero (MP-055)
        ("02 05 00 00 06", Fault::AckBelowZero, 2),
        ("02 05 00 01 01 03 00", Fault::AckBelowZero, 2),
        ("02 05 00 01 01 00 04", Fault::AckBelowZero, 2),
        ("02 05 00 ffffffffffffffff 00", Fault::TruncatedFrame, 2),
        (
            "02 05 00 01 00 ffffffffffffffff ffffffffffffffff",
            Fault::AckBelowZero,
            2,
        ),
        ("03 05 00 00 00 01 02", Fault::TruncatedFrame, 3),
        ("3e 01 05 00 00 06", Fault::AckBelowZero, 0x3e),
        ("3f 01 05 00 00 05 01 02", Fault::TruncatedFrame, 0x3f),
        // Sections 19.6 to 19.8: offsets and lengths
        ("06 ffffffffffffffff 01 00", Fault::OffsetTooLarge, 6),
        ("06 00 02 00", Fault::TruncatedFrame, 6),
        ("07 00", Fault::EmptyToken, 7),
        ("0e 00 ffffffffffffffff 01 00", Fault::OffsetTooLarge, 0x0e),
        ("0c 00 ffffffffffffffff 00", Fault::OffsetTooLarge, 0x0c),
        ("0a 00 02 00", Fault::TruncatedFrame, 0x0a),
        ("0a 00 ffffffffffffffff 00", Fault::TruncatedFrame, 0x0a),
        // Sections 19.11 and 19.14
        ("12 d000000000000001", Fault::StreamCountTooLarge, 0x12),
        ("13 d000000000000001", Fault::StreamCountTooLarge, 0x13),
        ("16 d000000000000001", Fault::StreamCountTooLarge, 0x16),
        ("17 d000000000000001", Fault::StreamCountTooLarge, 0x17),
        // Section 19.15 (MP-104)
        (
            "18 01 02 01 aa 000102030405060708090a0b0c0d0e0f",
            Fault::RetirePriorToTooLarge,
            0x18,
        ),
        (
            "18 00 00 00 000102030405060708090a0b0c0d0e0f",
            Fault::ConnectionIdLength,
            0x18,
        ),
        (
            &("18 00 00 15".to_owned() + &"00".repeat(37)),
            Fault::ConnectionIdLength,
            0x18,
        ),
        (
            "18 00 00 01 aa 000102030405060708090a0b0c0d0e",
            Fault::TruncatedFrame,
            0x18,
        ),
        (
            "7e78 01 00 01 01 aa 000102030405060708090a0b0c0d0e0f",
            Fault::RetirePriorToTooLarge,
            0x3e78,
        ),
        (
            "7e78 01 00 00 00 000102030405060708090a0b0c0d0e0f",
            Fault::ConnectionIdLength,
            0x3e78,
        ),
        ("31 02 00", Fault::TruncatedFrame, 0x31),
        // draft-ietf-quic-reliable-stream-reset-11 section 4: a reliable size above the final size
        ("24 04 07 05 06", Fault::ReliableSizeTooLarge, 0x24),
        // MP-050, MP-140: path IDs beyond 32 bits
        ("7e7a c000000100000000", Fault::PathIdTooLarge, 0x3e7a),
        ("7e7b c000000100000000", Fault::PathIdTooLarge, 0x3e7b),
        ("7e75 c000000100000000 00", Fault::PathIdTooLarge, 0x3e75),
        (
            "3e c000000100000000 05 00 00 05",
            Fault::PathIdTooLarge,
            0x3e,
        ),
    ] {
        assert_eq!(error(bytes, true), (fault, frame_type), "{bytes}");
    }
}

/// MP-052.
#[test]
fn every_truncation_is_a_frame_encoding_error() {
    for (bytes, frame) in all_frames() {
        let bytes = hex(bytes);
        for length in 1..bytes.len() {
            let result = decoded(&bytes[..length], true);
            let error = result.expect_err(&format!("{frame:?} cut to {length}"));
            assert_eq!(error.fault, Fault::TruncatedFrame);
        }
    }
}

/// MP-002.
#[test]
fn multipath_frames_are_unknown_unless_negotiated() {
    for (bytes, frame) in multipath_frames() {
        assert_eq!(
            error(bytes, false),
            (Fault::UnknownFrameType, frame.frame_type())
        );
    }
    for (bytes, frame) in single_path_frames() {
        assert_eq!(decoded(&hex(bytes), false), Ok(vec![frame]));
    }
}

/// Marks of the packet types that may carry a frame, as in RFC 9000 table 3.
fn packets(frame: &Frame) -> String {
    [
        (PacketType::Initial, 'I'),
        (PacketType::Handshake, 'H'),
        (PacketType::ZeroRtt, '0'),
        (PacketType::OneRtt, '1'),
    ]
    .map(|(packet, mark)| {
        if frame.is_allowed_in(packet) {
            mark
        } else {
            '_'
        }
    })
    .iter()
    .collect()
}

/// RFC 9000 table 3 and section 12.5, RFC 9221 section 4, RFC 9002 section 2.
#[test]
fn table_of_single_path_frames() {
    // In the order of `single_path_frames`: packets, ack-eliciting, probing.
    let expected = [
        ("IH01", false, true), // PADDING
        ("IH01", true, false),
        ("IH_1", false, false), // ACK
        ("IH_1", false, false),
        ("__01", true, false), // RESET_STREAM
        ("__01", true, false),
        ("IH_1", true, false), // CRYPTO
        ("___1", true, false), // NEW_TOKEN
        ("__01", true, false), // STREAM
        ("__01", true, false),
        ("__01", true, false), // MAX_DATA
        ("__01", true, false),
        ("__01", true, false),
        ("__01", true, false),
        ("__01", true, false), // DATA_BLOCKED
        ("__01", true, false),
        ("__01", true, false),
        ("__01", true, false),
        ("__01", true, true), // NEW_CONNECTION_ID
        ("___1", true, false),
        ("__01", true, true), // PATH_CHALLENGE
        ("___1", true, true),
        ("IH01", false, false), // CONNECTION_CLOSE
        ("__01", false, false),
        ("___1", true, false), // HANDSHAKE_DONE
        ("__01", true, false), // DATAGRAM
    ];
    assert_eq!(single_path_frames().len(), expected.len());
    for ((_, frame), (allowed, eliciting, probing)) in single_path_frames().iter().zip(expected) {
        assert_eq!(packets(frame), allowed, "{frame:?}");
        assert_eq!(frame.is_ack_eliciting(), eliciting, "{frame:?}");
        assert_eq!(frame.is_probing(), probing, "{frame:?}");
    }
}

#[test]
fn table_of_extension_frames() {
    // In the order of `extension_frames`: packets.
    let expected = [
        "___1", // ACK_FREQUENCY
        "___1", // IMMEDIATE_ACK
        "__01", // RESET_STREAM_AT
        "___1", // ALTERNATIVE_ADDRESS
        "___1",
    ];
    assert_eq!(extension_frames().len(), expected.len());
    for ((_, frame), allowed) in extension_frames().iter().zip(expected) {
        assert_eq!(packets(frame), allowed, "{frame:?}");
        assert!(frame.is_ack_eliciting() && !frame.is_probing(), "{frame:?}");
    }
}

/// MP-004, MP-053, MP-054.
#[test]
fn table_of_multipath_frames() {
    for (_, frame) in multipath_frames() {
        let is_ack = matches!(frame, Frame::PathAck(_));
        assert_eq!(packets(&frame), "___1", "{frame:?}");
        assert_eq!(frame.is_ack_eliciting(), !is_ack, "{frame:?}");
        assert!(!frame.is_probing(), "{frame:?}");
    }
}

/// draft-munizaga-quic-alternative-server-address-01 section 5: what ALTERNATIVE_ADDRESS must not
/// be.
#[test]
fn section_5_malformed_addresses_are_encoding_errors() {
    const TYPE: u64 = 0x1d58_45e2;
    let many = format!("00 bfffffff {}", "01 00 c0000201 01bb ".repeat(100));
    for (entries, fault) in [
        // Exactly one entry is for the current path.
        ("00 00", Fault::CurrentPathNotOnce),
        ("00 01 01 00 c0000201 01bb", Fault::CurrentPathNotOnce),
        ("00 02 00 00", Fault::CurrentPathNotOnce),
        // Priorities rise, on each side of it.
        (
            "00 03 01 01 c0000201 01bb 01 00 c0000202 01bb 00",
            Fault::AddressesNotInOrder,
        ),
        (
            "00 03 00 01 01 c0000201 01bb 01 00 c0000202 01bb",
            Fault::AddressesNotInOrder,
        ),
        // No address is there twice, on whichever side.
        (
            "00 03 01 00 c0000201 01bb 01 00 c0000201 01bb 00",
            Fault::AddressTwice,
        ),
        (
            "00 03 01 00 c0000201 01bb 00 01 09 c0000201 01bb",
            Fault::AddressTwice,
        ),
        ("00 02 00 03 00 c0000201 01bb", Fault::UnknownAddressType),
        ("00 02 00 ff", Fault::UnknownAddressType),
        ("00 02 00", Fault::TruncatedFrame),
        ("00 02 00 01 00 c0000201 01", Fault::TruncatedFrame),
        ("00 02 00 02 00 c0000201 01bb", Fault::TruncatedFrame),
        (&many, Fault::TruncatedFrame),
    ] {
        let bytes = format!("9d5845e2 {entries}");
        assert_eq!(error(&bytes, true), (fault, TYPE), "{bytes}");
        assert_eq!(error(&bytes, false), (fault, TYPE), "{bytes}");
        assert_eq!(fault.code(), TransportErrorCode::FRAME_ENCODING_ERROR);
    }
    // The same address with another port is a different address, and the lists before and after the
    // current path are independent.
    let fine = "9d5845e2 00 03 01 05 c0000201 01bb 00 01 00 c0000201 01bc";
    assert!(decoded(&hex(fine), false).is_ok());
}

/// The ranges of the one acknowledgement in a packet, and the frame itself.
fn only_ack(bytes: &[u8]) -> (Vec<Range<u64>>, Frame) {
    let [frame] = <[Frame; 1]>::try_from(decoded(bytes, true).unwrap()).unwrap();
    let (Frame::Ack(ack) | Frame::PathAck(PathAck { ack, .. })) = &frame else {
        panic!("{frame:?}");
    };
    let ranges = ack.ranges().map(|range| *range.start()..*range.end() + 1);
    (ranges.collect(), frame)
}

#[test]
fn an_acknowledgement_of_a_thousand_ranges() {
    let received: RangeSet = (0..1000u64)
        .map(|i| i * 100..i * 100 + 1 + i % 70)
        .collect();
    let mut out = Vec::new();
    let written = encode_ack(&mut out, Some(PathId(7)), &received, 25, None, usize::MAX);
    assert_eq!(written, Some(1000));
    let (ranges, frame) = only_ack(&out);
    assert!(ranges.into_iter().eq(received.iter().rev()));
    assert_eq!(encoded(&frame), out);
    let ack = Ack::new(&received, 25, None).unwrap();
    assert_eq!(
        frame,
        Frame::PathAck(PathAck {
            path_id: PathId(7),
            ack
        })
    );
}

#[test]
fn an_acknowledgement_keeps_to_its_room() {
    let received: RangeSet = (0..200u64).map(|i| i * 3..i * 3 + 1).collect();
    let ecn = Some(EcnCounts {
        ect0: 70,
        ect1: 0,
        ce: 1,
    });
    let mut most = 0;
    for room in 0..500 {
        let mut out = vec![0xee];
        let written = encode_ack(&mut out, None, &received, 100, ecn, room);
        let size = out.len() - 1;
        let Some(written) = written else {
            assert_eq!((size, most), (0, 0), "room {room}");
            continue;
        };
        assert!(size <= room && written >= most);
        // Another range would take two bytes, and a third byte with a longer count.
        assert!(written == 200 || size + 3 > room, "room {room} is wasted");
        most = written;
        let (ranges, frame) = only_ack(&out[1..]);
        assert!(ranges.into_iter().eq(received.iter().rev().take(written)));
        assert!(matches!(frame, Frame::Ack(ack) if ack.ecn_counts == ecn && ack.ack_delay == 100));
    }
    assert_eq!(most, 200);
    assert_eq!(
        encode_ack(&mut Vec::new(), None, &RangeSet::new(), 0, None, 100),
        None
    );
}

#[test]
fn a_close_is_shortened_between_characters() {
    let close = Close::Application(application_close(0, "pfad übel"));
    assert_eq!(close.clone().shortened_to(100), close);
    let shortened = |size| match close.clone().shortened_to(size) {
        Close::Application(close) => String::from_utf8(close.reason.to_vec()).unwrap(),
        Close::Connection(_) => unreachable!(),
    };
    assert_eq!(shortened(3 + 7), "pfad ü");
    assert_eq!(shortened(3 + 6), "pfad ");
    assert_eq!(shortened(3 + 5), "pfad ");
    assert_eq!(shortened(0), "");
}
