//! [`ServerFrames`]: HANDSHAKE_DONE and NEW_TOKEN, which a server sends in 1-RTT packets.

use bytes::Bytes;

use crate::packet::delivery::{Fate, HandshakeDelivery};
use crate::packet::writer::FrameWriter;
use crate::wire::frame::Frame;

/// The frames of a server that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct ServerFrames {
    /// HANDSHAKE_DONE waits to be sent.
    done_due: bool,
    /// The token of the next NEW_TOKEN frame.
    token: Option<Bytes>,
    /// An earlier NEW_TOKEN frame is neither acknowledged nor lost.
    token_in_flight: bool,
}

impl ServerFrames {
    /// The handshake is complete: HANDSHAKE_DONE is to be sent.
    pub(super) fn announce_done(&mut self) {
        self.done_due = true;
    }

    /// Sends a token, instead of an earlier one that was not sent.
    pub(super) fn offer_token(&mut self, token: Bytes) {
        self.token = Some(token);
    }

    /// True if a frame waits to be sent.
    #[inline]
    pub(super) fn wants_to_send(&self) -> bool {
        self.done_due || self.may_send_token()
    }

    /// One token after the other: clients use the last arriving token, and a longer path may bring
    /// an earlier token last.
    fn may_send_token(&self) -> bool {
        self.token.is_some() && !self.token_in_flight
    }

    /// Writes waiting frames within the room of the packet.
    pub(super) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        if self.done_due
            && writer.try_write(&Frame::HandshakeDone, HandshakeDelivery::HandshakeDone)
        {
            self.done_due = false;
        }
        if self.may_send_token()
            && let Some(token) = self.token.take()
        {
            let frame = Frame::NewToken(token);
            self.token_in_flight = writer.try_write(&frame, HandshakeDelivery::NewToken);
            if !self.token_in_flight
                && let Frame::NewToken(token) = frame
            {
                self.token = Some(token);
            }
        }
    }

    /// A frame was acknowledged or lost. True if another token should be offered.
    pub(super) fn on_delivery(&mut self, delivery: HandshakeDelivery, fate: Fate) -> bool {
        match (delivery, fate) {
            (HandshakeDelivery::HandshakeDone, Fate::Acked) => false,
            (HandshakeDelivery::HandshakeDone, Fate::Lost) => {
                self.done_due = true;
                false
            }
            (HandshakeDelivery::NewToken, fate) => {
                self.token_in_flight = false;
                fate == Fate::Lost && self.token.is_none()
            }
        }
    }
}
