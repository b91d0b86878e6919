//! Connection attempts that wait for a decision.

use std::fmt;
use std::sync::Arc;

use quinn_proto::ConnectionId;

use super::address_validation::Admission;
use super::attempts::Place;
use super::initial::FirstInitial;
use super::server::Server;
use super::unrouted::UnroutedDatagram;
use crate::config::ServerConfig;
use crate::ids::FourTuple;
use crate::version::Version;

/// A client's first datagram, waiting for a decision: [`accept`](super::Endpoint::accept),
/// [`refuse`](super::Endpoint::refuse), [`retry`](super::Endpoint::retry) or
/// [`ignore`](super::Endpoint::ignore). If it is dropped, the attempt is ignored.
#[must_use = "an attempt that is dropped is ignored"]
pub struct Incoming {
    pub(super) place: Place,
    pub(super) first: UnroutedDatagram,
    pub(super) initial: FirstInitial,
    pub(super) admission: Admission,
    /// The server configuration when the attempt arrived, unless it was replaced.
    pub(super) server: Arc<Server>,
}

impl Incoming {
    /// The addresses between which the datagram travelled.
    pub fn four_tuple(&self) -> FourTuple {
        self.first.four_tuple
    }

    /// The version of the client's first packet. The connection may switch to another one.
    pub fn version(&self) -> Version {
        self.initial.version
    }

    /// The configuration for the connection: that of the endpoint when the attempt arrived, unless
    /// it was replaced.
    pub fn server_config(&self) -> &Arc<ServerConfig> {
        &self.server.config
    }

    /// Replaces the configuration for the connection.
    pub fn set_server_config(&mut self, config: Arc<ServerConfig>) {
        self.server = Server::new(config);
    }

    /// The destination connection ID of the client's very first packet.
    pub fn original_destination(&self) -> ConnectionId {
        self.admission.original_dcid
    }

    /// True if a token proved the client's address.
    pub fn remote_address_validated(&self) -> bool {
        self.admission.address_validated
    }

    /// True if the client has not answered a Retry yet.
    pub fn may_retry(&self) -> bool {
        self.admission.retry_scid.is_none()
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("four_tuple", &self.first.four_tuple)
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}
