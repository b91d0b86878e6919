//! The server's side of HTTP/0.9 over QUIC, ALPN `hq-interop`. A request is `GET /path` and CRLF on
//! a bidirectional stream, and the answer is the file. HTTP/0.9 has no status code: the server
//! resets the stream of a file that it cannot send.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use mpquic_core::{ConnectionError, VarInt};
use mpquic_tokio::{ReadError, RecvStream, SendStream};
use tokio::sync::mpsc;

use crate::client::hq::{NOT_FOUND, SERVER_ERROR};
use crate::process::clock;
use crate::serve::drain::Draining;
use crate::serve::drain::ENDS;
use crate::serve::rights::Deed;
use crate::serve::send_file::{Outlet, Over, QuicSession, Refusal, Session};
use crate::text::count::count;

/// Longest request line in bytes.
const MAX_REQUEST: usize = 8 << 10;
/// Application error codes of resets, with the names and numbers of HTTP's status codes. The
/// client's module has two more.
const BAD_REQUEST: u32 = 400;
const FORBIDDEN: u32 = 403;
const STALLED: u32 = 408;
const ENDING: u32 = 503;
/// The client has cancelled its request. Many servers log this status.
const UNWANTED: u32 = 499;
/// Too many requests. Also closes the connection of a client that cancels too many requests.
const TOO_MANY: u32 = 429;

/// Answers the requests of one client until the connection ends.
pub(crate) async fn serve(session: QuicSession, mut draining: Draining) -> ConnectionError {
    let session = Arc::new(session);
    // Every request holds a sender until its answer has arrived.
    let (open, mut answered) = mpsc::channel::<Infallible>(1);
    loop {
        let accepted = tokio::select! {
            accepted = session.connection.accept_bi() => accepted,
            () = draining.begun() => break,
        };
        match accepted {
            Ok((send, recv)) => {
                let request = Request {
                    session: session.clone(),
                    send,
                    recv,
                    sent: 0,
                };
                let open = open.clone();
                tokio::spawn(async move {
                    request.answer().await;
                    drop(open);
                });
            }
            Err(error) => return error,
        }
    }
    drop(open);
    loop {
        tokio::select! {
            accepted = session.connection.accept_bi() => match accepted {
                // A closed stream needs no reset.
                Ok((mut send, _)) => drop(send.reset(VarInt::from_u32(ENDING))),
                Err(error) => return error,
            },
            _ = answered.recv() => break,
        }
    }
    session.connection.close(VarInt::from_u32(0), ENDS);
    session.connection.closed().await
}

/// A request, and the stream for its answer.
struct Request {
    session: Arc<QuicSession>,
    send: SendStream,
    recv: RecvStream,
    /// Bytes of the answer so far.
    sent: u64,
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(_) => Self::Cancelled,
            _ => Self::Gone,
        }
    }
}

/// The status of HTTP for this result.
fn status(sent: &Result<(), Refusal>) -> Option<u16> {
    match sent {
        Ok(_) => Some(200),
        Err(refusal) => reset_code(*refusal).and_then(|code| code.try_into().ok()),
    }
}

/// The code of the reset; `None` without a client.
fn reset_code(refusal: Refusal) -> Option<u32> {
    match refusal {
        Refusal::BadRequest => Some(BAD_REQUEST),
        Refusal::NotFound => Some(NOT_FOUND),
        Refusal::Forbidden => Some(FORBIDDEN),
        Refusal::TooMany => Some(TOO_MANY),
        Refusal::Stalled => Some(STALLED),
        Refusal::Failed => Some(SERVER_ERROR),
        Refusal::Cancelled | Refusal::Gone => None,
    }
}

/// Waits until the client resets its request. Never returns once the whole request has arrived.
async fn is_reset(recv: &mut RecvStream) -> Refusal {
    match recv.received_reset().await {
        Ok(Some(_)) => Refusal::Cancelled,
        Ok(None) => std::future::pending().await,
        Err(_) => Refusal::Gone,
    }
}

impl Outlet for Request {
    async fn writable(&mut self) -> Result<usize, Refusal> {
        tokio::select! {
            room = self.send.writable() => Ok(room?),
            refusal = is_reset(&mut self.recv) => Err(refusal),
        }
    }

