//! 1-RTT keys of a connection: one set for all paths (MP-036), key update (RFC 9001 section 6) and
//! the limits of the AEAD.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::keys::{HeaderKey, KeyPair, Keys, PacketKey};
use super::session::Session;
use crate::error::{Fault, TransportError};
use crate::ids::PathId;

/// A key update starts once the key may seal fewer packets than this.
const UPDATE_MARGIN: u64 = 1 << 16;
/// After an update, old keys are kept for this many probe timeouts, and the next update waits as
/// long (RFC 9001 sections 6.1 and 6.5).
const PROBE_TIMEOUTS_AFTER_UPDATE: u32 = 3;
/// The next key is made after this many opened packets with the current key.
const OPENED_BEFORE_NEXT: u32 = 64;

/// All 1-RTT keys.
pub(crate) struct OneRttKeys {
    header: KeyPair<Box<dyn HeaderKey>>,
    current: KeyPair<Box<dyn PacketKey>>,
    /// The keys after `current`. The processing time of a packet must not reveal its key phase (RFC
    /// 9001 section 6.3), so the keys are made before a likely update of the peer: after
    /// [`OPENED_BEFORE_NEXT`] packets opened with `current`. Before this count, the keys are made
    /// for the first packet that has the other phase or cannot be opened. Idle connections save the
    /// memory.
    next: Option<KeyPair<Box<dyn PacketKey>>>,
    /// Packets that the current key has opened; counted until `next` is made.
    opened: u32,
    previous: Option<Box<Previous>>,
    phase: bool,
    generation: u32,
    /// Packets sealed with the current key, all paths together (MP-038).
    sealed: u64,
    /// Packets that could not be opened, all paths and generations together (MP-038).
    failed: u64,
    update: NextUpdate,
}

/// The keys before the last update, for packets sent before the update.
struct Previous {
    key: Box<dyn PacketKey>,
    /// Known once a packet of the current phase has arrived.
    discard_at: Option<Instant>,
    /// The lowest packet number of the current phase, for each path with packets of that phase.
    lowest_in_phase: SmallVec<[(PathId, u64); 4]>,
}

/// When we may start an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextUpdate {
    /// After the acknowledgement of a packet of the current phase.
    AwaitsAck,
    /// At this time.
    At(Instant),
}

/// The key for opening a packet; pass it to [`OneRttKeys::on_opened`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyChoice {
    key: Key,
    path: PathId,
    packet_number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Previous,
    Current,
    Next,
}

