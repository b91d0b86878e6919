//! Datagram to packets to frames, and the one match that gives each frame to its owner.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::{ConnectionId, Side};

use super::handshake::Handshake;
use super::{Connection, State};
use crate::crypto::Session;
use crate::crypto::key_phase::{KeyChoice, OneRttKeys};
use crate::error::{ConnectionError, TransportError, TransportErrorCode};
use crate::event::{Datagram, Event};
use crate::ids::{PathId, SpaceId};
use crate::packet::arrival::{Arrival, Opened};
use crate::packet::opener::{self, OpenError, Unprotected};
use crate::path::MIN_DATAGRAM;
use crate::qlog::{DropReason, KeyTrigger, UnnumberedKind};
use crate::recorder::{Dropped, packet_type};
use crate::space::AckPolicy;
use crate::version::Version;
use crate::wire::frame::{
    Close, Frame, FrameIter, MaxStreamData, MaxStreams, PacketType, PathAck, ResetStreamAt,
    StreamDataBlocked, StreamsBlocked,
};
use crate::wire::header::{self, Header, ProtectedPacket};

/// What the frames of a packet were.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Content {
    ack_eliciting: bool,
    non_probing: bool,
    /// IMMEDIATE_ACK was among them.
    immediate_ack: bool,
}

impl Connection {
    /// Takes a datagram.
    pub fn handle_datagram(&mut self, datagram: Datagram) {
        let Datagram {
            now,
            four_tuple,
            ecn,
            path,
            data,
        } = datagram;
        let size = data.len();
        self.outbox.set_time(now);
        self.idle.on_datagram();
        self.outbox.stats.datagrams_received += 1;
        self.outbox.stats.bytes_received += size as u64;
        match &mut self.state {
            State::Open => {}
            State::Closing(_) => {
                self.state.on_datagram();
                self.look_for_close(data);
                return;
            }
            State::Draining(_) | State::Drained => return,
        }
        let arrival = Arrival {
            now,
            four_tuple,
            ecn,
            path,
            size,
        };
        // MP-086: a client takes nothing from a server address it did not choose.
        if self.side == Side::Client && !self.is_known_remote(&arrival) {
            self.drop_packet(&arrival, Dropped::unknown(size), DropReason::Rejected);
            return;
        }
        self.credit_datagram(&arrival);
        let result = self.handle_packets(&arrival, data);
        self.close_on_error(now, result);
    }

    /// Takes the endpoint's word that the peer sent a stateless reset (RFC 9000 section 10.3).
    pub fn handle_stateless_reset(&mut self, now: Instant) {
        self.outbox.set_time(now);
        if matches!(self.state, State::Open | State::Closing(_)) {
            let open = self.state.is_open();
            let period = self.closing_period();
            self.state.drain(now, period);
            if open {
                self.lose(ConnectionError::Reset);
            }
        }
    }

    fn is_known_remote(&self, arrival: &Arrival) -> bool {
        let remote = arrival.four_tuple.remote;
        let Some(path) = self.paths.any(arrival.path) else {
            return false;
        };
        // Packets from the handshake's address may be late once path 0 has left it.
        let is_handshake = path.id == PathId::ZERO && remote == self.paths.shared.handshake_address;
        is_handshake || path.knows_remote(remote)
    }

    /// Bytes received raise the 3x limit of the tuple they came on (RFC 9000 section 8.1).
    pub(super) fn credit_datagram(&mut self, arrival: &Arrival) {
        let side = self.side;
        if let Some(path) = self.paths.any_mut(arrival.path) {
            path.on_datagram_received(arrival.four_tuple, arrival.size, side);
        }
    }

    fn handle_packets(
        &mut self,
        arrival: &Arrival,
        mut data: BytesMut,
    ) -> Result<(), TransportError> {
        let cid_length = self.endpoint_config.connection_id_length;
        let mut first = true;
        while !data.is_empty() && self.state.is_open() {
            let rest = Dropped::unknown(data.len());
            let Ok(mut packet) = header::next_packet(&mut data, cid_length) else {
                if first {
                    self.drop_packet(arrival, rest, DropReason::Invalid);
                }
                return Ok(());
            };
            first = false;
            // RFC 9000 section 17.2, unless we announced that it may be greased (RFC 9287).
            if !packet.has_fixed_bit() && !self.endpoint_config.grease_quic_bit {
                let seen = Dropped::new(&packet.header, packet.data.len());
                self.drop_packet(arrival, seen, DropReason::Invalid);
                continue;
            }
            self.handle_packet(arrival, &mut packet)?;
        }
        self.handle_premature()
    }

