//! [`Rules`]: to which addresses and ports flows may go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use thiserror::Error;

/// Networks that are no part of the public Internet, by the registries of RFC 6890: this network,
/// private, shared, loopback, link-local, protocol assignments, documentation, relays, benchmarks,
/// multicast, reserved, broadcast. 168.63.129.16 is public, but leads to the service of a cloud
/// (Azure) for its own machines.
const SPECIAL_V4: [([u8; 4], u8); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([168, 63, 129, 16], 32),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];
/// The same within 2000::/3, the only part of IPv6 that is global unicast: protocol assignments
/// with Teredo, documentation, 6to4, documentation.
const SPECIAL_V6: [([u16; 2], u8); 4] = [
    ([0x2001, 0], 23),
    ([0x2001, 0xdb8], 32),
    ([0x2002, 0], 16),
    ([0x3fff, 0], 20),
];
/// NAT64 (RFC 6052): the last 32 bits are an IPv4 address.
const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Allowed targets, by their addresses. A name is checked after its lookup: it cannot lead to a
/// denied address.
///
/// A target that a rule of `deny` names is denied; of the rest, a target that a rule of `allow`
/// names is allowed. Without a matching rule, only public addresses are allowed, and with
/// `only_allowed` none.
///
/// ```
/// use mpquic_proxy::Rules;
///
/// let mut rules = Rules::default();
/// rules.allow = vec!["10.1.0.0/16:22".parse()?];
/// rules.deny = vec![":25".parse()?];
/// assert!(rules.allow(&"10.1.2.3:22".parse()?));
/// assert!(!rules.allow(&"10.1.2.3:80".parse()?));
/// assert!(rules.allow(&"1.1.1.1:80".parse()?));
/// assert!(!rules.allow(&"1.1.1.1:25".parse()?));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Rules {
    /// What is allowed.
    pub allow: Vec<Rule>,
    /// Denied targets, even if allowed.
    pub deny: Vec<Rule>,
    /// Nothing else is allowed, public or not.
    pub only_allowed: bool,
    /// Prefixes with which the network reaches IPv4 addresses, beside `64:ff9b::/96`: a rule for an
    /// IPv4 address also holds for the IPv6 address that leads to it.
    pub nat64: Vec<Nat64Prefix>,
}

/// Addresses and ports: `NETWORK`, `NETWORK:PORTS` or `:PORTS`. A network is an address, or one
/// with the length of a prefix (`10.0.0.0/8`); IPv6 stands in brackets before ports
/// (`[fd00::/8]:80`). Ports are one port or a range (`8000-8999`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// `None` for all networks.
    network: Option<IpNet>,
    ports: RangeInclusive<u16>,
}

/// What is no [`Rule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "expected NETWORK, NETWORK:PORTS or :PORTS, such as 10.0.0.0/8, [fd00::/8]:443 or :8000-8999"
)]
pub struct InvalidRule;

/// A prefix by which a network reaches IPv4 addresses over IPv6 (RFC 6052): 32, 40, 48, 56, 64 or
/// 96 bits, such as `2001:db8:64::/96`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix(Ipv6Net);

/// What is no [`Nat64Prefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, such as 2001:db8:64::/96")]
pub struct InvalidNat64Prefix;

impl FromStr for Nat64Prefix {
    type Err = InvalidNat64Prefix;

    fn from_str(text: &str) -> Result<Self, InvalidNat64Prefix> {
        let prefix: Ipv6Net = text.parse().map_err(|_| InvalidNat64Prefix)?;
        let has_length = matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96);
        if has_length && prefix.trunc() == prefix {
            Ok(Self(prefix))
        } else {
            Err(InvalidNat64Prefix)
        }
    }
}

impl Nat64Prefix {
    /// The IPv4 address reached by an IPv6 address.
    fn translated(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.0.contains(&address) {
            return None;
        }
        // RFC 6052 section 2.2: behind the prefix, but for bits 64 to 71.
        let octets = address.octets();
        let start = usize::from(self.0.prefix_len()) / 8;
        let mut behind = (start..16)
            .filter(|place| *place != 8)
            .map(|place| octets[place]);
        let mut next = || behind.next();
        Some(Ipv4Addr::new(next()?, next()?, next()?, next()?))
    }
}

impl Rules {
    /// True if flows to this address are allowed.
    pub fn allow(&self, target: &SocketAddr) -> bool {
        let address = target.ip().to_canonical();
        let translated = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => self.translated(address),
        };
        // The target itself, in all notations.
        let itself: Vec<_> = std::iter::once(address)
            .chain(translated.map(IpAddr::V4))
            .collect();
        let names = |rules: &[Rule], addresses: &[IpAddr]| {
            (addresses.iter())
                .any(|address| rules.iter().any(|rule| rule.names(*address, target.port())))
        };
        let embedded = embedded(address);
        if names(&self.deny, &itself) || names(&self.deny, &embedded) {
            return false;
        }
        let is_public = || match translated {
            Some(translated) => is_public_v4(translated),
            None => is_public(address) && embedded.iter().copied().all(is_public),
        };
        names(&self.allow, &itself) || !self.only_allowed && is_public()
    }

    /// The address to which the network translates this one.
    fn translated(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let known = std::iter::once(Nat64Prefix(NAT64)).chain(self.nat64.iter().copied());
        known.filter_map(|prefix| prefix.translated(address)).next()
    }
}

