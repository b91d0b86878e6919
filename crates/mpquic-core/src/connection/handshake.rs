//! What the connection does after each step of its handshake.

use std::time::Instant;

use quinn_proto::ConnectionId;

use super::{Connection, State};
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, PathEvent, RouteChange};
use crate::handshake::Step;
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::packet::delivery::Fate;
use crate::qlog;
use crate::recovery::PacketNumberSpace;
use crate::wire::frame::Crypto;
use crate::wire::transport_parameters::TransportParameters;

impl Connection {
    /// Logs what is known from the start, and makes a client's first flight.
    pub(super) fn start(&mut self, now: Instant, four_tuple: FourTuple, peer_cid: ConnectionId) {
        let local_cid = self.handshake.local_cid();
        let started = || qlog::Event::ConnectionStarted {
            four_tuple,
            local_cid,
            peer_cid,
        };
        self.outbox.log.event(started);
        self.paths.report(&mut self.outbox);
        let started = self.handshake.start(&mut self.outbox);
        self.follow_handshake_steps(now);
        self.close_on_error(now, started);
    }

    /// Advances the handshake and acts on its steps.
    pub(super) fn drive_handshake(&mut self, now: Instant) -> Result<(), TransportError> {
        let driven = self.handshake.drive(&mut self.outbox);
        self.follow_handshake_steps(now);
        driven
    }

    /// Acts on the steps that the handshake made.
    pub(super) fn follow_handshake_steps(&mut self, now: Instant) {
        while let Some(step) = self.handshake.next_step() {
            match step {
                Step::PeerCid(cid) => self.paths.set_handshake_cid(cid),
                Step::AddressValidated => {
                    if let Some(path) = self.paths.any_mut(PathId::ZERO) {
                        path.set_validated();
                    }
                }
                Step::ZeroRttOffered(remembered) => {
                    // RFC 9000 section 7.4.1; not the path limit (MP-012)
                    self.streams.set_peer_parameters(&remembered);
                    self.datagrams.set_peer_parameters(&remembered);
                }
                Step::ZeroRttRejected => {
                    if let Some(path) = self.paths.any_mut(PathId::ZERO) {
                        path.forget_sent();
                    }
                    self.streams.on_zero_rtt_rejected();
                }
                Step::Retried => self.on_retried(),
                Step::VersionMismatch => {
                    self.state = State::Drained;
                    self.lose(ConnectionError::VersionMismatch);
                    self.outbox.endpoint_event(RouteChange::Drained);
                }
                Step::PeerParameters(peer) => self.on_peer_parameters(&peer),
                Step::Complete => self.on_handshake_complete(now),
                Step::Confirmed => self.on_handshake_confirmed(now),
                Step::LevelDiscarded(mut level) => self.forget_sent(&mut level.space),
            }
        }
    }

    /// CRYPTO.
    pub(super) fn on_crypto(
        &mut self,
        now: Instant,
        space: SpaceId,
        crypto: Crypto,
    ) -> Result<(), TransportError> {
        self.handshake.on_crypto(space, crypto)?;
        match space {
            // For session tickets. The levels of the handshake are driven once their packet is
            // processed.
            SpaceId::Data(_) => self.drive_handshake(now),
            SpaceId::Initial | SpaceId::Handshake => Ok(()),
        }
    }

    fn on_peer_parameters(&mut self, peer: &TransportParameters) {
        self.streams.set_peer_parameters(peer);
        self.datagrams.set_peer_parameters(peer);
        self.idle.set_peer_parameters(peer);
        let announces_multipath = self.handshake.announces_multipath();
        self.paths
            .set_peer_parameters(peer, announces_multipath, &mut self.outbox);
    }

    fn on_handshake_complete(&mut self, now: Instant) {
        self.paths.shared.handshake_complete = true;
        self.outbox.event(Event::Connected {
            multipath: self.paths.ids.is_multipath(),
        });
        self.paths.issue_cids(&mut self.outbox);
        self.offer_token();
        self.handshake
            .retire_zero_rtt(now, self.paths.largest_pto());
    }

    fn on_handshake_confirmed(&mut self, now: Instant) {
        self.paths.shared.handshake_confirmed = true;
        self.idle.on_handshake_confirmed();
        self.outbox.event(Event::HandshakeConfirmed);
        if self.paths.ids.is_multipath() {
            self.outbox.event(Event::Path(PathEvent::Available));
        }
        self.paths.prefer_address(now, &mut self.outbox);
    }

    /// Packet numbers continue. Initial packets in flight are forgotten, and 0-RTT data counts as
    /// lost.
    fn on_retried(&mut self) {
        let mut lost = Vec::new();
        if let Some(path) = self.paths.any_mut(PathId::ZERO) {
            lost = path.forget_sent();
            if let Some(level) = self.handshake.level_mut(SpaceId::Initial) {
                path.recovery
                    .discard_space(&mut level.space, &mut Vec::new());
            }
        }
        for delivery in lost.into_iter().flat_map(|(_, packet)| packet.deliveries) {
            self.on_delivery(SpaceId::Data(PathId::ZERO), delivery, Fate::Lost);
        }
    }

    /// Stops waiting for acknowledgements in a packet number space of the handshake.
    fn forget_sent(&mut self, space: &mut PacketNumberSpace) {
        if let Some(path) = self.paths.any_mut(PathId::ZERO) {
            path.recovery.discard_space(space, &mut Vec::new());
        }
    }

    /// Server: offers the client a token that is valid for every address validated so far (MP-087).
    pub(super) fn offer_token(&mut self) {
        let validated = self.paths.iter().filter(|path| path.is_validated());
        let addresses = validated.map(|path| path.four_tuple().remote.ip());
        self.handshake.offer_token(addresses, &mut self.random);
    }
}
