//! The handshake: TLS and its two packet number spaces, keys, parameter checks.

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionId, Side};

use super::Connection;
use super::early::EarlyKeys;
use super::setup::{ConnectionSetup, Role};
use super::versions::Versions;
use crate::crypto::key_phase::OneRttKeys;
use crate::crypto::{Keys, Session};
use crate::error::TransportError;
use crate::event::{EarlyData, Event, PathEvent};
use crate::ids::{PathId, SpaceId};
use crate::packet::delivery::{CryptoDelivery, Fate, HandshakeDelivery};
use crate::packet::writer::FrameWriter;
use crate::path::shared::Peer;
use crate::qlog;
use crate::recorder::packet_type;
use crate::space::{AckState, PacketNumberSpace};
use crate::stream::crypto_stream::CryptoStream;
use crate::version::Version;
use crate::wire::frame::{Frame, PacketType};
use crate::wire::transport_parameters::TransportParameters;

/// One of the two encryption levels of the handshake.
pub(super) struct Level {
    pub(super) version: Version,
    pub(super) keys: Keys,
    /// Keys for Initial packets of the peer in another version.
    pub(super) other: Option<(Version, Keys)>,
    pub(super) space: PacketNumberSpace,
    pub(super) crypto: CryptoStream,
}

impl Level {
    pub(super) fn new(id: SpaceId, version: Version, keys: Keys) -> Self {
        Self {
            version,
            keys,
            other: None,
            space: PacketNumberSpace::new(id),
            crypto: CryptoStream::default(),
        }
    }

    /// The keys for packets of a version.
    pub(super) fn keys_of(&self, version: Version) -> Option<&Keys> {
        if version == self.version {
            return Some(&self.keys);
        }
        let (other, keys) = self.other.as_ref()?;
        (*other == version).then_some(keys)
    }

    /// True if the level has something to send.
    pub(super) fn wants(&self, now: Instant) -> bool {
        self.wants_to_elicit() || self.space.received.ack_state(now) == AckState::Due
    }

    /// True if the level has something to send that must be acknowledged.
    pub(super) fn wants_to_elicit(&self) -> bool {
        self.crypto.wants_to_send() || self.space.probes > 0
    }
}

/// The state of the handshake, and what outlives it: TLS and the 1-RTT keys.
pub(super) struct Handshake {
    pub(super) role: Role,
    pub(super) session: Box<dyn Session>,
    pub(super) versions: Versions,
    /// Server: CRYPTO bytes that came before the version is chosen and the session started.
    pub(super) first_flight: Option<Vec<u8>>,
    pub(super) initial: Option<Box<Level>>,
    pub(super) handshake: Option<Box<Level>>,
    pub(super) one_rtt: Option<OneRttKeys>,
    /// CRYPTO of the 1-RTT level: session tickets. `None` once a server's have arrived.
    pub(super) crypto: Option<Box<CryptoStream>>,
    /// What we announce; `None` once the handshake is complete.
    pub(super) local_parameters: Option<Box<TransportParameters>>,
    /// We offer multipath to the peer.
    pub(super) announces_multipath: bool,
    /// We take RESET_STREAM_AT.
    pub(super) takes_reset_stream_at: bool,
    /// Our first source connection ID.
    pub(super) local_cid: ConnectionId,
    /// Destination of the client's Initial packets, which the Initial keys derive from.
    pub(super) initial_dcid: ConnectionId,
    /// The same before a Retry.
    pub(super) original_dcid: ConnectionId,
    pub(super) retry_scid: Option<ConnectionId>,
    /// The peer's first source connection ID.
    pub(super) peer_scid: Option<ConnectionId>,
    /// Token for our Initial packets.
    pub(super) token: Bytes,
    /// TLS is done (RFC 9001 section 4.1.1).
    pub(super) complete: bool,
    /// RFC 9001 section 4.1.2.
    pub(super) confirmed: bool,
    /// HANDSHAKE_DONE is to be sent.
    pub(super) done_pending: bool,
    /// 0-RTT keys and what became of 0-RTT.
    pub(super) early: Option<Box<EarlyKeys>>,
    pub(super) early_data: EarlyData,
    /// A NEW_TOKEN frame with this token is to be sent.
    pub(super) new_token: Option<Bytes>,
    data_reported: bool,
    parameters_known: bool,
    /// TLS is over.
    settled: bool,
}

