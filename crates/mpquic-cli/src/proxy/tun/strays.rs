//! Routes of the machine that would lead packets past the device.
//!
//! A DHCP server, or a sender of router advertisements, in a local network sets such routes, for
//! example 0.0.0.0/1 with DHCP option 121. The rules of `routes` make such routes to public
//! addresses useless.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde::Deserialize;

use super::command::output;
use super::kill_switch::Lan;
use super::routes::is_private;
use super::state::State;
use crate::process::failure::Failure;

/// Most routes to log. Further routes are only counted.
const MOST_TOLD: usize = 32;

/// A route of the main table to one network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    network: IpNet,
    gateway: Option<IpAddr>,
    interface: String,
    /// True for a route from the kernel or a router advertisement, false for a route from DHCP or a
    /// person.
    is_of_interface: bool,
}

/// A route in the JSON of `ip`.
#[derive(Debug, Deserialize)]
struct Listed {
    /// Missing for unicast routes.
    #[serde(rename = "type")]
    kind: Option<String>,
    dst: String,
    #[serde(flatten)]
    hop: Hop,
    protocol: Option<String>,
    /// The gateways of a route with several gateways.
    #[serde(default)]
    nexthops: Vec<Hop>,
}

#[derive(Debug, Clone, Deserialize)]
struct Hop {
    gateway: Option<IpAddr>,
    /// A gateway of the other IP version.
    via: Option<Via>,
    dev: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Via {
    host: IpAddr,
}

/// The effect of a route on packets to its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Packets enter the device anyway.
    Refused,
    /// Packets enter the device anyway. The network is a local network with public addresses.
    RefusedLan,
    /// Packets pass the device by.
    Past,
}

/// Numbers of routes without and with effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) refused: usize,
    pub(crate) past: usize,
}

/// All unicast routes of the main table, except default routes.
///
/// # Errors
///
/// If `ip` is missing, or prints anything but a list of routes.
pub(crate) fn list() -> Result<Vec<Route>, Failure> {
    let mut routes = Vec::new();
    // Without IPv6, `ip -6` fails.
    let has_v6 = Path::new("/proc/net/if_inet6").exists();
    for family in ["-4", "-6"].into_iter().take(if has_v6 { 2 } else { 1 }) {
        let words = ["-json", family, "route", "show", "table", "main"].map(str::to_owned);
        routes.extend(read(&output("ip", &words)?)?);
    }
    Ok(routes)
}

fn read(text: &str) -> Result<Vec<Route>, Failure> {
    let unreadable = |error| Failure::other(format_args!("`ip -json route` says {error}"));
    // Without routes, some versions print nothing.
    let listed: Vec<Listed> = match text.trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).map_err(unreadable)?,
    };
    let of = |listed: Listed| {
        let network = read_network(&listed.dst)?;
        let is_unicast = listed.kind.is_none_or(|kind| kind == "unicast");
        if !is_unicast || network.prefix_len() == 0 {
            return None;
        }
        let hop = match listed.nexthops.first() {
            Some(first) if listed.hop.dev.is_none() => first.clone(),
            _ => listed.hop,
        };
        let protocol = listed.protocol.unwrap_or_default();
        Some(Route {
            network,
            gateway: hop.gateway.or(hop.via.map(|via| via.host)),
            interface: hop.dev.unwrap_or_default(),
            is_of_interface: ["kernel", "ra"].contains(&&*protocol),
        })
    };
    Ok(listed.into_iter().filter_map(of).collect())
}

/// A network as `ip` writes it: a single address has no length. `None` for the default route.
fn read_network(text: &str) -> Option<IpNet> {
    match text.parse() {
        Ok(network) => Some(network),
        Err(_) => text.parse::<IpAddr>().ok().map(IpNet::from),
    }
}

/// The private networks of all interfaces except the device.
pub(crate) fn local_networks(routes: &[Route], device: &str) -> Vec<Lan> {
    let is_local = |route: &&Route| {
        route.gateway.is_none() && route.interface != device && is_private(&route.network)
    };
    let lan = |route: &Route| Lan {
        interface: route.interface.clone(),
        network: route.network,
    };
    let mut networks: Vec<_> = routes.iter().filter(is_local).map(lan).collect();
    networks.sort();
    networks.dedup();
    networks
}

