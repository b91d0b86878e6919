//! Which local addresses and which addresses of a server make a path.

use std::net::SocketAddr;

use mpquic_core::FourTuple;

use crate::local::Local;

/// Every pair of a local address and a server address of one IP version. The order is, for each
/// version: (local 0, remote 0), (local 1, remote 1), ..., then (local 0, remote 1), (local 1,
/// remote 2), ... and so on. Thus the first few pairs cover many addresses of both sides.
pub fn address_pairs(locals: &[Local], remotes: &[SocketAddr]) -> Vec<FourTuple> {
    let suited = |local: &Local| -> Vec<SocketAddr> {
        let suited = remotes
            .iter()
            .filter(|remote| local.suits(**remote, locals));
        suited.copied().collect()
    };
    let reached: Vec<_> = locals.iter().map(suited).collect();
    let mut pairs = Vec::new();
    for offset in 0..remotes.len() {
        for (index, (local, reached)) in locals.iter().zip(&reached).enumerate() {
            let is_ipv4 = local.address().is_ipv4();
            let alike = |other: &&Local| other.address().is_ipv4() == is_ipv4;
            let index = locals.iter().take(index).filter(alike).count();
            if offset >= reached.len() {
                continue;
            }
            if let Some(remote) = reached.iter().cycle().nth(index + offset) {
                let pair = FourTuple::new(local.towards(*remote), *remote);
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
    }
    pairs
}

/// The pairs that [`address_pairs`] leaves out because another address of the same interface comes
/// first: for the case that nothing comes back there.
pub fn second_choices(locals: &[Local], remotes: &[SocketAddr]) -> Vec<FourTuple> {
    let of_remote = |remote: &SocketAddr| {
        let remote = *remote;
        let spare = move |local: &&Local| local.reaches(remote) && !local.suits(remote, locals);
        let spare = locals.iter().filter(spare);
        spare.map(move |local| FourTuple::new(local.towards(remote), remote))
    };
    remotes.iter().flat_map(of_remote).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(address: &str) -> Local {
        Local::new(address.parse().expect("an address"))
    }

    #[test]
    fn pairs_cover_all_addresses_of_both_sides_first() {
        let locals = [local("127.0.0.1:1"), local("127.0.0.2:1")];
        let remotes = ["127.0.0.3:1", "127.0.0.4:1", "[::1]:1"];
        let remotes = remotes.map(|address| address.parse().expect("an address"));
        let pairs = address_pairs(&locals, &remotes);
        assert_eq!(pairs.len(), 4, "IPv6 cannot be reached: {pairs:?}");
        assert_ne!(pairs[0].local, pairs[1].local);
        assert_ne!(pairs[0].remote, pairs[1].remote);
    }

    /// RFC 6724: on an interface with several addresses, the path starts at the address that fits
    /// the destination.
    #[test]
    fn paths_of_an_interface_start_at_the_address_that_suits() {
        let locals = [
            local("[fd77::1]:1").on("eth0"),
            local("[2001:db8::1]:1").on("eth0"),
            local("[fd78::1]:1").on("eth1"),
            local("[fd79::1]:1"),
        ];
        let starts = |remote: &str| -> Vec<String> {
            let pairs = address_pairs(&locals, &[remote.parse().expect("an address")]);
            let locals = pairs.iter().map(|pair| pair.local.ip().to_string());
            locals.collect()
        };
        // An address without an interface is always used, and so is the only address of an
        // interface: its network may translate addresses.
        assert_eq!(starts("[2600::1]:5"), ["2001:db8::1", "fd78::1", "fd79::1"]);
        assert_eq!(starts("[fd00::1]:5"), ["fd77::1", "fd78::1", "fd79::1"]);
        let remotes = ["[2600::1]:5", "[fd00::1]:5", "192.0.2.1:5"];
        let remotes = remotes.map(|remote| remote.parse().expect("it is one"));
        let spare = second_choices(&locals, &remotes);
        let spare = spare.iter().map(|pair| (pair.local.ip(), pair.remote));
        let expected = [("fd77::1", remotes[0]), ("2001:db8::1", remotes[1])];
        let expected = expected.map(|(ip, remote)| (ip.parse().expect("it is one"), remote));
        assert_eq!(Vec::from_iter(spare), expected);
    }
}
