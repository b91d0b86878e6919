//! [`ServerAddress`]: a further address of a server, and the check of such addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;

use crate::ids::PathStatus;

/// A further address of a server, which it announces to its clients
/// (draft-munizaga-quic-alternative-server-address-01).
///
/// ```
/// use mpquic_core::{PathStatus, ServerAddress};
///
/// let fibre = ServerAddress::new("192.0.2.1:443".parse()?);
/// let radio = ServerAddress::new("198.51.100.1:443".parse()?).backup();
/// assert_eq!(radio.status, PathStatus::Backup);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAddress {
    /// The address, with its port.
    pub address: SocketAddr,
    /// Use of the address by the server's wish: `Available` for an address at least as good as the
    /// one in use.
    pub status: PathStatus,
}

impl ServerAddress {
    /// Most addresses that a server announces, and that a client keeps.
    pub const MAX: usize = 8;

    /// Checks a list of addresses to announce.
    ///
    /// # Errors
    ///
    /// [`AnnounceError::TooMany`] for more than [`Self::MAX`], [`AnnounceError::NotUsable`] and
    /// [`AnnounceError::Twice`] for a wrong address.
    pub fn check_all(all: &[Self]) -> Result<(), AnnounceError> {
        if all.len() > Self::MAX {
            return Err(AnnounceError::TooMany(all.len()));
        }
        for (index, Self { address, .. }) in all.iter().enumerate() {
            if address.port() == 0 || Reach::of(address.ip()) == Reach::Nowhere {
                return Err(AnnounceError::NotUsable(*address));
            }
            // draft-munizaga-quic-alternative-server-address-01 section 5
            if all[..index].iter().any(|before| before.address == *address) {
                return Err(AnnounceError::Twice(*address));
            }
        }
        Ok(())
    }

    /// An address for any use.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            status: PathStatus::Available,
        }
    }

    /// Marks the address as a backup, to be used while no other address works.
    #[must_use]
    pub fn backup(self) -> Self {
        Self {
            status: PathStatus::Backup,
            ..self
        }
    }
}

/// Why addresses were not announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnnounceError {
    /// Only servers announce addresses.
    #[error("only the server announces addresses")]
    ClientSide,
    /// There are so many.
    #[error("{0} addresses are more than {max}", max = ServerAddress::MAX)]
    TooMany(usize),
    /// The address does not belong to one machine (unspecified, multicast, IPv6 link-local), or is
    /// an IPv4 address written as IPv6.
    #[error("{0} is not the address and port of one machine")]
    NotUsable(SocketAddr),
    /// The list has this address twice.
    #[error("{0} is there twice")]
    Twice(SocketAddr),
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

/// From where an address can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From everywhere.
    Global,
    /// From a network that has private addresses.
    Private,
    /// From the same link.
    Link,
    /// From the same machine.
    Machine,
    /// The address does not belong to one machine.
    Nowhere,
}

impl Reach {
    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => match ip.octets() {
                [0 | 224..=255, ..] => Self::Nowhere,
                [127, ..] => Self::Machine,
                [169, 254, ..] => Self::Link,
                [10, ..] | [172, 16..32, ..] | [192, 168, ..] | [100, 64..128, ..] => Self::Private,
                _ => Self::Global,
            },
            // An IPv4 address, which must be written as such.
            IpAddr::V6(ip) if ip.to_ipv4().is_some() && !ip.is_loopback() => Self::Nowhere,
            // Only together with an interface, of which the frame says nothing.
            IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast() => Self::Nowhere,
            IpAddr::V6(ip) if ip.is_loopback() => Self::Machine,
            IpAddr::V6(ip) => match ip.segments() {
                // Unique local, site-local, and NAT64 of a network's own (RFC 8215).
                [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => Self::Private,
                // The last reached address is the IPv4 address inside (RFC 6052, RFC 3056).
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                    let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
                    Self::of(Ipv4Addr::new(a, b, c, d).into())
                }
                _ => Self::Global,
            },
        }
    }
}

/// True for an address that a client may try after finding its server at `known`: an address that
/// everybody can reach, or one in the network of `known`. Without this check, a server could make
/// its client send to machines that only the client reaches (RFC 9000 section 21.5.6).
pub(crate) fn is_usable(address: SocketAddr, known: SocketAddr) -> bool {
    let reach = Reach::of(address.ip());
    let known = Reach::of(known.ip().to_canonical());
    address.port() != 0 && reach != Reach::Nowhere && (reach == Reach::Global || reach == known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_within_addresses_count() {
        for (address, reach) in [
            ("192.168.1.1", Reach::Private),
            ("64:ff9b::c0a8:101", Reach::Private),
            ("64:ff9b::cb00:7101", Reach::Global),
            ("64:ff9b:1::cb00:7101", Reach::Private),
            ("2002:a00:1::1", Reach::Private),
            ("2002:cb00:7101::1", Reach::Global),
            ("2002:7f00:1::1", Reach::Machine),
            ("fec0::1", Reach::Private),
            ("fd00::1", Reach::Private),
            ("2001:db8::1", Reach::Global),
        ] {
            assert_eq!(Reach::of(address.parse().unwrap()), reach, "{address}");
        }
    }
}