impl Route {
    /// `None` if the route would lead no packet past the device, even without our rules.
    fn effect(&self, state: &State) -> Option<Effect> {
        let network = &self.network;
        let covers = |other: &IpNet| other.contains(network);
        let is_longer =
            |routed: &IpNet| covers(routed) && routed.prefix_len() < network.prefix_len();
        let is_wanted = state.kept.iter().any(covers) || self.interface == state.name;
        if is_wanted || !state.networks.iter().any(is_longer) {
            return None;
        }
        match (self.gateway, is_private(network)) {
            (None, true) => None,
            (Some(_), true) if !state.is_strict() => Some(Effect::Past),
            (None, false) if self.is_of_interface => Some(Effect::RefusedLan),
            _ => Some(Effect::Refused),
        }
    }

    /// The way of the packets.
    fn way(&self) -> String {
        let interface = &self.interface;
        match self.gateway {
            Some(gateway) => format!("via {gateway}, interface {interface}"),
            None => format!("interface {interface}"),
        }
    }
}

/// Logs each route once.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    told: HashSet<Route>,
}

impl Strays {
    /// Logs new routes past the device, and counts all such routes.
    pub(crate) fn look(&mut self, routes: &[Route], state: &State) -> Counts {
        let mut counts = Counts::default();
        for route in routes {
            let Some(effect) = route.effect(state) else {
                continue;
            };
            match effect {
                Effect::Refused => counts.refused += 1,
                Effect::RefusedLan => {}
                Effect::Past => counts.past += 1,
            }
            if self.told.len() > MOST_TOLD || !self.told.insert(route.clone()) {
                continue;
            }
            if self.told.len() > MOST_TOLD {
                tracing::warn!("further routes are only counted: see `mpquic proxy status`");
                continue;
            }
            tell(route, effect);
        }
        counts
    }
}

