//! [`SendStream`] and [`RecvStream`].

use std::future::poll_fn;

use bytes::{Buf, BufMut, Bytes};

use crate::Error;

/// The sending half of a stream. Dropping an unfinished stream resets it with code 0.
#[derive(Debug)]
pub struct SendStream {
    inner: mpquic_tokio::SendStream,
    /// True once the stream was finished or reset.
    has_ended: bool,
}

impl SendStream {
    pub(crate) fn new(inner: mpquic_tokio::SendStream) -> Self {
        Self {
            inner,
            has_ended: false,
        }
    }

    /// The stream itself, which can be bound to a path, sent twice, and given a deadline.
    pub fn get_ref(&self) -> &mpquic_tokio::SendStream {
        &self.inner
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        if !self.has_ended {
            // A closed stream needs no reset.
            let _ = self.inner.reset(0u32.into());
        }
    }
}

impl web_transport_trait::SendStream for SendStream {
    type Error = Error;

    async fn write(&mut self, buf: &[u8]) -> Result<usize, Error> {
        Ok(self.inner.write(buf).await?)
    }

    async fn write_buf<B: Buf + Send>(&mut self, buf: &mut B) -> Result<usize, Error> {
        Ok(poll_fn(|cx| self.inner.poll_write_buf(cx, buf)).await?)
    }

    async fn write_chunk(&mut self, chunk: Bytes) -> Result<(), Error> {
        Ok(self.inner.write_chunk(chunk).await?)
    }

    fn set_priority(&mut self, order: i32) {
        // A closed stream needs no priority.
        let _ = self.inner.set_priority(order);
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.inner.finish()?;
        self.has_ended = true;
        Ok(())
    }

    fn reset(&mut self, code: u32) {
        let _ = self.inner.reset(code.into());
        self.has_ended = true;
    }

    /// Waits until the peer has all of a finished stream, or the stream was reset. Fails with the
    /// peer's code after the peer stopped the stream.
    async fn closed(&mut self) -> Result<(), Error> {
        match self.inner.stopped().await? {
            Some(code) => Err(Error::Stream(code)),
            None => Ok(()),
        }
    }
}

/// The receiving half of a stream. Dropped before its end, it asks the peer to stop, with code 0.
#[derive(Debug)]
pub struct RecvStream(mpquic_tokio::RecvStream);

impl RecvStream {
    pub(crate) fn new(inner: mpquic_tokio::RecvStream) -> Self {
        Self(inner)
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &mpquic_tokio::RecvStream {
        &self.0
    }
}

impl web_transport_trait::RecvStream for RecvStream {
    type Error = Error;

    async fn read(&mut self, dst: &mut [u8]) -> Result<Option<usize>, Error> {
        Ok(self.0.read(dst).await?)
    }

    async fn read_buf<B: BufMut + Send>(&mut self, buf: &mut B) -> Result<Option<usize>, Error> {
        let room = buf.chunk_mut().len();
        let chunk = self.read_chunk(room).await?;
        Ok(chunk.map(|chunk| {
            buf.put_slice(&chunk);
            chunk.len()
        }))
    }

    /// A slice of what has arrived, never a copy.
    async fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, Error> {
        if max == 0 {
            return Ok(Some(Bytes::new()));
        }
        let chunk = self.0.read_chunk(max, true).await?;
        Ok(chunk.map(|chunk| chunk.bytes))
    }

    fn stop(&mut self, code: u32) {
        // A closed stream needs no stop.
        let _ = self.0.stop(code.into());
    }

    /// Waits until all data of the stream has arrived, or the stream was stopped. Fails with the
    /// peer's code after the peer reset the stream.
    async fn closed(&mut self) -> Result<(), Error> {
        match self.0.received_reset().await? {
            Some(code) => Err(Error::Stream(code)),
            None => Ok(()),
        }
    }
}
