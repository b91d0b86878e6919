//! IP headers: parsing, and packets with new ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::{sum, transport_sum};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

/// Most IPv6 extension headers before the transport's header. No useful packet has more.
const MAX_EXTENSIONS: usize = 8;
const HOP_LIMIT: u8 = 64;

/// The word at an offset, if it exists.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([word[0], word[1]]))
}

/// Addresses and protocol of a packet, the start of the transport's header, and the end of the
/// packet.
pub(crate) struct Layout {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Parses an IP packet; `None` for malformed packets and fragments.
pub(crate) fn layout(ip: &[u8]) -> Option<Layout> {
    match ip.first()? >> 4 {
        4 => layout_v4(ip),
        6 => layout_v6(ip),
        _ => None,
    }
}

fn layout_v4(ip: &[u8]) -> Option<Layout> {
    let header = ip.first_chunk::<20>()?;
    let start = usize::from(header[0] & 15) * 4;
    let end = usize::from(word(ip, 2)?);
    // A fragment has no transport header, or only a part of the payload.
    let is_fragment = word(ip, 6)? & 0x3fff != 0;
    if start < header.len() || end < start || end > ip.len() || is_fragment {
        return None;
    }
    let address = |at| {
        ip.get(at..)?
            .first_chunk::<4>()
            .copied()
            .map(Ipv4Addr::from)
    };
    Some(Layout {
        source: address(12)?.into(),
        destination: address(16)?.into(),
        protocol: header[9],
        start,
        end,
    })
}

fn layout_v6(ip: &[u8]) -> Option<Layout> {
    let header = ip.first_chunk::<40>()?;
    let end = header.len() + usize::from(word(ip, 4)?);
    if end > ip.len() {
        return None;
    }
    let address = |at| {
        ip.get(at..)?
            .first_chunk::<16>()
            .copied()
            .map(Ipv6Addr::from)
    };
    let (mut protocol, mut start) = (header[6], header.len());
    for _ in 0..MAX_EXTENSIONS {
        match protocol {
            // Hop-by-hop options, routing, destination options (RFC 8200 section 4).
            0 | 43 | 60 => {
                let extension = ip.get(start..end)?.first_chunk::<2>()?;
                protocol = extension[0];
                start += 8 + 8 * usize::from(extension[1]);
            }
            // A fragment.
            44 => return None,
            _ => break,
        }
    }
    (start <= end).then_some(Layout {
        source: address(8)?.into(),
        destination: address(24)?.into(),
        protocol,
        start,
        end,
    })
}

/// True for an address of one host.
pub(crate) fn is_for_one(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !(v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified()),
        IpAddr::V6(v6) => !(v6.is_multicast() || v6.is_unspecified()),
    }
}

/// The bytes of two addresses of one IP version, as they stand in a header.
pub(crate) struct Addresses {
    bytes: [u8; 32],
    length: usize,
}

impl Addresses {
    pub(crate) fn new(source: IpAddr, destination: IpAddr) -> Self {
        let mut bytes = [0; 32];
        let mut length = 0;
        for address in [source, destination] {
            let (octets, size) = match address {
                IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), 4),
                IpAddr::V6(v6) => (v6.octets(), 16),
            };
            bytes[length..length + size].copy_from_slice(&octets[16 - size..]);
            length += size;
        }
        Self { bytes, length }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Appends a packet of these parts. `checksum` is the offset of the transport's checksum.
pub(crate) fn put(
    packet: &mut Vec<u8>,
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    checksum: usize,
    parts: &[&[u8]],
) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    match source {
        IpAddr::V4(_) => {
            let mut header = [0; 20];
            header[0] = 4 << 4 | 5;
            header[2..4].copy_from_slice(&(20 + length as u16).to_be_bytes());
            // Don't Fragment is set, so the packet needs no identification (RFC 6864 section 4.1).
            header[6] = 0x40;
            header[8] = HOP_LIMIT;
            header[9] = protocol;
            let pair = Addresses::new(source, destination);
            header[12..20].copy_from_slice(&pair.bytes[..8]);
            let sum = !sum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend(header);
        }
        IpAddr::V6(_) => {
            let mut header = [0; 40];
            header[0] = 6 << 4;
            header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            header[6] = protocol;
            header[7] = HOP_LIMIT;
            let pair = Addresses::new(source, destination);
            header[8..40].copy_from_slice(&pair.bytes);
            packet.extend(header);
        }
    }
    let start = packet.len();
    for part in parts {
        packet.extend_from_slice(part);
    }
    let body = &mut packet[start..];
    let sum = match protocol {
        ICMP => sum(body),
        _ => transport_sum(source, destination, protocol, body),
    };
    // RFC 768: UDP sends a checksum of zero as all ones, which is an equal number.
    let sum = match !sum {
        0 if protocol == UDP => 0xffff,
        sum => sum,
    };
    body[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The hops that a packet has left.
pub(crate) fn hop_limit(packet: &[u8]) -> Option<u8> {
    match packet.first()? >> 4 {
        4 => packet.get(8).copied(),
        _ => packet.get(7).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_of_ipv6_are_none_of_its_packets() {
        let ends = (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        let mut packet = Vec::new();
        put(&mut packet, ends, 60, 6, &[&options, &[0; 8]]);
        let whole = layout(&packet).unwrap();
        assert_eq!((whole.protocol, whole.start), (UDP, 48));
        // Also a fragment with a fragment header before or after another extension header.
        packet[6] = 44;
        assert!(layout(&packet).is_none());
        (packet[6], packet[40]) = (60, 44);
        assert!(layout(&packet).is_none());
    }
}
