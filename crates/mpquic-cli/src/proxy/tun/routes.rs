//! Rules that send traffic into the device, as commands of `ip`.
//!
//! A separate table leads to the device, and rules choose the packets for this table:
//!
//! - First, packets from the device use the main table, because these packets are answers to
//!   neighbours.
//! - Packets to networks of `--keep-route` use the main table, too.
//! - Packets to private networks use the main table, but only its more specific routes: a local
//!   network keeps its route. A DHCP server of the local network sets routes of the main table, and
//!   could take public addresses away from the tunnel, so routes to public addresses do not count.
//!   With a strict kill switch, no route counts.
//! - Packets of this machine's programs without a chosen source address, and forwarded packets, use
//!   the table.
//! - Packets with a source address of another interface do not use the table. So the paths to the
//!   proxy, which start from such addresses, never enter the device, and earlier connections go on.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::state::State;

/// After the rules of tunnels that start later, and before the main table with the priority 32766.
const BESIDE: &str = "32000";
const OURS: &str = "32001";

/// Addresses of private networks (RFC 1918, RFC 4193), of links (RFC 3927, RFC 4291) and behind the
/// translators of carriers (RFC 6598).
const PRIVATE: [&str; 7] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// A command of `ip`.
pub(crate) type Words = Vec<String>;

fn words(text: &str) -> Words {
    text.split(' ').map(str::to_owned).collect()
}

fn family(network: &IpNet) -> &'static str {
    match network {
        IpNet::V4(_) => "-4",
        IpNet::V6(_) => "-6",
    }
}

/// All addresses of both IP versions.
pub(crate) fn everything() -> Vec<IpNet> {
    vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

/// The IP versions of networks.
fn families(networks: &[IpNet]) -> impl Iterator<Item = &'static str> {
    let is_there = |version: &&str| networks.iter().any(|network| family(network) == *version);
    ["-4", "-6"].into_iter().filter(is_there)
}

fn private_networks() -> impl Iterator<Item = IpNet> {
    PRIVATE.iter().filter_map(|text| text.parse().ok())
}

/// True if all addresses of a network are private.
pub(crate) fn is_private(network: &IpNet) -> bool {
    private_networks().any(|private| private.contains(network))
}

/// The commands that bring a device up.
pub(crate) fn configure(name: &str, addresses: &[IpNet], mtu: u32) -> Vec<Words> {
    let mut commands = vec![words(&format!("link set dev {name} mtu {mtu} up"))];
    for address in addresses {
        let family = family(address);
        // No other machine can have the address, so the check for duplicates is left out.
        let at_once = if family == "-6" { " nodad" } else { "" };
        commands.push(words(&format!(
            "{family} address add {address} dev {name}{at_once}"
        )));
    }
    commands
}

/// The routes of the separate table. The routes vanish with the device.
pub(crate) fn routes(state: &State) -> Vec<Words> {
    let (name, table) = (&state.name, state.table);
    let networks = state.networks.iter();
    let route = |network: &IpNet| {
        let family = family(network);
        words(&format!(
            "{family} route add {network} dev {name} table {table}"
        ))
    };
    networks.map(route).collect()
}

