//! Network interfaces: the addresses from which paths can start, and how they change.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use if_addrs::{IfAddr, IfOperStatus};
use mpquic_paths::{AskSource, Local, fits_interface, label};

use crate::address_flags::{AddressFlags, prefers_temporary};
use crate::awaited_addresses::{self, Awaited};
use crate::connection_state::SharedEndpoint;
use crate::device::system_source;
use crate::interface_changes::InterfaceChanges;
use crate::{local_addresses, own_network, start};

/// Bridges and links to containers and virtual machines, by the start of their names. They lead to
/// no server.
const BRIDGES: [&str; 11] = [
    "docker", "podman", "br-", "veth", "virbr", "vnet", "lxc", "cni", "flannel", "vmnet", "vboxnet",
];

/// Tunnels, by the start of their names. They lead over another interface.
const TUNNELS: [&str; 10] = [
    "tun",
    "tap",
    "utun",
    "wg",
    "tailscale",
    "zt",
    "ipsec",
    "gre",
    "sit",
    "ip6tnl",
];

/// On these systems `if_addrs` does not report a down or unplugged interface as such, but reports a
/// working one.
const SAYS_UNKNOWN_OF_DOWN: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The addresses that are used of an interface, for each IP version. Each has a socket.
const MOST_ADDRESSES: usize = 8;

/// The longest prefix of a network of IPv6 with machines in it, bits.
const SUBNET: u32 = 64;

/// The port where a path's way is asked for: routes are the same for all.
const ANY_PORT: u16 = 443;

/// A destination with a global address; nothing is sent there.
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Which interfaces to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All interfaces that are up and lead beyond this machine, except tunnels, bridges and these
    /// names or patterns.
    AllBut(Vec<String>),
    /// Those with these names or patterns.
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
    /// Why no path starts from it, unless the interface or the address is named.
    pub left_out: Option<LeftOutReason>,
}

impl InterfaceAddress {
    /// True if a path from this interface to `remote` starts at this address: it has the same IP
    /// version, and no other address of the interface among `all` comes first for `remote`. The
    /// system's choice comes first, otherwise the address that suits `remote` best (RFC 6724).
    pub fn suits(&self, remote: IpAddr, all: &[InterfaceAddress]) -> bool {
        self.suits_as(system_source, remote, all)
    }

    fn suits_as(&self, ask: AskSource, remote: IpAddr, all: &[InterfaceAddress]) -> bool {
        let local = |one: &Self| {
            let address = SocketAddr::new(one.ip, ANY_PORT);
            Local::new(address).on(&one.name).asking(ask)
        };
        let alike = all.iter().filter(|one| one.left_out == self.left_out);
        let rivals: Vec<_> = alike.map(local).collect();
        local(self).suits(SocketAddr::new(remote, ANY_PORT), &rivals)
    }
}

/// Why [`EndpointBuilder::all_interfaces`](crate::EndpointBuilder::all_interfaces) does not use an
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// The interface is down.
    Down,
    /// The interface leads to this machine only.
    Loopback,
    /// The address is good for the link only.
    LinkLocal,
    /// The interface is a tunnel over another one.
    Tunnel,
    /// The interface is a bridge, or a link, to containers or virtual machines, or the bridge of a
    /// router to the network for which it routes.
    Bridge,
    /// The interface already uses an address of the same network, or enough addresses.
    Another,
    /// Nothing new is to begin at the address: the network gives others.
    Deprecated,
    /// The system still checks whether another machine has the address.
    Tentative,
}

impl fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Tunnel => "tunnel",
            Self::Bridge => "bridge",
            Self::Another => "another address of the interface is used",
            Self::Deprecated => "deprecated",
            Self::Tentative => "tentative",
        })
    }
}

/// The addresses from which a client can start paths, of interfaces that are up, lead beyond this
/// machine, and are no tunnels: one for each network of an interface, at most eight for each
/// interface and IP version. Each path uses the address for its destination
/// ([`InterfaceAddress::suits`]); a silent address gives way to the next address of the interface.
///
/// # Errors
///
/// If the system does not list its interfaces.
pub fn usable_addresses() -> io::Result<Vec<InterfaceAddress>> {
    usable(&Selection::AllBut(Vec::new()))
}

/// All addresses of this machine, with the reason why some are not among [`usable_addresses`].
///
/// # Errors
///
/// If the system does not list its interfaces.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    Ok(judge(if_addrs::get_if_addrs()?, &OfSystem::now()))
}