    fn handle_packet(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
    ) -> Result<(), TransportError> {
        let seen = Dropped::new(&packet.header, packet.data.len());
        let versions = &self.handshake.versions;
        match &packet.header {
            Header::Short { .. } => self.handle_one_rtt(arrival, packet),
            Header::Initial {
                version,
                scid,
                token,
                ..
            } => {
                let (version, scid) = (*version, *scid);
                if self.is_foreign(scid) || !self.may_be_initial(arrival, token) {
                    self.drop_packet(arrival, seen, DropReason::Rejected);
                    return Ok(());
                }
                if !self.takes_initial_of(version) {
                    self.drop_packet(arrival, seen, DropReason::Unsupported);
                    return Ok(());
                }
                if self.handle_long(arrival, packet, (SpaceId::Initial, version))? {
                    self.learn_peer_scid(scid);
                    self.drive_handshake()?;
                }
                Ok(())
            }
            // RFC 9369 section 4.1
            Header::Handshake { version, .. } if *version != versions.current() => {
                self.drop_packet(arrival, seen, DropReason::Unsupported);
                Ok(())
            }
            Header::ZeroRtt { version, .. } if *version != versions.original() => {
                self.drop_packet(arrival, seen, DropReason::Unsupported);
                Ok(())
            }
            Header::Handshake { version, scid, .. } => {
                let version = *version;
                if self.is_foreign(*scid) {
                    self.drop_packet(arrival, seen, DropReason::Rejected);
                    return Ok(());
                }
                if self.handle_long(arrival, packet, (SpaceId::Handshake, version))? {
                    self.on_handshake_packet();
                    self.drive_handshake()?;
                    self.retire_early_keys(arrival.now);
                }
                Ok(())
            }
            Header::ZeroRtt { .. } => self.handle_early(arrival, packet),
            Header::Retry { .. } => {
                self.handle_retry(arrival, packet);
                Ok(())
            }
            Header::VersionNegotiation {
                dcid,
                scid,
                versions,
            } => {
                if !self.accepts_version_negotiation((*dcid, *scid), versions) {
                    self.log_dropped(arrival, seen, DropReason::Rejected);
                    return Ok(());
                }
                self.on_version_negotiation((*scid, packet.data.len()), versions)
            }
        }
    }

    /// RFC 9000 section 7.2: the peer's first source connection ID is final.
    fn is_foreign(&self, scid: ConnectionId) -> bool {
        self.handshake.peer_scid.is_some_and(|known| known != scid)
    }

    /// Servers send no tokens (RFC 9000 section 17.2.2), and clients no small datagrams with Initial
    /// packets (section 14.1).
    fn may_be_initial(&self, arrival: &Arrival, token: &[u8]) -> bool {
        match self.side {
            Side::Client => token.is_empty(),
            Side::Server => arrival.size >= MIN_DATAGRAM,
        }
    }

    fn learn_peer_scid(&mut self, scid: ConnectionId) {
        if self.handshake.peer_scid.is_none() {
            self.handshake.peer_scid = Some(scid);
            if let Some(slot) = self.paths.slot_mut(PathId::ZERO) {
                slot.peer_cids.set_handshake_cid(scid);
            }
        }
    }

    fn handle_retry(&mut self, arrival: &Arrival, packet: &ProtectedPacket) {
        let Header::Retry {
            version,
            scid,
            token,
            tag,
            ..
        } = &packet.header
        else {
            return;
        };
        let without_tag = packet.data.len().saturating_sub(tag.len());
        let retry = &packet.data[..without_tag];
        if token.is_empty() || !self.accepts_retry(*version, scid, retry, tag) {
            let seen = Dropped::new(&packet.header, packet.data.len());
            self.log_dropped(arrival, seen, DropReason::Rejected);
            return;
        }
        let kind = UnnumberedKind::Retry {
            version: *version,
            token,
        };
        self.log_unnumbered(scid, packet.data.len(), kind);
        self.follow_retry(*scid, token.clone());
    }

