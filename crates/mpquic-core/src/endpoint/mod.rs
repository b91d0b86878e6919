//! The endpoint: routes datagrams to connections and starts new ones.

#![allow(clippy::todo, unused_variables, reason = "skeleton: bodies follow")]

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;
use thiserror::Error;

use crate::config::{ClientConfig, EndpointConfig, ServerConfig};
use crate::connection::{Connection, Datagram, EndpointEvent};
use crate::error::ConnectionError;
use crate::ids::FourTuple;
use crate::packet::Transmit;

mod incoming;
mod reset;
mod token;

/// Names a connection within its endpoint; reused after the connection is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub usize);

/// What became of a datagram.
#[derive(Debug)]
pub enum DatagramEvent {
    /// Give it to this connection.
    Connection(ConnectionHandle, Datagram),
    /// A client wants to connect.
    NewConnection(Incoming),
    /// Send the bytes in `buf`: a Version Negotiation, Retry, close or stateless reset.
    Response(Transmit),
    /// The peer of this connection lost its state (RFC 9000 section 10.3): call
    /// [`Connection::handle_stateless_reset`].
    StatelessReset(ConnectionHandle),
}

/// A client's first datagram, waiting for a decision.
#[derive(Debug)]
pub struct Incoming {}

impl Incoming {
    /// Between which addresses.
    pub fn four_tuple(&self) -> FourTuple {
        todo!()
    }
    /// True if a token proved the client's address.
    pub fn remote_address_validated(&self) -> bool {
        todo!()
    }
}

/// Why a connection could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// The server name is invalid.
    #[error(transparent)]
    InvalidServerName(#[from] crate::crypto::InvalidServerName),
    /// The remote address has no port or is unspecified.
    #[error("{0} is not an address one can connect to")]
    InvalidRemoteAddress(std::net::SocketAddr),
}

/// Why an incoming connection failed at once.
#[derive(Debug)]
pub struct AcceptError {
    /// Why.
    pub cause: ConnectionError,
    /// Send the bytes in `buf`.
    pub response: Option<Transmit>,
}

/// Routes datagrams for any number of connections, client and server.
pub struct Endpoint {}

impl Endpoint {
    /// An endpoint; without `server` it takes no incoming connections. Everything random derives
    /// from `seed`.
    pub fn new(
        config: Arc<EndpointConfig>,
        server: Option<Arc<ServerConfig>>,
        seed: [u8; 32],
    ) -> Self {
        todo!()
    }
    /// Starts a connection.
    pub fn connect(
        &mut self,
        now: Instant,
        config: ClientConfig,
        four_tuple: FourTuple,
        server_name: &str,
    ) -> Result<(ConnectionHandle, Connection), ConnectError> {
        todo!()
    }
    /// Finds out whose a datagram is. Responses are written to `buf`, which is cleared first.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
        buf: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        todo!()
    }
    /// Accepts: the connection has already processed the first datagram.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<(ConnectionHandle, Connection), AcceptError> {
        todo!()
    }
    /// Refuses with CONNECTION_REFUSED.
    pub fn refuse(&mut self, incoming: Incoming, buf: &mut Vec<u8>) -> Transmit {
        todo!()
    }
    /// Asks the client to prove its address. Fails if it already has.
    pub fn retry(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<Transmit, Incoming> {
        todo!()
    }
    /// Forgets the attempt silently.
    pub fn ignore(&mut self, incoming: Incoming) {
        todo!()
    }
    /// Takes what a connection tells its endpoint.
    pub fn handle_event(&mut self, connection: ConnectionHandle, event: EndpointEvent) {
        todo!()
    }
    /// Connections not yet drained.
    pub fn open_connections(&self) -> usize {
        todo!()
    }
    /// Replaces the server configuration; `None` refuses new connections from now on.
    pub fn set_server_config(&mut self, server: Option<Arc<ServerConfig>>) {
        todo!()
    }
}