pub(crate) fn usable(selection: &Selection) -> io::Result<Vec<InterfaceAddress>> {
    Ok(choose(
        if_addrs::get_if_addrs()?,
        selection,
        &OfSystem::now(),
    ))
}

/// What the system tells of an interface.
#[derive(Debug, Clone, Default)]
struct Facts {
    /// A program reads and writes what travels over it.
    is_tun: bool,
    is_bridge: bool,
    /// A bridge with a network card in it, which leads to a network of its own.
    has_card: bool,
    /// The kind of device, such as `wireguard`.
    kind: Option<String>,
}

/// Facts about an interface in this directory of Linux; other systems have none.
fn facts(directory: &Path) -> Facts {
    let ports = std::fs::read_dir(directory.join("brif"));
    let has_card = ports.is_ok_and(|mut ports| {
        ports.any(|port| port.is_ok_and(|port| port.path().join("../device").exists()))
    });
    let told = std::fs::read_to_string(directory.join("uevent")).unwrap_or_default();
    let kind = told.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    Facts {
        is_tun: directory.join("tun_flags").exists(),
        is_bridge: directory.join("bridge").is_dir(),
        has_card,
        kind: kind.map(str::to_owned),
    }
}

/// Whether an interface is a tunnel or a bridge.
fn kind_of(name: &str, facts: &Facts) -> Option<LeftOutReason> {
    let starts = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    if facts.is_bridge {
        return (!facts.has_card).then_some(LeftOutReason::Bridge);
    }
    match facts.kind.as_deref() {
        Some("wireguard" | "vxlan" | "geneve" | "gre") => return Some(LeftOutReason::Tunnel),
        // Network cards and modems have types of their own, whatever their names.
        Some("wlan" | "wwan") => return None,
        _ => {}
    }
    if starts(&BRIDGES) {
        Some(LeftOutReason::Bridge)
    } else if facts.is_tun || starts(&TUNNELS) {
        Some(LeftOutReason::Tunnel)
    } else {
        None
    }
}

/// What is known of interfaces and addresses besides what `if_addrs` tells.
trait Known {
    /// Whether an interface is a tunnel or a bridge.
    fn virtual_kind(&self, name: &str) -> Option<LeftOutReason>;
    /// What the system tells of addresses.
    fn flags(&self) -> &AddressFlags;
    /// Temporary addresses of an interface come first.
    fn prefers_temporary(&self, name: &str) -> bool;
}

/// The facts that the system reports.
struct OfSystem(AddressFlags);

impl OfSystem {
    fn now() -> Self {
        Self(AddressFlags::of_system())
    }
}

impl Known for OfSystem {
    fn virtual_kind(&self, name: &str) -> Option<LeftOutReason> {
        let facts = facts(&Path::new("/sys/class/net").join(name));
        let is_own_network = || facts.is_bridge && own_network::is_behind(name);
        kind_of(name, &facts).or_else(|| is_own_network().then_some(LeftOutReason::Bridge))
    }

    fn flags(&self) -> &AddressFlags {
        &self.0
    }

    fn prefers_temporary(&self, name: &str) -> bool {
        let ask = || {
            let chosen = system_source(name, SocketAddr::new(GLOBAL.into(), ANY_PORT));
            chosen.is_some_and(|chosen| self.0.is_temporary(name, chosen))
        };
        prefers_temporary(name).unwrap_or_else(ask)
    }
}

/// An address, and its position among the addresses of an interface.
struct Candidate {
    address: InterfaceAddress,
    network: Network,
    is_deprecated: bool,
    /// The user prefers addresses of the other kind: privacy addresses, or permanent addresses.
    is_unwanted: bool,
}

impl Candidate {
    fn new(interface: if_addrs::Interface, known: &dyn Known) -> Self {
        let (flags, name, ip) = (known.flags(), &interface.name, interface.ip());
        let prefers_temporary = || known.prefers_temporary(name);
        Self {
            network: network(&interface),
            is_deprecated: flags.is_deprecated(name, ip),
            is_unwanted: ip.is_ipv6() && flags.is_temporary(name, ip) != prefers_temporary(),
            address: InterfaceAddress {
                left_out: unusable(&interface, flags),
                ip,
                name: interface.name,
            },
        }
    }

