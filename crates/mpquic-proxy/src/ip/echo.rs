//! ICMP echo (RFC 792, RFC 4443 section 4): the messages of `ping`.

use std::net::IpAddr;

use super::checksum::{sum, transport_sum};
use super::header::{self, ICMP, ICMPV6, Layout};

/// Bytes of the header: type, code, checksum, identifier and sequence number.
pub(crate) const HEADER: usize = 8;

/// A request or its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Reply,
}

/// An echo message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Echo<'a> {
    pub(crate) kind: Kind,
    pub(crate) identifier: u16,
    pub(crate) sequence: u16,
    pub(crate) data: &'a [u8],
}

/// The ICMP types of a request and of a reply.
pub(crate) fn types(is_v4: bool) -> [u8; 2] {
    if is_v4 { [8, 0] } else { [128, 129] }
}

impl<'a> Echo<'a> {
    /// The message of a packet; `None` for another packet, or a wrong checksum.
    pub(crate) fn of_packet(packet: &'a [u8], layout: &Layout) -> Option<Self> {
        let (source, destination) = (layout.source, layout.destination);
        let body = packet.get(layout.start..layout.end)?;
        let sum = match (source, layout.protocol) {
            (IpAddr::V4(_), ICMP) => sum(body),
            (IpAddr::V6(_), ICMPV6) => transport_sum(source, destination, ICMPV6, body),
            _ => return None,
        };
        (sum == 0xffff).then_some(())?;
        Self::of_message(body, source.is_ipv4())
    }

    /// A message without IP header; its checksum is not checked.
    pub(crate) fn of_message(message: &'a [u8], is_v4: bool) -> Option<Self> {
        let (header, data) = message.split_first_chunk::<HEADER>()?;
        let [kind, code, _, _, a, b, c, d] = *header;
        let [request, reply] = types(is_v4);
        let kind = match kind {
            _ if code != 0 => return None,
            kind if kind == request => Kind::Request,
            kind if kind == reply => Kind::Reply,
            _ => return None,
        };
        Some(Self {
            kind,
            identifier: u16::from_be_bytes([a, b]),
            sequence: u16::from_be_bytes([c, d]),
            data,
        })
    }

    fn header(&self, is_v4: bool) -> [u8; HEADER] {
        let [request, reply] = types(is_v4);
        let kind = match self.kind {
            Kind::Request => request,
            Kind::Reply => reply,
        };
        let [a, b] = self.identifier.to_be_bytes();
        let [c, d] = self.sequence.to_be_bytes();
        [kind, 0, 0, 0, a, b, c, d]
    }

    /// The message as an ICMP socket takes it. The system completes the checksum of ICMPv6, because
    /// only the system knows the source address.
    pub(crate) fn to_message(self, is_v4: bool) -> Vec<u8> {
        let mut message = self.header(is_v4).to_vec();
        message.extend_from_slice(self.data);
        if is_v4 {
            let sum = !sum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }

    /// Appends the message as a packet.
    pub(crate) fn put(&self, packet: &mut Vec<u8>, ends: (IpAddr, IpAddr)) {
        let is_v4 = ends.0.is_ipv4();
        let protocol = if is_v4 { ICMP } else { ICMPV6 };
        let header = self.header(is_v4);
        header::put(packet, ends, protocol, 2, &[&header, self.data]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        for (source, destination) in [
            ("192.0.2.1", "198.51.100.7"),
            ("2001:db8::1", "2001:db8:1::7"),
        ] {
            let ends: (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
            for kind in [Kind::Request, Kind::Reply] {
                let echo = Echo {
                    kind,
                    identifier: 0x1234,
                    sequence: 7,
                    data: b"odd",
                };
                let mut packet = Vec::new();
                echo.put(&mut packet, ends);
                let layout = header::layout(&packet).unwrap();
                assert_eq!((layout.source, layout.destination), ends);
                assert_eq!(Echo::of_packet(&packet, &layout), Some(echo));
                let is_v4 = ends.0.is_ipv4();
                let message = echo.to_message(is_v4);
                assert_eq!(Echo::of_message(&message, is_v4), Some(echo));
                assert_eq!(Echo::of_message(&message[..7], is_v4), None);
                // Another type, another code, another byte.
                for place in [0, 1, 10] {
                    let mut wrong = packet.clone();
                    wrong[layout.start + place] ^= 3;
                    assert_eq!(Echo::of_packet(&wrong, &layout), None, "{place}");
                }
            }
        }
    }
}
