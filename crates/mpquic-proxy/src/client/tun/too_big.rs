//! [`TooBig`]: a router behind this one reports that a packet from the device does not fit a
//! network on its way.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::packet::{FRAME_HEADER, MIN_MTU, ports, put};
use super::tcp_table::Ends;
use crate::ip::checksum::{sum, transport_sum};
use crate::ip::header::{Addresses, ICMP, ICMPV6, TCP, UDP, layout, word};

/// The MTU of a way is forgotten after this time (RFC 8201 section 4).
const KEPT: Duration = Duration::from_secs(10 * 60);
/// Most addresses with a known MTU. A further address replaces the oldest.
const MOST: usize = 256;
/// The part of a packet that a report must repeat: the ports, and the sequence number of TCP.
const QUOTED: usize = 8;

/// ICMP "fragmentation needed" (RFC 1191), or ICMPv6 "packet too big" (RFC 4443 section 3.2).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooBig<'a> {
    pub(super) ends: Ends,
    pub(super) protocol: u8,
    pub(super) mtu: u32,
    /// The head of the ICMP message.
    head: [u8; 8],
    /// The beginning of the packet.
    quoted: &'a [u8],
    /// The length of the IP header in it.
    start: usize,
}

impl<'a> TooBig<'a> {
    /// Reads a frame; `None` for other packets.
    pub(super) fn parse(frame: &'a [u8]) -> Option<Self> {
        let ip = frame.get(FRAME_HEADER..)?;
        let layout = layout(ip)?;
        let body = ip.get(layout.start..layout.end)?;
        let (head, quoted) = body.split_first_chunk::<8>()?;
        let is_right = match (layout.protocol, [head[0], head[1]]) {
            (ICMP, [3, 4]) => sum(body) == 0xffff,
            (ICMPV6, [2, 0]) => {
                transport_sum(layout.source, layout.destination, ICMPV6, body) == 0xffff
            }
            _ => false,
        };
        is_right.then_some(())?;
        let address = |at: usize, length: usize| -> Option<IpAddr> {
            let bytes = quoted.get(at..at + length)?;
            match length {
                4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
                _ => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
            }
        };
        let (start, protocol, mtu, target, application) = match layout.protocol {
            ICMP if quoted.first()? >> 4 == 4 => {
                let start = usize::from(quoted[0] & 15) * 4;
                let mtu = word(head, 6)?.into();
                (
                    start,
                    *quoted.get(9)?,
                    mtu,
                    address(12, 4)?,
                    address(16, 4)?,
                )
            }
            ICMPV6 if quoted.first()? >> 4 == 6 => {
                let mtu = u32::from_be_bytes(*head.last_chunk::<4>()?);
                (40, *quoted.get(6)?, mtu, address(8, 16)?, address(24, 16)?)
            }
            _ => return None,
        };
        let transport = quoted.get(start..).filter(|rest| rest.len() >= QUOTED)?;
        if start < 20 {
            return None;
        }
        // ICMP has no ports.
        let [from, to] = match protocol {
            TCP | UDP => [word(transport, 0)?, word(transport, 2)?],
            _ => [0, 0],
        };
        Some(Self {
            ends: Ends {
                application: SocketAddr::new(application, to),
                target: SocketAddr::new(target, from),
            },
            protocol,
            mtu,
            head: *head,
            quoted,
            start,
        })
    }

    /// The report as a frame for the sender of the segment as the kernel knows it, from `source` to
    /// `destination`.
    pub(super) fn redirected(&self, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let mut quoted = self.quoted.to_vec();
        let addresses = Addresses::new(source.ip(), destination.ip());
        let place = if source.is_ipv4() { 12 } else { 8 };
        let addresses = addresses.get();
        quoted[place..place + addresses.len()].copy_from_slice(addresses);
        quoted[self.start..self.start + 4].copy_from_slice(&ports(source, destination));
        let protocol = if source.is_ipv4() { ICMP } else { ICMPV6 };
        let mut head = self.head;
        head[2..4].fill(0);
        let mut frame = Vec::new();
        let ends = (destination.ip(), source.ip());
        put(&mut frame, ends, protocol, 2, &[&head, &quoted]);
        frame
    }
}

/// The MTU of the ways to neighbours, if a router has reported one: for IPv6, where routers do not
/// cut packets.
#[derive(Debug, Default)]
pub(super) struct Narrow(Mutex<BTreeMap<Ipv6Addr, (usize, Instant)>>);

impl Narrow {
    /// A router has reported this MTU.
    pub(super) fn on_report(&self, neighbour: Ipv6Addr, mtu: u32, now: Instant) {
        let mut ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ways.retain(|_, (_, since)| now < *since + KEPT);
        if ways.len() >= MOST {
            let oldest = ways.iter().min_by_key(|(_, (_, since))| *since);
            if let Some(oldest) = oldest.map(|(neighbour, _)| *neighbour) {
                ways.remove(&oldest);
            }
        }
        // RFC 8201 section 4: no way of IPv6 is narrower.
        let mtu = usize::try_from(mtu).unwrap_or(usize::MAX).max(MIN_MTU);
        ways.insert(neighbour, (mtu, now));
    }

