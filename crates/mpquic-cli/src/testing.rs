//! Servers for tests, and clients of them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use http::Uri;
use mpquic_core::config::TransportOptions;
use mpquic_tokio::{
    ApplicationClose, ClientConfig, Connection, ConnectionError, Endpoint, EndpointBuilder,
    MemoryNetwork, RecvStream,
};

use crate::files::file_state::FileState;
use crate::files::{Content, Entry, Listing, OpenError, Reader, Source};
use crate::options::reach::Reach;
use crate::options::trust::{Fingerprint, Trust, Verifier};
use crate::options::{Alpn, TlsArgs};
use crate::rate::controller::limited;
use crate::serve::access_log::{AccessLog, Format};
use crate::serve::drain::{Drain, Draining, drain};
use crate::serve::endpoints::Endpoints;
use crate::serve::limits::{self, Limits};
use crate::serve::observer::Observer;
use crate::serve::perf;
use crate::serve::rights::{Caller, Rights};
use crate::serve::send_file::{FIRST_PIECE, QuicSession, Session};
use crate::serve::{self, Service};

/// Fails if the future takes very long.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, future).await.expect("too slow")
}

/// A subscriber to all messages, which drops them. While it exists, `tracing` never notes that
/// nobody wants a message: other threads log the same messages without a subscriber.
static EVERYTHING: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let all = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    all.with_writer(io::sink).into()
});

/// Runs a closure, and returns the log messages of this thread meanwhile.
pub(crate) fn logged(run: impl FnOnce()) -> String {
    LazyLock::force(&EVERYTHING);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer({
        let lines = lines.clone();
        move || Lines(lines.clone())
    });
    tracing::subscriber::with_default(subscriber.finish(), run);
    let lines = lines.lock().unwrap();
    String::from_utf8(lines.clone()).unwrap()
}

/// Like [`logged`], for a future on a runtime of its own.
pub(crate) fn logged_by(run: impl Future<Output = ()>) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    logged(|| runtime.unwrap().block_on(soon(run)))
}

struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Most bytes that the server reads from files for a client that always cancels: a hundred requests
/// at once, twenty more per second, and a few earlier requests.
pub(crate) fn most_read_in_vain(since: Instant) -> u64 {
    let requests = 100 + 20 * (since.elapsed().as_secs() + 1) + 10;
    requests * FIRST_PIECE as u64
}

/// The files of one directory, and the largest number of open files.
#[derive(Clone)]
pub(crate) struct Crowd {
    files: usize,
    /// Each request waits until this number of files is open, and a little longer for a further
    /// file.
    most: usize,
    open: Arc<AtomicUsize>,
    most_open: Arc<AtomicUsize>,
}

impl Crowd {
    pub(crate) fn new(files: usize, most: usize) -> Self {
        Self {
            files,
            most,
            open: Arc::default(),
            most_open: Arc::default(),
        }
    }

    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(Ordering::SeqCst)
    }

    /// A server that allows all files open at once.
    pub(crate) fn serve(&self) -> Served {
        let limits = Limits {
            files_per_client: 1000,
            files: 1000,
            ..Limits::default()
        };
        Served::start(self.clone(), limits, Alpn::H3)
    }
}

impl Source for Crowd {
    fn open(&self, _: &str) -> Result<Content, OpenError> {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        for (most, millis) in [(self.most, 10_000), (self.most + 1, 50)] {
            let mut waits = std::iter::repeat_n(Duration::from_millis(1), millis);
            while self.most_open() < most
                && let Some(wait) = waits.next()
            {
                std::thread::sleep(wait);
            }
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        Anything::new(1).open("")
    }

    fn list(&self, _: &str) -> Result<Listing, OpenError> {
        let entries = (0..self.files).map(|number| Entry {
            name: number.to_string().into(),
            length: Some(1),
            attributes: crate::files::attributes::Attributes::default(),
        });
        Ok(Listing {
            entries: entries.collect(),
            others: Vec::new(),
            more_after: None,
        })
    }
}

/// The options of a client.
pub(crate) fn reach(options: &[&str]) -> Reach {
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reach: Reach,
    }
    let line = ["x"].iter().chain(options);
    Line::try_parse_from(line).unwrap().reach
}

