//! [`ConnectionSetup`]: what an endpoint hands to a new connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionId, Side};

use super::version::Versions;
use crate::config::{EndpointConfig, ServerConfig, TransportConfig};
use crate::crypto::tokens::{ResetKey, TokenIssuer};
use crate::crypto::{ClientCrypto, Keys, Session};
use crate::ids::FourTuple;
use crate::knowledge::Knowledge;
use crate::memory::EndpointMemory;
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// Everything a connection starts from.
pub(crate) struct ConnectionSetup {
    pub(crate) now: Instant,
    pub(crate) four_tuple: FourTuple,
    pub(crate) endpoint: Arc<EndpointConfig>,
    pub(crate) transport: Arc<TransportConfig>,
    /// The memory of all connections of the endpoint.
    pub(crate) memory: Arc<EndpointMemory>,
    /// The state of one side.
    pub(crate) role: Role,
    /// The TLS session; a client's is started with `local_parameters`.
    pub(crate) session: Box<dyn Session>,
    /// The parameters that the session announces to the peer.
    pub(crate) local_parameters: TransportParameters,
    /// The version of the client's first packet, and those that the connection may switch to.
    pub(crate) versions: Versions,
    /// Keys for Initial packets, derived from `initial_dcid`.
    pub(crate) initial_keys: Keys,
    /// Destination connection ID of the client's Initial. On a server, that is the one of the
    /// Initial being accepted, which after a Retry is the Retry's source connection ID.
    pub(crate) initial_dcid: ConnectionId,
    /// Our connection ID, sequence number 0 of path 0.
    pub(crate) local_cid: ConnectionId,
    /// The first destination connection ID of our packets: on a server, the client's source
    /// connection ID; on a client, `initial_dcid`.
    pub(crate) peer_cid: ConnectionId,
    /// Derives the stateless reset token of every connection ID we issue.
    pub(crate) reset_key: Arc<ResetKey>,
    /// Everything random in the connection derives from this.
    pub(crate) seed: [u8; 32],
}

/// The state that differs between client and server.
pub(crate) enum Role {
    Client(Box<ClientSetup>),
    Server(ServerSetup),
}

impl Role {
    /// Which side the connection is.
    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Client(_) => Side::Client,
            Self::Server(_) => Side::Server,
        }
    }

    /// True for a peer with a proven address: the client chose the server's, or a token proved the
    /// client's.
    pub(crate) fn is_address_validated(&self) -> bool {
        match self {
            Self::Client(_) => true,
            Self::Server(server) => server.address_validated,
        }
    }

    /// Server: where the client has received not long ago, on an earlier connection.
    pub(crate) fn proven(&self) -> Vec<SocketAddr> {
        match self {
            Self::Client(_) => Vec::new(),
            Self::Server(server) => server.proven.clone(),
        }
    }
}

/// A client's part of the setup.
pub(crate) struct ClientSetup {
    /// Checks Retry packets and derives Initial keys again after one.
    pub(crate) crypto: Arc<dyn ClientCrypto>,
    pub(crate) server_name: Arc<str>,
    /// Keeps tokens of NEW_TOKEN frames.
    pub(crate) knowledge: Option<Knowledge>,
    /// Whether to move to the server's preferred address.
    pub(crate) use_preferred_address: bool,
    /// Further addresses from which the first flight leaves.
    pub(crate) first_flight_from: Vec<FourTuple>,
    /// Token for the first Initial, possibly empty.
    pub(crate) token: Bytes,
}

/// Longest token of a client, in bytes. Beside a much longer token, an Initial packet in the
/// smallest datagram has no room for the ClientHello, and the handshake would never get on.
pub(crate) const MAX_TOKEN: usize = 1000;

impl ClientSetup {
    /// A token for our first Initial of this version; empty if no usable token is known.
    pub(crate) fn take_token(&self, version: Version) -> Bytes {
        let knowledge = self.knowledge.as_ref();
        let token = knowledge.and_then(|known| known.take_token(version, &self.server_name));
        token
            .filter(|token| token.len() <= MAX_TOKEN)
            .unwrap_or_default()
    }

    /// Keeps a token that the server sent for a later connection in this version.
    pub(crate) fn save_token(&self, version: Version, token: Bytes) {
        if let Some(knowledge) = &self.knowledge
            && token.len() <= MAX_TOKEN
        {
            knowledge.save_token(version, &self.server_name, token);
        }
    }
}

/// A server's part of the setup.
pub(crate) struct ServerSetup {
    pub(crate) config: Arc<ServerConfig>,
    /// A token proved the client's address: no anti-amplification limit on path 0.
    pub(crate) address_validated: bool,
    /// Where the client has received not long ago, on an earlier connection.
    pub(crate) proven: Vec<SocketAddr>,
    /// Makes tokens for NEW_TOKEN; `None` if none are sent.
    pub(crate) token_issuer: Option<TokenIssuer>,
}
