//! SOCKS 5 (RFC 1928) as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::target::{Host, Target};

const VERSION: u8 = 5;
/// No authentication: everybody who reaches an entrance may use it.
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHODS: u8 = 0xff;

/// The command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Connect,
    UdpAssociate,
}

/// A reply's code (RFC 1928 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TtlExpired = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// A parsed message with its length.
pub(crate) type Parsed<T> = Option<(T, usize)>;

/// Bytes of a client other than SOCKS 5, or a request for an unknown service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Close without an answer: the client speaks another protocol.
    Silently,
    /// Answer with these bytes.
    With(Reply),
}

/// The client's greeting: true if the client accepts no authentication. `None` for an incomplete
/// greeting.
pub(crate) fn greeting(bytes: &[u8]) -> Result<Parsed<bool>, Refused> {
    match bytes {
        [version, ..] if *version != VERSION => Err(Refused::Silently),
        [_, count, methods @ ..] if methods.len() >= usize::from(*count) => {
            let methods = &methods[..usize::from(*count)];
            let can = methods.contains(&NO_AUTHENTICATION);
            Ok(Some((can, 2 + methods.len())))
        }
        _ => Ok(None),
    }
}

/// The answer to a greeting.
pub(crate) fn method(can: bool) -> [u8; 2] {
    let method = if can {
        NO_AUTHENTICATION
    } else {
        NO_ACCEPTABLE_METHODS
    };
    [VERSION, method]
}

/// A request; `None` for an incomplete request. The target of UDP ASSOCIATE announces the client's
/// sending address. Port 0, the usual announcement of clients before their first packet, gives no
/// target.
pub(crate) fn request(bytes: &[u8]) -> Result<Parsed<(Command, Option<Target>)>, Refused> {
    let [version, command, _, address @ ..] = bytes else {
        return match bytes {
            [version, ..] if *version != VERSION => Err(Refused::Silently),
            _ => Ok(None),
        };
    };
    if *version != VERSION {
        return Err(Refused::Silently);
    }
    let Some((address, length)) = self::address(address)? else {
        return Ok(None);
    };
    let command = match command {
        1 => Command::Connect,
        3 => Command::UdpAssociate,
        _ => return Err(Refused::With(Reply::CommandNotSupported)),
    };
    if command == Command::Connect && address.is_none() {
        return Err(Refused::With(Reply::AddressNotSupported));
    }
    Ok(Some(((command, address), 3 + length)))
}

/// The sending port of a client at this address, by the target of the client's UDP ASSOCIATE
/// request. An announced address other than the client's tells nothing: some programs announce a
/// target, or their own address before a NAT.
pub(crate) fn sending_port(announced: Option<Target>, client: IpAddr) -> Option<u16> {
    let announced = announced?;
    let is_own = match announced.host() {
        Host::Address(ip) => {
            let ip = ip.to_canonical();
            ip.is_unspecified() || ip == client.to_canonical()
        }
        Host::Name(_) => false,
    };
    is_own.then_some(announced.port())
}

/// The longest greeting or request, bytes.
pub(crate) const MAX_MESSAGE: usize = 3 + 1 + 1 + 255 + 2;

/// The answer to a request. An IPv4 client of an IPv6 socket gets the IPv4 address.
pub(crate) fn reply(reply: Reply, bound: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![VERSION, reply as u8, 0];
    let bound = SocketAddr::new(bound.ip().to_canonical(), bound.port());
    put_address(&mut bytes, bound);
    bytes
}

/// The target of a UDP packet from a client, and the start of its payload, after at least one byte.
/// `None` for a malformed packet, or a fragment, which RFC 1928 section 7 allows to drop.
pub(crate) fn udp_packet(bytes: &[u8]) -> Option<(Target, usize)> {
    let [_, _, 0, address @ ..] = bytes else {
        return None;
    };
    let (target, length) = address_of(address)?;
    Some((target, 3 + length))
}

fn address_of(bytes: &[u8]) -> Option<(Target, usize)> {
    let (target, length) = address(bytes).ok()??;
    Some((target?, length))
}

/// The header before the payload of a UDP packet to a client.
pub(crate) fn udp_header(from: &Target) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    match from.host() {
        Host::Address(address) => put_address(&mut bytes, SocketAddr::new(*address, from.port())),
        Host::Name(name) => {
            // The length of a target's name fits into a byte.
            bytes.extend([3, name.len() as u8]);
            bytes.extend(name.bytes());
            bytes.extend(from.port().to_be_bytes());
        }
    }
    bytes
}

