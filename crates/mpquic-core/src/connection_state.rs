//! The end of a connection: closing, draining, drained (RFC 9000 section 10).

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::{ConnectionClose, TransportError, TransportErrorCode};
use crate::packet::delivery::Delivery;
use crate::packet::writer::FrameWriter;
use crate::wire::frame::{Close, Frame, PacketType};

/// The states of a connection (RFC 9000 section 10).
#[derive(Debug)]
pub(crate) enum State {
    /// In use.
    Open,
    /// The peer closed in a packet of the handshake, which hides the application's code and reason.
    /// A later packet of the same datagram may have both (RFC 9000 section 10.2.3).
    Concealed(ConnectionClose),
    /// We close: CONNECTION_CLOSE answers what still arrives (RFC 9000 section 10.2.1).
    Closing(Box<CloseFrame>),
    /// The peer closed or reset the connection: nothing is sent any more (RFC 9000 section 10.2.2).
    Draining(Instant),
    /// The connection has ended.
    Drained,
}

/// Our CONNECTION_CLOSE, and when to send it.
#[derive(Debug)]
pub(crate) struct CloseFrame {
    pub(crate) frame: Close,
    until: Instant,
    pending: bool,
    received: u32,
    answer_after: u32,
}

impl State {
    /// Starts closing because of a fault of the peer or of ours.
    pub(crate) fn fault(error: &TransportError, until: Instant) -> Self {
        Self::closing(
            Close::Connection(ConnectionClose {
                code: error.code(),
                frame_type: error.frame_type,
                reason: Bytes::from_static(error.reason().as_bytes()),
            }),
            until,
        )
    }

    /// Starts closing because the application wants it.
    pub(crate) fn closing(frame: Close, until: Instant) -> Self {
        Self::Closing(Box::new(CloseFrame {
            frame,
            until,
            pending: true,
            received: 0,
            answer_after: 1,
        }))
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// True if the next frame or packet of a datagram counts.
    pub(crate) fn takes_frames(&self) -> bool {
        matches!(self, Self::Open | Self::Concealed(_))
    }

    /// Handles CONNECTION_CLOSE in a packet of this type. Returns the frame if it ends the
    /// connection now, and keeps the frame if a later packet of the datagram may tell the
    /// application's code.
    pub(crate) fn conceal(&mut self, close: Close, packet_type: PacketType) -> Option<Close> {
        if let Close::Connection(concealed) = &close
            && concealed.code == TransportErrorCode::APPLICATION_ERROR
            && packet_type != PacketType::OneRtt
            && self.takes_frames()
        {
            *self = Self::Concealed(concealed.clone());
            return None;
        }
        Some(close)
    }

    /// The frame that [`Self::conceal`] kept, if no later packet has told the application's code.
    pub(crate) fn concealed(&self) -> Option<Close> {
        if let Self::Concealed(close) = self {
            return Some(Close::Connection(close.clone()));
        }
        None
    }

    pub(crate) fn is_drained(&self) -> bool {
        matches!(self, Self::Drained)
    }

    /// A datagram arrived while closing: it is answered, but less and less often (RFC 9000 section
    /// 10.2.1).
    pub(crate) fn on_datagram(&mut self) {
        if let Self::Closing(closing) = self {
            closing.received = closing.received.saturating_add(1);
            if closing.received >= closing.answer_after {
                closing.received = 0;
                closing.answer_after = closing.answer_after.saturating_mul(2);
                closing.pending = true;
            }
        }
    }

    /// The frame to send now, if one is due.
    pub(crate) fn take_frame(&mut self) -> Option<Close> {
        match self {
            Self::Closing(closing) if closing.pending => {
                closing.pending = false;
                Some(closing.frame.clone())
            }
            Self::Open
            | Self::Concealed(_)
            | Self::Closing(_)
            | Self::Draining(_)
            | Self::Drained => None,
        }
    }

    /// Writes CONNECTION_CLOSE while closing, with the beginning of the reason if space is short.
    pub(crate) fn write_close(&self, writer: &mut FrameWriter<'_>) {
        if let Self::Closing(closing) = self {
            let frame = closing.frame.clone().shortened_to(writer.remaining());
            let _no_room_is_fine =
                writer.try_write(&Frame::ConnectionClose(frame), Delivery::Nothing);
        }
    }

    /// The peer closed: stops sending. The end of a running closing period stays.
    pub(crate) fn drain(&mut self, now: Instant, period: Duration) {
        let until = match self {
            Self::Open | Self::Concealed(_) => now + period,
            Self::Closing(closing) => closing.until,
            Self::Draining(until) => *until,
            Self::Drained => return,
        };
        *self = Self::Draining(until);
    }

    /// The peer closes, too: CONNECTION_CLOSE need not be repeated.
    pub(crate) fn stop_answering(&mut self) {
        if let Self::Closing(closing) = self {
            *self = Self::Draining(closing.until);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Closing(closing) => Some(closing.until),
            Self::Draining(until) => Some(*until),
            Self::Open | Self::Concealed(_) | Self::Drained => None,
        }
    }

    /// True if the closing or draining period has just ended.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> bool {
        let over = self.next_timeout().is_some_and(|until| until <= now);
        if over {
            *self = Self::Drained;
        }
        over
    }
}
