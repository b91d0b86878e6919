//! Servers as users name them: hosts of URLs, and addresses with ports.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A host of a URL that is an IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) ip: IpAddr,
    /// Number of the link on which a link-local address is good.
    scope: u32,
}

/// Why an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is wrong as it is written.
    Wrong(String),
    /// Its link is absent now.
    NoLink(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(text) | Self::NoLink(text) => f.write_str(text),
        }
    }
}

impl Literal {
    pub(crate) fn with_port(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(_) => SocketAddr::new(self.ip, port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope).into(),
        }
    }
}

/// Parses the host of a URL as an address; `None` if it is a name. A link-local address is followed
/// by its link: `fe80::1%25eth0` (RFC 6874), or `fe80::1%eth0`. IPv4 in IPv6 form becomes IPv4.
pub(crate) fn literal(host: &str) -> Result<Option<Literal>, Unusable> {
    let host = bare(host);
    let (ip, zone) = match host.split_once('%') {
        Some((ip, zone)) => (ip, Some(zone)),
        None => (host, None),
    };
    let Ok(ip) = ip.parse::<IpAddr>() else {
        return Ok(None);
    };
    let ip = ip.to_canonical();
    let scope = match (zone, ip) {
        (None, IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
            return Err(Unusable::Wrong(format!(
                "{ip} is a link-local address: name its link, as in [{ip}%25eth0]"
            )));
        }
        (None, _) => 0,
        (Some(zone), IpAddr::V6(v6)) => scope(v6, zone)?,
        (Some(_), IpAddr::V4(_)) => {
            let told = format!("{host}: an IPv4 address takes no name of a link");
            return Err(Unusable::Wrong(told));
        }
    };
    Ok(Some(Literal { ip, scope }))
}

/// The number of a link.
fn scope(ip: Ipv6Addr, zone: &str) -> Result<u32, Unusable> {
    let encoded = zone.strip_prefix("25").filter(|name| !name.is_empty());
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let number = |name: &str| {
        let mut named = interfaces.iter().filter(|interface| interface.name == name);
        let index = named.find_map(|interface| interface.index);
        let numbered = |number: &u32| interfaces.iter().any(|it| it.index == Some(*number));
        index.or_else(|| name.parse().ok().filter(numbered))
    };
    let found = encoded.and_then(number).or_else(|| number(zone));
    found.ok_or_else(|| {
        let name = encoded.unwrap_or(zone);
        let told =
            format!("{ip}: there is no link `{name}`; `mpquic paths` lists the links by name");
        // A link with this name may come, with a number that nobody knows yet.
        match name.parse::<u32>() {
            Ok(_) => Unusable::Wrong(told),
            Err(_) => Unusable::NoLink(told),
        }
    })
}

/// The name of the link with this number.
pub(crate) fn link_name(number: u32) -> Option<String> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut interfaces = interfaces.into_iter();
    let found = interfaces.find(|interface| interface.index == Some(number))?;
    Some(found.name)
}

/// Where paths over an interface start that lead to servers on its link; any port.
pub(crate) fn link_local_addresses(name: &str) -> Vec<SocketAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
    let addresses = interfaces.filter_map(|interface| match interface.ip() {
        IpAddr::V6(ip) if interface.name == name && ip.is_unicast_link_local() => {
            Some(SocketAddrV6::new(ip, 0, 0, interface.index?).into())
        }
        _ => None,
    });
    addresses.collect()
}

/// The name that a server's certificate has to be good for.
pub(crate) fn certified_name(host: &str) -> Cow<'_, str> {
    match literal(host) {
        Ok(Some(literal)) => literal.ip.to_string().into(),
        Ok(None) | Err(_) => bare(host).into(),
    }
}

/// Without the link of a link-local address, which means nothing to others (RFC 6874 section 4).
pub(crate) fn without_link(authority: &str) -> Cow<'_, str> {
    match authority.split_once('%') {
        Some((address, rest)) if address.starts_with('[') => {
            let port = rest.split_once(']').map_or("", |(_, port)| port);
            format!("{address}]{port}").into()
        }
        _ => authority.into(),
    }
}

