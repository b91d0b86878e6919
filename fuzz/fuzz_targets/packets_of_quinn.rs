//! Cuts a datagram into packets with our code and with that of quinn: both must find the same ones.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::header::{Header, next_packet};
use quinn_proto::{
    FixedLengthConnectionIdParser, PacketDecodeError, PartialDecode, ProtectedHeader,
};

/// quinn speaks version 1 only, so what is of version 2 ends the comparison.
const VERSIONS: [u32; 1] = [1];

fuzz_target!(|input: &[u8]| {
    let Some((first, datagram)) = input.split_first() else {
        return;
    };
    let local_cid_length = usize::from(first % 21);
    let parser = FixedLengthConnectionIdParser::new(local_cid_length);
    let mut ours = BytesMut::from(datagram);
    let mut theirs = Some(BytesMut::from(datagram));
    while !ours.is_empty() {
        let rest = theirs.take().expect("quinn finds fewer packets");
        let at_start = rest.clone();
        let their_packet = PartialDecode::new(rest, &parser, &VERSIONS, true);
        let our_packet = next_packet(&mut ours, local_cid_length);
        match (our_packet, their_packet) {
            (Ok(ours), Ok((packet, rest))) => {
                assert_eq!(packet.len(), ours.data.len());
                assert_eq!(packet.dst_cid(), ours.header.dcid());
                assert_same(&ours.header, &at_start, &parser);
                theirs = rest;
            }
            (Ok(ours), Err(error)) => {
                let of_other_version = ours.data.get(1..5) == Some(&[0x6b, 0x33, 0x43, 0xcf]);
                assert!(of_other_version, "{:?}, but quinn: {error}", ours.header);
                return;
            }
            (Err(error), Ok((packet, _))) => {
                assert!(is_lenient(&at_start), "{error}, but quinn: {packet:?}");
                return;
            }
            (Err(_), Err(_)) => return,
        }
    }
    assert!(
        theirs.is_none_or(|rest| rest.is_empty()),
        "quinn finds more packets"
    );
});

fn assert_same(ours: &Header, datagram: &BytesMut, parser: &FixedLengthConnectionIdParser) {
    let mut cursor = std::io::Cursor::new(datagram.clone());
    let theirs = ProtectedHeader::decode(&mut cursor, parser, &VERSIONS, true);
    let theirs = theirs.unwrap_or_else(|error: PacketDecodeError| panic!("{error}"));
    match (ours, theirs) {
        (Header::Initial { scid, token, .. }, ProtectedHeader::Initial(theirs)) => {
            assert_eq!(*scid, theirs.src_cid);
            assert_eq!(token[..], datagram[theirs.token_pos]);
        }
        (
            Header::Handshake { scid, .. } | Header::ZeroRtt { scid, .. },
            ProtectedHeader::Long { ty, src_cid, .. },
        ) => {
            let is_handshake = matches!(ours, Header::Handshake { .. });
            assert_eq!(ty == quinn_proto::LongType::Handshake, is_handshake);
            assert_eq!(*scid, src_cid);
        }
        (Header::Retry { scid, .. }, ProtectedHeader::Retry { src_cid, .. })
        | (
            Header::VersionNegotiation { scid, .. },
            ProtectedHeader::VersionNegotiate { src_cid, .. },
        ) => assert_eq!(*scid, src_cid),
        (Header::Short { .. }, ProtectedHeader::Short { .. }) => {}
        (ours, theirs) => panic!("{ours:?} is {theirs:?} to quinn"),
    }
}

/// quinn looks into Retry and Version Negotiation packets only later, so it takes those without a
/// tag, without a token or with a broken list.
fn is_lenient(datagram: &[u8]) -> bool {
    let is_retry = datagram[0] & 0xb0 == 0xb0;
    let is_negotiation = datagram[0] & 0x80 != 0 && datagram[1..5] == [0; 4];
    is_retry || is_negotiation
}
