//! Packets other than TCP and UDP: they leave by CONNECT-IP, from an address assigned by the proxy.
//!
//! The table of senders routes the answers back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::outlet::Outlet;
use super::packet::FRAME_HEADER;
use crate::client::datagram_flow::Wanted;
use crate::client::datagram_flows::DatagramFlows;
use crate::client::flows::Client;
use crate::datagrams::Deliver;
use crate::ip::checksum::replaced;
use crate::ip::echo::{Echo, Kind};
use crate::ip::header::{Addresses, ICMP, ICMPV6, Layout, TCP, UDP, is_for_one, layout};

/// Most remembered exchanges. A further exchange replaces the longest silent one.
const MOST: usize = 1024;
/// Where the addresses begin in a header.
const PLACE_V4: usize = 12;
const PLACE_V6: usize = 8;

/// The common part of packets in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Exchange {
    protocol: u8,
    remote: IpAddr,
    /// The identifier of an ICMP echo, 0 for other packets.
    identifier: u16,
}

impl Exchange {
    /// The exchange of a packet from or to a remote host. `None` for ICMP messages other than echo
    /// messages of this kind.
    fn of(packet: &[u8], ip: &Layout, remote: IpAddr, kind: Kind) -> Option<Self> {
        let identifier = match ip.protocol {
            TCP | UDP => return None,
            ICMP | ICMPV6 => {
                let echo = Echo::of_packet(packet, ip)?;
                (echo.kind == kind).then_some(echo.identifier)?
            }
            _ => 0,
        };
        Some(Self {
            protocol: ip.protocol,
            remote,
            identifier,
        })
    }
}

/// The sender of an exchange.
#[derive(Debug, Clone, Copy)]
struct Sender {
    address: IpAddr,
    /// The identifier inside. Outside, another identifier may replace it, because several hosts may
    /// use the same identifier.
    identifier: u16,
    /// Time of the last packet.
    last: Instant,
}

#[derive(Debug, Default)]
struct State {
    assigned: Vec<IpAddr>,
    /// The sender for each exchange, as the exchange looks in answers.
    senders: BTreeMap<Exchange, Sender>,
    /// The identifiers outside, by sender and by exchange as the sender sees it.
    outside: BTreeMap<(IpAddr, Exchange), u16>,
}

impl State {
    /// The identifier outside for a packet of this sender.
    fn identifier(&mut self, address: IpAddr, sent: Exchange, now: Instant) -> u16 {
        let known = self.outside.get(&(address, sent)).copied();
        let identifier = known.unwrap_or_else(|| self.begin(address, sent));
        let back = Exchange { identifier, ..sent };
        let sender = Sender {
            address,
            identifier: sent.identifier,
            last: now,
        };
        self.senders.insert(back, sender);
        identifier
    }

    /// Finds a free identifier for a new exchange, the sender's own if possible.
    fn begin(&mut self, address: IpAddr, sent: Exchange) -> u16 {
        if self.senders.len() >= MOST {
            let silent = self.senders.iter().min_by_key(|(_, sender)| sender.last);
            if let Some(back) = silent.map(|(back, _)| *back) {
                self.forget(back);
            }
        }
        let mut identifiers = (0..=MOST as u16).map(|step| sent.identifier.wrapping_add(step));
        let is_free = |identifier: &u16| {
            let identifier = *identifier;
            !self.senders.contains_key(&Exchange { identifier, ..sent })
        };
        let identifier = match sent.protocol {
            ICMP | ICMPV6 => identifiers.find(is_free),
            // Packets of other protocols have no identifier, so the last sender gets all answers.
            _ => None,
        };
        let identifier = identifier.unwrap_or(sent.identifier);
        self.forget(Exchange { identifier, ..sent });
        self.outside.insert((address, sent), identifier);
        identifier
    }

    fn forget(&mut self, back: Exchange) {
        if let Some(sender) = self.senders.remove(&back) {
            let sent = Exchange {
                identifier: sender.identifier,
                ..back
            };
            self.outside.remove(&(sender.address, sent));
        }
    }
}

/// Gives outgoing packets new addresses, and incoming packets their old ones.
#[derive(Debug, Default)]
struct Translation(Mutex<State>);

impl Translation {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The translated packet for the proxy; `None` for a packet that cannot leave.
    fn outwards(&self, packet: &[u8], now: Instant) -> Option<Vec<u8>> {
        let ip = layout(packet)?;
        let exchange = Exchange::of(packet, &ip, ip.destination, Kind::Request)?;
        let mut state = self.lock();
        let is_like = |own: &&IpAddr| own.is_ipv4() == ip.source.is_ipv4();
        let own = *state.assigned.iter().find(is_like)?;
        let identifier = state.identifier(ip.source, exchange, now);
        let mut packet = moved(packet, &ip, 0, own);
        rename(&mut packet, &ip, exchange.identifier, identifier);
        Some(packet)
    }