impl Handshake {
    pub(super) fn new(setup: ConnectionSetup) -> Self {
        let token = match &setup.role {
            Role::Client(client) => client.token.clone(),
            Role::Server(_) => Bytes::new(),
        };
        let (peer_scid, first_flight) = match &setup.role {
            Role::Client(_) => (None, None),
            Role::Server(_) => (Some(setup.peer_cid), Some(Vec::new())),
        };
        let version = setup.versions.current();
        Self {
            role: setup.role,
            session: setup.session,
            versions: setup.versions,
            first_flight,
            initial: Some(Box::new(Level::new(
                SpaceId::Initial,
                version,
                setup.initial_keys,
            ))),
            handshake: None,
            one_rtt: None,
            crypto: Some(Box::default()),
            announces_multipath: setup.local_parameters.initial_max_path_id.is_some(),
            takes_reset_stream_at: setup.local_parameters.reset_stream_at,
            local_parameters: Some(Box::new(setup.local_parameters)),
            local_cid: setup.local_cid,
            initial_dcid: setup.initial_dcid,
            original_dcid: setup.initial_dcid,
            retry_scid: None,
            peer_scid,
            token,
            complete: false,
            confirmed: false,
            done_pending: false,
            early: None,
            early_data: EarlyData::NotOffered,
            new_token: None,
            data_reported: false,
            parameters_known: false,
            settled: false,
        }
    }

    /// The packet number space and CRYPTO stream of a handshake level.
    pub(super) fn level_mut(&mut self, space: SpaceId) -> Option<&mut Level> {
        match space {
            SpaceId::Initial => self.initial.as_deref_mut(),
            SpaceId::Handshake => self.handshake.as_deref_mut(),
            SpaceId::Data(_) => None,
        }
    }

    /// The level TLS expects bytes at.
    pub(super) fn reading_level(&self) -> SpaceId {
        if self.complete {
            SpaceId::Data(PathId::ZERO)
        } else if self.handshake.is_some() {
            SpaceId::Handshake
        } else {
            SpaceId::Initial
        }
    }

    /// The level of what TLS writes.
    fn writing_level(&self) -> SpaceId {
        match (&self.one_rtt, &self.handshake, &self.initial) {
            (None, Some(_), _) => SpaceId::Handshake,
            (None, None, Some(_)) => SpaceId::Initial,
            _ => SpaceId::Data(PathId::ZERO),
        }
    }

    /// The CRYPTO stream of any level that is not over.
    pub(super) fn crypto_mut(&mut self, space: SpaceId) -> Option<&mut CryptoStream> {
        match space {
            SpaceId::Data(_) => self.crypto.as_deref_mut(),
            SpaceId::Initial | SpaceId::Handshake => {
                self.level_mut(space).map(|level| &mut level.crypto)
            }
        }
    }

    /// Gives the fate of a CRYPTO frame to the level's stream.
    pub(super) fn on_crypto_delivery(
        &mut self,
        space: SpaceId,
        delivery: CryptoDelivery,
        fate: Fate,
    ) {
        let settled = self.settled;
        let Some(crypto) = self.crypto_mut(space) else {
            return;
        };
        crypto.on_delivery(delivery, fate);
        if settled && !crypto.is_unacked() {
            self.crypto = None;
        }
    }

    /// True if CRYPTO frames of the 1-RTT level wait.
    pub(super) fn wants_to_send_crypto(&self) -> bool {
        self.crypto
            .as_ref()
            .is_some_and(|crypto| crypto.wants_to_send())
    }

    /// CRYPTO frames of the 1-RTT level.
    pub(super) fn write_crypto(&mut self, writer: &mut FrameWriter<'_>) {
        if let Some(crypto) = &mut self.crypto {
            crypto.write_frames(writer);
        }
    }

    /// True if HANDSHAKE_DONE or NEW_TOKEN waits.
    pub(super) fn wants_to_send_frames(&self) -> bool {
        self.done_pending || self.new_token.is_some()
    }

