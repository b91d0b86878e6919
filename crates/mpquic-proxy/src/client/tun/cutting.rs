//! Packets for neighbours of this router, in fragments if the packets are large.

use std::net::Ipv6Addr;

use super::fragments::FRAGMENT;
use super::packet::{FRAME_HEADER, MIN_MTU};
use crate::ip::checksum::sum;
use crate::ip::header::{ICMPV6, UDP, word};

/// The header of IPv6.
const HEADER_V6: usize = 40;
/// The header of a fragment of IPv6.
const HEADER_FRAGMENT: usize = 8;
/// The flag "don't fragment" of IPv4.
const DONT_FRAGMENT: u8 = 0x40;

/// Calls `each` with the frames of a packet, so that the packet reaches neighbours with any MTU.
///
/// A large packet of IPv4 stays whole, and the kernel may cut the packet to the MTU of the
/// neighbour's network. Routers cut no packets of IPv6, so a packet larger than `mtu` of its
/// neighbour becomes fragments for the smallest MTU (RFC 8200 section 5). `identification` gives
/// each packet another number.
pub(super) fn cut(
    frame: &mut [u8],
    mtu: impl FnOnce(Ipv6Addr) -> usize,
    identification: impl FnOnce() -> u32,
    mut each: impl FnMut(&[u8]),
) {
    let Some((_, ip)) = frame.split_at_mut_checked(FRAME_HEADER) else {
        return;
    };
    let is_large = ip.len() > MIN_MTU;
    match ip.first().map(|first| first >> 4) {
        Some(4) if is_large => permit(ip, identification()),
        Some(6) if is_large => {
            let neighbour = ip.get(24..).and_then(|rest| rest.first_chunk::<16>());
            let is_narrow = neighbour.is_some_and(|to| ip.len() > mtu(Ipv6Addr::from(*to)));
            if is_narrow && let Some(frames) = fragments(ip, identification()) {
                frames.iter().for_each(|frame| each(frame));
                return;
            }
        }
        _ => {}
    }
    each(frame);
}

