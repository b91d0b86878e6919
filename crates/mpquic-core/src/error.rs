//! Errors of connections, on the wire and for the application.

use std::fmt;

use bytes::Bytes;
use quinn_proto::ApplicationClose;
use thiserror::Error;

use crate::peer_text::PeerText;

pub use code::TransportErrorCode;
pub use fault::{Fault, TlsFailure};
pub use option::InvalidOption;

mod code;
mod fault;
mod option;

/// A fault of the peer (or of ours) that ends the connection with CONNECTION_CLOSE type 0x1c.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{}: {}", self.code(), self.reason())]
#[non_exhaustive]
pub struct TransportError {
    /// The rule that was broken.
    pub fault: Fault,
    /// The type of the frame at fault, 0 if unknown (RFC 9000 section 19.19).
    pub frame_type: u64,
}

impl TransportError {
    /// An error that no particular frame caused.
    pub const fn new(fault: Fault) -> Self {
        Self {
            fault,
            frame_type: 0,
        }
    }

    /// The code that goes on the wire.
    pub const fn code(&self) -> TransportErrorCode {
        self.fault.code()
    }

    /// A description of the error for people.
    pub const fn reason(&self) -> &'static str {
        self.fault.reason()
    }

    /// Sets the frame type at fault, unless it is set already.
    #[must_use]
    pub const fn in_frame(mut self, frame_type: u64) -> Self {
        if self.frame_type == 0 {
            self.frame_type = frame_type;
        }
        self
    }
}

impl From<Fault> for TransportError {
    fn from(fault: Fault) -> Self {
        Self::new(fault)
    }
}

/// The peer closed the connection with CONNECTION_CLOSE type 0x1c.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct ConnectionClose {
    /// Why.
    pub code: TransportErrorCode,
    /// The frame type the peer blames, 0 if unknown.
    pub frame_type: u64,
    /// The peer's reason phrase, possibly empty.
    pub reason: Bytes,
}

impl fmt::Display for ConnectionClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        if !self.reason.is_empty() {
            write!(f, ": {}", PeerText(&self.reason))?;
        }
        Ok(())
    }
}

/// The reason in an [`ApplicationClose`], without the peer's control characters.
struct ApplicationReason<'a>(&'a ApplicationClose);

impl fmt::Display for ApplicationReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PeerText(self.0.to_string().as_bytes()).fmt(f)
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer supports none of our QUIC versions.
    #[error("the peer speaks no version of QUIC that we do")]
    VersionMismatch,
    /// We closed the connection because of this fault.
    #[error("closed because of a protocol error: {0}")]
    TransportError(#[from] TransportError),
    /// The peer's stack closed the connection.
    #[error("closed by the peer: {0}")]
    ConnectionClosed(ConnectionClose),
    /// The peer's application closed the connection.
    #[error("closed by the peer's application: {}", ApplicationReason(.0))]
    ApplicationClosed(ApplicationClose),
    /// The peer lost its state and sent a stateless reset.
    #[error("reset by the peer")]
    Reset,
    /// No packet arrived on any path for the idle timeout.
    #[error("timed out: nothing was heard from the peer on any path")]
    TimedOut,
    /// The handshake was not complete after
    /// [`max_handshake_duration`](crate::config::TransportOptions::max_handshake_duration).
    #[error("timed out: the handshake took too long")]
    HandshakeTimedOut,
    /// No program listens at the server's address, according to the server's system (ICMP).
    /// Reported by drivers only.
    #[error("nobody listens at the server's address and port")]
    PortUnreachable,
    /// Our application closed the connection.
    #[error("closed by this application")]
    LocallyClosed,
    /// No unused connection ID can be made.
    #[error("connection IDs are exhausted")]
    CidsExhausted,
    /// A panic while the driver ran the connection: a fault of this software, or of a part given to
    /// it, such as a log. The driver gave the connection up. Reported by drivers only.
    #[error("given up after a panic; the log says which")]
    Panicked,
}

#[cfg(test)]
mod tests {
    use quinn_proto::VarInt;

    use super::*;

    /// A line of a log is one line, whatever the peer says.
    #[test]
    fn reasons_of_peers_stay_on_their_line() {
        let reason = Bytes::from_static("bye\n\u{1b}[2J\u{9b}1m\u{202e}".as_bytes());
        let application = ConnectionError::ApplicationClosed(ApplicationClose {
            error_code: VarInt::from_u32(7),
            reason: reason.clone(),
        });
        let transport = ConnectionError::ConnectionClosed(ConnectionClose {
            code: TransportErrorCode::INTERNAL_ERROR,
            frame_type: 0,
            reason,
        });
        for error in [application, transport] {
            let text = error.to_string();
            assert!(text.contains("bye  [2J 1m "), "{text:?}");
            assert!(text.chars().all(PeerText::is_plain), "{text:?}");
        }
    }
}
