//! [`Topology`]: a list of the paths between a client and a server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::LinkConfig;
use crate::network::{Hop, HostId, LinkId, NatId, Network};

/// Paths between two hosts. Each path has a client address and, by default, a server address of its
/// own.
///
/// ```
/// use mpquic_sim::{LinkConfig, Topology};
/// use std::time::Duration;
/// let ms = Duration::from_millis;
/// let topology = Topology::new()
///     .path("wifi", LinkConfig::new(40.0, ms(8)))
///     .asymmetric_path("dsl", LinkConfig::new(10.0, ms(20)), LinkConfig::new(50.0, ms(20)))
///     .natted_path("lte", LinkConfig::new(20.0, ms(30)).loss(0.001));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Topology {
    paths: Vec<PathPlan>,
    single_server_address: bool,
    ipv6: bool,
    bottleneck: Option<(LinkConfig, LinkConfig)>,
}

#[derive(Debug, Clone)]
struct PathPlan {
    name: String,
    up: LinkConfig,
    down: LinkConfig,
    natted: bool,
}

/// A path of a topology in a network.
#[derive(Debug, Clone)]
pub struct PathLinks {
    /// The name of the path.
    pub name: String,
    /// The link from the client to the server.
    pub up: LinkId,
    /// The link from the server to the client.
    pub down: LinkId,
    /// The client's IP.
    pub client: IpAddr,
    /// The server's IP.
    pub server: IpAddr,
    /// The NAT box in front of the client, and the outside IPs that the NAT box may use.
    pub nat: Option<(NatId, Vec<IpAddr>)>,
}

impl Topology {
    /// A topology without paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path with the same link in both directions.
    #[must_use]
    pub fn path(self, name: &str, link: LinkConfig) -> Self {
        self.asymmetric_path(name, link.clone(), link)
    }

    /// Adds a path with one link from the client (`up`) and another from the server (`down`).
    #[must_use]
    pub fn asymmetric_path(mut self, name: &str, up: LinkConfig, down: LinkConfig) -> Self {
        self.paths.push(PathPlan {
            name: name.into(),
            up,
            down,
            natted: false,
        });
        self
    }

    /// Adds a path with a NAT box in front of the client.
    #[must_use]
    pub fn natted_path(self, name: &str, link: LinkConfig) -> Self {
        let mut topology = self.path(name, link);
        if let Some(path) = topology.paths.last_mut() {
            path.natted = true;
        }
        topology
    }

    /// Gives the server one address for all paths, instead of one per path.
    #[must_use]
    pub fn single_server_address(mut self) -> Self {
        self.single_server_address = true;
        self
    }

    /// Uses IPv6 addresses.
    #[must_use]
    pub fn ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// Adds a further link per direction, shared by all paths.
    #[must_use]
    pub fn shared_bottleneck(mut self, link: LinkConfig) -> Self {
        self.bottleneck = Some((link.clone(), link));
        self
    }

    /// Names of the paths, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|path| path.name.as_str())
    }

    /// Adds links and routes between two hosts to a network. `group` keeps the addresses of several
    /// topologies apart.
    pub fn build(
        &self,
        network: &mut Network,
        client: HostId,
        server: HostId,
        group: u8,
    ) -> Vec<PathLinks> {
        let shared = self
            .bottleneck
            .as_ref()
            .map(|(up, down)| (network.add_link(up.clone()), network.add_link(down.clone())));
        let mut built = Vec::new();
        for (plan, index) in self.paths.iter().zip(0u8..) {
            let server_index = if self.single_server_address { 0 } else { index };
            let mut path = PathLinks {
                name: plan.name.clone(),
                up: network.add_link(plan.up.clone()),
                down: network.add_link(plan.down.clone()),
                client: self.address(group, index, 1),
                server: self.address(group, server_index, 2),
                nat: None,
            };
            let mut up = vec![Hop::Link(path.up)];
            let mut down = Vec::new();
            if let Some((shared_up, shared_down)) = shared {
                up.push(Hop::Link(shared_up));
                down.push(Hop::Link(shared_down));
            }
            down.push(Hop::Link(path.down));
            if plan.natted {
                let outside: Vec<_> = (100..104)
                    .map(|last| self.address(group, index, last))
                    .collect();
                let nat = network.add_nat(outside[0]);
                up.push(Hop::NatOut(nat));
                down.push(Hop::NatIn(nat));
                for outside in &outside {
                    network.add_route(path.server, *outside, down.clone(), client);
                }
                path.nat = Some((nat, outside));
            }
            network.add_route(path.client, path.server, up, server);
            network.add_route(path.server, path.client, down, client);
            built.push(path);
        }
        built
    }

    fn address(&self, group: u8, path: u8, last: u8) -> IpAddr {
        if self.ipv6 {
            let (group, path, last) = (group.into(), path.into(), last.into());
            Ipv6Addr::new(0xfd00, group, path, 0, 0, 0, 0, last).into()
        } else {
            Ipv4Addr::new(10, group, path, last).into()
        }
    }
}

