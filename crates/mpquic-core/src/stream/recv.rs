//! [`RecvHalf`]: the receiving half of a stream (RFC 9000 section 3.2).

use bytes::Bytes;
use quinn_proto::{Chunk, ClosedStream, StreamId, VarInt};

use super::assembler::Assembler;
use super::error::ReadStreamError;
use super::flow::ReceiveCredit;
use super::piece::Source;
use crate::error::{Fault, TransportError};

/// Bytes held for each further gap. Peers that fill their packets leave one gap for about twice as
/// much, also when the packets of two paths arrive in turns; a peer that sends single bytes to make
/// us hold hundreds is stopped (RFC 9000 section 21.6).
const BYTES_PER_GAP: u64 = 512;

/// Number of gaps allowed for any amount of received data. Each gap costs up to 48 bytes of memory,
/// and about 100 more with a piece of over 14 bytes.
const MIN_GAPS: usize = 4096;

/// Short pieces are copied together if received data keeps more memory than twice its own size and
/// this many bytes.
const CROWDED: u64 = 1 << 20;

/// Received data that the application has not read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    /// Bytes of memory: lists, and whole datagrams with slices in use.
    pub(crate) memory: u64,
    /// Gaps before data that was received out of order, and that an unordered reader has left.
    pub(crate) gaps: usize,
}

impl Held {
    /// Replaces the part of one half in a total.
    pub(crate) fn replace(&mut self, before: Self, after: Self) {
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.memory = self.memory - before.memory + after.memory;
        self.gaps = self.gaps - before.gaps + after.gaps;
    }

    /// True if received data keeps too much memory: then short pieces should be copied.
    pub(super) fn is_crowded(&self) -> bool {
        self.memory > 2 * self.bytes + CROWDED
    }

    /// True if the peer left more gaps than we keep track of.
    pub(super) fn has_too_many_gaps(&self) -> bool {
        let further = self.gaps.saturating_sub(MIN_GAPS) as u64;
        further > self.bytes / BYTES_PER_GAP
    }
}

/// The receiving half of a stream.
#[derive(Debug)]
pub(crate) struct RecvHalf {
    pub(super) id: StreamId,
    pub(super) credit: ReceiveCredit,
    assembler: Assembler,
    /// Where the stream ends, once known.
    final_size: Option<u64>,
    /// Set if the peer reset the stream but delivers its beginning.
    cut: Option<Box<Cut>>,
    state: State,
    reader: Reader,
}

/// A reset in spite of which the first bytes are delivered
/// (draft-ietf-quic-reliable-stream-reset-11).
#[derive(Debug, Clone, Copy)]
struct Cut {
    error_code: VarInt,
    reliable_size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Data arrives, until the final size is known and all bytes are read.
    Open,
    /// The peer reset the stream; the reader does not know yet.
    Reset(VarInt),
    /// The reader wants no more; we wait for the final size. `due` while STOP_SENDING has to be
    /// sent.
    Stopped { error_code: VarInt, due: bool },
}

/// Whether the reader was told of data to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// The reader has not asked for data yet.
    Absent,
    /// The reader found no data, and waits for an event.
    Waits,
    /// The reader was told of data.
    Told,
}

/// The result of a read.
pub(crate) enum Read {
    /// Bytes.
    Chunk(Chunk),
    /// The end; the half is closed.
    End,
    /// A reset; the half is closed.
    Reset(VarInt),
}

impl RecvHalf {
    /// A half whose peer may send `window` bytes at first.
    pub(crate) fn new(id: StreamId, window: u64) -> Self {
        Self {
            id,
            credit: ReceiveCredit::new(window),
            assembler: Assembler::default(),
            final_size: None,
            cut: None,
            state: State::Open,
            reader: Reader::Absent,
        }
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.assembler.trim();
    }

    /// Copies data from before the last call out of its datagrams.
    pub(super) fn detach_waiting(&mut self) {
        self.assembler.detach_waiting();
    }

