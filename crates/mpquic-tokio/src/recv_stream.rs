//! [`RecvStream`]: the receiving half of a stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use mpquic_core::{Chunk, ClosedStream, ConnectionError, ReadStreamError, StreamId, VarInt};
use thiserror::Error;
use tokio::io::{AsyncRead, ReadBuf};

use crate::connection_ref::ConnectionRef;

/// The receiving half of a stream.
///
/// A drop before the end of the stream asks the peer to stop sending, with code 0.
///
/// # Examples
///
/// ```
/// # use mpquic_tokio::Connection;
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let mut stream = connection.accept_uni().await?;
/// if stream.is_0rtt() {
///     println!("may be a replay");
/// }
/// while let Some(chunk) = stream.read_chunk(64 << 10, true).await? {
///     println!("{} bytes at {}", chunk.bytes.len(), chunk.offset);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RecvStream {
    connection: ConnectionRef,
    id: StreamId,
    /// Opened as 0-RTT, before the server's answer to 0-RTT.
    as_zero_rtt: bool,
    /// True if the stream may carry 0-RTT data.
    is_0rtt: bool,
    end: Option<End>,
    /// `read_to_end` has dropped bytes of a stream that is too long.
    has_gap: bool,
}

/// How the stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All bytes were read.
    Finished,
    Reset(VarInt),
    /// The application asked the peer to stop.
    Stopped,
}

/// Why a read got no bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer reset the stream with this code.
    #[error("stream reset by the peer: code {0}")]
    Reset(VarInt),
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The stream was stopped before.
    #[error("closed stream")]
    ClosedStream,
    /// Ordered reads are impossible after an unordered one, and after [`ReadToEndError::TooLong`].
    #[error("an earlier read left a gap before these bytes")]
    IllegalOrderedRead,
    /// The stream was opened as 0-RTT, which the server rejected: open a new stream.
    #[error("0-RTT rejected")]
    ZeroRttRejected,
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) | ReadError::ZeroRttRejected => io::ErrorKind::ConnectionReset,
            ReadError::ConnectionLost(_) | ReadError::ClosedStream => io::ErrorKind::NotConnected,
            ReadError::IllegalOrderedRead => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Why [`RecvStream::received_reset`] cannot tell.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResetError {
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The stream was opened as 0-RTT, which the server rejected.
    #[error("0-RTT rejected")]
    ZeroRttRejected,
}

/// Why [`RecvStream::read_exact`] failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadExactError {
    /// The stream ended after this many bytes.
    #[error("the stream ended after {0} bytes")]
    FinishedEarly(usize),
    /// Reading failed.
    #[error(transparent)]
    ReadError(#[from] ReadError),
}