/// The same file under every name, with a count of the read bytes.
#[derive(Clone)]
pub(crate) struct Anything {
    length: u64,
    /// Bytes in the file when its content is read.
    left: u64,
    pub(crate) read: Arc<AtomicU64>,
    pub(crate) open: Arc<AtomicUsize>,
    /// The largest number of open files.
    pub(crate) most_open: Arc<AtomicUsize>,
}

impl Anything {
    pub(crate) fn new(length: u64) -> Self {
        Self {
            length,
            left: length,
            read: Arc::default(),
            open: Arc::default(),
            most_open: Arc::default(),
        }
    }

    /// A file whose length changes to `left` after the open.
    pub(crate) fn that_became(self, left: u64) -> Self {
        Self { left, ..self }
    }
}

impl Source for Anything {
    fn open(&self, _: &str) -> Result<Content, OpenError> {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        Ok(Content {
            state: FileState {
                length: self.length,
                ..FileState::default()
            },
            reader: Box::new(Counted {
                of: self.clone(),
                left: self.left,
            }),
        })
    }
}

struct Counted {
    of: Anything,
    left: u64,
}

impl Reader for Counted {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.left = self.left.saturating_sub(bytes);
        Ok(())
    }
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
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

/// A server whose answers wait longer than the test runs.
pub(crate) struct Slow {
    pub(crate) served: Served,
    source: Anything,
}

impl Slow {
    /// Number of requests that a client may cancel.
    pub(crate) const CANCELLED: usize = 8;
    /// Number of requests whose answers are far larger than the first window.
    pub(crate) const REQUESTS: usize = 2 * Self::CANCELLED;
    const FILE: u64 = 60_000;
    const BYTES_PER_SECOND: u64 = 5_000;

    pub(crate) fn start(alpn: Alpn) -> Self {
        let source = Anything::new(Self::FILE);
        let limits = Limits {
            cancelled: Self::CANCELLED as u32,
            cancelled_per_second: 0,
            ..Limits::default()
        };
        let service = Service {
            limits: limits::Shared::new(limits),
            ..Service::new(Arc::new(source.clone()))
        };
        let mut transport = mpquic_tokio::default_transport();
        transport.controller = limited(transport.controller, Self::BYTES_PER_SECOND);
        let served = Served::over(service, alpn, transport);
        Self { served, source }
    }

    /// Waits until all answers are written.
    pub(crate) async fn has_written(&self) {
        let all = Self::FILE * Self::REQUESTS as u64;
        let is_written = || {
            let read = self.source.read.load(Ordering::SeqCst);
            read == all && self.source.open.load(Ordering::SeqCst) == 0
        };
        let written = async {
            while !is_written() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(written).await;
    }
}

/// Waits for the end of a server's first connection.
pub(crate) async fn end_of_first(observer: &Observer) -> ApplicationClose {
    let first = async {
        loop {
            match observer.connections().pop() {
                Some((_, connection)) => return connection,
                None => tokio::task::yield_now().await,
            }
        }
    };
    close_of(&soon(first).await).await
}

/// Checks the first line of an access log, once it is there: an answer cut after this number of
/// bytes or a few more.
pub(crate) async fn is_cut_after(log: &std::path::Path, least: u64) {
    let first = async {
        loop {
            let text = std::fs::read_to_string(log).unwrap();
            if let Some((line, _)) = text.split_once('\n') {
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let line = soon(first).await;
    let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&entry["status"], &entry["cut"]),
        (&().into(), &true.into())
    );
    let bytes = entry["bytes"].as_u64().unwrap();
    assert!((least..1 << 20).contains(&bytes), "{line}");
}

/// Waits until the other side closes a connection, and returns the close.
pub(crate) async fn close_of(connection: &Connection) -> ApplicationClose {
    match soon(connection.closed()).await {
        ConnectionError::ApplicationClosed(close) => close,
        other => panic!("{other:?}"),
    }
}

/// A server on loopback, with the data that its clients need.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) endpoints: Endpoints,
    pub(crate) pin: Fingerprint,
    pub(crate) alpn: Alpn,
    /// Ends the server.
    pub(crate) drain: Drain,
}

impl Served {
    pub(crate) fn start(source: impl Source + 'static, limits: Limits, alpn: Alpn) -> Self {
        let service = Service {
            limits: limits::Shared::new(limits),
            ..Service::new(Arc::new(source))
        };
        Self::of(service, alpn)
    }

