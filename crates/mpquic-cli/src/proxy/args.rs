//! The options of `mpquic proxy`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use http::Uri;
use mpquic_core::config::TransportOptions;
use mpquic_proxy::{ClassRule, Entrance, Filtering, Nat64Prefix, ReverseRule, Rule, Target};

use crate::options::hosts::parse_address;
use crate::options::parse_url;
use crate::options::preference::Preference;
use crate::options::quota::{Quota, parse_quota};
use crate::options::reach::Reach;
use crate::process::failure::Failure;
use crate::process::state::state_directory;
use crate::proxy::ctl::ProxyCtl;
use crate::proxy::reverse::ReverseForward;
use crate::proxy::status::StatusSocket;
use crate::proxy::status_command::ProxyStatus;
#[cfg(target_os = "linux")]
use crate::proxy::tun::{ProxyDown, TunArgs};
use crate::proxy::users::ProxyUser;
use crate::serve::listening::Listening;
use crate::text::url;

/// Carry other programs' TCP connections and UDP over all paths at once
#[derive(Debug, Subcommand)]
pub(crate) enum Proxy {
    Server(Box<ProxyServer>),
    Client(Box<ProxyClient>),
    Status(ProxyStatus),
    Ctl(ProxyCtl),
    #[command(subcommand)]
    User(ProxyUser),
    #[cfg(target_os = "linux")]
    Down(ProxyDown),
}

/// Run the proxy's server, on a machine in the Internet
///
/// An HTTP/3 proxy with CONNECT for TCP (RFC 9114) and CONNECT-UDP (RFC 9298), for `mpquic proxy
/// client` and other clients of these protocols. By default only users with credentials may use it,
/// and only public addresses can be reached.
///
/// Prints `listening on ADDR:PORT` for each address to standard output, then the SHA-256
/// fingerprint of its self-signed certificate, for the option --pin of `mpquic proxy client`.
/// SIGINT or SIGTERM stops the server after its open flows (--drain-timeout). SIGUSR2 starts the
/// installed program with the same options as the next server, and stops this one after its open
/// flows (--upgrade-timeout).
#[derive(Debug, Args)]
pub(crate) struct ProxyServer {
    /// File of users, with `basic NAME:PASSWORD`, `bearer TOKEN` or a line of `mpquic proxy user
    /// add` on each line
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: Option<PathBuf>,
    /// Accept only clients with a certificate issued by a certificate in this file; with
    /// --credentials, clients need both
    #[arg(long, value_name = "PEM")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Let everybody use the proxy; their traffic appears to come from this machine
    #[arg(long, conflicts_with_all = ["credentials", "client_ca"])]
    pub(crate) open: bool,
    /// Allow targets that are not public, as NETWORK, NETWORK:PORTS or :PORTS, such as 10.0.0.0/8,
    /// [fd00::/8]:443 or :8000-8999; repeat for several
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<Rule>,
    /// Deny these targets, even if --allow allows them; repeat for several
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<Rule>,
    /// Allow only the targets of --allow
    #[arg(long, requires = "allow")]
    pub(crate) only_allowed: bool,
    /// Allow a user TCP ports of this machine that lead to its client (`-R` of `mpquic proxy
    /// client`): PORT or FIRST-LAST, behind USER= for one user, such as alice=8000-8099; repeat for
    /// several. By default, nobody has ports
    #[arg(long, value_name = "[USER=]PORTS")]
    pub(crate) allow_reverse: Vec<ReverseRule>,
    /// Prefix of addresses that this network translates to IPv4 (NAT64), such as 2001:db8:64::/96,
    /// beside 64:ff9b::/96. Rules also apply to the IPv4 addresses in them; repeat for several
    #[arg(long, value_name = "PREFIX")]
    pub(crate) nat64: Vec<Nat64Prefix>,
    /// Open connections of all clients; further ones are refused
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) max_connections: u32,
    /// Open connections of one address (of IPv6: one network of 64 bits); further ones are closed
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) max_client_connections: u32,
    /// Open TCP flows of one user (with --open: of one address), as many UDP flows, and half as
    /// many connections to ports of the user. A further UDP flow displaces the flow with the
    /// longest wait for an answer, or a flow after 2 idle seconds
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) max_flows: u32,
    /// Memory in MiB for data of one user's flows that a target does not read, or the user's client
    /// does not acknowledge. Each connection of a user gets a third of the rest for its windows
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    pub(crate) max_user_memory: u32,
    /// Memory in MiB for the same data of all users together. A user leaves at least its own number
    /// of bytes for others
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(16..=1 << 24))]
    pub(crate) max_memory: u32,
    /// New UDP flows of one user per second, and as many TCP and DNS flows; further ones wait
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) max_new_flows: u32,
    /// Refuse clients one UDP port for all targets of a program (`--udp-mapping` of `mpquic proxy
    /// client`): each target gets a port of its own, and strangers reach no client
    #[arg(long)]
    pub(crate) no_udp_binding: bool,
    /// Give up a target without an answer after this time, including the lookup of its name
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=50))]
    pub(crate) target_timeout: u64,
    #[command(flatten)]
    pub(crate) idle: Idle,
    /// Class of flows to certain targets: CLASS is bulk, interactive or real-time, RULE is a rule
    /// of --allow; repeat for several, the first fitting one counts. Other flows are classified by
    /// port, size and rate
    #[arg(long, value_name = "CLASS=RULE")]
    pub(crate) class: Vec<ClassRule>,
    /// After SIGTERM or SIGINT, let open flows continue for up to this time; a second signal stops
    /// the server at once
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) drain_timeout: u64,
    /// After SIGUSR2, which starts the installed program in this server's place, let open flows
    /// continue here for up to this time
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(0..=31_536_000))]
    pub(crate) upgrade_timeout: u64,
    /// Also read options from this TOML file: keys are the names of options, such as `max-flows =
    /// 100`. The command line overrides the file. SIGHUP reads the file, the credentials and the
    /// certificate again: users, rules and limits of flows change, open flows go on
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) status: StatusSocket,
    #[command(flatten)]
    pub(crate) listening: Listening,
}

