//! [`Target`]: where a flow goes, as requests name it.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// The port of DNS. DNS clients send each query from a new port, so each query makes a new flow.
pub(crate) const DNS: u16 = 53;
/// Longest name of a host, bytes (RFC 1035 section 2.3.4, as text).
const MAX_NAME: usize = 253;
/// What comes before host and port in the path of a CONNECT-UDP request (RFC 9298 section 2): the
/// URI template that everybody knows without being told.
const UDP_PREFIX: &str = "/.well-known/masque/udp/";

/// A host and a port.
///
/// ```
/// use mpquic_proxy::Target;
///
/// let target: Target = "[2001:db8::1]:443".parse()?;
/// assert_eq!(target.udp_path(), "/.well-known/masque/udp/2001%3Adb8%3A%3A1/443/");
/// assert_eq!(Target::from_udp_path(&target.udp_path())?, target);
/// assert!("example.org".parse::<Target>().is_err());
/// # Ok::<_, mpquic_proxy::InvalidTarget>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    host: Host,
    port: u16,
}

/// A host, by name or address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name to look up: letters, digits, `-`, `_` and `.`, at most 253 of them.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// What is no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidTarget {
    /// The host is empty, too long, or has characters of no host.
    #[error("no name or address of a host")]
    Host,
    /// The port is missing, or is not from 1 to 65535.
    #[error("expected a port from 1 to 65535")]
    Port,
    /// The path is none of the URI template `/.well-known/masque/udp/{target_host}/{target_port}/`.
    #[error("not of the template /.well-known/masque/udp/{{target_host}}/{{target_port}}/")]
    Path,
}

impl Target {
    /// A host and a port.
    ///
    /// # Errors
    ///
    /// If the port is 0.
    pub fn new(host: Host, port: u16) -> Result<Self, InvalidTarget> {
        match port {
            0 => Err(InvalidTarget::Port),
            port => Ok(Self { host, port }),
        }
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path of a CONNECT-UDP request for it (RFC 9298 section 3.4).
    pub fn udp_path(&self) -> String {
        let host = match &self.host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string().replace(':', "%3A"),
        };
        format!("{UDP_PREFIX}{host}/{}/", self.port)
    }

    /// The target in the path of a CONNECT-UDP request.
    ///
    /// # Errors
    ///
    /// For a path of another form, and for an invalid host or port.
    pub fn from_udp_path(path: &str) -> Result<Self, InvalidTarget> {
        let rest = path.strip_prefix(UDP_PREFIX).ok_or(InvalidTarget::Path)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.split_once('/').ok_or(InvalidTarget::Path)?;
        let host = percent_decode(host).ok_or(InvalidTarget::Host)?;
        Self::new(host.parse()?, parse_port(port)?)
    }
}

impl From<SocketAddr> for Target {
    /// Port 0 leads nowhere, but does no harm: connecting to it fails.
    fn from(address: SocketAddr) -> Self {
        Self {
            host: Host::Address(address.ip()),
            port: address.port(),
        }
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    /// `HOST:PORT`; an IPv6 address stands in brackets.
    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidTarget::Port)?;
        let bracketed = host.strip_prefix('[').map(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) => {
                let address = address.ok_or(InvalidTarget::Host)?;
                let address: Ipv6Addr = address.parse().map_err(|_| InvalidTarget::Host)?;
                Host::Address(address.into())
            }
            // Without brackets it is not clear where an IPv6 address ends.
            None if host.contains(':') => return Err(InvalidTarget::Host),
            None => host.parse()?,
        };
        Self::new(host, parse_port(port)?)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

impl FromStr for Host {
    type Err = InvalidTarget;

    /// An address, without brackets, or a name.
    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let has_labels = text.bytes().any(|byte| byte != b'.');
        if has_labels && text.len() <= MAX_NAME && text.bytes().all(is_allowed) {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err(InvalidTarget::Host)
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

fn parse_port(text: &str) -> Result<u16, InvalidTarget> {
    // The parser would take a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidTarget::Port);
    }
    text.parse().map_err(|_| InvalidTarget::Port)
}

/// `None` for a cut escape, or one outside of ASCII, as hosts are.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if next != '%' {
            decoded.push(next);
            continue;
        }
        let high = rest.next()?.to_digit(16)?;
        let low = rest.next()?.to_digit(16)?;
        let value = u8::try_from(high << 4 | low).ok()?;
        decoded.write_char(char::from(value)).ok()?;
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_as_they_are_read() {
        for text in [
            "example.org:443",
            "192.0.2.6:1",
            "[2001:db8::42]:65535",
            "a_b-c.:80",
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            assert_eq!(Target::from_udp_path(&target.udp_path()), Ok(target));
        }
    }

    #[test]
    fn invalid_target_is_refused() {
        use InvalidTarget::{Host, Port};
        let long = format!("{}:1", "a".repeat(254));
        for (text, error) in [
            ("", Port),
            ("a", Port),
            (":1", Host),
            (".:1", Host),
            ("a:", Port),
            ("a:0", Port),
            ("a:+1", Port),
            ("a:65536", Port),
            ("2001:db8::1:443", Host),
            ("[2001:db8::1:443", Host),
            ("[192.0.2.1]:443", Host),
            ("[fe80::1%eth0]:443", Host),
            ("a b:1", Host),
            ("a/b:1", Host),
            ("user@a:1", Host),
            ("ä:1", Host),
            (&long, Host),
        ] {
            assert_eq!(text.parse::<Target>(), Err(error), "{text}");
        }
    }

    /// The examples of RFC 9298 section 3, and invalid paths.
    #[test]
    fn paths_are_those_of_the_template() {
        let of = |path: &str| Target::from_udp_path(path).map(|target| target.to_string());
        for (path, expected) in [
            ("/.well-known/masque/udp/192.0.2.6/443/", "192.0.2.6:443"),
            (
                "/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/",
                "[2001:db8::42]:443",
            ),
            ("/.well-known/masque/udp/example%2eorg/53", "example.org:53"),
        ] {
            assert_eq!(of(path).as_deref(), Ok(expected));
        }
        for (path, error) in [
            ("/", InvalidTarget::Path),
            ("/.well-known/masque/udp/", InvalidTarget::Path),
            ("/.well-known/masque/udp/a/", InvalidTarget::Path),
            ("/.well-known/masque/udp/a/1/2/", InvalidTarget::Port),
            ("/.well-known/masque/udp/a/1//", InvalidTarget::Port),
            ("/.well-known/masque/udp//1/", InvalidTarget::Host),
            ("/.well-known/masque/udp/a%2/1/", InvalidTarget::Host),
            ("/.well-known/masque/udp/a%00/1/", InvalidTarget::Host),
            ("/.well-known/masque/udp/a%2Fb/1/", InvalidTarget::Host),
            ("/.well-known/masque/ip/a/1/", InvalidTarget::Path),
        ] {
            assert_eq!(of(path), Err(error), "{path}");
        }
    }
}
