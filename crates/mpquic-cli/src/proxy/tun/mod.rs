//! `mpquic proxy client --tun`: its changes on the machine, and their undoing.

mod command;
mod name;
mod resolver;
mod routes;
mod state;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use clap::Args;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use mpquic_proxy::{Carrier, Client, Tun};

use crate::process::failure::Failure;
use crate::process::screen;
use command::{output, run};
use name::parse_name;
use resolver::Resolver;
use state::{State, StateFile};

/// The default name of the device.
const DEFAULT_NAME: &str = "mpquic0";
/// Number of the client's routing tables, plus the number of the device.
const FIRST_TABLE: u32 = 443_000;
/// Networks for the addresses of devices, four addresses for each device. RFC 2544 reserves the
/// first network for tests of devices; the second has a random number, as RFC 4193 requires.
const POOL_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const POOL_V6: Ipv6Addr = Ipv6Addr::new(0xfd6d, 0x7071, 0x7569, 0x63a4, 0, 0, 0, 0);
/// Devices of mpquic on one machine, at most.
const MOST_DEVICES: u32 = 256;

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Args)]
pub(crate) struct TunArgs {
    /// Make a network device (default name: mpquic0), and send the traffic of all programs through
    /// it, except to local networks; needs root or CAP_NET_ADMIN
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_NAME, value_parser = parse_name)]
    pub(crate) tun: Option<String>,
    /// Send only traffic to this network through the device, such as 203.0.113.0/24; repeat for
    /// several
    #[arg(long, value_name = "NETWORK", requires = "tun", value_parser = parse_network)]
    pub(crate) route: Vec<IpNet>,
    /// Use the name server at this address, through the device; repeat for further ones
    #[arg(long, value_name = "ADDR", requires = "tun")]
    pub(crate) dns: Vec<IpAddr>,
    /// MTU of the device, in bytes. A UDP payload larger than a packet of the paths is lost
    #[arg(long, value_name = "BYTES", requires = "tun", default_value_t = 1400, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub(crate) mtu: u32,
}

impl TunArgs {
    /// Networks routed through the device: always those of --dns.
    fn networks(&self, has_v6: bool) -> Vec<IpNet> {
        let mut networks = match self.route.is_empty() {
            true => routes::everything(),
            false => self.route.clone(),
        };
        for server in &self.dns {
            if !networks.iter().any(|network| network.contains(server)) {
                networks.push(IpNet::from(*server));
            }
        }
        networks.retain(|network| has_v6 || matches!(network, IpNet::V4(_)));
        networks
    }
}

/// Undo the changes of a `mpquic proxy client --tun` that was killed
///
/// A client that ends in order restores routes, rules and name servers. A killed client leaves
/// rules that lead to an empty table, and its name servers: this command removes them. Running
/// clients are not affected.
#[derive(Debug, Args)]
pub(crate) struct ProxyDown {
    /// The device [default: all devices]
    #[arg(value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = (text.parse())
        .map_err(|_| "expected a network, such as 203.0.113.0/24 or 2001:db8::/32".to_owned())?;
    match network.trunc() == network {
        true => Ok(network),
        false => Err(format!("did you mean {}?", network.trunc())),
    }
}

/// A device, and the changes made for it. Dropping it undoes all changes.
#[derive(Debug)]
pub(crate) struct Device {
    tun: Tun,
    state: State,
    file: StateFile,
    servers: Vec<IpAddr>,
    /// Changes that do not vanish with the device exist.
    is_routed: bool,
}

impl Device {
    /// Makes the device without other changes.
    pub(crate) fn open(name: &str, args: &TunArgs) -> Result<Self, Failure> {
        let tun = Tun::open(name).map_err(|error| cannot_open(name, &error))?;
        let state = State {
            name: name.to_owned(),
            process: std::process::id(),
            table: FIRST_TABLE + number(name)?,
            sources: Vec::new(),
            networks: Vec::new(),
            resolver: None,
        };
        let file = keep(&state)?;
        let mut device = Self {
            tun,
            state,
            file,
            servers: args.dns.clone(),
            is_routed: false,
        };
        device.configure(args)?;
        Ok(device)
    }

    /// Chooses the routed networks, and brings the device up.
    fn configure(&mut self, args: &TunArgs) -> Result<(), Failure> {
        let name = &self.state.name;
        let disabled = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        let has_v6 = std::fs::read_to_string(disabled).is_ok_and(|disabled| disabled.trim() == "0");
        let sources = free_addresses(has_v6)?;
        let networks = args.networks(has_v6);
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
        let resolver = match self.servers.is_empty() {
            true => None,
            false => Some(Resolver::plan(&self.servers)?),
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
        }
        screen::print(format_args!("tun on {}", self.state.name));
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let undone = match self.is_routed {
            true => undo(&self.state),
            false => Ok(()),
        };
        let name = &self.state.name;
        match undone {
            Ok(()) => {
                let _ = self.file.remove();
            }
            Err(failure) => tracing::error!(
                "{}; `mpquic proxy down {name}` tries again",
                failure.message()
            ),
        }
    }
}

/// Makes the state file of a device; nobody else has this device, because it was opened.
fn keep(state: &State) -> Result<StateFile, Failure> {
    keep_in(&state::directories(), state, undo)
}

/// The same in these directories. Undoes the changes of a killed client.
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
                tracing::warn!("--tun={name}: the changes of a killed client are undone");
                undo(&left)?;
            }
            // The client was killed before it wrote its record, and so before its first change.
            Err(_) if old.is_of(name) => {}
            _ => continue,
        }
        old.remove().map_err(cannot)?;
        return StateFile::create(directories, state).map_err(cannot);
    }
    Err(cannot(kind.into()))
}

/// The failure if a device is gone or cannot be used.
pub(crate) fn failed(name: &str, error: &io::Error) -> Failure {
    Failure::other(format_args!("the device {name}: {error}"))
}

/// Removes rules and restores the name servers. Missing ones are not a failure.
fn undo(state: &State) -> Result<(), Failure> {
    undo_by(state, |words| run("ip", words))
}

/// The same with the commands of `ip`.
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
    down_in(&state::directories(), args.name.as_deref(), clean)
}

/// The same in these directories.
fn down_in(
    directories: &[PathBuf],
    wanted: Option<&str>,
    clean: impl Fn(&StateFile, &State) -> Result<(), Failure>,
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
        (None, 0) => screen::print(format_args!("nothing to undo")),
        _ => {}
    }
    result
}

fn clean(file: &StateFile, state: &State) -> Result<(), Failure> {
    let name = &state.name;
    // The device is in use, or is opened and given back at once.
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

/// The number that the system has given to a device.
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

/// Addresses for a device that this machine does not use.
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
