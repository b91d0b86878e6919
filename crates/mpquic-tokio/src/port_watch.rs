//! [`PortWatch`]: a look at whether a program still listens at a peer's addresses.

use std::net::SocketAddr;

use crate::connection::Connection;
use crate::connection_ref::ConnectionRef;
use crate::icmp::is_used;

/// Listens for reports that no program listens at the peer's addresses (ICMP, Linux only). Such
/// reports end no connection, because routers on the way can forge them (RFC 9000 section 14.2.1).
///
/// A server that doubts whether a silent peer still exists makes a watch, asks the peer for a
/// packet on each path ([`Connection::ping`]), and drops the watch when the peer answers. A watch
/// keeps the connection open. With [`workers`](crate::EndpointBuilder::workers), a report may reach
/// another worker and be lost.
#[derive(Debug)]
pub struct PortWatch {
    connection: ConnectionRef,
    remotes: Vec<SocketAddr>,
}

impl Connection {
    /// Listens for reports about the peer's addresses on the paths in use.
    pub fn watch_ports(&self) -> PortWatch {
        let paths = self.path_stats().into_iter();
        let used = paths.filter(is_used);
        let remotes: Vec<_> = used.map(|path| path.four_tuple.remote).collect();
        self.0.endpoint.sockets.watch_errors();
        let mut registry = self.0.endpoint.lock();
        for remote in &remotes {
            registry.icmp_listeners.add(*remote, self.0.handle);
        }
        drop(registry);
        PortWatch {
            connection: self.0.clone(),
            remotes,
        }
    }
}

impl PortWatch {
    /// True if, since the peer's last packet, the systems at all addresses of the peer in use have
    /// reported that no program listens there.
    pub fn are_closed(&self) -> bool {
        self.connection.lock().are_ports_closed()
    }
}

impl Drop for PortWatch {
    fn drop(&mut self) {
        let connection = &self.connection;
        let mut registry = connection.endpoint.lock();
        for remote in &self.remotes {
            registry.icmp_listeners.remove(*remote, connection.handle);
        }
    }
}
