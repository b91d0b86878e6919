//! The version of a connection: how it is chosen, and followed (RFC 9368, RFC 9369 section 4).

use quinn_proto::{ConnectionId, Side};
use rand::{Rng, RngExt};

use super::handshake::Level;
use super::setup::Role;
use super::{Connection, State};
use crate::config::EndpointConfig;
use crate::crypto::FirstFlight;
use crate::error::{ConnectionError, TransportError, TransportErrorCode};
use crate::event::{EarlyData, EndpointEvent};
use crate::ids::{PathId, SpaceId};
use crate::qlog::{self, UnnumberedKind};
use crate::version::Version;
use crate::wire::frame::PacketType;
use crate::wire::transport_parameters::{TransportParameters, VersionInformation};

/// Bytes of a client's first destination connection ID (RFC 9000 section 7.2).
const INITIAL_DCID_LENGTH: usize = 8;

/// Which version a connection uses, and which it may turn into.
#[derive(Debug, Clone)]
pub(crate) struct Versions {
    /// Of our packets, but for 0-RTT.
    current: Version,
    /// Of the client's first packets.
    original: Version,
    /// The preferred one first.
    supported: Vec<Version>,
    /// A number to offer that stands for nothing (RFC 9000 section 15).
    reserved: u32,
    /// `current` is final.
    settled: bool,
    /// Client: it chose `original` from a Version Negotiation packet.
    is_second_choice: bool,
}

fn error(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::VERSION_NEGOTIATION_ERROR, reason)
}

impl Versions {
    /// The client's first packet is `original`.
    pub(crate) fn new(config: &EndpointConfig, original: Version, seed: u32) -> Self {
        Self {
            current: original,
            original,
            supported: config.supported_versions.clone(),
            reserved: Version::reserved(seed),
            settled: false,
            is_second_choice: false,
        }
    }

    pub(super) fn current(&self) -> Version {
        self.current
    }

    /// The version of Retry and 0-RTT packets.
    pub(super) fn original(&self) -> Version {
        self.original
    }

    /// What we announce.
    pub(crate) fn information(&self) -> VersionInformation {
        let supported = self.supported.iter().map(|version| version.to_u32());
        VersionInformation {
            chosen: self.current.to_u32(),
            available: supported.chain([self.reserved]).collect(),
        }
    }

    /// No other version will follow.
    pub(super) fn settle(&mut self, version: Version) {
        self.current = version;
        self.settled = true;
    }

    /// Client: true if the server may still choose this version (RFC 9369 section 4.1).
    fn may_become(&self, version: Version) -> bool {
        !self.settled && self.supported.contains(&version)
    }

    /// Server: the version to go on in. Faults of the client's are found later.
    fn choose(&self, client: Option<&VersionInformation>) -> Version {
        let offered = client.filter(|client| client.chosen == self.original.to_u32());
        offered
            .and_then(|client| Version::select(&self.supported, &client.available))
            .unwrap_or(self.original)
    }

    /// Checks what the peer announced (RFC 9368 section 4).
    pub(super) fn check(
        &self,
        side: Side,
        peer: &TransportParameters,
    ) -> Result<(), TransportError> {
        let announced = peer.version_information.as_ref();
        match side {
            Side::Client => self.check_server(announced),
            Side::Server => match announced {
                Some(client) if client.chosen != self.original.to_u32() => {
                    Err(error("the chosen version is not the one in use"))
                }
                Some(_) | None => Ok(()),
            },
        }
    }

    fn check_server(&self, announced: Option<&VersionInformation>) -> Result<(), TransportError> {
        // RFC 9368 section 8: what a server means that knows version 1 only.
        let version_1 = VersionInformation {
            chosen: 1,
            available: vec![1],
        };
        let is_version_1 = self.current == Version::V1 && self.original == Version::V1;
        let server = match announced {
            Some(server) => server,
            None if is_version_1 => &version_1,
            None => return Err(error("version_information is missing")),
        };
        if server.chosen != self.current.to_u32() {
            return Err(error("the chosen version is not the one in use"));
        }
        if self.is_second_choice {
            let mut offered = server.available.clone();
            if !offered.is_empty() {
                offered.push(server.chosen);
            }
            if Version::select(&self.supported, &offered) != Some(self.original) {
                return Err(error("Version Negotiation was forged"));
            }
        }
        Ok(())
    }
}

impl Connection {
    /// The version of QUIC in use. A client knows it once the handshake is complete; until then the
    /// server may choose another one.
    pub fn version(&self) -> Version {
        self.handshake.versions.current
    }

    /// Server: reads what came of the ClientHello. Once it is whole, chooses the version and starts
    /// TLS.
    pub(super) fn read_first_flight(&mut self) -> Result<(), TransportError> {
        let handshake = &mut self.handshake;
        let (Role::Server(server), Some(flight), Some(level), Some(parameters)) = (
            &handshake.role,
            &mut handshake.first_flight,
            &mut handshake.initial,
            &mut handshake.local_parameters,
        ) else {
            return Ok(());
        };
        while let Some(data) = level.crypto.read() {
            flight.extend_from_slice(&data);
        }
        let crypto = &server.config.crypto;
        let FirstFlight::Complete(client) = crypto.read_first_flight(flight) else {
            return Ok(());
        };
        let offered = client.and_then(|client| client.version_information);
        let version = handshake.versions.choose(offered.as_ref());
        if version != handshake.versions.original {
            // What the client sends before it knows is still in the original version.
            let keys = crypto.initial_keys(version, &handshake.initial_dcid);
            level.other = Some((level.version, std::mem::replace(&mut level.keys, keys)));
            level.version = version;
        }
        handshake.versions.settle(version);
        parameters.version_information = Some(handshake.versions.information());
        handshake.session = crypto.clone().start_session(version, parameters)?;
        let flight = handshake.first_flight.take().unwrap_or_default();
        self.log_local_parameters();
        self.handshake.session.read_handshake(&flight)
    }

