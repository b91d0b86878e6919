//! [`SendStream`]: the sending half of a stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use mpquic_core::{
    ClosedStream, ConnectionError, FinishError, PathId, ResetAtError, StreamId, VarInt,
    WrittenChunks,
};
use thiserror::Error;
use tokio::io::AsyncWrite;

use crate::connection_ref::ConnectionRef;

/// The most bytes that a write copies under a single lock of the connection.
const MAX_COPY: usize = 256 << 10;

/// The sending half of a stream.
///
/// A drop finishes the stream, unless the application has finished or reset the stream: the written
/// bytes still arrive while the connection lives.
///
/// # Examples
///
/// ```
/// # use mpquic_tokio::Connection;
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let mut stream = connection.open_uni().await?;
/// stream.set_priority(1)?;
/// stream.write_all(b"all of it").await?;
/// stream.finish()?;
/// if let Some(code) = stream.stopped().await? {
///     println!("the peer does not want it: code {code}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SendStream {
    connection: ConnectionRef,
    id: StreamId,
    /// Opened as 0-RTT, before the server's answer to 0-RTT.
    as_zero_rtt: bool,
    /// Finished by the application: the drop finishes nothing.
    finished: bool,
    /// The code with which the peer stopped the stream, once a call has learnt the code.
    stop: OnceLock<VarInt>,
}

/// Why a write took no bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer asked us to stop sending, with this code.
    #[error("sending stopped by the peer: code {0}")]
    Stopped(VarInt),
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The stream was finished or reset before, by the application or at its deadline.
    #[error("closed stream")]
    ClosedStream,
    /// The stream was opened as 0-RTT, which the server rejected: open a new stream.
    #[error("0-RTT rejected")]
    ZeroRttRejected,
}

/// Why [`SendStream::stopped`] cannot tell.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoppedError {
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The stream was opened as 0-RTT, which the server rejected.
    #[error("0-RTT rejected")]
    ZeroRttRejected,
    /// The stream was reset because its deadline passed ([`SendStream::set_deadline`]).
    #[error("the deadline has passed")]
    Expired,
}

/// Why a stream was not bound to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BindStreamError {
    /// The path does not exist, or was abandoned already.
    #[error("no such open path")]
    ClosedPath,
    /// The stream is closed.
    #[error("closed stream")]
    ClosedStream,
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) | WriteError::ZeroRttRejected => io::ErrorKind::ConnectionReset,
            WriteError::ConnectionLost(_) | WriteError::ClosedStream => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

impl SendStream {
    pub(crate) fn new(connection: ConnectionRef, id: StreamId, as_zero_rtt: bool) -> Self {
        Self {
            connection,
            id,
            as_zero_rtt,
            finished: false,
            stop: OnceLock::new(),
        }
    }