    fn follow_retry(&mut self, scid: ConnectionId, token: Bytes) {
        self.handshake.on_retry(scid, token);
        self.resend_early_data();
        if let Some(slot) = self.paths.slot_mut(PathId::ZERO) {
            slot.peer_cids.set_handshake_cid(scid);
        }
        if let (Some(level), Some(path)) = (
            &mut self.handshake.initial,
            self.paths.any_mut(PathId::ZERO),
        ) {
            // The number goes on; what was in flight is forgotten (RFC 9000 section 17.2.5.3).
            path.recovery
                .discard_space(&mut level.space, &mut Vec::new());
        }
        self.log_handshake_keys(PacketType::Initial);
    }

    /// A Handshake packet proves the client's address and ends Initial keys on the server
    /// (RFC 9000 section 8.1, RFC 9001 section 4.9.1).
    fn on_handshake_packet(&mut self) {
        if self.side == Side::Server {
            if let Some(path) = self.paths.any_mut(PathId::ZERO) {
                path.tuple.set_validated();
            }
            self.discard_level(SpaceId::Initial);
        }
    }

    /// Opens a long header packet and handles its frames; false if it was dropped.
    fn handle_long(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
        (space, version): (SpaceId, Version),
    ) -> Result<bool, TransportError> {
        let destination = *packet.header.dcid();
        let seen = Dropped::new(&packet.header, packet.data.len());
        let Some(level) = self.handshake.level_mut(space) else {
            self.drop_packet(arrival, seen, DropReason::KeyUnavailable);
            return Ok(false);
        };
        let expected = level.space.expected_next();
        let opened = level.keys_of(version).and_then(|keys| {
            let unprotected = opener::unprotect(packet, &*keys.header.remote, expected)?;
            let key = &*keys.packet.remote;
            let number = unprotected.packet_number;
            let payload = opener::open(packet, &unprotected, key, PathId::ZERO);
            Some(payload.map(|bytes| (number, bytes)))
        });
        let (packet_number, payload) = match opened {
            Some(Ok(opened)) => opened,
            Some(Err(OpenError::Transport(error))) => return Err(error),
            Some(Err(OpenError::NotAuthentic)) | None => {
                self.drop_packet(arrival, seen, DropReason::DecryptionFailure);
                return Ok(false);
            }
        };
        if level.space.received.is_duplicate(packet_number) {
            self.log_dropped(arrival, seen, DropReason::Duplicate);
            return Ok(false);
        }
        if self.side == Side::Client && version != self.handshake.versions.current() {
            self.follow_version(version);
        }
        let opened = Opened {
            space,
            packet_type: packet_type(space),
            version: Some(version),
            packet_number,
            destination,
            size: seen.size,
            generation: 0,
        };
        self.handle_payload(arrival, &opened, payload)?;
        Ok(true)
    }

    pub(super) fn handle_one_rtt(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
    ) -> Result<(), TransportError> {
        let Header::Short { dcid } = packet.header else {
            return Ok(());
        };
        let seen = Dropped::new(&packet.header, packet.data.len());
        if self.is_premature(arrival.path) {
            self.keep_premature(arrival, packet);
            return Ok(());
        }
        let Handshake {
            one_rtt, session, ..
        } = &mut self.handshake;
        let Some(keys) = one_rtt.as_mut() else {
            self.drop_packet(arrival, seen, DropReason::KeyUnavailable);
            return Ok(());
        };
        let Some(slot) = self.paths.slot(arrival.path) else {
            self.drop_packet(arrival, seen, DropReason::ConnectionUnknown);
            return Ok(());
        };
        // MP-035: expand the number in the space of the path the connection ID names.
        let expected = slot
            .path
            .as_ref()
            .map_or(0, |path| path.space.expected_next());
        let tail = reset_token(&packet.data);
        match open_one_rtt((keys, &mut **session), packet, expected, arrival.path) {
            Some((Ok(payload), choice, unprotected)) => {
                let paths = &self.paths;
                let pto = || paths.largest_pto();
                let generation = keys.generation_of(choice);
                if keys.on_opened(choice, arrival.now, &mut **session, pto) {
                    self.log_key_update(KeyTrigger::RemoteUpdate);
                }
                let opened = Opened {
                    space: SpaceId::Data(arrival.path),
                    packet_type: PacketType::OneRtt,
                    version: None,
                    packet_number: unprotected.packet_number,
                    destination: dcid,
                    size: seen.size,
                    generation,
                };
                self.handle_one_rtt_payload(arrival, &opened, payload, unprotected.spin())
            }
            Some((Err(OpenError::Transport(error)), ..)) => Err(error),
            Some((Err(OpenError::NotAuthentic), ..)) => {
                self.drop_packet(arrival, seen, DropReason::DecryptionFailure);
                if tail.is_some_and(|token| self.paths.is_reset_token(token)) {
                    self.handle_stateless_reset(arrival.now);
                    return Ok(());
                }
                match &mut self.handshake.one_rtt {
                    Some(keys) => keys.on_open_failed(&mut *self.handshake.session),
                    None => Ok(()),
                }
            }
            None => {
                self.drop_packet(arrival, seen, DropReason::KeyUnavailable);
                Ok(())
            }
        }
    }

