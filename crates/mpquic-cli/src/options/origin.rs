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

/// An option for a path manager. Sockets of --local ADDR are bound to no interface, so the
/// addresses that an interface has now are named as well.
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

/// What an option does with the paths from its interface or address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Paths start there: `--local` and `--weight`.
    Start,
    /// No path starts there: `--exclude`.
    Exclude,
    /// Paths from there stand by: `--backup`.
    Backup,
    /// Paths from there have a cost: `--cost`.
    Cost,
}

impl Use {
    /// True if the user relies on the option to spare a link: a wrong name is told even to a user
    /// who wants only errors.
    pub(crate) fn spares(self) -> bool {
        !matches!(self, Self::Start)
    }

    /// The option in front of what it names, and what happens later.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Start => ("", "paths start there once it"),
            Self::Exclude => ("--exclude ", "no path starts there once it"),
            Self::Backup => ("--backup ", "its paths stand by once it"),
            Self::Cost => ("--cost ", "its paths have the cost once it"),
        }
    }
}

/// Words about the interfaces without a usable address among these, and about the addresses that
/// this machine does not have, each once.
pub(crate) fn absent<'a>(
    origins: impl Iterator<Item = (&'a Local, Use)>,
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
    for (origin, for_what) in origins {
        let (option, later) = for_what.words();
        let mut of_it = listed.iter().filter(|listed| origin.is(listed));
        let told = match origin {
            // An interface that is down has the right name.
            Local::Interface(_) if for_what == Use::Exclude && of_it.next().is_some() => None,
            Local::Interface(name) => (!of_it.any(starts))
                .then(|| format!("{option}{name} has no address yet; {later} has one")),
            Local::Address(ip) => (!is_here(*ip, listed))
                .then(|| format!("{option}{ip} is no address of this machine yet; {later} is")),
            Local::OnLink(ip, link) => of_it
                .next()
                .is_none()
                .then(|| format!("{option}{link} does not have {ip} yet; {later} has")),
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
        let of = |origins: &[Local], for_what| {
            absent(origins.iter().map(|origin| (origin, for_what)), &listed)
        };
        let told = of(&origins, Use::Start);
        let once = "has no address yet; paths start there once it has one";
        let expected = ["wwan0", "eth1", "away0"].map(|name| format!("{name} {once}"));
        assert_eq!(told, expected);
        // The message names the option that spares a link. --exclude works for an interface without
        // an address.
        let once = "has no address yet";
        for (for_what, expected) in [
            (
                Use::Exclude,
                &[
                    "--exclude away0 has no address yet; no path starts there once it has one"
                        .to_owned(),
                ][..],
            ),
            (
                Use::Backup,
                &["wwan0", "eth1", "away0"].map(|name| {
                    format!("--backup {name} {once}; its paths stand by once it has one")
                }),
            ),
            (
                Use::Cost,
                &["wwan0", "eth1", "away0"].map(|name| {
                    format!("--cost {name} {once}; its paths have the cost once it has one")
                }),
            ),
        ] {
            assert_eq!(of(&origins, for_what), expected);
            assert!(for_what.spares() && !Use::Start.spares());
        }
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
        let told = absent(addresses.iter().map(|it| (it, Use::Start)), &[at]);
        let expected = [
            "192.0.2.77 is no address of this machine yet; paths start there once it is",
            "wwan0 does not have fe80::1 yet; paths start there once it has",
        ];
        assert_eq!(told, expected);
    }
}
