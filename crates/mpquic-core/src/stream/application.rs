//! The application's handles for streams.

use bytes::Bytes;
use quinn_proto::{Chunk, ClosedStream, Dir, FinishError, StreamId, VarInt, WriteError};

use super::error::{ReadStreamError, ResetAtError};
use super::queue::Rank;
use super::recv::Read;
use super::send::SendHalf;
use super::set::StreamSet;

/// The streams of a connection, borrowed from it.
pub struct Streams<'a> {
    set: &'a mut StreamSet,
    may_open: bool,
}

/// The sending half of a stream, borrowed from a connection.
pub struct SendStream<'a> {
    pub(super) streams: &'a mut StreamSet,
    pub(super) id: StreamId,
}

/// The receiving half of a stream, borrowed from a connection.
pub struct RecvStream<'a> {
    streams: &'a mut StreamSet,
    id: StreamId,
}

/// How much a vectored write accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WrittenChunks {
    /// Bytes accepted.
    pub bytes: usize,
    /// Chunks accepted whole. The first chunk that was not accepted whole keeps its unwritten rest.
    pub chunks: usize,
}

impl<'a> Streams<'a> {
    /// The streams; `may_open` is false if the connection is closed.
    #[inline]
    pub(crate) fn new(set: &'a mut StreamSet, may_open: bool) -> Self {
        Self { set, may_open }
    }

    /// Opens a stream if the peer's limit allows and the connection is not closed. Otherwise a
    /// [`StreamEvent::Available`](super::StreamEvent::Available) follows once the limit has risen.
    #[inline]
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        if self.may_open {
            self.set.open(dir)
        } else {
            None
        }
    }

    /// The next stream that the peer opened.
    #[inline]
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.set.accept(dir)
    }

    /// True if reading, accepting or stopping streams made a frame due, such as MAX_DATA. If not, a
    /// driver need not call [`Connection::poll_transmit`](crate::Connection::poll_transmit) after a
    /// read.
    #[inline]
    pub fn wants_control(&self) -> bool {
        self.set.wants_control()
    }

    /// Changes how many streams of a direction the peer may have open at the same time. Streams
    /// that the peer was already allowed to open stay allowed.
    pub fn set_max_concurrent(&mut self, dir: Dir, count: u64) {
        self.set.counts.set_max_concurrent(dir, count);
    }

    /// Copies received data that nobody has read since the last call out of the datagrams it came
    /// in. Data read before that is never copied.
    ///
    /// Data is held as slices of the datagrams passed to
    /// [`Connection::handle_datagram`](crate::Connection::handle_datagram). A driver whose
    /// datagrams share larger buffers calls this, and [`Datagrams::detach_waiting`], once a
    /// connection has received from some number of buffers: otherwise a peer's single bytes could
    /// each keep a buffer alive.
    ///
    /// [`Datagrams::detach_waiting`]: crate::Datagrams::detach_waiting
    pub fn detach_waiting(&mut self) {
        self.set.detach_waiting();
    }

    /// Changes the largest size of receive windows, in bytes: see
    /// [`TransportOptions::max_receive_window`](crate::config::TransportOptions::max_receive_window).
    /// A larger window of the connection shrinks as data is read; credit that the peer already has
    /// stays valid. If the connection's window was configured to begin at its limit, the window
    /// follows the limit at once.
    pub fn set_max_receive_window(&mut self, bytes: u64) {
        self.set.receive_windows.set_max(bytes);
    }

    /// Changes how many unacknowledged and unsent stream bytes are buffered before writes block:
    /// see [`TransportOptions::send_window`](crate::config::TransportOptions::send_window).
    pub fn set_send_window(&mut self, bytes: u64) {
        self.set.set_send_window(bytes);
    }
}

