//! Puts protection on packets, and removes it from received ones in the same way for every type
//! (RFC 9001 section 5).

pub(crate) mod buffered;
pub(crate) mod sealer;

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::crypto::key_phase::OneRttKeys;
use crate::crypto::{HeaderKey, PacketKey, Session};
use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::packet::arrival::Opened;
use crate::packet::opener::{self, OpenError, Unprotected};
use crate::qlog::DropReason;
use crate::recovery::PacketNumberSpace;
use crate::wire::header::ProtectedPacket;

/// The result of opening a packet.
#[derive(Debug)]
pub(crate) enum Opening {
    /// The packet is authentic and new; with its payload.
    Opened(Opened, Bytes),
    /// The packet has no number and no protection (Retry, Version Negotiation), and the handshake
    /// has handled it.
    Unnumbered,
    /// The packet is kept for later processing (RFC 9001 section 5.7).
    Buffered,
    /// The packet is dropped, for this reason.
    Dropped(DropReason),
    /// The connection has to be closed because of the packet.
    Fault(TransportError),
}

impl From<Refusal> for Opening {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Dropped(reason) => Self::Dropped(reason),
            Refusal::Fault(error) => Self::Fault(error),
        }
    }
}

/// Why a packet was not opened.
#[derive(Debug)]
pub(crate) enum Refusal {
    Dropped(DropReason),
    Fault(TransportError),
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotAuthentic => Self::Dropped(DropReason::DecryptionFailure),
            OpenError::Transport(error) => Self::Fault(error),
        }
    }
}

/// Keys to open received packets of one kind.
pub(crate) trait OpeningKeys {
    /// The key of header protection.
    fn header(&self) -> &dyn HeaderKey;

    /// Opens a packet after header protection was removed.
    fn open(
        &mut self,
        packet: &mut ProtectedPacket,
        unprotected: &Unprotected,
        path: PathId,
    ) -> Result<Bytes, Refusal>;
}

/// Opens a packet. `space` is its packet number space; `None` for a space without earlier packets.
#[inline]
pub(crate) fn open(
    packet: &mut ProtectedPacket,
    keys: &mut impl OpeningKeys,
    space: Option<&PacketNumberSpace>,
    path: PathId,
) -> Result<(Unprotected, Bytes), Refusal> {
    let expected = space.map_or(0, PacketNumberSpace::expected_next);
    let unprotected = opener::unprotect(packet, keys.header(), expected)
        .ok_or(Refusal::Dropped(DropReason::DecryptionFailure))?;
    let payload = keys.open(packet, &unprotected, path)?;
    if space.is_some_and(|space| space.received.is_duplicate(unprotected.packet_number)) {
        return Err(Refusal::Dropped(DropReason::Duplicate));
    }
    Ok((unprotected, payload))
}

/// The keys of Initial, Handshake or 0-RTT packets, which never change.
pub(crate) struct FixedKeys<'a> {
    pub(crate) header: &'a dyn HeaderKey,
    pub(crate) packet: &'a dyn PacketKey,
}

impl OpeningKeys for FixedKeys<'_> {
    fn header(&self) -> &dyn HeaderKey {
        self.header
    }

    fn open(
        &mut self,
        packet: &mut ProtectedPacket,
        unprotected: &Unprotected,
        path: PathId,
    ) -> Result<Bytes, Refusal> {
        Ok(opener::open(packet, unprotected, self.packet, path)?)
    }
}

/// The keys of 1-RTT packets, which the peer may update (RFC 9001 section 6).
pub(crate) struct UpdatableKeys<'a, P> {
    pub(crate) keys: &'a mut OneRttKeys,
    /// Provides the next keys.
    pub(crate) session: &'a mut dyn Session,
    pub(crate) now: Instant,
    /// Returns the largest probe timeout of all paths.
    pub(crate) largest_pto: P,
    /// Number of key updates before the key with which the packet was opened.
    pub(crate) generation: u32,
    /// The packet showed that the peer has updated its keys, and we followed.
    pub(crate) updated: bool,
}

impl<P: Fn() -> Duration> OpeningKeys for UpdatableKeys<'_, P> {
    fn header(&self) -> &dyn HeaderKey {
        self.keys.remote_header()
    }

    #[inline]
    fn open(
        &mut self,
        packet: &mut ProtectedPacket,
        unprotected: &Unprotected,
        path: PathId,
    ) -> Result<Bytes, Refusal> {
        let keys = &mut *self.keys;
        let gone = Refusal::Dropped(DropReason::KeyUnavailable);
        let (phase, number) = (unprotected.key_phase(), unprotected.packet_number);
        let Some(choice) = keys.choose(phase, number, path, self.session) else {
            return Err(gone);
        };
        let copy = keys.outdated(choice).map(|_| packet.clone());
        let Some(key) = keys.key(choice) else {
            return Err(gone);
        };
        match opener::open(packet, unprotected, key, path) {
            Ok(payload) => {
                self.generation = keys.generation_of(choice);
                self.updated = keys
                    .on_opened(choice, self.now, self.session, &self.largest_pto)
                    .map_err(Refusal::Fault)?;
                Ok(payload)
            }
            Err(OpenError::NotAuthentic) => {
                if let (Some(mut copy), Some(outdated)) = (copy, keys.outdated(choice))
                    && opener::open(&mut copy, unprotected, outdated, path).is_ok()
                {
                    // RFC 9001 section 6.4
                    return Err(Refusal::Fault(TransportError::new(Fault::OldKeysAfterNew)));
                }
                match keys.on_open_failed(self.session) {
                    Ok(()) => Err(OpenError::NotAuthentic.into()),
                    Err(error) => Err(Refusal::Fault(error)),
                }
            }
            Err(error @ OpenError::Transport(_)) => Err(error.into()),
        }
    }
}
