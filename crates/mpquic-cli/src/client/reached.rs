//! [`ReachedServers`]: the servers to which a command has made a connection.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::Uri;
use http::uri::Authority;

/// Hosts and ports as in URLs. A server that was reached before is expected back: it restarts, or its connection was lost.
#[derive(Debug, Default)]
pub(crate) struct ReachedServers(Mutex<HashSet<String>>);

impl ReachedServers {
    /// A connection to this server was made.
    pub(crate) fn note(&self, server: &Authority) {
        self.all().insert(server.to_string());
    }

    /// True if a connection to the server of this URL was made.
    pub(crate) fn has(&self, url: &Uri) -> bool {
        let server = url.authority().map(Authority::as_str);
        server.is_some_and(|server| self.all().contains(server))
    }

    fn all(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
