//! Which paths an option means that names where they start.

use std::net::IpAddr;

use mpquic_tokio::{InterfaceAddress, interface_addresses};

use crate::failure::Failure;
use crate::options::Local;

/// The addresses of this machine.
pub(crate) fn listed() -> Result<Vec<InterfaceAddress>, Failure> {
    interface_addresses()
        .map_err(|error| Failure::other(format!("cannot list the interfaces: {error}")))
}

/// True if a path from this address starts there.
pub(crate) fn starts_from(origin: &Local, ip: IpAddr, listed: &[InterfaceAddress]) -> bool {
    match origin {
        Local::Address(address) => *address == ip,
        Local::Interface(name) => {
            let mut listed = listed.iter();
            listed.any(|listed| listed.ip == ip && listed.name == *name)
        }
    }
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
}