    fn handle_one_rtt_payload(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
        spin: bool,
    ) -> Result<(), TransportError> {
        let seen = Dropped::one_rtt(opened.size);
        if self.is_unwanted_migration(arrival) || !self.admit_path(arrival) {
            self.drop_packet(arrival, seen, DropReason::Rejected);
            return Ok(());
        }
        let side = self.side;
        let Some(path) = self.paths.any_mut(arrival.path) else {
            return Ok(());
        };
        if path.space.received.is_duplicate(opened.packet_number) {
            self.log_dropped(arrival, seen, DropReason::Duplicate);
            return Ok(());
        }
        let newest = opened.packet_number >= path.space.expected_next();
        if newest && path.spins {
            path.on_spin(side, spin);
        }
        let content = self.handle_payload(arrival, opened, payload)?;
        self.after_one_rtt(arrival, newest && content.non_probing);
        Ok(())
    }

    /// Gives every frame to its owner, then records the packet as received.
    pub(super) fn handle_payload(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
    ) -> Result<Content, TransportError> {
        if payload.is_empty() {
            // RFC 9000 section 12.4
            return Err(TransportError::protocol_violation("packet without frames"));
        }
        self.log_received(opened, &payload);
        let mut content = Content::default();
        for frame in FrameIter::new(payload, self.reads_multipath(opened.packet_type)) {
            let frame = frame?;
            let frame_type = frame.frame_type();
            // RFC 9000 section 12.4, MP-004
            if !frame.is_allowed_in(opened.packet_type) {
                return Err(
                    TransportError::protocol_violation("frame not allowed in this packet")
                        .in_frame(frame_type),
                );
            }
            content.ack_eliciting |= frame.is_ack_eliciting();
            content.non_probing |= !frame.is_probing();
            content.immediate_ack |= frame == Frame::ImmediateAck;
            self.on_frame(arrival, opened, frame)
                .map_err(|error| error.in_frame(frame_type))?;
            if !self.state.is_open() {
                return Ok(content);
            }
        }
        self.on_packet_received(arrival, opened, &content);
        Ok(content)
    }

    /// Outside of 1-RTT packets the frames of RFC 10069 are out of place rather than unknown as
    /// soon as we announced that we know them (MP-004).
    pub(super) fn reads_multipath(&self, packet_type: PacketType) -> bool {
        match packet_type {
            PacketType::OneRtt => self.paths.ids.is_multipath(),
            PacketType::Initial | PacketType::ZeroRtt | PacketType::Handshake => {
                self.handshake.announces_multipath
            }
        }
    }

    fn on_packet_received(&mut self, arrival: &Arrival, opened: &Opened, content: &Content) {
        let Arrival { now, ecn, .. } = *arrival;
        self.idle.on_received(now);
        let (space, policy) = match opened.space {
            SpaceId::Data(id) => {
                let Some((path, shared)) = self.paths.any_and_shared(id) else {
                    return;
                };
                path.last_activity = now;
                path.counters.packets_received += 1;
                (&mut path.space, shared.ack_frequencies.policy())
            }
            SpaceId::Initial | SpaceId::Handshake => {
                if let Some(path) = self.paths.any_mut(PathId::ZERO) {
                    path.counters.packets_received += 1;
                }
                match self.handshake.level_mut(opened.space) {
                    Some(level) => (&mut level.space, &AckPolicy::IMMEDIATE),
                    None => return,
                }
            }
        };
        let (number, ack_eliciting) = (opened.packet_number, content.ack_eliciting);
        let received = &mut space.received;
        received.on_packet(number, now, ecn, ack_eliciting, policy);
        if content.immediate_ack {
            received.set_due();
        }
    }

