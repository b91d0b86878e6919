//! Paths that an option names by their local address or interface.

use std::net::{IpAddr, UdpSocket};

use mpquic_tokio::path_managers::{Origin, fits_interface};
use mpquic_tokio::{InterfaceAddress, LeftOutReason, interface_addresses};

use crate::options::Local;
use crate::process::failure::Failure;

/// The addresses of this machine.
pub(crate) fn listed() -> Result<Vec<InterfaceAddress>, Failure> {
    interface_addresses()
        .map_err(|error| Failure::other(format!("cannot list the interfaces: {error}")))
}

/// An option for a path manager. Sockets of --local ADDR are bound to no interface, so the addresses that an
/// interface has now are named as well.
pub(crate) fn origins(origin: &Local, listed: &[InterfaceAddress]) -> impl Iterator<Item = Origin> {
    let (named, interface) = match origin {
        Local::Address(ip) => (Origin::Address(*ip), None),
        Local::OnLink(ip, _) => (Origin::Address((*ip).into()), None),
        Local::Interface(name) => (Origin::Interface(name.clone()), Some(name)),
    };
    let of_it = move |listed: &&InterfaceAddress| {
        interface.is_some_and(|name| fits_interface(name, &listed.name))
    };
    let addresses = listed.iter().filter(of_it);
    let addresses = addresses.map(|listed| Origin::Address(listed.ip));
    std::iter::once(named).chain(addresses)
}

/// Words about the interfaces without a usable address among these, and about the addresses that this machine does
/// not have, each once.
pub(crate) fn absent<'a>(
    origins: impl Iterator<Item = &'a Local>,
    listed: &[InterfaceAddress],
) -> Vec<String> {
    let starts = |at: &InterfaceAddress| {
        let why = at.left_out;
        !matches!(
            why,
            Some(LeftOutReason::Down | LeftOutReason::LinkLocal | LeftOutReason::Tentative)
        )
    };
    let mut absent = Vec::new();
    for origin in origins {
        let mut of_it = listed.iter().filter(|listed| origin.is(listed));
        let told = match origin {
            Local::Interface(name) => (!of_it.any(starts))
                .then(|| format!("{name} has no address yet; paths start there once it has one")),
            Local::Address(ip) => (!is_here(*ip, listed)).then(|| {
                format!("{ip} is no address of this machine yet; paths start there once it is")
            }),
            Local::OnLink(ip, link) => of_it
                .next()
                .is_none()
                .then(|| format!("{link} does not have {ip} yet; paths start there once it has")),
        };
        absent.extend(told.filter(|told| !absent.contains(told)));
    }
    absent
}

/// True for an address of this machine. Loopback has more addresses than its interface lists.
pub(crate) fn is_here(ip: IpAddr, listed: &[InterfaceAddress]) -> bool {
    let mut listed = listed.iter();
    listed.any(|listed| listed.ip == ip) || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn path_managers_know_interfaces_by_their_addresses_as_well() {
        let mut one = listed().unwrap().remove(0);
        (one.name, one.ip) = ("eth0".to_owned(), [192, 0, 2, 1].into());
        let listed = [one];
        let address = Origin::Address(listed[0].ip);
        let of = |origin: Local| origins(&origin, &listed).collect::<Vec<_>>();
        for name in ["eth0", "eth*"] {
            let named = Origin::Interface(name.to_owned());
            let found = of(Local::Interface(name.to_owned()));
            assert_eq!(found, [named, address.clone()]);
        }
        assert_eq!(of(Local::Interface("wlan0".to_owned())).len(), 1);
        assert_eq!(of(Local::Address(listed[0].ip)), [address]);
    }

    #[test]
    fn interfaces_without_an_address_and_other_addresses_are_absent() {
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
        let origins = origins.map(|name| Local::Interface(name.to_owned()));
        let told = absent(origins.iter(), &listed);
        let once = "has no address yet; paths start there once it has one";
        let expected = ["wwan0", "eth1", "away0"].map(|name| format!("{name} {once}"));
        assert_eq!(told, expected);
        let ip: Ipv6Addr = "fe80::1".parse().unwrap();
        let mut at = any.clone();
        (at.name, at.ip) = ("eth0".to_owned(), ip.into());
        let addresses = [
            Local::Address([127, 0, 0, 9].into()),
            Local::Address([192, 0, 2, 77].into()),
            Local::Address([192, 0, 2, 77].into()),
            Local::OnLink(ip, "eth0".to_owned()),
            Local::OnLink(ip, "wwan0".to_owned()),
        ];
        let told = absent(addresses.iter(), &[at]);
        let expected = [
            "192.0.2.77 is no address of this machine yet; paths start there once it is",
            "wwan0 does not have fe80::1 yet; paths start there once it has",
        ];
        assert_eq!(told, expected);
    }
}