/// Let programs on this machine use a proxy over all links at once
///
/// Opens entrances, by default SOCKS 5 on 127.0.0.1:1080, and carries their traffic to the proxy
/// over one connection with a path from each network interface. A lost connection is made again.
///
/// Prints a line with kind and address for each entrance to standard output. SIGINT or SIGTERM ends
/// the client with exit code 0, and open flows end with it.
#[derive(Debug, Args)]
pub(crate) struct ProxyClient {
    /// The proxy, as https://HOST[:PORT]
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: Uri,
    /// File with the credential for the proxy: a line `basic NAME:PASSWORD` or `bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: Option<PathBuf>,
    /// SOCKS 5 entrance (TCP and UDP) at this port, on loopback by default; repeat for several
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_entrance)]
    pub(crate) socks: Vec<SocketAddr>,
    /// HTTP proxy entrance at this port, on loopback by default; repeat for several
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_entrance)]
    pub(crate) http: Vec<SocketAddr>,
    /// Entrance for TCP connections that the kernel diverts to this port with TPROXY, on loopback
    /// by default; needs root or CAP_NET_ADMIN; repeat for several
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_entrance)]
    pub(crate) tproxy: Vec<SocketAddr>,
    /// Forward this port, on loopback by default, to this target; TCP, or UDP after `udp:`; repeat
    /// for several
    #[arg(short = 'L', long, value_name = "[udp:][ADDR:]PORT:HOST:PORT")]
    pub(crate) forward: Vec<Forward>,
    /// Have the proxy listen on this TCP port, on all its addresses by default, and lead
    /// connections to this target near the client; the operator must allow the port
    /// (`--allow-reverse` of `mpquic proxy server`); repeat for several
    #[arg(short = 'R', long, value_name = "[ADDR:]PORT:HOST:PORT")]
    pub(crate) reverse: Vec<ReverseForward>,
    /// Class of flows to certain targets: CLASS is bulk, interactive or real-time, RULE is NETWORK,
    /// NETWORK:PORTS or :PORTS; repeat for several, the first fitting one counts. Other flows are
    /// classified by port, size and rate
    #[arg(long, value_name = "CLASS=RULE")]
    pub(crate) class: Vec<ClassRule>,
    /// UDP ports of a program's socket at the server, with --tun and SOCKS. `endpoint-independent`:
    /// one port for all targets, as game consoles, WebRTC and other peer-to-peer programs need it;
    /// others can then send to the program
    #[arg(long, value_name = "MAPPING", value_enum, default_value_t = UdpMapping::PerTarget)]
    pub(crate) udp_mapping: UdpMapping,
    /// Who may send to a port of `--udp-mapping endpoint-independent`: `address-dependent`, the
    /// addresses to which the program has sent, from any port (the default);
    /// `endpoint-independent`, everybody
    #[arg(long, value_name = "FILTERING")]
    pub(crate) udp_filtering: Option<Filtering>,
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    pub(crate) tun: TunArgs,
    #[command(flatten)]
    pub(crate) idle: Idle,
    /// Also read options from this TOML file: keys are the names of options, such as `socks =
    /// [1080]`. The command line overrides the file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) status: StatusSocket,
    #[command(flatten)]
    pub(crate) reach: Reach,
    #[command(flatten)]
    pub(crate) preference: Preference,
    /// Bytes a month on this interface, sent and received with their headers of IP and UDP: 500M,
    /// 20G or 1.5T. An interface without bytes left is closed until the next month, which begins at
    /// 00:00 UTC on the day of `reset` (1 to 28, default 1); repeat for several, the first fitting
    /// one counts
    #[arg(long, value_name = "IFACE=SIZE[,reset=DAY]", value_parser = parse_quota)]
    pub(crate) quota: Vec<Quota>,
    /// File of the counts for --quota, written once a minute
    /// [default: quota.json in $XDG_STATE_HOME/mpquic or ~/.local/state/mpquic]
    #[arg(long, value_name = "FILE")]
    quota_file: Option<PathBuf>,
}

