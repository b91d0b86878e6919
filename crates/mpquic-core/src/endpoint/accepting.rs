//! Connections between their acceptance and their entry among the endpoint's routes.

use std::fmt;

use quinn_proto::ConnectionId;

use super::ConnectionHandle;
use super::attempts::Place;
use super::incoming::Arrived;
use crate::connection::Connection;
use crate::handshake::setup::ConnectionSetup;

/// An attempt that was accepted, with all that its connection needs of the endpoint: see
/// [`Endpoint::begin_accept`](super::Endpoint::begin_accept).
#[must_use = "an attempt that is dropped is ignored"]
pub struct Accepting {
    pub(super) reserved: Accepted,
    pub(super) setup: ConnectionSetup,
    /// What has arrived so far, the client's first datagram first.
    pub(super) datagrams: Vec<Arrived>,
}

impl Accepting {
    /// The connection's handle.
    pub fn handle(&self) -> ConnectionHandle {
        self.reserved.handle
    }

    /// Starts the connection: it processes what the client has sent so far, and answers it with
    /// TLS's first flight. That takes as long as a signature, and whatever else a certificate
    /// resolver does; the endpoint is not needed for it and can route other datagrams meanwhile.
    pub fn start(self) -> (Connection, Accepted) {
        let now = self.setup.now;
        let mut connection = Connection::new(self.setup);
        for datagram in self.datagrams {
            connection.handle_datagram(datagram.into_datagram(now));
        }
        (connection, self.reserved)
    }
}

impl fmt::Debug for Accepting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepting")
            .field("handle", &self.reserved.handle)
            .field("four_tuple", &self.setup.four_tuple)
            .finish_non_exhaustive()
    }
}

/// A connection that has started, and that its endpoint is to be told of:
/// [`Endpoint::finish_accept`](super::Endpoint::finish_accept).
#[derive(Debug)]
#[must_use = "no datagram reaches the connection before finish_accept"]
pub struct Accepted {
    pub(super) place: Place,
    pub(super) handle: ConnectionHandle,
    pub(super) initial_dcid: ConnectionId,
}

impl Accepted {
    /// The connection's handle.
    pub fn handle(&self) -> ConnectionHandle {
        self.handle
    }
}
