//! [`Backups`]: the places from which backup paths start.

use std::net::IpAddr;

use mpquic_paths::fits_interface;

use crate::socket::Socket;

/// Interfaces and addresses whose paths carry data only while no other path works.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    pub(crate) interfaces: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Backups {
    pub(crate) fn any(&self) -> bool {
        !self.interfaces.is_empty() || !self.addresses.is_empty()
    }

    pub(crate) fn contains(&self, socket: &Socket) -> bool {
        let is_named = |name: &str| {
            let mut backups = self.interfaces.iter();
            backups.any(|backup| fits_interface(backup, name))
        };
        socket.interface().is_some_and(is_named) || self.addresses.contains(&socket.local().ip())
    }
}
