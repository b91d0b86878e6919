//! Choosing the version, and following the peer's choice (RFC 9368, RFC 9369 section 4).

use quinn_proto::{ConnectionId, Side};
use rand::{Rng, RngExt};

use super::level::Level;
use super::setup::Role;
use super::state::{Handshake, Step};
use crate::crypto::FirstFlight;
use crate::error::{Fault, TransportError};
use crate::event::ZeroRtt;
use crate::ids::SpaceId;
use crate::outbox::Outbox;
use crate::qlog::UnnumberedKind;
use crate::random::SeededRandom;
use crate::version::Version;
use crate::wire::buf::MIN_INITIAL_DCID;
use crate::wire::frame::PacketType;
use crate::wire::header::{Header, ProtectedPacket};

impl Handshake {
    /// Server: reads the received part of the ClientHello. Once it is complete, chooses the version
    /// and starts TLS.
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
        if version != self.versions.original() {
            // Until the client knows of the change, it sends in the original version.
            level.change_version(
                version,
                crypto.initial_keys(version, Side::Server, &self.cids.initial),
            );
        }
        self.versions.fix(version);
        parameters.version_information = Some(self.versions.information());
        self.session = crypto.clone().start_session(version, parameters)?;
        let flight = self.first_flight.take().unwrap_or_default();
        self.log_local_parameters(outbox);
        self.session.read_handshake(&flight)
    }

    /// True if we open Initial packets of this version.
    pub(super) fn takes_initial_of(&mut self, version: Version) -> bool {
        let Some(level) = &mut self.initial else {
            return version == self.versions.current();
        };
        if level.keys_of(version).is_none()
            && let Role::Client(client) = &self.role
            && self.versions.may_become(version)
        {
            let keys = client
                .crypto
                .initial_keys(version, Side::Client, &self.cids.initial);
            level.also_open(version, keys);
        }
        level.keys_of(version).is_some()
    }

    /// Client: the server answers in another version, which is used from now on.
    pub(super) fn follow_version(&mut self, version: Version) {
        if let Some(level) = &mut self.initial {
            level.follow_version();
        }
        self.versions.fix(version);
        self.session.set_version(version);
    }

    /// Client: handles a Version Negotiation packet. Starts over in a version that the server
    /// speaks (RFC 9368 section 2.1). False if the packet has to be dropped.
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
        let spoken = self.versions.supported().to_vec();
        let chosen = Version::select(&spoken, offered);
        let kind = UnnumberedKind::VersionNegotiation {
            versions: offered,
            spoken: &spoken,
            chosen,
        };
        self.log_unnumbered(scid, packet.data.len(), kind, outbox);
        match chosen {
            Some(version) => self.start_over(version, random, outbox)?,
            None => self.steps.push_back(Step::VersionMismatch),
        }
        Ok(true)
    }

    /// RFC 9000 section 6.2, RFC 9368 section 4: false once another packet was processed, and if
    /// the server speaks the version that was attempted.
    fn accepts_version_negotiation(&self, offered: &[u32]) -> bool {
        let is_late = self.cids.peer.is_some()
            || self.cids.retry.is_some()
            || self.versions.is_second_choice();
        !is_late && !offered.contains(&self.versions.original().to_u32())
    }

    /// Client: makes a new first flight, in a version that the server speaks.
    fn start_over(
        &mut self,
        version: Version,
        random: &mut SeededRandom,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        self.discard_level(SpaceId::Initial, outbox);
        self.abandon_zero_rtt(outbox);
        let mut dcid = [0; MIN_INITIAL_DCID];
        random.fill_bytes(&mut dcid);
        let dcid = ConnectionId::new(&dcid);
        self.cids.initial = dcid;
        self.cids.original = dcid;
        self.steps.push_back(Step::PeerCid(dcid));
        self.versions.start_over(version, random.random());
        let (Role::Client(client), Some(parameters)) = (&self.role, &mut self.local_parameters)
        else {
            return Ok(());
        };
        let keys = client.crypto.initial_keys(version, Side::Client, &dcid);
        self.initial = Some(Box::new(Level::new(SpaceId::Initial, version, keys)));
        self.token = client.take_token(version);
        parameters.version_information = Some(self.versions.information());
        self.session = client
            .crypto
            .clone()
            .start_session(version, &client.server_name, parameters)
            .map_err(|_| TransportError::new(Fault::TlsNotStarted))?;
        self.log_local_parameters(outbox);
        outbox.log.handshake_keys(PacketType::Initial);
        if self.zero_rtt_state == ZeroRtt::NotOffered {
            self.offer_zero_rtt(outbox);
        }
        Ok(())
    }
}
