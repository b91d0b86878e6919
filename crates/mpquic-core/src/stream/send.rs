//! [`SendHalf`]: the sending half of a stream (RFC 9000 section 3.1).

use std::ops::Range;
use std::time::Instant;

use quinn_proto::{StreamId, VarInt};

use super::flow::SendCredit;
use super::queue::Rank;
use super::send_buffer::SendBuffer;
use crate::ids::PathId;
use crate::packet::delivery::Fate;
use crate::sched::{SchedulerEvent, StreamView};
use crate::wire::frame::ResetStreamAt;

/// The sending half of a stream.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(super) id: StreamId,
    pub(super) priority: i32,
    /// Takes turns with others that are equally urgent.
    pub(super) incremental: bool,
    /// No other path is to carry its data.
    pub(super) path: Option<PathId>,
    /// Its data is to be sent twice.
    pub(super) redundant: bool,
    pub(super) deadline: Option<Deadline>,
    /// The half was reset at its deadline.
    pub(super) is_expired: bool,
    /// The application has yet to look at the end of the half.
    is_watched: bool,
    pub(super) buffer: SendBuffer,
    /// The peer's MAX_STREAM_DATA. Written bytes use credit at once, so the stream's limit never
    /// stops buffered bytes.
    pub(super) credit: SendCredit,
    /// A write failed because there was no such credit; the writer is to be told when there is.
    pub(super) writer_waits: bool,
    /// The writer wanted to write more than the send window allowed.
    pub(super) is_hungry: bool,
    /// The part of the connection's totals that comes from this half.
    pub(super) counted: Backlog,
    /// The size that the application expects, while the half is open.
    pub(super) expected_size: Option<u64>,
    /// The progress that the scheduler was last told of.
    reported: Reported,
    fin: Fin,
    reset: Option<Reset>,
    stopped: Option<Stopped>,
}

/// When a stream is of no use any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    /// The code of the reset.
    pub(super) error_code: VarInt,
    pub(super) has_passed: bool,
}

/// The progress of a half, as far as it matters to schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    Open,
    SizeKnown(u64),
    Over,
}

/// The end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fin {
    /// The final size is not known yet.
    Open,
    /// The FIN waits to be sent, with the last byte or after it.
    Due,
    /// The FIN is in flight.
    Sent,
    Acked,
}

#[derive(Debug, Clone, Copy)]
struct Reset {
    error_code: VarInt,
    /// Bytes to deliver in spite of the reset; above 0, the frame is RESET_STREAM_AT.
    reliable_size: u64,
    due: bool,
    acked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Stopped {
    error_code: VarInt,
    /// The application knows of it.
    told: bool,
}

/// Bytes in the buffer of a sending half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// From the first unacknowledged byte on.
    pub(crate) buffered: u64,
    /// Never sent.
    pub(crate) unsent: u64,
    /// Lost and not sent again since.
    pub(crate) lost: u64,
    /// The memory for all this.
    pub(crate) memory: u64,
}

impl Backlog {
    /// Replaces the part of one half in a total.
    pub(crate) fn replace(&mut self, before: Self, after: Self) {
        self.buffered = self.buffered - before.buffered + after.buffered;
        self.unsent = self.unsent - before.unsent + after.unsent;
        self.lost = self.lost - before.lost + after.lost;
        self.memory = self.memory - before.memory + after.memory;
    }
}

/// The backlogs of all sending halves together.
#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    pub(super) all: Backlog,
    /// The part of halves that are bound to paths.
    bound: Backlog,
}

impl Backlogs {
    /// Counts a half that has changed, or is new.
    #[inline]
    pub(super) fn recount(&mut self, half: &mut SendHalf) {
        let backlog = half.backlog();
        self.all.replace(half.counted, backlog);
        if half.path.is_some() {
            self.bound.replace(half.counted, backlog);
        }
        half.counted = backlog;
    }

