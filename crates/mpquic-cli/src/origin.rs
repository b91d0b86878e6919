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
