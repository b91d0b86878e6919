//! TCP ports of the proxy that lead to its client: paths of requests, capsules, and the rules of
//! the operator.
//!
//! The client asks for a port with an extended CONNECT request (`mpquic-tcp-listen`). On its
//! stream, the proxy tells of each connection to the port with a capsule. The client takes the
//! connection with a request of its own (`mpquic-tcp-accept`), whose stream carries the bytes, or
//! refuses the connection with a capsule.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::bound::{put_peer, take_peer};
use crate::capsule::{put_varint, take_varint};
use crate::target::percent_decode;

/// Capsule of the proxy: a connection waits. Number of the connection, and its source.
pub(crate) const WAITING: u64 = 0x2d70_7101;
/// Capsule of the client: the connection with this number gets a reset.
pub(crate) const REFUSED: u64 = 0x2d70_7102;

const LISTEN: &str = "/.well-known/mpquic/tcp-listen/";
const ACCEPT: &str = "/.well-known/mpquic/tcp-accept/";

/// The path of a request for a port; without an address, on all addresses of the proxy.
pub(crate) fn listen_path(address: Option<IpAddr>, port: u16) -> String {
    let address = match address {
        None => "%2A".to_owned(),
        Some(address) => address.to_string().replace(':', "%3A"),
    };
    format!("{LISTEN}{address}/{port}/")
}

/// The path of a request for a connection.
pub(crate) fn accept_path(number: u64) -> String {
    format!("{ACCEPT}{number}/")
}

/// A number without a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// Where a request wants a port. `None` for another path, an unknown address, and port 0.
pub(crate) fn from_listen_path(path: &str) -> Option<SocketAddr> {
    let rest = path.strip_prefix(LISTEN)?.strip_suffix('/')?;
    let (address, port) = rest.split_once('/')?;
    let port = number::<u16>(port).filter(|port| *port > 0)?;
    let address: IpAddr = match &*percent_decode(address)? {
        "*" => Ipv6Addr::UNSPECIFIED.into(),
        address => address.parse().ok()?,
    };
    Some(SocketAddr::new(address, port))
}

/// The number of the connection that a request wants.
pub(crate) fn from_accept_path(path: &str) -> Option<u64> {
    number(path.strip_prefix(ACCEPT)?.strip_suffix('/')?)
}

/// A capsule on the stream of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Waiting(u64, SocketAddr),
    Refused(u64),
}

impl Told {
    pub(crate) fn to_capsule(self) -> Bytes {
        let mut value = BytesMut::new();
        let kind = match self {
            Self::Waiting(number, from) => {
                put_varint(&mut value, number);
                put_peer(&mut value, from);
                WAITING
            }
            Self::Refused(number) => {
                put_varint(&mut value, number);
                REFUSED
            }
        };
        let mut capsule = BytesMut::with_capacity(value.len() + 8);
        put_varint(&mut capsule, kind);
        put_varint(&mut capsule, value.len() as u64);
        capsule.put_slice(&value);
        capsule.freeze()
    }

    /// `None` for another type, and for a malformed capsule.
    pub(crate) fn parse(kind: u64, value: &[u8]) -> Option<Self> {
        let mut rest = value;
        let number = take_varint(&mut rest)?;
        let told = match kind {
            WAITING => Self::Waiting(number, take_peer(&mut rest)?),
            REFUSED => Self::Refused(number),
            _ => return None,
        };
        rest.is_empty().then_some(told)
    }
}

/// Allows a user of a proxy to have ports of the proxy that lead to its client.
///
/// ```
/// use mpquic_proxy::ReverseRule;
///
/// let rule: ReverseRule = "alice=8000-8099".parse()?;
/// assert!(rule.allows(Some("alice"), 8080) && !rule.allows(Some("bob"), 8080));
/// assert!("22".parse::<ReverseRule>()?.allows(None, 22));
/// # Ok::<_, mpquic_proxy::InvalidReverseRule>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReverseRule {
    user: Option<String>,
    ports: RangeInclusive<u16>,
}

