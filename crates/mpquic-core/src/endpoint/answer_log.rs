//! [`AnswerLog`]: events for qlog that belong to no connection.

use std::fmt;
use std::time::Instant;

use super::server::Server;
use crate::qlog::{Event, Sink, Unnumbered};

/// Logs the answers that an endpoint sends without a connection. The log is created at the first
/// answer.
#[derive(Default)]
pub(super) struct AnswerLog {
    sink: Option<Box<dyn Sink>>,
    asked: bool,
}

impl AnswerLog {
    /// Logs a packet that answers a client without a connection.
    pub(super) fn sent(&mut self, now: Instant, server: &Server, packet: &Unnumbered<'_>) {
        let factory = server.config.transport.qlog.as_ref();
        if let (Some(factory), false) = (factory, self.asked) {
            self.asked = true;
            self.sink = factory.start_endpoint(now);
        }
        if let Some(sink) = &mut self.sink {
            sink.on_event(now, &Event::UnnumberedSent(packet));
        }
    }
}

impl fmt::Debug for AnswerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerLog").field(&self.sink).finish()
    }
}