    /// The translated packet for the sender of its exchange; `None` without such a sender.
    fn inwards(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let ip = layout(packet)?;
        let exchange = Exchange::of(packet, &ip, ip.source, Kind::Reply)?;
        let state = self.lock();
        (state.assigned.contains(&ip.destination)).then_some(())?;
        let sender = *state.senders.get(&exchange)?;
        let mut packet = moved(packet, &ip, 1, sender.address);
        rename(&mut packet, &ip, exchange.identifier, sender.identifier);
        Some(packet)
    }
}

/// Replaces the identifier of an echo message. Other packets have 0 before and after.
fn rename(packet: &mut [u8], ip: &Layout, old: u16, new: u16) {
    if old == new {
        return;
    }
    let message = packet.get_mut(ip.start..).unwrap_or_default();
    if let Some([_, _, sum_high, sum_low, high, low, ..]) = message.first_chunk_mut::<8>() {
        let before = !u16::from_be_bytes([*sum_high, *sum_low]);
        let sum = !replaced(before, &old.to_be_bytes(), &new.to_be_bytes());
        [*sum_high, *sum_low] = sum.to_be_bytes();
        [*high, *low] = new.to_be_bytes();
    }
}

/// A packet with another source (0) or destination (1) of the same IP version.
fn moved(packet: &[u8], ip: &Layout, which: usize, address: IpAddr) -> Vec<u8> {
    let ends = [ip.source, ip.destination];
    let mut after = ends;
    after[which] = address;
    let (old, new) = (
        Addresses::new(ends[0], ends[1]),
        Addresses::new(after[0], after[1]),
    );
    let mut packet = packet.to_vec();
    let change = |packet: &mut [u8], at: usize| {
        if let Some(sum) = packet.get_mut(at..at + 2) {
            let before = u16::from_be_bytes([sum[0], sum[1]]);
            let after = !replaced(!before, old.get(), new.get());
            sum.copy_from_slice(&after.to_be_bytes());
        }
    };
    let place = match address {
        IpAddr::V4(_) => {
            change(&mut packet, 10);
            PLACE_V4
        }
        IpAddr::V6(_) => {
            // The checksum of ICMPv6 covers the addresses (RFC 4443 section 2.3). The checksum of
            // ICMP does not.
            if ip.protocol == ICMPV6 {
                change(&mut packet, ip.start + 2);
            }
            PLACE_V6
        }
    };
    let new = new.get();
    packet[place..place + new.len()].copy_from_slice(new);
    packet
}

/// Writes packets from the proxy to the device.
struct Answers {
    outlet: Arc<Outlet>,
    translation: Translation,
}

impl Deliver for Answers {
    fn deliver(&self, packet: &[u8]) {
        if let Some(packet) = self.translation.inwards(packet) {
            self.outlet.write_of_any_size(|frame| {
                frame.resize(FRAME_HEADER, 0);
                frame.extend_from_slice(&packet);
            });
        }
    }

    fn prepare<'a>(&self, payload: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let packet = self
            .translation
            .outwards(payload.get(1..)?, Instant::now())?;
        let mut payload = packet;
        payload.insert(0, 0);
        Some(Cow::Owned(payload))
    }

    fn on_assigned(&self, addresses: &[IpAddr]) {
        self.translation.lock().assigned = addresses.to_vec();
    }
}

/// The way of other packets from a device to the proxy.
pub(super) struct Outside {
    flows: Arc<DatagramFlows<()>>,
    outlet: Arc<Outlet>,
}

impl Outside {
    pub(super) fn new(client: Client, outlet: Arc<Outlet>) -> Self {
        let flows = DatagramFlows::new(client, 1);
        Self { flows, outlet }
    }

