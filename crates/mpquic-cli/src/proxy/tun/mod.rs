//! `mpquic proxy client --tun`: the changes on the machine, and their end.

mod changes;
mod command;
mod guard;
mod kill_switch;
mod name;
mod name_servers;
mod place;
mod resolver;
mod routes;
mod state;
mod strays;
mod watch;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use clap::Args;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use mpquic_proxy::{Carrier, Client, Tun};

use crate::process::failure::Failure;
use crate::process::screen;
use command::{output, run};
use guard::{Guarded, Table};
use kill_switch::{KillSwitch, Scope};
use name::parse_name;
use name_servers::{NameServerWatch, NameServers};
use resolver::{Resolver, parse_file};
use state::{State, StateFile};
use watch::Watch;

pub(crate) use watch::Shown;

/// The default name of the device.
const DEFAULT_NAME: &str = "mpquic0";
/// The MTU of Ethernet. A smaller device would have neighbours learn a smaller MTU, and programs
/// whose packets have a fixed size would fail: WireGuard in user space sends 1480 bytes with "don't
/// fragment" set.
const DEFAULT_MTU: u32 = 1500;
/// Number of the client's routing tables, plus the number of the device.
const FIRST_TABLE: u32 = 443_000;
/// Networks for the addresses of devices, four addresses for each device. RFC 2544 reserves the
/// first network for tests of devices; the second has a random number, as RFC 4193 requires.
const POOL_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const POOL_V6: Ipv6Addr = Ipv6Addr::new(0xfd6d, 0x7071, 0x7569, 0x63a4, 0, 0, 0, 0);
/// Most devices of mpquic on one machine.
const MOST_DEVICES: u32 = 256;

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Args)]
pub(crate) struct TunArgs {
    /// Make a network device (default name: mpquic0), and send the traffic of all programs through
    /// it, except to private local networks; needs root or CAP_NET_ADMIN
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_NAME, value_parser = parse_name)]
    pub(crate) tun: Option<String>,
    /// Send only traffic to this network through the device, such as 203.0.113.0/24; repeat for
    /// several. `--route none` makes the device, gives it addresses and brings it up, and changes
    /// no route, rule or name server: you set the routes
    #[arg(long, value_name = "NETWORK|none", requires = "tun", value_parser = parse_routed)]
    pub(crate) route: Vec<Routed>,
    /// Use the name server at this address, through the device; repeat for further ones
    #[arg(long, value_name = "ADDR", requires = "tun")]
    pub(crate) dns: Vec<IpAddr>,
    /// Set the name servers of --dns in this file instead of /etc/resolv.conf: on a router, the
    /// file from which the resolver of the LAN reads its own servers, such as
    /// /tmp/resolv.conf.d/resolv.conf.auto of OpenWrt's dnsmasq. Only root may be able to replace
    /// the file
    #[arg(long, value_name = "PATH", requires = "dns", value_parser = parse_file)]
    pub(crate) dns_file: Option<PathBuf>,
    /// Leave traffic to this network to the machine's other routes; repeat for several. Otherwise
    /// only routes to private networks count beside the device's
    #[arg(long, value_name = "NETWORK", requires = "tun", value_parser = parse_network)]
    pub(crate) keep_route: Vec<IpNet>,
    /// Stop all packets that would leave this machine past the tunnel, until `mpquic proxy down`,
    /// also after the client's end: other interfaces, IPv6 and name lookups included.
    /// `--kill-switch=lan` lets packets to private local networks pass. Needs the program nft
    #[arg(long, value_name = "SCOPE", requires = "tun", conflicts_with = "route", num_args = 0..=1, require_equals = true, default_missing_value = "strict")]
    pub(crate) kill_switch: Option<Scope>,
    /// MTU of the device, in bytes. A UDP payload larger than a packet of the paths travels on a
    /// stream, in order
    #[arg(long, value_name = "BYTES", requires = "tun", default_value_t = DEFAULT_MTU, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub(crate) mtu: u32,
}

/// A value of `--route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Routed {
    /// Packets to this network enter the device.
    Network(IpNet),
    /// The client sets no route.
    Nothing,
}

fn parse_routed(text: &str) -> Result<Routed, String> {
    match text {
        "none" => Ok(Routed::Nothing),
        _ => parse_network(text).map(Routed::Network).map_err(|told| {
            // A correction of a network needs no further advice.
            if told.starts_with("expected") {
                format!("{told}, or none")
            } else {
                told
            }
        }),
    }
}