    /// True for a usable address of the same interface and IP version.
    fn is_rival(&self, other: &Self) -> bool {
        let (one, other) = (&self.address, &other.address);
        let is_alike = one.name == other.name && one.ip.is_ipv4() == other.ip.is_ipv4();
        is_alike && other.left_out.is_none()
    }
}

/// Decides for each address whether it is used by default.
fn judge(interfaces: Vec<if_addrs::Interface>, known: &dyn Known) -> Vec<InterfaceAddress> {
    let interfaces = interfaces.into_iter();
    let all: Vec<_> = interfaces.map(|one| Candidate::new(one, known)).collect();
    let is_worse = |(at, one): (usize, &Candidate)| {
        let mut alike = all.iter().enumerate();
        let place = |at: usize, it: &Candidate| (it.is_deprecated, it.is_unwanted, at);
        alike.any(|(before, other)| {
            let is_alike = one.is_rival(other) && other.network == one.network;
            is_alike && place(before, other) < place(at, one)
        })
    };
    let why = |(at, one): (usize, &Candidate)| {
        let mut rivals = all.iter().filter(|other| one.is_rival(other));
        if one.address.left_out.is_some() {
            one.address.left_out
        } else if one.is_deprecated && rivals.any(|rival| !rival.is_deprecated) {
            Some(LeftOutReason::Deprecated)
        } else {
            is_worse((at, one)).then_some(LeftOutReason::Another)
        }
    };
    let left_out: Vec<_> = all.iter().enumerate().map(why).collect();
    let decide = |(at, one): (usize, &Candidate)| {
        let before = all.iter().zip(&left_out).take(at);
        let used = before.filter(|(other, why)| why.is_none() && one.is_rival(other));
        let is_one_of_many = used.count() >= MOST_ADDRESSES;
        let another = is_one_of_many.then_some(LeftOutReason::Another);
        let virtual_kind = || known.virtual_kind(&one.address.name);
        left_out
            .get(at)
            .copied()
            .flatten()
            .or(another)
            .or_else(virtual_kind)
    };
    let decided: Vec<_> = all.iter().enumerate().map(decide).collect();
    let judged = all.into_iter().zip(decided);
    let judged = judged.map(|(one, left_out)| InterfaceAddress {
        left_out,
        ..one.address
    });
    judged.collect()
}

/// Why no path can start from an address, whatever other addresses exist.
fn unusable(interface: &if_addrs::Interface, flags: &AddressFlags) -> Option<LeftOutReason> {
    let is_down = match interface.oper_status {
        IfOperStatus::Down | IfOperStatus::NotPresent | IfOperStatus::LowerLayerDown => true,
        IfOperStatus::Unknown => SAYS_UNKNOWN_OF_DOWN,
        _ => false,
    };
    if interface.is_loopback() {
        Some(LeftOutReason::Loopback)
    } else if is_down {
        Some(LeftOutReason::Down)
    } else if interface.is_link_local() {
        Some(LeftOutReason::LinkLocal)
    } else {
        let is_tentative = flags.is_tentative(&interface.name, interface.ip());
        is_tentative.then_some(LeftOutReason::Tentative)
    }
}

/// The network that an address belongs to.
type Network = (Option<u8>, u128);

/// The kind of an interface's address, and the prefix of the network in the address. For IPv6, the
/// network is at most half of the address.
fn network(interface: &if_addrs::Interface) -> Network {
    match &interface.addr {
        IfAddr::V4(v4) => (None, u128::from((v4.ip & v4.netmask).to_bits())),
        IfAddr::V6(v6) => {
            let behind = 128 - u32::from(v6.prefixlen).min(SUBNET);
            let start = v6.ip.to_bits().checked_shr(behind).unwrap_or(0);
            (Some(label(v6.ip)), start)
        }
    }
}

fn choose(
    interfaces: Vec<if_addrs::Interface>,
    selection: &Selection,
    known: &dyn Known,
) -> Vec<InterfaceAddress> {
    let mut chosen = judge(interfaces, known);
    chosen.retain(|address| match selection {
        Selection::AllBut(names) => address.left_out.is_none() && !fits(names, &address.name),
        // A user who names an interface knows its kind.
        Selection::Named(names) => {
            let is_usable = match address.left_out {
                None
                | Some(LeftOutReason::Loopback | LeftOutReason::Tunnel | LeftOutReason::Bridge) => {
                    true
                }
                Some(
                    LeftOutReason::Down
                    | LeftOutReason::LinkLocal
                    | LeftOutReason::Another
                    | LeftOutReason::Deprecated
                    | LeftOutReason::Tentative,
                ) => false,
            };
            fits(names, &address.name) && is_usable
        }
    });
    chosen
}

