//! [`Incoming`]: a client's attempt, before the server decides.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mpquic_tokio as mp;
use quinn_proto::{ConnectionError, ConnectionId};
use thiserror::Error;

use crate::config::ServerConfig;
use crate::connecting::Connecting;
use crate::connection::Connection;
use crate::convert::connection_error;

/// A client's attempt to connect. Await the value, or decide by a method. The drop refuses the
/// client.
#[must_use = "the drop refuses the client"]
#[derive(Debug)]
pub struct Incoming {
    inner: mp::Incoming,
    remote: SocketAddr,
}

impl Incoming {
    pub(crate) fn new(inner: mp::Incoming) -> Self {
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self {
            // An attempt without a decision always has an address.
            remote: inner.remote_address().unwrap_or(unknown),
            inner,
        }
    }

    /// Accepts the client, with the endpoint's configuration.
    ///
    /// # Errors
    ///
    /// If no connection can start. [`Connecting`] returns errors of the handshake.
    pub fn accept(self) -> Result<Connecting, ConnectionError> {
        let remote = self.remote;
        let accepted = self.inner.accept().map_err(connection_error)?;
        Ok(Connecting::new(accepted, remote))
    }

    /// Accepts the client, with another configuration.
    ///
    /// # Errors
    ///
    /// If no connection can start. [`Connecting`] returns errors of the handshake.
    pub fn accept_with(
        self,
        server_config: Arc<ServerConfig>,
    ) -> Result<Connecting, ConnectionError> {
        let remote = self.remote;
        let config = server_config.to_mpquic().map_err(|error| {
            tracing::error!(%error, "a client is refused: its configuration cannot be used");
            ConnectionError::LocallyClosed
        })?;
        match self.inner.accept_with(config) {
            Ok(accepted) => Ok(Connecting::new(accepted, remote)),
            Err(mp::AcceptWithError::Connection(error)) => Err(connection_error(error)),
            Err(_) => Err(ConnectionError::LocallyClosed),
        }
    }

    /// Refuses the client with CONNECTION_REFUSED.
    pub fn refuse(self) {
        self.inner.refuse();
    }

    /// Asks the client to prove its address with a Retry packet.
    ///
    /// # Errors
    ///
    /// Returns the attempt if the client has already proved its address by a Retry packet.
    pub fn retry(self) -> Result<(), RetryError> {
        let remote = self.remote;
        self.inner.retry().map_err(|error| {
            let inner = error.into_incoming();
            RetryError(Box::new(Self { inner, remote }))
        })
    }

    /// Drops the attempt without an answer.
    pub fn ignore(self) {
        self.inner.ignore();
    }

    /// This side's IP address, if the system reports the address.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// The client's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }

    /// True if a token proved the client's address.
    pub fn remote_address_validated(&self) -> bool {
        self.inner.remote_address_validated()
    }

    /// True unless the client has already answered a Retry packet.
    pub fn may_retry(&self) -> bool {
        self.inner.may_retry()
    }

    /// The destination connection ID of the client's very first packet.
    pub fn orig_dst_cid(&self) -> ConnectionId {
        let id = self.inner.orig_dst_cid();
        id.unwrap_or_else(|| ConnectionId::new(&[]))
    }
}

/// The client has already answered a Retry packet.
#[derive(Debug, Error)]
#[error("the client has already answered a Retry packet")]
pub struct RetryError(Box<Incoming>);

impl RetryError {
    /// The attempt, for another decision.
    pub fn into_incoming(self) -> Incoming {
        *self.0
    }
}

/// The future of an accepted [`Incoming`].
#[derive(Debug)]
pub struct IncomingFuture(Result<Connecting, ConnectionError>);

impl Future for IncomingFuture {
    type Output = Result<Connection, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(connecting) => Pin::new(connecting).poll(cx),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl IntoFuture for Incoming {
    type Output = Result<Connection, ConnectionError>;
    type IntoFuture = IncomingFuture;

    fn into_future(self) -> IncomingFuture {
        IncomingFuture(self.accept())
    }
}

/// The future of [`Endpoint::accept`](crate::Endpoint::accept).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Accept<'a>(Pin<Box<dyn Future<Output = Option<Incoming>> + Send + Sync + 'a>>);

impl<'a> Accept<'a> {
    pub(crate) fn new(endpoint: &'a mp::Endpoint) -> Self {
        Self(Box::pin(async move {
            endpoint.accept().await.map(Incoming::new)
        }))
    }
}

impl Future for Accept<'_> {
    type Output = Option<Incoming>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Accept<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accept")
    }
}
