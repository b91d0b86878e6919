//! Datagrams of several packets, whole, cut and with a foreign end: the packets before the cut come
//! out as they went in, and nothing else does.

#![no_main]

use arbitrary::Arbitrary;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mpquic_core::Version;
use mpquic_core::unstable_wire::header::{Header, PacketHeader, next_packet, peek};
use mpquic_fuzz::number::Cid;

#[derive(Debug, Arbitrary)]
enum Kind {
    Initial(u8),
    ZeroRtt,
    Handshake,
    Short { spin: bool, key_phase: bool },
}

#[derive(Debug, Arbitrary)]
struct Packet {
    kind: Kind,
    second_version: bool,
    dcid: Cid,
    scid: Cid,
    packet_number: u64,
    number_length: u8,
    payload: u8,
}

#[derive(Debug, Arbitrary)]
enum End {
    Whole,
    Cut(u16),
    Foreign(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct Input {
    local_cid_length: u8,
    end: End,
    packets: Vec<Packet>,
}

fuzz_target!(|input: Input| {
    let local_cid_length = usize::from(input.local_cid_length % 21);
    let mut datagram = Vec::new();
    let mut expected = Vec::new();
    let mut ended = false;
    for packet in input.packets.iter().take(20) {
        let start = datagram.len();
        let header = encode(packet, local_cid_length, &mut datagram);
        expected.push((header, datagram.len() - start));
        // A packet with a short header takes all that follows.
        if matches!(packet.kind, Kind::Short { .. }) {
            ended = true;
            break;
        }
    }
    let whole = datagram.len();
    match input.end {
        End::Whole => {}
        End::Cut(at) => datagram.truncate(usize::from(at) % (whole + 1)),
        End::Foreign(bytes) if !ended => datagram.extend(bytes),
        End::Foreign(_) => {}
    }
    check(&datagram, &expected, whole, local_cid_length);
});

fn check(datagram: &[u8], expected: &[(Header, usize)], whole: usize, local_cid_length: usize) {
    let mut rest = BytesMut::from(datagram);
    let mut at = 0;
    for (header, size) in expected {
        let is_short = matches!(header, Header::Short { .. });
        let left = datagram.len() - at;
        if left < *size {
            // A short header does not tell where its packet ends.
            let found = next_packet(&mut rest, local_cid_length);
            assert!(is_short || found.is_err(), "a packet that was cut");
            assert!(rest.is_empty());
            return;
        }
        assert_eq!(
            peek(&rest, local_cid_length).map(|start| start.dcid.to_vec()),
            Some(header.dcid().to_vec())
        );
        let packet = next_packet(&mut rest, local_cid_length).expect("a whole packet");
        assert_eq!(packet.header, *header);
        assert_eq!(packet.data, datagram[at..at + size]);
        assert!(packet.has_fixed_bit());
        assert!(packet.packet_number_offset < *size);
        at += size;
        assert_eq!(rest.len(), datagram.len() - at);
    }
    assert_eq!(at, whole.min(datagram.len()));
}

/// Appends a packet; returns what is readable of its header.
fn encode(packet: &Packet, local_cid_length: usize, out: &mut Vec<u8>) -> Header {
    let version = if packet.second_version {
        Version::V2
    } else {
        Version::V1
    };
    let (dcid, scid) = (packet.dcid.0, packet.scid.0);
    let token = |length: u8| bytes::Bytes::from(vec![length; usize::from(length)]);
    let (to_send, received) = match packet.kind {
        Kind::Initial(length) => (
            PacketHeader::Initial {
                version,
                dcid,
                scid,
                token: token(length),
            },
            Header::Initial {
                version,
                dcid,
                scid,
                token: token(length),
            },
        ),
        Kind::ZeroRtt => (
            PacketHeader::ZeroRtt {
                version,
                dcid,
                scid,
            },
            Header::ZeroRtt {
                version,
                dcid,
                scid,
            },
        ),
        Kind::Handshake => (
            PacketHeader::Handshake {
                version,
                dcid,
                scid,
            },
            Header::Handshake {
                version,
                dcid,
                scid,
            },
        ),
        Kind::Short { spin, key_phase } => {
            let mut bytes = dcid.to_vec();
            bytes.resize(local_cid_length, 7);
            let dcid = mpquic_core::ConnectionId::new(&bytes);
            (
                PacketHeader::Short {
                    dcid,
                    spin,
                    key_phase,
                },
                Header::Short { dcid },
            )
        }
    };
    let start = out.len();
    let number_length = usize::from(packet.number_length % 4) + 1;
    let encoded = to_send.encode(out, packet.packet_number, number_length);
    assert_eq!(encoded.packet_number_offset - start, to_send.size());
    out.resize(out.len() + usize::from(packet.payload), packet.payload);
    let end = out.len();
    encoded.set_length(out, end);
    received
}