    /// HANDSHAKE_DONE and NEW_TOKEN.
    pub(super) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        if self.done_pending
            && writer.try_write(&Frame::HandshakeDone, HandshakeDelivery::HandshakeDone)
        {
            self.done_pending = false;
        }
        if let Some(token) = self.new_token.take() {
            let frame = Frame::NewToken(token);
            if !writer.try_write(&frame, HandshakeDelivery::NewToken)
                && let Frame::NewToken(token) = frame
            {
                self.new_token = Some(token);
            }
        }
    }

    /// A client whose address the server may not know as valid must keep probing
    /// (RFC 9002 section 6.2.2.1).
    pub(super) fn peer_may_be_blocked(&self, side: Side) -> bool {
        side == Side::Client && !self.confirmed && !self.handshake_acked()
    }

    fn handshake_acked(&self) -> bool {
        self.handshake
            .as_ref()
            .is_some_and(|level| level.space.largest_acked().is_some())
    }

    /// A Retry arrived: start over with its connection ID and token (RFC 9000 section 17.2.5).
    pub(super) fn on_retry(&mut self, scid: ConnectionId, token: Bytes) {
        self.retry_scid = Some(scid);
        self.initial_dcid = scid;
        self.token = token;
        if let (Role::Client(client), Some(level)) = (&self.role, &mut self.initial) {
            level.keys = client.crypto.initial_keys(level.version, &scid);
            level.other = None;
            level.crypto.resend();
        }
    }

    /// The client starts over with another first destination connection ID.
    pub(super) fn set_initial_dcid(&mut self, dcid: ConnectionId) {
        self.initial_dcid = dcid;
        self.original_dcid = dcid;
    }

    /// Checks the peer's connection IDs against those the handshake used (RFC 9000 section 7.3).
    fn check_parameters(&self, peer: &TransportParameters) -> Result<(), TransportError> {
        let mismatch = |reason| Err(TransportError::transport_parameter(reason));
        if peer.initial_source_connection_id != self.peer_scid {
            return mismatch("initial_source_connection_id does not match");
        }
        if matches!(self.role, Role::Client(_)) {
            if peer.original_destination_connection_id != Some(self.original_dcid) {
                return mismatch("original_destination_connection_id does not match");
            }
            if peer.retry_source_connection_id != self.retry_scid {
                return mismatch("retry_source_connection_id does not match");
            }
        }
        let side = match self.role {
            Role::Client(_) => Side::Client,
            Role::Server(_) => Side::Server,
        };
        self.versions.check(side, peer)?;
        if peer.initial_max_path_id.is_some()
            && (peer
                .initial_source_connection_id
                .is_none_or(|cid| cid.is_empty())
                || self.initial_dcid.is_empty())
        {
            // MP-009
            return Err(TransportError::protocol_violation(
                "initial_max_path_id in a packet with a zero-length connection ID",
            ));
        }
        Ok(())
    }
}

impl Connection {
    /// Moves bytes between TLS and the CRYPTO streams until nothing changes.
    pub(super) fn drive_handshake(&mut self) -> Result<(), TransportError> {
        self.read_first_flight()?;
        if self.handshake.first_flight.is_some() {
            return Ok(());
        }
        for space in [
            SpaceId::Initial,
            SpaceId::Handshake,
            SpaceId::Data(PathId::ZERO),
        ] {
            while let Some(data) = self
                .handshake
                .crypto_mut(space)
                .and_then(CryptoStream::read)
            {
                self.handshake.session.read_handshake(&data)?;
                // Each piece may unlock keys that the next one needs.
                self.write_handshake()?;
            }
        }
        self.write_handshake()?;
        self.accept_early_data();
        self.report_handshake_data();
        // Until then a resumed client session shows the remembered ones (RFC 9001 section 4.6.3).
        let current = self.side == Side::Server || !self.handshake.session.is_handshaking();
        if !self.handshake.parameters_known
            && current
            && let Some(peer) = self.handshake.session.transport_parameters()?
        {
            self.handshake.check_parameters(&peer)?;
            self.handshake.parameters_known = true;
            self.settle_early_data(&peer)?;
            self.on_peer_parameters(peer);
        }
        if !self.handshake.complete && !self.handshake.session.is_handshaking() {
            self.on_handshake_complete()?;
        }
        Ok(())
    }