/// True if one of the patterns means an interface.
fn fits(patterns: &[String], name: &str) -> bool {
    let mut patterns = patterns.iter();
    patterns.any(|pattern| fits_interface(pattern, name))
}

/// Binds and closes sockets as addresses appear and disappear, until the endpoint is gone.
pub(crate) async fn watch(
    endpoint: Arc<SharedEndpoint>,
    selection: Option<Selection>,
    awaited: Vec<Awaited>,
) {
    let follow = async {
        let mut changes = InterfaceChanges::new(endpoint.runtime.clone());
        loop {
            let selection = selection.as_ref();
            let mut all_done = selection.is_none_or(|selection| adapt(&endpoint, selection));
            all_done &= awaited_addresses::bind(&endpoint, &awaited);
            changes.next(all_done).await;
        }
    };
    tokio::select! {
        biased;
        () = endpoint.over.notified() => {}
        () = follow => {}
    }
    // The endpoint may have bound further sockets during the close of the first sockets.
    endpoint.sockets.remove(|_| true);
}

/// Binds sockets to the current addresses, and closes those whose address is gone. False if a
/// socket could not be bound.
fn adapt(endpoint: &Arc<SharedEndpoint>, selection: &Selection) -> bool {
    let now = match usable(selection) {
        Ok(now) => now,
        Err(error) => {
            tracing::debug!(%error, "cannot list interfaces");
            return false;
        }
    };
    let is_there = |name: &str, ip: IpAddr| now.iter().any(|a| a.name == name && a.ip == ip);
    let removed = endpoint.sockets.remove(|socket| {
        let name = socket.interface();
        name.is_some_and(|name| !is_there(name, socket.local().ip()))
    });
    let mut changed = !removed.is_empty();
    let mut all_done = true;
    let bound = endpoint.sockets.all();
    for address in &now {
        let known = bound.iter().any(|socket| {
            socket.interface() == Some(&address.name) && socket.local().ip() == address.ip
        });
        if known {
            continue;
        }
        let local = SocketAddr::new(address.ip, 0);
        match start::bind(endpoint, local, Some(&address.name)) {
            Ok(_) => changed = true,
            // A new IPv6 address may still be tentative.
            Err(error) => {
                tracing::debug!(%error, ?address, "cannot bind");
                all_done = false;
            }
        }
    }
    if changed {
        tracing::debug!(addresses = ?now, "local addresses changed");
        local_addresses::follow(endpoint);
    }
    local_addresses::retry(endpoint);
    all_done
}

#[cfg(test)]
mod tests {
    use super::*;
    use if_addrs::{IfAddr, Ifv4Addr, Ifv6Addr, Interface};

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
        let down = if SAYS_UNKNOWN_OF_DOWN {
            IfOperStatus::Unknown
        } else {
            IfOperStatus::Down
        };
        let all = vec![
            interface("lo", "127.0.0.1", up()),
            interface("wlan0", "192.168.1.5", up()),
            interface("wlan0", "192.168.1.6", up()),
            interface("wlan0", "fe80::1", up()),
            interface("wlan0", "2001:db8::5", up()),
            interface("wwan0", "10.0.0.5", up()),
            interface("eth0", "10.1.0.5", down),
            interface("docker0", "172.17.0.1", up()),
        ];
        let names = |selection: &Selection| -> Vec<String> {
            let chosen = choose(all.clone(), selection, &Machine::default());
            chosen
                .iter()
                .map(|a| format!("{} {}", a.name, a.ip))
                .collect()
        };
        assert_eq!(
            names(&Selection::AllBut(Vec::new())),
            ["wlan0 192.168.1.5", "wlan0 2001:db8::5", "wwan0 10.0.0.5"]
        );
        let but = Selection::AllBut(vec!["wlan0".to_owned()]);
        assert_eq!(names(&but), ["wwan0 10.0.0.5"]);
        let named = Selection::Named(vec!["docker0".to_owned(), "eth0".to_owned()]);
        assert_eq!(names(&named), ["docker0 172.17.0.1"]);

