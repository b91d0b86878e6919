//! Requests and answers, independent of the application protocol.

use std::future::Future;

use bytes::Bytes;
use http::{StatusCode, Uri};
use mpquic_core::ConnectionError;
use thiserror::Error;

/// Why a request was not answered in full.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    #[error("not found on the server")]
    NotFound,
    #[error("the server could not read the file to its end")]
    ServerFailed,
    #[error("the server refused the request (code {0:#x})")]
    Refused(u64),
    #[error("the server says it is elsewhere: {location} ({status})")]
    Redirected {
        status: StatusCode,
        location: String,
    },
    #[error("the server answered {0}")]
    Status(StatusCode),
    #[error("the server's answer makes no sense: {0}")]
    Malformed(&'static str),
    #[error("HTTP/3: {0}")]
    Http(String),
    #[error("connection lost: {0}")]
    Connection(#[from] ConnectionError),
    #[error("the answer ended after {received} of {length} bytes")]
    Truncated { length: u64, received: u64 },
    #[error("the answer is longer than the {0} bytes that were announced")]
    TooLong(u64),
    #[error("the request was cancelled")]
    Cancelled,
}

/// The client's side of an application protocol, over one connection.
pub(crate) trait Client: Sync {
    type Body: Body;

    /// Asks for a file.
    fn get(
        &self,
        url: &Uri,
    ) -> impl Future<Output = Result<Response<Self::Body>, RequestError>> + Send;
}

/// An answer.
pub(crate) struct Response<B> {
    /// Length of the body, if the protocol announces it.
    pub(crate) length: Option<u64>,
    pub(crate) body: B,
}

/// The bytes of an answer.
pub(crate) trait Body: Send {
    /// Fills `chunks` with what has arrived and tells how many; `None` at the end.
    fn read(
        &mut self,
        chunks: &mut [Bytes],
    ) -> impl Future<Output = Result<Option<usize>, RequestError>> + Send;
}
