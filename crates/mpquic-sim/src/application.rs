//! [`Application`]: what runs on top of a connection in the lab.

use std::time::Instant;

use mpquic_core::{Connection, Event};

/// An application that uses a connection. Implement this trait to study workloads of your own;
/// [`crate::Transfers`] moves bulk data.
pub trait Application {
    /// Something happened to the connection.
    fn on_event(&mut self, now: Instant, connection: &mut Connection, event: &Event);

    /// When to be called with [`Self::on_timeout`].
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The time of [`Self::next_timeout`] has come.
    fn on_timeout(&mut self, now: Instant, connection: &mut Connection) {
        let _ = (now, connection);
    }
}
