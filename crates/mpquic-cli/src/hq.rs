//! HTTP/0.9 over QUIC, ALPN `hq-interop`: a request is `GET /path` and CRLF on a bidirectional
//! stream, the answer is the bare file. There is no status code: if a file cannot be sent, the
//! stream is reset.

use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use mpquic_core::{ConnectionError, VarInt};
use mpquic_tokio::{Connection, ReadError, RecvStream, SendStream, WriteError};

use crate::files::{self, OpenError, Source};
use crate::protocol::{self, RequestError, Response};

/// Longest request line we read.
const MAX_REQUEST: usize = 8 << 10;
/// Application error codes of resets, named and numbered after HTTP's status codes.
const BAD_REQUEST: u32 = 400;
const NOT_FOUND: u32 = 404;
const SERVER_ERROR: u32 = 500;

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

/// Answers the requests of one client until the connection ends.
pub(crate) async fn serve(connection: Connection, source: Arc<dyn Source>) -> ConnectionError {
    loop {
        match connection.accept_bi().await {
            Ok((send, recv)) => {
                tokio::spawn(answer(send, recv, source.clone()));
            }
            Err(error) => return error,
        }
    }
}

/// Why a request was not answered in full.
enum Refusal {
    /// The stream is reset with this code.
    Reset(u32),
    /// The client is gone or does not want the answer.
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

async fn answer(mut send: SendStream, mut recv: RecvStream, source: Arc<dyn Source>) {
    let result = match read_request(&mut recv).await {
        Some(target) => {
            let sent = send_file(&mut send, &target, source).await;
            let outcome = match &sent {
                Ok(bytes) => format!("{bytes} bytes"),
                Err(Refusal::Reset(code)) => format!("refused with {code}"),
                Err(Refusal::Gone) => "not wanted to the end".to_owned(),
            };
            tracing::info!("GET {}: {outcome}", target.escape_debug());
            sent.map(|_| ())
        }
        None => Err(Refusal::Reset(BAD_REQUEST)),
    };
    if let Err(Refusal::Reset(code)) = result {
        // A closed stream needs no reset.
        let _ = send.reset(VarInt::from_u32(code));
    }
    read_rest(&mut recv).await;
}

/// Reads what follows a request, in most cases only the end of the stream. Dropping the stream
/// earlier would tell the client to stop sending, which some clients take for a failure.
async fn read_rest(recv: &mut RecvStream) {
    let mut room = MAX_REQUEST;
    while room > 0
        && let Ok(Some(chunk)) = recv.read_chunk(room, true).await
    {
        room -= chunk.bytes.len();
    }
}

/// The target of the request; `None` if it is not a valid request.
async fn read_request(recv: &mut RecvStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.contains(&b'\n') {
        let room = MAX_REQUEST
            .checked_sub(request.len())
            .filter(|&room| room > 0)?;
        match recv.read_chunk(room, true).await.ok()? {
            Some(chunk) => request.extend_from_slice(&chunk.bytes),
            None => break,
        }
    }
    parse_request(&request)
}

fn parse_request(request: &[u8]) -> Option<String> {
    let line = request.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    // Some clients add a version, as HTTP/1 does.
    let target = line.strip_prefix("GET ")?.split_whitespace().next()?;
    target.starts_with('/').then(|| target.to_owned())
}

async fn send_file(
    send: &mut SendStream,
    target: &str,
    source: Arc<dyn Source>,
) -> Result<u64, Refusal> {
    let (length, mut chunks) = files::read(source, target.to_owned()).await?;
    let mut sent = 0;
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk?;
        sent += chunk.len() as u64;
        send.write_chunk(chunk).await.map_err(|_| Refusal::Gone)?;
    }
    if sent < length {
        // The file shrank while it was read: the client must not take its end for the end of the
        // file as announced.
        return Err(Refusal::Reset(SERVER_ERROR));
    }
    send.finish().map_err(|_| Refusal::Gone)?;
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use mpquic_tokio::{ClientConfig, Endpoint};

    use super::*;
    use crate::args::Cipher;
    use crate::files::Content;
    use crate::serve::{self, all_protocols};
    use crate::trust::{Trust, Verifier};

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

    /// The same small file under every name.
    struct Anything;

    impl Source for Anything {
        fn open(&self, _: &str) -> Result<Content, OpenError> {
            Ok(Content {
                length: 4,
                reader: Box::new(&b"file"[..]),
            })
        }
    }

    /// A connection to a server on loopback that serves `Anything`.
    async fn connect() -> Connection {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let alpn = all_protocols();
        let (config, fingerprint) = serve::self_signed(&[any], None, &alpn).unwrap();
        let server = Endpoint::builder()
            .bind(any)
            .server(config)
            .build()
            .unwrap();
        let address = server.local_addrs()[0];
        tokio::spawn(async move { serve::accept(&server, Arc::new(Anything), false, &[]).await });
        let provider = Cipher::provider(None);
        let verifier = Verifier::new(&Trust::Pin(fingerprint), provider).unwrap();
        let config = ClientConfig::new(Arc::new(verifier.tls(&alpn).unwrap()));
        let client = Endpoint::builder().bind(any).build().unwrap();
        let connecting = client.connect_with(config, address, "localhost").unwrap();
        connecting.await.unwrap()
    }

    #[tokio::test]
    async fn the_end_of_a_request_may_come_after_the_answer() {
        let connection = connect().await;
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(b"GET /file\r\n").await.unwrap();
        assert_eq!(recv.read_to_end(10).await.unwrap(), b"file");
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