    fn on_frame(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        frame: Frame,
    ) -> Result<(), TransportError> {
        let now = arrival.now;
        match frame {
            Frame::Padding | Frame::Ping => Ok(()),
            Frame::Stream(stream) => self.on_stream(stream, now),
            Frame::Ack(ack) => self.on_ack(arrival, opened, opened.space.for_plain_ack(), &ack),
            Frame::PathAck(PathAck { path_id, ack }) => {
                self.paths.ids.check(path_id)?;
                self.on_ack(arrival, opened, SpaceId::Data(path_id), &ack)
            }
            Frame::Crypto(crypto) => self.on_crypto(opened.space, crypto),
            Frame::ResetStream(reset) => self.streams.on_reset_stream(&reset),
            Frame::ResetStreamAt(reset) => self.on_reset_stream_at(&reset),
            Frame::StopSending(stop) => self.streams.on_stop_sending(&stop),
            Frame::MaxData(limit) => {
                self.streams.on_max_data(limit);
                Ok(())
            }
            Frame::MaxStreamData(MaxStreamData {
                stream_id,
                maximum_stream_data,
            }) => self
                .streams
                .on_max_stream_data(stream_id, maximum_stream_data),
            Frame::MaxStreams(MaxStreams {
                dir,
                maximum_streams,
            }) => self.streams.on_max_streams(dir, maximum_streams),
            Frame::DataBlocked(limit) => {
                self.streams.on_data_blocked(limit);
                Ok(())
            }
            Frame::StreamDataBlocked(StreamDataBlocked {
                stream_id,
                maximum_stream_data,
            }) => self
                .streams
                .on_stream_data_blocked(stream_id, maximum_stream_data),
            Frame::StreamsBlocked(StreamsBlocked {
                dir,
                maximum_streams,
            }) => self.streams.on_streams_blocked(dir, maximum_streams),
            Frame::Datagram(data) => self.on_datagram_frame(data),
            Frame::NewToken(token) => self.on_new_token(token),
            Frame::HandshakeDone => self.on_handshake_done(now),
            Frame::AckFrequency(asked) => {
                self.paths.shared.ack_frequencies.on_ack_frequency(&asked)
            }
            Frame::ImmediateAck => self.paths.shared.ack_frequencies.announced().map(|_| ()),
            Frame::ConnectionClose(close) => {
                self.on_close(now, close);
                Ok(())
            }
            Frame::PathChallenge(_)
            | Frame::PathResponse(_)
            | Frame::NewConnectionId(_)
            | Frame::RetireConnectionId(_)
            | Frame::PathAbandon(_)
            | Frame::PathStatus(_)
            | Frame::PathNewConnectionId(_)
            | Frame::PathRetireConnectionId(_)
            | Frame::MaxPathId(_)
            | Frame::PathsBlocked(_)
            | Frame::PathCidsBlocked(_) => self.on_path_frame(arrival, opened, frame),
        }
    }

    fn on_stream(
        &mut self,
        stream: crate::wire::frame::Stream,
        now: Instant,
    ) -> Result<(), TransportError> {
        let bytes = stream.data.len() as u64;
        self.streams.on_stream(stream)?;
        let paths = &self.paths;
        self.streams
            .grow_receive_window(bytes, now, || paths.largest_rtt());
        Ok(())
    }

    fn on_reset_stream_at(&mut self, reset: &ResetStreamAt) -> Result<(), TransportError> {
        // RFC 9000 section 12.4: a type that was not negotiated is unknown.
        if !self.handshake.takes_reset_stream_at {
            return Err(TransportError::frame_encoding(
                "RESET_STREAM_AT was not negotiated",
            ));
        }
        self.streams.on_reset_stream_at(reset)
    }

    fn on_crypto(
        &mut self,
        space: SpaceId,
        crypto: crate::wire::frame::Crypto,
    ) -> Result<(), TransportError> {
        // RFC 9000 section 7.5
        let limit = self.config.crypto_buffer.max(MIN_CRYPTO_BUFFER);
        let is_past = space < self.handshake.reading_level();
        if self.side == Side::Client {
            // RFC 9369 section 4.1: a server sends CRYPTO in the version it chose.
            let version = self.handshake.versions.current();
            self.handshake.versions.settle(version);
        }
        if let Some(stream) = self.handshake.crypto_mut(space) {
            // RFC 9001 section 4.1.3
            if is_past && stream.extends(&crypto) {
                return Err(TransportError::protocol_violation(
                    "new CRYPTO data at an encryption level that is over",
                ));
            }
            stream.on_crypto(crypto, limit)?;
        } else if let (SpaceId::Data(_), false) = (space, crypto.data.is_empty()) {
            // TLS is over, and says so.
            return self.handshake.session.read_handshake(&crypto.data);
        }
        match space {
            // Session tickets; the handshake levels are driven when their packet is done.
            SpaceId::Data(_) => self.drive_handshake(),
            SpaceId::Initial | SpaceId::Handshake => Ok(()),
        }
    }

