//! The QUIC performance protocol (draft-banks-quic-performance) on one stream. A client begins with
//! the number of bytes that it wants (8 bytes, network order), and then sends data of its own. The
//! server reads all data and sends this number of bytes. For a unidirectional stream, the answer
//! comes on a new stream.

use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio::{Connection, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::time::{Instant, timeout, timeout_at};

use crate::client::protocol::refused_certificate;
use crate::process::failure::{Cause, Failure};
use crate::text::count::count;

/// Bytes of the number at the start of a stream.
pub(crate) const HEADER: usize = 8;
/// The content, repeated.
pub(crate) static CONTENT: [u8; 64 << 10] = [0; 64 << 10];
/// Asks for bytes without end, until the client stops the stream.
const WITHOUT_END: u64 = u64::MAX;
/// The priority of small requests and answers, before bulk data.
pub(crate) const FIRST: i32 = 1;
/// The code for streams that are no longer wanted.
const DONE: VarInt = VarInt::from_u32(0);

/// Content of at most this number of bytes.
pub(crate) fn content(bytes: u64) -> Bytes {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    Bytes::from_static(&CONTENT[..length.min(CONTENT.len())])
}

/// The client's side.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) connection: Connection,
    /// Longest time without progress of the server.
    pub(crate) stall: Duration,
}

impl Client {
    async fn open(&self, wanted: u64) -> Result<(SendStream, RecvStream), Failure> {
        let (mut send, recv) = self.connection.open_bi().await.map_err(lost)?;
        let header = Bytes::copy_from_slice(&wanted.to_be_bytes());
        send.write_chunk(header).await.map_err(not_written)?;
        Ok((send, recv))
    }

    /// Sends a request of `size` bytes, at least [`HEADER`], and reads the answer of `wanted`
    /// bytes. Returns the time from the start to the end.
    pub(crate) async fn ask(&self, size: u64, wanted: u64) -> Result<Duration, Failure> {
        let began = Instant::now();
        let exchange = async {
            let (mut send, mut recv) = self.open(wanted).await?;
            // A wait behind this connection's own data would not measure the network.
            let _ = send.set_priority(FIRST);
            let mut left = size.saturating_sub(HEADER as u64);
            while left > 0 {
                let piece = content(left);
                left -= piece.len() as u64;
                send.write_chunk(piece).await.map_err(not_written)?;
            }
            // A stopped stream needs no end.
            let _ = send.finish();
            let mut got = 0;
            while let Some(chunk) = recv.read_chunk(usize::MAX, true).await.map_err(not_read)? {
                got += chunk.bytes.len() as u64;
            }
            if got == wanted {
                Ok(())
            } else {
                Err(Cause::Broken.failed(format_args!(
                    "the answer ended after {got} of {}",
                    count(wanted, "byte")
                )))
            }
        };
        timeout(self.stall, exchange)
            .await
            .unwrap_or_else(|_| Err(self.stalled("sent")))?;
        Ok(began.elapsed())
    }

    /// Downloads until the given time, and reports received bytes.
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

    /// Uploads until the given time, then waits until the server has all data. Reports sent bytes.
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
            // Some servers answer before they have all data.
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
    let refused = refused_certificate(&error);
    refused.unwrap_or_else(|| Cause::Broken.failed(format_args!("connection lost: {error}")))
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
        other => Failure::other(other),
    }
}

