//! [`CryptoStream`]: the handshake bytes of one encryption level.

#![allow(clippy::todo, unused_variables, reason = "signatures; bodies follow")]

use bytes::Bytes;

use crate::error::TransportError;
use crate::packet::delivery::{Delivery, Fate};
use crate::packet::writer::FrameWriter;
use crate::wire::frame;

/// CRYPTO of one encryption level, both directions.
#[derive(Debug, Default)]
pub(crate) struct CryptoStream {}

impl CryptoStream {
    /// Takes a frame; at most `limit` bytes may wait to be read.
    pub(crate) fn on_crypto(
        &mut self,
        frame: frame::Crypto,
        limit: usize,
    ) -> Result<(), TransportError> {
        todo!()
    }

    /// The next bytes in order.
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        todo!()
    }

    /// Queues bytes to send.
    pub(crate) fn write(&mut self, data: Bytes) {
        todo!()
    }

    /// Writes CRYPTO frames, lost bytes first.
    pub(crate) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        todo!()
    }

    /// Takes the fate of a frame of this level.
    pub(crate) fn on_delivery(&mut self, delivery: Delivery, fate: Fate) {
        todo!()
    }

    /// True if bytes wait to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        todo!()
    }

    /// Queues everything not acknowledged again: after Retry, or for a probe of the handshake.
    pub(crate) fn resend(&mut self) {
        todo!()
    }
}
