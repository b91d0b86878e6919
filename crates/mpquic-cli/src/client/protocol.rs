//! Requests and answers, independent of the application protocol.

use std::future::Future;
use std::ops::RangeInclusive;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri};
use mpquic_core::{ConnectionError, TransportErrorCode};
use thiserror::Error;

use crate::options::Alpn;
use crate::process::failure::{Cause, Failure};
use crate::text::count::count;
use crate::text::stamp::Stamp;

/// Close codes without an error: of HTTP/3, and of HTTP/0.9.
const NO_ERROR: [u64; 2] = [0x100, 0];
/// H3_REQUEST_REJECTED: the server did nothing for the request.
const REJECTED: u64 = 0x10b;
/// H3_REQUEST_CANCELLED: the server gave up the answer, for example after other answers delayed it
/// for too long.
const GIVEN_UP: u64 = 0x10c;
/// CRYPTO_ERROR: another handshake would fail in the same way (RFC 9000 section 20.1).
const CRYPTO_ERRORS: RangeInclusive<u64> = 0x100..=0x1ff;

/// The alerts of TLS by which a server refuses a client's certificate, or a client without one (RFC
/// 8446 section 6.2), as error codes of QUIC: bad_certificate to certificate_unknown, unknown_ca,
/// access_denied, decrypt_error (the signature is of another authority with the same name) and
/// certificate_required.
const CERTIFICATE_ALERTS: [u64; 9] = [
    0x12a, 0x12b, 0x12c, 0x12d, 0x12e, 0x130, 0x131, 0x133, 0x174,
];

/// The alert of TLS by which a server refuses a client whose application protocols it does not have
/// (no_application_protocol, RFC 7301 section 3.2), as an error code of QUIC.
const NO_PROTOCOL: u64 = 0x178;

/// A hint for a client that reaches no server: the URL may lack its port.
pub(crate) fn hint_of_port(server: &Authority) -> String {
    match server.port() {
        Some(_) => String::new(),
        None => format!(
            "; the URL names no port, which means 443: `mpquic serve` listens on 4433, as in https://{server}:4433/"
        ),
    }
}

/// A hint for a client after an error: the server has none of the client's application protocols
/// (`offered`), or takes no connections now.
pub(crate) fn advice(error: &ConnectionError, offered: &[Alpn]) -> Option<String> {
    match error {
        ConnectionError::ConnectionClosed(close) if close.code.to_u64() == NO_PROTOCOL => {}
        ConnectionError::ConnectionClosed(close)
            if close.code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            let told =
                "the server is stopping, or has as many connections as it takes; try again later";
            return Some(told.to_owned());
        }
        _ => return None,
    }
    let names = offered
        .iter()
        .map(|alpn| String::from_utf8_lossy(alpn.bytes()));
    let names = names.collect::<Vec<_>>().join(", ");
    let hint = match offered {
        [Alpn::Perf] => "`mpquic serve` measures only if it is started with --perf",
        _ => "`mpquic serve --perf` serves no files: `mpquic perf` measures the way to it",
    };
    Some(format!("the server does not speak {names}; {hint}"))
}

/// What a connection failed of, if the server refused it because of the client's certificate.
pub(crate) fn refused_certificate(error: &ConnectionError) -> Option<Failure> {
    match error {
        ConnectionError::ConnectionClosed(close)
            if CERTIFICATE_ALERTS.contains(&close.code.to_u64()) =>
        {
            Some(Cause::Refused.failed(format_args!(
                "the server wants a certificate that it trusts (--client-cert): {error}"
            )))
        }
        _ => None,
    }
}