    /// A half is freed.
    pub(super) fn remove(&mut self, half: &SendHalf) {
        self.all.replace(half.counted, Backlog::default());
        if half.path.is_some() {
            self.bound.replace(half.counted, Backlog::default());
        }
    }

    /// A half was bound to `before` and is now bound to another path, or to none.
    pub(super) fn rebind(&mut self, half: &SendHalf, before: Option<PathId>) {
        let counts_if = |is_bound| {
            if is_bound {
                half.counted
            } else {
                Backlog::default()
            }
        };
        self.bound
            .replace(counts_if(before.is_some()), counts_if(half.path.is_some()));
    }

    /// The backlog of halves for any path, as schedulers see it.
    pub(super) fn free(&self) -> Backlog {
        let mut free = self.all;
        free.replace(self.bound, Backlog::default());
        free
    }

    /// Bytes from the first unacknowledged byte to the last sent one.
    pub(super) fn unacked(&self) -> u64 {
        self.all.buffered.saturating_sub(self.all.unsent)
    }
}

impl SendHalf {
    /// A half that may send up to `limit`.
    pub(crate) fn new(id: StreamId, limit: u64) -> Self {
        let mut credit = SendCredit::default();
        credit.raise(limit);
        Self {
            id,
            priority: 0,
            incremental: true,
            path: None,
            redundant: false,
            deadline: None,
            is_expired: false,
            is_watched: false,
            buffer: SendBuffer::default(),
            credit,
            writer_waits: false,
            is_hungry: false,
            counted: Backlog::default(),
            expected_size: None,
            reported: Reported::Open,
            fin: Fin::Open,
            reset: None,
            stopped: None,
        }
    }

    /// News of the half for the scheduler.
    pub(crate) fn take_news(&mut self) -> Option<SchedulerEvent> {
        let is_cut = self.reset.is_some() && self.buffer.buffered() == 0;
        let progress = if is_cut || self.is_finished() {
            Reported::Over
        } else if self.is_open() {
            self.expected_size
                .map_or(Reported::Open, Reported::SizeKnown)
        } else {
            Reported::SizeKnown(self.buffer.end())
        };
        if std::mem::replace(&mut self.reported, progress) == progress {
            return None;
        }
        match progress {
            Reported::Open => None,
            Reported::SizeKnown(size) => Some(SchedulerEvent::StreamSizeKnown(self.id, size)),
            Reported::Over => Some(SchedulerEvent::StreamFinished(self.id)),
        }
    }

    /// True after the scheduler was told of the half's end.
    pub(crate) fn is_reported_over(&self) -> bool {
        self.reported == Reported::Over
    }