    /// The stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Waits for room to write, and returns the number of bytes: for data that is costly to make or
    /// to hold early. Other streams of the connection may use the send buffer up meanwhile.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub async fn writable(&mut self) -> Result<usize, WriteError> {
        poll_fn(|cx| self.poll_with(cx, |stream| Ok((stream.room()?, 0)))).await
    }

    /// Writes as many bytes as send buffer and flow control allow, at least one, and returns their
    /// number. Waits while the stream has no room. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        poll_fn(|cx| self.poll_write(cx, data)).await
    }

    /// Writes all of `data`. Not cancel-safe: a dropped future may have written a part.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<(), WriteError> {
        while !data.is_empty() {
            let written = self.write(data).await?;
            data = data.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Writes all of `chunk` without a copy. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub async fn write_chunk(&mut self, chunk: Bytes) -> Result<(), WriteError> {
        self.write_all_chunks(&mut [chunk]).await
    }

    /// Writes as many chunks as send buffer and flow control allow, without a copy. Waits while the
    /// stream has no room. A partly written chunk keeps its rest. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub async fn write_chunks(
        &mut self,
        chunks: &mut [Bytes],
    ) -> Result<WrittenChunks, WriteError> {
        poll_fn(|cx| self.poll_write_chunks(cx, chunks)).await
    }

    /// Writes all chunks without a copy. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub async fn write_all_chunks(&mut self, mut chunks: &mut [Bytes]) -> Result<(), WriteError> {
        loop {
            let empty = chunks.iter().take_while(|chunk| chunk.is_empty()).count();
            chunks = chunks.get_mut(empty..).unwrap_or_default();
            if chunks.is_empty() {
                return Ok(());
            }
            let written = self.write_chunks(chunks).await?;
            chunks = chunks.get_mut(written.chunks..).unwrap_or_default();
        }
    }

    /// Like [`Self::write`], for hand-written futures.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, WriteError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // A write copies in pieces: each piece holds the lock briefly, and the next bytes to send
        // are still in the cache.
        let data = data.get(..MAX_COPY).unwrap_or(data);
        self.poll_with(cx, |stream| {
            let written = stream.write(data)?;
            Ok((written, written))
        })
    }

    /// Like [`Self::write_chunks`], for hand-written futures.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub fn poll_write_chunks(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut [Bytes],
    ) -> Poll<Result<WrittenChunks, WriteError>> {
        self.poll_with(cx, |stream| {
            let written = stream.write_chunks(chunks)?;
            Ok((written, written.bytes))
        })
    }

    /// Writes from the front of `buf` and advances `buf`, as far as send buffer and flow control
    /// allow, for hand-written futures. Copies no piece that `buf` hands out as [`Bytes`]. Returns
    /// the number of bytes, at least one unless `buf` is empty; with several pieces in `buf`, at
    /// most its first piece.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub fn poll_write_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut impl Buf,
    ) -> Poll<Result<usize, WriteError>> {
        if !buf.has_remaining() {
            return Poll::Ready(Ok(0));
        }
        self.poll_with(cx, |stream| {
            let length = stream.room()?.min(buf.chunk().len());
            let mut chunks = [buf.copy_to_bytes(length)];
            let written = stream.write_chunks(&mut chunks)?;
            debug_assert_eq!(written.bytes, length, "there was room");
            Ok((written.bytes, written.bytes))
        })
    }

    /// Copies from the front of `buf` and advances `buf`, as far as send buffer and flow control
    /// allow, for hand-written futures. Takes all pieces of `buf` at once, short pieces too, and
    /// costs less than a [`Self::poll_write`] for each piece. For pieces that `buf` can hand out as
    /// [`Bytes`], [`Self::poll_write_buf`] is cheaper. Returns the number of bytes, at least one
    /// unless `buf` is empty.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    ///
    /// # Examples
    ///
    /// ```
    /// # use mpquic_tokio::SendStream;
    /// # async fn example(stream: &mut SendStream, body: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    /// use bytes::Buf;
    ///
    /// let mut message = b"length and kind".chain(body);
    /// while message.has_remaining() {
    ///     std::future::poll_fn(|cx| stream.poll_copy_buf(cx, &mut message)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn poll_copy_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut impl Buf,
    ) -> Poll<Result<usize, WriteError>> {
        if !buf.has_remaining() {
            return Poll::Ready(Ok(0));
        }
        self.poll_with(cx, |stream| {
            let mut copied = 0;
            while buf.has_remaining() && copied < MAX_COPY {
                let piece = buf.chunk();
                let piece = piece.get(..MAX_COPY - copied).unwrap_or(piece);
                let written = match stream.write(piece) {
                    Ok(written) => written,
                    Err(mpquic_core::WriteError::Blocked) if copied > 0 => break,
                    Err(error) => return Err(error),
                };
                let took_all = written == piece.len();
                buf.advance(written);
                copied += written;
                if !took_all {
                    break;
                }
            }
            Ok((copied, copied))
        })
    }

    /// Calls `write`, which returns its result and the number of accepted bytes.
    fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnMut(
            &mut mpquic_core::SendStream<'_>,
        ) -> Result<(T, usize), mpquic_core::WriteError>,
    ) -> Poll<Result<T, WriteError>> {
        let written = poll_write_with(&self.connection, self.id, self.as_zero_rtt, cx, write);
        written.map_err(|error| match (error, self.stop.get()) {
            (WriteError::ClosedStream, Some(code)) => WriteError::Stopped(*code),
            (WriteError::Stopped(code), _) => WriteError::Stopped(*self.stop.get_or_init(|| code)),
            (error, _) => error,
        })
    }

    /// Ends the stream after the bytes written so far, without waiting for the peer: see
    /// [`Self::stopped`]. For a stream that the peer stopped, nothing is left to send.
    ///
    /// # Errors
    ///
    /// If the stream is closed: finished or reset before, or rejected with 0-RTT.
    pub fn finish(&mut self) -> Result<(), ClosedStream> {
        let mut engine = self.connection.lock();
        if engine.is_rejected(self.as_zero_rtt) || engine.broken().is_some() {
            return Err(ClosedStream::default());
        }
        match engine.core.send_stream(self.id).finish() {
            Ok(()) => {
                self.finished = true;
                engine.core.send_stream(self.id).set_watched(true)?;
                engine.wake_task();
                Ok(())
            }
            // Not an error: the peer refuses the bytes, so the stream need not send them.
            Err(FinishError::ClosedStream) if self.stop.get().is_some() => Ok(()),
            Err(FinishError::ClosedStream) => Err(ClosedStream::default()),
            Err(FinishError::Stopped(code)) => {
                self.stop.get_or_init(|| code);
                Ok(())
            }
        }
    }

    /// Ends the stream with an error: unsent and lost bytes are never sent. For a stream that the
    /// peer stopped, nothing is left to reset.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn reset(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        let mut engine = self.connection.lock();
        if engine.error.is_some() || engine.is_rejected(self.as_zero_rtt) {
            return Ok(());
        }
        let mut stream = engine.core.send_stream(self.id);
        if let Ok(Some(code)) = stream.stopped() {
            self.stop.get_or_init(|| code);
        }
        match stream.reset(error_code) {
            Ok(()) => engine.wake_task(),
            Err(closed) if self.stop.get().is_none() => return Err(closed),
            Err(_) => {}
        }
        Ok(())
    }

    /// Ends the stream with an error, but delivers its first `reliable_size` bytes, which the
    /// application must have written. A further call can lower the size, but the first code stays.
    /// Not every peer supports such a reset (draft-ietf-quic-reliable-stream-reset-11).
    ///
    /// # Errors
    ///
    /// If the peer does not support such a reset, the application wrote fewer bytes, or the stream
    /// is closed.
    pub fn reset_at(&mut self, error_code: VarInt, reliable_size: u64) -> Result<(), ResetAtError> {
        let mut engine = self.connection.lock();
        if engine.error.is_some() || engine.is_rejected(self.as_zero_rtt) {
            return Err(ResetAtError::ClosedStream);
        }
        let mut stream = engine.core.send_stream(self.id);
        stream.reset_at(error_code, reliable_size)?;
        engine.wake_task();
        Ok(())
    }

    /// Sets the priority. Larger is more urgent; 0 is the default.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_priority(&self, priority: i32) -> Result<(), ClosedStream> {
        self.with_open(|mut stream| stream.set_priority(priority))
    }

    /// Whether the stream takes turns with equally urgent streams; true by default. With `false`,
    /// the stream leaves in order: after every such stream with a lower ID. Together the streams in
    /// order take one turn among the interleaved streams. Data without use in parts arrives sooner
    /// on average in order (RFC 9218 section 4.2).
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_incremental(&self, is_incremental: bool) -> Result<(), ClosedStream> {
        self.with_open(|mut stream| stream.set_incremental(is_incremental))
    }

    /// Whether the stream takes turns with equally urgent streams.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn incremental(&self) -> Result<bool, ClosedStream> {
        self.with_open(|stream| stream.incremental())
    }

    /// Announces the total length of the stream. Schedulers that consider sizes then know the
    /// length before [`Self::finish`]. The announcement stays local, and a wrong number costs speed
    /// at most.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_expected_size(&self, bytes: u64) -> Result<(), ClosedStream> {
        self.with_open(|mut stream| stream.set_expected_size(bytes))
    }

    /// The priority.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn priority(&self) -> Result<i32, ClosedStream> {
        self.with_open(|stream| stream.priority())
    }

    /// Binds the stream to a path: its later bytes travel only there, even on a backup path. The
    /// stream waits while its path is suspect and another path works. `None`, or the end of the
    /// path, gives the choice back to the scheduler.
    ///
    /// # Errors
    ///
    /// If the path does not exist or was abandoned, or if the stream is closed.
    pub fn set_path(&self, path: Option<PathId>) -> Result<(), BindStreamError> {
        let bind = |core: &mut mpquic_core::Connection| {
            if path.is_some_and(|path| core.path_mut(path).is_err()) {
                return Err(BindStreamError::ClosedPath);
            }
            let bound = core.send_stream(self.id).set_path(path);
            bound.map_err(|_| BindStreamError::ClosedStream)
        };
        self.choose(bind)
            .unwrap_or(Err(BindStreamError::ClosedStream))
    }

    /// Sends all later bytes a second time, on the fastest other path that may carry data, as far
    /// as [`TransportOptions::max_redundancy`](crate::TransportOptions::max_redundancy) allows. The
    /// reader then does not notice a failure or loss on one of the two paths.
    /// [`ConnectionStats`](crate::ConnectionStats) counts copies sent and refused.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_redundant(&self, is_redundant: bool) -> Result<(), ClosedStream> {
        let set = |core: &mut mpquic_core::Connection| {
            core.send_stream(self.id).set_redundant(is_redundant)
        };
        self.choose(set)
            .unwrap_or_else(|| Err(ClosedStream::default()))
    }

    /// From `deadline` on, no byte of the stream leaves. If data is missing then (the stream is not
    /// finished, or bytes wait) or gets lost later, the stream is reset with `error_code`. After
    /// the reset, writes fail with [`WriteError::ClosedStream`], [`Self::stopped`] with
    /// [`StoppedError::Expired`], and
    /// [`ConnectionStats::streams_expired`](crate::ConnectionStats::streams_expired) counts the
    /// stream. A later call replaces the deadline.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    ///
    /// # Examples
    ///
    /// A video frame that is of no use after 100 ms and may cost twice its bytes:
    ///
    /// ```
    /// # use mpquic_tokio::Connection;
    /// # async fn example(connection: Connection, frame: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::{Duration, Instant};
    ///
    /// let mut stream = connection.open_uni().await?;
    /// stream.set_deadline(Instant::now() + Duration::from_millis(100), 1u32.into())?;
    /// stream.set_redundant(true)?;
    /// stream.write_all(frame).await?;
    /// stream.finish()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_deadline(&self, deadline: Instant, error_code: VarInt) -> Result<(), ClosedStream> {
        let set = |core: &mut mpquic_core::Connection| {
            core.send_stream(self.id)
                .set_deadline(deadline, error_code)?;
            core.send_stream(self.id).set_watched(true)
        };
        self.choose(set)
            .unwrap_or_else(|| Err(ClosedStream::default()))
    }

    /// Changes how the connection sends the stream; `None` if the server rejected its 0-RTT, or the
    /// connection is broken.
    fn choose<T>(&self, change: impl FnOnce(&mut mpquic_core::Connection) -> T) -> Option<T> {
        let mut engine = self.connection.lock();
        if engine.is_rejected(self.as_zero_rtt) || engine.broken().is_some() {
            return None;
        }
        let result = change(&mut engine.core);
        // Waiting data may leave now, and a deadline needs a timer.
        engine.wake_task();
        Some(result)
    }

    /// Reads a property of the stream, or changes a property without effect on waiting data.
    fn with_open<T>(
        &self,
        act: impl FnOnce(mpquic_core::SendStream<'_>) -> Result<T, ClosedStream>,
    ) -> Result<T, ClosedStream> {
        let mut engine = self.connection.lock();
        if engine.is_rejected(self.as_zero_rtt) || engine.broken().is_some() {
            return Err(ClosedStream::default());
        }
        act(engine.core.send_stream(self.id))
    }

    /// Waits until the peer asks us to stop sending, and returns the peer's code. Returns `None`
    /// once the peer has acknowledged every byte of a finished stream, or the reset of a reset
    /// stream. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended before, the server rejected the stream together with 0-RTT, or the
    /// deadline resets the stream meanwhile.
    pub async fn stopped(&self) -> Result<Option<VarInt>, StoppedError> {
        poll_fn(|cx| {
            if let Some(code) = self.stop.get() {
                return Poll::Ready(Ok(Some(*code)));
            }
            let stopped = poll_stopped(&self.connection, self.id, self.as_zero_rtt, cx);
            if let Poll::Ready(Ok(Some(code))) = stopped {
                self.stop.get_or_init(|| code);
            }
            stopped
        })
        .await
    }
}