impl PathLinks {
    /// The links in both directions.
    pub fn links(&self) -> [LinkId; 2] {
        [self.up, self.down]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    fn link(rate: f64) -> LinkConfig {
        LinkConfig::new(rate, Duration::from_millis(1))
    }

    fn built(topology: &Topology, group: u8) -> (Network, Vec<PathLinks>) {
        let mut network = Network::new(1, crate::lab::epoch());
        let paths = topology.build(&mut network, HostId(0), HostId(1), group);
        (network, paths)
    }

    #[test]
    fn paths_have_links_and_addresses_of_their_group() {
        let topology = Topology::new()
            .path("a", link(1.0))
            .asymmetric_path("b", link(2.0), link(3.0))
            .natted_path("c", link(4.0));
        let (network, paths) = built(&topology, 7);
        let rate = |id| network.link(id).config().rate.unwrap() / 1e6;
        let all: Vec<_> = paths
            .iter()
            .map(|path| {
                let [up, down] = path.links().map(rate);
                format!("{} {up} {down} {} {}", path.name, path.client, path.server)
            })
            .collect();
        assert_eq!(
            all,
            [
                "a 1 1 10.7.0.1 10.7.0.2",
                "b 2 3 10.7.1.1 10.7.1.2",
                "c 4 4 10.7.2.1 10.7.2.2",
            ]
        );
        assert!(paths[0].nat.is_none() && paths[1].nat.is_none());
        let (_, outside) = paths[2].nat.as_ref().unwrap();
        let outside: Vec<_> = outside.iter().map(IpAddr::to_string).collect();
        let expected = ["10.7.2.100", "10.7.2.101", "10.7.2.102", "10.7.2.103"];
        assert_eq!(outside, expected);
        let (_, paths) = built(&topology.clone().ipv6(), 7);
        assert_eq!(paths[2].client.to_string(), "fd00:7:2::1");
        let (_, paths) = built(&topology.single_server_address(), 7);
        let servers: Vec<_> = paths.iter().map(|path| path.server.to_string()).collect();
        assert_eq!(servers, ["10.7.0.2"; 3]);
    }

    #[test]
    fn packets_reach_both_hosts() {
        use crate::packet::Packet;
        let topology = Topology::new()
            .path("a", link(f64::INFINITY))
            .natted_path("b", link(f64::INFINITY))
            .shared_bottleneck(LinkConfig::new(f64::INFINITY, Duration::from_millis(5)));
        let (mut network, paths) = built(&topology, 0);
        let start = crate::lab::epoch();
        let mut send = |from: std::net::SocketAddr, to: std::net::SocketAddr| {
            let now = network.now();
            network.send(now, Packet::new(from, to, None, bytes::BytesMut::zeroed(9)));
            let (host, packet) = loop {
                let time = network.next_event().unwrap();
                if let Some(arrived) = network.poll(time) {
                    break arrived;
                }
            };
            (host, packet, network.now() - now)
        };
        for path in &paths {
            let (client, server) = ((path.client, 5).into(), (path.server, 6).into());
            let (host, packet, took) = send(client, server);
            assert_eq!((host, took), (HostId(1), Duration::from_millis(6)));
            let natted = path.nat.is_some();
            assert_eq!(packet.source == client, !natted);
            let (host, packet, took) = send(server, packet.source);
            assert_eq!((host, packet.destination), (HostId(0), client));
            assert_eq!(took, Duration::from_millis(6));
        }
        assert_eq!(network.unroutable(), 0);
        assert!(network.now() > start);
    }
}
