//! [`AddressFlags`]: flags that the system keeps for the addresses of its interfaces.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// The addresses and their flags. `/proc/net` is not there for services whose `/proc` shows
/// processes only (systemd's `ProcSubset=pid`).
const IF_INET6: &str = "/proc/self/net/if_inet6";

/// Address flags in `if_inet6`, with the values of `linux/if_addr.h`.
const TEMPORARY: u8 = 0x01;
const OPTIMISTIC: u8 = 0x04;
const DUPLICATE: u8 = 0x08;
const DEPRECATED: u8 = 0x20;
const TENTATIVE: u8 = 0x40;

/// Flags of IPv6 addresses. Only Linux reports them; on other systems no address has a flag.
#[derive(Debug, Default)]
pub(crate) struct AddressFlags(Vec<(String, Ipv6Addr, u8)>);

impl AddressFlags {
    /// The flags that the system reports now.
    pub(crate) fn of_system() -> Self {
        Self::read(Path::new(IF_INET6))
    }

    fn read(file: &Path) -> Self {
        let told = std::fs::read_to_string(file).unwrap_or_default();
        Self(told.lines().filter_map(address).collect())
    }

    /// True while the system checks for duplicates: the address may belong to another machine.
    pub(crate) fn is_tentative(&self, name: &str, ip: IpAddr) -> bool {
        let flags = self.of(name, ip);
        flags & DUPLICATE != 0 || flags & (TENTATIVE | OPTIMISTIC) == TENTATIVE
    }

    /// True if no new connection should use the address: the network has another prefix, or a newer
    /// temporary address.
    pub(crate) fn is_deprecated(&self, name: &str, ip: IpAddr) -> bool {
        self.of(name, ip) & DEPRECATED != 0
    }

    /// True for a privacy address, which changes every few hours or days.
    pub(crate) fn is_temporary(&self, name: &str, ip: IpAddr) -> bool {
        self.of(name, ip) & TEMPORARY != 0
    }

    fn of(&self, name: &str, ip: IpAddr) -> u8 {
        let mut all = self.0.iter();
        let found = all.find(|(of, address, _)| of == name && ip == *address);
        found.map_or(0, |(.., flags)| *flags)
    }
}

/// A line has the address, the number of the interface, prefix length, scope and flags, in
/// hexadecimal digits, and the interface's name.
fn address(line: &str) -> Option<(String, Ipv6Addr, u8)> {
    let mut words = line.split_whitespace();
    let ip = u128::from_str_radix(words.next()?, 16).ok()?;
    let flags = u8::from_str_radix(words.nth(3)?, 16).ok()?;
    Some((words.next()?.to_owned(), Ipv6Addr::from(ip), flags))
}

/// Whether the user prefers paths from temporary addresses of an interface; `None` if the system
/// does not show it.
pub(crate) fn prefers_temporary(name: &str) -> Option<bool> {
    let option = Path::new("/proc/sys/net/ipv6/conf")
        .join(name)
        .join("use_tempaddr");
    let told = std::fs::read_to_string(option).ok()?;
    // 1 creates temporary addresses, 2 also prefers them.
    Some(told.trim().parse().is_ok_and(|option: i32| option > 1))
}

#[cfg(test)]
impl<'a> FromIterator<(&'a str, &'a str, u8)> for AddressFlags {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str, u8)>>(all: T) -> Self {
        let all = all.into_iter();
        Self(
            all.filter_map(|(name, ip, flags)| Some((name.to_owned(), ip.parse().ok()?, flags)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "\
20010db8000000000000000000000001 02 40 00 20     eth0
20010db8000000000000000000000002 02 40 00 01     eth0
20010db8000000000000000000000003 02 40 00 40     eth0
20010db8000000000000000000000004 02 40 00 44     eth0
20010db8000000000000000000000005 02 40 00 c8     eth0
20010db8000000000000000000000001 03 40 00 80     eth1
what is this
";

    #[test]
    fn flags_are_those_of_the_address_of_the_interface() {
        let flags = AddressFlags(TOLD.lines().filter_map(address).collect());
        let of = |name: &str, last: u16| {
            let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
            [
                flags.is_deprecated(name, ip),
                flags.is_temporary(name, ip),
                flags.is_tentative(name, ip),
            ]
        };
        assert_eq!(of("eth0", 1), [true, false, false]);
        assert_eq!(of("eth0", 2), [false, true, false]);
        assert_eq!(of("eth0", 3), [false, false, true]);
        assert_eq!(of("eth0", 4), [false; 3], "optimistic");
        assert_eq!(of("eth0", 5), [false, false, true], "somebody else's");
        assert_eq!(of("eth1", 1), [false; 3]);
        assert_eq!(of("eth2", 1), [false; 3], "not known");
        let nothing = AddressFlags::read(Path::new("/nowhere/at/all"));
        assert!(!nothing.is_deprecated("eth0", [127, 0, 0, 1].into()));
        assert_eq!(prefers_temporary("no-such-interface"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_tells_of_its_addresses() {
        let flags = AddressFlags::of_system();
        let v6 = |interface: &if_addrs::Interface| interface.ip().is_ipv6();
        let listed = if_addrs::get_if_addrs().expect("it lists them");
        assert_eq!(flags.0.is_empty(), !listed.iter().any(v6));
        // Link-local addresses are listed as well.
        for (name, ip, _) in &flags.0 {
            let is_it = |one: &if_addrs::Interface| one.name == *name && one.ip() == *ip;
            assert!(listed.iter().any(is_it), "{ip} of {name}");
        }
    }
}
