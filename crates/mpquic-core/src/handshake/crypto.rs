//! The levels of the handshake, and the CRYPTO bytes of all levels.

use std::time::Instant;

use super::level::Level;
use super::setup::Role;
use super::state::{Handshake, Step};
use crate::error::{Fault, TransportError};
use crate::ids::{PathId, SpaceId};
use crate::outbox::Outbox;
use crate::packet::arrival::{Arrival, Content, Opened};
use crate::packet::delivery::{CryptoDelivery, Fate};
use crate::recorder::packet_type;
use crate::space::AckPolicy;
use crate::stream::crypto_stream::CryptoStream;
use crate::wire::frame::Crypto;

impl Handshake {
    /// The level of a space; `None` if it is discarded.
    pub(crate) fn level(&self, space: SpaceId) -> Option<&Level> {
        match space {
            SpaceId::Initial => self.initial.as_deref(),
            SpaceId::Handshake => self.handshake.as_deref(),
            SpaceId::Data(_) => None,
        }
    }

    /// The level of a space; `None` if it is discarded.
    pub(crate) fn level_mut(&mut self, space: SpaceId) -> Option<&mut Level> {
        match space {
            SpaceId::Initial => self.initial.as_deref_mut(),
            SpaceId::Handshake => self.handshake.as_deref_mut(),
            SpaceId::Data(_) => None,
        }
    }

    /// True until both levels are discarded.
    #[inline]
    pub(crate) fn has_levels(&self) -> bool {
        self.initial.is_some() || self.handshake.is_some()
    }

    /// The levels that are not discarded.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &Level> + Clone {
        [&self.initial, &self.handshake]
            .into_iter()
            .filter_map(|level| level.as_deref())
    }

    /// The levels that are not discarded.
    pub(crate) fn levels_mut(&mut self) -> impl Iterator<Item = &mut Level> {
        [&mut self.initial, &mut self.handshake]
            .into_iter()
            .filter_map(|level| level.as_deref_mut())
    }

    /// Acknowledgements whose timer has expired stay due until a packet can carry them.
    pub(crate) fn on_ack_timeout(&mut self, now: Instant) {
        for level in self.levels_mut() {
            level.space.received.on_timeout(now);
        }
    }

    /// The level at which TLS expects to read.
    fn reading_level(&self) -> SpaceId {
        if self.is_complete() {
            SpaceId::Data(PathId::ZERO)
        } else if self.handshake.is_some() {
            SpaceId::Handshake
        } else {
            SpaceId::Initial
        }
    }

    /// The level at which TLS writes.
    pub(super) fn writing_level(&self) -> SpaceId {
        match (&self.one_rtt, &self.handshake, &self.initial) {
            (None, Some(_), _) => SpaceId::Handshake,
            (None, None, Some(_)) => SpaceId::Initial,
            _ => SpaceId::Data(PathId::ZERO),
        }
    }

    /// The CRYPTO stream of a level, until the level is discarded.
    pub(super) fn crypto_mut(&mut self, space: SpaceId) -> Option<&mut CryptoStream> {
        match space {
            SpaceId::Data(_) => self.crypto.as_deref_mut(),
            SpaceId::Initial | SpaceId::Handshake => {
                self.level_mut(space).map(|level| &mut level.crypto)
            }
        }
    }

    /// CRYPTO. Call [`Self::drive`] after the frame's packet.
    pub(crate) fn on_crypto(
        &mut self,
        space: SpaceId,
        frame: Crypto,
    ) -> Result<(), TransportError> {
        let is_past = space < self.reading_level();
        let limit = self.crypto_buffer;
        if matches!(self.role, Role::Client(_)) {
            // RFC 9369 section 4.1: a server sends CRYPTO in the version it chose.
            self.versions.fix(self.versions.current());
        }
        if let Some(stream) = self.crypto_mut(space) {
            // RFC 9001 section 4.1.3
            if is_past && stream.extends(&frame) {
                return Err(Fault::CryptoAtPastLevel.into());
            }
            stream.on_crypto(frame, limit)?;
        } else if let (SpaceId::Data(_), false) = (space, frame.data.is_empty()) {
            // TLS expects no further message: it returns the error for this data.
            self.session.read_handshake(&frame.data)?;
        }
        Ok(())
    }

    /// The frames of a packet were processed; Initial and Handshake packets are acknowledged at
    /// once.
    pub(crate) fn on_frames_processed(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        content: &Content,
    ) {
        if let Some(level) = self.level_mut(opened.space) {
            let received = &mut level.space.received;
            received.on_packet_processed(arrival, opened, content, &AckPolicy::IMMEDIATE);
        }
    }

    /// A CRYPTO frame was acknowledged or lost: tells the level's stream.
    pub(crate) fn on_crypto_delivery(
        &mut self,
        space: SpaceId,
        delivery: CryptoDelivery,
        fate: Fate,
    ) {
        let is_over = self.is_tls_over;
        let Some(crypto) = self.crypto_mut(space) else {
            return;
        };
        crypto.on_delivery(delivery, fate);
        if is_over && !crypto.is_unacked() {
            self.crypto = None;
        }
    }

    /// A probe timeout passed at a level (RFC 9002 section 6.2.4): data in flight at both levels is
    /// sent again. Initial packets alone would not help a peer that has received them and lacks the
    /// Handshake packets.
    pub(crate) fn on_probe_timeout(&mut self) {
        for level in self.levels_mut() {
            level.crypto.resend();
            level.space.received.repeat();
        }
    }

    /// Sends the content of Handshake packets once more. False without such content.
    pub(crate) fn repeat_last(&mut self) -> bool {
        self.level_mut(SpaceId::Handshake).is_some_and(|level| {
            level.crypto.resend();
            level.crypto.wants_to_send()
        })
    }

    /// True if the server may not have validated our address yet, so that a client must keep
    /// probing (RFC 9002 section 6.2.2.1).
    pub(crate) fn peer_may_be_blocked(&self) -> bool {
        let is_acked = |level: &Level| level.space.largest_acked().is_some();
        matches!(self.role, Role::Client(_))
            && !self.is_confirmed()
            && !self.handshake.as_deref().is_some_and(is_acked)
    }

    /// Discards a level with its keys.
    pub(crate) fn discard_level(&mut self, space: SpaceId, outbox: &mut Outbox) {
        let level = match space {
            SpaceId::Initial => self.initial.take(),
            SpaceId::Handshake => self.handshake.take(),
            SpaceId::Data(_) => None,
        };
        if let Some(level) = level {
            outbox.log.keys_discarded(packet_type(space));
            self.steps.push_back(Step::LevelDiscarded(level));
        }
    }
}