    /// The buffered bytes.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog {
            buffered: self.buffer.buffered(),
            unsent: self.buffer.unsent(),
            lost: self.buffer.lost(),
            memory: self.buffer.memory(),
        }
    }

    /// True while bytes may be written.
    pub(crate) fn is_open(&self) -> bool {
        self.fin == Fin::Open && self.reset.is_none()
    }

    /// The code with which the peer stopped the stream.
    pub(crate) fn stopped(&self) -> Option<VarInt> {
        self.stopped.map(|stopped| stopped.error_code)
    }

    /// The code with which the peer stopped the stream, for the application: it counts as told.
    pub(crate) fn tell_stopped(&mut self) -> Option<VarInt> {
        let stopped = self.stopped.as_mut()?;
        stopped.told = true;
        Some(stopped.error_code)
    }

    /// The application will look at the end of the half, or will not look any more.
    pub(crate) fn set_watched(&mut self, is_watched: bool) {
        self.is_watched = is_watched;
        if let Some(stopped) = &mut self.stopped
            && !is_watched
        {
            stopped.told = true;
        }
    }

    /// The stream ends after what was written.
    pub(crate) fn finish(&mut self) {
        self.fin = Fin::Due;
    }

    /// The application resets the stream. False if it was reset or fully delivered before.
    pub(crate) fn reset(&mut self, error_code: VarInt) -> bool {
        if let Some(stopped) = &mut self.stopped {
            // The peer's STOP_SENDING was answered already.
            return !std::mem::replace(&mut stopped.told, true);
        }
        self.cut(error_code, 0)
    }

    /// The application resets the stream after its first `reliable_size` bytes, which must have
    /// been written. False after an earlier reset with this size or a smaller one.
    pub(crate) fn reset_at(&mut self, error_code: VarInt, reliable_size: u64) -> bool {
        if self.stopped.is_some() {
            return self.reset(error_code);
        }
        self.cut(error_code, reliable_size)
    }

    /// STOP_SENDING; returns whether the application must be told.
    pub(crate) fn on_stop_sending(&mut self, error_code: VarInt) -> bool {
        if self.reset.is_some() {
            // The peer does not want the beginning either.
            let _was_cut_before = self.cut(error_code, 0);
            return false;
        }
        self.stopped = Some(Stopped {
            error_code,
            // Without a watch, the application may never look at a finished stream again.
            told: self.fin != Fin::Open && !self.is_watched,
        });
        // RFC 9000 section 3.5: the answer is a reset with the same code.
        self.cut(error_code, 0)
    }

    /// Resets the stream after its first `reliable_size` bytes, or reduces that size after an
    /// earlier reset. The first code stays (draft-ietf-quic-reliable-stream-reset-11 section 5.2).
    fn cut(&mut self, error_code: VarInt, reliable_size: u64) -> bool {
        let before = self.reset;
        if before.is_some_and(|reset| reset.reliable_size <= reliable_size) {
            return false;
        }
        self.buffer.truncate(reliable_size);
        self.reset = Some(Reset {
            error_code: before.map_or(error_code, |reset| reset.error_code),
            reliable_size,
            due: true,
            acked: false,
        });
        self.writer_waits = false;
        true
    }

    /// The due RESET_STREAM_AT frame; a reliable size of 0 stands for RESET_STREAM. The final size
    /// needs credit, so the frame is due only after all bytes to be delivered were sent.
    pub(crate) fn reset_due(&self) -> Option<ResetStreamAt> {
        let reset = self.reset.filter(|reset| reset.due)?;
        let final_size = self.buffer.end();
        (self.buffer.sent() == final_size).then_some(ResetStreamAt {
            stream_id: self.id,
            error_code: reset.error_code.into_inner(),
            final_size,
            reliable_size: reset.reliable_size,
        })
    }

    /// RESET_STREAM or RESET_STREAM_AT was sent.
    pub(crate) fn on_reset_sent(&mut self) {
        if let Some(reset) = &mut self.reset {
            reset.due = false;
        }
    }

    /// RESET_STREAM, or RESET_STREAM_AT with this size, was acknowledged or lost.
    pub(crate) fn on_reset_delivery(&mut self, reliable_size: u64, fate: Fate) {
        if let Some(reset) = &mut self.reset
            && reset.reliable_size == reliable_size
        {
            reset.acked |= fate == Fate::Acked;
            reset.due = !reset.acked && (reset.due || fate == Fate::Lost);
        }
    }

    /// True if RESET_STREAM or STREAM_DATA_BLOCKED is due.
    pub(crate) fn wants_control(&self) -> bool {
        self.reset_due().is_some() || self.blocked_report().is_some()
    }

    /// The limit for a due STREAM_DATA_BLOCKED.
    pub(crate) fn blocked_report(&self) -> Option<u64> {
        self.credit.report().filter(|_| self.is_open())
    }

    /// True for data or an end that need no credit of the connection.
    pub(crate) fn can_resend(&self) -> bool {
        self.buffer.has_resend() || self.bare_fin().is_some()
    }

    /// True for bytes beyond the highest sent offset.
    pub(crate) fn has_new(&self) -> bool {
        self.buffer.next_new().is_some()
    }

    /// The end of the stream in a frame without data.
    fn bare_fin(&self) -> Option<Range<u64>> {
        let end = self.buffer.end();
        (self.fin == Fin::Due && self.reset.is_none() && self.buffer.sent() == end)
            .then_some(end..end)
    }

    /// The bytes to send next, with `credit` of the connection for new ones.
    pub(crate) fn next(&self, credit: u64) -> Option<Range<u64>> {
        self.buffer
            .next_resend()
            .or_else(|| {
                let new = self.buffer.next_new()?;
                let end = new.end.min(new.start.saturating_add(credit));
                (new.start < end).then_some(new.start..end)
            })
            .or_else(|| self.bare_fin())
    }

    /// The first bytes of `offsets` that are not acknowledged, with `credit` of the connection for
    /// new ones.
    pub(crate) fn next_in(&self, offsets: Range<u64>, credit: u64) -> Option<Range<u64>> {
        let range = self.buffer.unacked_in(offsets)?;
        let end = range.end.min(self.buffer.sent().saturating_add(credit));
        (range.start < end).then_some(range.start..end)
    }

    /// True if a frame that ends at `end` ends the stream.
    pub(crate) fn ends_at(&self, end: u64) -> bool {
        self.fin != Fin::Open && self.reset.is_none() && end == self.buffer.end()
    }

    /// A frame was sent. Returns how much credit of the connection it used.
    pub(crate) fn on_sent(&mut self, range: Range<u64>, fin: bool) -> u64 {
        if fin && self.fin == Fin::Due {
            self.fin = Fin::Sent;
        }
        if range.is_empty() {
            return 0;
        }
        self.buffer.on_sent(range)
    }

    /// A STREAM frame was acknowledged or lost. Repeated reports, and reports of dropped bytes,
    /// change nothing.
    pub(crate) fn on_delivery(&mut self, range: Range<u64>, fin: bool, fate: Fate) {
        match fate {
            Fate::Acked => self.buffer.on_acked(range),
            Fate::Lost => self.buffer.on_lost(range),
        }
        if fin {
            self.fin = match (self.fin, fate) {
                (Fin::Due | Fin::Sent, Fate::Acked) => Fin::Acked,
                (Fin::Sent, Fate::Lost) => Fin::Due,
                (fin, _) => fin,
            };
        }
    }

    /// True if all bytes and the end were acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin == Fin::Acked && self.reset.is_none() && self.buffer.buffered() == 0
    }

    /// True after the deadline, while data must still be written, sent or sent again.
    pub(super) fn is_late(&self) -> bool {
        let waits = || self.buffer.unsent() > 0 || self.buffer.lost() > 0;
        self.deadline.is_some_and(|deadline| deadline.has_passed)
            && self.reset.is_none()
            && (matches!(self.fin, Fin::Open | Fin::Due) || waits())
    }

    /// True if the half is not needed any more.
    pub(crate) fn is_done(&self) -> bool {
        let delivered = self.buffer.buffered() == 0;
        let reset = self.reset.is_some_and(|reset| reset.acked && delivered);
        let is_told = self.stopped.is_none_or(|stopped| stopped.told);
        self.is_finished() || reset && is_told && !(self.is_expired && self.is_watched)
    }

    /// True for a range with a byte in flight or lost.
    pub(crate) fn is_unacked(&self, offsets: Range<u64>) -> bool {
        self.buffer.in_flight_in(offsets).is_some()
    }

    /// The half's place in queues.
    pub(super) fn rank(&self) -> Rank {
        let in_order = (!self.incremental).then(|| VarInt::from(self.id).into_inner());
        Rank {
            priority: self.priority,
            in_order,
        }
    }

    /// The stream as schedulers see it.
    pub(crate) fn view(&self) -> StreamView {
        let finished = !self.is_open();
        let end = self.buffer.end();
        let expected = self.expected_size.map(|size| size.max(end));
        StreamView {
            id: self.id,
            priority: self.priority,
            incremental: self.incremental,
            size: if finished { Some(end) } else { expected },
            unsent: self.buffer.unsent(),
            offset: self.buffer.first_unsent(),
            end,
            finished,
        }
    }
}
