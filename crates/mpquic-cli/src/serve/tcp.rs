//! HTTP/1.1 and HTTP/2 over TLS and TCP, beside HTTP/3: the same answers for clients that do not
//! know yet that the server speaks QUIC. Each answer announces HTTP/3 (Alt-Svc, RFC 7838).

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALT_SVC, HOST};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;

use crate::files::Source;
use crate::options::trust::Fingerprint;
use crate::serve::change::RequestBody;
use crate::serve::drain::Draining;
use crate::serve::http_service;
use crate::serve::limits;
use crate::serve::observer::Observer;
use crate::serve::rest_of_body::outlast;
use crate::serve::rights::{Caller, Rights};
use crate::serve::send_file::{Exchange, Outlet, Refusal, Session};

/// The port of `https` URLs that name none.
const HTTPS: u16 = 443;

/// Protocols to offer in TLS, the preferred one first.
pub(crate) const ALPN: [&[u8]; 3] = [b"h2", b"http/1.1", b"http/1.0"];
/// Longest request fields, bytes.
const MAX_FIELDS: u32 = 16 << 10;
/// Most bytes of a connection that wait in memory, in each direction.
const MAX_BUFFER: usize = 64 << 10;
/// Bytes of a file that are made ready at a time.
const ROOM: usize = 64 << 10;
/// Bytes that an HTTP/2 client may send before they are read.
const WINDOW: u32 = 1 << 20;
/// How long clients remember where HTTP/3 is.
const MEMORY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long nothing is tried after an error, and how long a connection takes to end.
const REST: Duration = Duration::from_millis(100);

/// The certificate, and how TLS is spoken.
pub(crate) type TlsConfig = Arc<rustls::ServerConfig>;

/// What the connections of all clients share.
pub(crate) struct TcpService {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) limits: Arc<limits::Shared>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) rights: Arc<Rights>,
    /// For connections to come.
    pub(crate) tls: watch::Receiver<TlsConfig>,
    /// Where HTTP/3 is.
    pub(crate) announced: HeaderValue,
}

