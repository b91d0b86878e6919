//! Which source address suits a destination (RFC 6724).

use std::net::{IpAddr, Ipv6Addr};

/// The first bits of an IPv6 address: they name the subnet; the rest names the host.
const SUBNET: u32 = 64;

/// Ranks a source address for a destination of the same IP version. The larger value fits better
/// (RFC 6724 section 5, rules 6 and 8).
pub(crate) fn fit(local: IpAddr, remote: IpAddr) -> (bool, u32) {
    match (local, remote) {
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            let common = (local.to_bits() ^ remote.to_bits()).leading_zeros();
            (label(local) == label(remote), common.min(SUBNET))
        }
        _ => (true, 0),
    }
}

/// The kind of an address. Addresses of one kind reach each other (RFC 6724 section 2.1).
pub fn label(ip: Ipv6Addr) -> u8 {
    match ip.segments() {
        [0x2002, ..] => 2,
        [0x2001, 0, ..] => 5,
        [0x3ffe, ..] => 12,
        [first, ..] if first & 0xfe00 == 0xfc00 => 13,
        [first, ..] if first & 0xffc0 == 0xfec0 => 11,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6724 section 5.
    #[test]
    fn sources_are_of_the_kind_of_their_destination() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let best = |remote: &str, locals: &[&'static str]| {
            let fits = |local: &&&str| fit(ip(local), ip(remote));
            locals.iter().max_by_key(fits).copied()
        };
        let (global, unique, tunnelled) = ("2001:db8:1::1", "fd00:1::1", "2002:c000:204::1");
        let all = [unique, global, tunnelled];
        for (remote, expected) in [
            ("2600::1", global),
            ("fd77::1", unique),
            ("2002:1:2::3", tunnelled),
            ("2001:db8:9::1", global),
        ] {
            assert_eq!(best(remote, &all), Some(expected), "{remote}");
        }
        // The nearer one.
        let near = "2001:db8:2::1";
        assert_eq!(best("2001:db8:2:3::1", &[global, near]), Some(near));
        assert_eq!(
            fit(ip("10.0.0.1"), ip("192.0.2.1")),
            fit(ip("10.9.0.1"), ip("192.0.2.1"))
        );
    }
}
