//! IP packets of a TUN device: their content, a change of their addresses, and answers to them.

use std::net::{IpAddr, SocketAddr};

use crate::ip::checksum::{replaced, transport_sum};
use crate::ip::header::{self, Addresses, ICMP, ICMPV6, TCP, UDP, is_for_one, layout, word};

/// The header before each packet of a device with offloads: `struct virtio_net_hdr`, in the
/// machine's byte order.
pub(super) const FRAME_HEADER: usize = 10;
/// The checksum of TCP or UDP is incomplete: its field has the sum of the addresses and the length.
const NEEDS_CHECKSUM: u8 = 1;
/// The system has found the checksum right.
const CHECKSUM_IS_RIGHT: u8 = 2;
/// Several UDP datagrams of equal size behind one header.
const UDP_SEGMENTS: u8 = 5;

/// The smallest MTU of an IPv6 network (RFC 8200 section 5), and so the longest ICMPv6 error
/// message.
pub(super) const MIN_MTU: usize = 1280;

/// The longest payload of UDP from this source.
pub(super) fn max_payload(source: SocketAddr) -> usize {
    // The length in a header of IPv4 includes the header.
    let headers = if source.is_ipv4() { 20 + 8 } else { 8 };
    u16::MAX as usize - headers
}

/// The TCP flags for the begin and the end of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    #[cfg(test)]
    pub(super) const fn new(flags: u8) -> Self {
        Self(flags)
    }

    /// True for a request for a connection.
    pub(super) fn opens(self) -> bool {
        self.0 & (SYN | ACK) == SYN
    }

    pub(super) fn resets(self) -> bool {
        self.0 & RST != 0
    }
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A packet's transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp(Flags),
    Udp,
}

/// A frame with one TCP segment or UDP datagram, or with several in one, and the place of its
/// parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) transport: Transport,
    /// Offset of the transport's header in the frame.
    start: usize,
    /// Offset of the packet's end in the frame.
    end: usize,
}

/// The reason why a target is out of reach, as in ICMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreachable {
    Network,
    Host,
    Prohibited,
}

