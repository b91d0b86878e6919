//! The version of a connection: how it is chosen, and followed (RFC 9368, RFC 9369 section 4).

use quinn_proto::{ConnectionId, Side};
use rand::{Rng, RngExt};

use super::level::Level;
use super::setup::Role;
use super::{Handshake, Step};
use crate::config::EndpointConfig;
use crate::crypto::FirstFlight;
use crate::error::{Fault, TransportError};
use crate::event::EarlyData;
use crate::ids::SpaceId;
use crate::outbox::Outbox;
use crate::qlog::{self, UnnumberedKind};
use crate::random::SeededRandom;
use crate::version::Version;
use crate::wire::frame::PacketType;
use crate::wire::header::{Header, ProtectedPacket};
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
    is_fixed: bool,
    /// Client: it chose `original` from a Version Negotiation packet.
    is_second_choice: bool,
}

impl Versions {
    /// The client's first packet is `original`.
    pub(crate) fn new(config: &EndpointConfig, original: Version, seed: u32) -> Self {
        Self {
            current: original,
            original,
            supported: config.supported_versions.clone(),
            reserved: Version::reserved(seed),
            is_fixed: false,
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
    pub(super) fn fix(&mut self, version: Version) {
        self.current = version;
        self.is_fixed = true;
    }

    /// Client: true if the server may still choose this version (RFC 9369 section 4.1).
    fn may_become(&self, version: Version) -> bool {
        !self.is_fixed && self.supported.contains(&version)
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
                    Err(Fault::ChosenVersionNotUsed.into())
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
            None => return Err(Fault::VersionInformationMissing.into()),
        };
        if server.chosen != self.current.to_u32() {
            return Err(Fault::ChosenVersionNotUsed.into());
        }
        if self.is_second_choice {
            let mut offered = server.available.clone();
            if !offered.is_empty() {
                offered.push(server.chosen);
            }
            if Version::select(&self.supported, &offered) != Some(self.original) {
                return Err(Fault::VersionNegotiationForged.into());
            }
        }
        Ok(())
    }
}

impl Handshake {
    /// The version in use. A client knows it once the handshake is complete.
    pub(crate) fn version(&self) -> Version {
        self.versions.current()
    }

    /// Server: reads what came of the ClientHello. Once it is whole, chooses the version and starts
    /// TLS.
    pub(super) fn read_first_flight(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        let (Role::Server(server), Some(flight), Some(level), Some(parameters)) = (
            &self.role,
            &mut self.first_flight,
            &mut self.initial,
            &mut self.local_parameters,
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
        let version = self.versions.choose(offered.as_ref());
        if version != self.versions.original {
            // What the client sends before it knows is still in the original version.
            level.change_version(version, crypto.initial_keys(version, &self.cids.initial));
        }
        self.versions.fix(version);
        parameters.version_information = Some(self.versions.information());
        self.session = crypto.clone().start_session(version, parameters)?;
        let flight = self.first_flight.take().unwrap_or_default();
        self.log_local_parameters(outbox);
        self.session.read_handshake(&flight)
    }

    /// True if an Initial packet of this version can be opened, as far as we know.
    pub(super) fn takes_initial_of(&mut self, version: Version) -> bool {
        let Some(level) = &mut self.initial else {
            return version == self.versions.current;
        };
        if level.keys_of(version).is_none()
            && let Role::Client(client) = &self.role
            && self.versions.may_become(version)
        {
            let keys = client.crypto.initial_keys(version, &self.cids.initial);
            level.also_open(version, keys);
        }
        level.keys_of(version).is_some()
    }

    /// Client: the server answers in another version, which is the one to use from now on.
    pub(super) fn follow_version(&mut self, version: Version) {
        if let Some(level) = &mut self.initial {
            level.follow_version();
        }
        self.versions.fix(version);
        self.session.set_version(version);
    }

    /// Client: a Version Negotiation packet arrived. Starts over in a version the server speaks (RFC
    /// 9368 section 2.1). False if the packet is to be dropped.
    pub(super) fn on_version_negotiation(
        &mut self,
        packet: &ProtectedPacket,
        random: &mut SeededRandom,
        outbox: &mut Outbox,
    ) -> Result<bool, TransportError> {
        let Header::VersionNegotiation {
            dcid,
            scid,
            versions: offered,
        } = &packet.header
        else {
            return Ok(false);
        };
        // RFC 8999 section 6
        let is_answer = matches!(self.role, Role::Client(_))
            && (*dcid, *scid) == (self.cids.local, self.cids.initial);
        if !is_answer || !self.accepts_version_negotiation(offered) {
            return Ok(false);
        }
        let spoken = self.versions.supported.clone();
        let chosen = Version::select(&spoken, offered);
        let kind = UnnumberedKind::VersionNegotiation {
            versions: offered,
            spoken: &spoken,
            chosen,
        };
        self.log_unnumbered(scid, packet.data.len(), kind, outbox);
        match chosen {
            Some(version) => self.start_over(version, random, outbox)?,
            None => self.steps.push(Step::VersionMismatch),
        }
        Ok(true)
    }

    /// RFC 9000 section 6.2, RFC 9368 section 4: not once another packet was processed, and not if
    /// the server speaks the version attempted.
    fn accepts_version_negotiation(&self, offered: &[u32]) -> bool {
        let is_late =
            self.cids.peer.is_some() || self.cids.retry.is_some() || self.versions.is_second_choice;
        !is_late && !offered.contains(&self.versions.original.to_u32())
    }

    /// Client: makes another first flight, in a version that the server speaks.
    fn start_over(
        &mut self,
        version: Version,
        random: &mut SeededRandom,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        self.discard_level(SpaceId::Initial, outbox);
        self.abandon_zero_rtt(outbox);
        let mut dcid = [0; INITIAL_DCID_LENGTH];
        random.fill_bytes(&mut dcid);
        let dcid = ConnectionId::new(&dcid);
        self.cids.initial = dcid;
        self.cids.original = dcid;
        self.steps.push(Step::PeerCid(dcid));
        self.versions.current = version;
        self.versions.original = version;
        self.versions.reserved = Version::reserved(random.random());
        self.versions.is_second_choice = true;
        let (Role::Client(client), Some(parameters)) = (&self.role, &mut self.local_parameters)
        else {
            return Ok(());
        };
        let keys = client.crypto.initial_keys(version, &dcid);
        self.initial = Some(Box::new(Level::new(SpaceId::Initial, version, keys)));
        self.token = client.tokens.take(version);
        parameters.version_information = Some(self.versions.information());
        self.session = client
            .crypto
            .clone()
            .start_session(version, &client.server_name, parameters)
            .map_err(|_| TransportError::new(Fault::TlsNotStarted))?;
        self.log_local_parameters(outbox);
        outbox.log.handshake_keys(PacketType::Initial);
        if self.zero_rtt_state == EarlyData::NotOffered {
            self.offer_zero_rtt(outbox);
        }
        self.drive(outbox)
    }

    /// Logs a Retry or Version Negotiation packet that the client acts on.
    pub(super) fn log_unnumbered(
        &self,
        source: &ConnectionId,
        size: usize,
        kind: UnnumberedKind<'_>,
        outbox: &mut Outbox,
    ) {
        let packet = qlog::Unnumbered {
            destination: &self.cids.local,
            source,
            original_dcid: &self.cids.original,
            size,
            kind,
        };
        outbox
            .log
            .event(|| qlog::Event::UnnumberedReceived(&packet));
    }
}