/// The value of Alt-Svc for HTTP/3 on these ports of the same host.
pub(crate) fn alternatives(addresses: &[SocketAddr]) -> HeaderValue {
    let mut ports: Vec<_> = addresses.iter().map(SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    let one = |port| format!("h3=\":{port}\"; ma={}", MEMORY.as_secs());
    let list: Vec<_> = ports.into_iter().map(one).collect();
    HeaderValue::try_from(list.join(", ")).unwrap_or(HeaderValue::from_static("clear"))
}

/// A byte stream below TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

impl TcpService {
    /// Serves every client on a task of its own until the end begins.
    pub(crate) async fn accept(self: Arc<Self>, listeners: Vec<TcpListener>, draining: Draining) {
        let accept = |listener: TcpListener| {
            let (service, mut draining) = (self.clone(), draining.clone());
            async move {
                loop {
                    let accepted = tokio::select! {
                        accepted = listener.accept() => accepted,
                        () = draining.begun() => return,
                    };
                    let Ok((stream, client)) = accepted else {
                        // Out of descriptors, for example: there will be some.
                        tokio::time::sleep(REST).await;
                        continue;
                    };
                    // Small answers must not wait for each other.
                    let _ = stream.set_nodelay(true);
                    service.admit(stream, client, draining.clone());
                }
            }
        };
        let all: Vec<_> = listeners
            .into_iter()
            .map(|listener| tokio::spawn(accept(listener)))
            .collect();
        drop(draining);
        for one in all {
            let _ = one.await;
        }
    }

    /// Serves a new client on a task of its own, if there is a connection for it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        stream: impl Stream,
        client: SocketAddr,
        draining: Draining,
    ) {
        let address = client.ip().to_canonical();
        let Some(limits) = limits::Client::over_tcp(self.limits.clone(), address) else {
            tracing::debug!("{client}: turned away, others need the connection more");
            return;
        };
        let service = self.clone();
        tokio::spawn(async move { service.serve(stream, client, limits, draining).await });
    }

    async fn serve(
        &self,
        stream: impl Stream,
        client: SocketAddr,
        limits: limits::Client,
        mut draining: Draining,
    ) {
        let address = client.ip().to_canonical();
        let acceptor = TlsAcceptor::from(self.tls.borrow().clone());
        let accepted = tokio::select! {
            accepted = limits.progress(acceptor.accept(stream)) => accepted,
            () = limits.gives_way() => Err(limits::Stalled),
            () = draining.begun() => return tracing::debug!("{client}: no TLS: the server ends"),
        };
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!("{client}: no TLS: {error}"),
            Err(limits::Stalled) => return tracing::debug!("{client}: no TLS: too slow"),
        };
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(|chain| chain.first());
        let caller = Caller::of_certificate(certificate.map(Fingerprint::of));
        let stream = TokioIo::new(stream);
        let session = Arc::new(Session {
            source: self.source.clone(),
            limits,
            observer: self.observer.clone(),
            client: address,
            rights: self.rights.clone(),
            caller,
        });
        let (activity, mut active) = watch::channel(Activity::default());
        let service = service_fn(|request| {
            let announced = self.announced.clone();
            answer(session.clone(), request, announced, activity.clone())
        });
        let builder = builder(session.limits.most_requests());
        let connection = builder.serve_connection(stream, service);
        tokio::pin!(connection);
        let over = async {
            tokio::select! {
                reason = idle(&session, active.clone()) => reason,
                () = session.limits.gives_way() => "others need the connection more",
                _ = active.wait_for(|activity| activity.is_over) => "given up",
            }
        };
        tokio::pin!(over);
        let mut is_ending = false;
        let reason = loop {
            tokio::select! {
                ended = &mut connection => break match ended {
                    Ok(()) => "done".to_owned(),
                    Err(error) => error.to_string(),
                },
                reason = &mut over => {
                    connection.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(REST, &mut connection).await;
                    break reason.to_owned();
                }
                () = draining.begun(), if !is_ending => {
                    is_ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        tracing::debug!("{client}: {reason}");
    }
}

/// `most` requests of a connection may be open at a time: with more, uploads that wait for their
/// turn would fill the window of a connection over HTTP/2.
fn builder(most: usize) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .max_buf_size(MAX_BUFFER)
        .auto_date_header(false);
    builder
        .http2()
        .max_concurrent_streams(u32::try_from(most).unwrap_or(u32::MAX))
        .max_header_list_size(MAX_FIELDS)
        .max_send_buf_size(MAX_BUFFER)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .auto_date_header(false);
    builder
}

/// What becomes of the requests of a connection.
#[derive(Debug, Default)]
struct Activity {
    /// Number of requests that are being answered.
    open: usize,
    /// The connection must end.
    is_over: bool,
}

/// Waits until no request was open for the stall timeout. A client that sends header fields byte by
/// byte counts as idle.
async fn idle(session: &Session, mut active: watch::Receiver<Activity>) -> &'static str {
    loop {
        if active
            .wait_for(|activity| activity.open == 0)
            .await
            .is_err()
        {
            return pending().await;
        }
        let some = active.wait_for(|activity| activity.open > 0);
        if session.limits.progress(some).await.is_err() {
            return "idle for too long";
        }
    }
}