    pub(crate) fn of(service: Service, alpn: Alpn) -> Self {
        Self::over(service, alpn, mpquic_tokio::default_transport())
    }

    /// A server with an observer of its connections.
    pub(crate) fn observed(alpn: Alpn) -> (Self, Arc<Observer>) {
        let observer = Observer::new(None);
        let service = Service {
            observer: observer.clone(),
            ..Service::new(Arc::new(Anything::new(1)))
        };
        (Self::of(service, alpn), observer)
    }

    /// A server of a large file, with its access log in JSON.
    pub(crate) fn logged(alpn: Alpn) -> (Self, tempfile::NamedTempFile) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let to = AccessLog::open(log.path(), Format::Json).unwrap();
        let service = Service {
            observer: Observer::new(Some(to)),
            ..Service::new(Arc::new(Anything::new(1 << 20)))
        };
        (Self::of(service, alpn), log)
    }

    pub(crate) fn over(service: Service, alpn: Alpn, transport: TransportOptions) -> Self {
        let (_, served, draining) = Self::listen_over(alpn, transport);
        let endpoints = served.endpoints.clone();
        tokio::spawn(async move { service.accept(&endpoints, draining).await });
        served
    }

    /// A server that answers every request with the same bytes.
    pub(crate) fn blunt(alpn: Alpn, answer: Vec<u8>) -> Self {
        let (server, served, _) = Self::listen(alpn);
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Some(incoming) = server.accept().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    let connection = incoming.await?;
                    loop {
                        let (mut send, mut recv) = connection.accept_bi().await?;
                        let _may_be_stopped = send.write_all(&answer).await;
                        let _is_open = send.finish();
                        tokio::spawn(async move { recv.read_to_end(1 << 20).await });
                    }
                    #[expect(unreachable_code, reason = "tells the type")]
                    Ok::<(), ConnectionError>(())
                });
            }
        });
        served
    }

    /// An endpoint without a service.
    pub(crate) fn listen(alpn: Alpn) -> (Endpoint, Self, Draining) {
        Self::listen_over(alpn, mpquic_tokio::default_transport())
    }

    pub(crate) fn listen_over(
        alpn: Alpn,
        transport: TransportOptions,
    ) -> (Endpoint, Self, Draining) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::listen_at(Endpoint::builder().bind(any), alpn, transport)
    }

    /// An endpoint on a network in memory.
    pub(crate) fn in_memory(network: &MemoryNetwork, at: &str) -> EndpointBuilder {
        let socket = network.bind(at.parse().unwrap()).unwrap();
        Endpoint::builder().abstract_socket(socket)
    }

    pub(crate) fn listen_at(
        builder: EndpointBuilder,
        alpn: Alpn,
        transport: TransportOptions,
    ) -> (Endpoint, Self, Draining) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (config, pin) = serve::self_signed(&[any], &[alpn.bytes()]).unwrap();
        let config = config.transport_config(transport.build().unwrap());
        let server = builder.server(config).build().unwrap();
        let (drain, draining) = drain();
        let served = Self {
            address: server.local_addrs()[0],
            endpoints: Endpoints::one(server.clone()),
            pin,
            alpn,
            drain,
        };
        (server, served, draining)
    }

    pub(crate) fn url(&self, path: &str) -> Uri {
        format!("https://{}{path}", self.address).parse().unwrap()
    }

    /// The options of a client that trusts this server, with further options.
    pub(crate) fn reach(&self, options: &[&str]) -> Reach {
        let pin = self.pin.to_string();
        reach(&[&["--pin", &pin], options].concat())
    }

    /// A connection with this receive window for each stream.
    pub(crate) async fn connect(&self, window: u64) -> Connection {
        self.try_connect(window).await.unwrap()
    }

    pub(crate) async fn try_connect(&self, window: u64) -> Result<Connection, ConnectionError> {
        let locals = [Ipv4Addr::LOCALHOST];
        let connected = self.connect_from(&locals, window).await;
        connected.map(|(_, connection)| connection)
    }

    /// A connection to another address of the server.
    pub(crate) async fn connect_to(
        &self,
        address: SocketAddr,
        window: u64,
    ) -> Result<Connection, ConnectionError> {
        let locals = [Ipv4Addr::LOCALHOST];
        let connected = self.connect_between(&locals, address, window).await;
        connected.map(|(_, connection)| connection)
    }

    /// A connection over paths from several addresses.
    pub(crate) async fn connect_from(
        &self,
        locals: &[Ipv4Addr],
        window: u64,
    ) -> Result<(Endpoint, Connection), ConnectionError> {
        self.connect_between(locals, self.address, window).await
    }

    async fn connect_between(
        &self,
        locals: &[Ipv4Addr],
        address: SocketAddr,
        window: u64,
    ) -> Result<(Endpoint, Connection), ConnectionError> {
        let builder = locals.iter().fold(Endpoint::builder(), |builder, local| {
            builder.bind((*local, 0).into())
        });
        self.connect_at(builder, address, window).await
    }

    async fn connect_at(
        &self,
        builder: EndpointBuilder,
        address: SocketAddr,
        window: u64,
    ) -> Result<(Endpoint, Connection), ConnectionError> {
        let mut transport = mpquic_tokio::default_transport();
        transport.initial_stream_receive_window = window;
        self.connect_over(builder, address, transport).await
    }

    pub(crate) async fn connect_over(
        &self,
        builder: EndpointBuilder,
        address: SocketAddr,
        transport: TransportOptions,
    ) -> Result<(Endpoint, Connection), ConnectionError> {
        let provider = TlsArgs::default().provider();
        let verifier = Verifier::new(&Trust::Pin(self.pin), provider).unwrap();
        let tls = verifier.tls(&[self.alpn.bytes()]).unwrap();
        let config = ClientConfig::new(Arc::new(tls));
        let config = config.transport_config(transport.build().unwrap());
        let client = builder.build().unwrap();
        let connecting = client.connect_with(config, address, "localhost");
        let connection = connecting.unwrap().await?;
        Ok((client, connection))
    }
}

