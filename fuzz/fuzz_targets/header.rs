#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::header::{
    Header, PacketHeader, encode_retry, encode_version_negotiation, next_packet, peek,
};

fuzz_target!(|input: &[u8]| {
    let Some((first, datagram)) = input.split_first() else {
        return;
    };
    let local_cid_length = usize::from(first % 21);
    let start = peek(datagram, local_cid_length);
    let mut rest = BytesMut::from(datagram);
    let mut is_first = true;
    while !rest.is_empty() {
        let before = rest.len();
        let packet = next_packet(&mut rest, local_cid_length);
        let Ok(packet) = packet else {
            assert!(rest.is_empty());
            break;
        };
        assert_eq!(packet.data.len() + rest.len(), before);
        assert!(packet.packet_number_offset <= packet.data.len());
        if std::mem::take(&mut is_first) {
            let start = start.expect("a packet starts with what all versions share");
            assert_eq!(start.dcid, &packet.header.dcid()[..]);
        }
        let mut again = BytesMut::from(&encode(&packet.header)[..]);
        let again = next_packet(&mut again, local_cid_length).expect("our own encoding");
        assert_eq!(again.header, packet.header);
        assert!(again.has_fixed_bit());
    }
});

/// A packet with this header and, if it has frames, four bytes of packet number.
fn encode(header: &Header) -> Vec<u8> {
    let mut out = Vec::new();
    let header = match header.clone() {
        Header::Retry {
            version,
            dcid,
            scid,
            token,
            tag,
        } => {
            encode_retry(&mut out, version, &dcid, &scid, &token);
            out.extend_from_slice(&tag);
            return out;
        }
        Header::VersionNegotiation {
            dcid,
            scid,
            versions,
        } => {
            encode_version_negotiation(&mut out, &dcid, &scid, &versions);
            return out;
        }
        Header::Initial {
            version,
            dcid,
            scid,
            token,
        } => PacketHeader::Initial {
            version,
            dcid,
            scid,
            token,
        },
        Header::Handshake {
            version,
            dcid,
            scid,
        } => PacketHeader::Handshake {
            version,
            dcid,
            scid,
        },
        Header::ZeroRtt {
            version,
            dcid,
            scid,
        } => PacketHeader::ZeroRtt {
            version,
            dcid,
            scid,
        },
        Header::Short { dcid } => PacketHeader::Short {
            dcid,
            spin: false,
            key_phase: false,
        },
    };
    let encoded = header.encode(&mut out, 7, 4);
    assert_eq!(encoded.packet_number_offset, header.size());
    let end = out.len();
    encoded.set_length(&mut out, end);
    out
}