    async fn stopped(&mut self) -> Refusal {
        // An unfinished stream ends the wait only if the client stops the stream, or if the
        // connection is lost.
        tokio::select! {
            stopped = self.send.stopped() => stopped.map_or(Refusal::Gone, |_| Refusal::Cancelled),
            refusal = is_reset(&mut self.recv) => refusal,
        }
    }

    fn is_cancelled(&mut self) -> bool {
        matches!(self.recv.received_reset().now_or_never(), Some(Ok(Some(_))))
    }

    async fn write_some(&mut self, piece: &mut Bytes) -> Result<(), Refusal> {
        let before = piece.len();
        tokio::select! {
            written = self.send.write_chunks(std::slice::from_mut(piece)) => drop(written?),
            refusal = is_reset(&mut self.recv) => return Err(refusal),
        }
        self.sent += (before - piece.len()) as u64;
        Ok(())
    }
}

impl Request {
    async fn answer(mut self) {
        let session = self.session.clone();
        let began = clock::now();
        let Some(memory) = session.limits.request() else {
            let _is_open = self.send.reset(VarInt::from_u32(TOO_MANY));
            return;
        };
        let result = match self.read_target().await {
            Ok(target) => {
                let _in_use = session.limits.in_use();
                let sent = memory.keep(self.send_file(&target)).await;
                let sent = sent.unwrap_or_else(|stalled| Err(stalled.into()));
                let bytes = self.sent;
                let outcome = match sent {
                    Ok(()) => String::new(),
                    Err(refusal) => match reset_code(refusal) {
                        Some(code) if refusal != Refusal::Stalled => {
                            format!("refused with {code}, ")
                        }
                        _ => format!("{}, ", refusal.cut_short()),
                    },
                };
                let told = count(bytes, "byte");
                tracing::info!("GET {}: {outcome}{told}", target.escape_debug());
                session.on_over(&Over {
                    method: "GET",
                    target: &target,
                    protocol: "HTTP/0.9",
                    user: session.caller.certificate.clone(),
                    status: status(&sent),
                    bytes,
                    is_cut: sent.is_err() && bytes > 0,
                    began,
                });
                sent
            }
            Err(refusal) => Err(refusal),
        };
        let Err(refusal) = result else {
            self.read_rest().await;
            // The client may cancel the request until its answer has arrived.
            if let Ok(Some(_)) = self.send.stopped().await {
                session.on_cancelled(VarInt::from_u32(TOO_MANY));
            }
            return;
        };
        // A closed stream needs no reset. Without a reset, dropping the stream would finish the
        // stream, like a complete file.
        let code = reset_code(refusal).unwrap_or(UNWANTED);
        let _ = self.send.reset(VarInt::from_u32(code));
        if refusal == Refusal::Cancelled {
            session.on_cancelled(VarInt::from_u32(TOO_MANY));
        }
        let Self { send, mut recv, .. } = self;
        drop(send);
        read_rest(&session, &mut recv).await;
    }

    async fn read_rest(&mut self) {
        read_rest(&self.session, &mut self.recv).await;
    }

    /// The target of the request.
    async fn read_target(&mut self) -> Result<String, Refusal> {
        let mut request = Vec::new();
        while !request.contains(&b'\n') {
            let room = MAX_REQUEST.saturating_sub(request.len());
            if room == 0 {
                return Err(Refusal::BadRequest);
            }
            let limits = &self.session.limits;
            let read = limits.progress(self.recv.read_chunk(room, true));
            match read.await?? {
                Some(chunk) => request.extend_from_slice(&chunk.bytes),
                None => break,
            }
        }
        parse_request(&request).ok_or(Refusal::BadRequest)
    }

    async fn send_file(&mut self, target: &str) -> Result<(), Refusal> {
        let session = self.session.clone();
        if !session.limits.may_request() {
            return Err(Refusal::TooMany);
        }
        // HTTP/0.9 has no header fields: only the connection can name the user.
        let looked = session.rights.look(
            &session.caller,
            session.client,
            &HeaderMap::new(),
            (Deed::Read, target),
        );
        let user = looked.map_err(|_| Refusal::Forbidden)?;
        let open = session.admit(self, user.as_deref()).await?;
        let sending = async {
            let mut content = session.open(target).await?;
            session.send(self, &mut content, &open).await
        };
        open.keep(sending).await?;
        self.send.finish().map_err(|_| Refusal::Gone)
    }
}

