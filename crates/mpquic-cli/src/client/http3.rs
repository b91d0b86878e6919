//! The client's side of HTTP/3.

use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, IF_RANGE, RANGE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Request, StatusCode, Uri};
use mpquic_h3::h3;
use mpquic_h3::h3::client::{self, RequestStream, SendRequest};
use mpquic_h3::h3::error::{Code, ConnectionError, StreamError};
use mpquic_h3::{
    BidiStream, OpenStreams, RecvStream, SendStream, describe_connection_error,
    describe_stream_error,
};
use mpquic_tokio::{Connection, StreamId, VarInt};

use crate::client::content::{content, has_rest};
use crate::client::protocol::{self, Ask, RequestError, Response};
use crate::files::resuming;
use crate::options::hosts;
use crate::text::stamp::Stamp;

/// Largest header fields of a response in bytes: as sent, and decoded as `h3` counts.
const MAX_FIELDS: u32 = 64 << 10;
/// Most interim responses before the final response.
const MAX_INTERIM: usize = 16;
/// Most bytes of a server's explanation that are shown, and how long the client waits for it.
const MAX_WORDS: usize = 200;
const WORDS: Duration = Duration::from_secs(1);

/// The stream of a request and its response.
type Stream = RequestStream<BidiStream<mpquic_h3::Body>, mpquic_h3::Body>;

/// HTTP/3 over a connection. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Client {
    connection: Connection,
    requests: SendRequest<OpenStreams, mpquic_h3::Body>,
}

impl Client {
    /// Starts HTTP/3 on a connection. With `early`, HTTP/3 begins in 0-RTT. If the server rejects
    /// 0-RTT, `rejected` becomes ready and ends this client. The streams of the server then belong
    /// to the next client.
    pub(crate) async fn new(
        connection: Connection,
        early: bool,
        rejected: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, RequestError> {
        let quic = mpquic_h3::Connection::new(connection.clone())
            .max_frame_size(MAX_FIELDS)
            .requests_in_order();
        let quic = if early { quic.early() } else { quic };
        let mut builder = client::builder();
        // A clone sends each request, and `h3` would put a reserved frame into the first request of
        // each clone.
        builder
            .max_field_section_size(MAX_FIELDS.into())
            .send_grease(false);
        let (mut driver, requests) = builder
            .build(quic)
            .await
            .map_err(|error| lost(&connection, &error))?;
        tokio::spawn(async move {
            tokio::select! {
                // The driver ends with the connection.
                _ = driver.wait_idle() => {}
                () = rejected => {}
            }
        });
        Ok(Self {
            connection,
            requests,
        })
    }

    fn failed(&self, error: StreamError) -> RequestError {
        failed(&self.connection, error)
    }
}

/// A request whose body is sent piece by piece.
pub(crate) struct Put {
    connection: Connection,
    send: RequestStream<SendStream<mpquic_h3::Body>, mpquic_h3::Body>,
    heard: Heard,
    refused: Option<HeaderMap>,
}

/// The answers to a request with a body.
struct Heard {
    recv: RequestStream<RecvStream, mpquic_h3::Body>,
    url: Uri,
    interim: usize,
    /// The URL where the upload can be resumed.
    upload: Option<Uri>,
    /// A final answer from before the end of the body.
    answer: Option<Result<http::Response<()>, StreamError>>,
}

impl Client {
    /// Begins a request with a body of this `length`, if known.
    pub(crate) async fn put(&self, ask: &Ask, length: Option<u64>) -> Result<Put, RequestError> {
        let mut request = request(ask)?;
        if let Some(length) = length {
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        let mut requests = self.requests.clone();
        let stream = requests.send_request(request).await;
        let stream = stream.map_err(|error| self.failed(error))?;
        if let (Some(length), Ok(id)) = (length, VarInt::from_u64(stream.id().into_inner())) {
            let watch = self.connection.watch_stream(StreamId::from(id));
            // The size of the content, without the headers of frames. A closed stream needs no
            // size.
            let _ = watch.set_expected_size(length);
        }
        let (send, recv) = stream.split();
        Ok(Put {
            connection: self.connection.clone(),
            send,
            heard: Heard {
                recv,
                url: ask.url.clone(),
                interim: 0,
                upload: None,
                answer: None,
            },
            refused: None,
        })
    }
}

impl Put {
    /// Sends a piece; false if the server needs no more of the body for its answer.
    pub(crate) async fn send(&mut self, piece: Bytes) -> Result<bool, RequestError> {
        let sent = self.send.send_data(piece.into());
        tokio::pin!(sent);
        let sent = loop {
            tokio::select! {
                biased;
                () = self.heard.more() => {}
                sent = &mut sent => break sent,
            }
        };
        match sent {
            Ok(()) => Ok(true),
            Err(StreamError::RemoteTerminate { code, .. }) if code == Code::H3_NO_ERROR => {
                Ok(false)
            }
            Err(error) => Err(failed(&self.connection, error)),
        }
    }