fn tell(route: &Route, effect: Effect) {
    let (network, way) = (route.network, route.way());
    match effect {
        Effect::Refused => tracing::warn!(
            "a route would lead {network} past the tunnel ({way}), and is not used: somebody in the local \
             network may want to read this traffic. If the route is yours: --keep-route {network}"
        ),
        Effect::RefusedLan => tracing::info!(
            "the local network {network} has public addresses ({way}): packets to them enter the tunnel, \
             except with --keep-route {network}"
        ),
        Effect::Past => tracing::warn!(
            "a route leads {network} past the tunnel ({way}). If the route is not yours: --kill-switch stops \
             these packets"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::state;
    use super::*;
    use crate::testing::logged;

    const LISTED: &str = r#"[
        {"dst":"default","gateway":"10.0.0.1","dev":"lan","flags":[]},
        {"dst":"0.0.0.0/1","gateway":"192.0.2.66","dev":"lan","protocol":"dhcp","flags":[]},
        {"dst":"7.7.7.7","dev":"lan","protocol":"dhcp","scope":"link","flags":[]},
        {"dst":"8.8.8.8","flags":[],"nexthops":[
            {"gateway":"192.0.2.1","dev":"lan","weight":1,"flags":[]},
            {"gateway":"192.0.2.3","dev":"lan","weight":1,"flags":[]}]},
        {"dst":"9.9.9.9","via":{"family":"inet6","host":"fe80::5"},"dev":"lan","flags":[]},
        {"dst":"10.0.0.0/24","dev":"lan","protocol":"kernel","scope":"link","flags":[]},
        {"dst":"10.9.0.0/16","gateway":"10.0.0.9","dev":"lan","flags":[]},
        {"dst":"192.0.2.0/24","dev":"lan","protocol":"kernel","scope":"link","flags":[]},
        {"dst":"198.18.0.0/30","dev":"tun0","protocol":"kernel","scope":"link","flags":[]},
        {"type":"blackhole","dst":"5.5.5.0/24","flags":[]},
        {"dst":"2001:db8:5::/64","gateway":"fe80::5","dev":"lan","metric":1024,"flags":[]},
        {"dst":"fe80::/64","dev":"lan","protocol":"kernel","metric":256,"flags":[]}
    ]"#;

    /// The network of each route and its effect.
    fn effects(state: &State) -> Vec<(String, Effect)> {
        let routes = read(LISTED).unwrap().into_iter();
        let told = |route: Route| Some((route.network.to_string(), route.effect(state)?));
        routes.filter_map(told).collect()
    }

    #[test]
    fn routes_are_read_as_ip_lists_them() {
        let routes = read(LISTED).unwrap();
        let told: Vec<_> = (routes.iter())
            .map(|route| format!("{} {}", route.network, route.way()))
            .collect();
        assert_eq!(
            told,
            [
                "0.0.0.0/1 via 192.0.2.66, interface lan",
                "7.7.7.7/32 interface lan",
                "8.8.8.8/32 via 192.0.2.1, interface lan",
                "9.9.9.9/32 via fe80::5, interface lan",
                "10.0.0.0/24 interface lan",
                "10.9.0.0/16 via 10.0.0.9, interface lan",
                "192.0.2.0/24 interface lan",
                "198.18.0.0/30 interface tun0",
                "2001:db8:5::/64 via fe80::5, interface lan",
                "fe80::/64 interface lan",
            ]
        );
        assert_eq!(read("\n").unwrap(), []);
        let failure = read("no").unwrap_err();
        assert!(failure.message().starts_with("`ip -json route` says "));
    }

    #[test]
    fn routes_to_public_addresses_are_refused_and_others_past() {
        let mut state = state("tun0");
        state.networks = ["0.0.0.0/0", "::/0"].map(|n| n.parse().unwrap()).to_vec();
        let refused = |networks: &[&str]| -> Vec<_> {
            let refused = networks.iter();
            refused
                .map(|network| ((*network).to_owned(), Effect::Refused))
                .collect()
        };
        let mut expected = refused(&["0.0.0.0/1", "7.7.7.7/32", "8.8.8.8/32", "9.9.9.9/32"]);
        expected.push(("10.9.0.0/16".to_owned(), Effect::Past));
        expected.push(("192.0.2.0/24".to_owned(), Effect::RefusedLan));
        expected.extend(refused(&["2001:db8:5::/64"]));
        assert_eq!(effects(&state), expected);

        // Only longer routes compete with the device's routes.
        state.networks = vec!["8.8.8.8/32".parse().unwrap(), "7.0.0.0/8".parse().unwrap()];
        assert_eq!(effects(&state), refused(&["7.7.7.7/32"]));
        state.kept = vec!["7.7.0.0/16".parse().unwrap()];
        assert_eq!(effects(&state), []);
    }

    /// A strict kill switch has no exception for private networks.
    #[test]
    fn no_route_leads_past_a_strict_kill_switch() {
        let mut state = state("tun0");
        state.kill_switch = Some(super::super::kill_switch::tests::kill_switch());
        assert!(state.is_strict());
        let effects = effects(&state);
        let of = |network: &str| effects.iter().find(|(of, _)| of == network).unwrap().1;
        assert_eq!(of("10.9.0.0/16"), Effect::Refused);
    }

    #[test]
    fn local_networks_are_private_and_connected() {
        let routes = read(LISTED).unwrap();
        let told: Vec<_> = (local_networks(&routes, "tun0").iter())
            .map(|lan| format!("{} {}", lan.interface, lan.network))
            .collect();
        assert_eq!(told, ["lan 10.0.0.0/24", "lan fe80::/64"]);
    }

    #[test]
    fn each_route_is_told_once_and_counted() {
        let state = state("tun0");
        let routes = read(LISTED).unwrap();
        let mut strays = Strays::default();
        let counts = Counts {
            refused: 4,
            past: 1,
        };
        let told = logged(|| assert_eq!(strays.look(&routes, &state), counts));
        let line = "a route would lead 0.0.0.0/1 past the tunnel (via 192.0.2.66, interface lan), and is not used";
        assert!(told.contains(line), "{told}");
        let hint = "If the route is yours: --keep-route 0.0.0.0/1\n";
        assert!(told.contains(hint), "{told}");
        assert!(!told.contains("10.0.0.0/24"), "{told}");
        assert!(
            told.contains(
                "a route leads 10.9.0.0/16 past the tunnel (via 10.0.0.9, interface lan)"
            )
        );
        let again = logged(|| assert_eq!(strays.look(&routes, &state), counts));
        assert_eq!(again, "");
        assert_eq!(strays.look(&[], &state), Counts::default());
    }

    /// A hostile network cannot fill the log.
    #[test]
    fn told_routes_are_bounded() {
        let state = state("tun0");
        let route = |number: u8| Route {
            network: IpNet::from(IpAddr::from([8, 0, 0, number])),
            gateway: None,
            interface: "lan".to_owned(),
            is_of_interface: false,
        };
        let mut strays = Strays::default();
        let told = logged(|| {
            for number in 0..200 {
                strays.look(&[route(number)], &state);
            }
        });
        assert_eq!(told.lines().count(), MOST_TOLD + 1, "{told}");
        assert!(told.contains("only counted"));
    }
}
