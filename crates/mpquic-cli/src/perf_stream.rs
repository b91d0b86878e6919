//! The QUIC performance protocol (draft-banks-quic-performance) on one stream: a client begins it
//! with the number of bytes that it wants, 8 bytes in network order, and then sends what it likes.
//! The server takes all of it and sends as many bytes; for a unidirectional stream, on another one
//! of its own.

use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio::{Connection, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::time::{Instant, timeout, timeout_at};

use crate::failure::{Cause, Failure};

/// Bytes of the number that a stream begins with.
pub(crate) const HEADER: usize = 8;
/// What is sent, again and again.
pub(crate) static CONTENT: [u8; 64 << 10] = [0; 64 << 10];
/// Bytes that do not end before the client stops them.
const WITHOUT_END: u64 = u64::MAX;
/// The priority of small requests and answers, before those of bulk data.
pub(crate) const FIRST: i32 = 1;
/// The code for streams that are not wanted any more.
const DONE: VarInt = VarInt::from_u32(0);

/// Up to so many bytes of content.
pub(crate) fn content(bytes: u64) -> Bytes {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    Bytes::from_static(&CONTENT[..length.min(CONTENT.len())])
}

/// The client's side.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) connection: Connection,
    /// How long a server may let nothing through.
    pub(crate) stall: Duration,
}

impl Client {
    async fn open(&self, wanted: u64) -> Result<(SendStream, RecvStream), Failure> {
        let (mut send, recv) = self.connection.open_bi().await.map_err(lost)?;
        let header = Bytes::copy_from_slice(&wanted.to_be_bytes());
        send.write_chunk(header).await.map_err(not_written)?;
        Ok((send, recv))
    }

    /// Sends a request of `size` bytes, at least [`HEADER`], and takes the answer of `wanted` bytes.
    /// Tells how long that took.
    pub(crate) async fn ask(&self, size: u64, wanted: u64) -> Result<Duration, Failure> {
        let began = Instant::now();
        let exchange = async {
            let (mut send, mut recv) = self.open(wanted).await?;
            // What waits in this connection for its turn says nothing of the network.
            let _ = send.set_priority(FIRST);
            let mut left = size.saturating_sub(HEADER as u64);
            while left > 0 {
                let piece = content(left);
                left -= piece.len() as u64;
                send.write_chunk(piece).await.map_err(not_written)?;
            }
            // A server that has stopped it needs no end.
            let _ = send.finish();
            let mut got = 0;
            while let Some(chunk) = recv.read_chunk(usize::MAX, true).await.map_err(not_read)? {
                got += chunk.bytes.len() as u64;
            }
            match got == wanted {
                true => Ok(()),
                false => Err(Cause::Broken.failed(format_args!(
                    "the answer ended after {got} of {wanted} bytes"
                ))),
            }
        };
        timeout(self.stall, exchange)
            .await
            .unwrap_or_else(|_| Err(self.stalled("sent")))?;
        Ok(began.elapsed())
    }

    /// Downloads until then, and tells of all that arrives.
    pub(crate) async fn download(
        &self,
        until: Instant,
        on_bytes: impl Fn(u64),
    ) -> Result<(), Failure> {
        let (mut send, mut recv) = self.open(WITHOUT_END).await?;
        let _ = send.finish();
        loop {
            let stalls = Instant::now() + self.stall;
            let read = recv.read_chunk(usize::MAX, true);
            match timeout_at(until.min(stalls), read).await {
                Ok(Ok(Some(chunk))) => on_bytes(chunk.bytes.len() as u64),
                Ok(Ok(None)) => {
                    let message = "the server ended a download that has no end";
                    return Err(Cause::Broken.failed(message));
                }
                Ok(Err(error)) => return Err(not_read(error)),
                Err(_) if stalls < until => return Err(self.stalled("sent")),
                Err(_) => {
                    let _ = recv.stop(DONE);
                    return Ok(());
                }
            }
        }
    }

    /// Uploads until then, and waits until the server has all of it. Tells of what is sent.
    pub(crate) async fn upload(
        &self,
        until: Instant,
        on_bytes: impl Fn(u64),
    ) -> Result<(), Failure> {
        let (mut send, mut recv) = self.open(0).await?;
        loop {
            let stalls = Instant::now() + self.stall;
            let room = match timeout_at(until.min(stalls), send.writable()).await {
                Ok(room) => room.map_err(not_written)?,
                Err(_) if stalls < until => return Err(self.stalled("took")),
                Err(_) => break,
            };
            if Instant::now() >= until {
                break;
            }
            let piece = content(room.max(1) as u64);
            let bytes = piece.len() as u64;
            send.write_chunk(piece).await.map_err(not_written)?;
            on_bytes(bytes);
        }
        let _ = send.finish();
        let taken = async {
            while recv
                .read_chunk(usize::MAX, true)
                .await
                .map_err(not_read)?
                .is_some()
            {}
            // Some servers answer before they have all.
            match send.stopped().await {
                Ok(_) => Ok(()),
                Err(_) => match self.connection.close_reason() {
                    Some(error) => Err(lost(error)),
                    None => Ok(()),
                },
            }
        };
        let taken = timeout(self.stall, taken).await;
        taken.unwrap_or_else(|_| Err(self.stalled("took")))
    }

    fn stalled(&self, what: &str) -> Failure {
        let seconds = self.stall.as_secs();
        Cause::Broken.failed(format_args!("the server {what} nothing for {seconds} s"))
    }
}

pub(crate) fn lost(error: mpquic_tokio::ConnectionError) -> Failure {
    Cause::Broken.failed(format_args!("connection lost: {error}"))
}

fn refused(code: VarInt) -> Failure {
    Cause::Refused.failed(format_args!(
        "the server refused a stream with the code {code}; it may limit what a client takes up"
    ))
}

fn not_written(error: WriteError) -> Failure {
    match error {
        WriteError::Stopped(code) => refused(code),
        WriteError::ConnectionLost(error) => lost(error),
        other @ (WriteError::ClosedStream | WriteError::ZeroRttRejected) => Failure::other(other),
    }
}

fn not_read(error: ReadError) -> Failure {
    match error {
        ReadError::Reset(code) => refused(code),
        ReadError::ConnectionLost(error) => lost(error),
        other => Failure::other(other),
    }
}
