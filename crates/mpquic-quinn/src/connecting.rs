//! [`Connecting`]: a connection during its handshake.

use std::any::Any;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use mpquic_tokio as mp;
use quinn_proto::ConnectionError;

use crate::connection::{Connection, handshake_data};
use crate::convert::connection_error;

/// A handshake in progress. Await the future for the [`Connection`]; drop the future to give up.
#[must_use = "a dropped Connecting gives the connection up"]
#[derive(Debug)]
pub struct Connecting {
    inner: mp::Connecting,
    /// The peer's address at the start.
    remote: SocketAddr,
}

impl Connecting {
    pub(crate) fn new(inner: mp::Connecting, remote: SocketAddr) -> Self {
        Self { inner, remote }
    }

    /// Returns the connection before the handshake is complete, if possible: on a client after an
    /// earlier connection with 0-RTT to the same server, on a server always. Attackers can repeat
    /// early data.
    ///
    /// # Errors
    ///
    /// Returns the unchanged `Connecting` if the client cannot send early data.
    pub fn into_0rtt(self) -> Result<(Connection, ZeroRttAccepted), Self> {
        let remote = self.remote;
        match self.inner.into_0rtt() {
            Ok((connection, accepted)) => Ok((
                Connection::new(connection, remote),
                ZeroRttAccepted(accepted),
            )),
            Err(inner) => Err(Self { inner, remote }),
        }
    }

    /// Waits for the application protocol and the server name, as a
    /// [`HandshakeData`](crate::crypto::rustls::HandshakeData) in a box. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the handshake failed before.
    pub async fn handshake_data(&mut self) -> Result<Box<dyn Any>, ConnectionError> {
        let data = self.inner.handshake_data().await;
        data.map(handshake_data).map_err(connection_error)
    }

    /// This side's IP address, if the system reports the address.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// The peer's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.inner.remote_address().unwrap_or(self.remote)
    }
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let remote = self.remote;
        Pin::new(&mut self.inner)
            .poll(cx)
            .map_ok(|connection| Connection::new(connection, remote))
            .map_err(connection_error)
    }
}

/// Becomes true if the server accepted early data, and false if not or if the handshake failed.
#[must_use = "the future tells whether early data arrived"]
#[derive(Debug)]
pub struct ZeroRttAccepted(mp::ZeroRttAccepted);

impl Future for ZeroRttAccepted {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        Pin::new(&mut self.0).poll(cx)
    }
}
