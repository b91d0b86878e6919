//! [`Datagrams`]: the queues of RFC 9221.

#![allow(clippy::todo, unused_variables, reason = "signatures; bodies follow")]

use bytes::Bytes;

use crate::config::TransportConfig;
use crate::error::TransportError;
use crate::packet::writer::FrameWriter;

/// DATAGRAM frames waiting to be sent and to be read.
#[derive(Debug)]
pub(crate) struct Datagrams {}

impl Datagrams {
    /// Empty queues with the configured bounds.
    pub(crate) fn new(config: &TransportConfig) -> Self {
        Self {}
    }

    /// Takes the peer's `max_datagram_frame_size`; 0 means it takes none.
    pub(crate) fn set_peer_limit(&mut self, max_datagram_frame_size: u64) {
        todo!()
    }

    /// Largest payload the peer takes in a packet with `room` bytes for frames; `None` if it takes
    /// no datagrams.
    pub(crate) fn max_payload(&self, room: usize) -> Option<usize> {
        todo!()
    }

    /// Takes a received payload. The oldest ones make room for it; true if the reader must be told
    /// (nothing was waiting before).
    pub(crate) fn on_datagram(&mut self, data: Bytes) -> Result<bool, TransportError> {
        todo!()
    }

    /// The next received payload.
    pub(crate) fn recv(&mut self) -> Option<Bytes> {
        todo!()
    }

    /// Queues a payload whose size the caller checked with [`Self::max_payload`]. Gives it back if
    /// the buffer is full; [`Self::take_unblocked`] then tells when there is room.
    pub(crate) fn send(&mut self, data: Bytes) -> Result<(), Bytes> {
        todo!()
    }

    /// True once after room became free for a `send` that had failed.
    pub(crate) fn take_unblocked(&mut self) -> bool {
        todo!()
    }

    /// Writes as many DATAGRAM frames as fit.
    pub(crate) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        todo!()
    }

    /// True if a payload waits to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        todo!()
    }

    /// Drops queued payloads that no packet with `room` bytes for frames can carry (the MTU fell);
    /// returns how many.
    pub(crate) fn drop_oversized(&mut self, room: usize) -> usize {
        todo!()
    }
}
