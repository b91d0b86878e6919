//! HTTP/0.9 over QUIC, ALPN `hq-interop`: a request is `GET /path` and CRLF on a bidirectional
//! stream, the answer is the bare file. There is no status code: if a file cannot be sent, the
//! stream is reset.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::Uri;
use mpquic_core::{ConnectionError, VarInt};
use mpquic_tokio::{Connection, ReadError, RecvStream, SendStream, WriteError};

use crate::files::{OpenContent, OpenError, Source};
use crate::limits::{self, Limits, Stalled};
use crate::protocol::{self, RequestError, Response};

/// Longest request line we read.
const MAX_REQUEST: usize = 8 << 10;
/// Application error codes of resets, named and numbered after HTTP's status codes.
const BAD_REQUEST: u32 = 400;
const NOT_FOUND: u32 = 404;
const STALLED: u32 = 408;
const SERVER_ERROR: u32 = 500;
/// Application error code of a connection whose client cancels too many requests.
const TOO_MANY_CANCELLED: u32 = 429;
/// Bytes read from a file at first. Each time it is twice as much, so that little was read in vain
/// for a client that cancels early.
const FIRST_PIECE: usize = 16 << 10;
/// The most bytes read from a file at a time.
const MAX_PIECE: usize = 256 << 10;

/// The client's side.
pub(crate) struct Client {
    connection: Connection,
}

impl Client {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }
}

impl protocol::Client for Client {
    type Body = RecvStream;

    async fn get(&self, url: &Uri) -> Result<Response<RecvStream>, RequestError> {
        let (mut send, body) = self.connection.open_bi().await?;
        let target = url.path_and_query().map_or("/", |target| target.as_str());
        let request = format!("GET {target}\r\n");
        match send.write_chunk(request.into()).await {
            // The server may answer without reading to the end of the request.
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            Err(WriteError::ConnectionLost(error)) => return Err(error.into()),
            Err(WriteError::ClosedStream | WriteError::ZeroRttRejected) => {
                return Err(RequestError::Cancelled);
            }
        }
        // A stream that was stopped meanwhile is as good as finished.
        let _ = send.finish();
        Ok(Response { length: None, body })
    }
}

impl protocol::Body for RecvStream {
    async fn read(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, RequestError> {
        self.read_chunks(chunks).await.map_err(|error| match error {
            ReadError::Reset(code) => match u32::try_from(code.into_inner()) {
                Ok(NOT_FOUND) => RequestError::NotFound,
                Ok(SERVER_ERROR) => RequestError::ServerFailed,
                _ => RequestError::Refused(code.into_inner()),
            },
            ReadError::ConnectionLost(error) => error.into(),
            ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected => RequestError::Cancelled,
        })
    }
}

/// What a server answers with.
pub(crate) struct Server {
    source: Arc<dyn Source>,
    limits: Arc<limits::Shared>,
}

impl Server {
    pub(crate) fn new(source: Arc<dyn Source>, limits: Limits) -> Self {
        Self {
            source,
            limits: limits::Shared::new(limits),
        }
    }

    /// Answers the requests of one client until the connection ends.
    pub(crate) async fn serve(&self, connection: Connection) -> ConnectionError {
        let session = Arc::new(Session {
            connection,
            source: self.source.clone(),
            limits: limits::Client::new(self.limits.clone()),
        });
        loop {
            match session.connection.accept_bi().await {
                Ok((send, recv)) => {
                    let session = session.clone();
                    tokio::spawn(async move { session.answer(send, recv).await });
                }
                Err(error) => return error,
            }
        }
    }
}

/// What the requests of one client share.
struct Session {
    connection: Connection,
    source: Arc<dyn Source>,
    limits: limits::Client,
}

/// Why a request was not answered in full.
enum Refusal {
    /// The stream is reset with this code.
    Reset(u32),
    /// The client does not want the answer any more.
    Cancelled,
    /// The client is gone.
    Gone,
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotFound => Self::Reset(NOT_FOUND),
            OpenError::Io(error) => error.into(),
        }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        tracing::warn!(%error, "reading a file");
        Self::Reset(SERVER_ERROR)
    }
}

impl From<Stalled> for Refusal {
    fn from(_: Stalled) -> Self {
        Self::Reset(STALLED)
    }
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(_) => Self::Cancelled,
            WriteError::ConnectionLost(_)
            | WriteError::ClosedStream
            | WriteError::ZeroRttRejected => Self::Gone,
        }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(_) => Self::Cancelled,
            ReadError::ConnectionLost(_)
            | ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected => Self::Gone,
        }
    }
}

