//! A client and a server over real sockets, and what both of them do in most tests.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::Code;
use http::{Request, Response};
use mpquic_h3::{BidiStream, Body, OpenStreams, h3};
use mpquic_tokio::{
    ClientConfig, Connection, ConnectionError, Endpoint, ServerConfig, TransportOptions,
    default_transport,
};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type TestResult = Result<(), Error>;
pub(crate) type ServerRequests = h3::server::Connection<mpquic_h3::Connection, Body>;
pub(crate) type ServerStream = h3::server::RequestStream<BidiStream<Body>, Body>;
pub(crate) type ClientDriver = h3::client::Connection<mpquic_h3::Connection, Bytes>;
pub(crate) type ClientStream = h3::client::RequestStream<BidiStream<Bytes>, Bytes>;

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Error> {
    let result = tokio::time::timeout(LIMIT, future).await;
    result.map_err(|_| format!("{what} took too long").into())
}

/// The code with which the other side closed a connection.
pub(crate) async fn closed(connection: &Connection) -> Result<Code, Error> {
    match within("the end", connection.closed()).await? {
        ConnectionError::ApplicationClosed(close) => Ok(close.error_code.into_inner().into()),
        other => Err(other.into()),
    }
}

/// Both ends of a connection over two paths, before HTTP/3 begins.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    pub(crate) server_endpoint: Endpoint,
    /// Ends with its last handle.
    _client_endpoint: Endpoint,
}

impl Pair {
    pub(crate) async fn new() -> Result<Self, Error> {
        Self::with(default_transport()).await
    }

    /// A pair with these options.
    pub(crate) async fn with(transport: TransportOptions) -> Result<Self, Error> {
        let transport = transport.build()?;
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
        let config = config.transport_config(transport.clone());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Endpoint::server(config, any)?;
        let config = ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?;
        let client = Endpoint::builder()
            .bind(any)
            .bind(SocketAddr::from(([127, 0, 0, 2], 0)))
            .client(config.transport_config(transport))
            .build()?;
        let connecting = client.connect(server.local_addr()?, "localhost")?;
        let accept = async {
            let incoming = server.accept().await.ok_or("closed")?;
            Ok::<_, Error>(incoming.await?)
        };
        let connect = async { Ok::<_, Error>(connecting.await?) };
        let (at_client, at_server) = tokio::try_join!(connect, accept)?;
        Ok(Self {
            client: at_client,
            server: at_server,
            server_endpoint: server,
            _client_endpoint: client,
        })
    }

    pub(crate) async fn until_two_paths(&self) -> TestResult {
        Ok(within("the second path", self.client.wait_for_paths(2)).await??)
    }

    /// HTTP/3 on both ends.
    pub(crate) async fn http(&self) -> Result<Http, Error> {
        let server = mpquic_h3::Connection::new(self.server.clone());
        let client = mpquic_h3::Connection::from(self.client.clone());
        let server = async { Ok::<_, Error>(h3::server::Connection::new(server).await?) };
        let client = async { Ok::<_, Error>(h3::client::new(client).await?) };
        let (server, (driver, requests)) = tokio::try_join!(server, client)?;
        Ok(Http {
            server,
            driver,
            requests,
        })
    }
}

/// HTTP/3 over a [`Pair`].
pub(crate) struct Http {
    pub(crate) server: ServerRequests,
    pub(crate) driver: ClientDriver,
    pub(crate) requests: SendRequest<OpenStreams, Bytes>,
}

/// A running server, and a client for it.
pub(crate) struct Running {
    pub(crate) requests: SendRequest<OpenStreams, Bytes>,
    pub(crate) server: tokio::task::JoinHandle<Result<(), h3::error::ConnectionError>>,
    pub(crate) driver: tokio::task::JoinHandle<h3::error::ConnectionError>,
}

impl Http {
    /// Runs both ends; requests are answered by `answer`, each on a task of its own.
    pub(crate) fn run<F>(self, answer: fn(Request<()>, ServerStream) -> F) -> Running
    where
        F: Future<Output = TestResult> + Send + 'static,
    {
        let Self {
            mut server,
            mut driver,
            requests,
        } = self;
        Running {
            requests,
            server: tokio::spawn(async move {
                while let Some(request) = server.accept().await? {
                    tokio::spawn(async move {
                        let (request, stream) = request.resolve_request().await?;
                        answer(request, stream).await
                    });
                }
                Ok(())
            }),
            driver: tokio::spawn(async move { driver.wait_idle().await }),
        }
    }

    /// Runs the client's end, and leaves the server's.
    pub(crate) fn run_client(self) -> (ServerRequests, SendRequest<OpenStreams, Bytes>) {
        let mut driver = self.driver;
        tokio::spawn(async move { driver.wait_idle().await });
        (self.server, self.requests)
    }
}

pub(crate) async fn accept(server: &mut ServerRequests) -> Result<ServerStream, Error> {
    let request = within("a request", server.accept()).await??;
    let (_, stream) = request.ok_or("no request")?.resolve_request().await?;
    Ok(stream)
}

pub(crate) fn get(path: &str) -> Result<Request<()>, http::Error> {
    Request::get(format!("https://localhost{path}")).body(())
}

pub(crate) fn ok() -> Response<()> {
    Response::new(())
}

/// All of a request's body.
pub(crate) async fn read_request(stream: &mut ServerStream) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(body)
}

/// All of a response's body.
pub(crate) async fn read_response(
    stream: &mut ClientStream,
) -> Result<Vec<u8>, h3::error::StreamError> {
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(body)
}

/// Bytes that differ at every position, cheap to make.
pub(crate) fn pattern(length: usize, seed: u32) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next)
        .flatten()
        .take(length)
        .collect()
}