    fn on_datagram_frame(&mut self, data: Bytes) -> Result<(), TransportError> {
        if self.datagrams.on_datagram(data)? {
            self.outbox.event(Event::DatagramReceived);
        }
        Ok(())
    }

    fn on_handshake_done(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.side == Side::Server {
            // RFC 9000 section 19.20
            return Err(TransportError::protocol_violation(
                "HANDSHAKE_DONE from a client",
            ));
        }
        if !self.handshake.confirmed {
            self.confirm_handshake();
            self.prefer_address(now);
        }
        Ok(())
    }

    fn on_close(&mut self, now: Instant, close: Close) {
        let period = self.closing_period();
        self.state.drain(now, period);
        let reason = match close {
            Close::Connection(close) => ConnectionError::ConnectionClosed(close),
            Close::Application(close) => ConnectionError::ApplicationClosed(close),
        };
        self.lose(reason);
    }

    /// While closing: a CONNECTION_CLOSE of the peer ends our own repetitions.
    fn look_for_close(&mut self, mut data: BytesMut) {
        let cid_length = self.endpoint_config.connection_id_length;
        let Handshake {
            one_rtt, session, ..
        } = &mut self.handshake;
        let Some(keys) = one_rtt else {
            return;
        };
        if let Ok(mut packet) = header::next_packet(&mut data, cid_length)
            && let Header::Short { dcid } = packet.header
            && let Some(slot) = self
                .paths
                .slots()
                .iter()
                .find(|slot| slot.local_cids.active().any(|cid| *cid == dcid))
        {
            let expected = slot
                .path
                .as_ref()
                .map_or(0, |path| path.space.expected_next());
            let payload =
                opener::unprotect(&mut packet, keys.remote_header(), expected).and_then(|un| {
                    let phase = un.key_phase();
                    let number = un.packet_number;
                    let choice = keys.choose((phase, number), slot.id, &mut **session)?;
                    let key = keys.key(choice)?;
                    opener::open(&mut packet, &un, key, slot.id).ok()
                });
            let closed = payload.is_some_and(|payload| {
                FrameIter::new(payload, self.paths.ids.is_multipath())
                    .any(|frame| matches!(frame, Ok(Frame::ConnectionClose(_))))
            });
            if closed {
                // The period ends when ours would have; `drain` keeps that time.
                self.state.stop_answering();
            }
        }
    }
}

/// Bytes of CRYPTO data buffered out of order at least (RFC 9000 section 7.5).
const MIN_CRYPTO_BUFFER: usize = 4096;

/// Opens a 1-RTT packet of a path, and says with which keys.
fn open_one_rtt(
    (keys, session): (&mut OneRttKeys, &mut dyn Session),
    packet: &mut ProtectedPacket,
    expected: u64,
    path: PathId,
) -> Option<(Result<Bytes, OpenError>, KeyChoice, Unprotected)> {
    let unprotected = opener::unprotect(packet, keys.remote_header(), expected)?;
    let (phase, number) = (unprotected.key_phase(), unprotected.packet_number);
    let choice = keys.choose((phase, number), path, session)?;
    let copy = keys.outdated(choice).map(|_| packet.clone());
    let mut payload = opener::open(packet, &unprotected, keys.key(choice)?, path);
    if let (Err(_), Some(mut copy), Some(outdated)) = (&payload, copy, keys.outdated(choice))
        && opener::open(&mut copy, &unprotected, outdated, path).is_ok()
    {
        // RFC 9001 section 6.4
        payload = Err(OpenError::Transport(TransportError::new(
            TransportErrorCode::KEY_UPDATE_ERROR,
            "keys from before the update after those that follow it",
        )));
    }
    Some((payload, choice, unprotected))
}

/// The last 16 bytes of a datagram, where a stateless reset has its token.
fn reset_token(data: &[u8]) -> Option<[u8; 16]> {
    data.last_chunk().copied()
}
