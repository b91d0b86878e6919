//! Network interfaces: the addresses from which paths can start, and how they change.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use if_addrs::IfOperStatus;
use mpquic_paths::{fit, label};

use crate::address_flags::{AddressFlags, prefers_temporary};
use crate::connection_state::SharedEndpoint;
use crate::interface_changes::InterfaceChanges;
use crate::{local_addresses, start};

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

/// Which interfaces to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// All interfaces that are up and lead beyond this machine, except tunnels, bridges and these
    /// names.
    AllBut(Vec<String>),
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
    /// Why no path starts from it, unless the interface or the address is named.
    pub left_out: Option<LeftOutReason>,
}

impl InterfaceAddress {
    /// True if a path from this interface to `remote` starts at this address: it has the same IP
    /// version, and no other address of the interface among `all` suits `remote` better (RFC 6724).
    pub fn suits(&self, remote: IpAddr, all: &[InterfaceAddress]) -> bool {
        let reaches = |ip: IpAddr| ip.is_ipv4() == remote.is_ipv4();
        let is_rival = |other: &&InterfaceAddress| {
            other.name == self.name && other.left_out == self.left_out && reaches(other.ip)
        };
        let best = all
            .iter()
            .filter(is_rival)
            .map(|rival| fit(rival.ip, remote));
        reaches(self.ip) && best.max().is_none_or(|best| best <= fit(self.ip, remote))
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
    /// It is a bridge, or a link, to containers or virtual machines.
    Bridge,
    /// Another address of the interface is used.
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
/// machine, and are no tunnels: one for each interface and IP version. In IPv6 one of each kind,
/// such as global and unique local; each path uses the address that suits its destination
/// ([`InterfaceAddress::suits`]).
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
        kind_of(name, &facts(&Path::new("/sys/class/net").join(name)))
    }

    fn flags(&self) -> &AddressFlags {
        &self.0
    }

    fn prefers_temporary(&self, name: &str) -> bool {
        prefers_temporary(name)
    }
}

/// Decides for each address whether it is used by default.
fn judge(interfaces: Vec<if_addrs::Interface>, known: &dyn Known) -> Vec<InterfaceAddress> {
    let flags = known.flags();
    let all: Vec<_> = interfaces
        .into_iter()
        .map(|interface| InterfaceAddress {
            left_out: unusable(&interface, flags),
            ip: interface.ip(),
            name: interface.name,
        })
        .collect();
    let is_deprecated = |one: &InterfaceAddress| flags.is_deprecated(&one.name, one.ip);
    let place = |one: &InterfaceAddress| {
        let is_temporary = flags.is_temporary(&one.name, one.ip);
        let is_unwanted = is_temporary != known.prefers_temporary(&one.name);
        (is_deprecated(one), one.ip.is_ipv6() && is_unwanted)
    };
    let why = |one: &InterfaceAddress| {
        let rivals = || {
            let usable = all.iter().filter(|other| other.left_out.is_none());
            usable.filter(|other| other.name == one.name && other.ip.is_ipv4() == one.ip.is_ipv4())
        };
        if one.left_out.is_some() {
            return one.left_out;
        }
        if is_deprecated(one) && !rivals().all(is_deprecated) {
            return Some(LeftOutReason::Deprecated);
        }
        let mut alike = rivals().filter(|other| kind(other.ip) == kind(one.ip));
        let first = alike.by_ref().min_by_key(|other| place(other));
        match first.is_some_and(|first| first.ip != one.ip) {
            true => Some(LeftOutReason::Another),
            false => known.virtual_kind(&one.name),
        }
    };
    let left_out: Vec<_> = all.iter().map(why).collect();
    let judged = all.into_iter().zip(left_out);
    judged
        .map(|(address, left_out)| InterfaceAddress {
            left_out,
            ..address
        })
        .collect()
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

/// The kind of an address. One address of each kind is used.
fn kind(ip: IpAddr) -> Option<u8> {
    match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => Some(label(ip)),
    }
}

fn choose(
    interfaces: Vec<if_addrs::Interface>,
    selection: &Selection,
    known: &dyn Known,
) -> Vec<InterfaceAddress> {
    let mut chosen = judge(interfaces, known);
    chosen.retain(|address| match selection {
        Selection::AllBut(names) => address.left_out.is_none() && !names.contains(&address.name),
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
            names.contains(&address.name) && is_usable
        }
    });
    chosen
}