/// Writes to a stream, opened as 0-RTT or not, once the stream has room. `write` returns its result
/// and the number of written bytes.
pub(crate) fn poll_write_with<T>(
    connection: &ConnectionRef,
    id: StreamId,
    as_zero_rtt: bool,
    cx: &mut Context<'_>,
    mut write: impl FnMut(
        &mut mpquic_core::SendStream<'_>,
    ) -> Result<(T, usize), mpquic_core::WriteError>,
) -> Poll<Result<T, WriteError>> {
    let mut engine = connection.lock();
    if let Some(error) = &engine.error {
        return Poll::Ready(Err(error.clone().into()));
    }
    if engine.is_rejected(as_zero_rtt) {
        return Poll::Ready(Err(WriteError::ZeroRttRejected));
    }
    match write(&mut engine.core.send_stream(id)) {
        Ok((result, bytes)) => {
            if bytes > 0 {
                engine.wrote(bytes);
            }
            Poll::Ready(Ok(result))
        }
        Err(mpquic_core::WriteError::Blocked) => {
            engine.writers.insert(id, cx.waker().clone());
            engine.on_waits();
            Poll::Pending
        }
        Err(mpquic_core::WriteError::Stopped(code)) => Poll::Ready(Err(WriteError::Stopped(code))),
        Err(mpquic_core::WriteError::ClosedStream) => Poll::Ready(Err(WriteError::ClosedStream)),
    }
}