/// Answers one request. What is sent after status and fields, another task makes.
async fn answer(
    session: Arc<Session>,
    request: Request<Incoming>,
    announced: HeaderValue,
    activity: watch::Sender<Activity>,
) -> Result<Response<Pieces>, io::Error> {
    let (parts, mut body) = request.into_parts();
    let request = Request::from_parts(parts, ());
    if is_host_wrong(&request) || names_another_host(&request) {
        let mut response = Response::new(Pieces::none());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    let memory = session.limits.request();
    let memory = memory.ok_or_else(|| io::Error::other("others need the memory more"))?;
    let is_head = request.method() == Method::HEAD;
    let (head, told) = oneshot::channel();
    let (pieces, sent) = mpsc::channel(1);
    activity.send_modify(|activity| activity.open += 1);
    tokio::spawn(async move {
        let mut exchange = TcpExchange {
            protocol: match request.version() {
                Version::HTTP_2 => "HTTP/2",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            },
            announced,
            head: Some(head),
            pieces,
        };
        let in_use = session.limits.in_use();
        let answer = http_service::answer(&session, &request, &mut exchange, &mut body);
        let answered = memory.keep(answer).await;
        let answered = answered.unwrap_or_else(|stalled| Err(stalled.into()));
        let is_over = match answered {
            // Data for a client that reads nothing must not stay in memory.
            Err(Refusal::Stalled) => true,
            // Each costs the client next to nothing, and us a file opened and read.
            Err(Refusal::Cancelled) => session.limits.on_cancelled(),
            _ => false,
        };
        let is_answered = answered.is_ok() && request.version() == Version::HTTP_2;
        drop((exchange, in_use));
        // Waiting bodies count as open requests, up to the limit of a connection.
        if is_answered && activity.borrow().open <= session.limits.most_requests() {
            outlast(&mut body).await;
        }
        activity.send_modify(|activity| {
            activity.open -= 1;
            activity.is_over |= is_over;
        });
    });
    let response = told.await.map_err(io::Error::other)?;
    let left = match response.status() {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => 0,
        _ if is_head => 0,
        _ => http_service::content_length(&response).unwrap_or(0),
    };
    Ok(response.map(|()| Pieces { sent, left }))
}

/// True if `Host` is missing, given twice, or anything but a host with or without a port (RFC 9112
/// section 3.2).
fn is_host_wrong(request: &Request<()>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() == Version::HTTP_11,
        (Some(host), None) => !host.is_empty() && !mpquic_h3::is_host(host.as_bytes()),
        (Some(_), Some(_)) => true,
    }
}

/// True for a request of HTTP/2 whose `Host` is another one than `:authority` (RFC 9113 section
/// 8.3.1).
fn names_another_host(request: &Request<()>) -> bool {
    let (Some(authority), Some(host)) = (request.uri().authority(), request.headers().get(HOST))
    else {
        return false;
    };
    let place = |authority: &Authority| {
        let host = authority.host().to_ascii_lowercase();
        (host, authority.port_u16().unwrap_or(HTTPS))
    };
    let host = host.to_str().ok().and_then(|host| host.parse().ok());
    let is_same = host.is_some_and(|host: Authority| place(&host) == place(authority));
    request.version() == Version::HTTP_2 && !is_same
}

/// The side of an answer that makes it.
struct TcpExchange {
    protocol: &'static str,
    announced: HeaderValue,
    head: Option<oneshot::Sender<Response<()>>>,
    pieces: mpsc::Sender<Bytes>,
}

impl Outlet for TcpExchange {
    async fn writable(&mut self) -> Result<usize, Refusal> {
        let room = self.pieces.reserve().await;
        room.map(|_| ROOM).map_err(|_| Refusal::Cancelled)
    }

    async fn stopped(&mut self) -> Refusal {
        self.pieces.closed().await;
        Refusal::Cancelled
    }

    fn is_cancelled(&mut self) -> bool {
        self.pieces.is_closed()
    }

    async fn write_some(&mut self, piece: &mut Bytes) -> Result<(), Refusal> {
        let room = self.pieces.reserve().await;
        room.map_err(|_| Refusal::Cancelled)?
            .send(piece.split_off(0));
        Ok(())
    }
}