impl SendStream<'_> {
    /// Writes as much of `data` as flow control and the send buffer allow, and returns how much.
    ///
    /// # Errors
    ///
    /// [`WriteError::Blocked`] if nothing can be written now: a
    /// [`StreamEvent::Writable`](super::StreamEvent::Writable) follows when that changes.
    /// [`WriteError::Stopped`] with the code, if the peer asked us to stop sending, and
    /// [`WriteError::ClosedStream`] if the stream was finished or reset, or does not exist.
    pub fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        self.streams.write(self.id, data.len(), |send, room| {
            let length = room.min(data.len());
            send.buffer.write(&data[..length]);
            length
        })
    }

    /// Bytes that [`Self::write`] would take now, at least one.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::write`].
    pub fn room(&mut self) -> Result<usize, WriteError> {
        let mut available = 0;
        self.streams.write(self.id, usize::MAX, |_, room| {
            available = room;
            0
        })?;
        Ok(available)
    }

    /// Writes chunks without copying them, within flow control and the send buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::write`].
    pub fn write_chunks(&mut self, chunks: &mut [Bytes]) -> Result<WrittenChunks, WriteError> {
        let offered = chunks.iter().map(Bytes::len).sum();
        let mut written = WrittenChunks::default();
        self.streams.write(self.id, offered, |send, room| {
            for chunk in chunks {
                let left = room - written.bytes;
                if left < chunk.len() {
                    send.buffer.write_chunk(chunk.split_to(left));
                    written.bytes = room;
                    break;
                }
                written.bytes += chunk.len();
                written.chunks += 1;
                send.buffer.write_chunk(std::mem::take(chunk));
            }
            written.bytes
        })?;
        Ok(written)
    }

    /// The code with which the peer asked us to stop sending.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for an unknown stream, or once the peer has all bytes or the reset.
    pub fn stopped(&self) -> Result<Option<VarInt>, ClosedStream> {
        let send = self.streams.sending_half(self.id).ok_or_else(closed)?;
        Ok(send.stopped())
    }

    /// With `true`, a finished stream keeps the peer's code for [`Self::stopped`], and an expired
    /// stream remains expired for [`Self::is_expired`]. The stream then counts as open for the
    /// peer's limit, until the application calls this method with `false`. By default, nobody looks
    /// at the end of a stream.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn set_watched(&mut self, is_watched: bool) -> Result<(), ClosedStream> {
        let done = self
            .streams
            .with_half(self.id, |send| send.set_watched(is_watched));
        done.ok_or_else(closed)
    }

    /// Ends the stream after the bytes written so far.
    ///
    /// # Errors
    ///
    /// [`FinishError::Stopped`] with the code, if the peer asked us to stop sending, and
    /// [`FinishError::ClosedStream`] if the stream was finished or reset already, or does not
    /// exist.
    pub fn finish(&mut self) -> Result<(), FinishError> {
        let result = self.streams.with_half(self.id, |send| {
            if let Some(error_code) = send.tell_stopped() {
                return Err(FinishError::Stopped(error_code));
            }
            if !send.is_open() {
                return Err(FinishError::ClosedStream);
            }
            send.finish();
            Ok(())
        });
        self.streams.after_end(self.id);
        result.unwrap_or(Err(FinishError::ClosedStream))
    }

    /// Resets the stream: unsent and lost bytes are never sent. After [`Self::reset_at`], the first
    /// code stays.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for an unknown stream; for a stream that was reset before or has reached
    /// the peer; and after the application was told that the peer stopped the stream.
    pub fn reset(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        let done = self
            .streams
            .with_half(self.id, |send| send.reset(error_code));
        self.streams.after_end(self.id);
        done.filter(|done| *done).map(|_| ()).ok_or_else(closed)
    }

    /// Ends the stream with an error, but delivers its first `reliable_size` bytes, which must have
    /// been written. A second call may give a smaller size, but the first code stays
    /// (draft-ietf-quic-reliable-stream-reset-11).
    ///
    /// # Errors
    ///
    /// [`ResetAtError::UnsupportedByPeer`] for a peer without this extension,
    /// [`ResetAtError::TooLong`] if fewer than `reliable_size` bytes were written, and
    /// [`ResetAtError::ClosedStream`] for a stream that was delivered, stopped, or reset after
    /// `reliable_size` bytes or fewer.
    pub fn reset_at(&mut self, error_code: VarInt, reliable_size: u64) -> Result<(), ResetAtError> {
        if !self.streams.peer_takes_reset_at {
            return Err(ResetAtError::UnsupportedByPeer);
        }
        let result = self.streams.with_half(self.id, |send| {
            if reliable_size > send.buffer.end() {
                return Err(ResetAtError::TooLong);
            }
            let done = send.reset_at(error_code, reliable_size);
            done.then_some(()).ok_or(ResetAtError::ClosedStream)
        });
        self.streams.after_end(self.id);
        result.unwrap_or(Err(ResetAtError::ClosedStream))
    }

    /// Sets the priority. Larger is more urgent; 0 is the default.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn set_priority(&mut self, priority: i32) -> Result<(), ClosedStream> {
        self.streams
            .set_rank(self.id, |send| send.priority = priority)
    }

    /// Whether the stream takes turns with equally urgent streams, as by default. With `false`, its
    /// data leaves in order: after all non-incremental streams of the same priority with lower IDs.
    /// All non-incremental streams share one turn among the incremental ones. A file which is
    /// useless until complete arrives sooner in order, on average (RFC 9218 section 4.2).
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn set_incremental(&mut self, is_incremental: bool) -> Result<(), ClosedStream> {
        self.streams
            .set_rank(self.id, |send| send.incremental = is_incremental)
    }

    /// Whether the stream takes turns with equally urgent streams.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn incremental(&self) -> Result<bool, ClosedStream> {
        let send = self.streams.sending_half(self.id).ok_or_else(closed)?;
        Ok(send.incremental)
    }

    /// Announces the stream's total size to schedulers before the stream is finished. The peer
    /// hears nothing of the number, and a wrong number costs speed at most.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn set_expected_size(&mut self, bytes: u64) -> Result<(), ClosedStream> {
        let key = self.streams.use_send(self.id).ok_or_else(closed)?;
        let send = self.streams.sends.get_mut(key as usize);
        send.ok_or_else(closed)?.expected_size = Some(bytes);
        self.streams.update_send(key);
        Ok(())
    }

    /// The priority.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] for a closed or unknown stream.
    pub fn priority(&self) -> Result<i32, ClosedStream> {
        let send = self.streams.sending_half(self.id).ok_or_else(closed)?;
        Ok(send.priority)
    }
}

