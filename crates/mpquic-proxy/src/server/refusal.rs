//! [`Refused`]: the answer to a request that gets no flow.

use http::header::{ALLOW, HeaderName, PROXY_AUTHENTICATE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

/// RFC 9209
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// A status, and what RFC 9209 section 2.3 calls the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    error: &'static str,
    /// Seconds until another try makes sense.
    retry_after: Option<u64>,
}

impl Refused {
    pub(crate) const DNS_ERROR: Self = Self::new(StatusCode::BAD_GATEWAY, "dns_error");
    pub(crate) const DNS_TIMEOUT: Self = Self::new(StatusCode::GATEWAY_TIMEOUT, "dns_timeout");
    pub(crate) const CONNECTION_REFUSED: Self =
        Self::new(StatusCode::BAD_GATEWAY, "connection_refused");
    pub(crate) const CONNECTION_TIMEOUT: Self =
        Self::new(StatusCode::GATEWAY_TIMEOUT, "connection_timeout");
    pub(crate) const UNREACHABLE: Self =
        Self::new(StatusCode::BAD_GATEWAY, "destination_ip_unroutable");
    pub(crate) const DENIED: Self = Self::new(StatusCode::FORBIDDEN, "destination_ip_prohibited");
    /// The user may not have this port of the proxy.
    pub(crate) const PORT: Self = Self::new(StatusCode::FORBIDDEN, "http_request_denied");
    pub(crate) const CREDENTIALS: Self = Self::new(
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        "http_request_denied",
    );
    pub(crate) const BAD_REQUEST: Self = Self::new(StatusCode::BAD_REQUEST, "http_request_error");
    pub(crate) const METHOD: Self = Self::new(StatusCode::METHOD_NOT_ALLOWED, "http_request_error");
    pub(crate) const PROTOCOL: Self = Self::new(StatusCode::NOT_IMPLEMENTED, "http_request_error");
    /// The system gives no sockets for ICMP.
    #[cfg(target_os = "linux")]
    pub(crate) const NO_ICMP: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "proxy_configuration_error",
    );
    pub(crate) const NOT_FOUND: Self = Self::new(StatusCode::NOT_FOUND, "http_request_error");

    pub(crate) const fn new(status: StatusCode, error: &'static str) -> Self {
        Self {
            status,
            error,
            retry_after: None,
        }
    }

    /// A temporary limit was reached.
    pub(crate) fn too_many(seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "connection_limit_reached")
        }
    }

    pub(crate) fn response(&self) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        let fields = response.headers_mut();
        if let Ok(reason) = HeaderValue::try_from(format!("mpquic; error={}", self.error)) {
            fields.insert(PROXY_STATUS, reason);
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            fields.insert(ALLOW, HeaderValue::from_static("CONNECT"));
        }
        if self.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            for challenge in [
                "Basic realm=\"mpquic\", charset=\"UTF-8\"",
                "Bearer realm=\"mpquic\"",
            ] {
                fields.append(PROXY_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
        }
        if let Some(seconds) = self.retry_after {
            fields.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}
