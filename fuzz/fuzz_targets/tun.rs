//! Packets of a TUN device. A segment with other addresses differs in the addresses only, and its
//! checksum is as right or wrong as before. Payloads are the payloads of the datagrams. Answers are
//! valid packets.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::Arbitrary;
use ip::echo::Echo;
use ip::header::{hop_limit, layout};
use libfuzzer_sys::fuzz_target;
use packet::{FRAME_HEADER, Packet, Transport, Unreachable, max_payload, put_datagram};

#[path = "../../crates/mpquic-proxy/src/ip/mod.rs"]
#[allow(dead_code, reason = "the proxy needs all of it")]
mod ip;
#[path = "../../crates/mpquic-proxy/src/client/tun/packet.rs"]
#[allow(dead_code, reason = "the proxy needs all of it")]
mod packet;

#[derive(Debug, Arbitrary)]
struct Input {
    frame: Vec<u8>,
    source: (u128, u16),
    destination: (u128, u16),
    payload: Vec<u8>,
    built: Built,
}

/// A packet with options or extension headers, whole or a fragment.
#[derive(Debug, Arbitrary)]
struct Built {
    is_v6: bool,
    /// Number of 32-bit words of options.
    options: u8,
    /// The 16-bit word with the flags and the offset of a fragment.
    fragment: u16,
    /// Kinds and lengths of extension headers.
    extensions: Vec<(u8, u8)>,
    is_udp: bool,
    data: Vec<u8>,
    /// Number of bytes behind the packet.
    behind: u8,
    cut: u8,
}

fuzz_target!(|input: Input| {
    check_built(&input.built);
    check_frame(&input);
    check_echo(&input.frame);
    check_payload(&input);
});

/// An address of the same IP version as `other`.
fn alike(other: IpAddr, (address, port): (u128, u16)) -> SocketAddr {
    let address = match other {
        IpAddr::V4(_) => Ipv4Addr::from_bits(address as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(address).into(),
    };
    SocketAddr::new(address, port)
}

/// The sum of 16-bit words modulo 65535, where ones' complement has its two zeros.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u64::from(word[0]) << 8 | u64::from(low)
    });
    words.sum::<u64>() % 0xffff
}

/// Two sums that a change of addresses and ports, with its checksums, leaves the same: the sum of
/// the IPv4 header, and the sum of all bytes that the checksum of TCP covers.
fn sums(ip: &[u8]) -> (u64, u64) {
    match ip[0] >> 4 {
        4 => {
            let (header, body) = ip.split_at(usize::from(ip[0] & 15) * 4);
            (sum(header), (sum(&header[12..20]) + sum(body)) % 0xffff)
        }
        _ => (0, sum(&ip[8..])),
    }
}

fn check_frame(input: &Input) {
    let Some(packet) = Packet::parse(&input.frame) else {
        return;
    };
    let (source, destination) = (packet.source, packet.destination);
    let answer = packet.unreachable(&input.frame, Unreachable::Host);
    assert_eq!(Packet::parse(&answer), None, "it is neither TCP nor UDP");
    if let Some(answer) = packet.reset(&input.frame) {
        let reset = Packet::parse(&answer).unwrap();
        assert_eq!((reset.source, reset.destination), (destination, source));
        assert_eq!(reset.reset(&answer), None);
    }
    let mut frame = input.frame.clone();
    match packet.transport {
        Transport::Tcp(_) => {
            let is_partial = frame[0] & 1 != 0;
            let new = (
                alike(source.ip(), input.source),
                alike(source.ip(), input.destination),
            );
            let before = sums(&frame[FRAME_HEADER..]);
            packet.redirect(&mut frame, new.0, new.1);
            if !is_partial {
                assert_eq!(sums(&frame[FRAME_HEADER..]), before);
            }
            // An address that belongs to no single host makes the packet invalid.
            let Some(moved) = Packet::parse(&frame) else {
                return;
            };
            assert_eq!((moved.source, moved.destination), new);
            assert_eq!(moved.transport, packet.transport);
            moved.redirect(&mut frame, source, destination);
            let differ = frame.iter().zip(&input.frame).filter(|(a, b)| a != b);
            assert!(
                differ.count() <= 4,
                "but for the two zeros of two checksums"
            );
        }
        Transport::Udp => {
            let mut all = Vec::new();
            packet.payloads(&mut frame, |payload| {
                assert_eq!(payload[0], 0);
                all.extend_from_slice(&payload[1..]);
            });
            let has = |all: &[u8]| input.frame.windows(all.len()).any(|part| part == all);
            assert!(all.is_empty() || has(&all));
        }
    }
}

/// Kinds of extension headers, among them "no next header" (59).
const EXTENSIONS: [u8; 6] = [0, 43, 60, 44, 51, 59];