/// The rules, in the order of their creation.
fn rules(state: &State) -> Vec<(&'static str, String)> {
    let table = state.table;
    let mut rules = Vec::new();
    for family in families(&state.networks) {
        let rule = format!("priority {BESIDE} iif {} lookup main", state.name);
        rules.push((family, rule));
    }
    for network in &state.kept {
        let rule = format!("priority {BESIDE} to {network} lookup main");
        rules.push((family(network), rule));
    }
    for network in state.networks.iter().filter(|_| !state.is_strict()) {
        for private in private_networks() {
            let Some((to, length)) = both(network, &private) else {
                continue;
            };
            let rule =
                format!("priority {BESIDE} to {to} lookup main suppress_prefixlength {length}");
            rules.push((family(network), rule));
        }
    }
    for source in &state.sources {
        let family = family(source);
        if !(state.networks.iter()).any(|network| self::family(network) == family) {
            continue;
        }
        // The rules for packets without a chosen source address. In IPv4, the source 0.0.0.0 marks
        // such packets. In IPv6, a rule with a source never matches such packets, so a negated rule
        // excludes packets from this machine's global addresses.
        let senders: &[&str] = match source {
            IpNet::V4(_) => &["from 0.0.0.0/32", "not iif lo"],
            IpNet::V6(_) => &["not from ::/1 iif lo"],
        };
        let own = format!("from {}", source.trunc());
        for sender in std::iter::once(&*own).chain(senders.iter().copied()) {
            // `ip` expects "not" in front of the rule.
            let (not, sender) = match sender.strip_prefix("not ") {
                Some(sender) => ("not ", sender),
                None => ("", sender),
            };
            let rule = format!("{not}priority {OURS} {sender} lookup {table}");
            rules.push((family, rule));
        }
    }
    rules
}

/// The private part of a routed network, and the longest prefix of routes that do not count for
/// this part. Such routes lead to the whole routed network, or to public addresses, too.
fn both(network: &IpNet, private: &IpNet) -> Option<(IpNet, u8)> {
    if private.contains(network) {
        return Some((*network, network.prefix_len()));
    }
    (network.contains(private)).then(|| (*private, private.prefix_len() - 1))
}

/// The commands that add the rules.
pub(crate) fn add(state: &State) -> Vec<Words> {
    let rules = rules(state).into_iter();
    let add = |(family, rule): (&str, String)| words(&format!("{family} rule add {rule}"));
    rules.map(add).collect()
}

/// The commands that remove the rules, the last rule first.
pub(crate) fn remove(state: &State) -> Vec<Words> {
    let rules = rules(state).into_iter().rev();
    let remove = |(family, rule): (&str, String)| words(&format!("{family} rule delete {rule}"));
    rules.map(remove).collect()
}

#[cfg(test)]
mod tests {
    use super::super::kill_switch::tests::kill_switch;
    use super::*;

    fn state(networks: &[&str], sources: &[&str]) -> State {
        let read = |networks: &[&str]| networks.iter().map(|n| n.parse().unwrap()).collect();
        State {
            name: "mpquic0".to_owned(),
            process: 1,
            table: 443_007,
            sources: read(sources),
            networks: read(networks),
            kept: Vec::new(),
            resolver: None,
            kill_switch: None,
        }
    }

    fn rules_of(state: &State) -> Vec<String> {
        add(state).iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn more_specific_routes_to_private_networks_stay() {
        let state = state(&["0.0.0.0/0", "10.1.0.0/16"], &["198.18.0.1/30"]);
        assert_eq!(
            rules_of(&state),
            [
                "-4 rule add priority 32000 iif mpquic0 lookup main",
                "-4 rule add priority 32000 to 10.0.0.0/8 lookup main suppress_prefixlength 7",
                "-4 rule add priority 32000 to 100.64.0.0/10 lookup main suppress_prefixlength 9",
                "-4 rule add priority 32000 to 169.254.0.0/16 lookup main suppress_prefixlength 15",
                "-4 rule add priority 32000 to 172.16.0.0/12 lookup main suppress_prefixlength 11",
                "-4 rule add priority 32000 to 192.168.0.0/16 lookup main suppress_prefixlength 15",
                "-4 rule add priority 32000 to 10.1.0.0/16 lookup main suppress_prefixlength 16",
                "-4 rule add priority 32001 from 198.18.0.0/30 lookup 443007",
                "-4 rule add priority 32001 from 0.0.0.0/32 lookup 443007",
                "-4 rule add not priority 32001 iif lo lookup 443007",
            ]
        );
        let routes: Vec<_> = routes(&state).iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            routes,
            [
                "-4 route add 0.0.0.0/0 dev mpquic0 table 443007",
                "-4 route add 10.1.0.0/16 dev mpquic0 table 443007",
            ]
        );
        let v6 = self::state(&["::/0"], &[]);
        assert_eq!(
            rules_of(&v6),
            [
                "-6 rule add priority 32000 iif mpquic0 lookup main",
                "-6 rule add priority 32000 to fc00::/7 lookup main suppress_prefixlength 6",
                "-6 rule add priority 32000 to fe80::/10 lookup main suppress_prefixlength 9",
            ]
        );
        // Routes to public addresses never count.
        let public = self::state(&["203.0.113.0/24"], &[]);
        assert_eq!(
            rules_of(&public),
            ["-4 rule add priority 32000 iif mpquic0 lookup main"]
        );
    }

