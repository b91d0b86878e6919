//! ACK_FREQUENCY (draft-ietf-quic-ack-frequency-14 section 4). IMMEDIATE_ACK is nothing but its
//! type.

use bytes::Bytes;

use super::fields::varint;
use crate::error::TransportError;
use crate::wire::buf::Sink;

/// ACK_FREQUENCY: how the sender of the frame wants to be acknowledged, on all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFrequency {
    /// Rises with each request, to recognise an old frame.
    pub sequence_number: u64,
    /// Ack-eliciting packets that may arrive without an acknowledgement; the next one is
    /// acknowledged at once.
    pub ack_eliciting_threshold: u64,
    /// Longest delay of an acknowledgement, microseconds.
    pub requested_max_ack_delay: u64,
    /// Distance in packets at which a missing packet is reported at once; 0 for never.
    pub reordering_threshold: u64,
}

impl AckFrequency {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            sequence_number: varint(buf)?,
            ack_eliciting_threshold: varint(buf)?,
            requested_max_ack_delay: varint(buf)?,
            reordering_threshold: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.sequence_number);
        out.varint(self.ack_eliciting_threshold);
        out.varint(self.requested_max_ack_delay);
        out.varint(self.reordering_threshold);
    }
}