/// Why [`RecvStream::read_to_end`] failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadToEndError {
    /// The stream is larger than the limit.
    #[error("the stream is too long")]
    TooLong,
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl RecvStream {
    /// A stream that we opened, as 0-RTT if `as_zero_rtt`.
    pub(crate) fn opened(connection: ConnectionRef, id: StreamId, as_zero_rtt: bool) -> Self {
        Self {
            connection,
            id,
            as_zero_rtt,
            is_0rtt: as_zero_rtt,
            end: None,
            has_gap: false,
        }
    }

    /// A stream that the peer opened.
    pub(crate) fn accepted(connection: ConnectionRef, id: StreamId, is_0rtt: bool) -> Self {
        Self {
            connection,
            id,
            as_zero_rtt: false,
            is_0rtt,
            end: None,
            has_gap: false,
        }
    }

    /// True if the application opened or accepted the stream before the end of the handshake. On a
    /// server, such data may be a replay of an earlier connection: do only work that is safe to
    /// repeat.
    pub fn is_0rtt(&self) -> bool {
        self.is_0rtt
    }

    /// The stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Reads the next bytes in order into `buf`, as many as available, and returns their number;
    /// `None` at the end. Waits while no byte is available. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer reset the stream, the stream is closed, or the connection ended.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let mut buf = ReadBuf::new(buf);
        if buf.remaining() == 0 {
            return Ok(Some(0));
        }
        poll_fn(|cx| self.poll_read_buf(cx, &mut buf)).await?;
        Ok(Some(buf.filled().len()).filter(|read| *read > 0))
    }

    /// Reads exactly `buf.len()` bytes. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// If the stream ends too early, and errors of [`Self::read`].
    pub async fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), ReadExactError> {
        let mut filled = 0;
        while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest).await? {
                Some(read) => filled += read,
                None => return Err(ReadExactError::FinishedEarly(filled)),
            }
        }
        Ok(())
    }

    /// Reads the next piece of at most `max_length` bytes without a copy; `None` at the end. With
    /// `ordered` false, pieces come in the order of arrival, and ordered reads are impossible from
    /// then on. Cancel-safe.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::read`], and an ordered read after an unordered one.
    pub async fn read_chunk(
        &mut self,
        max_length: usize,
        ordered: bool,
    ) -> Result<Option<Chunk>, ReadError> {
        poll_fn(|cx| self.poll_read_chunk(cx, max_length, ordered)).await
    }

    /// Fills `chunks` with the next pieces in order, without a copy, and returns their number;
    /// `None` at the end. Waits only while no piece is available. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer reset the stream, the stream is closed, or the connection ended.
    pub async fn read_chunks(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, ReadError> {
        poll_fn(|cx| self.poll_read_chunks(cx, chunks)).await
    }

    /// Reads all bytes up to the end of the stream, at most `size_limit`. Not cancel-safe. If the
    /// stream is too long, the bytes are lost, and further reads fail: stop the stream, or drop it.
    ///
    /// # Errors
    ///
    /// If the stream is longer than `size_limit`, and errors of [`Self::read`].
    pub async fn read_to_end(&mut self, size_limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let mut pieces: [Bytes; 32] = Default::default();
        let mut data = BytesMut::new();
        while let Some(count) = self.read_chunks(&mut pieces).await? {
            for piece in pieces.iter_mut().take(count) {
                if data.len() + piece.len() > size_limit {
                    self.has_gap = true;
                    return Err(ReadToEndError::TooLong);
                }
                data.extend_from_slice(piece);
                *piece = Bytes::new();
            }
        }
        Ok(data.into())
    }

    /// Asks the peer to stop sending. Later data is dropped on arrival.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn stop(&mut self, error_code: VarInt) -> Result<(), ClosedStream> {
        let mut engine = self.connection.lock();
        if engine.error.is_some() || engine.is_rejected(self.as_zero_rtt) {
            return Ok(());
        }
        engine.core.recv_stream(self.id).stop(error_code)?;
        // A stopped stream has no later event that would remove its waker.
        engine.readers.remove(&self.id);
        self.end = Some(End::Stopped);
        engine.wake_task();
        Ok(())
    }

    /// Waits until the peer resets the stream, and returns the peer's code. Returns `None` once no
    /// reset can come, because all data has arrived or the application stopped the stream. Received
    /// data stays readable afterwards. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended before, or the server rejected the stream together with 0-RTT.
    pub async fn received_reset(&mut self) -> Result<Option<VarInt>, ResetError> {
        poll_fn(|cx| {
            match self.end {
                Some(End::Reset(code)) => return Poll::Ready(Ok(Some(code))),
                Some(End::Finished | End::Stopped) => return Poll::Ready(Ok(None)),
                None => {}
            }
            let mut engine = self.connection.lock();
            if engine.is_rejected(self.as_zero_rtt) {
                return Poll::Ready(Err(ResetError::ZeroRttRejected));
            }
            if let Some(error) = engine.broken() {
                return Poll::Ready(Err(error.into()));
            }
            let reset = engine.core.recv_stream(self.id).received_reset();
            Poll::Ready(match (reset, &engine.error) {
                (Ok(Some(code)), _) => {
                    self.end = Some(End::Reset(code));
                    Ok(Some(code))
                }
                (Err(_), _) => Ok(None),
                (Ok(None), Some(error)) => Err(error.clone().into()),
                (Ok(None), None) => {
                    engine.readers.insert(self.id, cx.waker().clone());
                    engine.on_waits();
                    return Poll::Pending;
                }
            })
        })
        .await
    }

    /// Like [`Self::read_chunk`], for hand-written futures.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::read_chunk`].
    pub fn poll_read_chunk(
        &mut self,
        cx: &mut Context<'_>,
        max_length: usize,
        ordered: bool,
    ) -> Poll<Result<Option<Chunk>, ReadError>> {
        let mut result = None;
        ready!(self.poll_pieces(cx, |stream| {
            if result.is_some() {
                return Ok(Step::Full);
            }
            result = stream.read_chunk(max_length, ordered)?;
            Ok(result.as_ref().map_or(Step::End, |_| Step::Read))
        }))?;
        Poll::Ready(Ok(result))
    }

    /// Like [`Self::read_chunks`], for hand-written futures. Notices an end right behind the last
    /// piece at once: then the next call does not lock the connection.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::read_chunks`].
    pub fn poll_read_chunks(
        &mut self,
        cx: &mut Context<'_>,
        chunks: &mut [Bytes],
    ) -> Poll<Result<Option<usize>, ReadError>> {
        if chunks.is_empty() {
            return Poll::Ready(Ok(Some(0)));
        }
        let mut rest = chunks.iter_mut();
        let mut count = 0;
        ready!(self.poll_pieces(cx, |stream| {
            let Some(slot) = rest.next() else {
                return Ok(Step::Full);
            };
            Ok(match stream.read_chunk(usize::MAX, true)? {
                Some(chunk) => {
                    *slot = chunk.bytes;
                    count += 1;
                    Step::Read
                }
                None => Step::End,
            })
        }))?;
        Poll::Ready(Ok(Some(count).filter(|count| *count > 0)))
    }

    /// Like [`Self::read`], for hand-written futures. Fills nothing at the end of the stream.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::read`].
    pub fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), ReadError>> {
        self.poll_pieces(cx, |stream| {
            if buf.remaining() == 0 {
                return Ok(Step::Full);
            }
            Ok(match stream.read_chunk(buf.remaining(), true)? {
                Some(chunk) => {
                    buf.put_slice(&chunk.bytes);
                    Step::Read
                }
                None => Step::End,
            })
        })
    }

    /// Calls `read` until the reader has enough, or no data is left. Ready after at least one
    /// piece.
    fn poll_pieces(
        &mut self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut mpquic_core::RecvStream<'_>) -> Result<Step, ReadStreamError>,
    ) -> Poll<Result<(), ReadError>> {
        match self.end {
            _ if self.has_gap => return Poll::Ready(Err(ReadError::IllegalOrderedRead)),
            Some(End::Finished) => return Poll::Ready(Ok(())),
            Some(End::Reset(code)) => return Poll::Ready(Err(ReadError::Reset(code))),
            Some(End::Stopped) => return Poll::Ready(Err(ReadError::ClosedStream)),
            None => {}
        }
        let mut engine = self.connection.lock();
        if engine.is_rejected(self.as_zero_rtt) {
            return Poll::Ready(Err(ReadError::ZeroRttRejected));
        }
        if let Some(error) = engine.broken() {
            return Poll::Ready(Err(error.into()));
        }
        let mut any = false;
        let error = loop {
            match read(&mut engine.core.recv_stream(self.id)) {
                Ok(Step::Read) => any = true,
                Ok(Step::Full) => break None,
                Ok(Step::End) => {
                    self.end = Some(End::Finished);
                    break None;
                }
                Err(ReadStreamError::Reset(code)) if any => {
                    // The connection reports a reset only once, so the reader returns the reset
                    // after the data.
                    self.end = Some(End::Reset(code));
                    break None;
                }
                Err(_) if any => break None,
                Err(error) => break Some(error),
            }
        };
        Poll::Ready(match error {
            None => Ok(()),
            Some(ReadStreamError::Blocked) => {
                if let Some(error) = &engine.error {
                    return Poll::Ready(Err(error.clone().into()));
                }
                engine.readers.insert(self.id, cx.waker().clone());
                engine.on_waits();
                return Poll::Pending;
            }
            Some(ReadStreamError::Reset(code)) => {
                self.end = Some(End::Reset(code));
                Err(ReadError::Reset(code))
            }
            Some(ReadStreamError::ClosedStream) => Err(ReadError::ClosedStream),
            Some(ReadStreamError::IllegalOrderedRead) => Err(ReadError::IllegalOrderedRead),
        })
    }
}

