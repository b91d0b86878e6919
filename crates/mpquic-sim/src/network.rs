//! [`Network`]: hosts' addresses joined by routes over links and NAT boxes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mpquic_core::sched::LocalQueue;

use crate::link::{Change, Link, LinkConfig};
use crate::nat::Nat;
use crate::packet::Packet;
use crate::record::Hash;
use crate::traffic::{Source, Traffic};

/// The address of both ends of cross traffic.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Bytes of IP and UDP headers in front of the payload of cross traffic.
const HEADERS: usize = 28;

/// Identifies a host of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// Identifies a link of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// Identifies a NAT box of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NatId(pub usize);

/// One step of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// Through a link; several routes may share one.
    Link(LinkId),
    /// Out through a NAT box: the source becomes an outside address.
    NatOut(NatId),
    /// In through a NAT box: the destination becomes the inside address.
    NatIn(NatId),
}

struct Route {
    hops: Vec<Hop>,
    /// `None` for cross traffic, whose packets vanish at the end of the route.
    to: Option<HostId>,
}

/// Links, NAT boxes and routes; independent of QUIC.
pub struct Network {
    seed: u64,
    now: Instant,
    links: Vec<Link>,
    nats: Vec<Nat>,
    routes: Vec<Route>,
    /// The index of a route, by source and destination IP.
    table: BTreeMap<(IpAddr, IpAddr), usize>,
    /// When links have an event due. An entry that differs from `scheduled` is outdated.
    events: BinaryHeap<Reverse<(Instant, usize)>>,
    scheduled: Vec<Option<Instant>>,
    sources: Vec<Source>,
    unroutable: u64,
    /// When recording began, and the hash of all packets sent since.
    record: Option<(Instant, Hash)>,
}

impl Network {
    /// An empty network at time `now`. Links draw their random numbers from `seed`.
    pub fn new(seed: u64, now: Instant) -> Self {
        Self {
            seed,
            now,
            links: Vec::new(),
            nats: Vec::new(),
            routes: Vec::new(),
            table: BTreeMap::new(),
            events: BinaryHeap::new(),
            scheduled: Vec::new(),
            sources: Vec::new(),
            unroutable: 0,
            record: None,
        }
    }

    /// Starts to hash all packets that hosts send: time, addresses, ECN codepoint and content.
    pub fn record(&mut self) {
        self.record = Some((self.now, Hash::default()));
    }

    /// The hash of [`Self::record`] so far.
    pub fn recorded(&self) -> Option<Hash> {
        self.record.map(|(_, hash)| hash)
    }

