//! quinn.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use compare_peer::options::{IDLE_TIMEOUT, MAX_STREAMS};
use compare_peer::{Connection, Http3, ReceiveStream, SendStream, Stack};
use compare_peer::{Options, Result, Workload, tls};
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig};
use quinn::{MtuDiscoveryConfig, TokioRuntime, TransportConfig, VarInt};

fn main() -> Result<()> {
    compare_peer::run_with_http3::<Quinn>()
}

struct Quinn(Endpoint);

fn transport(options: &Options) -> Result<Arc<TransportConfig>> {
    if options.defaults {
        return Ok(Arc::default());
    }
    let window = VarInt::from_u64(options.window_bytes())?;
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(options.datagram);
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(options.window_bytes())
        .max_concurrent_bidi_streams(MAX_STREAMS.into())
        .max_idle_timeout(Some(IDLE_TIMEOUT.try_into()?))
        .mtu_discovery_config(Some(discovery))
        .congestion_controller_factory(Arc::new(CubicConfig::default()));
    Ok(Arc::new(transport))
}

fn endpoint(
    address: SocketAddr,
    server: Option<ServerConfig>,
    options: &Options,
) -> Result<Endpoint> {
    let mut config = EndpointConfig::default();
    if !options.defaults {
        config.max_udp_payload_size(options.datagram.max(1472))?;
    }
    let socket = compare_peer::socket(address, options)?;
    Ok(Endpoint::new(
        config,
        server,
        socket,
        Arc::new(TokioRuntime),
    )?)
}

impl Stack for Quinn {
    type Connection = Peer;
    type Incoming = Pin<Box<dyn Future<Output = Result<Peer>> + Send>>;

    fn lacks(workload: Workload) -> Option<&'static str> {
        (workload.paths() > 1).then_some("one path only")
    }

    fn server(workload: Workload, options: &Options) -> Result<Self> {
        let crypto = QuicServerConfig::try_from(tls::server(workload, options)?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport(options)?);
        Ok(Self(endpoint(
            options.server_socket(),
            Some(config),
            options,
        )?))
    }

    fn client(workload: Workload, options: &Options) -> Result<Self> {
        let crypto = QuicClientConfig::try_from(tls::client(workload, options)?)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport(options)?);
        let mut endpoint = endpoint(options.client_socket(1), None, options)?;
        endpoint.set_default_client_config(config);
        Ok(Self(endpoint))
    }

    fn address(&self) -> Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }

    async fn accept(&mut self) -> Result<Self::Incoming> {
        let connecting = self.0.accept().await.ok_or("no endpoint")?.accept()?;
        Ok(Box::pin(async move { Ok(Peer(connecting.await?)) }))
    }

    async fn connect(&self, server: SocketAddr) -> Result<Peer> {
        Ok(Peer(self.0.connect(server, tls::SERVER_NAME)?.await?))
    }
}

#[derive(Clone)]
struct Peer(quinn::Connection);

impl Connection for Peer {
    type Send = Sending;
    type Receive = Receiving;

    async fn open(&self) -> Result<(Sending, Receiving)> {
        let (send, receive) = self.0.open_bi().await?;
        Ok((Sending(send), Receiving(receive)))
    }

    async fn accept(&self) -> Result<(Sending, Receiving)> {
        let (send, receive) = self.0.accept_bi().await?;
        Ok((Sending(send), Receiving(receive)))
    }

    async fn send_datagram(&self, data: Bytes) -> Result<()> {
        Ok(self.0.send_datagram_wait(data).await?)
    }

    async fn receive_datagram(&self) -> Result<Bytes> {
        Ok(self.0.read_datagram().await?)
    }

    fn close(&self) {
        self.0.close(0u32.into(), b"");
    }
}

impl Http3 for Peer {
    type Body = Bytes;
    type Quic = h3_quinn::Connection;

    fn quic(&self) -> h3_quinn::Connection {
        h3_quinn::Connection::new(self.0.clone())
    }
}

struct Sending(quinn::SendStream);

impl SendStream for Sending {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        Ok(self.0.write_chunk(piece).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}

struct Receiving(quinn::RecvStream);

impl ReceiveStream for Receiving {
    async fn read(&mut self, pieces: &mut [Bytes]) -> Result<Option<usize>> {
        Ok(self.0.read_chunks(pieces).await?)
    }
}