impl TunArgs {
    /// Refuses options that contradict `--route none`.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !self.route.contains(&Routed::Nothing) {
            return Ok(());
        }
        let told = if self.route.len() > 1 {
            "--route none: it allows no second --route; leave `none` or the networks out".to_owned()
        } else if let Some(server) = self.dns.first() {
            format!(
                "--dns {server}: --route none changes no name servers; leave one of the two options out"
            )
        } else if let Some(network) = self.keep_route.first() {
            format!(
                "--keep-route {network}: --route none has no routes beside which one is kept; \
                 leave one of the two options out"
            )
        } else {
            return Ok(());
        };
        Err(Failure::usage(told))
    }

    /// Refuses a resolver's file that another user can replace. Returns the file of --dns-file
    /// without links.
    pub(crate) fn check_resolver(&self) -> Result<Option<PathBuf>, Failure> {
        resolver::check(&self.dns, self.dns_file.as_deref())
    }

    /// Networks routed through the device. The addresses of --dns are always among them.
    fn networks(&self, has_v6: bool) -> Vec<IpNet> {
        let named = self.route.iter().filter_map(|routed| match routed {
            Routed::Network(network) => Some(*network),
            Routed::Nothing => None,
        });
        let mut networks = if self.route.is_empty() {
            routes::everything()
        } else {
            named.collect()
        };
        for server in &self.dns {
            if !networks.iter().any(|network| network.contains(server)) {
                networks.push(IpNet::from(*server));
            }
        }
        networks.retain(|network| has_v6 || matches!(network, IpNet::V4(_)));
        networks
    }

    /// The kill switch of the options, for this proxy.
    fn plan(&self, proxy: &Proxy, device: &str) -> Result<Option<KillSwitch>, Failure> {
        let Some(scope) = self.kill_switch else {
            return Ok(None);
        };
        let user = std::fs::metadata("/proc/self")
            .map_err(Failure::other)?
            .uid();
        Ok(Some(KillSwitch {
            proxy: proxy.name.clone(),
            addresses: proxy.addresses.clone(),
            user,
            kept: self.keep_route.clone(),
            lan: match scope {
                Scope::Strict => None,
                Scope::Lan => Some(strays::local_networks(&strays::list()?, device)),
            },
        }))
    }
}

/// A proxy's name, as in its URL, and its addresses.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) name: String,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// The addresses of a proxy, if an earlier client for the same proxy has left its kill switch
/// closed: a lookup of the name would fail. Undoes the other changes of a killed client.
///
/// # Errors
///
/// If the kill switch stops this client's paths, or if the options lack --kill-switch although the
/// kill switch is closed.
pub(crate) fn addresses_left(
    name: &str,
    args: &TunArgs,
    proxy: &str,
) -> Result<Option<Vec<SocketAddr>>, Failure> {
    let directories = state::directories();
    let is_free = || Tun::open(name).is_ok();
    undo_killed_in(&directories, name, is_free, undo)?;
    guard::sweep();
    addresses_left_in(&directories, name, args, proxy, kill_switch::is_closed)
}

/// Undoes the changes of a killed client, except for its kill switch. The machine might otherwise
/// ask name servers out of reach.
fn undo_killed_in(
    directories: &[PathBuf],
    name: &str,
    is_free: impl Fn() -> bool,
    undo: impl Fn(&State) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for file in StateFile::all(directories).map_err(Failure::other)? {
        let state = file.read().ok();
        let killed = state.filter(|state| state.name == name && !state.sources.is_empty());
        let Some(killed) = killed.filter(|_| is_free()) else {
            continue;
        };
        tracing::warn!("--tun={name}: the changes of a killed client are undone");
        undo(&killed)?;
        let done = match killed.left() {
            Some(left) => file.write(&left),
            None => file.remove(),
        };
        done.map_err(Failure::other)?;
    }
    Ok(())
}

/// Like [`addresses_left`], with the states in these directories.
fn addresses_left_in(
    directories: &[PathBuf],
    name: &str,
    args: &TunArgs,
    proxy: &str,
    is_closed: impl Fn() -> Result<bool, Failure>,
) -> Result<Option<Vec<SocketAddr>>, Failure> {
    let files = StateFile::all(directories).map_err(Failure::other)?;
    let closed = files.iter().find_map(|file| {
        let state = file.read().ok()?;
        Some((state.name, state.kill_switch?))
    });
    let Some((device, left)) = closed else {
        return Ok(None);
    };
    // The user may have opened the kill switch by hand.
    if !is_closed()? {
        return Ok(None);
    }
    let opens = format!("`mpquic proxy down {device}` opens the kill switch");
    if device != name {
        return Err(Failure::other(format_args!(
            "the kill switch of {device} is closed, and stops this client's paths; {opens}"
        )));
    }
    if args.kill_switch.is_none() {
        return Err(Failure::other(format_args!(
            "an earlier client has left the kill switch closed: start with --kill-switch; or {opens}"
        )));
    }
    if left.proxy != proxy {
        tracing::warn!("the kill switch is closed, so {proxy} cannot be looked up; {opens}");
        return Ok(None);
    }
    Ok(Some(left.addresses))
}

