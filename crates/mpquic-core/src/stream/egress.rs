//! Frames that streams send, and the effects of acknowledgements and losses.

use std::ops::Range;

use quinn_proto::StreamId;

use super::send::SendHalf;
use super::set::StreamSet;
use crate::ids::PathId;
use crate::packet::delivery::{Fate, StreamDelivery};
use crate::packet::writer::FrameWriter;
use crate::sched::DataSelection;
use crate::wire::buf::varint_size;
use crate::wire::frame::{
    Frame, FrameKind, MaxStreamData, ResetStream, StopSending, StreamDataBlocked, StreamHeader,
};

/// Shortest piece of a stream, in bytes, for the rest of a packet, unless a shorter piece is all of
/// the waiting data.
const MIN_FRAGMENT: u64 = 16;

impl StreamSet {
    /// True if [`Self::write_control`] has something to write.
    pub(crate) fn wants_control(&self) -> bool {
        self.limits_due()
            || !self.recv_control.is_empty()
            || !self.send_control.is_empty()
            || self.send_credit.report().is_some()
            || self.counts.is_report_due()
    }

    /// Writes MAX_DATA, MAX_STREAM_DATA, MAX_STREAMS, RESET_STREAM, RESET_STREAM_AT, STOP_SENDING
    /// and the BLOCKED frames that are due.
    #[inline]
    pub(crate) fn write_control(&mut self, writer: &mut FrameWriter<'_>) {
        // Most packets have none.
        if self.wants_control() {
            self.write_due_control(writer);
        }
    }

    fn write_due_control(&mut self, writer: &mut FrameWriter<'_>) {
        // A frame that does not fit stays due.
        let _all_written = self.write_limits(writer)
            && self.write_receivers_control(writer)
            && self.write_senders_control(writer)
            && self.write_blocked(writer);
    }

    fn write_limits(&mut self, writer: &mut FrameWriter<'_>) -> bool {
        if self.holds_credit() {
            return true;
        }
        let credit = &mut self.receive_windows.credit;
        if credit.wants_update() {
            let frame = Frame::MaxData(credit.limit());
            if !writer.try_write(&frame, StreamDelivery::MaxData) {
                return false;
            }
            credit.on_announced();
        }
        self.counts.write_limits(writer)
    }

    fn write_receivers_control(&mut self, writer: &mut FrameWriter<'_>) -> bool {
        let holds_credit = self.holds_credit();
        while let Some(key) = self.recv_control.front() {
            let Some(recv) = self.recvs.get_mut(key as usize) else {
                self.recv_control.remove(key);
                continue;
            };
            let id = recv.id;
            if let Some(error_code) = recv.stop_due() {
                let frame = Frame::StopSending(StopSending {
                    stream_id: id,
                    error_code: error_code.into_inner(),
                });
                if !writer.try_write(&frame, StreamDelivery::StopSending(id)) {
                    return false;
                }
                recv.set_stop_due(false);
            }
            if !holds_credit && recv.limit_due() {
                let frame = Frame::MaxStreamData(MaxStreamData {
                    stream_id: id,
                    maximum_stream_data: recv.credit.limit(),
                });
                if !writer.try_write(&frame, StreamDelivery::MaxStreamData(id)) {
                    return false;
                }
                recv.credit.on_announced();
            }
            self.recv_control.remove(key);
        }
        true
    }

    fn write_senders_control(&mut self, writer: &mut FrameWriter<'_>) -> bool {
        while let Some(key) = self.send_control.front() {
            let Some(send) = self.sends.get_mut(key as usize) else {
                self.send_control.remove(key);
                continue;
            };
            let id = send.id;
            if let Some(reset) = send.reset_due() {
                let (frame, delivery) = match reset.reliable_size {
                    0 => (
                        Frame::ResetStream(ResetStream {
                            stream_id: id,
                            error_code: reset.error_code,
                            final_size: reset.final_size,
                        }),
                        StreamDelivery::ResetStream(id),
                    ),
                    reliable_size => (
                        Frame::ResetStreamAt(reset),
                        StreamDelivery::ResetStreamAt { id, reliable_size },
                    ),
                };
                if !writer.try_write(&frame, delivery) {
                    return false;
                }
                send.on_reset_sent();
            }
            if let Some(limit) = send.blocked_report() {
                let frame = Frame::StreamDataBlocked(StreamDataBlocked {
                    stream_id: id,
                    maximum_stream_data: limit,
                });
                if !writer.try_write(&frame, StreamDelivery::StreamDataBlocked(id)) {
                    return false;
                }
                send.credit.on_reported();
            }
            self.send_control.remove(key);
        }
        true
    }