/// Permits routers to cut a packet of IPv4. Until then, "don't fragment" is set, and so the
/// identification means nothing (RFC 6864 section 4.1).
fn permit(ip: &mut [u8], identification: u32) {
    let length = usize::from(ip[0] & 15) * 4;
    let Some(header) = ip.get_mut(..length).filter(|header| header.len() >= 20) else {
        return;
    };
    if header[6] & DONT_FRAGMENT == 0 {
        return;
    }
    header[6] &= !DONT_FRAGMENT;
    header[4..6].copy_from_slice(&(identification as u16).to_be_bytes());
    header[10..12].fill(0);
    let checksum = !sum(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The fragments of a packet of IPv6 (RFC 8200 section 4.5); `None` for a packet with extension
/// headers.
fn fragments(ip: &[u8], identification: u32) -> Option<Vec<Vec<u8>>> {
    let header = ip.first_chunk::<HEADER_V6>()?;
    let end = HEADER_V6 + usize::from(word(ip, 4)?);
    let content = ip.get(HEADER_V6..end)?;
    let protocol = header[6];
    if !matches!(protocol, UDP | ICMPV6) {
        return None;
    }
    // All fragments but the last have a multiple of 8 bytes.
    let most = (MIN_MTU - HEADER_V6 - HEADER_FRAGMENT) & !7;
    let count = content.len().div_ceil(most);
    let pieces = content.chunks(most).enumerate();
    let frames = pieces.map(|(number, piece)| {
        let place = (number * most) as u16 | u16::from(number + 1 < count);
        let [a, b] = place.to_be_bytes();
        let [c, d, e, f] = identification.to_be_bytes();
        let mut frame = vec![0; FRAME_HEADER];
        frame.extend_from_slice(header);
        let length = (HEADER_FRAGMENT + piece.len()) as u16;
        frame[FRAME_HEADER + 4..][..2].copy_from_slice(&length.to_be_bytes());
        frame[FRAME_HEADER + 6] = FRAGMENT;
        frame.extend([protocol, 0, a, b, c, d, e, f]);
        frame.extend_from_slice(piece);
        frame
    });
    Some(frames.collect())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::super::fragments::tests::payload;
    use super::super::fragments::{Fragments, Taken};
    use super::super::packet::{max_payload, put_datagram};
    use super::*;

    const PAIRS: [[&str; 2]; 2] = [
        ["192.0.2.7:443", "192.168.1.10:40000"],
        ["[2001:db8::7]:443", "[fd77::10]:40000"],
    ];

    fn answer(pair: [&str; 2], payload: &[u8]) -> Vec<u8> {
        let [source, destination] = pair.map(|text| text.parse::<SocketAddr>().unwrap());
        let mut frame = Vec::new();
        put_datagram(&mut frame, source, destination, payload);
        frame
    }

    /// The frames of a packet on a device with this MTU.
    fn frames(mut frame: Vec<u8>, mtu: usize, identification: u32) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        cut(
            &mut frame,
            |_| mtu,
            || identification,
            |frame| frames.push(frame.to_vec()),
        );
        frames
    }

    #[test]
    fn answers_up_to_the_smallest_mtu_stay_as_they_are() {
        for (pair, headers) in PAIRS.into_iter().zip([28, 48]) {
            for length in [0, 1, MIN_MTU - headers] {
                let whole = answer(pair, &vec![7; length]);
                assert_eq!(frames(whole.clone(), 1500, 1), [whole]);
            }
        }
    }

    /// The kernel of a router cuts packets of IPv4 only without "don't fragment".
    #[test]
    fn large_answers_of_ipv4_may_be_cut_by_routers() {
        for length in [MIN_MTU - 27, 1472, 1473, 9000, 65_507] {
            let content: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let found = frames(answer(PAIRS[0], &content), 1500, 0x1234_5678);
            let [frame] = &found[..] else {
                panic!("{} frames", found.len());
            };
            let header = &frame[FRAME_HEADER..][..20];
            assert_eq!(header[4..8], [0x56, 0x78, 0, 0], "{length}");
            assert_eq!(sum(header), 0xffff, "the header's checksum");
            assert!(payload(frame.clone()) == content);
        }
    }

    #[test]
    fn large_answers_of_ipv6_come_in_fragments() {
        let longest = max_payload(PAIRS[1][0].parse().unwrap());
        for (length, count) in [
            (1452, 1),
            (1453, 2),
            (2400, 2),
            (2456, 2),
            (2457, 3),
            (longest, 54),
        ] {
            let content: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let mut found = frames(answer(PAIRS[1], &content), 1500, 7);
            assert_eq!(found.len(), count, "{length}");
            if count == 1 {
                continue;
            }
            assert!(
                found
                    .iter()
                    .all(|frame| frame.len() <= FRAME_HEADER + MIN_MTU)
            );
            // Not in order.
            found.reverse();
            let mut table = Fragments::default();
            let last = found.pop().unwrap();
            for frame in &found {
                assert!(matches!(table.take(frame, Instant::now()), Taken::Part));
            }
            let Taken::Whole(whole) = table.take(&last, Instant::now()) else {
                panic!("not whole: {length}");
            };
            assert!(payload(whole) == content);
        }
    }

    #[test]
    fn broken_packets_are_left_alone() {
        for pair in PAIRS {
            let whole = answer(pair, &[7; 3000]);
            for length in (0..80).chain(1280..1320) {
                let found = frames(whole[..length].to_vec(), 0, 1);
                assert!(found.len() <= 1);
            }
        }
    }

    proptest! {
        /// Bytes of the network never panic, and no frame is lost.
        #[test]
        fn any_frame_can_be_cut_and_put_together(
            frame in vec(any::<u8>(), 0..4000),
            version in 0_u8..8,
            next in prop_oneof![Just(FRAGMENT), Just(UDP), any::<u8>()],
            length in any::<u16>(),
        ) {
            let mut frame = frame;
            if let Some(ip) = frame.get_mut(FRAME_HEADER..).filter(|ip| ip.len() > 20) {
                ip[0] = version << 4 | 5;
                let place = if version == 6 { 4 } else { 2 };
                // Mostly a length that fits.
                let length = if length & 1 == 0 { length } else { (ip.len() as u16).wrapping_sub(u16::from(version == 6) * 40) };
                ip[place..][..2].copy_from_slice(&length.to_be_bytes());
                ip[6] = next;
            }
            let mut table = Fragments::default();
            let found = frames(frame.clone(), 1280, 1);
            prop_assert!(!found.is_empty() || frame.len() < FRAME_HEADER);
            for frame in found.iter().chain([&frame]) {
                table.take(frame, Instant::now());
            }
        }
    }
}
