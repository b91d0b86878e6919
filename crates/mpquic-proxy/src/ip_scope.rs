//! [`IpScope`]: what a CONNECT-IP request is for (RFC 9484 section 3).

use std::net::IpAddr;

use ipnet::IpNet;

use crate::ip::header::{ICMP, ICMPV6};
use crate::ip_capsule::Route;
use crate::target::percent_decode;

/// The default template is `/.well-known/masque/ip/{target}/{ipproto}/`.
const PREFIX: &str = "/.well-known/masque/ip/";
/// The path of a request that is for everything.
pub(crate) const EVERYTHING: &str = "/.well-known/masque/ip/*/*/";

/// Packets that a request allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpScope {
    /// `None` for any network.
    network: Option<IpNet>,
    /// `None` for any protocol.
    protocol: Option<u8>,
}

/// What is no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvalidScope {
    /// The path is none of the template.
    Path,
    /// Target or protocol are not valid.
    Variable,
    /// A host's name, which is not looked up here.
    Name,
}

impl IpScope {
    /// What a path asks for.
    pub(crate) fn from_path(path: &str) -> Result<Self, InvalidScope> {
        let rest = path.strip_prefix(PREFIX).ok_or(InvalidScope::Path)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (target, protocol) = rest.split_once('/').ok_or(InvalidScope::Path)?;
        let decode = |text| percent_decode(text).ok_or(InvalidScope::Variable);
        let network = match &*decode(target)? {
            "*" => None,
            "" => return Err(InvalidScope::Variable),
            text => Some(parse_network(text)?),
        };
        let protocol = match &*decode(protocol)? {
            "*" => None,
            // The parser would take a sign.
            text if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(text.parse().map_err(|_| InvalidScope::Variable)?)
            }
            _ => return Err(InvalidScope::Variable),
        };
        Ok(Self { network, protocol })
    }

    /// True for an allowed destination.
    pub(crate) fn allows(&self, destination: IpAddr) -> bool {
        let protocol = if destination.is_ipv4() { ICMP } else { ICMPV6 };
        self.network
            .is_none_or(|network| network.contains(&destination))
            && self.protocol.is_none_or(|only| only == protocol)
    }

    /// The route of one IP version with ICMP.
    pub(crate) fn route(&self, is_v4: bool) -> Option<Route> {
        let everything = if is_v4 {
            IpNet::V4(ipnet::Ipv4Net::default())
        } else {
            IpNet::V6(ipnet::Ipv6Net::default())
        };
        let network = self.network.unwrap_or(everything);
        let protocol = if is_v4 { ICMP } else { ICMPV6 };
        let is_wanted = self.protocol.is_none_or(|only| only == protocol);
        // `broadcast` is the last address of an IPv4 network.
        (is_wanted && network.addr().is_ipv4() == is_v4).then_some(Route {
            first: network.network(),
            last: network.broadcast(),
            protocol,
        })
    }
}

fn parse_network(text: &str) -> Result<IpNet, InvalidScope> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    match text.parse::<IpNet>() {
        // RFC 9484 section 3: bits behind the prefix are zero.
        Ok(network) if network.trunc() == network => Ok(network),
        Ok(_) => Err(InvalidScope::Variable),
        Err(_) if text.contains(['/', ':']) => Err(InvalidScope::Variable),
        Err(_) => Err(InvalidScope::Name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_may_be_reached() {
        let everything = IpScope::from_path(EVERYTHING).unwrap();
        assert_eq!(
            IpScope::from_path("/.well-known/masque/ip/%2A/%2a"),
            Ok(everything)
        );
        for (path, inside, outside) in [
            ("192.0.2.0%2F24/1", "192.0.2.9", "192.0.3.1"),
            ("192.0.2.7/*/", "192.0.2.7", "192.0.2.8"),
            ("2001%3Adb8%3A%3A/58", "2001:db8::", "2001:db8::1"),
            ("*/1", "192.0.2.1", "2001:db8::1"),
            ("*/58", "2001:db8::1", "192.0.2.1"),
            ("::%2F0/*", "::1", "127.0.0.1"),
        ] {
            let scope = IpScope::from_path(&format!("{PREFIX}{path}")).unwrap();
            for (address, is_inside) in [(inside, true), (outside, false)] {
                let address: IpAddr = address.parse().unwrap();
                assert_eq!(scope.allows(address), is_inside, "{path} {address}");
                assert!(everything.allows(address));
                let route = scope.route(address.is_ipv4());
                let is_routed = route.is_some_and(|r| r.first <= address && address <= r.last);
                assert_eq!(is_routed, is_inside, "{path} {address}");
            }
        }
    }

    #[test]
    fn invalid_scope_is_refused() {
        use InvalidScope::{Name, Path, Variable};
        for (path, error) in [
            ("/", Path),
            ("/.well-known/masque/udp/a/1/", Path),
            ("/.well-known/masque/ip/*", Path),
            ("/.well-known/masque/ip//1/", Variable),
            ("/.well-known/masque/ip/*/256/", Variable),
            ("/.well-known/masque/ip/*/+1/", Variable),
            ("/.well-known/masque/ip/*/icmp/", Variable),
            ("/.well-known/masque/ip/192.0.2.1%2F24/*/", Variable),
            ("/.well-known/masque/ip/192.0.2.0%2F33/*/", Variable),
            ("/.well-known/masque/ip/%2/*/", Variable),
            ("/.well-known/masque/ip/example.org/1/", Name),
        ] {
            assert_eq!(IpScope::from_path(path), Err(error), "{path}");
        }
    }
}