    #[test]
    fn kept_routes_come_first_and_a_strict_kill_switch_has_no_others() {
        let mut state = state(&["0.0.0.0/0", "::/0"], &[]);
        state.kept = ["203.0.113.0/24", "2001:db8::/32"]
            .map(|n| n.parse().unwrap())
            .to_vec();
        let kept = [
            "-4 rule add priority 32000 iif mpquic0 lookup main",
            "-6 rule add priority 32000 iif mpquic0 lookup main",
            "-4 rule add priority 32000 to 203.0.113.0/24 lookup main",
            "-6 rule add priority 32000 to 2001:db8::/32 lookup main",
        ];
        assert_eq!(rules_of(&state)[..4], kept);
        assert_eq!(rules_of(&state).len(), 4 + PRIVATE.len());
        state.kill_switch = Some(kill_switch());
        assert_eq!(rules_of(&state), kept);
        state.kill_switch.as_mut().unwrap().lan = Some(Vec::new());
        assert_eq!(rules_of(&state).len(), 4 + PRIVATE.len());
    }

    #[test]
    fn private_networks_are_known() {
        for (network, is_so) in [
            ("10.0.0.0/8", true),
            ("192.168.77.0/24", true),
            ("fe80::/64", true),
            ("fd00::/48", true),
            ("8.0.0.0/6", false),
            ("9.9.9.9/32", false),
            ("0.0.0.0/0", false),
            ("2001:db8::/32", false),
        ] {
            assert_eq!(is_private(&network.parse().unwrap()), is_so, "{network}");
        }
        assert_eq!(private_networks().count(), PRIVATE.len());
    }

    #[test]
    fn an_ip_version_without_networks_has_no_rules() {
        let sources = ["198.18.0.1/30", "fd6d:7071:7569::1/126"];
        let state = state(&["2001:db8::/32"], &sources);
        assert!(add(&state).iter().all(|words| words[0] == "-6"));
        assert_eq!(add(&state).len(), 3);
    }

    #[test]
    fn rules_are_removed_in_reverse_order() {
        let sources = ["198.18.0.1/30", "fd6d:7071:7569::1/126"];
        let state = state(&["0.0.0.0/0", "::/0"], &sources);
        let mut removed = remove(&state);
        removed.reverse();
        let added = add(&state);
        assert_eq!(removed.len(), added.len());
        for (removed, added) in removed.iter().zip(&added) {
            assert_eq!(removed[2], "delete");
            assert_eq!(removed[3..], added[3..]);
        }
    }

    #[test]
    fn device_is_configured_before_routes() {
        let addresses = ["198.18.0.1/30", "fd6d:7071:7569::1/126"];
        let addresses = addresses.map(|address| address.parse().unwrap());
        let commands = configure("tun0", &addresses, 1400).into_iter();
        let commands: Vec<_> = commands.map(|words| words.join(" ")).collect();
        assert_eq!(
            commands,
            [
                "link set dev tun0 mtu 1400 up",
                "-4 address add 198.18.0.1/30 dev tun0",
                "-6 address add fd6d:7071:7569::1/126 dev tun0 nodad",
            ]
        );
        let everything = everything().into_iter();
        let everything: Vec<_> = everything.map(|network| network.to_string()).collect();
        assert_eq!(everything, ["0.0.0.0/0", "::/0"]);
    }
}