/// Undo the changes of a `mpquic proxy client --tun` that was killed
///
/// A client that ends in order restores routes, rules and name servers. A killed client leaves
/// rules that lead to an empty table, a table of nftables for the addresses of its device, and its
/// name servers: this command removes them. It also opens the kill switch, which stays closed after
/// every client. Running clients are not affected.
#[derive(Debug, Args)]
pub(crate) struct ProxyDown {
    /// The device [default: all devices]
    #[arg(value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = (text.parse())
        .map_err(|_| "expected a network, such as 203.0.113.0/24 or 2001:db8::/32".to_owned())?;
    if network.trunc() == network {
        Ok(network)
    } else {
        Err(format!("did you mean {}?", network.trunc()))
    }
}

/// A device, and the changes made for the device. Dropping this undoes all changes.
#[derive(Debug)]
pub(crate) struct Device {
    tun: Tun,
    /// Dropped after the device.
    guarded: Guarded,
    state: State,
    file: StateFile,
    servers: Vec<IpAddr>,
    /// The file of `--dns-file`, without links.
    dns_file: Option<PathBuf>,
    name_servers: NameServers,
    /// True once the machine has changes that remain after the device.
    is_routed: bool,
    /// True while the kill switch is closed, by this client or an earlier client.
    is_closed: bool,
}

impl Device {
    /// Creates the device without other changes.
    pub(crate) fn open(name: &str, args: &TunArgs, proxy: &Proxy) -> Result<Self, Failure> {
        let dns_file = args.check_resolver()?;
        let tun = Tun::open(name).map_err(|error| cannot_open(name, &error))?;
        let kill_switch = args.plan(proxy, name)?;
        let is_closed = kill_switch.is_some() && kill_switch::is_closed()?;
        let state = State {
            name: name.to_owned(),
            process: std::process::id(),
            table: FIRST_TABLE + number(name)?,
            sources: Vec::new(),
            networks: Vec::new(),
            kept: args.keep_route.clone(),
            resolver: None,
            kill_switch,
        };
        let file = keep(&state)?;
        let mut device = Self {
            tun,
            guarded: Guarded::default(),
            state,
            file,
            servers: args.dns.clone(),
            dns_file,
            name_servers: NameServers::default(),
            is_routed: false,
            is_closed,
        };
        device.close(args, proxy)?;
        device.configure(args)?;
        Ok(device)
    }

    /// Closes the kill switch, if the options name one.
    fn close(&mut self, args: &TunArgs, proxy: &Proxy) -> Result<(), Failure> {
        if let (Some(kill_switch), Some(scope)) = (&self.state.kill_switch, args.kill_switch) {
            kill_switch.close(&self.state.name)?;
            self.is_closed = true;
            tracing::warn!("{}", kill_switch::told(&proxy.addresses, scope));
        }
        Ok(())
    }

    /// Watches the routes past the device, and the kill switch.
    pub(crate) fn watch(&self, shown: Shown) -> Watch {
        Watch::new(self.state.clone(), self.guarded.0.clone(), shown)
    }

    /// Watches the name servers.
    pub(crate) fn watch_name_servers(&self) -> NameServerWatch {
        NameServerWatch {
            servers: self.servers.clone(),
            dns_file: self.dns_file.clone(),
            current: self.name_servers.clone(),
            state: self.state.clone(),
            file: self.file.clone(),
            told: None,
        }
    }

    /// Chooses the routed networks, and brings the device up.
    fn configure(&mut self, args: &TunArgs) -> Result<(), Failure> {
        let name = &self.state.name;
        let disabled = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        let has_v6 = std::fs::read_to_string(disabled).is_ok_and(|disabled| disabled.trim() == "0");
        let sources = free_addresses(has_v6)?;
        let networks = args.networks(has_v6);
        if networks.len() < args.networks(true).len() && args.kill_switch.is_none() {
            tracing::warn!("{name} has no IPv6: IPv6 goes past the tunnel; --kill-switch stops it");
        }
        // A killed client's table could stop packets for the same addresses.
        guard::sweep();
        self.guarded.0.set(Table {
            device: name.clone(),
            number: number(name)?,
            addresses: sources.iter().map(IpNet::addr).collect(),
        });
        for words in routes::configure(name, &sources, args.mtu) {
            run("ip", &words)?;
        }
        (self.state.sources, self.state.networks) = (sources, networks);
        Ok(())
    }