impl RecvStream<'_> {
    /// Reads the next bytes, at most `max_length`, without copying them; `None` at the end of the
    /// stream.
    ///
    /// # Errors
    ///
    /// [`ReadStreamError::Blocked`] without data: a
    /// [`StreamEvent::Readable`](super::StreamEvent::Readable) follows. [`ReadStreamError::Reset`]
    /// with the code of the peer's reset. [`ReadStreamError::IllegalOrderedRead`] for an ordered
    /// read after an unordered one. [`ReadStreamError::ClosedStream`] for a stopped or unknown
    /// stream, and after the end of the stream.
    pub fn read_chunk(
        &mut self,
        max_length: usize,
        ordered: bool,
    ) -> Result<Option<Chunk>, ReadStreamError> {
        self.streams.read_chunk(self.id, max_length, ordered)
    }

    /// The code with which the peer reset the stream; the stream is closed then. With a reliable
    /// size, the code is returned only after the application has read the delivered bytes.
    ///
    /// # Errors
    ///
    /// Once no reset can arrive any more: all data has arrived, or the stream is closed.
    pub fn received_reset(&mut self) -> Result<Option<VarInt>, ClosedStream> {
        self.streams.received_reset(self.id)
    }

    /// Asks the peer to stop sending and drops arriving data.
    ///
    /// # Errors
    ///
    /// [`ClosedStream`] after an earlier call, and once the application has read the end or the
    /// reset of the stream.
    pub fn stop(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        self.streams.stop(self.id, error_code)
    }
}

