//! Servers for tests, and clients of them.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use http::Uri;
use mpquic_core::config::TransportOptions;
use mpquic_tokio::{ClientConfig, Connection, ConnectionError, Endpoint};

use crate::drain::{Drain, drain};
use crate::endpoints::Endpoints;
use crate::files::{Content, OpenError, Reader, Source};
use crate::limits::{self, Limits};
use crate::options::{Alpn, Cipher};
use crate::reach::Reach;
use crate::serve::{self, Service};
use crate::trust::{Fingerprint, Trust, Verifier};

/// Fails if the future takes very long.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, future).await.expect("too slow")
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

/// The same file under every name, and how much of it was read.
#[derive(Clone)]
pub(crate) struct Anything {
    length: u64,
    /// Bytes that are left of it by the time it is read.
    left: u64,
    pub(crate) read: Arc<AtomicU64>,
    pub(crate) open: Arc<AtomicUsize>,
    /// The most that were open at a time.
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

    /// A file that has shrunk or grown to so many bytes after it was opened.
    pub(crate) fn that_became(self, left: u64) -> Self {
        Self { left, ..self }
    }
}

impl Source for Anything {
    fn open(&self, _: &str) -> Result<Content, OpenError> {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        Ok(Content {
            length: self.length,
            modified: None,
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

/// A server on loopback, with what its clients need.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) endpoints: Endpoints,
    pub(crate) pin: Fingerprint,
    alpn: Alpn,
    /// Lets it end.
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

    pub(crate) fn over(service: Service, alpn: Alpn, transport: TransportOptions) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (config, pin) = serve::self_signed(&[any], None, &[alpn.bytes()]).unwrap();
        let config = config.transport_config(transport.build().unwrap());
        let server = Endpoint::builder()
            .bind(any)
            .server(config)
            .build()
            .unwrap();
        let address = server.local_addrs()[0];
        let (drain, draining) = drain();
        let endpoints = Endpoints::one(server);
        tokio::spawn({
            let endpoints = endpoints.clone();
            async move { service.accept(&endpoints, draining).await }
        });
        Self {
            address,
            endpoints,
            pin,
            alpn,
            drain,
        }
    }

    pub(crate) fn url(&self, path: &str) -> Uri {
        format!("https://{}{path}", self.address).parse().unwrap()
    }

    /// The options of a client that trusts this server, and these.
    pub(crate) fn reach(&self, options: &[&str]) -> Reach {
        let pin = self.pin.to_string();
        reach(&[&["--pin", &pin], options].concat())
    }

    /// A connection whose streams may receive this many bytes before they are read.
    pub(crate) async fn connect(&self, window: u64) -> Connection {
        self.try_connect(window).await.unwrap()
    }

    pub(crate) async fn try_connect(&self, window: u64) -> Result<Connection, ConnectionError> {
        self.connect_to(self.address, window).await
    }

    /// A connection by way of another address.
    pub(crate) async fn connect_to(
        &self,
        address: SocketAddr,
        window: u64,
    ) -> Result<Connection, ConnectionError> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let provider = Cipher::provider(None);
        let verifier = Verifier::new(&Trust::Pin(self.pin), provider).unwrap();
        let mut transport = mpquic_tokio::default_transport();
        transport.initial_stream_receive_window = window;
        let tls = verifier.tls(&[self.alpn.bytes()]).unwrap();
        let config = ClientConfig::new(Arc::new(tls));
        let config = config.transport_config(transport.build().unwrap());
        let client = Endpoint::builder().bind(any).build().unwrap();
        let connecting = client.connect_with(config, address, "localhost");
        connecting.unwrap().await
    }
}

/// Both sides of a connection, with what they live on.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    _endpoints: [Endpoint; 2],
}

/// A connection whose server is played by the test.
pub(crate) async fn pair(alpn: Alpn) -> Pair {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (config, pin) = serve::self_signed(&[any], None, &[alpn.bytes()]).unwrap();
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