impl ProxyClient {
    /// The peers that may send to a UDP port for all targets; `None` with a port for each target.
    pub(crate) fn udp_binding(&self) -> Result<Option<Filtering>, Failure> {
        match (self.udp_mapping, self.udp_filtering) {
            (UdpMapping::PerTarget, None) => Ok(None),
            (UdpMapping::PerTarget, Some(filtering)) => Err(Failure::usage(format_args!(
                "--udp-filtering {filtering}: a port for each target takes payloads of this target only; add \
                 --udp-mapping endpoint-independent"
            ))),
            (UdpMapping::EndpointIndependent, filtering) => {
                Ok(Some(filtering.unwrap_or(Filtering::AddressDependent)))
            }
        }
    }

    /// The file of the counts of quotas.
    pub(crate) fn quota_book(&self) -> Option<PathBuf> {
        let named = self.quota_file.clone();
        named.or_else(|| state_directory().map(|directory| directory.join("quota.json")))
    }
}

/// The UDP ports of a program's socket at the server (RFC 4787 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UdpMapping {
    /// A port for each target
    PerTarget,
    /// One port for all targets
    EndpointIndependent,
}

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Idle {
    /// Close a TCP connection without data for this time
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) tcp_idle: u64,
    /// Close a UDP flow without data for this time
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) udp_idle: u64,
    /// Keep unsent TCP data of this time, and of a round trip: a program that sends faster than the
    /// links has to wait. Shorter times tell programs sooner how fast the links are, longer ones
    /// fill links that vary
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) send_queue: u64,
    /// Keep open flows while no link works, for up to this time. The shorter time of client and
    /// server counts
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    pub(crate) max_outage: u64,
}