/// Whether the peer asked us to stop sending a stream, opened as 0-RTT or not, or has all its
/// bytes.
pub(crate) fn poll_stopped(
    connection: &ConnectionRef,
    id: StreamId,
    as_zero_rtt: bool,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<VarInt>, StoppedError>> {
    let mut engine = connection.lock();
    if engine.is_rejected(as_zero_rtt) {
        return Poll::Ready(Err(StoppedError::ZeroRttRejected));
    }
    if let Some(error) = engine.broken() {
        return Poll::Ready(Err(error.into()));
    }
    if engine.core.send_stream(id).is_expired() {
        return Poll::Ready(Err(StoppedError::Expired));
    }
    match engine.core.send_stream(id).stopped() {
        Ok(Some(code)) => return Poll::Ready(Ok(Some(code))),
        Err(_) => return Poll::Ready(Ok(None)),
        Ok(None) => {}
    }
    if let Some(error) = &engine.error {
        return Poll::Ready(Err(error.clone().into()));
    }
    engine.finishing.insert(id, cx.waker().clone());
    engine.on_waits();
    Poll::Pending
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let mut engine = self.connection.lock();
        // The ID of a rejected stream may belong to a new stream.
        if engine.error.is_some() || engine.is_rejected(self.as_zero_rtt) {
            return;
        }
        // A watch may wait for room, which no stream has after its end.
        let waiter = engine.writers.remove(&self.id);
        let mut stream = engine.core.send_stream(self.id);
        if stream.is_expired() || matches!(stream.stopped(), Ok(Some(_))) && self.finished {
            // The peer's limit counts the stream as long as somebody looks at its end.
            let _ = stream.set_watched(false);
            engine.wake_task();
        } else if self.finished {
            let _ = stream.set_watched(false);
        } else {
            match stream.finish() {
                Ok(()) => engine.wake_task(),
                Err(FinishError::Stopped(code)) => {
                    // The peer refuses the rest; a reset lets both sides forget the stream.
                    if stream.reset(code).is_ok() {
                        engine.wake_task();
                    }
                }
                Err(FinishError::ClosedStream) => {}
            }
        }
        drop(engine);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Self::poll_write(self.get_mut(), cx, data))?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.get_mut().finish();
        Poll::Ready(result.map_err(|error| io::Error::new(io::ErrorKind::NotConnected, error)))
    }
}