    /// The data held for the reader.
    #[inline]
    pub(crate) fn footprint(&self) -> Held {
        let (bytes, memory, gaps) = self.assembler.held(BYTES_PER_GAP);
        Held {
            bytes,
            memory,
            gaps,
        }
    }

    /// True unless the stream was reset by the peer or stopped by us.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The peer has sent up to offset `end`, the final size with `fin`. New bytes use credit of the
    /// stream and the connection. An error changes nothing.
    pub(crate) fn on_offset(
        &mut self,
        end: u64,
        fin: bool,
        connection: &mut ReceiveCredit,
    ) -> Result<(), TransportError> {
        let received = self.credit.received();
        // RFC 9000 section 4.5
        let fits = match self.final_size {
            Some(size) => end <= size && (!fin || end == size),
            None => !fin || end >= received,
        };
        if !fits {
            return Err(Fault::FinalSizeChanged.into());
        }
        // RFC 9000 section 4.1
        let new = end.saturating_sub(received);
        if new > self.credit.available() {
            return Err(Fault::StreamDataBeyondLimit.into());
        }
        if !connection.on_received(new) {
            return Err(Fault::DataBeyondLimit.into());
        }
        let _within = self.credit.on_received(new);
        if fin {
            self.final_size = Some(end);
        }
        Ok(())
    }

    /// Stores bytes after [`Self::on_offset`] has accepted them.
    pub(crate) fn on_data(&mut self, offset: u64, mut data: Bytes, source: Source) {
        if self.state != State::Open {
            return;
        }
        if let Some(cut) = &self.cut {
            let room = cut.reliable_size.saturating_sub(offset);
            data.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        }
        self.assembler.insert(offset, data, source);
    }

    /// A reset after the first `reliable_size` bytes; 0 for RESET_STREAM.
    pub(crate) fn on_reset(
        &mut self,
        error_code: VarInt,
        final_size: u64,
        reliable_size: u64,
        connection: &mut ReceiveCredit,
    ) -> Result<(), TransportError> {
        let complete = self.is_complete();
        self.on_offset(final_size, true, connection)?;
        // draft-ietf-quic-reliable-stream-reset-11 section 5.2
        if (self.cut.as_ref()).is_some_and(|cut| cut.error_code != error_code) {
            return Err(Fault::ResetCodeChanged.into());
        }
        if self.state != State::Open || complete {
            return Ok(());
        }
        if reliable_size == 0 {
            self.state = State::Reset(error_code);
            self.assembler.clear();
        } else if (self.cut.as_ref()).is_none_or(|cut| reliable_size < cut.reliable_size) {
            self.cut = Some(Box::new(Cut {
                error_code,
                reliable_size,
            }));
        }
        Ok(())
    }

    /// The code of a reset, once the bytes before it were read.
    fn finished_cut(&self) -> Option<VarInt> {
        let cut = self.cut.as_ref()?;
        let is_read = self.assembler.is_read_up_to(cut.reliable_size);
        is_read.then_some(cut.error_code)
    }

    /// The code of a reset, after the reader has taken all bytes before the reset. An error for a
    /// complete or stopped stream, which no reset can end any more.
    pub(crate) fn received_reset(&mut self) -> Result<Option<VarInt>, ClosedStream> {
        match self.state {
            State::Reset(error_code) => return Ok(Some(error_code)),
            State::Stopped { .. } => return Err(ClosedStream::default()),
            State::Open => {}
        }
        if let Some(error_code) = self.finished_cut() {
            self.state = State::Reset(error_code);
            self.assembler.clear();
            return Ok(Some(error_code));
        }
        if self.is_complete() {
            return Err(ClosedStream::default());
        }
        self.reader = Reader::Waits;
        Ok(None)
    }

    /// True once all data up to the end has arrived; a later reset changes nothing (RFC 9000
    /// section 3.2).
    fn is_complete(&self) -> bool {
        let held = self.assembler.bytes_read() + self.assembler.unread();
        self.final_size == Some(held) && self.cut.is_none()
    }

