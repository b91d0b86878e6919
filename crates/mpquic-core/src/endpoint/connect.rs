//! Connections started as a client.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionId, Side};
use rand::RngExt;
use thiserror::Error;

use super::routes::ConnectionHandle;
use super::routing::Endpoint;
use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::crypto::InvalidServerName;
use crate::handshake::setup::{ClientSetup, ConnectionSetup, Role};
use crate::handshake::{Versions, local_parameters};
use crate::ids::FourTuple;
use crate::version::Version;
use crate::wire::buf::MIN_INITIAL_DCID;

/// Why a connection could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server name is invalid.
    #[error(transparent)]
    InvalidServerName(#[from] InvalidServerName),
    /// The remote address has no port or is unspecified.
    #[error("cannot connect to {0}: it has no port, or is the unspecified address")]
    InvalidRemoteAddress(SocketAddr),
    /// No connection ID of the configured length is free.
    #[error("connection IDs are exhausted")]
    CidsExhausted,
    /// The endpoint does not speak this version.
    #[error("QUIC {0} is not among the endpoint's supported versions")]
    UnsupportedVersion(Version),
}

impl Endpoint {
    /// Starts a connection.
    ///
    /// # Errors
    ///
    /// If the server name or the address is not valid, the endpoint does not speak the version, or
    /// no connection ID is free.
    pub fn connect(
        &mut self,
        now: Instant,
        config: ClientConfig,
        four_tuple: FourTuple,
        server_name: &str,
    ) -> Result<(ConnectionHandle, Connection), ConnectError> {
        let remote = four_tuple.remote;
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(ConnectError::InvalidRemoteAddress(remote));
        }
        let supported = &self.config.supported_versions;
        let version = config.version.or(supported.iter().min().copied());
        let version = version.unwrap_or_default();
        if !supported.contains(&version) {
            return Err(ConnectError::UnsupportedVersion(version));
        }
        let local_cid = self.new_cid().ok_or(ConnectError::CidsExhausted)?;
        let random = self.random.random();
        let mut local_parameters =
            local_parameters(&self.config, &config.transport, local_cid, random);
        let versions = Versions::new(&self.config, version, self.random.random());
        local_parameters.version_information = Some(versions.information());
        local_parameters.alternative_address = config.use_alternative_addresses;
        let session = config.crypto.clone();
        let session = session.start_session(version, server_name, &local_parameters)?;
        let initial_dcid = ConnectionId::new(&self.random.random::<[u8; MIN_INITIAL_DCID]>());
        let mut client = ClientSetup {
            crypto: config.crypto.clone(),
            server_name: server_name.into(),
            knowledge: config.transport.knowledge.clone(),
            use_preferred_address: config.use_preferred_address,
            first_flight_from: config.first_flight_from,
            token: Bytes::new(),
        };
        client.token = client.take_token(version);
        let handle = self.routes.insert_started(local_cid);
        self.stats.outgoing_handshakes += 1;
        let connection = Connection::new(ConnectionSetup {
            now,
            four_tuple,
            endpoint: self.config.clone(),
            memory: self.memory.clone(),
            transport: config.transport,
            session,
            local_parameters,
            initial_keys: config
                .crypto
                .initial_keys(version, Side::Client, &initial_dcid),
            versions,
            initial_dcid,
            local_cid,
            peer_cid: initial_dcid,
            reset_key: self.reset_key.clone(),
            seed: self.random.random(),
            role: Role::Client(Box::new(client)),
        });
        Ok((handle, connection))
    }
}