    fn write_handshake(&mut self) -> Result<(), TransportError> {
        let version = self.handshake.versions.current();
        loop {
            let mut bytes = Vec::new();
            let keys = self.handshake.session.write_handshake(&mut bytes);
            let done = keys.is_none() && bytes.is_empty();
            if !bytes.is_empty() {
                let space = self.handshake.writing_level();
                if let Some(crypto) = self.handshake.crypto_mut(space) {
                    crypto.write(Bytes::from(bytes));
                }
            }
            match keys {
                Some(keys) if self.handshake.handshake.is_none() => {
                    self.check_consumed(SpaceId::Initial)?;
                    let level = Level::new(SpaceId::Handshake, version, keys);
                    self.handshake.handshake = Some(Box::new(level));
                    self.log_handshake_keys(PacketType::Handshake);
                }
                Some(keys) => {
                    self.handshake.one_rtt = Some(OneRttKeys::new(keys));
                    self.log_handshake_keys(PacketType::OneRtt);
                }
                None => {}
            }
            if done {
                return Ok(());
            }
        }
    }

    /// TLS moves on to the next level: it must have read all of this one (RFC 9001 section 4.1.3).
    fn check_consumed(&mut self, space: SpaceId) -> Result<(), TransportError> {
        match self.handshake.crypto_mut(space) {
            Some(crypto) if crypto.unread() > 0 => Err(TransportError::protocol_violation(
                "CRYPTO data left over at the end of an encryption level",
            )),
            _ => Ok(()),
        }
    }

    fn report_handshake_data(&mut self) {
        if !self.handshake.data_reported
            && let Some(data) = self.handshake.session.handshake_data()
        {
            self.handshake.data_reported = true;
            if let Some(protocol) = &data.protocol {
                self.outbox
                    .log
                    .event(|| qlog::Event::ProtocolChosen(protocol));
            }
            self.outbox.event(Event::HandshakeDataReady);
        }
    }

    /// The peer's parameters arrived; on a server before it sends 0.5-RTT data.
    fn on_peer_parameters(&mut self, peer: TransportParameters) {
        self.outbox.log.event(|| qlog::Event::ParametersSet {
            initiator: qlog::Initiator::Remote,
            parameters: &peer,
        });
        self.log_versions(&peer);
        self.streams.set_peer_parameters(&peer);
        self.datagrams.set_peer_limit(peer.max_datagram_frame_size);
        self.idle.set_peer(peer.max_idle_timeout);
        self.paths.shared.ack_frequencies.set_peer(&peer);
        // A side that does not announce it, such as a server facing a zero-length connection ID
        // (MP-010), does not take it either.
        let announced = self.handshake.announces_multipath;
        let offered = peer.initial_max_path_id.filter(|_| announced);
        self.paths.ids.set_peer_parameter(offered);
        if let Some(path) = self.paths.any_mut(PathId::ZERO) {
            path.mtu.limit_to(peer.max_udp_payload_size);
        }
        self.log_mtu(PathId::ZERO);
        if let (Some(token), Some(slot)) = (
            peer.stateless_reset_token,
            self.paths.slot_mut(PathId::ZERO),
        ) {
            let changes = slot.peer_cids.set_handshake_token(token);
            self.apply_token_changes(changes);
        }
        // RFC 9000 section 5.1.1, MP-018
        if let (Some(preferred), Some(slot)) =
            (&peer.preferred_address, self.paths.slot_mut(PathId::ZERO))
        {
            let (cid, token) = (preferred.connection_id, preferred.stateless_reset_token);
            slot.peer_cids.add_preferred(cid, token);
        }
        if self.side == Side::Client {
            self.paths.shared.preferred = peer.preferred_address.clone().map(Box::new);
        }
        self.paths.shared.peer = Peer::from(&peer);
    }

