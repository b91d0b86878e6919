//! The handshake's part in sending: its own frames, and the state of the 1-RTT keys.

use std::time::{Duration, Instant};

use quinn_proto::Side;

use super::level::Level;
use super::state::Handshake;
use crate::crypto::key_phase::OneRttKeys;
use crate::error::{Fault, TransportError};
use crate::outbox::Outbox;
use crate::packet::arrival::Opened;
use crate::packet::delivery::{Fate, HandshakeDelivery};
use crate::packet::writer::FrameWriter;
use crate::protect::sealer::NOT_ONE_RTT;
use crate::space::SentPacket;
use crate::wire::frame::PacketType;

impl Handshake {
    /// True with 1-RTT keys.
    pub(crate) fn has_one_rtt_keys(&self) -> bool {
        self.one_rtt.is_some()
    }

    /// True if 1-RTT packets may carry more than data: a server has 1-RTT keys before the end of
    /// its handshake (RFC 9001 section 5.7).
    pub(crate) fn may_send_one_rtt(&self) -> bool {
        self.has_one_rtt_keys() && (self.is_complete() || self.role.side() == Side::Server)
    }

    /// Upper bound for the waiting frames of all levels in a datagram, in bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.levels().map(Level::unsent).sum()
    }

    /// The number of key updates so far; `None` without 1-RTT keys.
    pub(super) fn key_generation(&self) -> Option<u32> {
        self.one_rtt.as_ref().map(OneRttKeys::generation)
    }

    /// A 1-RTT packet of this key generation was acknowledged.
    #[inline]
    pub(crate) fn on_one_rtt_acked(
        &mut self,
        generation: u32,
        now: Instant,
        largest_pto: impl FnOnce() -> Duration,
    ) {
        if let Some(keys) = &mut self.one_rtt {
            keys.on_acked(generation, now, largest_pto);
        }
    }

    /// Checks that a peer which acknowledges packets of a new key phase does not use the old one
    /// itself (RFC 9001 section 6.2). `acked` are the packets that the one `opened` acknowledges.
    #[inline]
    pub(crate) fn check_key_phase(
        &self,
        opened: &Opened,
        acked: &[(u64, SentPacket)],
    ) -> Result<(), TransportError> {
        let newest = self.key_generation();
        if newest.is_none_or(|newest| opened.generation >= newest) {
            return Ok(());
        }
        let is_newer = |(_, packet): &(u64, SentPacket)| {
            packet.key_phase_generation != NOT_ONE_RTT
                && packet.key_phase_generation > opened.generation
        };
        if opened.packet_type == PacketType::OneRtt && acked.iter().any(is_newer) {
            return Err(Fault::AckedInOldPhase.into());
        }
        Ok(())
    }

    /// True if a key update should be started, because the keys have nearly reached their limits.
    pub(crate) fn wants_key_update(&self) -> bool {
        self.one_rtt.as_ref().is_some_and(OneRttKeys::wants_update)
    }

    /// When old keys have to be dropped.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let one_rtt = self.one_rtt.as_ref().and_then(OneRttKeys::next_timeout);
        let zero_rtt = self.zero_rtt.as_ref().and_then(|keys| keys.discard_at);
        one_rtt.into_iter().chain(zero_rtt).min()
    }

    /// Drops due old keys. Fails if the current keys have reached their limit of sealed packets.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        let zero_rtt = self.zero_rtt.as_ref().and_then(|keys| keys.discard_at);
        if zero_rtt.is_some_and(|at| at <= now) {
            self.take_zero_rtt(outbox);
        }
        if let Some(keys) = &mut self.one_rtt {
            keys.on_timeout(now);
            if keys.is_exhausted() {
                return Err(TransportError::new(Fault::ConfidentialityLimit));
            }
        }
        Ok(())
    }

    /// True if HANDSHAKE_DONE or NEW_TOKEN waits to be sent.
    pub(crate) fn wants_to_send_frames(&self) -> bool {
        self.server_frames.wants_to_send()
    }

    /// Writes HANDSHAKE_DONE and NEW_TOKEN.
    pub(crate) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        self.server_frames.write_frames(writer);
    }

    /// HANDSHAKE_DONE or NEW_TOKEN was acknowledged or lost. True if another token should be
    /// offered: see [`Self::offer_token`].
    pub(crate) fn on_delivery(&mut self, delivery: HandshakeDelivery, fate: Fate) -> bool {
        self.server_frames.on_delivery(delivery, fate)
    }

    /// True if CRYPTO of the 1-RTT level waits to be sent.
    pub(crate) fn wants_to_send_crypto(&self) -> bool {
        self.crypto
            .as_ref()
            .is_some_and(|crypto| crypto.wants_to_send())
    }

    /// Writes CRYPTO of the 1-RTT level.
    #[inline]
    pub(crate) fn write_crypto(&mut self, writer: &mut FrameWriter<'_>) {
        if let Some(crypto) = &mut self.crypto
            && crypto.wants_to_send()
        {
            crypto.write_frames(writer);
        }
    }
}