/// Reads the bytes after a request, in most cases only the end of the stream. Dropping the stream
/// earlier would tell the client to stop sending, which some clients take for a failure.
async fn read_rest(session: &Session, recv: &mut RecvStream) {
    let mut room = MAX_REQUEST;
    while room > 0 {
        let read = session.limits.progress(recv.read_chunk(room, true));
        let Ok(Ok(Some(chunk))) = read.await else {
            return;
        };
        room -= chunk.bytes.len();
    }
}

fn parse_request(request: &[u8]) -> Option<String> {
    let line = request.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    // Some clients append a version, as in HTTP/1.
    let target = line.strip_prefix("GET ")?.split_whitespace().next()?;
    target.starts_with('/').then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use mpquic_tokio::Connection;

    use super::*;
    use crate::options::Alpn;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, Slow, close_of, is_cut_after, most_read_in_vain, soon};

    #[test]
    fn requests() {
        let parse = |request: &str| parse_request(request.as_bytes());
        assert_eq!(parse("GET /a%20b?c\r\n").as_deref(), Some("/a%20b?c"));
        assert_eq!(parse("GET /\n").as_deref(), Some("/"));
        assert_eq!(parse("GET /x").as_deref(), Some("/x"));
        assert_eq!(
            parse("GET /x HTTP/1.1\r\nHost: y\r\n").as_deref(),
            Some("/x")
        );
        for wrong in [
            "",
            "GET",
            "GET ",
            "GET x\r\n",
            "PUT /x\r\n",
            "get /x\r\n",
            "\r\nGET /x",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse_request(b"GET /\xff\r\n"), None);
    }

    const WINDOW: u64 = 1 << 20;

    fn serve(source: Anything, limits: Limits) -> Served {
        Served::start(source, limits, Alpn::HqInterop)
    }

    async fn connect() -> Connection {
        let served = serve(Anything::new(4), Limits::default());
        served.connect(WINDOW).await
    }

    async fn request(connection: &Connection) -> (SendStream, RecvStream) {
        let (mut send, recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        send.finish().unwrap();
        (send, recv)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn streams_that_stall_cost_others_nothing() {
        let source = Anything::new(1 << 20);
        let served = serve(source.clone(), Limits::default());
        let mut stalled = Vec::new();
        for _ in 0..6 {
            // The window has room for the first bytes, so the server opens the file.
            let connection = served.connect(100).await;
            for _ in 0..100 {
                stalled.push(soon(request(&connection)).await);
            }
        }
        let all_stall = async {
            while source.open.load(Ordering::SeqCst) < 6 * 16 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(all_stall).await;
        let other = served.connect(WINDOW).await;
        let (_, mut recv) = request(&other).await;
        let file = soon(recv.read_to_end(2 << 20)).await.unwrap();
        assert_eq!(file.len(), 1 << 20);
        let most = source.most_open.load(Ordering::SeqCst);
        assert!(most <= 6 * 16 + 1, "{most} files were open");
    }

    #[tokio::test]
    async fn a_client_that_cancels_all_the_time_is_turned_away() {
        // The client cancels with the request, or after the first byte. Then a window of 100 bytes
        // has stopped the other bytes.
        for (window, waits) in [(WINDOW, false), (100, true)] {
            let source = Anything::new(770_000);
            let served = serve(source.clone(), Limits::default());
            let connection = served.connect(window).await;
            let start = clock::now();
            let attack = async {
                for _ in 0..1000 {
                    let (mut send, mut recv) = connection.open_bi().await?;
                    let sent = async {
                        send.write_all(b"GET /file\r\n").await?;
                        if waits {
                            recv.read(&mut [0]).await?;
                        }
                        recv.stop(0u32.into())?;
                        send.reset(0u32.into())?;
                        Ok::<_, Box<dyn std::error::Error>>(())
                    };
                    if sent.await.is_err() {
                        break;
                    }
                }
                Err::<(), _>(connection.closed().await)
            };
            let ConnectionError::ApplicationClosed(close) = soon(attack).await.unwrap_err() else {
                panic!("{:?}", connection.close_reason());
            };
            assert_eq!(close.error_code, VarInt::from_u32(TOO_MANY));
            let read = source.read.load(Ordering::SeqCst);
            assert!(read <= most_read_in_vain(start), "{read} bytes");
            assert!(read > 0 || !waits, "nothing was read for nothing");
        }
    }

    #[tokio::test]
    async fn a_request_that_stalls_is_given_up() {
        let limits = Limits {
            stall: Duration::from_millis(200),
            ..Limits::default()
        };
        let served = serve(Anything::new(1 << 20), limits);
        let connection = served.connect(100).await;
        let (_send, mut recv) = request(&connection).await;
        let code = soon(recv.received_reset()).await.unwrap();
        assert_eq!(code, Some(VarInt::from_u32(STALLED)));
        // The server also refuses a request without an end.
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /fi").await.unwrap();
        let code = soon(recv.received_reset()).await.unwrap();
        assert_eq!(code, Some(VarInt::from_u32(STALLED)));
    }

    #[tokio::test]
    async fn bytes_of_a_cut_answer_are_logged() {
        let (served, log) = Served::logged(Alpn::HqInterop);
        let connection = served.connect(1000).await;
        let (_send, mut recv) = request(&connection).await;
        assert_eq!(soon(recv.read(&mut [0])).await.unwrap(), Some(1));
        recv.stop(0u32.into()).unwrap();
        is_cut_after(log.path(), 1000).await;
    }

    /// A shortened file must not end like a complete one.
    #[tokio::test]
    async fn a_file_that_shrinks_ends_with_an_error() {
        let source = Anything::new(400_000).that_became(300_000);
        let served = serve(source, Limits::default());
        let connection = served.connect(WINDOW).await;
        let (_, mut recv) = request(&connection).await;
        let code = soon(recv.received_reset()).await.unwrap();
        assert_eq!(code, Some(VarInt::from_u32(SERVER_ERROR)));
    }

    /// A stalled client makes room for another client, without the usual wait.
    #[tokio::test]
    async fn slowest_client_gives_way_at_the_file_limit() {
        let limits = Limits {
            files: 1,
            ..Limits::default()
        };
        let served = serve(Anything::new(1 << 20), limits);
        let slow = served.connect(100).await;
        let (_send, mut first) = request(&slow).await;
        assert!(soon(first.read_chunk(1, true)).await.unwrap().is_some());
        let other = served.connect(WINDOW).await;
        let (_, mut recv) = request(&other).await;
        let file = soon(recv.read_to_end(2 << 20)).await.unwrap();
        assert_eq!(file.len(), 1 << 20);
    }

    #[tokio::test]
    async fn the_end_of_a_request_may_come_after_the_answer() {
        let connection = connect().await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        assert_eq!(recv.read_to_end(10).await.unwrap(), b"xxxx");
        let few = [0; (8 << 10) - 1];
        send.write_all(&few).await.unwrap();
        // The server answers this stream before later streams.
        for _ in 0..5 {
            assert_eq!(refused_with(&connection, b"GET /file\r\n").await, None);
        }
        send.finish().unwrap();
        assert_eq!(send.stopped().await, Ok(None), "it was told to stop");
    }

    /// The code for a refused request of these bytes; `None` for an answered request.
    async fn refused_with(connection: &Connection, request: &[u8]) -> Option<u32> {
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(request).await.unwrap();
        send.finish().unwrap();
        let code = soon(recv.received_reset()).await.unwrap()?;
        Some(code.into_inner() as u32)
    }

    #[tokio::test]
    async fn request_length_is_limited() {
        let connection = connect().await;
        let line = |length: usize| format!("GET /{}", "x".repeat(length - 5)).into_bytes();
        // The end of the stream also ends the line.
        assert_eq!(refused_with(&connection, &line((8 << 10) - 1)).await, None);
        for length in [8 << 10, 9 << 10] {
            let code = refused_with(&connection, &line(length)).await;
            assert_eq!(code, Some(400), "{length}");
        }
        assert_eq!(refused_with(&connection, b"PUT /x\r\n").await, Some(400));
    }

    #[test]
    fn refusals_have_the_codes_of_http() {
        for (refusal, code) in [
            (Refusal::BadRequest, Some(400)),
            (Refusal::NotFound, Some(404)),
            (Refusal::Stalled, Some(408)),
            (Refusal::TooMany, Some(429)),
            (Refusal::Failed, Some(500)),
            (Refusal::Cancelled, None),
            (Refusal::Gone, None),
        ] {
            assert_eq!(reset_code(refusal), code);
            assert_eq!(status(&Err(refusal)).map(u32::from), code);
        }
        assert_eq!(status(&Ok(())), Some(200));
        let cancelled = Refusal::from(ReadError::Reset(VarInt::from_u32(1)));
        assert_eq!(cancelled, Refusal::Cancelled);
        assert_eq!(Refusal::from(ReadError::ClosedStream), Refusal::Gone);
    }

    /// The server does not stop an unfinished request after its answer.
    #[tokio::test]
    async fn late_end_of_a_request_is_not_stopped() {
        let served = Served::start(Anything::new(5), Limits::default(), Alpn::HqInterop);
        let connection = served.connect(1 << 20).await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        assert_eq!(soon(recv.read_to_end(10)).await.unwrap(), b"xxxxx");
        let waits = tokio::time::timeout(Duration::from_millis(100), send.stopped());
        assert!(waits.await.is_err(), "it was told to stop");
        send.write_all(b"more").await.unwrap();
        send.finish().unwrap();
        assert_eq!(soon(send.stopped()).await, Ok(None));
    }

    /// Answers that wait to be sent count, too.
    #[tokio::test]
    async fn cancelling_waiting_answers_counts_as_well() {
        let slow = Slow::start(Alpn::HqInterop);
        let connection = slow.served.connect(WINDOW).await;
        let mut answers = Vec::new();
        for _ in 0..Slow::REQUESTS {
            answers.push(request(&connection).await);
        }
        slow.has_written().await;
        for (_, recv) in &mut answers {
            recv.stop(0u32.into()).unwrap();
        }
        let close = close_of(&connection).await;
        assert_eq!(close.error_code, VarInt::from_u32(429));
        assert_eq!(&close.reason[..], b"too many requests cancelled");
    }

    /// The server opens no file for a client without room for the answer.
    #[tokio::test]
    async fn without_room_for_an_answer_no_file_is_opened() {
        let source = Anything::new(50_000);
        let served = serve(source.clone(), Limits::default());
        let slow = served.connect(0).await;
        let _waits = request(&slow).await;
        let other = served.connect(WINDOW).await;
        let (_, mut recv) = request(&other).await;
        let file = soon(recv.read_to_end(60_000)).await.unwrap();
        assert_eq!(file.len(), 50_000);
        assert_eq!(source.read.load(Ordering::SeqCst), 50_000);
        assert_eq!(source.most_open.load(Ordering::SeqCst), 1);
    }

    /// A client may reset its request instead of stopping the answer.
    #[tokio::test]
    async fn the_answer_to_a_request_that_is_reset_ends() {
        const FILE: u64 = 20 << 20;
        let source = Anything::new(FILE);
        let served = serve(source.clone(), Limits::default());
        let connection = served.connect(100_000).await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        assert!(soon(recv.read_chunk(1, true)).await.unwrap().is_some());
        // The server waits for room in the client's window.
        let mut read = 0;
        while read != source.read.load(Ordering::SeqCst) {
            read = source.read.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        send.reset(0u32.into()).unwrap();
        // The end of the answer must not look like the end of the file.
        let code = soon(recv.received_reset()).await.unwrap();
        assert_eq!(code, Some(VarInt::from_u32(499)));
    }

    /// The server answers earlier requests, and begins no new request.
    #[tokio::test]
    async fn open_requests_are_answered_at_the_end() {
        let served = serve(Anything::new(10_000), Limits::default());
        let idle = served.connect(WINDOW).await;
        let busy = served.connect(100).await;
        let (_send, mut open) = request(&busy).await;
        assert!(soon(open.read_chunk(1, true)).await.unwrap().is_some());
        served.drain.begin();
        let end = soon(idle.closed()).await;
        let ConnectionError::ApplicationClosed(close) = end else {
            panic!("{end:?}");
        };
        assert_eq!((close.error_code, &close.reason[..]), (0u32.into(), ENDS));
        assert_eq!(refused_with(&busy, b"GET /file\r\n").await, Some(503));
        let rest = soon(open.read_to_end(20_000)).await.unwrap();
        assert_eq!(rest.len(), 9_999);
        assert!(matches!(
            soon(busy.closed()).await,
            ConnectionError::ApplicationClosed(_)
        ));
    }

    #[tokio::test]
    async fn bytes_after_a_request_are_limited() {
        let connection = connect().await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        assert_eq!(recv.read_to_end(10).await.unwrap(), b"xxxx");
        send.write_all(&[0; 8 << 10]).await.unwrap();
        assert!(matches!(soon(send.stopped()).await, Ok(Some(_))));
    }
}