impl Packet {
    /// Reads a frame. `None` for other protocols than TCP and UDP, for broken packets and
    /// fragments, and for packets whose source (RFC 1122 section 3.2.1.3) or destination is not one
    /// host.
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let ip = frame.get(FRAME_HEADER..)?;
        let layout = layout(ip)?;
        let body = ip.get(layout.start..layout.end)?;
        let transport = match layout.protocol {
            TCP => {
                let header = body.first_chunk::<20>()?;
                let length = usize::from(header[12] >> 4) * 4;
                if length < header.len() || length > body.len() {
                    return None;
                }
                Transport::Tcp(Flags(header[13] & (FIN | SYN | RST | ACK)))
            }
            UDP if body.len() >= 8 => Transport::Udp,
            _ => return None,
        };
        if !is_for_one(layout.source) || !is_for_one(layout.destination) {
            return None;
        }
        Some(Self {
            source: SocketAddr::new(layout.source, word(body, 0)?),
            destination: SocketAddr::new(layout.destination, word(body, 2)?),
            transport,
            start: FRAME_HEADER + layout.start,
            end: FRAME_HEADER + layout.end,
        })
    }

    /// The DSCP of the packet (RFC 2474 section 3).
    pub(super) fn dscp(&self, frame: &[u8]) -> u8 {
        let first = word(frame, FRAME_HEADER).unwrap_or(0);
        match self.source {
            SocketAddr::V4(_) => (first >> 2) as u8 & 63,
            SocketAddr::V6(_) => (first >> 6) as u8 & 63,
        }
    }

    /// Replaces the addresses of a TCP segment by addresses of the same IP version.
    pub(super) fn redirect(&self, frame: &mut [u8], source: SocketAddr, destination: SocketAddr) {
        let is_partial = frame[0] & NEEDS_CHECKSUM != 0;
        let old = Addresses::new(self.source.ip(), self.destination.ip());
        let new = Addresses::new(source.ip(), destination.ip());
        let (old, new) = (old.get(), new.get());
        let old_ports = ports(self.source, self.destination);
        let new_ports = ports(source, destination);
        let (ip, tcp) = frame.split_at_mut(self.start);
        let ip = &mut ip[FRAME_HEADER..];
        if self.source.is_ipv4() {
            let checksum = u16::from_be_bytes([ip[10], ip[11]]);
            let checksum = !replaced(!checksum, old, new);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            ip[12..20].copy_from_slice(new);
        } else {
            ip[8..40].copy_from_slice(new);
        }
        let checksum = u16::from_be_bytes([tcp[16], tcp[17]]);
        let checksum = match is_partial {
            // The system or network card that completes the checksum adds the ports.
            true => replaced(checksum, old, new),
            false => !replaced(replaced(!checksum, old, new), &old_ports, &new_ports),
        };
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        tcp[..4].copy_from_slice(&new_ports);
    }

    /// Calls `each` for each payload of a UDP frame, with a zero byte before the payload. Payloads
    /// with wrong checksums are skipped.
    pub(super) fn payloads(&self, frame: &mut [u8], mut each: impl FnMut(&[u8])) {
        let (flags, kind) = (frame[0], frame[1]);
        let segment = usize::from(u16::from_ne_bytes([frame[4], frame[5]]));
        let datagram = &mut frame[self.start..self.end];
        let length = usize::from(u16::from_be_bytes([datagram[4], datagram[5]]));
        // In a frame of several datagrams, the length field may count a single datagram.
        let are_many = kind == UDP_SEGMENTS && segment > 0;
        let length = if are_many { datagram.len() } else { length };
        let Some(datagram) = datagram
            .get_mut(..length)
            .filter(|datagram| datagram.len() >= 8)
        else {
            return;
        };
        let has_none = self.source.is_ipv4() && datagram[6..8] == [0, 0];
        let is_right = flags & (NEEDS_CHECKSUM | CHECKSUM_IS_RIGHT) != 0
            || has_none
            || transport_sum(self.source.ip(), self.destination.ip(), UDP, datagram) == 0xffff;
        if !is_right {
            return;
        }
        let segment = if are_many { segment } else { datagram.len() };
        let mut begin = 8;
        loop {
            let end = (begin + segment).min(datagram.len());
            datagram[begin - 1] = 0;
            each(&datagram[begin - 1..end]);
            begin = end;
            if begin >= datagram.len() {
                return;
            }
        }
    }

    /// The answer to a TCP segment of an unknown connection (RFC 9293 section 3.5.2). `None` for a
    /// reset, which gets no answer.
    pub(super) fn reset(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let Transport::Tcp(flags) = self.transport else {
            return None;
        };
        if flags.resets() {
            return None;
        }
        let tcp = frame.get(self.start..self.end)?;
        let header = tcp.first_chunk::<20>()?;
        let number = |at: usize| {
            let bytes = header[at..at + 4].iter();
            bytes.fold(0, |number, byte| number << 8 | u32::from(*byte))
        };
        let data = tcp.len() - usize::from(header[12] >> 4) * 4;
        let (sequence, acknowledged, reply) = if flags.0 & ACK != 0 {
            (number(8), 0, RST)
        } else {
            let counted = u32::from(flags.0 & SYN != 0) + u32::from(flags.0 & FIN != 0);
            let end = number(4).wrapping_add(data as u32).wrapping_add(counted);
            (0, end, RST | ACK)
        };
        let mut answer = [0; 20];
        answer[..4].copy_from_slice(&ports(self.destination, self.source));
        answer[4..8].copy_from_slice(&sequence.to_be_bytes());
        answer[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        answer[12] = 5 << 4;
        answer[13] = reply;
        let mut packet = Vec::new();
        let (from, to) = (self.destination.ip(), self.source.ip());
        put(&mut packet, (from, to), TCP, 16, &[&answer]);
        Some(packet)
    }

    /// The ICMP error for an unreachable destination (RFC 792, RFC 4443 section 3.1).
    pub(super) fn unreachable(&self, frame: &[u8], why: Unreachable) -> Vec<u8> {
        let (from, to) = (self.destination.ip(), self.source.ip());
        let ip = &frame[FRAME_HEADER..self.end];
        let header = self.start - FRAME_HEADER;
        let (protocol, kind, code, quoted) = match from {
            IpAddr::V4(_) => {
                let code = match why {
                    Unreachable::Network => 0,
                    Unreachable::Host => 1,
                    Unreachable::Prohibited => 13,
                };
                (ICMP, 3, code, header + 8)
            }
            IpAddr::V6(_) => {
                let code = match why {
                    Unreachable::Network => 0,
                    Unreachable::Host => 3,
                    Unreachable::Prohibited => 1,
                };
                (ICMPV6, 1, code, MIN_MTU - 40 - 8)
            }
        };
        let quoted = &ip[..quoted.min(ip.len())];
        let mut packet = Vec::new();
        let head = [kind, code, 0, 0, 0, 0, 0, 0];
        put(&mut packet, (from, to), protocol, 2, &[&head, quoted]);
        packet
    }
}

/// The bytes of two ports, as in a header.
pub(super) fn ports(source: SocketAddr, destination: SocketAddr) -> [u8; 4] {
    let [a, b] = source.port().to_be_bytes();
    let [c, d] = destination.port().to_be_bytes();
    [a, b, c, d]
}

/// Writes a UDP datagram as a frame. The payload is at most [`max_payload`] long.
pub(super) fn put_datagram(
    frame: &mut Vec<u8>,
    source: SocketAddr,
    destination: SocketAddr,
    payload: &[u8],
) {
    let mut header = [0; 8];
    header[..4].copy_from_slice(&ports(source, destination));
    let length = (header.len() + payload.len()) as u16;
    header[4..6].copy_from_slice(&length.to_be_bytes());
    put(
        frame,
        (source.ip(), destination.ip()),
        UDP,
        6,
        &[&header, payload],
    );
}

/// Writes a frame of these parts. `checksum` is the offset of the transport's checksum.
pub(super) fn put(
    frame: &mut Vec<u8>,
    ends: (IpAddr, IpAddr),
    protocol: u8,
    checksum: usize,
    parts: &[&[u8]],
) {
    frame.clear();
    frame.resize(FRAME_HEADER, 0);
    header::put(frame, ends, protocol, checksum, parts);
}

// The path is explicit, because the fuzz target has this file elsewhere in its tree.
#[cfg(test)]
#[path = "packet/tests.rs"]
mod tests;
