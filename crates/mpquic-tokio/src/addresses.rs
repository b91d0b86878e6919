//! Addresses: how a server's addresses are written and ordered, and which local address suits each.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bits of an IPv6 address that name its network; the others are random.
const SUBNET: u32 = 64;

/// Converts an IPv4 address in IPv6 form to IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// Removes duplicates, and alternates IP versions, beginning with the version of the first address
/// (RFC 8305 section 4). So a network without one IP version delays only one attempt.
pub(crate) fn by_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        let address = canonical(*address);
        if !all.contains(&address) {
            all.push(address);
        }
    }
    let is_first = all.first().map(SocketAddr::is_ipv4);
    let alike = |address: &SocketAddr| Some(address.is_ipv4()) == is_first;
    let mut place = [0, 0];
    let mut placed: Vec<_> = all
        .into_iter()
        .map(|address| {
            let family = usize::from(!alike(&address));
            let index = place[family];
            place[family] += 1;
            ((index, family), address)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, address)| address).collect()
}

/// How well a source address suits a destination of the same IP version; the largest value suits
/// best (RFC 6724 section 5, rules 6 and 8).
pub(crate) fn fit(local: IpAddr, remote: IpAddr) -> (bool, u32) {
    match (local, remote) {
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            let common = (local.to_bits() ^ remote.to_bits()).leading_zeros();
            (label(local) == label(remote), common.min(SUBNET))
        }
        _ => (true, 0),
    }
}

/// The label of an address. Addresses with equal labels reach each other (RFC 6724 section 2.1).
pub(crate) fn label(ip: Ipv6Addr) -> u8 {
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

    fn ordered(addresses: &[&str]) -> Vec<String> {
        let addresses = addresses.iter().map(|address| address.parse());
        let addresses: Result<Vec<_>, _> = addresses.collect();
        let ordered = by_turns(&addresses.expect("they are addresses"));
        ordered.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn versions_take_turns() {
        let (a, b, c) = ("[2001:db8::1]:5", "[2001:db8::2]:5", "[2001:db8::3]:5");
        let (x, y) = ("192.0.2.1:5", "192.0.2.2:5");
        assert_eq!(ordered(&[a, b, c, x, y]), [a, x, b, y, c]);
        assert_eq!(ordered(&[x, a, b]), [x, a, b]);
        assert_eq!(ordered(&[x, y, x]), [x, y]);
        assert!(ordered(&[]).is_empty());
    }

    #[test]
    fn ipv4_in_ipv6_form_is_ipv4() {
        let mapped = "[::ffff:192.0.2.1]:5";
        assert_eq!(ordered(&[mapped, "192.0.2.1:5"]), ["192.0.2.1:5"]);
        assert_eq!(ordered(&["[::1]:5"]), ["[::1]:5"]);
    }

    /// RFC 6724 section 5.
    #[test]
    fn sources_are_of_the_kind_of_their_destination() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("it is one");
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
        // The nearer address.
        let near = "2001:db8:2::1";
        assert_eq!(best("2001:db8:2:3::1", &[global, near]), Some(near));
        assert_eq!(
            fit(ip("10.0.0.1"), ip("192.0.2.1")),
            fit(ip("10.9.0.1"), ip("192.0.2.1"))
        );
    }
}