fn not_read(error: ReadError) -> Failure {
    match error {
        ReadError::Reset(code) => refused(code),
        ReadError::ConnectionLost(error) => lost(error),
        other => Failure::other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join;

    use super::*;
    use crate::options::Alpn;
    use crate::testing::{Pair, answer_perf, pair, soon};

    async fn client() -> (Pair, Client) {
        let pair = pair(Alpn::Perf).await;
        let client = Client {
            connection: pair.client.clone(),
            stall: Duration::from_secs(10),
        };
        (pair, client)
    }

    #[tokio::test]
    async fn perf_request_has_header_and_length() {
        let (pair, client) = client().await;
        for (size, wanted, sent) in [(0, 5, 8), (8, 0, 8), (9, 1, 9), (150_000, 70_000, 150_000)] {
            let answered = answer_perf(&pair.server, wanted as usize);
            let (took, request) = soon(join(client.ask(size, wanted), answered)).await;
            assert!(took.unwrap() > Duration::ZERO);
            assert_eq!(request.len(), sent);
            assert_eq!(request[..8], wanted.to_be_bytes());
            assert!(request[8..].iter().all(|byte| *byte == 0));
        }
        // An answer of another length is an error.
        for got in [0, 4, 6] {
            let answered = answer_perf(&pair.server, got);
            let (asked, _) = soon(join(client.ask(8, 5), answered)).await;
            let failure = asked.unwrap_err();
            let told = format!("the answer ended after {got} of 5 bytes");
            assert_eq!(
                (failure.cause(), failure.message()),
                (Some(Cause::Broken), &*told)
            );
        }
    }

    #[tokio::test]
    async fn refusals_are_reported_with_their_code() {
        let (pair, client) = client().await;
        let told = "the server refused a stream with the code 429; \
                    it may limit what a client takes up";
        let refuse = async || {
            let (mut send, mut recv) = pair.server.accept_bi().await.unwrap();
            recv.stop(429u32.into()).unwrap();
            send.reset(429u32.into()).unwrap();
        };
        let until = Instant::now() + Duration::from_secs(20);
        let is_told = |result: Result<(), Failure>| {
            let failure = result.unwrap_err();
            assert_eq!(
                (failure.cause(), failure.message()),
                (Some(Cause::Refused), told)
            );
        };
        let (asked, ()) = soon(join(client.ask(8, 1), refuse())).await;
        is_told(asked.map(drop));
        let (loaded, ()) = soon(join(client.download(until, |_| {}), refuse())).await;
        is_told(loaded);
        let (loaded, ()) = soon(join(client.upload(until, |_| {}), refuse())).await;
        is_told(loaded);
    }

    /// Received bytes count until the time is over. Then the client stops the stream.
    #[tokio::test]
    async fn a_download_is_stopped_when_its_time_is_over() {
        let (pair, client) = client().await;
        let received = Cell::new(0);
        let add = |bytes| received.set(received.get() + bytes);
        let serve = async {
            let (mut send, mut recv) = pair.server.accept_bi().await.unwrap();
            let request = recv.read_to_end(100).await.unwrap();
            assert_eq!(request, [0xff; 8]);
            send.write_all(&[0; 5000]).await.unwrap();
            send.stopped().await.unwrap()
        };
        let until = Instant::now() + Duration::from_millis(100);
        let (loaded, stopped) = soon(join(client.download(until, add), serve)).await;
        loaded.unwrap();
        assert_eq!((received.get(), stopped), (5000, Some(DONE)));
        assert!(Instant::now() >= until);
        // A stream with an end is an error.
        let until = Instant::now() + Duration::from_secs(20);
        let ended = join(client.download(until, |_| {}), answer_perf(&pair.server, 5));
        let (loaded, _) = soon(ended).await;
        let told = "the server ended a download that has no end";
        assert_eq!(loaded.unwrap_err().message(), told);
    }

    /// All sent bytes count, and arrive in the end.
    #[tokio::test]
    async fn upload_ends_when_the_server_has_all_data() {
        let (pair, client) = client().await;
        let sent = Cell::new(0);
        let add = |bytes| sent.set(sent.get() + bytes);
        let serve = async {
            let (mut send, mut recv) = pair.server.accept_bi().await.unwrap();
            let mut taken = Vec::new();
            while let Some(chunk) = recv.read_chunk(usize::MAX, true).await.unwrap() {
                taken.extend_from_slice(&chunk.bytes);
            }
            send.finish().unwrap();
            taken
        };
        let until = Instant::now() + Duration::from_millis(50);
        let (loaded, taken) = soon(join(client.upload(until, add), serve)).await;
        loaded.unwrap();
        assert!(Instant::now() >= until);
        assert_eq!(taken[..8], [0; 8]);
        assert_eq!((taken.len() - HEADER) as u64, sent.get());
        assert!(sent.get() > 10_000);
        // Without time, nothing is sent.
        let serve = answer_perf(&pair.server, 0);
        tokio::time::pause();
        let past = Instant::now();
        let (loaded, taken) = soon(join(client.upload(past, |_| panic!("sent")), serve)).await;
        loaded.unwrap();
        assert_eq!(taken, [0; 8]);
    }

    /// If both times end at once, a download is complete, and an upload waits once more.
    #[tokio::test(start_paused = true)]
    async fn finished_test_does_not_stall() {
        let (_pair, mut client) = client().await;
        client.stall = Duration::from_secs(1);
        let began = Instant::now();
        client.download(began + client.stall, |_| {}).await.unwrap();
        assert_eq!(began.elapsed(), client.stall);
        let began = Instant::now();
        let sent = client.upload(began + client.stall, |_| {}).await;
        assert!(sent.is_err());
        assert_eq!(began.elapsed(), 2 * client.stall);
    }

    #[tokio::test]
    async fn a_server_that_lets_nothing_through_is_given_up() {
        let (pair, mut client) = client().await;
        client.stall = Duration::from_secs(1);
        let began = Instant::now();
        let until = began + Duration::from_secs(20);
        let over = began + Duration::from_millis(10);
        let (asked, loaded) = (client.ask(8, 1), client.download(until, |_| {}));
        let (sent, ended) = (client.upload(until, |_| {}), client.upload(over, |_| {}));
        let all = join(join(asked, loaded), join(sent, ended));
        let ((asked, loaded), (sent, ended)) = soon(all).await;
        let told = |result: Result<(), Failure>| result.unwrap_err().message().to_owned();
        for result in [asked.map(drop), loaded] {
            assert_eq!(told(result), "the server sent nothing for 1 s");
        }
        // The window is full, or the end is not acknowledged.
        for result in [sent, ended] {
            assert_eq!(told(result), "the server took nothing for 1 s");
        }
        assert!(began.elapsed() >= client.stall);
        pair.server.close(7u32.into(), b"enough");
        soon(pair.client.closed()).await;
        let failure = client.ask(8, 1).await.unwrap_err();
        assert_eq!(failure.cause(), Some(Cause::Broken));
        assert!(
            failure.message().starts_with("connection lost: "),
            "{}",
            failure.message()
        );
    }

    #[test]
    fn content_is_given_a_piece_at_a_time() {
        for (bytes, length) in [(0, 0), (1, 1), (65_536, 65_536), (65_537, 65_536)] {
            assert_eq!(content(bytes).len(), length);
        }
        assert_eq!(content(WITHOUT_END).len(), CONTENT.len());
    }
}