impl Session {
    async fn answer(&self, mut send: SendStream, mut recv: RecvStream) {
        let result = match self.read_request(&mut recv).await {
            Ok(target) => {
                let sent = self.send_file(&mut send, &mut recv, &target).await;
                let outcome = match &sent {
                    Ok(bytes) => format!("{bytes} bytes"),
                    Err(Refusal::Reset(STALLED)) => "given up, the client reads nothing".to_owned(),
                    Err(Refusal::Reset(code)) => format!("refused with {code}"),
                    Err(Refusal::Cancelled | Refusal::Gone) => "not wanted to the end".to_owned(),
                };
                tracing::info!("GET {}: {outcome}", target.escape_debug());
                sent.map(|_| ())
            }
            Err(refusal) => Err(refusal),
        };
        match result {
            Err(Refusal::Reset(code)) => {
                // A closed stream needs no reset.
                let _ = send.reset(VarInt::from_u32(code));
            }
            Err(Refusal::Cancelled) => self.on_cancelled(),
            Err(Refusal::Gone) => {}
            Ok(()) => {
                self.read_rest(&mut recv).await;
                // It may still be cancelled while it waits to be sent.
                if let Ok(Some(_)) = send.stopped().await {
                    self.on_cancelled();
                }
                return;
            }
        }
        drop(send);
        self.read_rest(&mut recv).await;
    }

    /// Ends a connection on which too many requests are cancelled: each costs the client next to
    /// nothing, and us a file opened and read.
    fn on_cancelled(&self) {
        if self.limits.on_cancelled() && self.connection.close_reason().is_none() {
            let code = VarInt::from_u32(TOO_MANY_CANCELLED);
            self.connection.close(code, b"too many requests cancelled");
        }
    }

    /// Reads what follows a request, in most cases only the end of the stream. Dropping the stream
    /// earlier would tell the client to stop sending, which some clients take for a failure.
    async fn read_rest(&self, recv: &mut RecvStream) {
        let mut room = MAX_REQUEST;
        while room > 0 {
            let read = self.limits.progress(recv.read_chunk(room, true));
            let Ok(Ok(Some(chunk))) = read.await else {
                return;
            };
            room -= chunk.bytes.len();
        }
    }

    /// The target of the request.
    async fn read_request(&self, recv: &mut RecvStream) -> Result<String, Refusal> {
        let mut request = Vec::new();
        while !request.contains(&b'\n') {
            let room = MAX_REQUEST.saturating_sub(request.len());
            if room == 0 {
                return Err(Refusal::Reset(BAD_REQUEST));
            }
            let read = self.limits.progress(recv.read_chunk(room, true));
            match read.await?? {
                Some(chunk) => request.extend_from_slice(&chunk.bytes),
                None => break,
            }
        }
        parse_request(&request).ok_or(Refusal::Reset(BAD_REQUEST))
    }

    /// Sends a file. It is opened once there is room for some of it, and each piece is read when
    /// there is room for it: a client that takes nothing costs nothing but its stream.
    async fn send_file(
        &self,
        send: &mut SendStream,
        recv: &mut RecvStream,
        target: &str,
    ) -> Result<u64, Refusal> {
        self.limits.progress(send.writable()).await??;
        let _open = tokio::select! {
            open = self.limits.open_file() => open.ok_or(Refusal::Gone)?,
            // It is not finished, so it can only have been stopped or lost.
            stopped = send.stopped() => {
                return Err(stopped.map_or(Refusal::Gone, |_| Refusal::Cancelled));
            }
        };
        let mut content = None;
        let (mut sent, mut size) = (0, FIRST_PIECE);
        loop {
            let room = self.limits.progress(send.writable()).await??;
            if let Some(Ok(Some(_))) = recv.received_reset().now_or_never() {
                return Err(Refusal::Cancelled);
            }
            let content = match &mut content {
                Some(content) => content,
                None => {
                    let opened = OpenContent::open(self.source.clone(), target.to_owned()).await?;
                    content.insert(opened)
                }
            };
            let piece = content.read(room.clamp(FIRST_PIECE, size)).await?;
            if piece.is_empty() {
                if sent < content.length {
                    // The file shrank while it was read: the client must not take its end for the
                    // end of the file as announced.
                    return Err(Refusal::Reset(SERVER_ERROR));
                }
                send.finish().map_err(|_| Refusal::Gone)?;
                return Ok(sent);
            }
            sent += piece.len() as u64;
            size = (2 * size).min(MAX_PIECE);
            let mut pieces = [piece];
            while pieces.iter().any(|piece| !piece.is_empty()) {
                let write = self.limits.progress(send.write_chunks(&mut pieces));
                write.await??;
            }
        }
    }
}

