//! `--kill-switch`: a table of nftables that stops all packets past the device.
//!
//! The kernel keeps the table when the client ends, however the client ends. Each change replaces
//! the whole table in one transaction, so no packet finds half a table.

use std::fmt::Write as _;
use std::net::SocketAddr;

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::command::{output, run};
use crate::process::failure::Failure;

/// The name of the table, of the family `inet`.
pub(crate) const TABLE: &str = "mpquic_kill_switch";

/// Destinations that a closed kill switch lets pass beside the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Nothing
    Strict,
    /// The private networks of this machine's interfaces, except for name lookups
    Lan,
}

/// The network of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Lan {
    pub(crate) interface: String,
    pub(crate) network: IpNet,
}

/// The packets that may leave this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KillSwitch {
    /// The proxy's host and port, as in the URL. While the kill switch is closed, a lookup of the
    /// host fails.
    pub(crate) proxy: String,
    pub(crate) addresses: Vec<SocketAddr>,
    /// The user whose sockets reach the proxy. The kill switch stops other users' packets to the
    /// proxy.
    pub(crate) user: u32,
    /// The networks of `--keep-route`.
    pub(crate) kept: Vec<IpNet>,
    /// The local networks of [`Scope::Lan`]; `None` for [`Scope::Strict`].
    pub(crate) lan: Option<Vec<Lan>>,
}

impl KillSwitch {
    /// Stops all packets, except packets to this device and packets that this value permits.
    ///
    /// # Errors
    ///
    /// If `nft` is missing, or may not change tables. An earlier table then remains.
    pub(crate) fn close(&self, device: &str) -> Result<(), Failure> {
        run("nft", &[self.script(device)?])
    }

    /// The table, in the language of `nft`.
    fn script(&self, device: &str) -> Result<String, Failure> {
        // A quote would end the word, and an asterisk would match other devices.
        if !is_plain(device) {
            return Err(Failure::usage(format!(
                "--kill-switch needs a device with a name of ASCII letters, digits and any of . _ -, not {device}"
            )));
        }
        let mut ways = format!("oifname {{ \"lo\", \"{device}\" }} accept\n");
        for network in &self.kept {
            let _ = writeln!(ways, "{} accept", destination(network));
        }
        if let Some(lan) = &self.lan {
            // A name server in the local network would learn all names.
            ways += "meta l4proto { tcp, udp } th dport { 53, 853 } return\n";
            for Lan { interface, network } in lan.iter().filter(|lan| is_plain(&lan.interface)) {
                let to = destination(network);
                let _ = writeln!(ways, "oifname \"{interface}\" {to} accept");
            }
        }
        let mut paths = String::new();
        for address in &self.addresses {
            let (to, port) = (
                destination(&address.ip().to_canonical().into()),
                address.port(),
            );
            let _ = writeln!(
                paths,
                "meta skuid {} {to} udp dport {port} accept",
                self.user
            );
        }
        Ok(format!(
            "add table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
chain ways {{
{ways}}}
chain output {{
type filter hook output priority filter; policy drop;
jump ways
{paths}meta nfproto ipv4 udp sport {{ 67, 68 }} udp dport {{ 67, 68 }} accept
ip6 daddr {{ fe80::/10, ff02::1:2 }} udp sport {{ 546, 547 }} udp dport {{ 546, 547 }} accept
icmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert }} ip6 hoplimit 255 accept
icmpv6 type {{ mld-listener-report, mld-listener-done, mld2-listener-report }} ip6 daddr ff02::/16 accept
counter reject with icmpx admin-prohibited
}}
chain forward {{
type filter hook forward priority filter; policy drop;
iifname \"{device}\" accept
jump ways
counter reject with icmpx admin-prohibited
}}
}}
"
        ))
    }
}

/// Lets all packets leave again. Without a table, this succeeds.
///
/// # Errors
///
/// If `nft` may not change tables.
pub(crate) fn open() -> Result<(), Failure> {
    let words = ["delete", "table", "inet", TABLE].map(str::to_owned);
    match run("nft", &words) {
        Err(failure) if !is_missing(&failure) => Err(failure),
        _ => Ok(()),
    }
}

/// True if a kill switch is closed on this machine.
///
/// # Errors
///
/// If `nft` is missing or may not read tables.
pub(crate) fn is_closed() -> Result<bool, Failure> {
    let words = ["list", "table", "inet", TABLE].map(str::to_owned);
    match output("nft", &words) {
        Err(failure) if is_missing(&failure) => Ok(false),
        Err(failure) => Err(failure),
        Ok(_) => Ok(true),
    }
}