/// A connection on a network in memory with this delay. With a paused clock, times are equal in
/// every run.
pub(crate) struct Far {
    pub(crate) client: Connection,
    pub(crate) endpoint: Endpoint,
    pub(crate) server: Connection,
    _served: Served,
}

/// A connection over this transport, whose server the test controls.
pub(crate) async fn far(alpn: Alpn, delay: Duration, transport: TransportOptions) -> Far {
    let network = MemoryNetwork::new(delay);
    let at = |text| Served::in_memory(&network, text);
    let (server, served, _) = Served::listen_at(at("192.0.2.1:443"), alpn, transport);
    let connecting = served.connect_at(at("192.0.2.2:0"), served.address, 1 << 20);
    let accepted = async { server.accept().await.unwrap().await };
    let (connected, accepted) = soon(futures_util::future::join(connecting, accepted)).await;
    let (endpoint, client) = connected.unwrap();
    Far {
        client,
        endpoint,
        server: accepted.unwrap(),
        _served: served,
    }
}

/// A connection to a server of the performance protocol.
pub(crate) async fn far_perf(delay: Duration, transport: TransportOptions) -> Far {
    let far = far(Alpn::Perf, delay, transport).await;
    let limits = limits::Client::new(
        limits::Shared::new(Limits::default()),
        [192, 0, 2, 2].into(),
    );
    let session = Session {
        source: Arc::new(Anything::new(1)),
        limits: limits.unwrap(),
        observer: Observer::new(None),
        client: [192, 0, 2, 2].into(),
        rights: Arc::new(Rights::open()),
        caller: Caller::default(),
    };
    let connection = far.server.clone();
    let session = QuicSession {
        session,
        connection,
    };
    tokio::spawn(perf::serve(session, drain().1));
    far
}