/// The IPv4 addresses by which packets to an address travel, or may travel: an address compatible
/// with IPv4 (RFC 4291 section 2.5.5.1), translated (RFC 2765 section 2.1), 6to4 (RFC 3056), both
/// ends of Teredo (RFC 4380 section 4), ISATAP (RFC 5214 section 6.1), and those that the prefixes
/// within `64:ff9b:1::/48` lead to, of which each network chooses its own (RFC 8215).
fn embedded(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(address) = address else {
        return Vec::new();
    };
    let bits = address.to_bits();
    let v4 = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    let last = v4(0);
    let found = match address.segments() {
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] => vec![last],
        [0x64, 0xff9b, 1, ..] => {
            let prefix = |length| Nat64Prefix(Ipv6Net::new_assert(address, length));
            let prefixes = [48, 56, 64, 96].map(prefix).into_iter();
            prefixes
                .filter_map(|prefix| prefix.translated(address))
                .collect()
        }
        [0x2002, ..] => vec![v4(80)],
        [0x2001, 0, ..] => vec![v4(64), Ipv4Addr::from_bits(!last.to_bits())],
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => vec![last],
        _ => Vec::new(),
    };
    found.into_iter().map(IpAddr::V4).collect()
}

impl Rule {
    /// True for a rule with this port and this address; for an unknown address, only for a rule
    /// with all addresses.
    pub(crate) fn names_target(&self, address: Option<IpAddr>, port: u16) -> bool {
        match address {
            Some(address) => self.names(address.to_canonical(), port),
            None => self.network.is_none() && self.ports.contains(&port),
        }
    }