    /// True if an Initial packet of this version can be opened, as far as we know.
    pub(super) fn takes_initial_of(&mut self, version: Version) -> bool {
        let handshake = &mut self.handshake;
        let Some(level) = &mut handshake.initial else {
            return version == handshake.versions.current;
        };
        if level.keys_of(version).is_none()
            && let Role::Client(client) = &handshake.role
            && handshake.versions.may_become(version)
        {
            let keys = client.crypto.initial_keys(version, &handshake.initial_dcid);
            level.other = Some((version, keys));
        }
        level.keys_of(version).is_some()
    }

    /// Client: the server answers in another version, which is the one to use from now on.
    pub(super) fn follow_version(&mut self, version: Version) {
        let handshake = &mut self.handshake;
        if let Some(level) = &mut handshake.initial
            && let Some((_, keys)) = level.other.take()
        {
            level.keys = keys;
            level.version = version;
        }
        handshake.versions.settle(version);
        handshake.session.set_version(version);
    }

    /// Client: true if a Version Negotiation packet is to be acted on.
    pub(super) fn accepts_version_negotiation(
        &self,
        (dcid, scid): (ConnectionId, ConnectionId),
        offered: &[u32],
    ) -> bool {
        let handshake = &self.handshake;
        let versions = &handshake.versions;
        // RFC 8999 section 6
        let is_answer = self.side == Side::Client
            && (dcid, scid) == (handshake.local_cid, handshake.initial_dcid);
        // RFC 9000 section 6.2, RFC 9368 section 4
        let is_late = handshake.peer_scid.is_some()
            || handshake.retry_scid.is_some()
            || versions.is_second_choice;
        is_answer && !is_late && !offered.contains(&versions.original.to_u32())
    }

    /// Client: acts on a Version Negotiation packet, which has this source and size (RFC 9368
    /// section 2.1).
    pub(super) fn on_version_negotiation(
        &mut self,
        (scid, size): (ConnectionId, usize),
        offered: &[u32],
    ) -> Result<(), TransportError> {
        let spoken = self.handshake.versions.supported.clone();
        let chosen = Version::select(&spoken, offered);
        let kind = UnnumberedKind::VersionNegotiation {
            versions: offered,
            spoken: &spoken,
            chosen,
        };
        self.log_unnumbered(&scid, size, kind);
        match chosen {
            Some(version) => self.start_over(version),
            None => {
                self.state = State::Drained;
                self.lose(ConnectionError::VersionMismatch);
                self.outbox.endpoint_event(EndpointEvent::Drained);
                Ok(())
            }
        }
    }

    /// Client: makes another first flight, in a version that the server speaks.
    fn start_over(&mut self, version: Version) -> Result<(), TransportError> {
        self.discard_level(SpaceId::Initial);
        self.abandon_early_data();
        let mut dcid = [0; INITIAL_DCID_LENGTH];
        self.random.fill_bytes(&mut dcid);
        let dcid = ConnectionId::new(&dcid);
        if let Some(slot) = self.paths.slot_mut(PathId::ZERO) {
            slot.peer_cids.set_handshake_cid(dcid);
        }
        let handshake = &mut self.handshake;
        handshake.versions = Versions {
            current: version,
            original: version,
            reserved: Version::reserved(self.random.random()),
            is_second_choice: true,
            ..handshake.versions.clone()
        };
        handshake.set_initial_dcid(dcid);
        let (Role::Client(client), Some(parameters)) =
            (&handshake.role, &mut handshake.local_parameters)
        else {
            return Ok(());
        };
        let keys = client.crypto.initial_keys(version, &dcid);
        handshake.initial = Some(Box::new(Level::new(SpaceId::Initial, version, keys)));
        handshake.token = client.tokens.take(version);
        parameters.version_information = Some(handshake.versions.information());
        handshake.session = client
            .crypto
            .clone()
            .start_session(version, &client.server_name, parameters)
            .map_err(|_| TransportError::internal("TLS could not be started again"))?;
        self.log_local_parameters();
        self.log_handshake_keys(PacketType::Initial);
        if self.handshake.early_data == EarlyData::NotOffered {
            self.start_early_data();
        }
        self.drive_handshake()
    }

    /// Logs the versions of both sides, once the peer's are known.
    pub(super) fn log_versions(&mut self, peer: &TransportParameters) {
        let local = self.handshake.local_parameters.as_deref();
        self.outbox.log.event(|| qlog::Event::VersionChosen {
            local: local.and_then(|local| local.version_information.as_ref()),
            peer: peer.version_information.as_ref(),
            version: self.handshake.versions.current,
        });
    }
}
