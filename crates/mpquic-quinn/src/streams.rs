//! Streams.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use mpquic_tokio as mp;
use quinn_proto::{Chunk, ClosedStream, StreamId, VarInt, Written};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::errors::{
    self, ReadError, ReadExactError, ReadToEndError, ResetError, StoppedError, WriteError,
};
use crate::stopped::Stopped;

/// The sending side of a stream. The drop finishes the stream, or resets the stream if the peer
/// stopped it.
pub struct SendStream {
    inner: mp::SendStream,
    connection: mp::Connection,
    /// Made by the first call of [`Self::stopped`].
    end: OnceLock<Arc<Stopped>>,
}

impl SendStream {
    pub(crate) fn new(inner: mp::SendStream, connection: mp::Connection) -> Self {
        Self {
            inner,
            connection,
            end: OnceLock::new(),
        }
    }

    /// The stream of mpquic below, which has more methods: paths, deadlines and copies.
    pub fn as_mpquic(&mut self) -> &mut mp::SendStream {
        &mut self.inner
    }

    /// Writes as many bytes as there is room for; waits for room. Returns the number of written
    /// bytes. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream takes no more data.
    pub async fn write(&mut self, buf: &[u8]) -> Result<usize, WriteError> {
        self.inner.write(buf).await.map_err(errors::write)
    }

    /// Writes all bytes. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream takes no more data.
    pub async fn write_all(&mut self, buf: &[u8]) -> Result<(), WriteError> {
        self.inner.write_all(buf).await.map_err(errors::write)
    }

    /// Writes as many whole and partial chunks as there is room for, without a copy. Written chunks
    /// become empty. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream takes no more data.
    pub async fn write_chunks(&mut self, bufs: &mut [Bytes]) -> Result<Written, WriteError> {
        let written = self.inner.write_chunks(bufs).await.map_err(errors::write)?;
        Ok(Written {
            bytes: written.bytes,
            chunks: written.chunks,
        })
    }

    /// Writes a whole chunk without a copy. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream takes no more data.
    pub async fn write_chunk(&mut self, buf: Bytes) -> Result<(), WriteError> {
        self.inner.write_chunk(buf).await.map_err(errors::write)
    }

    /// Writes all chunks without a copy. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream takes no more data.
    pub async fn write_all_chunks(&mut self, bufs: &mut [Bytes]) -> Result<(), WriteError> {
        self.inner
            .write_all_chunks(bufs)
            .await
            .map_err(errors::write)
    }

    /// Ends the stream after the written data.
    ///
    /// # Errors
    ///
    /// If the stream was finished or reset before.
    pub fn finish(&mut self) -> Result<(), ClosedStream> {
        self.inner.finish()
    }

    /// Gives the stream up: no lost data is sent again, and no unsent data is sent.
    ///
    /// # Errors
    ///
    /// If the stream was finished and acknowledged, or reset before.
    pub fn reset(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        self.inner.reset(error_code)
    }

    /// Streams with a higher number send before streams with a lower number; 0 by default.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_priority(&self, priority: i32) -> Result<(), ClosedStream> {
        self.inner.set_priority(priority)
    }

    /// The number of [`Self::set_priority`].
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn priority(&self) -> Result<i32, ClosedStream> {
        self.inner.priority()
    }

    /// Waits until the peer has stopped the stream, with the peer's code, or has acknowledged the
    /// whole finished stream, with `None`. The future keeps the connection open.
    pub fn stopped(
        &self,
    ) -> impl Future<Output = Result<Option<VarInt>, StoppedError>> + Send + Sync + 'static + use<>
    {
        let watch = || self.connection.watch_stream(self.inner.id());
        let end = self.end.get_or_init(|| Arc::new(Stopped::new(watch())));
        let end = end.clone();
        poll_fn(move |cx| end.poll(cx))
    }

    /// The number of the stream.
    pub fn id(&self) -> StreamId {
        self.inner.id()
    }

    /// Like [`Self::write`], for hand-written futures.
    ///
    /// # Errors
    ///
    /// If the stream takes no more data.
    pub fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<Result<usize, WriteError>> {
        let written = self.get_mut().inner.poll_write(cx, buf);
        written.map_err(errors::write)
    }
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write(cx, buf).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().finish().map_err(Into::into))
    }
}

#[cfg(feature = "futures-io")]
impl futures_io::AsyncWrite for SendStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write(cx, buf).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().finish().map_err(Into::into))
    }
}

/// The receiving side of a stream. The drop of a stream with unread data tells the peer to stop,
/// with the code 0.
#[derive(Debug)]
pub struct RecvStream {
    inner: mp::RecvStream,
}

impl RecvStream {
    pub(crate) fn new(inner: mp::RecvStream) -> Self {
        Self { inner }
    }

    /// The stream of mpquic below.
    pub fn as_mpquic(&mut self) -> &mut mp::RecvStream {
        &mut self.inner
    }

    /// Reads into a buffer; `None` at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream has no more data to read.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<Option<usize>, ReadError> {
        self.inner.read(buf).await.map_err(errors::read)
    }

    /// Fills a buffer. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream ends before, or has no more data to read.
    pub async fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), ReadExactError> {
        self.inner.read_exact(buf).await.map_err(errors::read_exact)
    }

    /// Like [`Self::read`], for hand-written futures; 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// If the stream has no more data to read.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize, ReadError>> {
        let mut buf = ReadBuf::new(buf);
        ready!(self.poll_read_buf(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Like [`Self::poll_read`], into a buffer of tokio.
    ///
    /// # Errors
    ///
    /// If the stream has no more data to read.
    pub fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), ReadError>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_read_buf(cx, buf).map_err(errors::read)
    }

    /// Reads the next bytes without a copy, at most `max_length`; `None` at the end of the stream.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream has no more data to read.
    pub async fn read_chunk(
        &mut self,
        max_length: usize,
        ordered: bool,
    ) -> Result<Option<Chunk>, ReadError> {
        let chunk = self.inner.read_chunk(max_length, ordered).await;
        chunk.map_err(errors::read)
    }

    /// Reads the next chunks without a copy, and returns their number; `None` at the end of the
    /// stream. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream has no more data to read.
    pub async fn read_chunks(&mut self, bufs: &mut [Bytes]) -> Result<Option<usize>, ReadError> {
        self.inner.read_chunks(bufs).await.map_err(errors::read)
    }

    /// Reads the stream to its end. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream is longer than `size_limit`, or cannot be read.
    pub async fn read_to_end(&mut self, size_limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let bytes = self.inner.read_to_end(size_limit).await;
        bytes.map_err(errors::read_to_end)
    }

    /// Drops unread data, and tells the peer to send no more.
    ///
    /// # Errors
    ///
    /// If the stream was stopped, or read to its end.
    pub fn stop(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        self.inner.stop(error_code)
    }

    /// True if the stream was opened before the handshake was complete.
    pub fn is_0rtt(&self) -> bool {
        self.inner.is_0rtt()
    }

    /// The number of the stream.
    pub fn id(&self) -> StreamId {
        self.inner.id()
    }

    /// Waits for a reset of the peer; `None` if all data arrived or the stream is closed.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended, or the server rejected 0-RTT.
    pub async fn received_reset(&mut self) -> Result<Option<VarInt>, ResetError> {
        self.inner.received_reset().await.map_err(errors::reset)
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().poll_read_buf(cx, buf).map_err(Into::into)
    }
}

#[cfg(feature = "futures-io")]
impl futures_io::AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_read(cx, buf).map_err(Into::into)
    }
}
