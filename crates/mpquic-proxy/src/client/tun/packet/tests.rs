use super::*;
use crate::ip::checksum::sum;
use crate::ip::header::Layout;

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A frame with a TCP segment; its checksums are right.
fn segment(source: &str, destination: &str, flags: u8, data: &[u8]) -> Vec<u8> {
    let (source, destination) = (socket(source), socket(destination));
    let mut header = [0; 20];
    header[..4].copy_from_slice(&ports(source, destination));
    header[4..8].copy_from_slice(&1000_u32.to_be_bytes());
    header[8..12].copy_from_slice(&2000_u32.to_be_bytes());
    header[12] = 5 << 4;
    header[13] = flags;
    let mut frame = Vec::new();
    put(
        &mut frame,
        (source.ip(), destination.ip()),
        TCP,
        16,
        &[&header, data],
    );
    frame
}

/// Whether all checksums of a frame are right.
fn is_right(frame: &[u8]) -> bool {
    let ip = &frame[FRAME_HEADER..];
    let Layout {
        source,
        destination,
        protocol,
        start,
        end,
    } = layout(ip).unwrap();
    let body = match protocol {
        ICMP => sum(&ip[start..end]),
        _ => transport_sum(source, destination, protocol, &ip[start..end]),
    };
    body == 0xffff && (ip[0] >> 4 == 6 || sum(&ip[..start]) == 0xffff)
}

const PAIRS: [[&str; 4]; 2] = [
    [
        "198.18.0.1:40000",
        "192.0.2.7:443",
        "198.18.0.2:1025",
        "198.18.0.1:39999",
    ],
    [
        "[fd6d::1]:40000",
        "[2001:db8::7]:443",
        "[fd6d::2]:1025",
        "[fd6d::1]:39999",
    ],
];

#[test]
fn segments_get_other_addresses_and_the_right_checksum() {
    for [from, to, new_from, new_to] in PAIRS {
        let mut frame = segment(from, to, SYN, b"odd");
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!(
            (packet.source, packet.destination),
            (socket(from), socket(to))
        );
        assert!(matches!(packet.transport, Transport::Tcp(flags) if flags.opens()));
        packet.redirect(&mut frame, socket(new_from), socket(new_to));
        assert!(is_right(&frame), "{from}");
        assert_eq!(frame, segment(new_from, new_to, SYN, b"odd"));
    }
}

#[test]
fn a_checksum_that_is_not_complete_stays_so() {
    for [from, to, new_from, new_to] in PAIRS {
        // The sum of the addresses, the protocol and the length only.
        let partial = |from: &str, to: &str| {
            let mut frame = segment(from, to, ACK, &[7; 3000]);
            let packet = Packet::parse(&frame).unwrap();
            let length = packet.end - packet.start;
            let (source, destination) = (packet.source.ip(), packet.destination.ip());
            // An even number of zeros adds nothing but its length.
            let sum = transport_sum(source, destination, TCP, &vec![0; length]);
            frame[packet.start + 16..][..2].copy_from_slice(&sum.to_be_bytes());
            frame[0] = NEEDS_CHECKSUM;
            frame
        };
        let mut frame = partial(from, to);
        let packet = Packet::parse(&frame).unwrap();
        packet.redirect(&mut frame, socket(new_from), socket(new_to));
        assert_eq!(frame, partial(new_from, new_to));
    }
}

