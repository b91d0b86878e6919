//! Accepting, refusing, retrying and ignoring connection attempts.

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use quinn_proto::ConnectionId;
use rand::RngExt;
use thiserror::Error;

use super::answers::Unproven;
use super::attempts::Place;
use super::incoming::Incoming;
use super::pressure::Answer;
use super::routes::ConnectionHandle;
use super::routing::Endpoint;
use super::unrouted::UnroutedDatagram;
use crate::config::ServerConfig;
use crate::connection::Connection;
use crate::crypto::AwaitingVersion;
use crate::error::{ConnectionError, TransportErrorCode};
use crate::event::{Datagram, RouteChange};
use crate::handshake::setup::{ConnectionSetup, Role, ServerSetup};
use crate::handshake::{Versions, local_parameters};
use crate::ids::PathId;
use crate::packet::Transmit;
use crate::wire::transport_parameters::{PreferredAddress, TransportParameters};

/// A connection attempt could not be accepted.
#[derive(Debug, Error)]
#[error("the connection could not be accepted")]
pub struct AcceptError {
    /// The reason.
    #[source]
    pub cause: ConnectionError,
    /// A datagram to send to the client; its bytes are in `buf`.
    pub response: Option<Transmit>,
}

/// An attempt that was accepted, with everything its connection needs from the endpoint: see
/// [`Endpoint::begin_accept`](super::Endpoint::begin_accept).
#[must_use = "an attempt that is dropped is ignored"]
pub struct Accepting {
    pub(super) reserved: Accepted,
    pub(super) setup: ConnectionSetup,
    /// The datagrams received so far, the client's first one first.
    pub(super) datagrams: Vec<UnroutedDatagram>,
}

impl Accepting {
    /// The connection's handle.
    pub fn handle(&self) -> ConnectionHandle {
        self.reserved.handle
    }

    /// Starts the connection: it processes the client's packets so far, and TLS computes its first
    /// flight, with a signature and the work of the certificate resolver. The call may take long.
    /// Meanwhile, the endpoint can route other datagrams.
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

/// A started connection, not yet known to its endpoint: pass it to
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

impl Endpoint {
    /// Accepts an attempt. The connection has processed the client's packets so far.
    ///
    /// TLS takes long: a driver with other tasks for the endpoint should call the three steps of
    /// this method one by one: [`Self::begin_accept`], [`Accepting::start`] and
    /// [`Self::finish_accept`].
    ///
    /// # Errors
    ///
    /// The errors of [`Self::begin_accept`].
    #[expect(clippy::result_large_err, reason = "rare, and moved once")]
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<(ConnectionHandle, Connection), AcceptError> {
        let (mut connection, accepted) = self.begin_accept(now, incoming, buf)?.start();
        let handle = accepted.handle();
        for datagram in self.finish_accept(now, accepted) {
            connection.handle_datagram(datagram);
        }
        Ok((handle, connection))
    }

    /// The first step of [`Self::accept`]: reserves what the connection needs from the endpoint.
    /// Until the last step, the endpoint keeps what the client sends, within bounds.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::CidsExhausted`] if no connection ID is free; then `buf` has an answer
    /// that refuses the client.
    #[expect(clippy::result_large_err, reason = "rare, and moved once")]
    pub fn begin_accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<Accepting, AcceptError> {
        buf.clear();
        let config = incoming.server.config.clone();
        let Some(local_cid) = self.new_cid() else {
            return Err(AcceptError {
                cause: ConnectionError::CidsExhausted,
                response: self.refuse(incoming, buf),
            });
        };
        let mut local_parameters = self.server_parameters(&incoming, local_cid);
        let initial = incoming.initial;
        let versions = Versions::new(&self.config, initial.version, self.random.random());
        let handle = self.routes.insert_accepted(local_cid);
        let four_tuple = incoming.first.four_tuple;
        local_parameters.preferred_address =
            self.preferred_address(handle, &config, four_tuple.local);
        let kept = self
            .attempts
            .start(now, &incoming.place, initial.dcid, handle);
        // The attempt may have been forgotten because the decision took too long.
        self.routes
            .insert_attempt(initial.dcid, incoming.place.key());
        self.stats.accepted_handshakes += 1;
        Ok(Accepting {
            setup: ConnectionSetup {
                now,
                four_tuple,
                endpoint: self.config.clone(),
                memory: self.memory.clone(),
                transport: config.transport.clone(),
                session: Box::new(AwaitingVersion),
                local_parameters,
                initial_keys: initial.keys,
                versions,
                initial_dcid: initial.dcid,
                local_cid,
                peer_cid: initial.scid,
                reset_key: self.reset_key.clone(),
                seed: self.random.random(),
                role: Role::Server(ServerSetup {
                    config,
                    address_validated: incoming.admission.address_validated,
                    proven: incoming.admission.proven,
                    token_issuer: incoming.server.token_issuer(),
                }),
            },
            datagrams: std::iter::once(incoming.first).chain(kept).collect(),
            reserved: Accepted {
                place: incoming.place,
                handle,
                initial_dcid: initial.dcid,
            },
        })
    }

