//! [`Local`]: where paths start, as options name it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use mpquic_tokio::InterfaceAddress;
use mpquic_tokio::path_managers::fits_interface;

/// The longest name of an interface, in bytes (IFNAMSIZ without its end).
const LONGEST_INTERFACE: usize = 15;

/// A local address or interface from which a path starts. It need not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Local {
    Address(IpAddr),
    /// A link-local address, and the name of its link.
    OnLink(Ipv6Addr, String),
    /// The name of an interface, or a pattern for names.
    Interface(String),
}

impl Local {
    /// The address; `None` for an interface.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Address(ip) => Some(*ip),
            Self::OnLink(ip, _) => Some((*ip).into()),
            Self::Interface(_) => None,
        }
    }

    /// True if this address of an interface is meant.
    pub(crate) fn is(&self, at: &InterfaceAddress) -> bool {
        match self {
            Self::Address(ip) => at.ip == *ip,
            Self::OnLink(ip, link) => at.ip == *ip && at.name == *link,
            Self::Interface(name) => fits_interface(name, &at.name),
        }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => write!(f, "{ip}"),
            Self::OnLink(ip, link) => write!(f, "{ip}%{link}"),
            Self::Interface(name) => f.write_str(name),
        }
    }
}

/// The name of an interface.
pub(crate) fn parse_interface(text: &str) -> Result<String, String> {
    match parse_local(text)? {
        Local::Interface(name) => Ok(name),
        Local::Address(_) | Local::OnLink(..) => {
            Err("expected the name of an interface, not an address".to_owned())
        }
    }
}

/// An address or the name of an interface. A link-local address may name its link, as in
/// `fe80::1%eth0`, `fe80::1%25eth0` (RFC 6874) and `fe80::1%2`.
pub(crate) fn parse_local(text: &str) -> Result<Local, String> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    parse_among(text, &interfaces)
}

fn parse_among(text: &str, interfaces: &[if_addrs::Interface]) -> Result<Local, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let bare = bare.unwrap_or(text);
    let (address, link) = match bare.split_once('%') {
        Some((address, link)) => (address, Some(link)),
        None => (bare, None),
    };
    let listed = || {
        let addresses = interfaces
            .iter()
            .map(|interface| format!("{} ({})", interface.ip(), interface.name));
        addresses.collect::<Vec<_>>().join(", ")
    };
    let Ok(ip) = address.parse::<IpAddr>() else {
        let is_there = interfaces.iter().any(|interface| interface.name == text);
        return if is_there || may_be_interface(text) {
            Ok(Local::Interface(text.to_owned()))
        } else {
            Err(format!(
                "neither an address nor the name of an interface; there are: {}",
                listed()
            ))
        };
    };
    match (ip.to_canonical(), link) {
        (IpAddr::V6(ip), link) if ip.is_unicast_link_local() => on_link(ip, link, interfaces),
        (_, Some(_)) => Err("only a link-local address has the name of a link".to_owned()),
        (ip, None) if is_for_many(ip) => Err(format!(
            "not an address of one machine; there are: {}",
            listed()
        )),
        (ip, None) => Ok(Local::Address(ip)),
    }
}

/// A link-local address, and the link of the address, present or absent. Without the link's name,
/// the link with this address counts.
fn on_link(
    ip: Ipv6Addr,
    link: Option<&str>,
    interfaces: &[if_addrs::Interface],
) -> Result<Local, String> {
    let named = |number: &str| {
        let number: u32 = number.parse().ok()?;
        let mut interfaces = interfaces.iter();
        let found = interfaces.find(|interface| interface.index == Some(number))?;
        Some(found.name.clone())
    };
    let is_there = |name: &str| interfaces.iter().any(|interface| interface.name == name);
    let name = match link {
        Some(link) => {
            let encoded = link.strip_prefix("25").filter(|name| !name.is_empty());
            let all = [encoded, Some(link)].into_iter().flatten();
            let there = all.clone().find(|name| is_there(name)).map(str::to_owned);
            let numbered = || all.clone().find_map(named);
            let absent = || encoded.or(Some(link)).filter(|name| may_be_interface(name));
            let name = there.or_else(numbered);
            name.or_else(|| absent().map(str::to_owned))
        }
        None => {
            let mut having = interfaces.iter().filter(|interface| interface.ip() == ip);
            let only = having.next().filter(|_| having.next().is_none());
            only.map(|interface| interface.name.clone())
        }
    };
    name.map(|name| Local::OnLink(ip, name))
        .ok_or_else(|| format!("{ip} is a link-local address: name its link, as in {ip}%eth0"))
}

