//! [`StreamWatch`]: a look at a stream whose handle is elsewhere.

use std::future::poll_fn;

use mpquic_core::{ClosedStream, StreamId, VarInt};

use crate::connection::Connection;
use crate::connection_ref::ConnectionRef;
use crate::send_stream::{StoppedError, WriteError, poll_stopped, poll_write_with};

/// Watches the sending half of a stream whose [`SendStream`](crate::SendStream) is elsewhere: for
/// example in a library that took the connection and reports only the IDs of its streams.
///
/// A stream wakes a single task that waits to write, and a single task that waits for
/// [`Self::stopped`]: among several tasks, the last to poll. A watch keeps the connection open. The
/// drop of a watch leaves the stream alone.
#[derive(Debug, Clone)]
pub struct StreamWatch {
    connection: ConnectionRef,
    id: StreamId,
}

impl Connection {
    /// Watches the sending half of the stream with this ID. An unknown stream counts as ended.
    pub fn watch_stream(&self, id: StreamId) -> StreamWatch {
        StreamWatch {
            connection: self.0.clone(),
            id,
        }
    }
}

impl StreamWatch {
    /// The stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Like [`SendStream::writable`](crate::SendStream::writable). Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the peer stopped the stream, the stream is closed, or the connection ended.
    pub async fn writable(&self) -> Result<usize, WriteError> {
        poll_fn(|cx| {
            poll_write_with(&self.connection, self.id, false, cx, |stream| {
                Ok((stream.room()?, 0))
            })
        })
        .await
    }

    /// Like [`SendStream::stopped`](crate::SendStream::stopped), also after the drop of the
    /// stream's handle: but `None`, if both the stream and the handle were gone before the first
    /// call. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended before.
    pub async fn stopped(&self) -> Result<Option<VarInt>, StoppedError> {
        poll_fn(|cx| poll_stopped(&self.connection, self.id, false, cx)).await
    }

    /// Sets the priority. Larger is more urgent; 0 is the default.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_priority(&self, priority: i32) -> Result<(), ClosedStream> {
        self.with_open(|mut stream| stream.set_priority(priority))
    }

    /// Like [`SendStream::set_incremental`](crate::SendStream::set_incremental).
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_incremental(&self, is_incremental: bool) -> Result<(), ClosedStream> {
        self.with_open(|mut stream| stream.set_incremental(is_incremental))
    }

    /// The priority.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn priority(&self) -> Result<i32, ClosedStream> {
        self.with_open(|stream| stream.priority())
    }

    /// Whether the stream takes turns with equally urgent streams.
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn incremental(&self) -> Result<bool, ClosedStream> {
        self.with_open(|stream| stream.incremental())
    }

    /// Like [`SendStream::set_expected_size`](crate::SendStream::set_expected_size).
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn set_expected_size(&self, bytes: u64) -> Result<(), ClosedStream> {
        self.with_open(|mut stream| stream.set_expected_size(bytes))
    }

    fn with_open<T>(
        &self,
        act: impl FnOnce(mpquic_core::SendStream<'_>) -> Result<T, ClosedStream>,
    ) -> Result<T, ClosedStream> {
        let mut engine = self.connection.lock();
        if engine.broken().is_some() {
            return Err(ClosedStream::default());
        }
        act(engine.core.send_stream(self.id))
    }
}
