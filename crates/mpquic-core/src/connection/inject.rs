//! Sends arbitrary frames (feature `testing`), so that tests can play a peer that breaks the rules.

use super::Connection;
use crate::ids::SpaceId;
use crate::packet::delivery::Delivery;
use crate::packet::writer::FrameWriter;

/// Payloads that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Injected(Vec<(SpaceId, Vec<u8>)>);

impl Injected {
    pub(super) fn is_wanted(&self, space: SpaceId) -> bool {
        self.0.iter().any(|(of, _)| *of == space)
    }

    /// A path on which a payload is to be sent.
    pub(super) fn wanted_path(&self) -> Option<crate::ids::PathId> {
        self.0.iter().find_map(|(space, _)| match space {
            SpaceId::Data(path) => Some(*path),
            SpaceId::Initial | SpaceId::Handshake => None,
        })
    }

    /// Appends the next payload of the space to its packet.
    pub(super) fn write(&mut self, writer: &mut FrameWriter<'_>, space: SpaceId) {
        let next = self.0.iter().position(|(of, _)| *of == space);
        if let Some(index) = next.filter(|index| self.0[*index].1.len() <= writer.remaining()) {
            let (_, payload) = self.0.remove(index);
            writer.buffer().extend_from_slice(&payload);
            writer.note(Delivery::Nothing, true);
        }
    }
}

impl Connection {
    /// Sends `frames` unchanged in one packet of `space`, as soon as there are keys for it.
    pub fn inject(&mut self, space: SpaceId, frames: &[u8]) {
        self.injected.0.push((space, frames.to_vec()));
    }
}