/// Accepts a request of a measurement, and answers with this number of bytes.
pub(crate) async fn answer_perf(server: &Connection, bytes: usize) -> Vec<u8> {
    let (mut send, mut recv) = server.accept_bi().await.unwrap();
    let request = recv.read_to_end(1 << 20).await.unwrap();
    send.write_all(&vec![0; bytes]).await.unwrap();
    send.finish().unwrap();
    request
}

/// The control stream of the other side of HTTP/3, from its settings on.
pub(crate) struct Control(RecvStream);

impl Control {
    pub(crate) async fn of(connection: &Connection) -> Self {
        loop {
            let mut stream = soon(connection.accept_uni()).await.unwrap();
            let mut kind = [0];
            soon(stream.read_exact(&mut kind)).await.unwrap();
            if kind == [0] {
                return Self(stream);
            }
        }
    }

    /// The largest header fields that the other side accepts, if its settings have a limit (RFC
    /// 9114 section 7.2.4.1).
    pub(crate) async fn max_field_section_size(&mut self) -> Option<u64> {
        let (kind, settings) = self.frame().await;
        assert_eq!(kind, 4, "{settings:?}");
        let mut settings = settings.chunks(2);
        settings.find_map(|setting| (setting[0] == 6).then_some(setting[1]))
    }

    /// A variable-length integer (RFC 9000 section 16).
    async fn integer(&mut self) -> u64 {
        let mut first = [0];
        soon(self.0.read_exact(&mut first)).await.unwrap();
        let mut rest = vec![0; (1 << (first[0] >> 6)) - 1];
        soon(self.0.read_exact(&mut rest)).await.unwrap();
        let begin = u64::from(first[0] & 0x3f);
        rest.iter()
            .fold(begin, |all, byte| all << 8 | u64::from(*byte))
    }

    /// The type of the next frame, and the integers in it.
    pub(crate) async fn frame(&mut self) -> (u64, Vec<u64>) {
        let kind = self.integer().await;
        let length = self.integer().await as usize;
        let mut payload = vec![0; length];
        soon(self.0.read_exact(&mut payload)).await.unwrap();
        let mut integers = Vec::new();
        let mut left = &payload[..];
        while let [first, after @ ..] = left {
            let (rest, after) = after.split_at((1 << (first >> 6)) - 1);
            let begin = u64::from(first & 0x3f);
            integers.push(
                rest.iter()
                    .fold(begin, |all, byte| all << 8 | u64::from(*byte)),
            );
            left = after;
        }
        (kind, integers)
    }
}

/// Both sides of a connection, with their endpoints.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    _endpoints: [Endpoint; 2],
}

/// A connection whose server the test controls.
pub(crate) async fn pair(alpn: Alpn) -> Pair {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (config, pin) = serve::self_signed(&[any], &[alpn.bytes()]).unwrap();
    let server = Endpoint::builder().bind(any).server(config);
    let server = server.build().unwrap();
    let config = ClientConfig::with_pin(pin.0, &[alpn.bytes()]).unwrap();
    let client = Endpoint::builder()
        .bind(any)
        .client(config)
        .build()
        .unwrap();
    let connecting = client
        .connect(server.local_addrs()[0], "localhost")
        .unwrap();
    let accepted = async { server.accept().await.unwrap().await };
    let (connected, accepted) = soon(futures_util::future::join(connecting, accepted)).await;
    Pair {
        client: connected.unwrap(),
        server: accepted.unwrap(),
        _endpoints: [server, client],
    }
}
