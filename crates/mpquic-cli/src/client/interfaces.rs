//! From where a path to a server can start now.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mpquic_tokio::Endpoint;
use mpquic_tokio::path_managers::fits_interface;

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
