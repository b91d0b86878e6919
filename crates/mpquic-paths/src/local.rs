//! [`Local`]: a local address from which paths can start. [`Origin`]: an IP address or interface
//! that selects local addresses.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use crate::interface_name::fits_interface;
use crate::source_address::fit;

/// Names the source address that the system would choose for datagrams over an interface to a
/// destination; `None` if the system has no route over the interface, or no answer.
pub type AskSource = fn(interface: &str, remote: SocketAddr) -> Option<IpAddr>;

/// An [`AskSource`], which says nothing about equal addresses.
#[derive(Debug, Clone, Copy)]
struct Asked(AskSource);

impl PartialEq for Asked {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Asked {}

/// A local address from which paths can start: one socket of a driver.
///
/// ```
/// use mpquic_paths::Local;
///
/// let cable = Local::new("192.0.2.1:40000".parse()?);
/// let modem = Local::new("198.51.100.1:40000".parse()?).on("wwan0").backup();
/// let server = "203.0.113.1:443".parse()?;
/// assert!(cable.reaches(server) && modem.reaches(server));
/// assert_eq!(modem.interface(), Some("wwan0"));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    address: SocketAddr,
    interface: Option<Arc<str>>,
    ask: Option<Asked>,
    is_v6_only: bool,
    is_backup: bool,
}

impl Local {
    /// An address without an interface name. An unspecified IPv6 address stands for all addresses
    /// of both IP versions, unless [`Self::v6_only`] is set.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            interface: None,
            ask: None,
            is_v6_only: false,
            is_backup: false,
        }
    }

    /// The same address, bound to a network interface.
    #[must_use]
    pub fn on(mut self, interface: &str) -> Self {
        self.interface = Some(interface.into());
        self
    }

    /// The same address, of an interface whose source addresses `ask` knows: of several addresses
    /// of one interface, a path starts at the first answered address.
    #[must_use]
    pub fn asking(mut self, ask: AskSource) -> Self {
        self.ask = Some(Asked(ask));
        self
    }

    /// The same address, without IPv4.
    #[must_use]
    pub fn v6_only(mut self) -> Self {
        self.is_v6_only = true;
        self
    }

    /// Marks the address as a backup: its paths carry data only while no other path works.
    #[must_use]
    pub fn backup(mut self) -> Self {
        self.is_backup = true;
        self
    }

    /// The address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The network interface that the address is bound to.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    pub(crate) fn shared_interface(&self) -> Option<Arc<str>> {
        self.interface.clone()
    }

    /// True if paths from here carry data only while no other path works.
    pub fn is_backup(&self) -> bool {
        self.is_backup
    }

    /// True if datagrams from `local` leave from here.
    pub fn owns(&self, local: SocketAddr) -> bool {
        let is_any = || {
            let is_alike = self.address.is_ipv4() == local.is_ipv4();
            self.address.ip().is_unspecified() && (is_alike || self.is_dual())
        };
        self.address == local
            || (self.address.port() == local.port()
                && (self.address.ip() == local.ip() || is_any()))
    }

    /// True if datagrams from here can get to `remote`: the socket carries `remote`'s IP version, a
    /// link-local address is on the same link, and a loopback address is not sought through an
    /// interface of a network.
    pub fn reaches(&self, remote: SocketAddr) -> bool {
        let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        if is_loopback(remote) && self.interface.is_some() && !is_loopback(self.address) {
            return false;
        }
        match (self.address, remote) {
            (SocketAddr::V4(_), _) => remote.is_ipv4(),
            (SocketAddr::V6(_), SocketAddr::V4(_)) => self.is_dual(),
            (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
                local.ip().is_unspecified() || link(local) == link(remote)
            }
        }
    }

    /// The one of `locals` from which datagrams from `address` leave, or else `address` alone.
    pub(crate) fn owner(locals: &[Self], address: SocketAddr) -> Self {
        let owner = locals.iter().find(|local| local.owns(address)).cloned();
        owner.unwrap_or_else(|| Self::new(address))
    }

    /// Marks the local addresses for which `is_backup` is true as backups.
    pub(crate) fn mark_backups(locals: &[Self], is_backup: impl Fn(&Self) -> bool) -> Vec<Self> {
        let mut locals = locals.to_vec();
        for local in &mut locals {
            local.is_backup |= is_backup(local);
        }
        locals
    }

    /// The same address, whose paths are backups or not.
    pub(crate) fn with_backup(mut self, is_backup: bool) -> Self {
        self.is_backup = is_backup;
        self
    }

    /// The local half of a four-tuple towards `remote`.
    pub fn towards(&self, remote: SocketAddr) -> SocketAddr {
        if self.address.ip().is_unspecified() && remote.is_ipv4() {
            SocketAddr::new(IpAddr::from([0, 0, 0, 0]), self.address.port())
        } else {
            self.address
        }
    }

    /// True if a path to `remote` may start here, and at no other address of the same interface
    /// among `all` that comes first: the system's choice ([`Self::asking`]), otherwise the address
    /// that suits `remote` best (RFC 6724), and of equal ones the first. An address of no named
    /// interface always comes first.
    pub fn suits(&self, remote: SocketAddr, all: &[Self]) -> bool {
        let is_rival = |other: &&Self| self.is_beside(other) && other.reaches(remote);
        let rivals: Vec<_> = all.iter().filter(is_rival).collect();
        let chosen = Self::choose(&rivals, remote);
        self.reaches(remote) && chosen.is_none_or(|chosen| chosen.address == self.address)
    }

    /// True for addresses of one interface.
    fn is_beside(&self, other: &Self) -> bool {
        self.interface.is_some() && self.interface == other.interface
    }

    fn choose<'a>(rivals: &[&'a Self], remote: SocketAddr) -> Option<&'a Self> {
        let (first, others) = rivals.split_first()?;
        if others.is_empty() {
            return Some(first);
        }
        let named = first.ask.zip(first.interface());
        let told = named.and_then(|(Asked(ask), interface)| ask(interface, remote));
        let mut all = rivals.iter();
        let told = all.find(|local| Some(local.address.ip()) == told);
        // The maximum is the last of equal ones.
        let fit = |local: &&&Self| fit(local.address.ip(), remote.ip());
        told.or_else(|| rivals.iter().rev().max_by_key(fit))
            .copied()
    }

    /// True if the socket carries datagrams of both IP versions.
    fn is_dual(&self) -> bool {
        self.address.is_ipv6() && self.address.ip().is_unspecified() && !self.is_v6_only
    }
}

