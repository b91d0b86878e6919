//! [`TransportErrorCode`]: what CONNECTION_CLOSE and PATH_ABANDON carry.

use std::fmt;

/// An error code of RFC 9000 section 20.1, or one of the multipath codes of RFC 10069.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransportErrorCode(u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl TransportErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The connection is closed without an error.
    NO_ERROR = 0x0;
    /// The endpoint met an internal error.
    INTERNAL_ERROR = 0x1;
    /// The server refused the connection.
    CONNECTION_REFUSED = 0x2;
    /// The peer sent data beyond its flow control credit.
    FLOW_CONTROL_ERROR = 0x3;
    /// The peer opened streams beyond its limit.
    STREAM_LIMIT_ERROR = 0x4;
    /// A frame arrived for a stream in a state that does not permit it.
    STREAM_STATE_ERROR = 0x5;
    /// The final size of a stream changed or was exceeded.
    FINAL_SIZE_ERROR = 0x6;
    /// A frame was badly formatted.
    FRAME_ENCODING_ERROR = 0x7;
    /// Transport parameters were badly formatted, missing or forbidden.
    TRANSPORT_PARAMETER_ERROR = 0x8;
    /// The peer issued more connection IDs than `active_connection_id_limit`.
    CONNECTION_ID_LIMIT_ERROR = 0x9;
    /// A protocol rule without a more specific code was broken.
    PROTOCOL_VIOLATION = 0xa;
    /// A client's Initial carried an invalid token.
    INVALID_TOKEN = 0xb;
    /// The application or its protocol closed the connection during the handshake.
    APPLICATION_ERROR = 0xc;
    /// More CRYPTO data arrived than can be buffered.
    CRYPTO_BUFFER_EXCEEDED = 0xd;
    /// A key update broke the rules.
    KEY_UPDATE_ERROR = 0xe;
    /// The confidentiality or integrity limit of the AEAD was reached.
    AEAD_LIMIT_REACHED = 0xf;
    /// No usable network path is left.
    NO_VIABLE_PATH = 0x10;
    /// Compatible version negotiation failed (RFC 9368).
    VERSION_NEGOTIATION_ERROR = 0x11;
    /// The application abandons a path (RFC 10069, in PATH_ABANDON).
    APPLICATION_ABANDON_PATH = 0x3e;
    /// No resources for the path (RFC 10069, in PATH_ABANDON).
    PATH_RESOURCE_LIMIT_REACHED = 0x3e75;
    /// The path is unstable or performs poorly (RFC 10069, in PATH_ABANDON).
    PATH_UNSTABLE_OR_POOR = 0x3e76;
    /// No connection ID is available for the path (RFC 10069, in PATH_ABANDON).
    NO_CID_AVAILABLE_FOR_PATH = 0x3e77;
}

impl TransportErrorCode {
    /// The code for a TLS alert (RFC 9001 section 4.8).
    pub const fn crypto(alert: u8) -> Self {
        Self(0x100 | alert as u64)
    }

    /// A code as it arrived; unknown codes are not an error.
    pub const fn from_u64(code: u64) -> Self {
        Self(code)
    }

    /// The value on the wire.
    pub const fn to_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.0) {
            (Some(name), _) => f.write_str(name),
            (None, code @ 0x100..=0x1ff) => write!(f, "CRYPTO_ERROR (TLS alert {})", code & 0xff),
            (None, code) => write!(f, "unknown error {code:#x}"),
        }
    }
}

impl fmt::Debug for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
