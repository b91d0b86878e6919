//! [`Incoming`]: a client that wants to connect.

use std::future::{Future, IntoFuture};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mpquic_core::config::InvalidOption;
use mpquic_core::{ConnectionError, ConnectionId, FourTuple};

use crate::config::ServerConfig;
use crate::connecting::Connecting;
use crate::connection::Connection;
use crate::connection_state::SharedEndpoint;
use crate::start;

/// A client that wants to connect. Await the value to accept, or decide with a method. The drop
/// refuses the client.
#[derive(Debug)]
#[must_use = "dropping it refuses the connection"]
pub struct Incoming(Option<Box<Undecided>>);

#[derive(Debug)]
struct Undecided {
    core: mpquic_core::Incoming,
    endpoint: Arc<SharedEndpoint>,
}

/// The client's address is validated already, so a second Retry would be pointless.
#[derive(Debug, thiserror::Error)]
#[error("the client's address is validated already")]
pub struct RetryError(Box<Incoming>);

/// Why [`Incoming::accept_with`] failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptWithError {
    /// An option of the configuration has an invalid value.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// The connection could not be started.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

impl RetryError {
    /// Gives the connection attempt back for another decision.
    pub fn into_incoming(self) -> Incoming {
        *self.0
    }
}

impl Incoming {
    pub(crate) fn new(core: mpquic_core::Incoming, endpoint: Arc<SharedEndpoint>) -> Self {
        Self(Some(Box::new(Undecided { core, endpoint })))
    }

    /// Accepts, with the configuration that was in force when the client came. The call computes
    /// the first TLS messages of the server, which includes a signature. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// If no connection can start. [`Connecting`] returns errors of the handshake.
    pub fn accept(mut self) -> Result<Connecting, ConnectionError> {
        let Some(undecided) = self.0.take() else {
            return Err(ConnectionError::LocallyClosed);
        };
        let connection = start::accept(&undecided.endpoint, undecided.core)?;
        Ok(Connecting::new(connection))
    }

    /// Like [`Self::accept`], with another configuration. The server announces preferred addresses
    /// of the configuration, but the endpoint does not bind them.
    ///
    /// # Errors
    ///
    /// [`AcceptWithError::Option`] if the configuration is not valid; the client is refused then.
    /// Otherwise errors of [`Self::accept`].
    pub fn accept_with(mut self, config: ServerConfig) -> Result<Connecting, AcceptWithError> {
        let config = config.checked()?;
        if let Some(undecided) = &mut self.0 {
            undecided.core.set_server_config(config);
        }
        Ok(self.accept()?)
    }

    /// Refuses with CONNECTION_REFUSED; dropping the `Incoming` does the same.
    pub fn refuse(self) {
        drop(self);
    }

    /// Sends a Retry packet: the client has to try again with a token, which proves that the client
    /// receives at its address.
    ///
    /// # Errors
    ///
    /// Returns the attempt if [`Self::may_retry`] is false.
    pub fn retry(mut self) -> Result<(), RetryError> {
        let Some(Undecided { core, endpoint }) = self.0.take().map(|undecided| *undecided) else {
            return Ok(());
        };
        let mut response = Vec::new();
        let now = endpoint.now();
        let result = endpoint.lock().core.retry(now, core, &mut response);
        match result {
            Ok(transmit) => {
                endpoint.respond(&transmit, &response);
                Ok(())
            }
            Err(core) => Err(RetryError(Box::new(Self::new(core, endpoint)))),
        }
    }

    /// Drops the attempt without an answer.
    pub fn ignore(mut self) {
        if let Some(Undecided { core, endpoint }) = self.0.take().map(|undecided| *undecided) {
            endpoint.lock().core.ignore(core);
        }
    }

    /// The addresses between which the client connects.
    pub fn four_tuple(&self) -> Option<FourTuple> {
        self.0.as_ref().map(|undecided| undecided.core.four_tuple())
    }

    /// The client's address.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.four_tuple().map(|tuple| tuple.remote)
    }

    /// Our IP address to which the client sent; `None` if the socket is bound to all addresses and
    /// the system does not report the destination of datagrams.
    pub fn local_ip(&self) -> Option<IpAddr> {
        let local = self.four_tuple()?.local.ip();
        Some(local).filter(|ip| !ip.is_unspecified())
    }

    /// The destination connection ID of the client's very first packet.
    pub fn orig_dst_cid(&self) -> Option<ConnectionId> {
        let undecided = self.0.as_ref();
        undecided.map(|undecided| undecided.core.original_destination())
    }

    /// True unless the client has already answered a Retry packet.
    pub fn may_retry(&self) -> bool {
        let undecided = self.0.as_ref();
        undecided.is_some_and(|undecided| undecided.core.may_retry())
    }

    /// True if a token proved the client's address.
    pub fn remote_address_validated(&self) -> bool {
        let undecided = self.0.as_ref();
        undecided.is_some_and(|undecided| undecided.core.remote_address_validated())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(Undecided { core, endpoint }) = self.0.take().map(|undecided| *undecided) {
            let mut response = Vec::new();
            let transmit = endpoint.lock().core.refuse(core, &mut response);
            if let Some(transmit) = transmit {
                endpoint.respond(&transmit, &response);
            }
        }
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
