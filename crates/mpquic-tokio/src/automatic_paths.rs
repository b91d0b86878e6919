//! [`AutomaticPaths`]: the paths of a client's connection that open on their own.

use std::time::Instant;

use mpquic_core::Connection;
use mpquic_core::knowledge::Knowledge;
use mpquic_paths::{Managed, ways};

/// The path manager of a connection, and the memory of what the connection sees of its paths.
#[derive(Debug)]
pub(crate) struct AutomaticPaths {
    pub(crate) managed: Managed,
    /// Later connections find the round-trip times of this one there.
    knowledge: Option<Knowledge>,
    /// When the connection began.
    since: Instant,
}

impl AutomaticPaths {
    pub(crate) fn new(managed: Managed, knowledge: Option<Knowledge>, since: Instant) -> Self {
        Self {
            managed,
            knowledge,
            since,
        }
    }

    /// The connection ends: its round-trip times are noted for later ones.
    pub(crate) fn on_end(&self, core: &Connection, now: Instant) {
        if let Some(knowledge) = &self.knowledge {
            ways::learn(knowledge, core, self.since, now);
        }
    }
}