/// The reason why a request has no complete answer.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    #[error("not found on the server")]
    NotFound,
    #[error("the server could not read the file to its end; the file may have changed there")]
    ServerFailed,
    #[error("the server refused the request (code {0:#x}{meaning})", meaning = meaning(*.0))]
    Refused(u64),
    #[error("the server redirects to {location} ({status})")]
    Redirected {
        status: StatusCode,
        location: String,
    },
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// With the server's words about it.
    #[error("the server answered {0}: {1}")]
    Explained(StatusCode, String),
    /// The requested part begins after the end of the file.
    #[error("the server answered 416 Range Not Satisfiable")]
    PastEnd { length: Option<u64> },
    /// The answer is not the requested rest of the file. The client may fetch the whole file.
    #[error("the server's answer is not valid: {0}")]
    NotTheRest(&'static str),
    #[error("the server's answer is not valid: {0}")]
    Malformed(&'static str),
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("HTTP/3 with the server failed: {0}")]
    Http(String),
    #[error("connection lost: {0}")]
    Connection(#[from] ConnectionError),
    #[error("the answer ended after {received} of {}", count(*.length, "byte"))]
    Truncated { length: u64, received: u64 },
    #[error("the answer is longer than announced ({})", count(*.0, "byte"))]
    TooLong(u64),
    #[error("the server is gone: nobody listens on its port")]
    Gone,
    #[error("the server sent nothing for {0} s")]
    Stalled(u64),
    #[error("the request was cancelled")]
    Cancelled,
    #[error("the server is stopping, and takes no further requests")]
    Stopping,
}

/// The meaning of an HTTP/3 error code (RFC 9114 section 8.1), in words.
fn meaning(code: u64) -> &'static str {
    match code {
        0x102 => ", an error in the server",
        0x107 => ", too many requests",
        REJECTED => ", nothing was done for it",
        GIVEN_UP => ", the server gave it up",
        0x10e => ", it was not well-formed",
        _ => "",
    }
}

impl RequestError {
    /// True if the same request may succeed later: the server did not answer, and reported no error
    /// of the request.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Connection(error) => match error {
                ConnectionError::ApplicationClosed(close) => {
                    NO_ERROR.contains(&close.error_code.into_inner())
                }
                ConnectionError::ConnectionClosed(close) => {
                    !CRYPTO_ERRORS.contains(&close.code.to_u64())
                }
                ConnectionError::TimedOut
                | ConnectionError::Reset
                | ConnectionError::TransportError(_)
                | ConnectionError::HandshakeTimedOut => true,
                _ => false,
            },
            Self::Refused(code) => matches!(*code, REJECTED | GIVEN_UP),
            Self::Status(status) | Self::Explained(status, _) => {
                matches!(status.as_u16(), 429 | 502..=504)
            }
            Self::Stalled(_) | Self::Gone | Self::Cancelled | Self::Stopping => true,
            _ => false,
        }
    }

    /// The status of the answer that refuses a request.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::NotFound => Some(StatusCode::NOT_FOUND),
            Self::Status(status) | Self::Explained(status, _) => Some(*status),
            _ => None,
        }
    }

    fn cause(&self) -> Cause {
        match self {
            Self::NotFound
            | Self::Refused(_)
            | Self::Redirected { .. }
            | Self::Status(_)
            | Self::Explained(..)
            | Self::PastEnd { .. } => Cause::Refused,
            Self::Unsupported(_) => Cause::Other,
            _ => Cause::Broken,
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let refused = match &error {
            RequestError::Connection(error) => refused_certificate(error),
            _ => None,
        };
        refused.unwrap_or_else(|| error.cause().failed(error))
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) url: Uri,
    pub(crate) method: Method,
    /// Fields from the user's options.
    pub(crate) fields: HeaderMap,
    /// The number of bytes that the client already has, and the version of the file.
    pub(crate) have: Option<(u64, Stamp)>,
}

impl Ask {
    pub(crate) fn get(url: &Uri) -> Self {
        Self {
            url: url.clone(),
            method: Method::GET,
            fields: HeaderMap::new(),
            have: None,
        }
    }
}

/// The client's side of an application protocol, over one connection.
pub(crate) trait Client: Sync {
    type Body: Body;

    /// Sends a request, and waits for its answer.
    fn ask(
        &self,
        ask: &Ask,
    ) -> impl Future<Output = Result<Response<Self::Body>, RequestError>> + Send;
}

/// An answer.
pub(crate) struct Response<B> {
    /// The offset of the body in the file.
    pub(crate) start: u64,
    /// The end of the body in the file, if the protocol announces the end.
    pub(crate) end: Option<u64>,
    /// Length of the whole file, if the protocol announces the length.
    pub(crate) length: Option<u64>,
    /// The version of the file, if a later request can name this version.
    pub(crate) stamp: Option<Stamp>,
    /// Status and fields. HTTP/0.9 has neither, so the status is 200 and the list of fields empty.
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: B,
}

