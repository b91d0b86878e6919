//! How a connection ends: by the application, by a fault, by the peer.

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ApplicationClose, VarInt};

use super::datagrams::drop_oversized;
use super::{Connection, State};
use crate::account;
use crate::error::{ConnectionError, Fault, TransportError};
use crate::path::life::Abandonment;
use crate::qlog;
use crate::wire::frame::Close;

impl Connection {
    /// Ends the connection; the peer's application gets the code and reason.
    pub fn close(&mut self, now: Instant, error_code: VarInt, reason: Bytes) {
        if self.state.is_open() {
            self.outbox.set_time(now);
            self.outbox.log.event(|| qlog::Event::LocallyClosed {
                error_code: error_code.into(),
                reason: &reason,
            });
            let frame = Close::Application(ApplicationClose { error_code, reason });
            let until = now + self.paths.drain_period();
            self.state = State::closing(frame, until);
            // A connection that is ending no longer needs it.
            self.paths.forget_sent();
        }
    }

    /// The endpoint received a stateless reset from the peer (RFC 9000 section 10.3).
    pub fn handle_stateless_reset(&mut self, now: Instant) {
        self.outbox.set_time(now);
        if matches!(self.state, State::Open | State::Closing(_)) {
            let open = self.state.is_open();
            let period = self.paths.drain_period();
            self.state.drain(now, period);
            if open {
                self.lose(ConnectionError::Reset);
            }
        }
    }

    /// The peer closed the connection.
    pub(super) fn on_close(&mut self, now: Instant, close: Close) {
        let period = self.paths.drain_period();
        self.state.drain(now, period);
        let reason = match close {
            Close::Connection(close) => ConnectionError::ConnectionClosed(close),
            Close::Application(close) => ConnectionError::ApplicationClosed(close),
        };
        self.lose(reason);
    }

    /// If `result` is an error, closes the connection and tells the application.
    pub(super) fn close_on_error(&mut self, now: Instant, result: Result<(), TransportError>) {
        if let Err(error) = result
            && self.state.is_open()
        {
            tracing::debug!(%error, frame = error.frame_type, "closing");
            let until = now + self.paths.drain_period();
            self.state = State::fault(&error, until);
            self.lose(ConnectionError::TransportError(error));
        }
    }

    /// Counts the memory in use, and closes the connection above its limit.
    pub(super) fn review_memory(&mut self, now: Instant) {
        let (streams, datagrams) = (&mut self.streams, &mut self.datagrams);
        let (handshake, outbox) = (&self.handshake, &self.outbox);
        let result = account::review(handshake, &self.paths, streams, datagrams, outbox);
        self.close_on_error(now, result);
    }

    /// Tells the application that the connection ended.
    pub(super) fn lose(&mut self, reason: ConnectionError) {
        self.outbox.connection_lost(reason);
        // A connection that is ending no longer needs it.
        self.paths.forget_sent();
    }

    /// Data in flight on an abandoned path moves to other paths, perhaps with smaller packets.
    /// Without another path, the connection ends.
    pub(super) fn after_abandonment(&mut self, now: Instant, abandonment: Abandonment) {
        match abandonment {
            Abandonment::Done => {
                self.repeat_frames();
                drop_oversized(&mut self.datagrams, &self.paths);
            }
            Abandonment::NoOtherPath if self.state.is_open() => {
                let error = TransportError::new(Fault::NoPathLeft);
                let until = now + self.paths.drain_period();
                self.state = State::fault(&error, until);
                self.lose(ConnectionError::TransportError(error));
            }
            Abandonment::NoOtherPath => {}
        }
    }
}
