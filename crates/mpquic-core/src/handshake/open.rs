//! Decides which packets are opened, and with which keys.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionId, Side};

use super::setup::Role;
use super::state::{Handshake, Step};
use super::zero_rtt_keys::ZeroRttKeys;
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::outbox::Outbox;
use crate::packet::arrival::{Arrival, Opened};
use crate::protect::{self, Opening, UpdatableKeys};
use crate::qlog::{DropReason, KeyTrigger};
use crate::recovery::PacketNumberSpace;
use crate::version::Version;
use crate::wire::buf::MIN_DATAGRAM;
use crate::wire::frame::PacketType;
use crate::wire::header::{Header, ProtectedPacket};

impl Handshake {
    /// Opens a 1-RTT packet, or buffers it until the handshake is complete. `space` is that of the
    /// path which the packet's connection ID names (MP-035), if the path exists already.
    pub(crate) fn open_one_rtt(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
        space: Option<&PacketNumberSpace>,
        largest_pto: impl Fn() -> Duration,
        outbox: &mut Outbox,
    ) -> Opening {
        if !self.is_complete() {
            // RFC 9001 section 5.7
            return self.buffer(arrival, packet);
        }
        let Some(keys) = &mut self.one_rtt else {
            return Opening::Dropped(DropReason::KeyUnavailable);
        };
        let (path, size) = (arrival.path, packet.data.len());
        let mut keys = UpdatableKeys {
            keys,
            session: &mut *self.session,
            now: arrival.now,
            largest_pto,
            generation: 0,
            updated: false,
        };
        let opened = protect::open(packet, &mut keys, space, path);
        let generation = keys.generation;
        if keys.updated {
            self.log_key_update(KeyTrigger::RemoteUpdate, outbox);
        }
        match opened {
            Ok((unprotected, payload)) => {
                let number = unprotected.packet_number;
                let opened = Opened {
                    space: SpaceId::Data(path),
                    packet_type: PacketType::OneRtt,
                    version: None,
                    packet_number: number,
                    destination: *packet.header.dcid(),
                    size,
                    generation,
                    spin: unprotected.spin(),
                    is_newest: space.is_none_or(|space| number >= space.expected_next()),
                };
                Opening::Opened(opened, payload)
            }
            Err(refusal) => refusal.into(),
        }
    }

    /// Opens a 1-RTT packet of a path that does not exist yet if its payload `is_wanted` now, and
    /// buffers it otherwise.
    pub(crate) fn open_or_buffer(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
        is_wanted: impl Fn(&Bytes, PathId) -> bool,
        largest_pto: impl Fn() -> Duration,
        outbox: &mut Outbox,
    ) -> Opening {
        let protected = packet.clone();
        let opening = self.open_one_rtt(arrival, packet, None, largest_pto, outbox);
        if let Opening::Opened(_, payload) = &opening
            && !is_wanted(payload, arrival.path)
        {
            return self.buffer(arrival, &protected);
        }
        opening
    }

    /// Keeps a packet until [`Self::take_buffered`] asks for it.
    pub(crate) fn buffer(&mut self, arrival: &Arrival, packet: &ProtectedPacket) -> Opening {
        if self.buffered.push(arrival, packet) {
            Opening::Buffered
        } else {
            Opening::Dropped(DropReason::KeyUnavailable)
        }
    }

    /// The first buffered packet that can be processed now: the handshake is complete, and
    /// `is_ready` is true for the packet's path; or the packet is a 0-RTT packet, and the
    /// ClientHello has arrived.
    pub(crate) fn take_buffered(
        &mut self,
        is_ready: impl Fn(PathId) -> bool,
    ) -> Option<(Arrival, ProtectedPacket)> {
        if self.buffered.is_empty() {
            return None;
        }
        let (complete, is_early) = (self.is_complete(), self.first_flight.is_some());
        self.buffered.take(|arrival, header| {
            if matches!(header, Header::ZeroRtt { .. }) {
                return !is_early;
            }
            complete && is_ready(arrival.path)
        })
    }

