//! 0-RTT: what a client that resumes a session sends before the handshake is complete (RFC 9001
//! section 4.6). It shares the packet number space of 1-RTT on path 0.

use std::time::Instant;

use quinn_proto::Side;

use super::Connection;
use super::handshake::Handshake;
use crate::crypto::{HeaderKey, PacketKey};
use crate::error::TransportError;
use crate::event::EarlyData;
use crate::ids::{PathId, SpaceId};
use crate::packet::arrival::{Arrival, Opened};
use crate::packet::delivery::Fate;
use crate::packet::opener::{self, OpenError};
use crate::qlog::{self, DropReason};
use crate::recorder::Dropped;
use crate::wire::frame::PacketType;
use crate::wire::header::ProtectedPacket;
use crate::wire::transport_parameters::TransportParameters;

/// A server keeps 0-RTT keys this many probe timeouts after the handshake (RFC 9001 section 4.9.3).
const KEEP_TIMEOUTS: u32 = 3;

/// 0-RTT keys: a client's seal, a server's open.
pub(super) struct EarlyKeys {
    header: Box<dyn HeaderKey>,
    packet: Box<dyn PacketKey>,
    /// Client: the limits of the earlier connection.
    remembered: Option<TransportParameters>,
    /// Server: set when the handshake is complete.
    discard_at: Option<Instant>,
}

/// The keys for the next packet in the application's packet number space.
pub(super) struct Sealing<'a> {
    pub(super) header: &'a dyn HeaderKey,
    pub(super) packet: &'a dyn PacketKey,
    /// The key phase of a 1-RTT packet; `None` for 0-RTT.
    pub(super) key_phase: Option<bool>,
}

impl Handshake {
    /// 1-RTT keys, or a client's 0-RTT keys before there are any.
    pub(super) fn sealing(&self) -> Option<Sealing<'_>> {
        if let Some(keys) = &self.one_rtt {
            let (header, packet, key_phase) = keys.sealing();
            return Some(Sealing {
                header,
                packet,
                key_phase: Some(key_phase),
            });
        }
        let early = self.early.as_ref()?;
        early.remembered.as_ref().map(|_| Sealing {
            header: &*early.header,
            packet: &*early.packet,
            key_phase: None,
        })
    }
}

impl Connection {
    /// Whether data written before the handshake was complete went as 0-RTT. What arrives as 0-RTT
    /// may be a replay of an earlier connection: send only what may happen twice.
    pub fn early_data(&self) -> EarlyData {
        self.handshake.early_data
    }

    /// Client: lets data leave under the limits of the connection it resumes.
    pub(super) fn start_early_data(&mut self) {
        let session = &self.handshake.session;
        let Some((header, packet)) = session.early_keys() else {
            return;
        };
        let Ok(Some(remembered)) = session.transport_parameters() else {
            return;
        };
        // RFC 9000 section 7.4.1; not the path limit (MP-012)
        self.streams.set_peer_parameters(&remembered);
        self.datagrams
            .set_peer_limit(remembered.max_datagram_frame_size);
        self.outbox
            .log
            .event(|| qlog::Event::ParametersRestored(&remembered));
        self.log_handshake_keys(PacketType::ZeroRtt);
        self.handshake.early_data = EarlyData::Offered;
        self.handshake.early = Some(Box::new(EarlyKeys {
            header,
            packet,
            remembered: Some(remembered),
            discard_at: None,
        }));
    }

    /// Client: the handshake told whether the server took 0-RTT. The server's parameters are
    /// `peer`, not applied yet.
    pub(super) fn settle_early_data(
        &mut self,
        peer: &TransportParameters,
    ) -> Result<(), TransportError> {
        if self.side == Side::Server {
            return Ok(());
        }
        let Some(EarlyKeys {
            remembered: Some(remembered),
            ..
        }) = self.take_early_keys().map(|early| *early)
        else {
            return Ok(());
        };
        if self.handshake.session.early_data_accepted() == Some(true) {
            self.handshake.early_data = EarlyData::Accepted;
            return check_limits(&remembered, peer);
        }
        self.reject_early_data();
        Ok(())
    }

    /// RFC 9001 section 4.6.2: as if nothing had been sent, but numbers are not used twice.
    fn reject_early_data(&mut self) {
        self.handshake.early_data = EarlyData::Rejected;
        if let Some(path) = self.paths.any_mut(PathId::ZERO) {
            path.recovery
                .discard_space(&mut path.space, &mut Vec::new());
        }
        self.streams.on_zero_rtt_rejected();
    }

    /// Client: starts over in another version, in which the session cannot be resumed.
    pub(super) fn abandon_early_data(&mut self) {
        if self.take_early_keys().is_some() {
            self.reject_early_data();
        }
    }