/// A text that is no [`ReverseRule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected PORT, FIRST-LAST, USER=PORT or USER=FIRST-LAST, such as alice=8000-8099")]
pub struct InvalidReverseRule;

impl ReverseRule {
    /// True if the user may have the port. A rule without a user is for everybody.
    pub fn allows(&self, user: Option<&str>, port: u16) -> bool {
        self.ports.contains(&port) && (self.user.is_none() || self.user.as_deref() == user)
    }

    /// The user that the rule names.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl FromStr for ReverseRule {
    type Err = InvalidReverseRule;

    fn from_str(text: &str) -> Result<Self, InvalidReverseRule> {
        let (user, ports) = match text.rsplit_once('=') {
            Some(("", _)) => return Err(InvalidReverseRule),
            Some((user, ports)) => (Some(user.to_owned()), ports),
            None => (None, text),
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text| number::<u16>(text).filter(|port| *port > 0);
        let ports = port(first).zip(port(last)).ok_or(InvalidReverseRule)?;
        if ports.0 <= ports.1 {
            Ok(Self {
                user,
                ports: ports.0..=ports.1,
            })
        } else {
            Err(InvalidReverseRule)
        }
    }
}

impl fmt::Display for ReverseRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}=")?;
        }
        match (self.ports.start(), self.ports.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in ["1", "80-90", "alice=443", "a=b=1-65535"] {
            let rule: ReverseRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        let wrong = [
            "", "=1", "alice=", "0", "2-1", "+1", "a=-", "1-2-3", "65536", "alice",
        ];
        for text in wrong {
            assert_eq!(
                text.parse::<ReverseRule>(),
                Err(InvalidReverseRule),
                "{text}"
            );
        }
        let rule: ReverseRule = "alice=80-90".parse().unwrap();
        assert!(rule.allows(Some("alice"), 80) && rule.allows(Some("alice"), 90));
        assert!(!rule.allows(Some("alice"), 91) && !rule.allows(Some("bob"), 80));
        assert!(!rule.allows(None, 80));
    }

    #[test]
    fn paths_are_read_as_they_are_written() {
        for (address, expected) in [
            (None, "[::]:80"),
            (Some("192.0.2.1"), "192.0.2.1:80"),
            (Some("2001:db8::1"), "[2001:db8::1]:80"),
        ] {
            let path = listen_path(address.map(|address| address.parse().unwrap()), 80);
            assert_eq!(from_listen_path(&path), Some(expected.parse().unwrap()));
        }
        assert_eq!(from_accept_path(&accept_path(7)), Some(7));
        for wrong in [
            "/.well-known/mpquic/tcp-listen/%2A/0/",
            "/.well-known/mpquic/tcp-listen/%2A/80",
            "/.well-known/mpquic/tcp-listen/name.example/80/",
            "/.well-known/mpquic/tcp-listen/%2A/+80/",
            "/.well-known/mpquic/tcp-listen/80/",
            "/.well-known/mpquic/tcp-accept/7/",
            "/",
        ] {
            assert_eq!(from_listen_path(wrong), None, "{wrong}");
        }
        for wrong in [
            "/.well-known/mpquic/tcp-accept/-1/",
            "/.well-known/mpquic/tcp-accept/1",
        ] {
            assert_eq!(from_accept_path(wrong), None);
        }
    }

    #[test]
    fn capsules_are_read_as_they_are_written() {
        let from = "192.0.2.1:5555".parse().unwrap();
        for told in [Told::Waiting(70, from), Told::Refused(3)] {
            let capsule = told.to_capsule();
            let mut rest = &capsule[..];
            let kind = take_varint(&mut rest).unwrap();
            assert_eq!(take_varint(&mut rest), Some(rest.len() as u64));
            assert_eq!(Told::parse(kind, rest), Some(told));
            assert_eq!(Told::parse(kind, &rest[..rest.len() - 1]), None);
            assert_eq!(Told::parse(kind, &[rest, &[0]].concat()), None);
            assert_eq!(Told::parse(7, rest), None);
        }
    }
}