    fn write_blocked(&mut self, writer: &mut FrameWriter<'_>) -> bool {
        if let Some(limit) = self.send_credit.report() {
            if !writer.try_write(&Frame::DataBlocked(limit), StreamDelivery::DataBlocked) {
                return false;
            }
            self.send_credit.on_reported();
        }
        self.counts.write_reports(writer)
    }

    /// True if stream data or an end of stream waits to be sent, whether or not credit allows it.
    pub(crate) fn wants_data(&self) -> bool {
        !self.ready.free.resend.is_empty() || !self.ready.free.fresh.is_empty()
    }

    /// True if [`Self::write_data`] with `Next` would write something.
    pub(crate) fn can_send_data(&self) -> bool {
        self.ready.free.can_send(self.send_credit.available())
    }

    /// Writes STREAM frames with at most `max_bytes` of stream data; returns how many bytes of it
    /// were written.
    pub(crate) fn write_data(
        &mut self,
        writer: &mut FrameWriter<'_>,
        selection: &DataSelection,
        max_bytes: usize,
    ) -> usize {
        match selection {
            DataSelection::Next if !self.wants_data() => 0,
            DataSelection::Next => self.write_next(writer, None, max_bytes),
            DataSelection::Datagram | DataSelection::DatagramsBehind(_) => 0,
            DataSelection::Stream(id) => {
                self.write_stream(writer, *id, max_bytes, |send, credit, _| send.next(credit))
            }
            DataSelection::StreamAt { id, offset } => {
                self.write_stream(writer, *id, max_bytes, |send, credit, from| {
                    send.next_in(from.max(*offset)..u64::MAX, credit)
                })
            }
            DataSelection::Range { id, offsets } => {
                self.write_stream(writer, *id, max_bytes, |send, _, from| {
                    let rest = from.max(offsets.start)..offsets.end;
                    send.buffer.in_flight_in(rest)
                })
            }
        }
    }

    /// Writes data that is bound to the path.
    pub(crate) fn write_bound(&mut self, writer: &mut FrameWriter<'_>, path: PathId) {
        self.write_next(writer, Some(path), usize::MAX);
    }

    /// Writes the most urgent data of streams bound to `path`, or of streams bound to no path.
    fn write_next(
        &mut self,
        writer: &mut FrameWriter<'_>,
        path: Option<PathId>,
        max_bytes: usize,
    ) -> usize {
        let mut left = max_bytes;
        loop {
            let credit = self.send_credit.available();
            let Some(ready) = self.ready.of_mut(path) else {
                break;
            };
            let fresh = || ready.fresh.front().filter(|_| credit > 0);
            let Some(key) = ready.resend.front().or_else(fresh) else {
                break;
            };
            let Some(send) = self.sends.get_mut(key as usize) else {
                break;
            };
            let Some(range) = send.next(credit) else {
                break;
            };
            let Some(written) = write_frame(writer, send, range, left) else {
                break;
            };
            self.send_credit.take(written.new);
            left -= written.length;
            if let Some(ready) = self.ready.of_mut(path) {
                ready.on_sent(key, written.length as u64);
            }
            self.update_send(key);
            self.wake_writer(key);
        }
        self.note_blocked();
        max_bytes - left
    }

    /// Writes frames of one stream as long as `choose` returns a range; it is given the
    /// connection's credit and the end of the last frame.
    fn write_stream(
        &mut self,
        writer: &mut FrameWriter<'_>,
        id: StreamId,
        max_bytes: usize,
        choose: impl Fn(&SendHalf, u64, u64) -> Option<Range<u64>>,
    ) -> usize {
        let (mut left, mut from) = (max_bytes, 0);
        if let Some(key) = self.tables.send_key(id)
            && let Some(send) = self.sends.get_mut(key as usize)
        {
            while let Some(range) = choose(send, self.send_credit.available(), from) {
                let start = range.start;
                let Some(written) = write_frame(writer, send, range, left) else {
                    break;
                };
                self.send_credit.take(written.new);
                left -= written.length;
                from = start + written.length as u64;
            }
            let path = send.path;
            if let Some(ready) = self.ready.of_mut(path) {
                ready.fresh.on_sent(key, (max_bytes - left) as u64);
            }
            self.update_send(key);
            self.wake_writer(key);
        }
        self.note_blocked();
        max_bytes - left
    }

    /// Tells the peer that its MAX_DATA stops us.
    fn note_blocked(&mut self) {
        if self.send_credit.available() == 0 && self.ready.wants_credit() {
            self.send_credit.on_blocked();
        }
    }