impl StreamSet {
    /// The sending half of a stream.
    #[inline]
    pub(crate) fn send_stream(&mut self, id: StreamId) -> SendStream<'_> {
        SendStream { streams: self, id }
    }

    /// The receiving half of a stream.
    #[inline]
    pub(crate) fn recv_stream(&mut self, id: StreamId) -> RecvStream<'_> {
        RecvStream { streams: self, id }
    }

    pub(super) fn sending_half(&self, id: StreamId) -> Option<&SendHalf> {
        self.sends.get(self.tables.send_key(id)? as usize)
    }

    /// A sending half was finished or reset: it accepts no more writes, and leaves its share of the
    /// send window to others.
    pub(super) fn after_end(&mut self, id: StreamId) {
        if let Some(key) = self.tables.send_key(id)
            && let Some(send) = self.sends.get_mut(key as usize)
            && !send.is_open()
        {
            self.writers.remove(key, send);
        }
        self.wake_writers();
    }

    /// Changes a sending half; `None` if it is closed.
    pub(super) fn with_half<T>(
        &mut self,
        id: StreamId,
        change: impl FnOnce(&mut SendHalf) -> T,
    ) -> Option<T> {
        let key = self.use_send(id)?;
        let result = change(self.sends.get_mut(key as usize)?);
        self.update_send(key);
        Some(result)
    }

    /// Lets `take` move bytes into a stream's buffer, up to the number it is called with; `offered`
    /// is the number of bytes to write.
    fn write(
        &mut self,
        id: StreamId,
        offered: usize,
        take: impl FnOnce(&mut SendHalf, usize) -> usize,
    ) -> Result<usize, WriteError> {
        let key = self.use_send(id).ok_or(WriteError::ClosedStream)?;
        let send = (self.sends.get_mut(key as usize)).ok_or(WriteError::ClosedStream)?;
        if let Some(error_code) = send.tell_stopped() {
            self.update_send(key);
            return Err(WriteError::Stopped(error_code));
        }
        if !send.is_open() {
            return Err(WriteError::ClosedStream);
        }
        if offered == 0 {
            return Ok(0);
        }
        let credit = send.credit.available();
        if credit == 0 {
            // RFC 9000 section 4.1
            send.credit.on_blocked();
            send.writer_waits = true;
            self.update_send(key);
            return Err(WriteError::Blocked);
        }
        let room = self.writers.room(&self.backlogs.all, send);
        if room == 0 {
            self.writers.block(key, send);
            return Err(WriteError::Blocked);
        }
        if room < credit && offered < usize::MAX && room < offered as u64 {
            self.writers.on_limited(send);
        }
        let room = usize::try_from(room.min(credit)).unwrap_or(usize::MAX);
        let taken = take(send, room);
        send.credit.take(taken as u64);
        self.update_send(key);
        Ok(taken)
    }

    /// Changes what a half's place among the others hangs on.
    fn set_rank(
        &mut self,
        id: StreamId,
        change: impl FnOnce(&mut SendHalf),
    ) -> Result<(), ClosedStream> {
        let key = self.use_send(id).ok_or_else(closed)?;
        let send = self.sends.get_mut(key as usize).ok_or_else(closed)?;
        let before = send.rank();
        change(send);
        let rank = send.rank();
        if rank != before {
            let ready = self.ready.entry(send.path);
            ready.resend.set_rank(key, rank);
            ready.fresh.set_rank(key, rank);
            self.writers.set_rank(key, rank);
        }
        Ok(())
    }

    fn read_chunk(
        &mut self,
        id: StreamId,
        max_length: usize,
        ordered: bool,
    ) -> Result<Option<Chunk>, ReadStreamError> {
        let key = self.use_recv(id).ok_or(ReadStreamError::ClosedStream)?;
        let window = self.receive_windows.stream();
        let recv = (self.recvs.get_mut(key as usize)).ok_or(ReadStreamError::ClosedStream)?;
        let before = recv.footprint();
        let read = recv.read(max_length, ordered, window);
        let after = recv.footprint();
        let limit_due = recv.limit_due();
        self.count_held(before, after);
        match read? {
            Read::Chunk(chunk) => {
                let consumed = chunk.bytes.len() as u64;
                self.receive_windows.credit.on_consumed(consumed);
                if limit_due {
                    self.recv_control.insert(key, Rank::default());
                }
                Ok(Some(chunk))
            }
            Read::End => {
                self.drop_recv(key);
                Ok(None)
            }
            Read::Reset(error_code) => {
                self.update_recv(key);
                self.drop_recv(key);
                Err(ReadStreamError::Reset(error_code))
            }
        }
    }

    fn received_reset(&mut self, id: StreamId) -> Result<Option<VarInt>, ClosedStream> {
        let key = self.use_recv(id).ok_or_else(closed)?;
        let recv = self.recvs.get_mut(key as usize).ok_or_else(closed)?;
        let before = recv.footprint();
        let reset = recv.received_reset()?;
        let after = recv.footprint();
        self.count_held(before, after);
        if reset.is_some() {
            self.update_recv(key);
            self.drop_recv(key);
        }
        Ok(reset)
    }

    fn stop(&mut self, id: StreamId, error_code: VarInt) -> Result<(), ClosedStream> {
        let key = self.use_recv(id).ok_or_else(closed)?;
        let recv = self.recvs.get_mut(key as usize).ok_or_else(closed)?;
        let before = recv.footprint();
        if !recv.stop(error_code) {
            return Err(closed());
        }
        let after = recv.footprint();
        self.count_held(before, after);
        self.update_recv(key);
        Ok(())
    }
}

pub(super) fn closed() -> ClosedStream {
    ClosedStream::default()
}