/// An address with its port, as `--server-addr` and `--listen` take it.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let expected =
        "expected ADDR:PORT, as in 192.0.2.1:443, [2001:db8::1]:443 or [fe80::1%eth0]:443";
    let (host, port) = text.rsplit_once(':').ok_or(expected)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let port = parse_port(port).ok_or(expected)?;
    let literal = literal(host).map_err(|error| error.to_string())?;
    let literal = literal.ok_or(expected)?;
    if host.contains(':') == is_bracketed {
        Ok(literal.with_port(port))
    } else {
        Err(expected.to_owned())
    }
}

/// RFC 3986 section 3.2.3: a port is written in digits.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface, and its number.
    fn loopback() -> (String, u32) {
        let interfaces = if_addrs::get_if_addrs().unwrap();
        let loopback = interfaces.into_iter().find(|one| one.is_loopback());
        let loopback = loopback.unwrap();
        (loopback.name, loopback.index.unwrap())
    }

    #[test]
    fn a_link_may_be_named_in_every_spelling() {
        let (name, number) = loopback();
        for host in [
            format!("[fe80::1%25{name}]"),
            format!("[fe80::1%{name}]"),
            format!("[fe80::1%25{number}]"),
            format!("[fe80::1%{number}]"),
            format!("fe80::1%{name}"),
        ] {
            let literal = literal(&host).unwrap().unwrap();
            let expected = SocketAddrV6::new("fe80::1".parse().unwrap(), 5, 0, number);
            assert_eq!(literal.with_port(5), expected.into(), "{host}");
            assert_eq!(certified_name(&host), "fe80::1");
            let server = if host.starts_with('[') {
                format!("{host}:5")
            } else {
                format!("[{host}]:5")
            };
            assert_eq!(parse_address(&server), Ok(expected.into()));
        }
        for (host, told) in [
            (
                "[fe80::1]",
                "fe80::1 is a link-local address: name its link, as in [fe80::1%25eth0]",
            ),
            (
                "[fe80::1%25no-such]",
                "fe80::1: there is no link `no-such`; `mpquic paths` lists the links by name",
            ),
            (
                "[fe80::1%4294967295]",
                "fe80::1: there is no link `4294967295`; `mpquic paths` lists the links by name",
            ),
        ] {
            assert_eq!(literal(host).unwrap_err().to_string(), told);
        }
        let absent = literal("[fe80::1%25no-such]").unwrap_err();
        assert!(matches!(absent, Unusable::NoLink(_)), "it may come");
        // No link has the number 0.
        for number in ["0", "4294967295", "254294967295"] {
            let absent = literal(&format!("[fe80::1%{number}]")).unwrap_err();
            assert!(matches!(absent, Unusable::Wrong(_)), "{number}: {absent}");
        }
    }

    #[test]
    fn servers_are_not_told_of_links() {
        for (authority, told) in [
            ("[fe80::1%25eth0]:443", "[fe80::1]:443"),
            ("[fe80::1%eth0]", "[fe80::1]"),
            ("[2001:db8::1]:5", "[2001:db8::1]:5"),
            ("example.org", "example.org"),
        ] {
            assert_eq!(without_link(authority), told);
        }
    }

    #[test]
    fn addresses_are_told_from_names() {
        for (host, ip) in [
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ] {
            let literal = literal(host).unwrap().unwrap();
            assert_eq!(literal.with_port(1).ip(), ip.parse::<IpAddr>().unwrap());
            assert_eq!(certified_name(host), ip);
        }
        for name in ["example.org", "host", "1.2.3"] {
            assert_eq!(literal(name), Ok(None));
            assert_eq!(certified_name(name), name);
        }
    }

    #[test]
    fn addresses_have_a_port_in_digits() {
        for right in ["192.0.2.1:443", "[2001:db8::1]:5", "[::ffff:192.0.2.1]:443"] {
            let parsed = parse_address(right).unwrap();
            assert_eq!(parsed.is_ipv4(), right.contains("192"), "{right}");
        }
        for wrong in [
            "192.0.2.1",
            "192.0.2.1:",
            "192.0.2.1:+443",
            "192.0.2.1:65536",
            "[192.0.2.1]:443",
            "2001:db8::1:443",
            "example.org:443",
            "",
        ] {
            let told = parse_address(wrong).unwrap_err();
            assert!(told.starts_with("expected ADDR:PORT"), "{wrong}: {told}");
        }
    }
}