    fn on_handshake_complete(&mut self) -> Result<(), TransportError> {
        if !self.handshake.parameters_known {
            return Err(TransportError {
                code: crate::error::TransportErrorCode::crypto(109),
                frame_type: 0,
                reason: "transport parameters are missing",
            });
        }
        self.check_consumed(SpaceId::Handshake)?;
        self.handshake.complete = true;
        self.paths.shared.handshake_complete = true;
        self.handshake.local_parameters = None;
        self.outbox.event(Event::Connected {
            multipath: self.paths.ids.is_multipath(),
        });
        self.issue_cids();
        if self.side == Side::Server {
            // RFC 9001 section 4.1.2: complete means confirmed on a server.
            self.handshake.done_pending = true;
            self.offer_token();
            self.confirm_handshake();
            if let Some(settled) = self.handshake.session.settle() {
                self.handshake.session = settled;
                self.handshake.settled = true;
            }
        }
        Ok(())
    }

    /// Seals a token that is good for every client address validated so far (MP-087).
    pub(super) fn offer_token(&mut self) {
        if let Role::Server(server) = &self.handshake.role
            && let Some(issuer) = &server.token_issuer
        {
            let addresses: Vec<_> = self
                .paths
                .iter()
                .filter(|path| path.tuple.validated)
                .map(|path| path.tuple.four_tuple.remote.ip())
                .collect();
            let version = self.handshake.versions.current();
            let token = issuer.token(version, &addresses, self.random.bytes());
            self.handshake.new_token = Some(token.into());
        }
    }

    /// HANDSHAKE_DONE arrived, or we are a server and TLS is done.
    pub(super) fn confirm_handshake(&mut self) {
        if !self.handshake.confirmed {
            self.handshake.confirmed = true;
            self.paths.shared.handshake_confirmed = true;
            self.idle.on_handshake_confirmed();
            // RFC 9001 section 4.9.2
            self.discard_level(SpaceId::Handshake);
            self.discard_level(SpaceId::Initial);
            self.outbox.event(Event::HandshakeConfirmed);
            if self.paths.ids.is_multipath() {
                self.outbox.event(Event::Path(PathEvent::Available));
            }
        }
    }

    /// Drops a level with its keys and what it had in flight (RFC 9002 section 6.4).
    pub(super) fn discard_level(&mut self, space: SpaceId) {
        let level = match space {
            SpaceId::Initial => self.handshake.initial.take(),
            SpaceId::Handshake => self.handshake.handshake.take(),
            SpaceId::Data(_) => None,
        };
        if level.is_some() {
            self.outbox
                .log
                .event(|| qlog::Event::KeysDiscarded(packet_type(space)));
        }
        if let (Some(mut level), Some(path)) = (level, self.paths.any_mut(PathId::ZERO)) {
            path.recovery
                .discard_space(&mut level.space, &mut Vec::new());
        }
    }

    /// A NEW_TOKEN frame arrived.
    pub(super) fn on_new_token(&mut self, token: Bytes) -> Result<(), TransportError> {
        match &self.handshake.role {
            // RFC 9000 section 19.7
            Role::Server(_) => Err(TransportError::protocol_violation(
                "NEW_TOKEN from a client",
            )),
            Role::Client(_) if token.is_empty() => {
                Err(TransportError::frame_encoding("empty NEW_TOKEN"))
            }
            Role::Client(client) => {
                let version = self.handshake.versions.current();
                client.tokens.insert(version, token);
                Ok(())
            }
        }
    }

    /// True if a Retry with this integrity tag is genuine and may be followed.
    pub(super) fn accepts_retry(
        &self,
        version: Version,
        scid: &ConnectionId,
        packet: &[u8],
        tag: &[u8; 16],
    ) -> bool {
        let Role::Client(client) = &self.handshake.role else {
            return false;
        };
        let expected = || {
            let original_dcid = &self.handshake.original_dcid;
            client.crypto.retry_tag(version, original_dcid, packet)
        };
        // RFC 9000 section 17.2.5.2: only one, and none once a packet was processed; RFC 9369
        // section 4.1: in the original version.
        self.handshake.retry_scid.is_none()
            && self.handshake.peer_scid.is_none()
            && *scid != self.handshake.original_dcid
            && version == self.handshake.versions.original()
            && expected() == *tag
    }
}
