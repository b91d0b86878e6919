//! What the connection does after each step of its handshake.

use std::time::Instant;

use super::{Connection, State};
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, RouteChange};
use crate::handshake::Step;
use crate::ids::{PathId, SpaceId};
use crate::packet::delivery::Fate;

impl Connection {
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
                Step::PeerParameters(peer) => {
                    self.streams.set_peer_parameters(&peer);
                    self.datagrams.set_peer_parameters(&peer);
                    self.idle.set_peer_parameters(&peer);
                    let announces_multipath = self.handshake.announces_multipath();
                    self.paths
                        .set_peer_parameters(&peer, announces_multipath, &mut self.outbox);
                }
                Step::Complete => self.on_handshake_complete(now),
                Step::Confirmed => {
                    self.idle.on_handshake_confirmed();
                    self.outbox.event(Event::HandshakeConfirmed);
                    self.paths.on_handshake_confirmed(now, &mut self.outbox);
                }
                Step::LevelDiscarded(mut level) => {
                    self.paths.forget_handshake_space(&mut level.space);
                }
            }
        }
    }

    /// RFC 9001 section 4.1.2: for a client, the handshake is confirmed if a 1-RTT packet was acknowledged, as all
    /// packets of paths are but those of path 0. HANDSHAKE_DONE may be lost with the first link.
    #[inline]
    pub(super) fn on_path_acked(&mut self, now: Instant, path: PathId) {
        if path != PathId::ZERO && self.handshake.has_levels() {
            self.handshake.on_one_rtt_confirms(&mut self.outbox);
            self.follow_handshake_steps(now);
        }
    }

    fn on_handshake_complete(&mut self, now: Instant) {
        self.paths.on_handshake_complete();
        self.outbox.event(Event::Connected {
            multipath: self.paths.ids.is_multipath(),
        });
        self.paths.issue_cids(&mut self.outbox);
        let validated = self.paths.validated_addresses();
        self.handshake.offer_token(validated, &mut self.random);
        self.handshake
            .retire_zero_rtt(now, self.paths.largest_pto());
    }

    /// Packet numbers continue. Initial packets in flight are forgotten, and 0-RTT data counts as
    /// lost.
    fn on_retried(&mut self) {
        let mut lost = Vec::new();
        if let Some(path) = self.paths.any_mut(PathId::ZERO) {
            lost = path.forget_sent();
        }
        if let Some(level) = self.handshake.level_mut(SpaceId::Initial) {
            self.paths.forget_handshake_space(&mut level.space);
        }
        for delivery in lost.into_iter().flat_map(|(_, packet)| packet.deliveries) {
            self.on_delivery(SpaceId::Data(PathId::ZERO), delivery, Fate::Lost);
        }
    }
}