/// The result of one step of a read.
enum Step {
    Read,
    /// The reader has enough.
    Full,
    /// The end of the stream.
    End,
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if self.end.is_some() {
            return;
        }
        let mut engine = self.connection.lock();
        // The ID of a rejected stream may belong to a new stream.
        if engine.error.is_some() || engine.is_rejected(self.as_zero_rtt) {
            return;
        }
        engine.readers.remove(&self.id);
        let stopped = engine.core.recv_stream(self.id).stop(VarInt::from_u32(0));
        if stopped.is_ok() {
            engine.wake_task();
        }
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(self.get_mut().poll_read_buf(cx, buf))?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::{ClientConfig, Endpoint, ServerConfig};

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    /// A server that stops silent streams must not keep a waker for each of them.
    #[tokio::test]
    async fn a_stopped_stream_leaves_no_waker_behind() -> TestResult {
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
        let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
        let client = Endpoint::client("127.0.0.1:0".parse()?)?;
        let config = ClientConfig::dangerous_insecure(&[b"test"])?;
        let connecting = client.connect_with(config, server.local_addr()?, "localhost")?;
        let incoming = server.accept().await.ok_or("closed")?;
        let (connection, _at_server) = tokio::try_join!(connecting, async { incoming.await })?;
        let (_send, mut recv) = connection.open_bi().await?;
        let mut cx = Context::from_waker(Waker::noop());
        assert!(recv.poll_read_chunk(&mut cx, 10, true).is_pending());
        assert_eq!(recv.connection.lock().readers.len(), 1);
        recv.stop(VarInt::from_u32(1))?;
        assert!(recv.connection.lock().readers.is_empty());
        Ok(())
    }
}
