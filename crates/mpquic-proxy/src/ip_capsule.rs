//! The capsules of CONNECT-IP for addresses and routes (RFC 9484 section 4.7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::capsule::{put_varint, take_varint};

const ADDRESS_ASSIGN: u64 = 0x01;
const ADDRESS_REQUEST: u64 = 0x02;
const ROUTE_ADVERTISEMENT: u64 = 0x03;
/// Most addresses or routes in a capsule. A longer list is malformed.
const MOST: usize = 256;

/// An assigned or requested address, or network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// The answered request; 0 for none.
    pub(crate) request: u64,
    pub(crate) address: IpAddr,
    /// Bits of the network.
    pub(crate) length: u8,
}

/// A range of addresses that accept packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) first: IpAddr,
    pub(crate) last: IpAddr,
    /// The only permitted protocol; 0 for all protocols.
    pub(crate) protocol: u8,
}

/// A capsule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// All addresses from which the receiver may send.
    Assigned(Vec<Address>),
    /// Addresses that the sender requests.
    Requested(Vec<Address>),
    /// All networks that the sender can reach.
    Routes(Vec<Route>),
}

/// Why a capsule is malformed: the stream has to be reset (RFC 9297 section 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    #[error("a capsule is cut")]
    Cut,
    #[error("an IP version that is neither 4 nor 6")]
    Version,
    #[error("a prefix that is longer than its address")]
    Prefix,
    #[error("an address has bits behind its prefix")]
    Host,
    #[error("a request for no addresses")]
    NoRequest,
    #[error("a request with the number 0")]
    RequestZero,
    #[error("a range that ends before it begins")]
    Range,
    #[error("routes out of order, or several to one address")]
    Order,
    #[error("too many addresses or routes")]
    TooMany,
}

/// Reads a capsule of this type; `None` for other types.
pub(crate) fn parse(kind: u64, value: &[u8]) -> Result<Option<Told>, Malformed> {
    let told = match kind {
        ADDRESS_ASSIGN => Told::Assigned(list(value, address)?),
        ADDRESS_REQUEST => {
            let addresses = list(value, address)?;
            if addresses.is_empty() {
                return Err(Malformed::NoRequest);
            }
            if addresses.iter().any(|address| address.request == 0) {
                return Err(Malformed::RequestZero);
            }
            Told::Requested(addresses)
        }
        ROUTE_ADVERTISEMENT => {
            let routes = list(value, route)?;
            check_order(&routes)?;
            Told::Routes(routes)
        }
        _ => return Ok(None),
    };
    Ok(Some(told))
}

fn list<T>(
    mut rest: &[u8],
    read: fn(&mut &[u8]) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        if all.len() == MOST {
            return Err(Malformed::TooMany);
        }
        all.push(read(&mut rest)?);
    }
    Ok(all)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (taken, left) = rest.split_first_chunk().ok_or(Malformed::Cut)?;
    *rest = left;
    Ok(*taken)
}

fn take_address(rest: &mut &[u8], version: u8) -> Result<IpAddr, Malformed> {
    match version {
        4 => Ok(Ipv4Addr::from(take::<4>(rest)?).into()),
        6 => Ok(Ipv6Addr::from(take::<16>(rest)?).into()),
        _ => Err(Malformed::Version),
    }
}

fn address(rest: &mut &[u8]) -> Result<Address, Malformed> {
    let request = take_varint(rest).ok_or(Malformed::Cut)?;
    let [version] = take(rest)?;
    let address = take_address(rest, version)?;
    let [length] = take(rest)?;
    // The bits after the prefix are the lowest bits, and must be zero.
    let (bits, size) = number(address);
    let behind = u32::from(size.checked_sub(length).ok_or(Malformed::Prefix)?);
    if behind > 0 && bits << (128 - behind) != 0 {
        return Err(Malformed::Host);
    }
    Ok(Address {
        request,
        address,
        length,
    })
}

