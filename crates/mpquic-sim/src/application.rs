//! [`Application`]: the code that uses a connection in the lab.

use std::time::Instant;

use mpquic_core::{Connection, Event};

/// An application that uses a connection. Implement this trait to study your own workloads;
/// [`crate::Transfers`] moves bulk data.
pub trait Application {
    /// The connection reported an event.
    fn on_event(&mut self, now: Instant, connection: &mut Connection, event: &Event);

    /// When [`Self::on_timeout`] should be called.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time of [`Self::next_timeout`] has come.
    fn on_timeout(&mut self, now: Instant, connection: &mut Connection) {
        let _ = (now, connection);
    }
}
