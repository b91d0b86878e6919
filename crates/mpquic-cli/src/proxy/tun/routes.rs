//! The rules for traffic that enters the device, as commands of `ip`.
//!
//! A separate table leads to the device, and rules choose the packets that use this table:
//!
//! - First, each routed network is looked up in the main table, where only more specific routes count: the
//!   local network keeps its route.
//! - Packets of this machine's programs without a chosen source address, and forwarded packets, use the
//!   table.
//! - Packets with a source address of another interface do not. So the paths to the proxy, which start from
//!   such addresses, never enter the device, and earlier connections go on.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::state::State;

/// After rules of other tunnels, which are made later; before the main table, which is 32766.
const MORE_SPECIFIC: &str = "32000";
const OURS: &str = "32001";

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

/// Every address there is.
pub(crate) fn everything() -> Vec<IpNet> {
    vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

/// What brings a device up.
pub(crate) fn configure(name: &str, addresses: &[IpNet], mtu: u32) -> Vec<Words> {
    let mut commands = vec![words(&format!("link set dev {name} mtu {mtu} up"))];
    for address in addresses {
        let family = family(address);
        // No other machine could have the address.
        let at_once = if family == "-6" { " nodad" } else { "" };
        commands.push(words(&format!(
            "{family} address add {address} dev {name}{at_once}"
        )));
    }
    commands
}

/// The routes of our table. They vanish with the device.
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
    for network in &state.networks {
        let length = network.prefix_len();
        let rule = format!(
            "priority {MORE_SPECIFIC} to {network} lookup main suppress_prefixlength {length}"
        );
        rules.push((family(network), rule));
    }
    for source in &state.sources {
        let family = family(source);
        if !(state.networks.iter()).any(|network| self::family(network) == family) {
            continue;
        }
        // Whether a program has chosen a source address. In IPv4, the address 0.0.0.0 says that it
        // has not. In IPv6, a rule with a source never matches packets without one, so a negated
        // rule leaves out packets from this machine's global addresses.
        let senders: &[&str] = match source {
            IpNet::V4(_) => &["from 0.0.0.0/32", "not iif lo"],
            IpNet::V6(_) => &["not from ::/1 iif lo"],
        };
        let own = format!("from {}", source.trunc());
        for sender in std::iter::once(&*own).chain(senders.iter().copied()) {
            // `ip` wants "not" in front.
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

/// What makes the rules.
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
    use super::*;

    fn state(networks: &[&str], sources: &[&str]) -> State {
        let read = |networks: &[&str]| networks.iter().map(|n| n.parse().unwrap()).collect();
        State {
            name: "mpquic0".to_owned(),
            process: 1,
            table: 443_007,
            sources: read(sources),
            networks: read(networks),
            resolver: None,
        }
    }

    #[test]
    fn more_specific_routes_stay() {
        let state = state(&["0.0.0.0/0", "10.0.0.0/8"], &["198.18.0.1/30"]);
        let rules: Vec<_> = add(&state).iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            rules,
            [
                "-4 rule add priority 32000 to 0.0.0.0/0 lookup main suppress_prefixlength 0",
                "-4 rule add priority 32000 to 10.0.0.0/8 lookup main suppress_prefixlength 8",
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
                "-4 route add 10.0.0.0/8 dev mpquic0 table 443007",
            ]
        );
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