    /// The URL where the upload can be resumed, once an interim answer has named the URL.
    pub(crate) fn upload(&self) -> Option<&Uri> {
        self.heard.upload.as_ref()
    }

    /// The fields of the answer that refused the request.
    pub(crate) fn refused(&self) -> Option<&HeaderMap> {
        self.refused.as_ref()
    }

    /// Ends the body, checks that the server accepted the file, and returns the fields of the
    /// answer.
    pub(crate) async fn finish(&mut self) -> Result<HeaderMap, RequestError> {
        match self.send.finish().await {
            Ok(()) | Err(StreamError::RemoteTerminate { .. } | StreamError::Undefined(_)) => {}
            Err(error) => return Err(failed(&self.connection, error)),
        }
        while self.heard.interim < MAX_INTERIM {
            if let Some(answer) = self.heard.answer.take() {
                let answer = answer.map_err(|error| failed(&self.connection, error))?;
                let (answer, ()) = answer.into_parts();
                if answer.status.is_success() {
                    return Ok(answer.headers);
                }
                let status = answer.status;
                let refused = explained(status, &answer.headers, &mut self.heard.recv).await;
                self.refused = Some(answer.headers);
                return Err(refused);
            }
            self.heard.more().await;
        }
        Err(RequestError::Malformed("too many interim responses"))
    }
}

impl Heard {
    /// Waits for the next response. Waits for ever if no further response matters before the end of
    /// the body.
    async fn more(&mut self) {
        if self.answer.is_some() || self.interim >= MAX_INTERIM {
            return std::future::pending().await;
        }
        match self.recv.recv_response().await {
            Ok(interim) if interim.status().is_informational() => {
                self.interim += 1;
                self.upload = resuming::offered(&self.url, &interim).or(self.upload.take());
            }
            answer => self.answer = Some(answer),
        }
    }
}

/// A response's body.
pub(crate) struct Body {
    connection: Connection,
    stream: Stream,
    /// The end of the stream, seen after the last returned data.
    end: Option<Result<(), StreamError>>,
}

impl protocol::Client for Client {
    type Body = Body;