#[test]
fn payloads_come_behind_a_zero() {
    for [from, to, ..] in PAIRS {
        let mut frame = Vec::new();
        put_datagram(&mut frame, socket(from), socket(to), b"payload");
        assert!(is_right(&frame));
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!(packet.transport, Transport::Udp);
        assert_eq!(
            (packet.source, packet.destination),
            (socket(from), socket(to))
        );
        let read = |frame: &mut Vec<u8>| {
            let mut payloads = Vec::new();
            packet.payloads(frame, |payload| payloads.push(payload.to_vec()));
            payloads
        };
        assert_eq!(read(&mut frame.clone()), [b"\0payload".to_vec()]);
        // Several payloads in one frame: the last one is shorter.
        let mut several = frame.clone();
        several[1] = UDP_SEGMENTS;
        several[4..6].copy_from_slice(&3_u16.to_ne_bytes());
        assert_eq!(
            read(&mut several),
            [&b"\0pay"[..], b"\0loa", b"\0d"].map(<[u8]>::to_vec)
        );
        let last = frame.len() - 1;
        frame[last] ^= 1;
        assert!(read(&mut frame.clone()).is_empty());
        // The checksum is not computed yet.
        frame[0] = NEEDS_CHECKSUM;
        assert_eq!(read(&mut frame).len(), 1);
    }
}

#[test]
fn a_payload_may_be_empty_or_as_long_as_there_are() {
    for [from, to, ..] in PAIRS {
        for length in [0, max_payload(socket(from))] {
            let mut frame = Vec::new();
            put_datagram(&mut frame, socket(from), socket(to), &vec![7; length]);
            assert!(is_right(&frame));
            let packet = Packet::parse(&frame).unwrap();
            let mut payloads = Vec::new();
            packet.payloads(&mut frame, |payload| payloads.push(payload.len()));
            assert_eq!(payloads, [1 + length]);
        }
    }
}

#[test]
fn resets_are_those_of_rfc_9293() {
    for [from, to, ..] in PAIRS {
        let numbers = |frame: &[u8]| {
            let packet = Packet::parse(frame).unwrap();
            let answer = packet.reset(frame).unwrap();
            assert!(is_right(&answer));
            let answer_packet = Packet::parse(&answer).unwrap();
            assert_eq!(
                (answer_packet.source, answer_packet.destination),
                (packet.destination, packet.source)
            );
            let tcp = &answer[answer_packet.start..];
            let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
            (number(4), number(8), tcp[13])
        };
        // SYN counts as one byte.
        assert_eq!(numbers(&segment(from, to, SYN, b"")), (0, 1001, RST | ACK));
        assert_eq!(
            numbers(&segment(from, to, FIN, b"data")),
            (0, 1005, RST | ACK)
        );
        assert_eq!(numbers(&segment(from, to, ACK, b"data")), (2000, 0, RST));
        let reset = segment(from, to, RST, b"");
        assert_eq!(Packet::parse(&reset).unwrap().reset(&reset), None);
    }
}

#[test]
fn icmp_quotes_what_was_not_delivered() {
    for ([from, to, ..], kind) in PAIRS.into_iter().zip([3, 1]) {
        let frame = segment(from, to, SYN, &[1; 2000]);
        let packet = Packet::parse(&frame).unwrap();
        let answer = packet.unreachable(&frame, Unreachable::Host);
        assert!(is_right(&answer));
        let ip = &answer[FRAME_HEADER..];
        assert!(ip.len() <= MIN_MTU);
        let Layout {
            source,
            destination,
            start,
            ..
        } = layout(ip).unwrap();
        assert_eq!(
            (source, destination),
            (packet.destination.ip(), packet.source.ip())
        );
        assert_eq!(ip[start], kind);
        let quoted = &ip[start + 8..];
        // At least the ports.
        assert!(quoted.len() >= packet.start - FRAME_HEADER + 8);
        assert!(frame[FRAME_HEADER..].starts_with(quoted));
    }
}

