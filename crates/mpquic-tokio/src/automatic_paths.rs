//! [`AutomaticPaths`]: the paths of a client's connection that open on their own.

use std::sync::Arc;
use std::time::Instant;

use mpquic_core::Connection;
use mpquic_paths::{Managed, Ways};

/// The path manager of a connection, and the memory of what the connection sees of its paths.
#[derive(Debug)]
pub(crate) struct AutomaticPaths {
    pub(crate) managed: Managed,
    /// Later connections learn from this how long it takes to hear of the server.
    ways: Arc<Ways>,
    /// When the connection began.
    since: Instant,
}

impl AutomaticPaths {
    pub(crate) fn new(managed: Managed, ways: Arc<Ways>, since: Instant) -> Self {
        Self {
            managed,
            ways,
            since,
        }
    }

    /// The connection ends: its round-trip times are noted for later ones.
    pub(crate) fn on_end(&self, core: &Connection, now: Instant) {
        self.ways.learn(core, self.since, now);
    }
}
