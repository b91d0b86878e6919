//! [`FrameWriter`]: the room left in an unfinished packet. Components write their frames into the
//! room, and name for each frame who must hear of its fate.

use smallvec::SmallVec;

use super::delivery::Delivery;
use crate::wire::frame::{Frame, FrameCounts, FrameKind};

/// The deliveries of one packet; three fit without an allocation.
pub(crate) type Deliveries = SmallVec<[Delivery; 3]>;

/// Writes frames into a packet until it is full.
#[derive(Debug)]
pub(crate) struct FrameWriter<'a> {
    buf: &'a mut Vec<u8>,
    limit: usize,
    counts: &'a mut FrameCounts,
    deliveries: Deliveries,
    ack_eliciting: bool,
}

impl<'a> FrameWriter<'a> {
    /// A writer that appends to `buf` and never lets it grow past `limit` bytes. What it writes is
    /// added to `counts`.
    pub(crate) fn new(buf: &'a mut Vec<u8>, limit: usize, counts: &'a mut FrameCounts) -> Self {
        Self {
            buf,
            limit,
            counts,
            deliveries: Deliveries::new(),
            ack_eliciting: false,
        }
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.buf.len())
    }

    /// Writes `frame` if it fits; returns whether it did.
    #[must_use]
    pub(crate) fn try_write(&mut self, frame: &Frame, delivery: impl Into<Delivery>) -> bool {
        if frame.size() > self.remaining() {
            return false;
        }
        frame.encode(self.buf);
        self.note(frame.kind(), delivery.into(), frame.is_ack_eliciting());
        true
    }

    /// Records a frame that was appended through [`Self::buffer`].
    pub(crate) fn note(
        &mut self,
        kind: Option<FrameKind>,
        delivery: Delivery,
        ack_eliciting: bool,
    ) {
        self.counts.add(kind);
        self.ack_eliciting |= ack_eliciting;
        if delivery != Delivery::Nothing {
            self.deliveries.push(delivery);
        }
    }

    /// The packet's bytes, for frames whose content is copied straight from a send buffer. The
    /// caller must have checked [`Self::remaining`].
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.buf
    }

    /// True after an ack-eliciting frame.
    pub(crate) fn is_ack_eliciting(&self) -> bool {
        self.ack_eliciting
    }

    /// Ends writing.
    pub(crate) fn into_deliveries(self) -> Deliveries {
        self.deliveries
    }
}

/// For tests of components: the frames that `write` puts into a packet with room for `room` bytes,
/// and who hears of them.
#[cfg(test)]
pub(crate) fn written(
    room: usize,
    write: impl FnOnce(&mut FrameWriter<'_>),
) -> (Vec<Frame>, Deliveries) {
    let mut packet = Vec::new();
    let mut counts = FrameCounts::default();
    let mut writer = FrameWriter::new(&mut packet, room, &mut counts);
    write(&mut writer);
    let deliveries = writer.into_deliveries();
    assert!(packet.len() <= room, "{} bytes for {room}", packet.len());
    if packet.is_empty() {
        return (Vec::new(), deliveries);
    }
    let frames = crate::wire::frame::FrameIter::new(packet.into(), true)
        .collect::<Result<_, _>>()
        .expect("what is written can be read");
    (frames, deliveries)
}