impl Exchange for TcpExchange {
    fn protocol(&self) -> &'static str {
        self.protocol
    }

    async fn head(&mut self, mut head: Response<()>) -> Result<(), Refusal> {
        head.headers_mut().insert(ALT_SVC, self.announced.clone());
        let told = self.head.take().map(|sender| sender.send(head));
        told.and_then(Result::ok).ok_or(Refusal::Cancelled)
    }

    async fn finish(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// A connection over HTTP/2 has as many requests as the server answers at a time, so no request
    /// of a client that has vanished waits.
    async fn present(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
}

impl RequestBody for Incoming {
    async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
            match frame {
                None => return Ok(None),
                Some(Err(_)) => return Err(Refusal::Cancelled),
                // Trailers are ignored.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// The side of an answer's body that is sent.
struct Pieces {
    sent: mpsc::Receiver<Bytes>,
    /// Bytes still to come.
    left: u64,
}

impl Pieces {
    fn none() -> Self {
        let (_, sent) = mpsc::channel(1);
        Self { sent, left: 0 }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(this.sent.poll_recv(cx)) {
            Some(piece) => {
                this.left = this.left.saturating_sub(piece.len() as u64);
                Ok(Frame::data(piece))
            }
            // A part must not look like the whole.
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod cancelled;
#[cfg(test)]
mod refused;

/// A service whose connections are in memory, for the economy of attacks.
#[cfg(all(test, target_os = "linux"))]
pub(crate) mod in_memory {
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::options::TlsArgs;
    use crate::options::identity::Identity;
    use crate::options::trust::{Trust, Verifier};
    use crate::serve::drain::{Drain, drain};

    /// A service whose connections are in memory.
    pub(crate) struct Tcp {
        service: Arc<TcpService>,
        connector: TlsConnector,
        draining: Draining,
        _drain: Drain,
    }

    impl Tcp {
        pub(crate) fn new(source: Arc<dyn Source>, limits: Arc<limits::Shared>) -> Self {
            let identity = Identity::make(&[]).unwrap();
            let pin = Trust::Pin(identity.fingerprint().unwrap());
            let chosen = TlsArgs::default();
            let verifier = Verifier::new(&pin, chosen.provider()).unwrap();
            let builder = rustls::ClientConfig::builder_with_provider(Arc::new(chosen.provider()));
            let config = builder
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_no_client_auth();
            let (tls, _) = watch::channel(identity.tls(chosen, &[b"http/1.1"], None).unwrap());
            let service = TcpService {
                source,
                limits,
                observer: Observer::new(None),
                rights: Arc::new(Rights::open()),
                tls: tls.subscribe(),
                announced: HeaderValue::from_static("h3"),
            };
            let (drain, draining) = drain();
            Self {
                service: Arc::new(service),
                connector: TlsConnector::from(Arc::new(config)),
                draining,
                _drain: drain,
            }
        }

        /// A silent connection.
        pub(crate) fn connect(&self, client: SocketAddr) -> DuplexStream {
            let (own, other) = tokio::io::duplex(64 << 10);
            self.service.admit(other, client, self.draining.clone());
            own
        }

        /// True if the answer is a file.
        pub(crate) async fn fetch(&self, client: SocketAddr, path: &str) -> bool {
            let name = ServerName::try_from("localhost").unwrap();
            let exchange = async {
                let mut stream = self.connector.connect(name, self.connect(client)).await?;
                let request =
                    format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
                stream.write_all(request.as_bytes()).await?;
                let mut answer = Vec::new();
                let _may_be_cut = stream.read_to_end(&mut answer).await;
                Ok::<_, io::Error>(answer)
            };
            exchange
                .await
                .is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200 "))
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn alt_svc_names_each_port_once() {
        let addresses = ["127.0.0.1:4433", "[::1]:4433", "127.0.0.2:443"];
        let addresses = addresses.map(|address| address.parse().unwrap());
        let expected = "h3=\":443\"; ma=86400, h3=\":4433\"; ma=86400";
        assert_eq!(alternatives(&addresses), expected);
    }

    #[test]
    fn the_host_of_http_2_is_that_of_its_authority() {
        let is_wrong = |version, host: &str| {
            let request = Request::builder()
                .uri("https://a.example/")
                .version(version);
            names_another_host(&request.header(HOST, host).body(()).unwrap())
        };
        for same in ["a.example", "A.Example", "a.example:443"] {
            assert!(!is_wrong(Version::HTTP_2, same), "{same}");
        }
        for other in ["b.example", "a.example:444", "", "a b"] {
            assert!(is_wrong(Version::HTTP_2, other), "{other}");
        }
        // RFC 9112 section 3.2.2: the target of the request counts.
        assert!(!is_wrong(Version::HTTP_11, "b.example"));
        let without = Request::builder()
            .uri("https://a.example/")
            .version(Version::HTTP_2);
        assert!(!names_another_host(&without.body(()).unwrap()));
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        let is_wrong = |version, hosts: &[&str]| {
            let request = Request::builder().uri("/").version(version);
            let with = |request: http::request::Builder, host: &&str| request.header(HOST, *host);
            is_host_wrong(&hosts.iter().fold(request, with).body(()).unwrap())
        };
        for fine in [
            "",
            "a.example",
            "a:4433",
            "a:",
            "[::1]",
            "[::1]:443",
            "192.0.2.1:1",
        ] {
            assert!(!is_wrong(Version::HTTP_11, &[fine]), "{fine}");
        }
        for wrong in ["a@b", "a b", "a/b", "a:b", "a:+1", "a?", "[::1", "@a", ":@"] {
            assert!(is_wrong(Version::HTTP_11, &[wrong]), "{wrong}");
        }
        assert!(is_wrong(Version::HTTP_11, &["a", "a"]));
        assert!(is_wrong(Version::HTTP_11, &[]) && !is_wrong(Version::HTTP_10, &[]));
    }

    /// Requests at a time of the connections below.
    const MOST: usize = 7;

    /// The answer to these bytes, on a connection on which every request is answered with a word.
    async fn heard(sent: &[u8], length: usize) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(sent).await.unwrap();
        let service = service_fn(async |_: Request<Incoming>| {
            let (pieces, sent) = mpsc::channel(1);
            pieces.send("word".into()).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(Response::new(Pieces { sent, left: 4 }))
        });
        let builder = builder(MOST);
        let serving = async {
            let _over = builder
                .serve_connection(TokioIo::new(server), service)
                .await;
            pending::<()>().await;
        };
        let mut heard = vec![0; length];
        tokio::select! {
            read = client.read_exact(&mut heard) => drop(read.unwrap()),
            () = serving => {}
        }
        heard
    }

    #[tokio::test]
    async fn http_2_settings_announce_the_window() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        // RFC 9113 section 6.5: the frame's header, then an identifier and a value each.
        let settings = heard(preface, 9).await;
        assert_eq!(settings[3], 4, "{settings:?}");
        let length = usize::from(settings[2]);
        let frames = heard(preface, 9 + length + 9 + 13).await;
        let settings: Vec<_> = frames[9..9 + length]
            .chunks(6)
            .map(|one| (one[1], u32::from_be_bytes(one[2..].try_into().unwrap())))
            .collect();
        for (identifier, expected) in [(3, 7), (4, 1 << 20), (6, 16 << 10)] {
            assert!(settings.contains(&(identifier, expected)), "{settings:?}");
        }
        // Ours are acknowledged. RFC 9113 section 6.9: a connection begins with 65,535 bytes.
        let (acknowledged, window) = frames[9 + length..].split_at(9);
        assert_eq!(acknowledged, [0, 0, 0, 4, 1, 0, 0, 0, 0]);
        assert_eq!(&window[..9], [0, 0, 4, 8, 0, 0, 0, 0, 0]);
        let more = u32::from_be_bytes(window[9..].try_into().unwrap());
        assert_eq!(more, (1 << 20) - 65_535);
    }

    #[tokio::test]
    async fn fields_of_http_1_have_a_limit_and_no_date_is_made_up() {
        let request = |length: usize| {
            let field = "x".repeat(length);
            format!("GET / HTTP/1.1\r\nhost: a\r\nx: {field}\r\n\r\n")
        };
        let expected = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nword";
        let text = |heard: Vec<u8>| String::from_utf8(heard).unwrap();
        let fine = heard(request(60 << 10).as_bytes(), expected.len()).await;
        assert_eq!(text(fine), expected);
        let expected = "HTTP/1.1 431 Request Header Fields Too Large\r\n";
        let refused = heard(request(70 << 10).as_bytes(), expected.len()).await;
        assert_eq!(text(refused), expected);
    }

    /// What is sent of a body of this length, piece by piece.
    async fn frames(left: u64, pieces: &[usize]) -> Vec<Result<usize, io::ErrorKind>> {
        let (sender, sent) = mpsc::channel(10);
        for piece in pieces {
            sender.send(vec![0; *piece].into()).await.unwrap();
        }
        drop(sender);
        let mut body = Pieces { sent, left };
        let mut frames = Vec::new();
        assert_eq!(body.size_hint().exact(), Some(left));
        loop {
            assert_eq!(body.is_end_stream(), body.left == 0);
            let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            match next.await {
                None => return frames,
                Some(Ok(frame)) => frames.push(Ok(frame.into_data().unwrap().len())),
                Some(Err(error)) => {
                    frames.push(Err(error.kind()));
                    return frames;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_part_of_a_body_does_not_look_like_the_whole() {
        assert_eq!(frames(5, &[2, 3]).await, [Ok(2), Ok(3)]);
        assert_eq!(frames(1, &[1]).await, [Ok(1)]);
        assert_eq!(frames(0, &[]).await, []);
        let cut = Err(io::ErrorKind::UnexpectedEof);
        assert_eq!(frames(5, &[2]).await, [Ok(2), cut]);
        assert_eq!(frames(1, &[]).await, [cut]);
        assert!(Pieces::none().is_end_stream());
    }

    /// One piece may wait; a client that cancels ends the wait.
    #[tokio::test]
    async fn tcp_answer_is_read_while_it_is_sent() {
        let (pieces, mut sent) = mpsc::channel(1);
        let (head, told) = oneshot::channel();
        let mut exchange = TcpExchange {
            protocol: "HTTP/2",
            announced: HeaderValue::from_static("h3"),
            head: Some(head),
            pieces,
        };
        assert_eq!(exchange.head(Response::new(())).await, Ok(()));
        assert_eq!(told.await.unwrap().headers()[ALT_SVC], "h3");
        let again = exchange.head(Response::new(())).await;
        assert_eq!(again, Err(Refusal::Cancelled));
        let mut piece = Bytes::from_static(b"word");
        assert_eq!(exchange.writable().await, Ok(64 << 10));
        assert_eq!(exchange.write_some(&mut piece).await, Ok(()));
        assert!(piece.is_empty() && !exchange.is_cancelled());
        assert_eq!(exchange.writable().now_or_never(), None);
        assert_eq!(exchange.stopped().now_or_never(), None);
        assert_eq!(sent.recv().await.unwrap(), "word");
        assert_eq!(exchange.writable().now_or_never(), Some(Ok(64 << 10)));
        drop(sent);
        assert_eq!(exchange.writable().await, Err(Refusal::Cancelled));
        let written = exchange.write_some(&mut piece).await;
        assert_eq!(written, Err(Refusal::Cancelled));
        assert_eq!(exchange.stopped().await, Refusal::Cancelled);
        assert!(exchange.is_cancelled());
    }

    /// While a request is open, and for a while after the last one.
    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_ends() {
        let address = std::net::IpAddr::from([192, 0, 2, 1]);
        let stall = limits::Limits::default().stall;
        let limits = limits::Shared::new(limits::Limits::default());
        let session = Session {
            source: Arc::new(crate::testing::Anything::new(1)),
            limits: limits::Client::new(limits, address).unwrap(),
            observer: Observer::new(None),
            client: address,
            rights: Arc::new(Rights::open()),
            caller: Caller::default(),
        };
        let (activity, active) = watch::channel(Activity::default());
        let start = tokio::time::Instant::now();
        let requests = async {
            tokio::time::sleep(stall / 2).await;
            activity.send_modify(|activity| activity.open = 1);
            tokio::time::sleep(3 * stall).await;
            activity.send_modify(|activity| activity.open = 0);
            pending::<()>().await;
        };
        let reason = tokio::select! {
            reason = idle(&session, active) => reason,
            () = requests => unreachable!(),
        };
        assert_eq!(reason, "idle for too long");
        let took = start.elapsed() - stall / 2 - 3 * stall;
        assert!(
            (stall..stall + Duration::from_secs(2)).contains(&took),
            "{took:?}"
        );
    }
}