fn parse_request(request: &[u8]) -> Option<String> {
    let line = request.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    // Some clients add a version, as HTTP/1 does.
    let target = line.strip_prefix("GET ")?.split_whitespace().next()?;
    target.starts_with('/').then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::time::Duration;

    use mpquic_tokio::{ClientConfig, Endpoint};

    use super::*;
    use crate::args::Cipher;
    use crate::files::Content;
    use crate::serve::{self, Service, all_protocols};
    use crate::trust::{Fingerprint, Trust, Verifier};

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

    /// The same file under every name, and how much of it was read.
    #[derive(Clone)]
    struct Anything {
        length: u64,
        read: Arc<AtomicU64>,
        open: Arc<AtomicUsize>,
        /// The most that were open at a time.
        most_open: Arc<AtomicUsize>,
    }

    impl Anything {
        fn new(length: u64) -> Self {
            Self {
                length,
                read: Arc::default(),
                open: Arc::default(),
                most_open: Arc::default(),
            }
        }
    }

    impl Source for Anything {
        fn open(&self, _: &str) -> Result<Content, OpenError> {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_open.fetch_max(open, Ordering::SeqCst);
            Ok(Content {
                length: self.length,
                reader: Box::new(Counted {
                    of: self.clone(),
                    left: self.length,
                }),
            })
        }
    }

    struct Counted {
        of: Anything,
        left: u64,
    }

    impl Read for Counted {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let length = buf.len().min(self.left as usize);
            buf[..length].fill(b'x');
            self.left -= length as u64;
            self.of.read.fetch_add(length as u64, Ordering::SeqCst);
            Ok(length)
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.of.open.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A server on loopback, with what its clients need.
    struct Served {
        address: SocketAddr,
        pin: Fingerprint,
    }

    fn serve(source: Anything, limits: Limits) -> Served {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (config, pin) = serve::self_signed(&[any], None, &all_protocols()).unwrap();
        let server = Endpoint::builder()
            .bind(any)
            .server(config)
            .build()
            .unwrap();
        let address = server.local_addrs()[0];
        let service = Service {
            limits,
            ..Service::new(Arc::new(source))
        };
        tokio::spawn(async move { service.accept(&server).await });
        Served { address, pin }
    }

    impl Served {
        /// A connection whose streams may receive this many bytes before they are read.
        async fn connect(&self, window: u64) -> Connection {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let provider = Cipher::provider(None);
            let verifier = Verifier::new(&Trust::Pin(self.pin), provider).unwrap();
            let mut transport = mpquic_tokio::default_transport();
            transport.initial_stream_receive_window = window;
            let tls = verifier.tls(&all_protocols()).unwrap();
            let config = ClientConfig::new(Arc::new(tls));
            let config = config.transport_config(transport.build().unwrap());
            let client = Endpoint::builder().bind(any).build().unwrap();
            let connecting = client.connect_with(config, self.address, "localhost");
            connecting.unwrap().await.unwrap()
        }
    }

    const WINDOW: u64 = 1 << 20;

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

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, future).await.expect("too slow")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn streams_that_stall_cost_others_nothing() {
        let source = Anything::new(1 << 20);
        let served = serve(source.clone(), Limits::default());
        let mut stalled = Vec::new();
        for _ in 0..6 {
            // Room for the first bytes, so that the file is opened.
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
        let source = Anything::new(770_000);
        let served = serve(source.clone(), Limits::default());
        let connection = served.connect(WINDOW).await;
        let attack = async {
            for _ in 0..1000 {
                let (mut send, mut recv) = connection.open_bi().await?;
                // They leave together.
                let sent = async {
                    send.write_all(b"GET /file\r\n").await?;
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
        assert_eq!(close.error_code, VarInt::from_u32(TOO_MANY_CANCELLED));
        let read = source.read.load(Ordering::SeqCst);
        assert!(read <= 130 * FIRST_PIECE as u64, "{read} bytes");
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
        // So is one that does not end.
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /fi").await.unwrap();
        let code = soon(recv.received_reset()).await.unwrap();
        assert_eq!(code, Some(VarInt::from_u32(STALLED)));
    }

    /// Those that stall make room for others, and sooner than otherwise.
    #[tokio::test]
    async fn when_no_more_files_may_be_open_the_slowest_client_gives_way() {
        let limits = Limits {
            files: 1,
            stall_when_full: Duration::from_millis(100),
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
        send.finish().unwrap();
        assert_eq!(send.stopped().await, Ok(None), "it was told to stop");
    }

    #[tokio::test]
    async fn what_follows_a_request_has_a_limit() {
        let connection = connect().await;
        let (mut send, _recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        let rest = vec![0; 2 * MAX_REQUEST];
        while send.write_all(&rest).await.is_ok() {}
        assert!(matches!(send.stopped().await, Ok(Some(_))));
    }
}
