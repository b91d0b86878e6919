//! Network interfaces: the addresses from which paths can start, and how they change.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Weak;
use std::time::Duration;

use if_addrs::{IfAddr, IfOperStatus};
use tokio::time::MissedTickBehavior;

use crate::connection_state::SharedEndpoint;
use crate::{local_addresses, start};

/// How often the list of interfaces is read. That is the longest until a path over a vanished
/// interface becomes suspect; mostly a failing send or a probe timeout is faster.
const INTERVAL: Duration = Duration::from_secs(1);

/// Bridges and links to containers and virtual machines, by the start of their names. No server is
/// behind them.
const VIRTUAL: [&str; 6] = ["docker", "br-", "veth", "virbr", "vnet", "lxc"];

/// Which interfaces to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All that are up and lead beyond this machine.
    All,
    /// Those with these names.
    Named(Vec<String>),
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
}

/// The addresses from which a client can start paths: one per interface and IP version, of the
/// interfaces that are up and lead beyond this machine.
///
/// # Errors
///
/// If the system does not list its interfaces.
pub fn usable_addresses() -> io::Result<Vec<InterfaceAddress>> {
    usable(&Selection::All)
}

pub(crate) fn usable(selection: &Selection) -> io::Result<Vec<InterfaceAddress>> {
    Ok(choose(if_addrs::get_if_addrs()?, selection))
}

fn choose(interfaces: Vec<if_addrs::Interface>, selection: &Selection) -> Vec<InterfaceAddress> {
    let mut chosen: Vec<InterfaceAddress> = Vec::new();
    for interface in interfaces {
        let wanted = match selection {
            Selection::All => {
                let name = interface.name.as_str();
                !interface.is_loopback() && !VIRTUAL.iter().any(|start| name.starts_with(start))
            }
            Selection::Named(names) => names.contains(&interface.name),
        };
        let down = matches!(
            interface.oper_status,
            IfOperStatus::Down | IfOperStatus::NotPresent | IfOperStatus::LowerLayerDown
        );
        let ip = match &interface.addr {
            IfAddr::V4(v4) => IpAddr::V4(v4.ip),
            IfAddr::V6(v6) => IpAddr::V6(v6.ip),
        };
        let taken = chosen
            .iter()
            .any(|address| address.name == interface.name && address.ip.is_ipv4() == ip.is_ipv4());
        if wanted && !down && !interface.is_link_local() && !taken {
            chosen.push(InterfaceAddress {
                name: interface.name,
                ip,
            });
        }
    }
    chosen
}

/// Binds and closes sockets as addresses appear and disappear, until the endpoint is gone.
pub(crate) async fn watch(endpoint: Weak<SharedEndpoint>, selection: Selection) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(endpoint) = endpoint.upgrade() else {
            return;
        };
        if endpoint.lock().is_over() {
            return;
        }
        let now = match usable(&selection) {
            Ok(now) => now,
            Err(error) => {
                tracing::debug!(%error, "cannot list interfaces");
                continue;
            }
        };
        let is_there = |name: &str, ip: IpAddr| now.iter().any(|a| a.name == name && a.ip == ip);
        let removed = endpoint.sockets.remove(|socket| {
            let name = socket.interface();
            name.is_some_and(|name| !is_there(name, socket.local().ip()))
        });
        let mut changed = !removed.is_empty();
        let bound = endpoint.sockets.all();
        for address in &now {
            let known = bound.iter().any(|socket| {
                socket.interface() == Some(&address.name) && socket.local().ip() == address.ip
            });
            if known {
                continue;
            }
            match start::bind(
                &endpoint,
                SocketAddr::new(address.ip, 0),
                Some(&address.name),
            ) {
                Ok(_) => changed = true,
                // A new IPv6 address may still be tentative: the next tick tries again.
                Err(error) => tracing::debug!(%error, ?address, "cannot bind"),
            }
        }
        if changed {
            tracing::debug!(addresses = ?now, "local addresses changed");
            local_addresses::follow(&endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use if_addrs::{Ifv4Addr, Ifv6Addr, Interface};

    fn interface(name: &str, ip: &str, oper_status: IfOperStatus) -> Interface {
        let addr = match ip.parse().unwrap() {
            IpAddr::V4(ip) => IfAddr::V4(Ifv4Addr {
                ip,
                netmask: [255, 255, 255, 0].into(),
                prefixlen: 24,
                broadcast: None,
            }),
            IpAddr::V6(ip) => IfAddr::V6(Ifv6Addr {
                ip,
                netmask: "ffff:ffff:ffff:ffff::".parse().unwrap(),
                prefixlen: 64,
                broadcast: None,
            }),
        };
        Interface {
            name: name.to_owned(),
            addr,
            index: None,
            oper_status,
            is_p2p: false,
        }
    }

    #[test]
    fn one_address_per_interface_and_version() {
        let up = || IfOperStatus::Up;
        let all = vec![
            interface("lo", "127.0.0.1", up()),
            interface("wlan0", "192.168.1.5", up()),
            interface("wlan0", "192.168.1.6", up()),
            interface("wlan0", "fe80::1", up()),
            interface("wlan0", "2001:db8::5", up()),
            interface("wwan0", "10.0.0.5", IfOperStatus::Unknown),
            interface("eth0", "10.1.0.5", IfOperStatus::Down),
            interface("docker0", "172.17.0.1", up()),
        ];
        let names = |selection: &Selection| -> Vec<String> {
            let chosen = choose(all.clone(), selection);
            chosen
                .iter()
                .map(|a| format!("{} {}", a.name, a.ip))
                .collect()
        };
        assert_eq!(
            names(&Selection::All),
            ["wlan0 192.168.1.5", "wlan0 2001:db8::5", "wwan0 10.0.0.5"]
        );
        let named = Selection::Named(vec!["docker0".to_owned(), "eth0".to_owned()]);
        assert_eq!(names(&named), ["docker0 172.17.0.1"]);
    }
}