impl OneRttKeys {
    /// Starts with the keys of the handshake.
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            header: keys.header,
            current: keys.packet,
            next: None,
            opened: 0,
            previous: None,
            phase: false,
            generation: 0,
            sealed: 0,
            failed: 0,
            update: NextUpdate::AwaitsAck,
        }
    }

    /// The header protection key of received packets; the same in all phases.
    pub(crate) fn remote_header(&self) -> &dyn HeaderKey {
        &*self.header.remote
    }

    /// Keys and phase bit for the next packet.
    pub(crate) fn sealing(&self) -> (&dyn HeaderKey, &dyn PacketKey, bool) {
        (&*self.header.local, &*self.current.local, self.phase)
    }

    /// Number of key updates; has to be recorded with every packet sent.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Chooses the key that sealed a received packet; `None` for a key we no longer have, or cannot
    /// make (MP-041).
    pub(crate) fn choose(
        &mut self,
        phase: bool,
        packet_number: u64,
        path: PathId,
        session: &mut dyn Session,
    ) -> Option<KeyChoice> {
        let key = if phase == self.phase {
            Key::Current
        } else {
            match &self.previous {
                // RFC 9001 section 6.5, within one path's space (MP-042)
                Some(previous) if !previous.is_overtaken(packet_number, path) => Key::Previous,
                _ => {
                    prepare(&mut self.next, session);
                    self.next.as_ref()?;
                    Key::Next
                }
            }
        };
        Some(KeyChoice {
            key,
            path,
            packet_number,
        })
    }

    /// The key of a choice that was just made.
    pub(crate) fn key(&self, choice: KeyChoice) -> Option<&dyn PacketKey> {
        let key = match choice.key {
            Key::Previous => &self.previous.as_ref()?.key,
            Key::Current => &self.current.remote,
            Key::Next => &self.next.as_ref()?.remote,
        };
        Some(&**key)
    }

    /// The key before the last update, for a packet that must have been sealed with the key after
    /// the current one. If the older key opens the packet all the same, the peer went back to the
    /// older key: a KEY_UPDATE_ERROR (RFC 9001 section 6.4).
    pub(crate) fn outdated(&self, choice: KeyChoice) -> Option<&dyn PacketKey> {
        let previous = self.previous.as_ref();
        let previous = previous.filter(|_| choice.key == Key::Next)?;
        Some(&*previous.key)
    }

    /// The generation of a chosen key. A packet that acknowledges one of ours with a later
    /// generation than its own is a KEY_UPDATE_ERROR (RFC 9001 section 6.2).
    pub(crate) fn generation_of(&self, choice: KeyChoice) -> u32 {
        match choice.key {
            Key::Previous => self.generation.wrapping_sub(1),
            Key::Current => self.generation,
            Key::Next => self.generation.wrapping_add(1),
        }
    }

    /// A packet was authenticated. Follows a key update that the packet shows. Returns true after
    /// an update; fails if the peer cannot have seen an acknowledgement since its last update.
    #[inline]
    pub(crate) fn on_opened(
        &mut self,
        choice: KeyChoice,
        now: Instant,
        session: &mut dyn Session,
        largest_pto: impl FnOnce() -> Duration,
    ) -> Result<bool, TransportError> {
        match (choice.key, &mut self.previous) {
            (Key::Previous, _) => return Ok(false),
            (Key::Current, previous) => {
                if self.opened < OPENED_BEFORE_NEXT {
                    self.opened += 1;
                    if self.opened == OPENED_BEFORE_NEXT {
                        prepare(&mut self.next, session);
                    }
                }
                if previous.is_none() {
                    return Ok(false);
                }
            }
            (Key::Next, _) => {
                // RFC 9001 section 6.2
                if self.generation > 0 && self.sealed == 0 {
                    return Err(Fault::UpdatedTwice.into());
                }
                self.update(session);
            }
        }
        if let Some(previous) = &mut self.previous {
            previous.on_current(choice.path, choice.packet_number);
            previous
                .discard_at
                .get_or_insert_with(|| now + PROBE_TIMEOUTS_AFTER_UPDATE * largest_pto());
        }
        Ok(choice.key == Key::Next)
    }

    /// A packet could not be authenticated. Fails after too many of them.
    pub(crate) fn on_open_failed(
        &mut self,
        session: &mut dyn Session,
    ) -> Result<(), TransportError> {
        // RFC 9001 section 6.3: a packet of the other key phase makes these keys, too.
        prepare(&mut self.next, session);
        self.failed += 1;
        // RFC 9001 section 6.6
        if self.failed > self.current.remote.integrity_limit() {
            return Err(Fault::IntegrityLimit.into());
        }
        Ok(())
    }

    /// A packet was sealed with the keys of [`Self::sealing`].
    pub(crate) fn on_sealed(&mut self) {
        self.sealed += 1;
    }

    /// True if [`Self::initiate`] should be called: the key has nearly reached its limit.
    pub(crate) fn wants_update(&self) -> bool {
        let limit = self.current.local.confidentiality_limit();
        self.sealed >= limit - limit.min(UPDATE_MARGIN).min(limit / 2)
    }

    /// True once the connection has to close with AEAD_LIMIT_REACHED. The rest of the limit is a
    /// margin for packets with CONNECTION_CLOSE.
    pub(crate) fn is_exhausted(&self) -> bool {
        const CLOSE_MARGIN: u64 = 128;
        let limit = self.current.local.confidentiality_limit();
        self.sealed >= limit - limit.min(CLOSE_MARGIN)
    }

    /// Starts a key update. False if one is not allowed yet; the caller makes sure that the
    /// handshake is confirmed (RFC 9001 section 6.1).
    pub(crate) fn initiate(&mut self, now: Instant, session: &mut dyn Session) -> bool {
        // MP-040
        let allowed = matches!(self.update, NextUpdate::At(time) if time <= now);
        if !allowed || self.previous.is_some() {
            return false;
        }
        self.update(session)
    }

    /// A 1-RTT packet of this generation was acknowledged, on any path (MP-043).
    pub(crate) fn on_acked(
        &mut self,
        generation: u32,
        now: Instant,
        largest_pto: impl FnOnce() -> Duration,
    ) {
        if self.update == NextUpdate::AwaitsAck && generation == self.generation {
            // MP-040. No keys come before those of the handshake, so no late packets can arrive.
            let wait = match self.generation {
                0 => Duration::ZERO,
                _ => PROBE_TIMEOUTS_AFTER_UPDATE * largest_pto(),
            };
            self.update = NextUpdate::At(now + wait);
        }
    }

    /// When old keys are to be dropped.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.previous.as_ref()?.discard_at
    }

    /// Drops old keys when their time has come.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.next_timeout().is_some_and(|time| time <= now) {
            self.previous = None;
        }
    }

    /// Switches to the next keys. False if the session has none.
    fn update(&mut self, session: &mut dyn Session) -> bool {
        prepare(&mut self.next, session);
        let Some(next) = self.next.take() else {
            return false;
        };
        self.opened = 0;
        let old = std::mem::replace(&mut self.current, next);
        self.previous = Some(Box::new(Previous {
            key: old.remote,
            discard_at: None,
            lowest_in_phase: SmallVec::new(),
        }));
        self.phase = !self.phase;
        self.generation = self.generation.wrapping_add(1);
        self.sealed = 0;
        self.update = NextUpdate::AwaitsAck;
        true
    }
}

/// Makes the missing keys of the next phase.
fn prepare(next: &mut Option<KeyPair<Box<dyn PacketKey>>>, session: &mut dyn Session) {
    if next.is_none() {
        *next = session.next_one_rtt_keys();
    }
}

impl Previous {
    /// True if a packet of the current phase with a lower number arrived on the path, so that this
    /// one was not sealed before the update.
    fn is_overtaken(&self, packet_number: u64, path: PathId) -> bool {
        self.lowest_in_phase
            .iter()
            .any(|&(id, lowest)| id == path && packet_number > lowest)
    }

    fn on_current(&mut self, path: PathId, packet_number: u64) {
        match self.lowest_in_phase.iter_mut().find(|(id, _)| *id == path) {
            Some((_, lowest)) => *lowest = packet_number.min(*lowest),
            None => self.lowest_in_phase.push((path, packet_number)),
        }
    }
}

#[cfg(test)]
mod tests;