    /// A frame about streams was acknowledged or lost.
    pub(crate) fn on_delivery(&mut self, delivery: StreamDelivery, fate: Fate) {
        match delivery {
            StreamDelivery::Data {
                id,
                offset,
                length,
                fin,
            } => {
                let offsets = offset..offset + u64::from(length);
                if fate == Fate::Acked {
                    self.writers.window_mut().on_acked(u64::from(length));
                }
                let mut is_late = false;
                self.with_send(id, |send| {
                    send.on_delivery(offsets, fin, fate);
                    is_late = send.is_late();
                });
                if is_late {
                    self.expire(id);
                }
            }
            StreamDelivery::ResetStream(id) => {
                self.with_send(id, |send| send.on_reset_delivery(0, fate));
            }
            StreamDelivery::ResetStreamAt { id, reliable_size } => {
                self.with_send(id, |send| send.on_reset_delivery(reliable_size, fate));
            }
            StreamDelivery::MaxData
            | StreamDelivery::MaxStreamData(_)
            | StreamDelivery::MaxStreams(_)
            | StreamDelivery::DataBlocked
            | StreamDelivery::StreamDataBlocked(_)
            | StreamDelivery::StreamsBlocked(_)
            | StreamDelivery::StopSending(_) => {
                if fate == Fate::Lost {
                    self.on_control_lost(delivery);
                }
            }
        }
    }

    /// A lost control frame is due again, with the current values (RFC 9000 section 13.3).
    fn on_control_lost(&mut self, delivery: StreamDelivery) {
        match delivery {
            StreamDelivery::MaxData => self.receive_windows.credit.on_lost(),
            StreamDelivery::MaxStreams(dir) => self.counts.on_limit_lost(dir),
            StreamDelivery::DataBlocked => self.send_credit.on_report_lost(),
            StreamDelivery::StreamsBlocked(dir) => self.counts.on_report_lost(dir),
            StreamDelivery::StreamDataBlocked(id) => {
                self.with_send(id, |send| send.credit.on_report_lost());
            }
            StreamDelivery::MaxStreamData(id) | StreamDelivery::StopSending(id) => {
                let Some(key) = self.tables.recv_key(id) else {
                    return;
                };
                if let Some(recv) = self.recvs.get_mut(key as usize) {
                    if delivery == StreamDelivery::StopSending(id) {
                        recv.set_stop_due(true);
                    } else {
                        recv.credit.on_lost();
                    }
                }
                self.update_recv(key);
            }
            StreamDelivery::Data { .. }
            | StreamDelivery::ResetStream(_)
            | StreamDelivery::ResetStreamAt { .. } => {}
        }
    }

    fn with_send(&mut self, id: StreamId, change: impl FnOnce(&mut SendHalf)) {
        if let Some(key) = self.tables.send_key(id)
            && let Some(send) = self.sends.get_mut(key as usize)
        {
            change(send);
            self.update_send(key);
            self.wake_writer(key);
        }
    }
}

/// A STREAM frame that was written.
struct WrittenData {
    /// Bytes of stream data.
    length: usize,
    /// How much of the connection's credit it used.
    new: u64,
}

/// Writes one STREAM frame with the beginning of `range`, within the packet and `max_bytes`.
fn write_frame(
    writer: &mut FrameWriter<'_>,
    send: &mut SendHalf,
    mut range: Range<u64>,
    max_bytes: usize,
) -> Option<WrittenData> {
    let available = range.end - range.start;
    let wanted = available.min(max_bytes as u64);
    let mut header = StreamHeader {
        stream_id: send.id,
        offset: range.start,
        fin: false,
        length: None,
    };
    let room = writer.remaining().checked_sub(header.size())? as u64;
    if available > 0 && (wanted == 0 || room < MIN_FRAGMENT.min(wanted)) {
        return None;
    }
    let length = if wanted > 0 && wanted >= room {
        // The frame fills the rest of the packet, so it has no length field.
        room
    } else {
        let length = wanted.min(room.checked_sub(varint_size(wanted) as u64)?);
        header.length = Some(length);
        length
    };
    range.end = range.start + length;
    header.fin = send.ends_at(range.end);
    let delivery = StreamDelivery::Data {
        id: send.id,
        offset: range.start,
        length: u32::try_from(length).ok()?,
        fin: header.fin,
    };
    header.encode(writer.buffer());
    send.buffer.copy_to(range.clone(), writer.buffer());
    writer.note(Some(FrameKind::Stream), delivery.into(), true);
    let new = send.on_sent(range, header.fin);
    let length = length as usize;
    Some(WrittenData { length, new })
}