/// The bytes of an answer.
pub(crate) trait Body: Send {
    /// Fills `chunks` with received data and returns their number; `None` at the end.
    fn read(
        &mut self,
        chunks: &mut [Bytes],
    ) -> impl Future<Output = Result<Option<usize>, RequestError>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpquic_core::ConnectionClose;

    /// A server of files does not answer measurements, and the other way round.
    #[test]
    fn servers_of_other_protocols_are_told_in_words() {
        let closed = |code| {
            ConnectionError::ConnectionClosed(ConnectionClose {
                code: TransportErrorCode::from_u64(code),
                frame_type: 0,
                reason: Bytes::new(),
            })
        };
        let refused = closed(0x100 + 120);
        for (offered, told) in [
            (
                &[Alpn::Perf][..],
                "the server does not speak perf; `mpquic serve` measures only if it is started with --perf",
            ),
            (
                &[Alpn::H3, Alpn::HqInterop],
                "the server does not speak h3, hq-interop; `mpquic serve --perf` serves no files: \
                 `mpquic perf` measures the way to it",
            ),
        ] {
            assert_eq!(advice(&refused, offered).as_deref(), Some(told));
        }
        for error in [closed(0x100 + 80), ConnectionError::TimedOut] {
            assert_eq!(advice(&error, &[Alpn::H3]), None);
        }
        let busy = advice(&closed(2), &[Alpn::H3]);
        assert!(busy.is_some_and(|told| told.starts_with("the server is stopping, or ")));
    }

    #[test]
    fn a_url_without_a_port_gets_a_hint() {
        let hint = |server: &str| hint_of_port(&server.parse().unwrap());
        assert!(hint("host").ends_with("`mpquic serve` listens on 4433, as in https://host:4433/"));
        assert_eq!(hint("host:443"), "");
        assert_eq!(hint("[::1]:4433"), "");
    }

    #[test]
    fn some_failures_are_temporary() {
        let status = |code| RequestError::Status(StatusCode::from_u16(code).unwrap());
        let closed = |code: u64| {
            let close = ConnectionClose {
                code: TransportErrorCode::from_u64(code),
                frame_type: 0,
                reason: Bytes::new(),
            };
            RequestError::Connection(ConnectionError::ConnectionClosed(close))
        };
        for (error, is_temporary, cause) in [
            (RequestError::Stalled(1), true, Cause::Broken),
            (RequestError::Gone, true, Cause::Broken),
            (RequestError::Cancelled, true, Cause::Broken),
            (RequestError::Stopping, true, Cause::Broken),
            (RequestError::Refused(REJECTED), true, Cause::Refused),
            (RequestError::Refused(GIVEN_UP), true, Cause::Refused),
            (RequestError::Refused(GIVEN_UP + 1), false, Cause::Refused),
            (closed(0x100 + 80), false, Cause::Broken),
            (closed(0x100 + 42), false, Cause::Refused),
            (closed(0x100 + 46), false, Cause::Refused),
            (closed(0x100 + 48), false, Cause::Refused),
            (closed(0x100 + 51), false, Cause::Refused),
            (closed(0x100 + 116), false, Cause::Refused),
            (closed(0x2), true, Cause::Broken),
            (status(429), true, Cause::Refused),
            (status(500), false, Cause::Refused),
            (status(502), true, Cause::Refused),
            (status(504), true, Cause::Refused),
            (status(505), false, Cause::Refused),
            (RequestError::NotFound, false, Cause::Refused),
            (
                RequestError::PastEnd { length: None },
                false,
                Cause::Refused,
            ),
            (RequestError::Unsupported("x"), false, Cause::Other),
            (RequestError::Malformed("x"), false, Cause::Broken),
            (RequestError::TooLong(1), false, Cause::Broken),
            (ConnectionError::TimedOut.into(), true, Cause::Broken),
            (ConnectionError::Reset.into(), true, Cause::Broken),
            (
                ConnectionError::HandshakeTimedOut.into(),
                true,
                Cause::Broken,
            ),
            (ConnectionError::LocallyClosed.into(), false, Cause::Broken),
        ] {
            assert_eq!(error.is_temporary(), is_temporary, "{error}");
            assert_eq!(Failure::from(error).cause(), Some(cause));
        }
    }
}