    /// Client: a Retry arrived, so the server has kept none of the 0-RTT packets (RFC 9000 section
    /// 17.2.5.3).
    pub(super) fn resend_early_data(&mut self) {
        let mut lost = Vec::new();
        if let Some(path) = self.paths.any_mut(PathId::ZERO) {
            path.recovery.discard_space(&mut path.space, &mut lost);
        }
        for delivery in lost.into_iter().flat_map(|(_, packet)| packet.deliveries) {
            self.on_delivery(SpaceId::Data(PathId::ZERO), delivery, Fate::Lost);
        }
    }

    /// Server: takes the keys once TLS has read the ClientHello and accepted.
    pub(super) fn accept_early_data(&mut self) {
        if self.side == Side::Client
            || self.handshake.early.is_some()
            || self.handshake.one_rtt.is_none()
            || self.handshake.complete
        {
            return;
        }
        if let Some((header, packet)) = self.handshake.session.early_keys() {
            self.log_handshake_keys(PacketType::ZeroRtt);
            self.handshake.early_data = EarlyData::Accepted;
            self.handshake.early = Some(Box::new(EarlyKeys {
                header,
                packet,
                remembered: None,
                discard_at: None,
            }));
        }
    }

    /// Takes a 0-RTT packet.
    pub(super) fn handle_early(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
    ) -> Result<(), TransportError> {
        let destination = *packet.header.dcid();
        let seen = Dropped::new(&packet.header, packet.data.len());
        let (Side::Server, Some(early), Some(path)) = (
            self.side,
            &self.handshake.early,
            self.paths.any(PathId::ZERO),
        ) else {
            self.drop_packet(arrival, seen, DropReason::KeyUnavailable);
            return Ok(());
        };
        let expected = path.space.expected_next();
        let opened = opener::unprotect(packet, &*early.header, expected).map(|unprotected| {
            let payload = opener::open(packet, &unprotected, &*early.packet, PathId::ZERO);
            (unprotected.packet_number, payload)
        });
        let (packet_number, payload) = match opened {
            Some((packet_number, Ok(payload))) => (packet_number, payload),
            Some((_, Err(OpenError::Transport(error)))) => return Err(error),
            Some((_, Err(OpenError::NotAuthentic))) | None => {
                self.drop_packet(arrival, seen, DropReason::DecryptionFailure);
                return Ok(());
            }
        };
        if path.space.received.is_duplicate(packet_number) {
            self.log_dropped(arrival, seen, DropReason::Duplicate);
            return Ok(());
        }
        let opened = Opened {
            space: SpaceId::Data(PathId::ZERO),
            packet_type: PacketType::ZeroRtt,
            version: Some(self.handshake.versions.original()),
            packet_number,
            destination,
            size: seen.size,
            generation: 0,
        };
        self.handle_payload(arrival, &opened, payload)?;
        Ok(())
    }

    /// Server: once the handshake is complete, the client sends 0-RTT no more.
    pub(super) fn retire_early_keys(&mut self, now: Instant) {
        let handshake = &mut self.handshake;
        if let (Side::Server, true, Some(early)) =
            (self.side, handshake.complete, &mut handshake.early)
        {
            early.discard_at = Some(now + KEEP_TIMEOUTS * self.paths.largest_pto());
        }
    }

    /// Server: when only replays can need the keys.
    pub(super) fn early_keys_timeout(&self) -> Option<Instant> {
        self.handshake.early.as_ref()?.discard_at
    }

    /// Server: drops the keys if their time has come.
    pub(super) fn on_early_keys_timeout(&mut self, now: Instant) {
        if self.early_keys_timeout().is_some_and(|at| at <= now) {
            self.take_early_keys();
        }
    }

    fn take_early_keys(&mut self) -> Option<Box<EarlyKeys>> {
        let keys = self.handshake.early.take()?;
        self.outbox
            .log
            .event(|| qlog::Event::KeysDiscarded(PacketType::ZeroRtt));
        Some(keys)
    }
}

/// A server that takes 0-RTT must not go back on what the client relied on (RFC 9000 section
/// 7.4.1, RFC 9221 section 3).
fn check_limits(
    remembered: &TransportParameters,
    peer: &TransportParameters,
) -> Result<(), TransportError> {
    let limits = |parameters: &TransportParameters| {
        [
            parameters.active_connection_id_limit,
            parameters.initial_max_data,
            parameters.initial_max_stream_data_bidi_local,
            parameters.initial_max_stream_data_bidi_remote,
            parameters.initial_max_stream_data_uni,
            parameters.initial_max_streams_bidi,
            parameters.initial_max_streams_uni,
            parameters.max_datagram_frame_size,
            // draft-ietf-quic-reliable-stream-reset-11 section 3
            parameters.reset_stream_at.into(),
        ]
    };
    let reduced = limits(remembered)
        .into_iter()
        .zip(limits(peer))
        .any(|(before, after)| after < before);
    if reduced {
        return Err(TransportError::protocol_violation(
            "0-RTT was accepted with lower limits than before",
        ));
    }
    Ok(())
}
