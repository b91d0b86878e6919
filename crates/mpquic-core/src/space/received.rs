//! Packets received: duplicates, and ranges to acknowledge.

use std::time::Instant;

use quinn_proto::EcnCodepoint;

use super::ack_policy::{AckPolicy, AckState};
use crate::ids::PathId;
use crate::packet::writer::FrameWriter;

/// What was received in one packet number space and has to be acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Received {
    largest: Option<u64>,
}

impl Received {
    /// Nothing received yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// True if the packet was seen before, or is so old that this cannot be excluded: it must not
    /// be processed (RFC 9000 section 12.3).
    pub(crate) fn is_duplicate(&self, _packet_number: u64) -> bool {
        todo!()
    }

    /// Takes note of a packet that was opened and is not a duplicate.
    pub(crate) fn on_packet(
        &mut self,
        _packet_number: u64,
        _now: Instant,
        _ecn: Option<EcnCodepoint>,
        _ack_eliciting: bool,
        _policy: &AckPolicy,
    ) {
        todo!()
    }

    /// The largest packet number received.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// Whether an acknowledgement is due.
    pub(crate) fn ack_state(&self, _now: Instant) -> AckState {
        todo!()
    }

    /// When a pending acknowledgement becomes due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// Writes ACK (`path` is `None`) or PATH_ACK; false if there is nothing to acknowledge or no
    /// room for even one range. `ecn` asks for the counts of ECN marks to be reported.
    #[must_use]
    pub(crate) fn write_ack(
        &mut self,
        _w: &mut FrameWriter<'_>,
        _now: Instant,
        _path: Option<PathId>,
        _ack_delay_exponent: u8,
        _ecn: bool,
    ) -> bool {
        todo!()
    }

    /// True if the packet with the next acknowledgement should carry a PING (when the window
    /// allows), so that the peer confirms it and old ranges can be forgotten (RFC 9000 section
    /// 13.2.4). Call [`Self::on_confirmation_requested`] when any ack-eliciting packet carries an
    /// acknowledgement of this space.
    pub(crate) fn wants_confirmation(&self) -> bool {
        todo!()
    }

    /// An acknowledgement left in an ack-eliciting packet.
    pub(crate) fn on_confirmation_requested(&mut self) {
        todo!()
    }

    /// The peer has our acknowledgement whose largest number is `largest`: older ranges need not be
    /// repeated (RFC 9000 section 13.2.4).
    pub(crate) fn on_ack_delivered(&mut self, _largest: u64) {
        todo!()
    }
}