/// Checks a built packet against the reading that its parts demand: a fragment counts as no packet,
/// and extension headers are skipped.
fn check_built(built: &Built) {
    let protocol = if built.is_udp { 17 } else { 6 };
    let mut body = vec![0; if built.is_udp { 8 } else { 20 }];
    body[..4].copy_from_slice(&[1, 2, 3, 4]);
    if built.is_udp {
        let length = 8 + built.data.len().min(9000) as u16;
        body[4..6].copy_from_slice(&length.to_be_bytes());
    } else {
        (body[12], body[13]) = (5 << 4, 16);
    }
    body.extend_from_slice(&built.data[..built.data.len().min(9000)]);
    let (mut ip, is_whole) = if built.is_v6 {
        v6(built, protocol, &body)
    } else {
        v4(built, protocol, &body)
    };
    let start = ip.len() - body.len();
    // A cut packet is refused, and bytes behind a packet are not read.
    let cut = usize::from(built.cut).min(ip.len());
    let is_cut = cut > 0 && built.behind == 0;
    if is_cut {
        ip.truncate(ip.len() - cut)
    } else {
        ip.resize(ip.len() + usize::from(built.behind), 0xee)
    }
    let mut frame = vec![0; FRAME_HEADER];
    // The frame says that its checksum was found right.
    frame[0] = 2;
    frame.extend_from_slice(&ip);
    let packet = Packet::parse(&frame);
    assert_eq!(packet.is_some(), is_whole && !is_cut, "{built:?}");
    let Some(packet) = packet else {
        return;
    };
    assert_eq!(
        (packet.source.port(), packet.destination.port()),
        (0x0102, 0x0304)
    );
    let found = layout(&ip).expect("a packet");
    assert_eq!(
        (found.protocol, found.start, found.end),
        (protocol, start, start + body.len())
    );
    if built.is_udp {
        let mut payloads = Vec::new();
        packet.payloads(&mut frame, |payload| payloads.push(payload[1..].to_vec()));
        assert_eq!(payloads, [&body[8..]]);
    }
}

/// A packet by RFC 791; true if the packet is whole.
fn v4(built: &Built, protocol: u8, body: &[u8]) -> (Vec<u8>, bool) {
    let header = 20 + 4 * usize::from(built.options % 11);
    let mut ip = vec![1; header];
    ip[0] = 4 << 4 | (header / 4) as u8;
    ip[2..4].copy_from_slice(&((header + body.len()) as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&built.fragment.to_be_bytes());
    ip[9] = protocol;
    ip[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 1]);
    ip.extend_from_slice(body);
    // The bit "more fragments", or an offset.
    let is_fragment = built.fragment & 0x2000 != 0 || built.fragment & 0x1fff != 0;
    (ip, !is_fragment)
}

/// A packet by RFC 8200; true if its transport header is found.
fn v6(built: &Built, protocol: u8, body: &[u8]) -> (Vec<u8>, bool) {
    let extensions = built.extensions.iter().take(12);
    let extensions: Vec<(u8, usize)> = extensions
        .map(|(kind, length)| {
            let kind = EXTENSIONS[usize::from(*kind) % EXTENSIONS.len()];
            (
                kind,
                if kind == 44 {
                    0
                } else {
                    usize::from(length % 4)
                },
            )
        })
        .collect();
    let mut chain = Vec::new();
    let following = extensions.iter().skip(1).map(|(kind, _)| *kind);
    let following = following.chain(std::iter::once(protocol));
    for ((_, length), next) in extensions.iter().zip(following) {
        let begin = chain.len();
        chain.resize(begin + 8 + 8 * length, 0);
        (chain[begin], chain[begin + 1]) = (next, *length as u8);
    }
    let mut ip = vec![0; 40];
    ip[0] = 6 << 4;
    ip[4..6].copy_from_slice(&((chain.len() + body.len()) as u16).to_be_bytes());
    ip[6] = extensions.first().map_or(protocol, |(kind, _)| *kind);
    (ip[8], ip[9], ip[23]) = (0x20, 1, 1);
    (ip[24], ip[25], ip[39]) = (0x20, 1, 2);
    ip.extend_from_slice(&chain);
    ip.extend_from_slice(body);
    let are_passed = extensions
        .iter()
        .all(|(kind, _)| [0, 43, 60].contains(kind));
    (ip, are_passed && extensions.len() <= 8)
}

/// An echo message that is read, written and read again stays the same.
fn check_echo(packet: &[u8]) {
    let Some(found) = layout(packet) else {
        return;
    };
    assert!(hop_limit(packet).is_some() && found.start <= found.end && found.end <= packet.len());
    if let Some(echo) = Echo::of_packet(packet, &found) {
        let mut written = Vec::new();
        echo.put(&mut written, (found.source, found.destination));
        let again = layout(&written).unwrap();
        assert_eq!(Echo::of_packet(&written, &again), Some(echo));
        let is_v4 = found.source.is_ipv4();
        let message = echo.to_message(is_v4);
        assert_eq!(Echo::of_message(&message, is_v4), Some(echo));
    }
}

fn check_payload(input: &Input) {
    let most = max_payload((Ipv4Addr::UNSPECIFIED, 0).into());
    let payload = &input.payload[..input.payload.len().min(most)];
    for any in [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv6Addr::UNSPECIFIED.into(),
    ] {
        let (source, destination) = (alike(any, input.source), alike(any, input.destination));
        let mut frame = Vec::new();
        put_datagram(&mut frame, source, destination, payload);
        let Some(packet) = Packet::parse(&frame) else {
            continue;
        };
        assert_eq!((packet.source, packet.destination), (source, destination));
        let mut found = Vec::new();
        packet.payloads(&mut frame, |payload| found.push(payload[1..].to_vec()));
        assert_eq!(found, [payload]);
    }
}