impl Idle {
    /// Adapts the transport of a proxy's connection.
    pub(crate) fn adapt(&self, transport: &mut TransportOptions, flows: u32) {
        transport.send_queue_time = Some(Duration::from_millis(self.send_queue));
        mpquic_proxy::adapt(transport, flows);
        transport.max_idle_timeout = Some(Duration::from_secs(self.max_outage));
    }

    /// Adapts the transport of a server's connection, before its first right credential.
    pub(crate) fn adapt_server(&self, transport: &mut TransportOptions) {
        transport.send_queue_time = Some(Duration::from_millis(self.send_queue));
        mpquic_proxy::adapt_server(transport);
        transport.max_idle_timeout = Some(Duration::from_secs(self.max_outage));
    }
}

/// A port that leads to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) entrance: Entrance,
    pub(crate) listen: SocketAddr,
}

fn parse_entrance(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    parse_address(text).map_err(|error| match text.starts_with('[') {
        // Of a link-local address it says more.
        true => error,
        false => "expected PORT or ADDR:PORT, such as 1080 or 192.168.1.1:1080".to_owned(),
    })
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected [udp:][ADDR:]PORT:HOST:PORT, such as 8080:example.org:80";
        let (is_udp, rest) = match text.strip_prefix("udp:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // From the end: the port, and before it the host, which may stand in brackets.
        let (before, _) = rest.rsplit_once(':').ok_or(EXPECTED)?;
        let host = if before.ends_with(']') {
            before.rfind('[')
        } else {
            before.rfind(':').map(|colon| colon + 1)
        };
        let host = host.ok_or(EXPECTED)?;
        let listen = rest[..host].strip_suffix(':').ok_or(EXPECTED)?;
        let target = url::ascii(&rest[host..]).parse::<Target>();
        let target = target.map_err(|error| format!("{error}; {EXPECTED}"))?;
        Ok(Self {
            entrance: if is_udp {
                Entrance::Udp(target)
            } else {
                Entrance::Tcp(target)
            },
            listen: parse_entrance(listen).map_err(|_| EXPECTED)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read_as_ssh_does() {
        let read = |text: &str| {
            let Forward { entrance, listen } = text.parse().unwrap();
            let (kind, target) = match entrance {
                Entrance::Tcp(target) => ("tcp", target),
                Entrance::Udp(target) => ("udp", target),
                other => panic!("{other:?}"),
            };
            format!("{kind} {listen} {target}")
        };
        assert_eq!(
            read("8080:example.org:80"),
            "tcp 127.0.0.1:8080 example.org:80"
        );
        assert_eq!(read("udp:53:9.9.9.9:53"), "udp 127.0.0.1:53 9.9.9.9:53");
        assert_eq!(read("0.0.0.0:1:[::1]:2"), "tcp 0.0.0.0:1 [::1]:2");
        assert_eq!(read("udp:[::1]:1:[::1]:2"), "udp [::1]:1 [::1]:2");
        let written = read("1:b\u{fc}cher.example:80");
        assert_eq!(written, "tcp 127.0.0.1:1 xn--bcher-kva.example:80");
        for wrong in [
            "",
            "80",
            "80:a",
            "a:80",
            "80:a:b",
            "x:80:a:80",
            "80:[::1:80",
            "tcp:80:a:80",
            "80::80",
        ] {
            assert!(wrong.parse::<Forward>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn entrances_are_of_loopback_unless_named() {
        assert_eq!(parse_entrance("1080"), Ok(([127, 0, 0, 1], 1080).into()));
        assert_eq!(parse_entrance("0.0.0.0:1"), Ok(([0, 0, 0, 0], 1).into()));
        assert!(parse_entrance("localhost:1").is_err());
        let told = parse_entrance("[fe80::1]:1").unwrap_err();
        assert!(told.contains("name its link"), "{told}");
    }
}
