//! Packets of a TUN device. A segment with other addresses is what it was but for these, and as right or
//! wrong as before; payloads are those of the datagram; answers are packets that are right themselves.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::Arbitrary;
use ip::echo::Echo;
use ip::header::{hop_limit, layout};
use libfuzzer_sys::fuzz_target;
use packet::{FRAME_HEADER, MAX_PAYLOAD, Packet, Transport, Unreachable, put_datagram};

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
}

fuzz_target!(|input: Input| {
    check_frame(&input);
    check_echo(&input.frame);
    check_payload(&input);
});

/// An address of the same IP version as another.
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

/// What a change of addresses and ports leaves as it was, if checksums follow it: the sum of IP's own
/// header, where it has a checksum, and that of all that TCP's covers.
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
            // Somewhere nobody is one host, it is no packet.
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

/// What is read as an echo message is written as one that is read likewise.
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
    let payload = &input.payload[..input.payload.len().min(MAX_PAYLOAD)];
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
