//! [`Level`]: the packets, keys and CRYPTO bytes of Initial or Handshake.

use std::time::Instant;

use crate::crypto::Keys;
use crate::ids::SpaceId;
use crate::packet::delivery::Delivery;
use crate::packet::writer::FrameWriter;
use crate::protect::FixedKeys;
use crate::recovery::PacketNumberSpace;
use crate::space::AckState;
use crate::stream::crypto_stream::CryptoStream;
use crate::version::Version;
use crate::wire::frame::Frame;

/// An estimate of the memory for the keys of a level, in bytes.
const KEYS: usize = 2048;

/// Upper bound of a CRYPTO packet's overhead: header, tag, and a short acknowledgement.
const MAX_OVERHEAD: usize = 128;

/// One of the two encryption levels of the handshake.
pub(crate) struct Level {
    version: Version,
    pub(crate) keys: Keys,
    /// Keys for Initial packets of the peer in another version.
    other: Option<(Version, Keys)>,
    pub(crate) space: PacketNumberSpace,
    pub(crate) crypto: CryptoStream,
}

impl Level {
    pub(super) fn new(id: SpaceId, version: Version, keys: Keys) -> Self {
        Self {
            version,
            keys,
            other: None,
            space: PacketNumberSpace::new(id),
            crypto: CryptoStream::default(),
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + KEYS + self.space.memory() + self.crypto.memory() as usize
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// The keys for packets of a version.
    pub(super) fn keys_of(&self, version: Version) -> Option<FixedKeys<'_>> {
        let keys = match &self.other {
            _ if version == self.version => &self.keys,
            Some((other, keys)) if *other == version => keys,
            Some(_) | None => return None,
        };
        Some(FixedKeys {
            header: &*keys.header.remote,
            packet: &*keys.packet.remote,
        })
    }

    /// From now on, packets of another version can be opened, too.
    pub(super) fn also_open(&mut self, version: Version, keys: Keys) {
        self.other = Some((version, keys));
    }

    /// Continues in another version; packets of the previous one can still be opened.
    pub(super) fn change_version(&mut self, version: Version, keys: Keys) {
        let before = std::mem::replace(&mut self.keys, keys);
        self.other = Some((std::mem::replace(&mut self.version, version), before));
    }

    /// Continues in the other version whose packets can be opened, and drops the first version.
    pub(super) fn follow_version(&mut self) {
        if let Some((version, keys)) = self.other.take() {
            self.version = version;
            self.keys = keys;
        }
    }

    /// Starts over with other keys: all CRYPTO bytes are sent again.
    pub(super) fn start_over(&mut self, keys: Keys) {
        self.keys = keys;
        self.other = None;
        self.crypto.resend();
    }

    /// True if the level has something to send.
    pub(crate) fn wants(&self, now: Instant) -> bool {
        self.wants_to_elicit() || self.space.received.ack_state(now) == AckState::Due
    }

    /// Upper bound for a packet with all of these frames, in bytes.
    pub(crate) fn unsent(&self) -> usize {
        MAX_OVERHEAD + usize::try_from(self.crypto.unsent()).unwrap_or(usize::MAX / 4)
    }

    /// Writes what the level has to say: an acknowledgement and CRYPTO.
    pub(crate) fn write_frames(&mut self, writer: &mut FrameWriter<'_>, now: Instant) {
        if self.space.received.ack_state(now) != AckState::None {
            let _wrote = self.space.received.write_ack(writer, now, None, 0);
        }
        self.crypto.write_frames(writer);
    }

    /// Adds an ack-eliciting frame to a probe without one.
    pub(crate) fn write_probe(&self, writer: &mut FrameWriter<'_>) {
        if self.space.wants_probe() && !writer.is_ack_eliciting() {
            let _no_room_is_fine = writer.try_write(&Frame::Ping, Delivery::Nothing);
        }
    }

    /// True if the level waits to send an ack-eliciting frame.
    pub(crate) fn wants_to_elicit(&self) -> bool {
        self.crypto.wants_to_send() || self.space.wants_probe()
    }
}