#[test]
fn cut_packet_is_refused() {
    for [from, to, ..] in PAIRS {
        let mut datagram = Vec::new();
        put_datagram(&mut datagram, socket(from), socket(to), b"payload");
        for frame in [segment(from, to, SYN, b"data"), datagram] {
            assert!(Packet::parse(&frame).is_some());
            for length in 0..frame.len() {
                assert_eq!(Packet::parse(&frame[..length]), None, "{length}");
            }
        }
    }
    let many = ["224.0.0.251:5353", "255.255.255.255:67", "0.0.0.0:1"];
    for destination in many {
        let mut frame = Vec::new();
        put_datagram(&mut frame, socket("198.18.0.1:1"), socket(destination), b"");
        assert_eq!(Packet::parse(&frame), None, "{destination}");
    }
    let mut frame = segment("198.18.0.1:1", "192.0.2.7:443", SYN, b"");
    // A first fragment, and a later one.
    for fragment in [[0x20, 0], [0, 1]] {
        frame[FRAME_HEADER + 6..][..2].copy_from_slice(&fragment);
        assert_eq!(Packet::parse(&frame), None, "{fragment:?}");
    }
}

#[test]
fn extension_headers_are_skipped_unless_they_lead_beyond_the_packet() {
    let mut frame = segment("[fd6d::1]:1", "[2001:db8::7]:443", SYN, b"");
    let begin = FRAME_HEADER + 40;
    // Eight bytes of destination options before TCP.
    frame.splice(begin..begin, [TCP, 0, 1, 4, 0, 0, 0, 0]);
    frame[FRAME_HEADER + 5] += 8;
    frame[FRAME_HEADER + 6] = 60;
    let packet = Packet::parse(&frame).unwrap();
    assert_eq!(packet.destination, socket("[2001:db8::7]:443"));
    assert_eq!(packet.start, begin + 8);
    frame[begin + 1] = 255;
    assert_eq!(Packet::parse(&frame), None);
    frame[begin + 1] = 0;
    // A fragment.
    frame[FRAME_HEADER + 6] = 44;
    assert_eq!(Packet::parse(&frame), None);
}

#[test]
fn no_bytes_are_too_strange() {
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize
    };
    let samples: Vec<_> = PAIRS
        .iter()
        .flat_map(|[from, to, ..]| {
            let mut datagram = Vec::new();
            put_datagram(&mut datagram, socket(from), socket(to), b"payload");
            [segment(from, to, SYN, b"data"), datagram]
        })
        .collect();
    let mut parsed = 0;
    for round in 0..40_000 {
        let mut frame = samples[round % samples.len()].clone();
        for _ in 0..=random() % 3 {
            let at = random() % frame.len();
            frame[at] = random() as u8;
        }
        frame.truncate(frame.len() - random() % 3);
        let Some(packet) = Packet::parse(&frame) else {
            continue;
        };
        parsed += 1;
        let _ = packet.reset(&frame);
        let _ = packet.unreachable(&frame, Unreachable::Network);
        match packet.transport {
            Transport::Tcp(_) => packet.redirect(&mut frame, packet.destination, packet.source),
            Transport::Udp => packet.payloads(&mut frame, |payload| assert_eq!(payload[0], 0)),
        }
    }
    assert!(parsed > 1000, "{parsed}");
}

/// RFC 1122 section 3.2.1.3 and RFC 4291 section 2.7: no host sends from such an address, and an
/// answer would go to many.
#[test]
fn packet_from_an_address_of_no_single_host_is_refused() {
    for (from, to, is_packet) in [
        ("198.18.0.1:1", "192.0.2.7:443", true),
        ("224.0.0.1:1", "192.0.2.7:443", false),
        ("255.255.255.255:1", "192.0.2.7:443", false),
        ("0.0.0.0:1", "192.0.2.7:443", false),
        ("198.18.0.1:1", "224.0.0.1:443", false),
        ("[fd6d::1]:1", "[2001:db8::7]:443", true),
        ("[ff02::1]:1", "[2001:db8::7]:443", false),
        ("[::]:1", "[2001:db8::7]:443", false),
        ("[fd6d::1]:1", "[ff02::1]:443", false),
    ] {
        let packet = Packet::parse(&segment(from, to, SYN, b""));
        assert_eq!(packet.is_some(), is_packet, "{from} to {to}");
    }
}
