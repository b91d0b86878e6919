//! Addresses of servers: their canonical form, and the order in which a client tries them.

use std::net::SocketAddr;

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
/// (RFC 8305 section 4). In a network without one of the IP versions, the alternation costs the
/// delay of a single attempt.
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
}