/// Binds and closes sockets as addresses appear and disappear, until the endpoint is gone.
pub(crate) async fn watch(endpoint: Arc<SharedEndpoint>, selection: Selection) {
    let follow = async {
        let mut changes = InterfaceChanges::new(endpoint.runtime.clone());
        loop {
            let all_done = adapt(&endpoint, &selection);
            changes.next(all_done).await;
        }
    };
    tokio::select! {
        biased;
        () = endpoint.over.notified() => {}
        () = follow => {}
    }
    // Sockets may have been bound while the others were closed.
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
        let down = match SAYS_UNKNOWN_OF_DOWN {
            true => IfOperStatus::Unknown,
            false => IfOperStatus::Down,
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

    /// The addresses of an interface with these IPv6 addresses and flags that are used, and why others are
    /// not.
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
            let suitable = all.iter().filter(|address| address.suits(remote, &all));
            suitable.map(|address| address.ip.to_string()).collect()
        };
        // One network may translate addresses where another one has global addresses.
        assert_eq!(suitable("2600::1"), ["2001:db8::1", "fd78::1"]);
        assert_eq!(suitable("fd00::1"), ["fd77::1", "fd78::1"]);
        assert_eq!(suitable("192.0.2.1"), ["10.0.0.1"]);
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
mod tests_on_linux {
    use super::*;
    use crate::socket::Socket;
    use crate::testing::{DELAY, Error, Host, Network, Pair, TestResult, client, server, transfer};
    use std::time::Duration;
    use tokio::time::sleep;

    /// An endpoint without sockets.
    fn host() -> Result<Host, Error> {
        let transport = crate::default_transport();
        Host::new(&Network::default(), Some(server(transport)?), None, 1)
    }

    #[tokio::test]
    async fn sockets_follow_the_addresses_of_an_interface() -> TestResult {
        let state = host()?.state;
        let selection = Selection::Named(vec!["lo".to_owned()]);
        assert!(adapt(&state, &selection));
        let bound = state.sockets.addresses();
        let ips: Vec<_> = bound.iter().map(SocketAddr::ip).collect();
        assert!(ips.contains(&IpAddr::from([127, 0, 0, 1])), "{ips:?}");
        assert!(adapt(&state, &selection));
        assert_eq!(state.sockets.addresses(), bound, "nothing is new");
        // An address that the interface does not list, and a socket of no interface.
        let runtime = &*state.runtime;
        let gone = Socket::bind(runtime, "127.0.0.2:0".parse()?, Some("lo"), 1 << 16)?;
        let apart = Socket::bind(runtime, "127.0.0.2:0".parse()?, None, 1 << 16)?;
        let kept = apart.local();
        for socket in [gone, apart] {
            state.sockets.insert(Arc::new(socket));
        }
        assert!(adapt(&state, &selection));
        let expected: Vec<_> = bound.iter().copied().chain([kept]).collect();
        assert_eq!(state.sockets.addresses(), expected);
        // As if the address had disappeared for a moment.
        state.sockets.remove(|socket| socket.local() == bound[0]);
        assert!(adapt(&state, &selection));
        let again = state.sockets.addresses();
        assert_eq!(again.len(), expected.len());
        assert!(again.iter().any(|address| address.ip() == bound[0].ip()));
        Ok(())
    }

    /// The path moves from an address that is gone to one that appears at the same time.
    #[tokio::test]
    async fn connections_follow_the_addresses_of_an_interface() -> TestResult {
        let config = server(crate::default_transport())?;
        let builder = crate::Endpoint::builder().server(config);
        let listening = builder.bind("127.0.0.1:0".parse()?).build()?;
        let config = client(crate::default_transport())?;
        let host = Host::new(&Network::default(), None, Some(config), 2)?;
        let state = &host.state;
        let gone = Socket::bind(&*state.runtime, "127.0.0.2:0".parse()?, Some("lo"), 1 << 16)?;
        let before = gone.local();
        start::read(state, Arc::new(gone));
        let connecting = host
            .endpoint
            .connect(listening.local_addr()?, "localhost")?;
        let accept = async { Ok(listening.accept().await.ok_or("closed")?.await?) };
        let connect = async { Ok::<_, Error>(connecting.await?) };
        let (a, b) = tokio::try_join!(connect, accept)?;
        a.handshake_confirmed().await?;
        assert_eq!(a.path_stats()[0].four_tuple.local, before);

        assert!(adapt(state, &Selection::Named(vec!["lo".to_owned()])));
        tokio::time::timeout(Duration::from_secs(10), transfer(&a, &b, 1 << 20)).await??;
        let paths = a.path_stats();
        let locals: Vec<_> = paths
            .iter()
            .map(|path| path.four_tuple.local.ip())
            .collect();
        assert_eq!(locals, [IpAddr::from([127, 0, 0, 1])]);
        Ok(())
    }

    /// Any change may bring a new route.
    #[tokio::test(start_paused = true)]
    async fn a_change_makes_connections_try_again() -> TestResult {
        let pair = Pair::with_paths(1)?;
        let (a, b) = pair.connect().await?;
        transfer(&a, &b, 1 << 20).await?;
        sleep(Duration::from_secs(8)).await;
        let port = &pair.at_client[0];
        port.fail_to_send(Some(io::ErrorKind::NetworkUnreachable));
        let gone = Duration::from_millis(300);
        let end = async {
            sleep(gone).await;
            port.fail_to_send(None);
            adapt(&pair.client.state, &Selection::Named(Vec::new()));
            Ok(())
        };
        let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 10_000), end)?;
        // The path is probed, answers, and carries the data.
        assert_eq!(elapsed, gone + 3 * DELAY);
        Ok(())
    }

    #[tokio::test]
    async fn interface_task_binds_at_once_and_closes_all_at_the_end() -> TestResult {
        let host = host()?;
        let state = host.state.clone();
        let selection = Selection::Named(vec!["lo".to_owned()]);
        let watching = tokio::spawn(watch(state.clone(), selection));
        tokio::task::yield_now().await;
        assert!(!state.sockets.addresses().is_empty());
        // The last handle is gone.
        drop(host);
        watching.await?;
        assert_eq!(state.sockets.addresses(), []);
        Ok(())
    }
}
