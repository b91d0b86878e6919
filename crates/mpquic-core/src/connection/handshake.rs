//! The connection's reaction to each step of its handshake.

use std::time::Instant;

use super::{Connection, State};
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, RouteChange};
use crate::handshake::Step;
use crate::ids::{PathId, SpaceId};
use crate::packet::delivery::Fate;
use crate::path::Path;

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
                Step::AddressValidated(from) => self.paths.on_handshake_packet(from, now),
                Step::ZeroRttOffered(remembered) => {
                    let _no_copies = self.paths.shared.first_flight.end();
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
        let first = self.paths.any_mut(PathId::ZERO);
        let lost = first.map(Path::forget_sent).unwrap_or_default();
        if let Some(level) = self.handshake.level_mut(SpaceId::Initial) {
            self.paths.forget_handshake_space(&mut level.space);
        }
        for delivery in lost.into_iter().flat_map(|(_, packet)| packet.deliveries) {
            self.on_delivery(SpaceId::Data(PathId::ZERO), delivery, Fate::Lost);
        }
    }
}