/// An address (RFC 1928 section 5) and its length; the target is `None` for an invalid port or
/// host.
fn address(bytes: &[u8]) -> Result<Parsed<Option<Target>>, Refused> {
    let Some((kind, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let (length, start) = match kind {
        1 => (4, 1),
        4 => (16, 1),
        3 => match rest.first() {
            Some(length) => (usize::from(*length), 2),
            None => return Ok(None),
        },
        _ => return Err(Refused::With(Reply::AddressNotSupported)),
    };
    let whole = start + length + 2;
    let Some(all) = bytes.get(start..whole) else {
        return Ok(None);
    };
    let (host, port) = all.split_at(length);
    let host = if let Ok(v4) = <[u8; 4]>::try_from(host)
        && *kind == 1
    {
        Some(Host::Address(Ipv4Addr::from(v4).into()))
    } else if let Ok(v6) = <[u8; 16]>::try_from(host)
        && *kind == 4
    {
        Some(Host::Address(Ipv6Addr::from(v6).into()))
    } else {
        let name = std::str::from_utf8(host).ok();
        // Some programs write IPv6 addresses as in URLs.
        let bare = |name: &str| {
            let inside = name.strip_prefix('[')?.strip_suffix(']')?;
            inside
                .parse::<Ipv6Addr>()
                .ok()
                .map(|v6| Host::Address(v6.into()))
        };
        name.and_then(|name| bare(name).or_else(|| name.parse().ok()))
    };
    let port = port
        .iter()
        .fold(0, |port, byte| port << 8 | u16::from(*byte));
    let target = host.and_then(|host| Target::new(host, port).ok());
    Ok(Some((target, whole)))
}

fn put_address(bytes: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.push(1);
            bytes.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes.push(4);
            bytes.extend(ip.octets());
        }
    }
    bytes.extend(address.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_name_methods() {
        assert_eq!(greeting(b"\x05\x01\x00"), Ok(Some((true, 3))));
        assert_eq!(greeting(b"\x05\x02\x02\x00more"), Ok(Some((true, 4))));
        assert_eq!(greeting(b"\x05\x01\x02"), Ok(Some((false, 3))));
        assert_eq!(greeting(b"\x05\x00"), Ok(Some((false, 2))));
        for part in [&b""[..], b"\x05", b"\x05\x02\x00"] {
            assert_eq!(greeting(part), Ok(None));
        }
        for other in [&b"\x04\x01"[..], b"GET / HTTP/1.1"] {
            assert_eq!(greeting(other), Err(Refused::Silently));
        }
    }

    #[test]
    fn requests_name_targets() {
        let cases = [
            (
                &b"\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb"[..],
                "192.0.2.1:443",
            ),
            (b"\x05\x01\x00\x03\x0bexample.org\x00\x50", "example.org:80"),
            // As sent by curl --socks5-hostname.
            (b"\x05\x01\x00\x03\x09127.0.0.1\x00\x50", "127.0.0.1:80"),
            (b"\x05\x01\x00\x03\x05[::1]\x00\x50", "[::1]:80"),
            (b"\x05\x01\x00\x03\x03::1\x00\x50", "[::1]:80"),
            (
                b"\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x35",
                "[2001:db8::1]:53",
            ),
        ];
        for (bytes, expected) in cases {
            let target = expected.parse().unwrap();
            let whole = Ok(Some(((Command::Connect, Some(target)), bytes.len())));
            assert_eq!(request(bytes), whole);
            assert_eq!(request(&[bytes, b"more"].concat()), whole);
            for length in 0..bytes.len() {
                assert_eq!(request(&bytes[..length]), Ok(None), "{length}");
            }
        }
        let associate = request(b"\x05\x03\x00\x01\0\0\0\0\0\0");
        assert_eq!(associate, Ok(Some(((Command::UdpAssociate, None), 10))));
        let with = |reply| Err(Refused::With(reply));
        let bind = request(b"\x05\x02\x00\x01\xc0\x00\x02\x01\x01\xbb");
        assert_eq!(bind, with(Reply::CommandNotSupported));
        for no_target in [
            &b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x00"[..],
            b"\x05\x01\x00\x03\x00\x00\x50",
            b"\x05\x01\x00\x03\x02a\xff\x00\x50",
            b"\x05\x01\x00\x03\x03[a]\x00\x50",
            b"\x05\x01\x00\x02",
        ] {
            assert_eq!(request(no_target), with(Reply::AddressNotSupported));
        }
        assert_eq!(request(b"\x04\x01\x00\x50"), Err(Refused::Silently));
    }

    #[test]
    fn an_announced_port_is_that_of_the_client() {
        let cases = [
            ("127.0.0.1:4660", Some(4660)),
            ("0.0.0.0:4660", Some(4660)),
            ("[::]:4660", Some(4660)),
            ("[::ffff:127.0.0.1]:4660", Some(4660)),
            ("192.0.2.1:53", None),
            ("example.org:53", None),
        ];
        for client in ["127.0.0.1", "::ffff:127.0.0.1"] {
            let client = client.parse().unwrap();
            for (announced, expected) in cases {
                let announced = announced.parse().ok();
                assert!(announced.is_some());
                assert_eq!(sending_port(announced, client), expected);
            }
            assert_eq!(sending_port(None, client), None);
        }
    }

    #[test]
    fn packets_are_read_as_they_are_written() {
        for text in ["192.0.2.1:443", "[2001:db8::1]:53", "example.org:80"] {
            let target: Target = text.parse().unwrap();
            let header = udp_header(&target);
            let packet = [&header[..], b"payload"].concat();
            assert_eq!(udp_packet(&packet), Some((target, header.len())));
            for length in 0..header.len() {
                assert_eq!(udp_packet(&packet[..length]), None, "{length}");
            }
            let fragment = [b"\0\0\x01", &packet[3..]].concat();
            assert_eq!(udp_packet(&fragment), None);
        }
    }

    #[test]
    fn replies_name_where_the_other_side_is() {
        let bound = "127.0.0.1:4660".parse().unwrap();
        let expected = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x12\x34";
        assert_eq!(reply(Reply::Succeeded, bound), expected);
        let mapped = "[::ffff:127.0.0.1]:4660".parse().unwrap();
        assert_eq!(reply(Reply::Succeeded, mapped), expected);
        let bound = "[::1]:4660".parse().unwrap();
        let expected = b"\x05\x02\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x12\x34";
        assert_eq!(reply(Reply::NotAllowed, bound), expected);
        assert_eq!(method(true), [5, 0]);
        assert_eq!(method(false), [5, 0xff]);
    }
}