        let judged = judge(all.clone(), &Machine::default());
        let left_out: Vec<_> = judged.iter().map(|address| address.left_out).collect();
        assert_eq!(
            left_out,
            [
                Some(LeftOutReason::Loopback),
                None,
                Some(LeftOutReason::Another),
                Some(LeftOutReason::LinkLocal),
                None,
                None,
                Some(LeftOutReason::Down),
                Some(LeftOutReason::Bridge)
            ]
        );
    }

    /// A machine whose interfaces are of the kinds that their names say.
    #[derive(Default)]
    struct Machine {
        flags: AddressFlags,
        prefers_temporary: bool,
    }

    impl Known for Machine {
        fn virtual_kind(&self, name: &str) -> Option<LeftOutReason> {
            kind_of(name, &Facts::default())
        }

        fn flags(&self) -> &AddressFlags {
            &self.flags
        }

        fn prefers_temporary(&self, _: &str) -> bool {
            self.prefers_temporary
        }
    }

    /// The addresses of an interface with these IPv6 addresses and flags that are used, and why
    /// others are not.
    fn judged(all: &[(&str, u8)], prefers_temporary: bool) -> Vec<Option<LeftOutReason>> {
        let interfaces = all.iter();
        let interfaces = interfaces.map(|(ip, _)| interface("eth0", ip, IfOperStatus::Up));
        let flags = all.iter().map(|(ip, flags)| ("eth0", *ip, *flags));
        let machine = Machine {
            flags: flags.collect(),
            prefers_temporary,
        };
        let judged = judge(interfaces.collect(), &machine);
        judged.into_iter().map(|address| address.left_out).collect()
    }

    /// RFC 6724 section 5: whatever order the system lists them in.
    #[test]
    fn best_address_of_each_kind_is_chosen() {
        const DEPRECATED: u8 = 0x20;
        const TEMPORARY: u8 = 0x01;
        const TENTATIVE: u8 = 0x40;
        let (unique, global) = (("fd77::1", 0), ("2001:db8::1", 0));
        let (another, gone) = (
            Some(LeftOutReason::Another),
            Some(LeftOutReason::Deprecated),
        );
        assert_eq!(judged(&[unique, global], false), [None, None]);
        assert_eq!(judged(&[global, unique], false), [None, None]);
        let old = ("2001:db8:bad::1", DEPRECATED);
        assert_eq!(judged(&[old, global, unique], false), [gone, None, None]);
        assert_eq!(judged(&[old, unique], false), [gone, None]);
        let older = ("2001:db8:bad::2", DEPRECATED);
        assert_eq!(judged(&[old, older], false), [None, another], "no other");
        let new = ("2001:db8::2", TENTATIVE);
        let tentative = Some(LeftOutReason::Tentative);
        assert_eq!(judged(&[new, global], false), [tentative, None]);
        let secret = ("2001:db8::3", TEMPORARY);
        let spent = ("2001:db8::4", TEMPORARY | DEPRECATED);
        let all = [spent, global, secret];
        assert_eq!(judged(&all, true), [gone, another, None]);
        assert_eq!(judged(&all, false), [gone, None, another]);
    }

    #[test]
    fn a_path_starts_from_what_suits_its_destination() {
        let interfaces = [
            ("eth0", "fd77::1"),
            ("eth0", "2001:db8::1"),
            ("eth0", "10.0.0.1"),
        ];
        let interfaces = interfaces.into_iter().chain([("eth1", "fd78::1")]);
        let interfaces = interfaces.map(|(name, ip)| interface(name, ip, IfOperStatus::Up));
        let all = judge(interfaces.collect(), &Machine::default());
        let suitable = |remote: &str| -> Vec<String> {
            let remote = remote.parse().unwrap();
            let silent: AskSource = |_, _| None;
            let suits = |address: &&InterfaceAddress| address.suits_as(silent, remote, &all);
            let suitable = all.iter().filter(suits);
            suitable.map(|address| address.ip.to_string()).collect()
        };
        // One network may translate addresses where another one has global addresses.
        assert_eq!(suitable("2600::1"), ["2001:db8::1", "fd78::1"]);
        assert_eq!(suitable("fd00::1"), ["fd77::1", "fd78::1"]);
        assert_eq!(suitable("192.0.2.1"), ["10.0.0.1"]);
        // The system knows better, for example of a route by way of the other network.
        let unique: AskSource = |_, _| Some("fd77::1".parse().expect("it is one"));
        let remote = "2600::1".parse().expect("it is one");
        let suits = all
            .iter()
            .map(|address| address.suits_as(unique, remote, &all));
        assert_eq!(Vec::from_iter(suits), [true, false, false, true]);
    }

    /// A server may be reached from one network of the interface only.
    #[test]
    fn an_address_of_each_network_of_an_interface_is_used() {
        let another = Some(LeftOutReason::Another);
        let flagless = |all: &[&'static str]| {
            let all: Vec<_> = all.iter().map(|ip| (*ip, 0)).collect();
            judged(&all, false)
        };
        let two = ["2001:db8:bad:0::1", "2001:db8:77:1::1", "2001:db8:77:1::2"];
        assert_eq!(flagless(&two), [None, None, another]);
        let two = ["10.9.9.9", "192.168.1.5", "10.9.9.10"];
        assert_eq!(flagless(&two), [None, None, another]);
        let many: [String; MOST_ADDRESSES + 2] =
            std::array::from_fn(|network| format!("10.0.{network}.1"));
        let many = many
            .each_ref()
            .map(|ip| interface("eth0", ip, IfOperStatus::Up));
        let left_out = judge(many.into(), &Machine::default());
        let left_out = left_out.iter().map(|address| address.left_out);
        let mut expected = [None; MOST_ADDRESSES + 2];
        expected[MOST_ADDRESSES..].fill(another);
        assert_eq!(Vec::from_iter(left_out), expected);
    }

    #[test]
    fn tunnels_and_bridges_are_told_from_networks() {
        let nothing = Facts::default();
        for (name, expected) in [
            ("eth0", None),
            ("wlp3s0", None),
            ("wwan0", None),
            ("ppp0", None),
            ("br0", None),
            ("wg0", Some(LeftOutReason::Tunnel)),
            ("utun3", Some(LeftOutReason::Tunnel)),
            ("tailscale0", Some(LeftOutReason::Tunnel)),
            ("veth12", Some(LeftOutReason::Bridge)),
            ("cni0", Some(LeftOutReason::Bridge)),
        ] {
            assert_eq!(kind_of(name, &nothing), expected, "{name}");
        }
        // What the system says counts for more.
        let kind = |kind: &str| Facts {
            kind: Some(kind.to_owned()),
            ..Facts::default()
        };
        let (tunnel, bridge) = (Some(LeftOutReason::Tunnel), Some(LeftOutReason::Bridge));
        assert_eq!(kind_of("office", &kind("wireguard")), tunnel);
        assert_eq!(kind_of("wgan0", &kind("wwan")), None);
        let is_tun = Facts {
            is_tun: true,
            ..Facts::default()
        };
        assert_eq!(kind_of("office", &is_tun), tunnel);
        let is_bridge = Facts {
            is_bridge: true,
            ..Facts::default()
        };
        assert_eq!(kind_of("br0", &is_bridge), bridge);
        let uplink = Facts {
            has_card: true,
            ..is_bridge
        };
        assert_eq!(kind_of("br-lan", &uplink), None);
    }

    /// As `/sys/class/net` has them.
    #[test]
    fn facts_are_read_from_files() -> std::io::Result<()> {
        let nothing = facts(Path::new("/nowhere/at/all"));
        assert!(!nothing.is_tun && !nothing.is_bridge && !nothing.has_card);
        assert_eq!(nothing.kind, None);
        let directory = std::env::temp_dir().join(format!("mpquic-facts-{}", std::process::id()));
        for name in ["bridge", "brif/port1", "device"] {
            std::fs::create_dir_all(directory.join(name))?;
        }
        let found = facts(&directory);
        assert!(found.is_bridge && !found.is_tun && !found.has_card && found.kind.is_none());
        std::fs::create_dir_all(directory.join("brif/device"))?;
        std::fs::write(directory.join("tun_flags"), "0x1002")?;
        std::fs::write(
            directory.join("uevent"),
            "INTERFACE=a\nDEVTYPE=wlan\nIFINDEX=3\n",
        )?;
        let found = facts(&directory);
        assert!(found.is_bridge && found.is_tun && found.has_card);
        assert_eq!(found.kind.as_deref(), Some("wlan"));
        std::fs::remove_dir_all(directory)
    }
}

/// What is bound here needs the loopback interface of Linux.
#[cfg(all(test, target_os = "linux"))]
mod tests_on_linux;