    /// Carries the packets that enter the device.
    pub(crate) async fn carry(&self, client: &Client) -> Result<Carrier, Failure> {
        let addresses: Vec<_> = self.state.sources.iter().map(IpNet::addr).collect();
        let carrier = client.carry(&self.tun, &addresses).await;
        carrier.map_err(|error| failed(&self.state.name, &error))
    }

    /// Routes the machine's traffic into the device, at the first call.
    pub(crate) fn route(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_routed, true) {
            return Ok(());
        }
        let resolver = if self.servers.is_empty() {
            None
        } else {
            Some(Resolver::plan(&self.servers, self.dns_file.as_deref())?)
        };
        if let Some(Resolver::File(replaced)) = &resolver {
            self.state.resolver = Some(replaced.clone());
        }
        (self.file.write(&self.state))
            .map_err(|error| Failure::other(format_args!("cannot keep a state: {error}")))?;
        for words in routes::routes(&self.state)
            .iter()
            .chain(&routes::add(&self.state))
        {
            run("ip", words)?;
        }
        if let Some(resolver) = resolver {
            resolver.set(&self.state.name, &self.servers)?;
            self.name_servers.on_set(resolver);
        }
        screen::print(format_args!("tun on {}", self.state.name));
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(last) = self.name_servers.end() {
            self.state.resolver = last.replaced().cloned();
        }
        let undone = if self.is_routed {
            undo(&self.state)
        } else {
            Ok(())
        };
        let name = &self.state.name;
        match undone {
            Ok(()) => {
                let _ = match self.state.left().filter(|_| self.is_closed) {
                    Some(left) => self.file.write(&left),
                    None => self.file.remove(),
                };
            }
            Err(failure) => tracing::error!(
                "{}; `mpquic proxy down {name}` tries again",
                failure.message()
            ),
        }
        if self.is_closed {
            tracing::warn!("the kill switch stays closed: `mpquic proxy down {name}` opens it");
        }
    }
}

/// Creates the state file of a device. This client owns the device, so no other client writes the
/// file.
fn keep(state: &State) -> Result<StateFile, Failure> {
    keep_in(&state::directories(), state, undo)
}

/// Like [`keep`], in these directories. Undoes the changes of a killed client, except for its kill
/// switch, whose state must exist while the kill switch is closed.
fn keep_in(
    directories: &[PathBuf],
    state: &State,
    undo: impl Fn(&State) -> Result<(), Failure>,
) -> Result<StateFile, Failure> {
    let name = &state.name;
    let cannot = |error: io::Error| {
        Failure::other(format_args!("--tun={name}: cannot keep a state: {error}"))
    };
    let kind = match StateFile::create(directories, state) {
        Ok(file) => return Ok(file),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
        Err(error) => error.kind(),
    };
    for old in StateFile::all(directories).map_err(cannot)? {
        match old.read() {
            Ok(left) if left.name == *name => {
                undo(&left)?;
            }
            // The client was killed before it wrote its record, and so before its first change.
            Err(_) if old.is_of(name) => {}
            _ => continue,
        }
        old.write(state).map_err(cannot)?;
        return Ok(old);
    }
    Err(cannot(kind.into()))
}

/// The failure of a device that has vanished or cannot be used.
pub(crate) fn failed(name: &str, error: &io::Error) -> Failure {
    Failure::other(format_args!("the device {name}: {error}"))
}

/// Removes rules and restores the name servers. Without rules, this succeeds.
fn undo(state: &State) -> Result<(), Failure> {
    undo_by(state, |words| run("ip", words))
}

/// Like [`undo`], with another function for the commands of `ip`.
fn undo_by(state: &State, ip: impl Fn(&[String]) -> Result<(), Failure>) -> Result<(), Failure> {
    let restored = state
        .resolver
        .as_ref()
        .map_or(Ok(()), |file| file.restore());
    let mut result = restored;
    for words in routes::remove(state) {
        if let Err(failure) = ip(&words)
            && !failure.message().contains("No such file or directory")
        {
            result = Err(failure);
        }
    }
    result
}

/// `mpquic proxy down`.
pub(crate) fn down(args: &ProxyDown) -> Result<(), Failure> {
    let name = args.name.as_deref();
    guard::sweep();
    down_in(&state::directories(), name, clean, open_forgotten)
}

