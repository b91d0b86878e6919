//! [`Network`]: hosts' addresses joined by routes over links and NAT boxes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::link::{Change, Link, LinkConfig};
use crate::nat::Nat;
use crate::packet::Packet;

/// Names a host of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// Names a link of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// Names a NAT box of a [`Network`].
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
    to: HostId,
}

/// Links, NAT boxes and routes. Knows nothing of QUIC.
pub struct Network {
    seed: u64,
    now: Instant,
    links: Vec<Link>,
    nats: Vec<Nat>,
    routes: Vec<Route>,
    /// From source and destination IP to a route.
    table: BTreeMap<(IpAddr, IpAddr), usize>,
    /// When links want to be looked at; entries that `scheduled` does not confirm are stale.
    events: BinaryHeap<Reverse<(Instant, usize)>>,
    scheduled: Vec<Option<Instant>>,
    unroutable: u64,
}

impl Network {
    /// An empty network at a time; links draw their randomness from `seed`.
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
            unroutable: 0,
        }
    }

    /// Adds a link; its schedule starts now.
    pub fn add_link(&mut self, config: LinkConfig) -> LinkId {
        let id = self.links.len();
        // Distinct streams for distinct links of one seed.
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

    /// Packets from one IP to another take these hops to a host. A later route for the same IPs
    /// replaces the earlier one.
    pub fn add_route(&mut self, from: IpAddr, to: IpAddr, hops: Vec<Hop>, host: HostId) {
        self.table.insert((from, to), self.routes.len());
        self.routes.push(Route { hops, to: host });
    }

    /// Sends a packet on its way; without a route it is dropped.
    pub fn send(&mut self, now: Instant, packet: Packet) {
        let route = self.route(packet.source, packet.destination);
        self.send_on(now, route, packet);
    }

    /// The route between two addresses, for [`Self::send_on`].
    pub(crate) fn route(&self, source: SocketAddr, destination: SocketAddr) -> Option<usize> {
        self.table.get(&(source.ip(), destination.ip())).copied()
    }

    /// Like [`Self::send`] with the route already known.
    pub(crate) fn send_on(&mut self, now: Instant, route: Option<usize>, mut packet: Packet) {
        let Some(route) = route else {
            self.unroutable += 1;
            return;
        };
        packet.route = route;
        packet.hop = 0;
        if self.forward(now, packet).is_some() {
            // A route without links would deliver before it is asked to.
            self.unroutable += 1;
        }
    }

    /// When [`Self::poll`] may have something next.
    pub fn next_event(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse((time, _))| *time)
    }

    /// The next packet that reaches a host at or before `now`.
    pub fn poll(&mut self, now: Instant) -> Option<(HostId, Packet)> {
        self.now = self.now.max(now);
        while let Some(Reverse((time, index))) = self.events.peek().copied() {
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
        None
    }

    /// Takes a packet over its next hops, up to the next link or its host.
    fn forward(&mut self, now: Instant, mut packet: Packet) -> Option<(HostId, Packet)> {
        loop {
            let route = &self.routes[packet.route];
            let Some(hop) = route.hops.get(packet.hop).copied() else {
                return Some((route.to, packet));
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

    /// A link.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    /// Changes a parameter of a link now.
    pub fn change_link(&mut self, id: LinkId, change: &Change) {
        self.links[id.0].change(self.now, change);
        self.schedule(id.0);
    }

    /// Counts delivered bytes per interval on all links there are.
    pub fn trace(&mut self, interval: Duration) {
        for link in &mut self.links {
            link.trace(interval);
        }
    }

    /// A NAT box.
    pub fn nat(&mut self, id: NatId) -> &mut Nat {
        &mut self.nats[id.0]
    }

    /// Packets on their way.
    pub fn packets(&self) -> usize {
        self.links.iter().map(Link::packets).sum()
    }

    /// Packets dropped because no route or no NAT binding existed.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// Tells the network the time, for changes made between events.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}
