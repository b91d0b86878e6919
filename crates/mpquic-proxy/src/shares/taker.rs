//! [`Taker`]: the owner of units.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// An IPv4 address, or the 64 bits of an IPv6 address that a client cannot choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(u128);

impl Network {
    /// The network of an address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits() & !u128::from(u64::MAX),
        })
    }

    /// The first address of the network.
    pub fn address(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(self.0)).to_canonical()
    }
}

/// The owner of units of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Taker {
    /// A user with right credentials, over all connections and addresses.
    User(Arc<str>),
    /// All clients of one network without credentials.
    Network(Network),
    /// The strangers who connect to ports of a client.
    Strangers(Arc<Taker>),
}

impl Taker {
    /// The user, or the network of the address if there is no user.
    pub fn new(user: Option<&str>, address: IpAddr) -> Self {
        match user {
            Some(user) => Self::User(user.into()),
            None => Self::Network(Network::of(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_taker() {
        let network = |text: &str| Network::of(text.parse().unwrap());
        let same = |a, b| network(a) == network(b);
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(same("2001:db8::1", "2001:db8::ffff:0:0:2"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert_eq!(network("192.0.2.1").address().to_string(), "192.0.2.1");
        assert_eq!(network("2001:db8::1").address().to_string(), "2001:db8::");
    }
}