    fn names(&self, address: IpAddr, port: u16) -> bool {
        let is_inside = |network: &IpNet| network.contains(&address);
        self.ports.contains(&port) && self.network.as_ref().is_none_or(is_inside)
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        if let Ok(network) = parse_network(text) {
            return Ok(Self {
                network: Some(network),
                ports: 0..=u16::MAX,
            });
        }
        let (network, ports) = text.rsplit_once(':').ok_or(InvalidRule)?;
        let network = match network.strip_prefix('[') {
            Some(network) => {
                let network = network.strip_suffix(']').ok_or(InvalidRule)?;
                Some(parse_network(network)?)
            }
            None if network.is_empty() => None,
            None if network.contains(':') => return Err(InvalidRule),
            None => Some(parse_network(network)?),
        };
        let port = |text: &str| {
            if text.bytes().all(|byte| byte.is_ascii_digit()) {
                text.parse().map_err(|_| InvalidRule)
            } else {
                Err(InvalidRule)
            }
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let ports = port(first)?..=port(last)?;
        if ports.is_empty() {
            Err(InvalidRule)
        } else {
            Ok(Self { network, ports })
        }
    }
}

fn parse_network(text: &str) -> Result<IpNet, InvalidRule> {
    let network = text.parse::<IpNet>();
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    network.or_else(|_| address()).map_err(|_| InvalidRule)
}

/// True for addresses of the public Internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => {
            let is_global_unicast = address.segments()[0] & 0xe000 == 0x2000;
            let is_special = SPECIAL_V6.iter().any(|([a, b], length)| {
                let network = Ipv6Addr::new(*a, *b, 0, 0, 0, 0, 0, 0);
                Ipv6Net::new_assert(network, *length).contains(&address)
            });
            is_global_unicast && !is_special
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !(SPECIAL_V4.iter())
        .any(|(network, length)| Ipv4Net::new_assert((*network).into(), *length).contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 443)
    }

    #[test]
    fn only_public_addresses_are_allowed_unless_said_otherwise() {
        let rules = Rules::default();
        for allowed in [
            "1.1.1.1",
            "2606:4700::5efe:1.1.1.1",
            "2606:4700::5eff:10.0.0.1",
            "168.63.129.15",
            "168.63.129.17",
            "100.63.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
        ] {
            assert!(rules.allow(&address(allowed)), "{allowed}");
        }
        for denied in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "64:ff9b::168.63.129.16",
            "2606:4700::5efe:10.0.0.1",
            "2606:4700::200:5efe:127.0.0.1",
            "2606:4700::5efe:168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.251",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!rules.allow(&address(denied)), "{denied}");
        }
    }

    #[test]
    fn rules_name_networks_and_ports() {
        let rule = |text: &str| text.parse::<Rule>().unwrap();
        let names = |text: &str, target: &str| {
            let target: SocketAddr = target.parse().unwrap();
            rule(text).names(target.ip(), target.port())
        };
        assert!(names("10.0.0.0/8", "10.9.9.9:1"));
        assert!(!names("10.0.0.0/8", "11.0.0.1:1"));
        assert!(names("10.0.0.1", "10.0.0.1:1"));
        assert!(!names("10.0.0.1", "10.0.0.2:1"));
        assert!(names("10.0.0.0/8:80", "10.9.9.9:80"));
        assert!(!names("10.0.0.0/8:80", "10.9.9.9:81"));
        assert!(names("fd00::/8", "[fd00::1]:1"));
        assert!(names("[fd00::/8]:1-2", "[fd00::1]:2"));
        assert!(!names("[fd00::/8]:1-2", "[fd00::1]:3"));
        assert!(names(":25", "1.1.1.1:25"));
        for wrong in [
            "",
            ":",
            "a",
            "10.0.0.0/33",
            "10.0.0.0/8:",
            "10.0.0.0/8:x",
            "10.0.0.0/8:2-1",
            ":65536",
            ":+1",
            "[::1:1",
            "::1]:1",
            "10.0.0.0/8:1:2",
            "fd00::/8:80",
        ] {
            assert_eq!(wrong.parse::<Rule>(), Err(InvalidRule), "{wrong}");
        }
    }

    #[test]
    fn denied_counts_before_allowed_and_mapped_addresses_are_what_they_mean() {
        let rules = |allow: &str, deny: &str, only_allowed| Rules {
            allow: vec![allow.parse().unwrap()],
            deny: vec![deny.parse().unwrap()],
            only_allowed,
            nat64: Vec::new(),
        };
        let within = rules("127.0.0.0/8", "127.0.0.2", false);
        assert!(within.allow(&address("127.0.0.1")));
        assert!(within.allow(&address("::ffff:127.0.0.1")));
        assert!(!within.allow(&address("::ffff:127.0.0.2")));
        assert!(within.allow(&address("1.1.1.1")));
        let only = rules("127.0.0.0/8", "127.0.0.2", true);
        assert!(only.allow(&address("127.0.0.1")));
        assert!(!only.allow(&address("1.1.1.1")));
    }

    #[test]
    fn rules_are_for_ipv4_addresses_within_ipv6_addresses() {
        let mut rules = Rules {
            deny: vec!["1.2.3.4".parse().unwrap()],
            ..Rules::default()
        };
        for denied in [
            "1.2.3.4",
            "::ffff:1.2.3.4",
            "64:ff9b::1.2.3.4",
            "64:ff9b::102:304",
        ] {
            assert!(!rules.allow(&address(denied)), "{denied}");
        }
        assert!(rules.allow(&address("64:ff9b::1.2.3.5")));
        // Also with a rule for a network that contains such addresses.
        rules.allow = vec!["::/0".parse().unwrap()];
        for denied in [
            "::1.2.3.4",
            "::ffff:0:1.2.3.4",
            "64:ff9b:1::1.2.3.4",
            "64:ff9b:1:102:3:400::",
            "64:ff9b:1:aa01:2:304::",
            "64:ff9b:1:aaaa:1:203:400:0",
            "2002:102:304::1",
            "2001:0:102:304::1",
            "2001:0:808:808::fefd:fcfb",
            "2606:4700::5efe:1.2.3.4",
            "2606:4700::200:5efe:1.2.3.4",
        ] {
            assert!(!rules.allow(&address(denied)), "{denied}");
        }
        for allowed in [
            "2002:102:305::1",
            "2606:4700::1.2.3.4",
            "2001:0:808:808::1",
            "::ffff:0:1.2.3.5",
            "64:ff9b:1::1.2.3.5",
            "64:ff9b:2::1.2.3.4",
        ] {
            assert!(rules.allow(&address(allowed)), "{allowed}");
        }
        let mut within = Rules {
            allow: vec!["10.0.0.0/8".parse().unwrap()],
            ..Rules::default()
        };
        assert!(
            within.allow(&address("64:ff9b::10.1.1.1")),
            "it is that address"
        );
        assert!(
            !within.allow(&address("2002:a01:101::1")),
            "it is another one"
        );
        within.only_allowed = true;
        assert!(!within.allow(&address("64:ff9b::1.1.1.1")));
    }

    /// The table of RFC 6052 section 2.4.
    #[test]
    fn a_network_may_have_prefixes_of_its_own() {
        for (prefix, translated) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let prefix: Nat64Prefix = prefix.parse().unwrap();
            let found = prefix.translated(translated.parse().unwrap());
            assert_eq!(found, Some("192.0.2.33".parse().unwrap()), "{prefix:?}");
            assert_eq!(prefix.translated("2001:db9::".parse().unwrap()), None);
        }
        for wrong in [
            "",
            "x",
            "10.0.0.0/8",
            "2001:db8::/33",
            "2001:db8::1/96",
            "2001:db8::",
        ] {
            assert_eq!(
                wrong.parse::<Nat64Prefix>(),
                Err(InvalidNat64Prefix),
                "{wrong}"
            );
        }
        let target = address("2606:4700:64::10.0.0.1");
        let mut rules = Rules::default();
        assert!(rules.allow(&target), "nothing is known of it");
        rules.nat64 = vec!["2606:4700:64::/96".parse().unwrap()];
        assert!(!rules.allow(&target));
        assert!(rules.allow(&address("2606:4700:64::1.1.1.1")));
    }
}