    /// Number of bytes that will never be read: their credit goes back to the connection.
    pub(crate) fn take_unwanted(&mut self) -> u64 {
        if self.state == State::Open {
            return 0;
        }
        let unwanted = self.credit.held();
        self.credit.on_consumed(unwanted);
        unwanted
    }

    /// True while a reader has come for what is not here yet.
    pub(super) fn is_waited_for(&self) -> bool {
        self.reader == Reader::Waits && !self.is_readable()
    }

    /// True once for data that a reader has not seen: the reader found nothing before, or has not
    /// come yet.
    pub(crate) fn take_readable(&mut self) -> bool {
        self.reader != Reader::Told && self.is_readable() && {
            self.reader = Reader::Told;
            true
        }
    }

    /// True if a read would return data, the end or a reset.
    pub(super) fn is_readable(&self) -> bool {
        match self.state {
            State::Open => {
                self.assembler.is_readable()
                    || self.finished_cut().is_some()
                    || self.final_size == Some(self.assembler.bytes_read())
            }
            State::Reset(_) => true,
            State::Stopped { .. } => false,
        }
    }

    /// True for a half with no further use, although the application has not read its end.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Stopped { .. }) && self.final_size.is_some()
    }

    /// The next bytes for the application, at most `max_length`. The peer may then be `window`
    /// bytes ahead of the reader.
    pub(crate) fn read(
        &mut self,
        max_length: usize,
        ordered: bool,
        window: u64,
    ) -> Result<Read, ReadStreamError> {
        match self.state {
            State::Open if ordered && self.assembler.is_unordered() => {
                return Err(ReadStreamError::IllegalOrderedRead);
            }
            State::Open => {}
            State::Reset(error_code) => return Ok(Read::Reset(error_code)),
            State::Stopped { .. } => return Err(ReadStreamError::ClosedStream),
        }
        if let Some(error_code) = self.finished_cut() {
            self.state = State::Reset(error_code);
            self.assembler.clear();
            return Ok(Read::Reset(error_code));
        }
        let chunk = if ordered {
            self.assembler.read(max_length)
        } else {
            self.assembler.read_unordered(max_length)
        };
        match chunk {
            Some(chunk) => {
                self.credit.grow(window);
                self.credit.on_consumed(chunk.bytes.len() as u64);
                Ok(Read::Chunk(chunk))
            }
            None if self.final_size == Some(self.assembler.bytes_read()) => Ok(Read::End),
            None => {
                self.reader = Reader::Waits;
                Err(ReadStreamError::Blocked)
            }
        }
    }

    /// The application wants no more bytes. False if it had stopped before.
    pub(crate) fn stop(&mut self, error_code: VarInt) -> bool {
        if matches!(self.state, State::Stopped { .. }) {
            return false;
        }
        self.state = State::Stopped {
            error_code,
            due: true,
        };
        self.assembler.clear();
        true
    }

    /// The code for STOP_SENDING, if one is due.
    pub(crate) fn stop_due(&self) -> Option<VarInt> {
        match self.state {
            State::Stopped {
                error_code,
                due: true,
            } => Some(error_code),
            State::Stopped { due: false, .. } | State::Open | State::Reset(_) => None,
        }
    }

    /// STOP_SENDING was sent (`false`) or lost (`true`).
    pub(crate) fn set_stop_due(&mut self, is_due: bool) {
        if let State::Stopped { due, .. } = &mut self.state {
            *due = is_due;
        }
    }

    /// True if MAX_STREAM_DATA is due. It helps only while more can come (RFC 9000 section 3.2).
    pub(crate) fn limit_due(&self) -> bool {
        self.state == State::Open && self.final_size.is_none() && self.credit.wants_update()
    }

    /// True if STOP_SENDING or MAX_STREAM_DATA is due.
    pub(crate) fn wants_control(&self) -> bool {
        self.stop_due().is_some() || self.limit_due()
    }
}