    /// The MTU of the way to a neighbour, at most that of the device.
    pub(super) fn mtu(&self, neighbour: Ipv6Addr, device: usize, now: Instant) -> usize {
        let ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ways
            .get(&neighbour)
            .filter(|(_, since)| now < *since + KEPT);
        known.map_or(device, |(mtu, _)| device.min(*mtu))
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Packet;
    use super::*;

    /// Router, application, target, listener, and source of redirected segments.
    const ENDS: [[&str; 5]; 2] = [
        [
            "192.168.1.1",
            "192.168.1.10:40000",
            "192.0.2.7:443",
            "198.18.0.1:39999",
            "198.18.0.2:1025",
        ],
        [
            "fd77::1",
            "[fd77::10]:40000",
            "[2001:db8::7]:443",
            "[fd6d::1]:39999",
            "[fd6d::2]:1025",
        ],
    ];

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// A segment, and a router's report of it.
    fn report([router, application, target, ..]: [&str; 5], mtu: u16, quoted: usize) -> Vec<u8> {
        let (application, target) = (socket(application), socket(target));
        let mut tcp = [0; 20];
        tcp[..4].copy_from_slice(&ports(target, application));
        tcp[4..8].copy_from_slice(&1000_u32.to_be_bytes());
        tcp[12] = 5 << 4;
        let mut segment = Vec::new();
        put(
            &mut segment,
            (target.ip(), application.ip()),
            TCP,
            16,
            &[&tcp, &[7; 1400]],
        );
        assert!(Packet::parse(&segment).is_some());
        let [high, low] = mtu.to_be_bytes();
        let (protocol, kind, code) = if target.is_ipv4() {
            (ICMP, 3, 4)
        } else {
            (ICMPV6, 2, 0)
        };
        let head = [kind, code, 0, 0, 0, 0, high, low];
        let mut frame = Vec::new();
        let ends = (router.parse().unwrap(), target.ip());
        let quoted = &segment[FRAME_HEADER..][..quoted];
        put(&mut frame, ends, protocol, 2, &[&head, quoted]);
        frame
    }

    #[test]
    fn reports_reach_the_kernel_under_the_addresses_that_it_knows() {
        for ends in ENDS {
            let frame = report(ends, 1300, 548);
            let found = TooBig::parse(&frame).expect("a report");
            let (application, target) = (socket(ends[1]), socket(ends[2]));
            assert_eq!(
                found.ends,
                Ends {
                    application,
                    target
                }
            );
            assert_eq!((found.protocol, found.mtu), (TCP, 1300));
            let (listener, peer) = (socket(ends[3]), socket(ends[4]));
            let told = found.redirected(listener, peer);
            let again = TooBig::parse(&told).expect("its checksum is right");
            let there = Ends {
                application: peer,
                target: listener,
            };
            assert_eq!((again.ends, again.protocol, again.mtu), (there, TCP, 1300));
            // The sequence number.
            let sequence = &again.quoted[again.start + 4..][..4];
            assert_eq!(sequence, 1000_u32.to_be_bytes());
            let addresses = layout(&told[FRAME_HEADER..]).unwrap();
            assert_eq!(
                (addresses.source, addresses.destination),
                (peer.ip(), listener.ip())
            );
        }
    }

    #[test]
    fn broken_reports_have_no_effect() {
        for (ends, header) in ENDS.into_iter().zip([20, 40]) {
            for quoted in 0..header + QUOTED {
                assert_eq!(TooBig::parse(&report(ends, 1300, quoted)), None, "{quoted}");
            }
            let frame = report(ends, 1300, header + QUOTED);
            assert!(TooBig::parse(&frame).is_some());
            for length in 0..frame.len() {
                assert_eq!(TooBig::parse(&frame[..length]), None);
            }
            for place in FRAME_HEADER + header..frame.len() {
                let mut wrong = frame.clone();
                wrong[place] ^= 1;
                assert_eq!(TooBig::parse(&wrong), None, "{place}");
            }
            // A header of a wrong length, or of the other IP version.
            for first in [0x40, 0x44, 0x4f, 0x60, 0x00] {
                let mut segment = frame[FRAME_HEADER + header + 8..].to_vec();
                segment[0] = first;
                let head = frame[FRAME_HEADER + header..][..8].to_vec();
                let mut head = head;
                head[2..4].fill(0);
                let ends = (ends[0].parse().unwrap(), socket(ends[2]).ip());
                let mut wrong = Vec::new();
                let protocol = if header == 20 { ICMP } else { ICMPV6 };
                put(&mut wrong, ends, protocol, 2, &[&head, &segment]);
                let is_right = header == 40 && first == 0x60;
                assert_eq!(TooBig::parse(&wrong).is_some(), is_right, "{first:x}");
            }
        }
    }

    #[test]
    fn narrow_ways_are_known_for_a_time_and_few_of_them() {
        let (narrow, now) = (Narrow::default(), Instant::now());
        let neighbour = |number: usize| Ipv6Addr::from_bits(number as u128);
        narrow.on_report(neighbour(1), 1300, now);
        narrow.on_report(neighbour(2), 68, now);
        narrow.on_report(neighbour(3), u32::MAX, now);
        let mtu = |number, now| narrow.mtu(neighbour(number), 1500, now);
        assert_eq!(
            [0, 1, 2, 3].map(|number| mtu(number, now)),
            [1500, 1300, 1280, 1500]
        );
        assert_eq!(mtu(1, now + KEPT), 1500);
        for number in 0..1000 {
            narrow.on_report(
                neighbour(number),
                1300,
                now + Duration::from_millis(number as u64),
            );
        }
        assert_eq!(narrow.0.lock().unwrap().len(), MOST);
        assert_eq!(
            [743, 744, 999].map(|number| mtu(number, now)),
            [1500, 1300, 1300]
        );
    }
}
