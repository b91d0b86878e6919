//! From where a path to a server can start now.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mpquic_tokio::path_managers::fits_interface;
use mpquic_tokio::{Endpoint, InterfaceAddress, LeftOutReason};

use crate::client::knock;

/// The addresses of interfaces from which paths may start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Usable {
    /// At least one is there.
    Some,
    /// All that are there have excluded interfaces.
    Excluded,
    /// None is there now.
    None,
}

/// The addresses that are there now, without those of excluded interfaces or patterns.
pub(super) fn usable(excluded: &[String]) -> Usable {
    let there = mpquic_tokio::usable_addresses().unwrap_or_default();
    let is_excluded = |name: &str| excluded.iter().any(|one| fits_interface(one, name));
    if there.is_empty() {
        Usable::None
    } else if there.iter().all(|one| is_excluded(&one.name)) {
        Usable::Excluded
    } else {
        Usable::Some
    }
}

/// True if the system has a way to one of the servers from an address of no interface, or by a
/// tunnel. The routes of a link without carrier stay, but lead nowhere now.
pub(super) fn has_other_way(servers: &[SocketAddr]) -> bool {
    let all = mpquic_tokio::interface_addresses().unwrap_or_default();
    is_other_way(
        &all,
        servers
            .iter()
            .filter_map(|server| knock::source_to(*server)),
    )
}

fn is_other_way(all: &[InterfaceAddress], mut sources: impl Iterator<Item = IpAddr>) -> bool {
    let is_down = |source: &IpAddr| {
        let its = all.iter().filter(|one| one.ip == *source);
        its.clone().count() > 0
            && its
                .clone()
                .all(|one| one.left_out == Some(LeftOutReason::Down))
    };
    sources.any(|source| !is_down(&source))
}

/// A message if the system knows no way to any of a server's addresses from where this endpoint
/// starts.
pub(super) fn no_route(endpoint: &Endpoint, servers: &[SocketAddr]) -> Option<String> {
    let mut locals: Vec<_> = endpoint.local_addrs().iter().map(SocketAddr::ip).collect();
    locals.sort_unstable();
    locals.dedup();
    if servers
        .iter()
        .any(|server| knock::has_route(&locals, *server))
    {
        return None;
    }
    let locals: Vec<_> = locals.iter().map(IpAddr::to_string).collect();
    Some(format!(
        "this machine has no route to it from {}: `mpquic paths` lists the addresses for --local",
        locals.join(", ")
    ))
}

/// The unspecified address of the servers' IP version; `None` if they have both versions.
pub(super) fn unspecified(servers: &[SocketAddr]) -> Option<IpAddr> {
    if servers.iter().all(SocketAddr::is_ipv4) {
        Some(Ipv4Addr::UNSPECIFIED.into())
    } else if servers.iter().all(SocketAddr::is_ipv6) {
        Some(Ipv6Addr::UNSPECIFIED.into())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link without carrier keeps its address and its route.
    #[test]
    fn a_link_that_is_down_is_no_other_way() {
        let all = mpquic_tokio::interface_addresses().unwrap();
        let loopback = all.iter().find(|one| one.ip.is_loopback()).unwrap();
        let mut down = loopback.clone();
        down.left_out = Some(LeftOutReason::Down);
        let way = |all: &[InterfaceAddress], source: &str| {
            is_other_way(all, std::iter::once(source.parse().unwrap()))
        };
        let source = loopback.ip.to_string();
        assert!(!way(&[down.clone()], &source));
        assert!(way(&[down.clone()], "192.0.2.1"), "of no interface");
        assert!(way(&[down, loopback.clone()], &source), "of two interfaces");
        assert!(!is_other_way(&all, std::iter::empty()), "no route");
    }
}