    /// Opens an Initial, Handshake or 0-RTT packet. `application` is the space of path 0.
    pub(crate) fn open_long(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
        application: Option<&PacketNumberSpace>,
    ) -> Opening {
        let (packet_type, version) = match self.admit_long(arrival, &packet.header) {
            Ok(admitted) => admitted,
            Err(reason) => return Opening::Dropped(reason),
        };
        // RFC 9001 section 5.7: whether there will be keys depends on the rest of the ClientHello.
        if packet_type == PacketType::ZeroRtt && self.first_flight.is_some() {
            return self.buffer(arrival, packet);
        }
        let level = |space| {
            let level = self.level(space);
            let keys = level.and_then(|level| level.keys_of(version));
            (space, keys, level.map(|level| &level.space))
        };
        let (space, keys, numbers) = match packet_type {
            PacketType::Initial => level(SpaceId::Initial),
            PacketType::Handshake => level(SpaceId::Handshake),
            PacketType::ZeroRtt | PacketType::OneRtt => {
                let keys = self.zero_rtt.as_deref().and_then(ZeroRttKeys::opening);
                (SpaceId::Data(PathId::ZERO), keys, application)
            }
        };
        let Some(mut keys) = keys else {
            return Opening::Dropped(DropReason::KeyUnavailable);
        };
        let (destination, size) = (*packet.header.dcid(), packet.data.len());
        match protect::open(packet, &mut keys, numbers, PathId::ZERO) {
            Ok((unprotected, payload)) => {
                if self.role.side() == Side::Client && version != self.versions.current() {
                    self.follow_version(version);
                }
                let opened = Opened {
                    space,
                    packet_type,
                    version: Some(version),
                    packet_number: unprotected.packet_number,
                    destination,
                    size,
                    generation: 0,
                    spin: false,
                    is_newest: false,
                };
                Opening::Opened(opened, payload)
            }
            Err(refusal) => refusal.into(),
        }
    }

    /// Type and version of a long-header packet to open, or the reason against opening.
    fn admit_long(
        &mut self,
        arrival: &Arrival,
        header: &Header,
    ) -> Result<(PacketType, Version), DropReason> {
        match header {
            Header::Initial {
                version,
                scid,
                token,
                ..
            } => {
                if self.is_foreign(scid) || !self.may_be_initial(arrival, token) {
                    return Err(DropReason::Rejected);
                }
                if !self.takes_initial_of(*version) {
                    return Err(DropReason::Unsupported);
                }
                Ok((PacketType::Initial, *version))
            }
            // RFC 9369 section 4.1
            Header::Handshake { version, .. } if *version != self.versions.current() => {
                Err(DropReason::Unsupported)
            }
            Header::ZeroRtt { version, .. } if *version != self.versions.original() => {
                Err(DropReason::Unsupported)
            }
            Header::Handshake { scid, .. } if self.is_foreign(scid) => Err(DropReason::Rejected),
            Header::Handshake { version, .. } => Ok((PacketType::Handshake, *version)),
            Header::ZeroRtt { version, .. } => Ok((PacketType::ZeroRtt, *version)),
            Header::Short { .. } | Header::Retry { .. } | Header::VersionNegotiation { .. } => {
                Err(DropReason::Invalid)
            }
        }
    }

    /// RFC 9000 section 7.2: true for a packet whose source connection ID is not the peer's first
    /// one.
    fn is_foreign(&self, scid: &ConnectionId) -> bool {
        self.cids.peer.is_some_and(|known| known != *scid)
    }

    /// Checks rules for Initial packets: servers must not send a token (RFC 9000 section 17.2.2),
    /// and clients no small datagrams (section 14.1).
    fn may_be_initial(&self, arrival: &Arrival, token: &[u8]) -> bool {
        match self.role {
            Role::Client(_) => token.is_empty(),
            // RFC 9000 section 14.1
            Role::Server(_) => arrival.size >= MIN_DATAGRAM,
        }
    }

    /// The frames of an Initial or Handshake packet were processed.
    pub(crate) fn on_packet_processed(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        outbox: &mut Outbox,
    ) {
        match header {
            Header::Initial { scid, .. } => self.learn_peer_cid(*scid),
            Header::Handshake { .. } => self.on_handshake_packet(arrival.four_tuple, outbox),
            Header::ZeroRtt { .. }
            | Header::Short { .. }
            | Header::Retry { .. }
            | Header::VersionNegotiation { .. } => {}
        }
    }

    fn learn_peer_cid(&mut self, scid: ConnectionId) {
        if self.cids.peer.is_none() {
            self.cids.peer = Some(scid);
            self.steps.push_back(Step::PeerCid(scid));
        }
    }

    /// On a server, a Handshake packet proves the client's address, and Initial keys are discarded
    /// (RFC 9000 section 8.1, RFC 9001 section 4.9.1).
    fn on_handshake_packet(&mut self, four_tuple: FourTuple, outbox: &mut Outbox) {
        if matches!(self.role, Role::Server(_)) {
            self.steps.push_back(Step::AddressValidated(four_tuple));
            self.discard_level(SpaceId::Initial, outbox);
        }
    }

    /// Starts a key update (RFC 9001 section 6); false if one is not allowed yet.
    pub(crate) fn initiate_key_update(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        let may_update = self.is_confirmed();
        let updated = match &mut self.one_rtt {
            Some(keys) if may_update => keys.initiate(now, &mut *self.session),
            Some(_) | None => false,
        };
        if updated {
            self.log_key_update(KeyTrigger::LocalUpdate, outbox);
        }
        updated
    }

    /// Logs that new 1-RTT keys are in use.
    fn log_key_update(&self, trigger: KeyTrigger, outbox: &mut Outbox) {
        let generation = self.key_generation().unwrap_or(0);
        outbox
            .log
            .keys_updated(PacketType::OneRtt, generation, trigger);
    }
}