    /// Adds a link, whose schedule starts now.
    pub fn add_link(&mut self, config: LinkConfig) -> LinkId {
        let id = self.links.len();
        // Links of one seed draw different random numbers.
        let seed = self.seed ^ (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.links.push(Link::new(config, seed, self.now));
        self.scheduled.push(None);
        LinkId(id)
    }

    /// Adds a NAT box with an outside IP.
    pub fn add_nat(&mut self, outside: IpAddr) -> NatId {
        self.nats.push(Nat::new(outside));
        NatId(self.nats.len() - 1)
    }

    /// Adds a route: packets from one IP to another take these hops to a host. The route replaces
    /// an earlier route between the same IPs.
    pub fn add_route(&mut self, from: IpAddr, to: IpAddr, hops: Vec<Hop>, host: HostId) {
        self.table.insert((from, to), self.routes.len());
        self.routes.push(Route {
            hops,
            to: Some(host),
        });
    }

    /// Sends cross traffic over links. Its packets vanish behind the last link.
    pub fn add_traffic(&mut self, traffic: Traffic, links: &[LinkId]) {
        let hops = links.iter().copied().map(Hop::Link).collect();
        let route = self.routes.len();
        self.routes.push(Route { hops, to: None });
        let seed = self.seed ^ (self.sources.len() as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        self.sources.push(Source::new(traffic, route, seed));
    }

    /// Sends a packet. A packet without a route is lost.
    pub fn send(&mut self, now: Instant, packet: Packet) {
        let route = self.route(packet.source, packet.destination);
        self.send_on(now, route, packet);
    }

    /// The route between two addresses, for [`Self::send_on`].
    pub(crate) fn route(&self, source: SocketAddr, destination: SocketAddr) -> Option<usize> {
        self.table.get(&(source.ip(), destination.ip())).copied()
    }

    /// Like [`Self::send`], with a known route.
    pub(crate) fn send_on(&mut self, now: Instant, route: Option<usize>, mut packet: Packet) {
        if let Some((since, hash)) = &mut self.record {
            hash.add(now.saturating_duration_since(*since).as_nanos() as u64);
            for address in [packet.source, packet.destination] {
                hash.add_bytes(address.to_string().as_bytes());
            }
            hash.add(packet.ecn.map_or(0, |ecn| ecn as u64));
            hash.add_bytes(&packet.data);
        }
        let Some(route) = route else {
            self.unroutable += 1;
            return;
        };
        packet.route = route;
        packet.hop = 0;
        if self.forward(now, packet).is_some() {
            // A route needs at least one link: without a link, the packet would arrive during the
            // call.
            self.unroutable += 1;
        }
    }

    /// The queue of the first link between two addresses.
    pub(crate) fn local_queue(
        &mut self,
        now: Instant,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> Option<LocalQueue> {
        let route = self.route(source, destination)?;
        let hops = self.routes[route].hops.iter();
        let mut links = hops.filter_map(|hop| match hop {
            Hop::Link(LinkId(index)) => Some(*index),
            Hop::NatOut(_) | Hop::NatIn(_) => None,
        });
        let link = &mut self.links[links.next()?];
        let rate = link.config().rate.map(|rate| (rate / 8.0) as u64);
        Some(LocalQueue::new(link.queue_bytes(now), rate))
    }

    /// Bytes in the queue of a link.
    pub(crate) fn queue_bytes(&mut self, now: Instant, LinkId(index): LinkId) -> u64 {
        self.links[index].queue_bytes(now)
    }

    /// The time of the next event of [`Self::poll`].
    pub fn next_event(&self) -> Option<Instant> {
        let link = self.events.peek().map(|Reverse((time, _))| *time);
        let source = self.next_source().map(|(time, _)| time);
        match (link, source) {
            (Some(link), Some(source)) => Some(link.min(source)),
            (link, source) => link.or(source),
        }
    }

    /// The next packet of a source: its time, and the source.
    fn next_source(&self) -> Option<(Instant, usize)> {
        let sources = self.sources.iter().enumerate();
        sources
            .filter_map(|(index, source)| Some((source.next()?, index)))
            .min()
    }

    /// Sends packets of cross traffic that are due before any other event.
    fn run_sources(&mut self, now: Instant) {
        while let Some((time, index)) = self.next_source() {
            let link = self.events.peek().map(|Reverse((time, _))| *time);
            if time > now || link.is_some_and(|link| link < time) {
                return;
            }
            let source = &mut self.sources[index];
            let (bytes, ecn) = source.send(time);
            let payload = BytesMut::zeroed(bytes.saturating_sub(HEADERS));
            let mut packet = Packet::new(NOBODY, NOBODY, ecn, payload);
            packet.route = source.route;
            self.forward(time, packet);
        }
    }

    /// The next packet that reaches a host at or before `now`.
    pub fn poll(&mut self, now: Instant) -> Option<(HostId, Packet)> {
        self.now = self.now.max(now);
        loop {
            self.run_sources(now);
            let Reverse((time, index)) = self.events.peek().copied()?;
            if time > now {
                return None;
            }
            if self.scheduled[index] != Some(time) {
                self.events.pop();
                continue;
            }
            if let Some(packet) = self.links[index].receive(time) {
                if let Some(arrived) = self.forward(time, packet) {
                    return Some(arrived);
                }
            } else {
                self.events.pop();
                self.scheduled[index] = None;
                self.schedule(index);
            }
        }
    }

    /// Takes a packet over its next hops, up to the next link or its host.
    fn forward(&mut self, now: Instant, mut packet: Packet) -> Option<(HostId, Packet)> {
        loop {
            let route = &self.routes[packet.route];
            let Some(hop) = route.hops.get(packet.hop).copied() else {
                return route.to.map(|host| (host, packet));
            };
            packet.hop += 1;
            match hop {
                Hop::Link(LinkId(index)) => {
                    self.links[index].send(now, packet);
                    self.schedule(index);
                    return None;
                }
                Hop::NatOut(NatId(index)) => {
                    packet.source = self.nats[index].outbound(packet.source);
                }
                Hop::NatIn(NatId(index)) => match self.nats[index].inbound(packet.destination) {
                    Some(inside) => packet.destination = inside,
                    None => {
                        self.unroutable += 1;
                        return None;
                    }
                },
            }
        }
    }

    fn schedule(&mut self, index: usize) {
        let Some(time) = self.links[index].next_arrival() else {
            return;
        };
        if self.scheduled[index].is_none_or(|scheduled| time < scheduled) {
            self.scheduled[index] = Some(time);
            self.events.push(Reverse((time, index)));
        }
    }

    /// All links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A link.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    /// Changes a parameter of a link now.
    pub fn change_link(&mut self, id: LinkId, change: &Change) {
        self.links[id.0].change(self.now, change);
        self.schedule(id.0);
    }

    /// Counts delivered bytes per interval on all present links.
    pub fn trace(&mut self, interval: Duration) {
        for link in &mut self.links {
            link.trace(interval);
        }
    }

    /// A NAT box.
    pub fn nat(&mut self, id: NatId) -> &mut Nat {
        &mut self.nats[id.0]
    }

    /// Number of packets on links.
    pub fn packets(&self) -> usize {
        self.links.iter().map(Link::packets).sum()
    }

    /// Number of packets dropped because there was no route or no NAT binding.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// The current time.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Advances the network's time, for changes between events.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::EcnCodepoint;

    use super::*;
    use crate::traffic::Arrivals;

    const MS: Duration = Duration::from_millis(1);

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn packet(from: SocketAddr, to: SocketAddr) -> Packet {
        Packet::new(from, to, None, BytesMut::zeroed(972))
    }

    /// All arriving packets, with the times after the start.
    fn run(network: &mut Network, start: Instant) -> Vec<(Duration, HostId, Packet)> {
        let mut arrived = Vec::new();
        while let Some(time) = network.next_event() {
            while let Some((host, packet)) = network.poll(time) {
                arrived.push((time - start, host, packet));
            }
        }
        arrived
    }

    #[test]
    fn routes_share_links_and_take_hops_in_turn() {
        let start = crate::lab::epoch();
        let mut network = Network::new(1, start);
        let access = [(); 2].map(|()| network.add_link(LinkConfig::new(f64::INFINITY, MS)));
        let shared = network.add_link(LinkConfig::new(8.0, 10 * MS));
        let server = address("10.0.0.9:1");
        let clients = [address("10.0.0.1:1"), address("10.0.0.2:1")];
        for (client, access) in clients.iter().zip(access) {
            let hops = vec![Hop::Link(access), Hop::Link(shared)];
            network.add_route(client.ip(), server.ip(), hops, HostId(7));
        }
        for client in clients {
            network.send(start, packet(client, server));
        }
        network.send(start, packet(server, clients[0]));
        let arrived = run(&mut network, start);
        let times: Vec<_> = arrived.iter().map(|(time, ..)| *time).collect();
        assert_eq!(times, [12 * MS, 13 * MS]);
        assert!(arrived.iter().all(|(_, host, _)| *host == HostId(7)));
        assert_eq!(network.unroutable(), 1, "there is no way back");
        assert_eq!(network.packets(), 0);
    }

    #[test]
    fn nat_box_translates_both_ways_until_rebound() {
        let start = crate::lab::epoch();
        let mut network = Network::new(1, start);
        let [up, down] = [(); 2].map(|()| network.add_link(LinkConfig::new(8.0, MS)));
        let (inside, server) = (address("192.168.0.2:5000"), address("10.0.0.9:1"));
        let outside: IpAddr = "203.0.113.1".parse().unwrap();
        let nat = network.add_nat(outside);
        let out = vec![Hop::Link(up), Hop::NatOut(nat)];
        network.add_route(inside.ip(), server.ip(), out, HostId(1));
        let back = vec![Hop::Link(down), Hop::NatIn(nat)];
        network.add_route(server.ip(), outside, back, HostId(0));

        network.send(start, packet(inside, server));
        let (_, host, seen) = run(&mut network, start).remove(0);
        assert_eq!((host, seen.source.ip()), (HostId(1), outside));
        network.send(start + 5 * MS, packet(server, seen.source));
        let (_, host, reply) = run(&mut network, start).remove(0);
        assert_eq!((host, reply.destination), (HostId(0), inside));
        network.nat(nat).rebind();
        network.send(start + 9 * MS, packet(server, seen.source));
        assert!(run(&mut network, start).is_empty());
        assert_eq!(network.unroutable(), 1);
    }

    #[test]
    fn cross_traffic_has_the_configured_ecn_codepoint() {
        let start = crate::lab::epoch();
        for (ecn, marked) in [(None, 0), (Some(EcnCodepoint::Ect1), 10)] {
            let mut network = Network::new(1, start);
            let marks_all = LinkConfig::new(8.0, MS).ecn(crate::link::Backlog::packets(0));
            let link = network.add_link(marks_all);
            let traffic = Traffic {
                rate: 4e6,
                packet_bytes: 500,
                arrivals: Arrivals::Constant,
                ecn,
                from: start,
                to: Some(start + 10 * MS + MS / 2),
            };
            network.add_traffic(traffic, &[link]);
            run(&mut network, start);
            assert_eq!(network.link(link).counters().ce_marked, marked);
        }
    }

    #[test]
    fn cross_traffic_uses_its_share_of_a_link_and_vanishes() {
        let start = crate::lab::epoch();
        let mut network = Network::new(1, start);
        let link = network.add_link(LinkConfig::new(8.0, MS));
        let (client, server) = (address("10.0.0.1:1"), address("10.0.0.9:1"));
        network.add_route(client.ip(), server.ip(), vec![Hop::Link(link)], HostId(0));
        for (arrivals, from) in [(Arrivals::Constant, 0), (Arrivals::Poisson, 1000)] {
            let traffic = Traffic {
                rate: 2e6,
                packet_bytes: 500,
                arrivals,
                ecn: None,
                from: start + from * MS,
                to: Some(start + (from + 1000) * MS),
            };
            network.add_traffic(traffic, &[link]);
        }
        network.send(start, packet(client, server));
        network.send(start + MS, packet(client, server));
        let arrived = run(&mut network, start);
        // The second packet waits for the first, and the cross traffic follows both.
        let times: Vec<_> = arrived.iter().map(|(time, ..)| *time).collect();
        assert_eq!(times, [2 * MS, 3 * MS]);
        let sent = network.link(link).counters().packets_out - 2;
        // 499 packets at equal intervals, and as many at random, within four standard deviations.
        assert!((499 + 410..=499 + 590).contains(&sent), "{sent}");
        assert_eq!(network.packets(), 0);
    }

    #[test]
    fn record_of_a_packet_covers_time_addresses_ecn_and_content() {
        let (a, b) = (address("10.0.0.1:1"), address("10.0.0.2:1"));
        let recorded = |wait: u32, from: SocketAddr, ecn, byte: u8| {
            let start = crate::lab::epoch();
            let mut network = Network::new(1, start);
            network.send(start, packet(a, b));
            assert_eq!(network.recorded(), None);
            network.set_now(start + MS);
            network.record();
            let data = BytesMut::from(&[byte; 3][..]);
            network.send(start + MS * wait, Packet::new(from, b, ecn, data));
            network.recorded().unwrap().value()
        };
        let all = recorded(1, a, None, 0);
        assert_eq!(all, recorded(1, a, None, 0));
        let mut expected = Hash::default();
        expected.add(0);
        expected.add_bytes(b"10.0.0.1:1");
        expected.add_bytes(b"10.0.0.2:1");
        expected.add(0);
        expected.add_bytes(&[0; 3]);
        assert_eq!(all, expected.value());
        for other in [
            recorded(2, a, None, 0),
            recorded(1, b, None, 0),
            recorded(1, a, Some(EcnCodepoint::Ect0), 0),
            recorded(1, a, None, 1),
        ] {
            assert_ne!(all, other);
        }
    }

    #[test]
    fn packets_without_a_route_are_counted() {
        let start = crate::lab::epoch();
        let mut network = Network::new(1, start);
        let link = network.add_link(LinkConfig::new(8.0, MS));
        let (a, b) = (address("10.0.0.1:1"), address("10.0.0.2:1"));
        let nat = network.add_nat("203.0.113.1".parse().unwrap());
        assert_eq!((link, nat), (LinkId(0), NatId(0)));
        network.send(start, packet(a, b));
        assert_eq!(network.unroutable(), 1, "no route");
        network.add_route(a.ip(), b.ip(), vec![Hop::NatIn(nat)], HostId(0));
        network.send(start, packet(a, b));
        assert_eq!(network.unroutable(), 2, "no binding");
        network.add_route(a.ip(), b.ip(), Vec::new(), HostId(0));
        network.send(start, packet(a, b));
        assert_eq!(network.unroutable(), 3, "no link");
        network.add_route(a.ip(), b.ip(), vec![Hop::Link(link)], HostId(0));
        network.send(start, packet(a, b));
        assert_eq!((network.unroutable(), network.packets()), (3, 1));
        assert_eq!(run(&mut network, start).len(), 1);
    }

    #[test]
    fn changed_rate_applies_at_once_to_packets_on_the_link() {
        let start = crate::lab::epoch();
        let mut network = Network::new(1, start);
        let [link, other] = [(); 2].map(|()| network.add_link(LinkConfig::new(0.008, MS)));
        let (a, b) = (address("10.0.0.1:1"), address("10.0.0.2:1"));
        network.add_route(a.ip(), b.ip(), vec![Hop::Link(link)], HostId(0));
        network.trace(10 * MS);
        // Each packet takes a second at this rate.
        network.send(start, packet(a, b));
        network.set_now(start + 500 * MS);
        network.set_now(start);
        assert_eq!(network.now(), start + 500 * MS, "time does not go back");
        network.change_link(link, &Change::Rate(8.0));
        // Half of the first packet is left; at the new rate it takes a thousandth of the time.
        let expected = 500 * MS + MS / 2 + MS;
        assert_eq!(network.next_event(), Some(start + expected));
        let arrived = run(&mut network, start);
        assert_eq!(arrived[0].0, expected);
        let traced = |id| network.link(id).counters().bytes_per_interval();
        assert_eq!(traced(link).len(), 51);
        assert_eq!((traced(link)[50], traced(other).len()), (1000, 0));
        assert_eq!(network.links().len(), 2);
    }

    #[test]
    fn local_queue_is_that_of_the_first_link() {
        let start = crate::lab::epoch();
        let mut network = Network::new(1, start);
        let first = network.add_link(LinkConfig::new(8.0, MS));
        let second = network.add_link(LinkConfig::new(f64::INFINITY, MS));
        let nat = network.add_nat("203.0.113.1".parse().unwrap());
        let (a, b) = (address("10.0.0.1:1"), address("10.0.0.2:1"));
        assert_eq!(network.local_queue(start, a, b), None);
        let hops = vec![Hop::NatOut(nat), Hop::Link(first), Hop::Link(second)];
        network.add_route(a.ip(), b.ip(), hops, HostId(0));
        network.add_route(b.ip(), a.ip(), vec![Hop::Link(second)], HostId(0));
        for _ in 0..3 {
            network.send(start, packet(a, b));
        }
        let queue = network.local_queue(start, a, b);
        assert_eq!(queue, Some(LocalQueue::new(3000, Some(1_000_000))));
        let later = start + MS + MS / 2;
        let queue = network.local_queue(later, a, b);
        assert_eq!(queue, Some(LocalQueue::new(2000, Some(1_000_000))));
        assert_eq!(network.queue_bytes(later, first), 2000);
        let back = network.local_queue(start, b, a);
        assert_eq!(back, Some(LocalQueue::new(0, None)));
    }

    #[test]
    fn links_and_sources_of_one_seed_draw_differently() {
        let start = crate::lab::epoch();
        let lost = |seed| {
            let mut network = Network::new(seed, start);
            let (a, b) = (address("10.0.0.1:1"), address("10.0.0.2:1"));
            let losing = LinkConfig::new(f64::INFINITY, MS).loss(0.5);
            let links = [(); 2].map(|()| network.add_link(losing.clone()));
            let mut arrived = Vec::new();
            for link in links {
                network.add_route(a.ip(), b.ip(), vec![Hop::Link(link)], HostId(0));
                for wait in 1..=64 {
                    network.send(start + MS * wait, packet(a, b));
                }
                let times = run(&mut network, start).into_iter();
                arrived.push(times.map(|(time, ..)| time).collect::<Vec<_>>());
            }
            arrived
        };
        let first = lost(1);
        assert_eq!(first, lost(1));
        assert_ne!(first, lost(2));
        assert_ne!(first[0], first[1]);
        let traffic = Traffic {
            rate: 8e6,
            packet_bytes: 1000,
            arrivals: Arrivals::Poisson,
            ecn: None,
            from: start,
            to: Some(start + 50 * MS),
        };
        let mut network = Network::new(1, start);
        let links = [(); 2].map(|()| network.add_link(LinkConfig::new(f64::INFINITY, MS)));
        network.trace(MS);
        for link in links {
            network.add_traffic(traffic, &[link]);
        }
        run(&mut network, start);
        let [one, other] = links.map(|link| network.link(link).counters());
        assert_ne!(one.bytes_per_interval(), other.bytes_per_interval());
    }
}