    async fn ask(&self, ask: &Ask) -> Result<Response<Body>, RequestError> {
        let mut requests = self.requests.clone();
        let stream = requests.send_request(request(ask)?).await;
        let mut stream = stream.map_err(|error| self.failed(error))?;
        // The server may answer without reading to the end of the request.
        match stream.finish().await {
            Ok(()) | Err(StreamError::RemoteTerminate { .. } | StreamError::Undefined(_)) => {}
            Err(error) => return Err(self.failed(error)),
        }
        for _ in 0..MAX_INTERIM {
            let response = stream.recv_response().await;
            let response = response.map_err(|error| self.failed(error))?;
            if !response.status().is_informational() {
                let (parts, ()) = response.into_parts();
                let content = match content(ask, parts.status, &parts.headers) {
                    Err(RequestError::Status(status)) => {
                        return Err(explained(status, &parts.headers, &mut stream).await);
                    }
                    content => content?,
                };
                let stamp = Stamp::of(&parts.headers);
                return Ok(Response {
                    start: content.start,
                    end: content.end,
                    length: content.length,
                    stamp: stamp.filter(|_| has_rest(ask, Ok(&parts.headers))),
                    status: parts.status,
                    fields: parts.headers,
                    body: Body {
                        connection: self.connection.clone(),
                        stream,
                        end: None,
                    },
                });
            }
        }
        Err(RequestError::Malformed("too many interim responses"))
    }
}

impl protocol::Body for Body {
    async fn read(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, RequestError> {
        let mut count = 0;
        for chunk in chunks {
            let next = match self.end.take() {
                Some(end) => end.map(|()| None),
                None if count == 0 => data(&mut self.stream).await,
                // Data that has already arrived.
                None => match data(&mut self.stream).now_or_never() {
                    Some(next) => next,
                    None => break,
                },
            };
            match next {
                Ok(Some(data)) => {
                    *chunk = data;
                    count += 1;
                }
                Ok(None) if count == 0 => return Ok(None),
                Err(error) if count == 0 => return Err(broken_off(&self.connection, error)),
                other => {
                    self.end = Some(other.map(|_| ()));
                    break;
                }
            }
        }
        Ok(Some(count))
    }
}

/// The refusal of a request, with the words in the content of the answer.
async fn explained<S: h3::quic::RecvStream>(
    status: StatusCode,
    fields: &HeaderMap,
    stream: &mut RequestStream<S, mpquic_h3::Body>,
) -> RequestError {
    match words(fields, stream).await {
        Some(words) => RequestError::Explained(status, words),
        None => RequestError::Status(status),
    }
}

/// The first line of an answer in plain text, if it is short and comes soon.
async fn words<S: h3::quic::RecvStream>(
    fields: &HeaderMap,
    stream: &mut RequestStream<S, mpquic_h3::Body>,
) -> Option<String> {
    let kind = fields.get(CONTENT_TYPE)?.to_str().ok()?;
    if !kind.starts_with("text/plain") {
        return None;
    }
    let mut text = Vec::new();
    let read = async {
        while text.len() <= MAX_WORDS
            && let Ok(Some(mut data)) = stream.recv_data().await
        {
            let data = data.copy_to_bytes(data.remaining().min(MAX_WORDS + 1));
            text.extend_from_slice(&data);
        }
    };
    // The words that have come until then are enough.
    let _ = tokio::time::timeout(WORDS, read).await;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = str::from_utf8(line).ok()?.trim();
    (!line.is_empty() && line.len() <= MAX_WORDS).then(|| line.to_owned())
}

async fn data(stream: &mut Stream) -> Result<Option<Bytes>, StreamError> {
    let data = stream.recv_data().await?;
    // The data is `Bytes` inside, so this makes no copy.
    Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
}

/// Builds a request. The user name in a URL stays out of the request (RFC 9114 section 4.3.1).
fn request(ask: &Ask) -> Result<Request<()>, RequestError> {
    let url = &ask.url;
    let authority = url.authority().map_or("", Authority::as_str);
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let target = url.path_and_query().map_or("/", PathAndQuery::as_str);
    let uri = Uri::builder()
        .scheme(Scheme::HTTPS)
        .authority(&*hosts::without_link(authority))
        .path_and_query(target)
        .build();
    let request = uri.and_then(|uri| {
        Request::builder()
            .method(ask.method.clone())
            .uri(uri)
            .header(ACCEPT, "*/*")
            .header(USER_AGENT, concat!("mpquic/", env!("CARGO_PKG_VERSION")))
            .body(())
    });
    let mut request = request.map_err(|_| RequestError::Malformed("URL"))?;
    let fields = request.headers_mut();
    for name in ask.fields.keys() {
        fields.remove(name);
    }
    for (name, value) in &ask.fields {
        fields.append(name, value.clone());
    }
    if let Some((have, stamp)) = &ask.have
        && let Some(stamp) = stamp.value()
        && let Ok(range) = format!("bytes={have}-").parse()
    {
        fields.insert(RANGE, range);
        fields.insert(IF_RANGE, stamp);
    }
    Ok(request)
}

fn failed(connection: &Connection, error: StreamError) -> RequestError {
    match error {
        StreamError::RemoteTerminate { code, .. } => RequestError::Refused(code.value()),
        StreamError::RemoteClosing => RequestError::Stopping,
        StreamError::ConnectionError(error) => lost(connection, &error),
        other => RequestError::Http(describe_stream_error(&other)),
    }
}

/// The answer has begun, so an error in the server concerns the file.
fn broken_off(connection: &Connection, error: StreamError) -> RequestError {
    match error {
        StreamError::RemoteTerminate { code, .. } if code == Code::H3_INTERNAL_ERROR => {
            RequestError::ServerFailed
        }
        error => failed(connection, error),
    }
}

fn lost(connection: &Connection, error: &ConnectionError) -> RequestError {
    match (error, connection.close_reason()) {
        // A protocol error of the server made this side close the connection.
        (ConnectionError::Local { .. }, _) | (_, None) => {
            RequestError::Http(describe_connection_error(error))
        }
        (_, Some(reason)) => RequestError::Connection(reason),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::client::protocol::{Body as _, Client as _};
    use crate::options::Alpn;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Control, Served, pair, soon};

    /// A client whose server answers every request with `count` interim responses, a final
    /// response, and a word.
    async fn of_interim(count: usize) -> Client {
        // RFC 9114 section 7.2 and RFC 9204 appendix A: the statuses 103 and 200, and data.
        let head = |status: u8| [1, 3, 0, 0, status];
        let mut answer = head(0xc0 | 24).repeat(count);
        answer.extend(head(0xc0 | 25));
        answer.extend(b"\0\x04word");
        let served = Served::blunt(Alpn::H3, answer);
        let connection = served.connect(1 << 20).await;
        let client = Client::new(connection, false, std::future::pending());
        soon(client).await.unwrap()
    }

    fn file() -> Ask {
        Ask::get(&"https://localhost/file".parse().unwrap())
    }

    #[tokio::test]
    async fn interim_responses_have_an_end() {
        let told = "the server's answer is not valid: too many interim responses";
        for count in [0, 1, 15, 16, 20] {
            let client = of_interim(count).await;
            let asked = soon(client.ask(&file())).await;
            let mut put = soon(client.put(&file(), None)).await.unwrap();
            let put = soon(put.finish()).await;
            if count >= 16 {
                assert_eq!(asked.err().unwrap().to_string(), told);
                assert_eq!(put.unwrap_err().to_string(), told);
                continue;
            }
            put.unwrap();
            let mut answer = asked.unwrap();
            assert_eq!((answer.start, answer.length), (0, None));
            let mut pieces = [const { Bytes::new() }; 3];
            assert_eq!(soon(answer.body.read(&mut pieces)).await.unwrap(), Some(1));
            assert_eq!(pieces[0], "word");
            assert_eq!(soon(answer.body.read(&mut pieces)).await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn settings_announce_the_largest_fields() {
        let (server, served, _) = Served::listen(Alpn::H3);
        let accept = async { server.accept().await.unwrap().await.unwrap() };
        let (connection, accepted) =
            soon(async { tokio::join!(served.connect(1000), accept) }).await;
        let _client = Client::new(connection, false, std::future::pending()).await;
        let longest = Control::of(&accepted).await.max_field_section_size().await;
        assert_eq!(longest, Some(64 << 10));
    }

    /// RFC 9114 section 7.2.8: servers ignore reserved frames, and this client sends none.
    #[tokio::test]
    async fn request_has_only_its_fields() {
        let pair = pair(Alpn::H3).await;
        let client = Client::new(pair.client.clone(), false, std::future::pending());
        let client = soon(client).await.unwrap();
        let received = async {
            let (_send, mut recv) = pair.server.accept_bi().await.unwrap();
            recv.read_to_end(10_000).await.unwrap()
        };
        let ask = file();
        let request = tokio::select! {
            _ = client.ask(&ask) => panic!("nobody answers"),
            request = soon(received) => request,
        };
        // A frame consists of type, length and payload.
        let (header, length) = match request[1] {
            short @ 0..0x40 => (2, usize::from(short)),
            long => (3, usize::from(long & 0x3f) << 8 | usize::from(request[2])),
        };
        assert_eq!((request[0], request.len()), (1, header + length));
    }

    #[tokio::test]
    async fn a_request_with_a_body_says_how_long_it_is() {
        let (server, served, _) = Served::listen(Alpn::H3);
        let accept = async { server.accept().await.unwrap().await.unwrap() };
        let (connection, accepted) =
            soon(async { tokio::join!(served.connect(1 << 20), accept) }).await;
        let client = Client::new(connection, false, std::future::pending());
        let client = client.await.unwrap();
        let quic = mpquic_h3::Connection::new(accepted);
        let accepted = mpquic_h3::h3::server::Connection::<_, Bytes>::new(quic);
        let mut accepted = soon(accepted).await.unwrap();
        for (length, told) in [(Some(5), Some("5")), (None, None)] {
            let mut ask = file();
            ask.method = Method::PUT;
            let _put = soon(client.put(&ask, length)).await.unwrap();
            let request = soon(accepted.accept()).await.unwrap().unwrap();
            let (request, _stream) = soon(request.resolve_request()).await.unwrap();
            assert_eq!(request.method(), Method::PUT);
            let length = request.headers().get(CONTENT_LENGTH);
            assert_eq!(length.map(|length| length.to_str().unwrap()), told);
        }
    }

    /// A server need not read a body that does not change its answer.
    #[tokio::test]
    async fn a_body_that_the_server_does_not_want_is_not_sent_to_its_end() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let connection = served.connect(1000).await;
        let client = Client::new(connection, false, std::future::pending());
        let client = client.await.unwrap();
        let mut ask = file();
        ask.method = Method::PUT;
        let mut put = client.put(&ask, None).await.unwrap();
        let piece = Bytes::from_static(&[0; 5000]);
        assert!(
            soon(put.send(piece.clone())).await.unwrap(),
            "the first one"
        );
        let sent = async { while put.send(piece.clone()).await.unwrap() {} };
        soon(sent).await;
        let refused = soon(put.finish()).await.unwrap_err();
        let told = "the server answered 405 Method Not Allowed: only GET and HEAD, as the server runs \
                    without --allow-put";
        assert_eq!(refused.to_string(), told);
    }

    /// The refusal of a PUT request without a body.
    async fn refused_put(served: &Served) -> RequestError {
        let connection = served.connect(1 << 20).await;
        let client = Client::new(connection, false, std::future::pending());
        let client = soon(client).await.unwrap();
        let mut put = soon(client.put(&file(), None)).await.unwrap();
        soon(put.finish()).await.unwrap_err()
    }

    /// The refusal of a GET request.
    async fn refused_get(served: &Served) -> RequestError {
        let connection = served.connect(1 << 20).await;
        let client = Client::new(connection, false, std::future::pending());
        let client = soon(client).await.unwrap();
        let answered = soon(protocol::Client::ask(&client, &file())).await;
        answered.err().unwrap()
    }

    #[tokio::test]
    async fn a_refusal_has_a_short_explanation_or_none() {
        let (short, long) = ("y".repeat(200), "y".repeat(201));
        for (text, is_plain, told) in [
            ("no room\nat all", true, ": no room"),
            (" \n", true, ""),
            ("", true, ""),
            (&short, true, &format!(": {short}")),
            (&long, true, ""),
            ("<p>no room", false, ""),
        ] {
            // RFC 9204 section 4.5 and appendix A: the status by its name, and the type of the
            // content as a whole.
            let kind = if is_plain { 53 } else { 52 };
            let fields = [&b"\0\0\x5f\x09\x03413"[..], &[0xc0 | kind]].concat();
            let length = u16::try_from(text.len()).unwrap() | 0x4000;
            let mut answer = [&[1, fields.len() as u8], &fields[..], &[0]].concat();
            answer.extend(length.to_be_bytes());
            answer.extend(text.bytes());
            let expected = format!("the server answered 413 Payload Too Large{told}");
            let served = Served::blunt(Alpn::H3, answer.clone());
            assert_eq!(refused_put(&served).await.to_string(), expected);
            let served = Served::blunt(Alpn::H3, answer);
            assert_eq!(refused_get(&served).await.to_string(), expected);
        }
    }

    /// A server that sends the explanation and no end of it: `part` once, or all the time.
    #[tokio::test]
    async fn an_explanation_without_an_end_is_cut() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        for (part, again, told) in [("no room", false, ": no room"), ("yyyyyyyy", true, "")] {
            let (server, served, _draining) = Served::listen(Alpn::H3);
            let written = Arc::new(AtomicUsize::new(0));
            let count = written.clone();
            tokio::spawn(async move {
                let connection = server.accept().await.unwrap().await.unwrap();
                let (mut send, _recv) = connection.accept_bi().await.unwrap();
                // RFC 9204 section 4.5 and appendix A: the status, and text/plain. Then a DATA
                // frame of 2^30 - 1 bytes.
                let fields = b"\0\0\x5f\x09\x03413\xf5";
                let head = [&[1, fields.len() as u8], &fields[..], b"\0\xbf\xff\xff\xff"].concat();
                send.write_all(&head).await.unwrap();
                send.write_all(part.as_bytes()).await.unwrap();
                let more = part.repeat(8 << 10);
                while again && send.write_all(more.as_bytes()).await.is_ok() {
                    count.fetch_add(more.len(), Ordering::Relaxed);
                }
                std::future::pending::<()>().await;
            });
            let refused = refused_put(&served).await;
            let expected = format!("the server answered 413 Payload Too Large{told}");
            assert_eq!(refused.to_string(), expected);
            // The window of the client and the buffer of the server.
            let written = written.load(Ordering::Relaxed);
            assert!(written <= 16 << 20, "{written} bytes");
        }
    }

    #[tokio::test]
    async fn body_fills_all_free_pieces() {
        const FILE: usize = 500_000;
        let served = Served::start(Anything::new(FILE as u64), Limits::default(), Alpn::H3);
        let connection = served.connect(1 << 20).await;
        let client = Client::new(connection, false, std::future::pending());
        let client = client.await.unwrap();
        for room in [1, 2, 64] {
            let mut answer = soon(client.ask(&file())).await.unwrap();
            assert_eq!(answer.length, Some(FILE as u64));
            let mut pieces = vec![Bytes::new(); room];
            let (mut received, mut most) = (0, 0);
            while let Some(count) = soon(answer.body.read(&mut pieces)).await.unwrap() {
                let read = pieces[..count].iter_mut().map(std::mem::take);
                let lengths: Vec<_> = read.map(|piece| piece.len()).collect();
                assert!(count > 0 && !lengths.contains(&0), "{lengths:?}");
                received += lengths.iter().sum::<usize>();
                most = most.max(count);
            }
            assert_eq!(received, FILE);
            assert!(most <= room && (room == 1 || most > 1), "{most} of {room}");
        }
    }

    #[test]
    fn requests_name_host_and_path_and_no_user() {
        for (url, authority, target) in [
            ("https://host/a%20b?c=d", "host", "/a%20b?c=d"),
            ("https://host:4433", "host:4433", "/"),
            ("https://user:secret@[::1]:5/x", "[::1]:5", "/x"),
        ] {
            let request = request(&Ask::get(&url.parse().unwrap())).unwrap();
            assert_eq!(request.uri().authority().unwrap(), authority);
            assert_eq!(request.uri().path_and_query().unwrap(), target);
        }
    }

    #[test]
    fn fields_of_the_user_replace_ours_and_the_rest_is_asked_for() {
        let mut ask = Ask::get(&"https://host/file".parse().unwrap());
        ask.method = Method::POST;
        for (name, value) in [("accept", "a"), ("accept", "b"), ("x-y", "z")] {
            let name: http::HeaderName = name.parse().unwrap();
            ask.fields.append(name, value.parse().unwrap());
        }
        ask.have = Some((100, Stamp::Etag("\"1\"".to_owned())));
        let request = request(&ask).unwrap();
        assert_eq!(request.method(), Method::POST);
        let fields = request.headers();
        let accept: Vec<_> = fields.get_all(ACCEPT).iter().collect();
        assert_eq!(accept, ["a", "b"]);
        assert_eq!(
            (&fields["x-y"], &fields[RANGE]),
            (&"z".parse().unwrap(), &"bytes=100-".parse().unwrap())
        );
        assert_eq!(fields[IF_RANGE], "\"1\"");
        assert!(fields[USER_AGENT].to_str().unwrap().starts_with("mpquic/"));
    }
}