    /// The transport parameters of a server's connection, without the preferred address.
    fn server_parameters(
        &mut self,
        incoming: &Incoming,
        local_cid: ConnectionId,
    ) -> TransportParameters {
        let config = &incoming.server.config;
        let random = self.random.random();
        let mut parameters = local_parameters(&self.config, &config.transport, local_cid, random);
        parameters.original_destination_connection_id = Some(incoming.admission.original_dcid);
        parameters.retry_source_connection_id = incoming.admission.retry_scid;
        parameters.stateless_reset_token = Some(self.reset_key.token(&local_cid));
        parameters.disable_active_migration = !config.migration;
        // MP-010
        if incoming.initial.scid.is_empty() {
            parameters.initial_max_path_id = None;
        }
        parameters
    }

    /// The preferred address for a client, with a connection ID; `None` if the client uses it
    /// already.
    fn preferred_address(
        &mut self,
        handle: ConnectionHandle,
        config: &ServerConfig,
        local: SocketAddr,
    ) -> Option<PreferredAddress> {
        let (ipv4, ipv6) = (config.preferred_address_v4, config.preferred_address_v6);
        let (v4, v6) = (ipv4.map(SocketAddr::V4), ipv6.map(SocketAddr::V6));
        let is_there = [v4, v6].contains(&Some(local));
        if v4.or(v6).is_none() || is_there {
            return None;
        }
        let connection_id = self.new_cid()?;
        let issued = RouteChange::ConnectionIdIssued(connection_id, PathId::ZERO);
        self.routes.on_change(handle, issued);
        Some(PreferredAddress {
            ipv4,
            ipv6,
            connection_id,
            stateless_reset_token: self.reset_key.token(&connection_id),
        })
    }

    /// The last step of [`Self::accept`]: datagrams are routed to the connection from now on.
    /// Returns those that have arrived since the first step, for the connection to handle.
    pub fn finish_accept(&mut self, now: Instant, accepted: Accepted) -> Vec<Datagram> {
        self.routes
            .set_initial(accepted.handle, accepted.initial_dcid);
        let datagrams = self.attempts.finish(&accepted.place).into_iter();
        datagrams.map(|kept| kept.into_datagram(now)).collect()
    }

    /// Refuses with CONNECTION_REFUSED. `None` if no packet can be sent, for example without a free
    /// connection ID.
    pub fn refuse(&mut self, incoming: Incoming, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        self.forget(&incoming);
        self.answered.insert(incoming.initial.dcid, Answer::Refusal);
        self.stats.refused_handshakes += 1;
        let code = TransportErrorCode::CONNECTION_REFUSED;
        self.close(&incoming.initial, incoming.four_tuple(), code, buf)
    }

    /// Asks the client to prove its address with a Retry packet.
    ///
    /// # Errors
    ///
    /// Returns the attempt if the client has answered a Retry already, or no connection ID is free.
    #[expect(
        clippy::result_large_err,
        reason = "the attempt goes back to its owner"
    )]
    pub fn retry(
        &mut self,
        now: Instant,
        incoming: Incoming,
        buf: &mut Vec<u8>,
    ) -> Result<Transmit, Incoming> {
        self.forget_abandoned(now);
        // RFC 9000 section 17.2.5.1
        if !incoming.may_retry() {
            return Err(incoming);
        }
        let Some(retry_scid) = self.new_cid() else {
            return Err(incoming);
        };
        buf.clear();
        self.forget(&incoming);
        self.answered.insert(incoming.initial.dcid, Answer::Retry);
        self.stats.retries += 1;
        let unproven = Unproven {
            server: &incoming.server,
            version: incoming.initial.version,
            dcid: incoming.initial.dcid,
            scid: incoming.initial.scid,
            four_tuple: incoming.four_tuple(),
        };
        Ok(self.answers.retry(now, &unproven, retry_scid, buf))
    }

    /// Drops the attempt without an answer.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.forget(&incoming);
        self.stats.ignored_handshakes += 1;
    }

    /// Drops the state of an attempt that was decided on.
    fn forget(&mut self, incoming: &Incoming) {
        let key = incoming.place.key();
        self.routes.remove_attempt(&incoming.initial.dcid, key);
        self.attempts.remove(&incoming.place);
    }
}