/// An address as a number, and its number of bits.
fn number(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

fn route(rest: &mut &[u8]) -> Result<Route, Malformed> {
    let [version] = take(rest)?;
    let first = take_address(rest, version)?;
    let last = take_address(rest, version)?;
    let [protocol] = take(rest)?;
    if first > last {
        return Err(Malformed::Range);
    }
    Ok(Route {
        first,
        last,
        protocol,
    })
}

/// Checks the order of routes, and that no address has two routes for one protocol.
fn check_order(routes: &[Route]) -> Result<(), Malformed> {
    for pair in routes.windows(2) {
        let [a, b] = [pair[0], pair[1]];
        let is_before = match (a.first.is_ipv4(), b.first.is_ipv4()) {
            (true, false) => true,
            (false, true) => false,
            _ if a.protocol != b.protocol => a.protocol < b.protocol,
            _ => a.last < b.first,
        };
        if !is_before {
            return Err(Malformed::Order);
        }
    }
    // A route for all protocols overlaps with routes for each protocol.
    let (all, others): (Vec<&Route>, Vec<&Route>) =
        routes.iter().partition(|route| route.protocol == 0);
    let is_double = |route: &&Route| {
        // Within one IP version, this finds the first wide route that ends at or after the start of
        // `route`.
        let place = all.partition_point(|wide| wide.last < route.first);
        all.get(place).is_some_and(|wide| {
            wide.first.is_ipv4() == route.first.is_ipv4() && wide.first <= route.last
        })
    };
    if others.iter().any(is_double) {
        Err(Malformed::Order)
    } else {
        Ok(())
    }
}

impl Told {
    /// As a capsule.
    pub(crate) fn to_capsule(&self) -> Bytes {
        let mut value = BytesMut::new();
        let kind = match self {
            Self::Assigned(addresses) => {
                put_addresses(&mut value, addresses);
                ADDRESS_ASSIGN
            }
            Self::Requested(addresses) => {
                put_addresses(&mut value, addresses);
                ADDRESS_REQUEST
            }
            Self::Routes(routes) => {
                for route in routes {
                    put_version(&mut value, route.first);
                    put_address(&mut value, route.first);
                    put_address(&mut value, route.last);
                    value.put_u8(route.protocol);
                }
                ROUTE_ADVERTISEMENT
            }
        };
        let mut capsule = BytesMut::with_capacity(value.len() + 9);
        put_varint(&mut capsule, kind);
        put_varint(&mut capsule, value.len() as u64);
        capsule.put_slice(&value);
        capsule.freeze()
    }
}

fn put_addresses(value: &mut BytesMut, addresses: &[Address]) {
    for address in addresses {
        put_varint(value, address.request);
        put_version(value, address.address);
        put_address(value, address.address);
        value.put_u8(address.length);
    }
}

fn put_version(value: &mut BytesMut, address: IpAddr) {
    value.put_u8(if address.is_ipv4() { 4 } else { 6 });
}

fn put_address(value: &mut BytesMut, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => value.put_slice(&v4.octets()),
        IpAddr::V6(v6) => value.put_slice(&v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(request: u64, network: &str) -> Address {
        let (address, length) = network.split_once('/').unwrap();
        Address {
            request,
            address: address.parse().unwrap(),
            length: length.parse().unwrap(),
        }
    }

    fn to(first: &str, last: &str, protocol: u8) -> Route {
        Route {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
            protocol,
        }
    }

    /// Type and value of a capsule, whose type takes one byte and whose length takes two.
    fn parts(told: &Told) -> (u64, Bytes) {
        let capsule = told.to_capsule();
        let mut rest = &capsule[..];
        let kind = take_varint(&mut rest).unwrap();
        assert_eq!(take_varint(&mut rest).unwrap(), rest.len() as u64);
        (kind, Bytes::copy_from_slice(rest))
    }

    #[test]
    fn capsules_are_read_as_they_are_written() {
        let addresses = [
            of(1, "192.0.2.0/24"),
            of(77_777, "2001:db8::1/128"),
            of(3, "0.0.0.0/0"),
            of(4, "::/0"),
        ];
        let routes = [
            to("0.0.0.0", "192.0.1.255", 0),
            to("192.0.2.0", "192.0.2.9", 1),
            to("192.0.2.11", "192.0.2.11", 1),
            to("192.0.2.0", "192.0.2.9", 17),
            to("::", "ffff::", 58),
        ];
        for told in [
            Told::Assigned(addresses.to_vec()),
            Told::Assigned(vec![of(0, "192.0.2.1/32")]),
            Told::Assigned(vec![]),
            Told::Requested(addresses.to_vec()),
            Told::Routes(routes.to_vec()),
            Told::Routes(vec![]),
        ] {
            let (kind, value) = parts(&told);
            assert_eq!(parse(kind, &value), Ok(Some(told.clone())));
            // A shortened capsule is invalid, or has fewer entries.
            for length in 0..value.len() {
                let part = parse(kind, &value[..length]);
                assert_ne!(part, Ok(Some(told.clone())), "{length}");
            }
        }
        assert_eq!(parse(0x04, b"any"), Ok(None));
    }

    #[test]
    fn capsules_that_the_rfc_calls_malformed_are_refused() {
        use Malformed::{
            Cut, Host, NoRequest, Order, Prefix, Range, RequestZero, TooMany, Version,
        };
        for (kind, value, error) in [
            (ADDRESS_ASSIGN, &b"\x00"[..], Cut),
            (ADDRESS_ASSIGN, b"\x00\x04\xc0\x00\x02", Cut),
            (ADDRESS_ASSIGN, b"\x00\x04\xc0\x00\x02\x01", Cut),
            (ADDRESS_ASSIGN, b"\x00\x05\xc0\x00\x02\x01\x20", Version),
            (ADDRESS_ASSIGN, b"\x00\x04\xc0\x00\x02\x01\x21", Prefix),
            (ADDRESS_ASSIGN, b"\x00\x04\xc0\x00\x02\x01\x1f", Host),
            (ADDRESS_ASSIGN, b"\x00\x04\x80\x00\x00\x00\x00", Host),
            (ADDRESS_REQUEST, b"", NoRequest),
            (
                ADDRESS_REQUEST,
                b"\x00\x04\x00\x00\x00\x00\x20",
                RequestZero,
            ),
            (
                ROUTE_ADVERTISEMENT,
                b"\x04\x00\x00\x00\x00\x01\x01\x01\x01",
                Cut,
            ),
            (ROUTE_ADVERTISEMENT, b"\x07", Version),
            (
                ROUTE_ADVERTISEMENT,
                b"\x04\x01\x01\x01\x01\x01\x01\x01\x00\x00",
                Range,
            ),
        ] {
            assert_eq!(parse(kind, value), Err(error), "{kind} {value:?}");
        }
        for routes in [
            [to("::", "::1", 0), to("0.0.0.0", "0.0.0.1", 0)],
            [to("1.0.0.0", "1.0.0.1", 17), to("0.0.0.0", "0.0.0.1", 6)],
            [to("1.0.0.0", "1.0.0.1", 6), to("1.0.0.1", "1.0.0.2", 6)],
            [to("2.0.0.0", "2.0.0.1", 6), to("1.0.0.1", "1.0.0.2", 6)],
            [to("1.0.0.0", "1.0.0.1", 0), to("0.0.0.0", "1.0.0.0", 6)],
            [to("::", "::9", 0), to("::9", "::a", 58)],
        ] {
            let (kind, value) = parts(&Told::Routes(routes.to_vec()));
            assert_eq!(parse(kind, &value), Err(Order), "{routes:?}");
        }
        let (kind, value) = parts(&Told::Assigned(vec![of(1, "192.0.2.1/32"); MOST + 1]));
        assert_eq!(parse(kind, &value), Err(TooMany));
    }
}
