//! A server gives its addresses to another process, and keeps its connections.
//!
//! The kernel prefers a connected socket to one that is bound only. So each path of a connection
//! gets a socket of its own, connected to the client's address. The sockets that new clients reach
//! are closed, and another process can bind their addresses: all sockets involved have
//! `SO_REUSEPORT`, which the kernel grants to processes of one user.

use std::io;
use std::sync::Arc;

use mpquic_core::{FourTuple, PathState};

use crate::connection_state::SharedEndpoint;
use crate::socket::Socket;
use crate::{local_addresses, start};

/// Closes all sockets, after each path got a socket of its own. Fails before the first change.
pub(crate) fn release(endpoint: &Arc<SharedEndpoint>) -> io::Result<()> {
    let old = endpoint.sockets.all();
    for socket in &old {
        if let Err(error) = socket.share(true) {
            // Another program must not bind the addresses of a server that goes on.
            let _ = old.iter().try_for_each(|socket| socket.share(false));
            return Err(error);
        }
    }
    for tuple in paths(endpoint) {
        match endpoint.sockets.connect(tuple) {
            Ok(socket) => start::read(endpoint, Arc::new(socket)),
            // The other paths go on.
            Err(error) => {
                tracing::warn!(%error, local = %tuple.local, remote = %tuple.remote, "a path ends");
            }
        }
    }
    let is_old = |socket: &Socket| old.iter().any(|old| std::ptr::eq(&raw const **old, socket));
    endpoint.sockets.remove(is_old);
    local_addresses::follow(endpoint);
    Ok(())
}

/// The addresses of all paths.
fn paths(endpoint: &SharedEndpoint) -> Vec<FourTuple> {
    let connections = endpoint.lock().connections();
    let mut tuples = Vec::new();
    for connection in connections {
        let engine = connection.lock();
        let stats = engine
            .core
            .paths()
            .filter_map(|id| engine.core.path_stats(id));
        let open = stats.filter(|path| path.state != PathState::Abandoned);
        tuples.extend(open.map(|path| path.four_tuple));
    }
    // Connections of one client may share its sockets.
    tuples.sort_by_key(|tuple| (tuple.local, tuple.remote));
    tuples.dedup();
    tuples
}