/// True if the message of `nft` names an absent table.
pub(super) fn is_missing(failure: &Failure) -> bool {
    failure.message().contains("No such file or directory")
}

/// True for an interface name without special characters of `nft`.
fn is_plain(interface: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    interface.bytes().all(is_plain)
}

/// A match of `nft` for packets to a network.
fn destination(network: &IpNet) -> String {
    match network {
        IpNet::V4(network) => format!("ip daddr {network}"),
        IpNet::V6(network) => format!("ip6 daddr {network}"),
    }
}

/// The line about packets that may still leave.
pub(crate) fn told(proxy: &[SocketAddr], scope: Scope) -> String {
    let addresses = proxy.iter().map(|address| address.ip().to_string());
    let addresses: Vec<_> = addresses.collect();
    let local = match scope {
        Scope::Strict => "",
        Scope::Lan => ", and packets to private networks of this machine's interfaces",
    };
    format!(
        "the kill switch is closed: until `mpquic proxy down`, also after the end of this client, only the \
         paths to {} leave this machine past the tunnel{local}",
        addresses.join(", ")
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn kill_switch() -> KillSwitch {
        KillSwitch {
            proxy: "proxy.example".to_owned(),
            addresses: vec![
                "192.0.2.1:443".parse().unwrap(),
                "[2001:db8::1]:443".parse().unwrap(),
            ],
            user: 7,
            kept: Vec::new(),
            lan: None,
        }
    }

    /// The lines of the chain `ways`.
    fn ways(kill_switch: &KillSwitch) -> Vec<String> {
        let script = kill_switch.script("tun0").unwrap();
        let lines = script
            .lines()
            .skip_while(|line| *line != "chain ways {")
            .skip(1);
        lines
            .take_while(|line| *line != "}")
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn only_our_sockets_reach_the_proxy() {
        let script = kill_switch().script("tun0").unwrap();
        for line in [
            "meta skuid 7 ip daddr 192.0.2.1/32 udp dport 443 accept",
            "meta skuid 7 ip6 daddr 2001:db8::1/128 udp dport 443 accept",
        ] {
            assert!(script.lines().any(|told| told == line), "{script}");
        }
        // The new table replaces the earlier table in one transaction.
        let begin = "add table inet mpquic_kill_switch\ndelete table inet mpquic_kill_switch\n";
        assert!(script.starts_with(begin));
        assert_eq!(script.matches("policy drop;").count(), 2);
    }

    #[test]
    fn ways_past_the_tunnel_are_those_asked_for() {
        let mut kill_switch = kill_switch();
        let device = r#"oifname { "lo", "tun0" } accept"#;
        assert_eq!(ways(&kill_switch), [device]);
        kill_switch.kept = ["203.0.113.0/24", "2001:db8:9::/64"]
            .map(|network| network.parse().unwrap())
            .to_vec();
        let kept = [
            "ip daddr 203.0.113.0/24 accept",
            "ip6 daddr 2001:db8:9::/64 accept",
        ];
        assert_eq!(ways(&kill_switch), [&[device][..], &kept].concat());
        kill_switch.kept.clear();
        let lan = |interface: &str, network: &str| Lan {
            interface: interface.to_owned(),
            network: network.parse().unwrap(),
        };
        kill_switch.lan = Some(vec![lan("eth0", "10.0.0.0/24"), lan("a\"b", "10.0.1.0/24")]);
        assert_eq!(
            ways(&kill_switch),
            [
                device,
                "meta l4proto { tcp, udp } th dport { 53, 853 } return",
                r#"oifname "eth0" ip daddr 10.0.0.0/24 accept"#,
            ]
        );
    }

    #[test]
    fn device_names_cannot_change_the_table() {
        for name in ["tun\"", "tun*", "tun\\", "tün"] {
            let failure = kill_switch().script(name).unwrap_err();
            assert!(failure.message().contains("ASCII letters"), "{name}");
        }
        assert!(kill_switch().script("mpquic-0.1_a").is_ok());
    }

    #[test]
    fn users_are_told_what_still_leaves() {
        let addresses = kill_switch().addresses;
        let strict = told(&addresses, Scope::Strict);
        assert!(
            strict.contains("`mpquic proxy down`") && strict.contains("192.0.2.1, 2001:db8::1")
        );
        assert!(strict.ends_with("past the tunnel"), "{strict}");
        assert!(told(&addresses, Scope::Lan).contains("private networks"));
    }
}
