//! HTTP/0.9 on s2n-quic.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mpquic_interop_peers::{Connection, Error, SendStream, Server, Stack, any_port};
use s2n_quic::client::Connect;
use s2n_quic::connection::{Handle, StreamAcceptor};
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter, Outcome};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::rustls as tls;
use s2n_quic::stream::{ReceiveStream, SendStream as S2nSendStream};
use serde_json::Value;
use tokio::sync::Mutex;

/// By default, a handshake may take ten seconds. With much loss that is too little.
fn patient() -> Result<Limits, Error> {
    Ok(Limits::new().with_max_handshake_duration(Duration::from_secs(60))?)
}

/// An s2n-quic endpoint.
enum S2n {
    Server(SocketAddr, Mutex<s2n_quic::Server>),
    Client(s2n_quic::Client),
}

/// Sends a Retry to clients that have not proven their address.
struct Doorkeeper {
    retry: bool,
}

impl Limiter for Doorkeeper {
    fn on_connection_attempt(&mut self, _: &ConnectionAttempt<'_>) -> Outcome {
        if self.retry {
            Outcome::retry()
        } else {
            Outcome::allow()
        }
    }
}

impl Stack for S2n {
    type Connection = S2nConnection;

    fn server(args: &Server, tls: rustls::ServerConfig) -> Result<Self, Error> {
        let server = s2n_quic::Server::builder()
            .with_tls(tls::Server::from(tls))?
            .with_limits(patient()?)?
            .with_io(args.listen)?
            .with_endpoint_limits(Doorkeeper { retry: args.retry })?
            .start()?;
        Ok(Self::Server(server.local_addr()?, Mutex::new(server)))
    }

    fn client(remote: SocketAddr, tls: rustls::ClientConfig) -> Result<Self, Error> {
        let client = s2n_quic::Client::builder()
            .with_tls(tls::Client::from(tls))?
            .with_limits(patient()?)?
            .with_io(any_port(remote))?
            .start()?;
        Ok(Self::Client(client))
    }

    fn local_address(&self) -> Result<SocketAddr, Error> {
        Ok(match self {
            Self::Server(address, _) => *address,
            Self::Client(client) => client.local_addr()?,
        })
    }

    async fn accept(&self) -> Result<Option<S2nConnection>, Error> {
        let Self::Server(_, server) = self else {
            return Err("a client does not accept".into());
        };
        let connection = server.lock().await.accept().await;
        Ok(Some(S2nConnection::new(
            connection.ok_or("the endpoint is closed")?,
        )))
    }

    async fn connect(&self, remote: SocketAddr, host: &str) -> Result<S2nConnection, Error> {
        let Self::Client(client) = self else {
            return Err("a server does not connect".into());
        };
        let connect = Connect::new(remote).with_server_name(host);
        Ok(S2nConnection::new(client.connect(connect).await?))
    }

    async fn wait_idle(&self) {
        if let Self::Client(client) = self {
            let _ = client.clone().wait_idle().await;
        }
    }
}

/// An s2n-quic connection.
#[derive(Clone)]
struct S2nConnection {
    handle: Handle,
    streams: Arc<Mutex<StreamAcceptor>>,
}

impl S2nConnection {
    fn new(connection: s2n_quic::Connection) -> Self {
        let (handle, streams) = connection.split();
        Self {
            handle,
            streams: Arc::new(Mutex::new(streams)),
        }
    }
}

impl Connection for S2nConnection {
    type Send = Sender;
    type Recv = ReceiveStream;

    async fn open(&self) -> Result<(Sender, ReceiveStream), Error> {
        let stream = self.handle.clone().open_bidirectional_stream().await?;
        let (recv, send) = stream.split();
        Ok((Sender(send), recv))
    }

    async fn accept(&self) -> Result<(Sender, ReceiveStream), Error> {
        let stream = self
            .streams
            .lock()
            .await
            .accept_bidirectional_stream()
            .await?;
        let (recv, send) = stream.ok_or("the connection is closed")?.split();
        Ok((Sender(send), recv))
    }

    fn bytes(&self) -> Option<u64> {
        // s2n-quic counts bytes only in events, and no drill needs the count.
        None
    }

    async fn zero_rtt_accepted(&self) -> bool {
        false
    }

    fn close(&self) {
        self.handle.close(0u32.into());
    }

    fn paths(&self) -> Vec<Value> {
        Vec::new()
    }
}

/// The sending part of a stream.
struct Sender(S2nSendStream);

impl SendStream for Sender {
    fn reset(mut self, code: u32) {
        // A stream that has ended needs no reset.
        let _ = self.0.reset(code.into());
    }
}

impl tokio::io::AsyncWrite for Sender {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        data: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        tokio::io::AsyncWrite::poll_write(std::pin::Pin::new(&mut self.0), cx, data)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        tokio::io::AsyncWrite::poll_flush(std::pin::Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        tokio::io::AsyncWrite::poll_shutdown(std::pin::Pin::new(&mut self.0), cx)
    }
}

fn main() -> ExitCode {
    mpquic_interop_peers::main::<S2n>()
}