/// Opens a kill switch without a state file. True if a kill switch was closed.
fn open_forgotten() -> Result<bool, Failure> {
    // Without `nft` or the privilege, the kill switch is open, or its state is unknown.
    match kill_switch::is_closed() {
        Ok(true) => kill_switch::open().map(|()| true),
        _ => Ok(false),
    }
}

/// Like [`down`], in these directories.
fn down_in(
    directories: &[PathBuf],
    wanted: Option<&str>,
    clean: impl Fn(&StateFile, &State) -> Result<(), Failure>,
    open_forgotten: impl Fn() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let cannot = |what: &dyn std::fmt::Display, error: &io::Error| {
        Failure::other(format_args!("cannot read {what}: {error}"))
    };
    let files = StateFile::all(directories).map_err(|error| cannot(&"the states", &error))?;
    let mut result = Ok(());
    let mut found = 0;
    for file in files {
        let path = file.path().display().to_string();
        let state = file.read().map_err(|error| cannot(&path, &error))?;
        if wanted.is_some_and(|name| name != state.name) {
            continue;
        }
        found += 1;
        match clean(&file, &state) {
            Ok(()) => screen::print(format_args!("undone: {}", state.name)),
            Err(failure) => result = Err(failure),
        }
    }
    match (wanted, found) {
        (Some(name), 0) => screen::print(format_args!("nothing to undo for {name}")),
        (None, 0) if open_forgotten()? => screen::print("undone: the kill switch"),
        (None, 0) => screen::print("nothing to undo"),
        _ => {}
    }
    result
}

fn clean(file: &StateFile, state: &State) -> Result<(), Failure> {
    let name = &state.name;
    // The open fails while another process uses the device. Otherwise the device vanishes at once
    // again.
    match Tun::open(name) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(Failure::other(format_args!(
                "{name} is in use by process {}: end that, and it undoes everything itself",
                state.process
            )));
        }
        Err(error) => return Err(cannot_open(name, &error)),
    }
    undo(state)?;
    if state.kill_switch.is_some() {
        kill_switch::open()?;
    }
    file.remove().map_err(|error| {
        Failure::other(format_args!(
            "cannot remove {}: {error}",
            file.path().display()
        ))
    })
}

fn cannot_open(name: &str, error: &io::Error) -> Failure {
    Failure::other(match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "no permission to make the network device {name}: run mpquic as root, or with the \
             capability CAP_NET_ADMIN (systemd: AmbientCapabilities=CAP_NET_ADMIN)"
        ),
        io::ErrorKind::ResourceBusy => {
            format!("the network device {name} is in use; is another client running?")
        }
        io::ErrorKind::NotFound => {
            "this system has no TUN devices: /dev/net/tun is missing (modprobe tun)".to_owned()
        }
        _ => format!("cannot make the network device {name}: {error}"),
    })
}

/// The interface number of a device.
fn number(name: &str) -> Result<u32, Failure> {
    let words = ["-o", "link", "show", "dev", name].map(str::to_owned);
    number_in(&output("ip", &words)?, name)
}

fn number_in(told: &str, name: &str) -> Result<u32, Failure> {
    let number = told
        .split(':')
        .next()
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| Failure::other(format_args!("`ip link show dev {name}` says {told:?}")))
}

/// Addresses for a device that this machine does not use yet.
fn free_addresses(has_v6: bool) -> Result<Vec<IpNet>, Failure> {
    let taken = if_addrs::get_if_addrs().map_err(Failure::other)?;
    let taken: Vec<_> = taken.iter().map(|interface| interface.addr.ip()).collect();
    addresses_beside(&taken, has_v6)
        .ok_or_else(|| Failure::other(format_args!("all addresses from {POOL_V4} on are in use")))
}

/// The first free addresses.
fn addresses_beside(taken: &[IpAddr], has_v6: bool) -> Option<Vec<IpNet>> {
    for number in 0..MOST_DEVICES {
        let v4 = Ipv4Addr::from_bits(POOL_V4.to_bits() + 4 * number + 1);
        let v6 = Ipv6Addr::from_bits(POOL_V6.to_bits() + 4 * u128::from(number) + 1);
        if taken.contains(&v4.into()) || taken.contains(&v6.into()) {
            continue;
        }
        let mut addresses = vec![IpNet::V4(Ipv4Net::new_assert(v4, 30))];
        if has_v6 {
            addresses.push(IpNet::V6(Ipv6Net::new_assert(v6, 126)));
        }
        return Some(addresses);
    }
    None
}

#[cfg(test)]
mod tests;