/// The link (scope ID) of a link-local address; `None` for other addresses.
fn link(address: SocketAddrV6) -> Option<u32> {
    let is_link_local = address.ip().is_unicast_link_local();
    is_link_local.then_some(address.scope_id())
}

/// Where paths start: a name for one or several local addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An IP address, whatever the port.
    Address(IpAddr),
    /// All addresses that are bound to a network interface with this name, or to interfaces with
    /// names that fit this pattern ([`fits_interface`](crate::fits_interface)).
    Interface(String),
}

impl Origin {
    /// True if paths from `local` start there.
    pub fn is(&self, local: &Local) -> bool {
        match self {
            Self::Address(ip) => local.address.ip() == *ip,
            Self::Interface(name) => local.interface().is_some_and(|of| fits_interface(name, of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// RFC 6724 section 5, rule 2: answers to a link-local address do not leave its link.
    #[test]
    fn addresses_of_a_link_reach_those_of_the_same_link() {
        for (local, remote, expected) in [
            ("[fe80::1%2]:1", "[fe80::2%2]:1", true),
            ("[fe80::1%2]:1", "[fe80::2%3]:1", false),
            ("[fe80::1%2]:1", "[2001:db8::1]:1", false),
            ("[2001:db8::1]:1", "[fe80::2%2]:1", false),
            ("[2001:db8::1]:1", "[fd00::1]:1", true),
            ("[::]:1", "[fe80::2%2]:1", true),
            ("10.0.0.1:1", "[fe80::2%2]:1", false),
        ] {
            let reaches = Local::new(address(local)).reaches(address(remote));
            assert_eq!(reaches, expected, "{local} {remote}");
        }
    }

    /// A program of the same machine listens at the loopback interface alone, or at all.
    #[test]
    fn interfaces_of_networks_do_not_reach_the_loopback_address() {
        for (local, remote, expected) in [
            ("10.0.0.1:1", "127.0.0.1:2", false),
            ("[2001:db8::1]:1", "[::1]:2", false),
            ("10.0.0.1:1", "10.0.0.1:2", true),
            ("127.0.0.1:1", "127.0.0.2:2", true),
            ("[::1]:1", "[::1]:2", true),
        ] {
            let local = Local::new(address(local));
            let named = local.clone().on("eth0");
            assert_eq!(
                named.reaches(address(remote)),
                expected,
                "{named:?} {remote}"
            );
            assert!(local.reaches(address(remote)), "{local:?} {remote}");
        }
    }

    /// Answers of a system with two networks on a link, and with a route that the addresses do not
    /// show.
    fn routes(interface: &str, remote: SocketAddr) -> Option<IpAddr> {
        let SocketAddr::V4(remote) = remote else {
            return None;
        };
        match (interface, remote.ip().octets()) {
            ("eth0", [203, 0, 113, _]) => Some([10, 0, 0, 2].into()),
            ("eth0", [203, ..]) => Some([192, 0, 2, 77].into()),
            _ => None,
        }
    }

    #[test]
    fn one_address_of_an_interface_suits_a_destination() {
        let eth0 = |text: &str| Local::new(address(text)).on("eth0").asking(routes);
        let all = [
            eth0("10.0.0.1:1"),
            eth0("10.0.0.2:1"),
            eth0("[2001:db8:1::1]:1"),
            eth0("[2001:db8:2::1]:1"),
            Local::new(address("10.0.1.1:1")).on("eth1").asking(routes),
            Local::new(address("10.0.0.9:1")),
        ];
        let suitable = |remote: &str| -> Vec<String> {
            let suits = |local: &&Local| local.suits(address(remote), &all);
            let suitable = all.iter().filter(suits);
            suitable
                .map(|local| local.address.ip().to_string())
                .collect()
        };
        assert_eq!(
            suitable("203.0.113.1:1"),
            ["10.0.0.2", "10.0.1.1", "10.0.0.9"]
        );
        // The system names an address that cannot be used, or no address.
        for remote in ["203.0.114.1:1", "198.51.100.1:1"] {
            assert_eq!(suitable(remote), ["10.0.0.1", "10.0.1.1", "10.0.0.9"]);
        }
        assert_eq!(suitable("[2001:db8:2:3::1]:1"), ["2001:db8:2::1"]);
        assert_eq!(suitable("[2600::1]:1"), ["2001:db8:1::1"]);
    }

    #[test]
    fn unspecified_addresses_own_those_of_their_port_and_version() {
        let any_v4 = Local::new(address("0.0.0.0:5"));
        let any = Local::new(address("[::]:5"));
        let any_v6 = any.clone().v6_only();
        let one = Local::new(address("192.0.2.1:5"));
        for (local, expected) in [
            ("192.0.2.1:5", [true, true, false, true]),
            ("192.0.2.2:5", [true, true, false, false]),
            ("192.0.2.1:6", [false, false, false, false]),
            ("[2001:db8::1]:5", [false, true, true, false]),
        ] {
            let owns = [&any_v4, &any, &any_v6, &one].map(|of| of.owns(address(local)));
            assert_eq!(owns, expected, "{local}");
        }
        let v4 = address("203.0.113.1:443");
        assert_eq!(any.towards(v4), address("0.0.0.0:5"));
        assert_eq!(one.towards(v4), one.address());
        let reach = [&any_v4, &any, &any_v6, &one].map(|of| of.reaches(v4));
        assert_eq!(reach, [true, true, false, true]);
    }

    #[test]
    fn an_origin_is_an_address_or_all_of_an_interface() {
        let modem = Local::new(address("192.0.2.1:5")).on("wwan0");
        let cable = Local::new(address("192.0.2.2:5"));
        let is = |origin: Origin| [&modem, &cable].map(|local| origin.is(local));
        assert_eq!(is(Origin::Interface("wwan0".to_owned())), [true, false]);
        assert_eq!(is(Origin::Interface("eth0".to_owned())), [false, false]);
        assert_eq!(is(Origin::Interface("ww*".to_owned())), [true, false]);
        assert_eq!(is(Origin::Address([192, 0, 2, 2].into())), [false, true]);
    }
}