    /// Sends a packet if permitted. Only a permitted packet opens a flow.
    pub(super) fn on_frame(&self, frame: &[u8]) {
        let packet = frame.get(FRAME_HEADER..).unwrap_or_default();
        let Some(ip) = layout(packet) else {
            return;
        };
        let may_leave = is_for_one(ip.source)
            && is_for_one(ip.destination)
            && Exchange::of(packet, &ip, ip.destination, Kind::Request).is_some();
        if !may_leave {
            return;
        }
        let payload = [&[0][..], packet.get(..ip.end).unwrap_or_default()].concat();
        self.flows.send(&(), &payload, || {
            let answers = Answers {
                outlet: self.outlet.clone(),
                translation: Translation::default(),
            };
            (Wanted::Ip, Arc::new(answers))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn echo(kind: Kind, identifier: u16, from: &str, to: &str) -> Vec<u8> {
        let echo = Echo {
            kind,
            identifier,
            sequence: 3,
            data: b"payload",
        };
        let mut packet = Vec::new();
        echo.put(&mut packet, (from.parse().unwrap(), to.parse().unwrap()));
        packet
    }

    #[test]
    fn answers_find_who_has_asked() {
        let now = Instant::now();
        let translation = Translation::default();
        let [request, reply] = [Kind::Request, Kind::Reply];
        let first = echo(request, 7, "192.168.1.2", "203.0.113.1");
        assert_eq!(translation.outwards(&first, now), None, "no address");
        let own = ["198.19.0.1", "fd00::9"];
        translation.lock().assigned = own.map(|own| own.parse().unwrap()).to_vec();
        for (identifier, near, far) in [
            (7, "192.168.1.2", "203.0.113.1"),
            (8, "192.168.1.3", "203.0.113.1"),
            (7, "192.168.1.3", "203.0.113.2"),
            (7, "fd77::2", "2001:db8::1"),
        ] {
            let outside = own[usize::from(near.contains(':'))];
            let sent = translation.outwards(&echo(request, identifier, near, far), now);
            // Equal down to the checksum.
            assert_eq!(sent, Some(echo(request, identifier, outside, far)));
        }
        for (identifier, near, far) in [
            (8, "192.168.1.3", "203.0.113.1"),
            (7, "192.168.1.2", "203.0.113.1"),
            (7, "fd77::2", "2001:db8::1"),
        ] {
            let outside = own[usize::from(near.contains(':'))];
            let come = translation.inwards(&echo(reply, identifier, far, outside));
            assert_eq!(come, Some(echo(reply, identifier, far, near)));
        }
        for unwanted in [
            echo(reply, 9, "203.0.113.1", own[0]),
            echo(reply, 7, "203.0.113.9", own[0]),
            echo(reply, 7, "203.0.113.1", "198.19.0.2"),
            echo(request, 7, "203.0.113.1", own[0]),
        ] {
            assert_eq!(translation.inwards(&unwanted), None);
        }
    }

    /// Two hosts that ping the same target with the same identifier each get their own answers.
    #[test]
    fn hosts_with_the_same_identifier_are_told_apart() {
        let now = Instant::now();
        for (own, remote, near) in [
            ("198.19.0.1", "203.0.113.1", ["192.168.1.2", "192.168.1.3"]),
            ("fd00::9", "2001:db8::1", ["fd77::2", "fd77::3"]),
        ] {
            let translation = Translation::default();
            translation.lock().assigned = vec![own.parse().unwrap()];
            let [first, second] = near.map(|near| {
                let sent = translation.outwards(&echo(Kind::Request, 0xffff, near, remote), now);
                let sent = sent.unwrap();
                let identifier = Echo::of_packet(&sent, &layout(&sent).unwrap());
                let identifier = identifier.unwrap().identifier;
                assert_eq!(sent, echo(Kind::Request, identifier, own, remote));
                identifier
            });
            assert!(first != second);
            // Further packets keep their identifier.
            let again = translation.outwards(&echo(Kind::Request, 0xffff, near[0], remote), now);
            assert_eq!(again, Some(echo(Kind::Request, first, own, remote)));
            for (identifier, near) in [(second, near[1]), (first, near[0])] {
                let come = translation.inwards(&echo(Kind::Reply, identifier, remote, own));
                assert_eq!(come, Some(echo(Kind::Reply, 0xffff, remote, near)));
            }
        }
    }

    #[test]
    fn longest_silent_flow_is_forgotten() {
        let now = Instant::now();
        let translation = Translation::default();
        translation.lock().assigned = vec!["198.19.0.1".parse().unwrap()];
        let ask = |identifier, now| {
            let packet = echo(Kind::Request, identifier, "192.168.1.2", "203.0.113.1");
            assert!(translation.outwards(&packet, now).is_some());
        };
        let is_known = |identifier| {
            let reply = echo(Kind::Reply, identifier, "203.0.113.1", "198.19.0.1");
            translation.inwards(&reply).is_some()
        };
        let second = |number: u16| now + Duration::from_secs(number.into());
        let most = MOST as u16;
        (0..most).for_each(|identifier| ask(identifier, second(identifier)));
        ask(0, second(most));
        ask(5000, second(most));
        assert!(is_known(0) && !is_known(1) && is_known(2) && is_known(5000));
        for identifier in 6000..6000 + 2 * most {
            ask(identifier, second(identifier));
        }
        let state = translation.lock();
        assert_eq!((state.senders.len(), state.outside.len()), (MOST, MOST));
    }
}