/// True for addresses that no machine has for itself.
fn is_for_many(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

/// True if an interface can have this name. The interface need not exist yet.
fn may_be_interface(name: &str) -> bool {
    let is_dotted = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    // The text looks like an address.
    let is_like_address = name.contains('.') && name.bytes().all(is_dotted);
    let is_strange =
        |c: char| c == '/' || c == ':' || c == '%' || c.is_whitespace() || c.is_control();
    let is_short = cfg!(windows) || name.len() <= LONGEST_INTERFACE;
    !name.is_empty() && is_short && !is_like_address && !name.contains(is_strange)
}

#[cfg(test)]
mod tests {
    use if_addrs::{IfAddr, IfOperStatus, Ifv4Addr, Ifv6Addr, Interface};

    use super::*;

    fn interface(name: &str, index: u32, ip: &str) -> Interface {
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
            index: Some(index),
            oper_status: IfOperStatus::Up,
            is_p2p: false,
        }
    }

    #[test]
    fn a_link_local_address_is_on_a_link_in_every_spelling() {
        let interfaces = [
            interface("eth0", 2, "fe80::1"),
            interface("25g", 3, "fe80::2"),
            interface("eth1", 4, "fe80::2"),
        ];
        let parse = |text: &str| parse_among(text, &interfaces);
        let on = |ip: &str, link: &str| Ok(Local::OnLink(ip.parse().unwrap(), link.to_owned()));
        for text in [
            "fe80::1",
            "fe80::1%eth0",
            "fe80::1%25eth0",
            "fe80::1%2",
            "fe80::1%252",
            "[fe80::1]",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]",
        ] {
            assert_eq!(parse(text), on("fe80::1", "eth0"), "{text}");
        }
        assert_eq!(parse("fe80::2%25g"), on("fe80::2", "25g"));
        assert_eq!(parse("fe80::2%2525g"), on("fe80::2", "25g"));
        // Links come and go.
        assert_eq!(parse("fe80::9%wwan0"), on("fe80::9", "wwan0"));
        assert_eq!(parse("fe80::9%25wwan0"), on("fe80::9", "wwan0"));
        let told = "fe80::2 is a link-local address: name its link, as in fe80::2%eth0";
        for text in ["fe80::2", "fe80::2%", "fe80::2%a/b"] {
            assert_eq!(parse(text).unwrap_err(), told, "{text}");
        }
        let other = "only a link-local address has the name of a link";
        for text in ["2001:db8::1%eth0", "192.0.2.1%eth0"] {
            assert_eq!(parse(text).unwrap_err(), other, "{text}");
        }
        let told = on("fe80::1", "eth0").unwrap().to_string();
        assert_eq!(parse(&told), on("fe80::1", "eth0"));
    }

    #[test]
    fn paths_start_from_addresses_and_interfaces_now_or_later() {
        let interfaces = [interface("lo", 1, "127.0.0.1")];
        let parse = |text: &str| parse_among(text, &interfaces);
        for (text, ip) in [
            ("127.0.0.1", "127.0.0.1"),
            ("192.0.2.77", "192.0.2.77"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:192.0.2.77", "192.0.2.77"),
        ] {
            assert_eq!(
                parse(text),
                Ok(Local::Address(ip.parse().unwrap())),
                "{text}"
            );
        }
        for absent in ["lo", "wwan0", "eth0.100", "enx0123456789ab", "100"] {
            assert_eq!(parse(absent), Ok(Local::Interface(absent.to_owned())));
            assert_eq!(parse_interface(absent).as_deref(), Ok(absent));
        }
        let told = parse_interface("127.0.0.9").unwrap_err();
        assert_eq!(told, "expected the name of an interface, not an address");
        let listed = "there are: 127.0.0.1 (lo)";
        for wrong in [
            "192.0.2.777",
            "2001:db8::g",
            "a name",
            "a/b",
            "",
            "sixteen-letters-",
            "eth0%1",
        ] {
            let told = parse(wrong).unwrap_err();
            let neither = "neither an address nor the name of an interface; ";
            assert_eq!(told, format!("{neither}{listed}"), "{wrong}");
        }
        for many in ["224.0.0.1", "255.255.255.255", "ff02::1"] {
            let told = parse(many).unwrap_err();
            assert_eq!(told, format!("not an address of one machine; {listed}"));
        }
    }

    #[test]
    fn an_option_means_an_address_or_all_of_an_interface() {
        let any = mpquic_tokio::interface_addresses().unwrap().remove(0);
        let one = |name: &str, ip: &str| {
            let mut one = any.clone();
            (one.name, one.ip) = (name.to_owned(), ip.parse().unwrap());
            one
        };
        let listed = [
            one("eth0", "192.0.2.1"),
            one("eth0", "fe80::1"),
            one("wlan0", "fe80::1"),
        ];
        let is = |text: &str| {
            let local = parse_among(text, &[]).unwrap();
            listed.each_ref().map(|at| local.is(at))
        };
        assert_eq!(is("eth0"), [true, true, false]);
        assert_eq!(is("wlan0"), [false, false, true]);
        assert_eq!(is("e*"), [true, true, false]);
        assert_eq!(is("?????"), [false, false, true]);
        assert_eq!(is("none"), [false; 3]);
        assert_eq!(is("192.0.2.1"), [true, false, false]);
        assert_eq!(is("fe80::1%wlan0"), [false, false, true]);
    }
}
