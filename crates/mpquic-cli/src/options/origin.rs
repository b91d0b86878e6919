//! Paths that an option names by their local address or interface.

use std::net::IpAddr;

use mpquic_tokio::path_managers::Origin;
use mpquic_tokio::{InterfaceAddress, LeftOutReason, interface_addresses};

use crate::options::Local;
use crate::process::failure::Failure;

/// The addresses of this machine.
pub(crate) fn listed() -> Result<Vec<InterfaceAddress>, Failure> {
    interface_addresses()
        .map_err(|error| Failure::other(format!("cannot list the interfaces: {error}")))
}

/// True if a path from this address starts at `origin`.
pub(crate) fn starts_from(origin: &Local, ip: IpAddr, listed: &[InterfaceAddress]) -> bool {
    match origin {
        Local::Address(address) => *address == ip,
        Local::Interface(name) => {
            let mut listed = listed.iter();
            listed.any(|listed| listed.ip == ip && listed.name == *name)
        }
    }
}

/// An option for a path manager. Sockets of --local ADDR are bound to no interface, so the addresses that an
/// interface has now are named as well.
pub(crate) fn origins(origin: &Local, listed: &[InterfaceAddress]) -> impl Iterator<Item = Origin> {
    let (named, interface) = match origin {
        Local::Address(address) => (Origin::Address(*address), None),
        Local::Interface(name) => (Origin::Interface(name.clone()), Some(name)),
    };
    let of_it = move |listed: &&InterfaceAddress| Some(&listed.name) == interface;
    let addresses = listed.iter().filter(of_it);
    let addresses = addresses.map(|listed| Origin::Address(listed.ip));
    std::iter::once(named).chain(addresses)
}

/// The interfaces among these without a usable address, each once.
pub(crate) fn absent<'a>(
    origins: impl Iterator<Item = &'a Local>,
    listed: &[InterfaceAddress],
) -> Vec<&'a str> {
    let starts = |at: &InterfaceAddress| {
        let why = at.left_out;
        !matches!(
            why,
            Some(LeftOutReason::Down | LeftOutReason::LinkLocal | LeftOutReason::Tentative)
        )
    };
    let mut absent = Vec::new();
    for origin in origins {
        let Local::Interface(name) = origin else {
            continue;
        };
        let mut of_it = listed.iter().filter(|listed| listed.name == *name);
        if !of_it.any(starts) && !absent.contains(&name.as_str()) {
            absent.push(name.as_str());
        }
    }
    absent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_means_an_address_or_all_of_an_interface() {
        let mut any = listed().unwrap();
        any.truncate(1);
        let one = |name: &str, ip: &str| {
            let mut one = any[0].clone();
            (one.name, one.ip) = (name.to_owned(), ip.parse().unwrap());
            one
        };
        let listed = [
            one("eth0", "192.0.2.1"),
            one("eth0", "2001:db8::1"),
            one("wlan0", "192.0.2.2"),
        ];
        let ips = ["192.0.2.1", "2001:db8::1", "192.0.2.2", "192.0.2.3"];
        let starts =
            |origin: Local| ips.map(|ip| starts_from(&origin, ip.parse().unwrap(), &listed));
        let interface = |name: &str| starts(Local::Interface(name.to_owned()));
        assert_eq!(interface("eth0"), [true, true, false, false]);
        assert_eq!(interface("wlan0"), [false, false, true, false]);
        assert_eq!(interface("none"), [false; 4]);
        let address = starts(Local::Address(ips[3].parse().unwrap()));
        assert_eq!(address, [false, false, false, true]);
    }

    #[test]
    fn path_managers_know_interfaces_by_their_addresses_as_well() {
        let mut one = listed().unwrap().remove(0);
        (one.name, one.ip) = ("eth0".to_owned(), [192, 0, 2, 1].into());
        let listed = [one];
        let address = Origin::Address(listed[0].ip);
        let of = |origin: Local| origins(&origin, &listed).collect::<Vec<_>>();
        let eth0 = Origin::Interface("eth0".to_owned());
        assert_eq!(
            of(Local::Interface("eth0".to_owned())),
            [eth0, address.clone()]
        );
        assert_eq!(of(Local::Interface("wlan0".to_owned())).len(), 1);
        assert_eq!(of(Local::Address(listed[0].ip)), [address]);
    }

    #[test]
    fn interfaces_without_an_address_are_absent() {
        let any = listed().unwrap().remove(0);
        let one = |name: &str, left_out| {
            let mut one = any.clone();
            (one.name, one.left_out) = (name.to_owned(), left_out);
            one
        };
        let listed = [
            one("eth0", Some(LeftOutReason::LinkLocal)),
            one("eth0", None),
            one("wwan0", Some(LeftOutReason::LinkLocal)),
            one("eth1", Some(LeftOutReason::Down)),
            one("wg0", Some(LeftOutReason::Tunnel)),
        ];
        let origins = ["eth0", "wwan0", "eth1", "wg0", "away0", "away0"];
        let mut origins: Vec<_> = origins.map(|name| Local::Interface(name.to_owned())).into();
        origins.push(Local::Address([192, 0, 2, 1].into()));
        let absent = absent(origins.iter(), &listed);
        assert_eq!(absent, ["wwan0", "eth1", "away0"]);
    }
}
