//! How a connection ends: by the application, by a fault, by the peer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ApplicationClose, VarInt};

use super::{Connection, State};
use crate::error::{ConnectionError, TransportError};
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
            let until = now + self.closing_period();
            self.state = State::closing(frame, until);
            // What a connection on its way out no longer needs.
            self.paths.forget_sent();
        }
    }

    /// Closing and draining take this long (MP-146).
    pub(super) fn closing_period(&self) -> Duration {
        self.paths.drain_period()
    }

    /// Takes the endpoint's word that the peer sent a stateless reset (RFC 9000 section 10.3).
    pub fn handle_stateless_reset(&mut self, now: Instant) {
        self.outbox.set_time(now);
        if matches!(self.state, State::Open | State::Closing(_)) {
            let open = self.state.is_open();
            let period = self.closing_period();
            self.state.drain(now, period);
            if open {
                self.lose(ConnectionError::Reset);
            }
        }
    }

    /// A CONNECTION_CLOSE frame arrived.
    pub(super) fn on_close(&mut self, now: Instant, close: Close) {
        let period = self.closing_period();
        self.state.drain(now, period);
        let reason = match close {
            Close::Connection(close) => ConnectionError::ConnectionClosed(close),
            Close::Application(close) => ConnectionError::ApplicationClosed(close),
        };
        self.lose(reason);
    }

    /// Ends the connection because of a fault and tells the application.
    pub(super) fn close_on_error(&mut self, now: Instant, result: Result<(), TransportError>) {
        if let Err(error) = result
            && self.state.is_open()
        {
            tracing::debug!(%error, frame = error.frame_type, "closing");
            let until = now + self.closing_period();
            self.state = State::fault(&error, until);
            self.lose(ConnectionError::TransportError(error));
        }
    }

    /// Tells the application that the connection is over.
    pub(super) fn lose(&mut self, reason: ConnectionError) {
        self.outbox.connection_lost(reason);
        // What a connection on its way out no longer needs.
        self.paths.forget_sent();
    }
}
