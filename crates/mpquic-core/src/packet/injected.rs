//! Sends arbitrary frames (feature `testing`), so that tests can play a peer that breaks the rules.

use super::delivery::Delivery;
use super::writer::FrameWriter;
use crate::ids::{PathId, SpaceId};

/// Payloads that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Injected(Vec<(SpaceId, Vec<u8>)>);

impl Injected {
    /// Queues unchanged `frames` for one packet of `space`.
    pub(crate) fn push(&mut self, space: SpaceId, frames: &[u8]) {
        self.0.push((space, frames.to_vec()));
    }

    /// True if a payload waits for a packet of the space.
    pub(crate) fn is_wanted(&self, space: SpaceId) -> bool {
        self.0.iter().any(|(of, _)| *of == space)
    }

    /// A path with a payload to send.
    pub(crate) fn wanted_path(&self) -> Option<PathId> {
        self.0.iter().find_map(|(space, _)| match space {
            SpaceId::Data(path) => Some(*path),
            SpaceId::Initial | SpaceId::Handshake => None,
        })
    }

    /// Appends the next payload of the space to its packet.
    #[inline]
    pub(crate) fn write(&mut self, writer: &mut FrameWriter<'_>, space: SpaceId) {
        if !self.0.is_empty() {
            self.write_next(writer, space);
        }
    }

    fn write_next(&mut self, writer: &mut FrameWriter<'_>, space: SpaceId) {
        let next = self.0.iter().position(|(of, _)| *of == space);
        if let Some(index) = next.filter(|index| self.0[*index].1.len() <= writer.remaining()) {
            let (_, payload) = self.0.remove(index);
            writer.buffer().extend_from_slice(&payload);
            writer.note(None, Delivery::Nothing, true);
        }
    }
}
