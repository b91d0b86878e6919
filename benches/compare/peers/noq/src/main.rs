//! noq.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compare_peer::options::{IDLE_TIMEOUT, MAX_STREAMS};
use compare_peer::{Connection, ReceiveStream, SendStream, Stack};
use compare_peer::{Options, Result, Workload, tls};
use noq::congestion::{Bbr3Config, ControllerFactory, CubicConfig};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{ClientConfig, Endpoint, EndpointConfig, ServerConfig};
use noq::{FourTuple, PathError, PathStatus};
use noq::{MtuDiscoveryConfig, TokioRuntime, TransportConfig, VarInt};
use tokio::time::{sleep, timeout};

fn main() -> Result<()> {
    compare_peer::run::<Noq>()
}

struct Noq {
    endpoint: Endpoint,
    /// Local addresses of a client's further paths.
    further: Vec<SocketAddr>,
}

/// Most paths at a time.
const MAX_PATHS: u32 = 8;
/// How long the server may take to give connection IDs for another path.
const PATH_TIME: Duration = Duration::from_secs(5);

fn transport(options: &Options) -> Result<Arc<TransportConfig>> {
    if options.defaults {
        return Ok(Arc::default());
    }
    let window = VarInt::from_u64(options.window_bytes())?;
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(options.datagram);
    let controller: Arc<dyn ControllerFactory + Send + Sync> = if options.bbr {
        Arc::new(Bbr3Config::default())
    } else {
        Arc::new(CubicConfig::default())
    };
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(options.window_bytes())
        .max_concurrent_bidi_streams(MAX_STREAMS.into())
        .max_idle_timeout(Some(IDLE_TIMEOUT.try_into()?))
        .mtu_discovery_config(Some(discovery))
        .max_concurrent_multipath_paths(MAX_PATHS)
        .congestion_controller_factory(controller);
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

impl Stack for Noq {
    type Connection = Peer;
    type Incoming = Pin<Box<dyn Future<Output = Result<Peer>> + Send>>;

    fn lacks(_: Workload) -> Option<&'static str> {
        None
    }

    fn server(workload: Workload, options: &Options) -> Result<Self> {
        let crypto = QuicServerConfig::try_from(tls::server(workload, options)?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport(options)?);
        let endpoint = endpoint(options.server_socket(), Some(config), options)?;
        Ok(Self {
            endpoint,
            further: Vec::new(),
        })
    }

    fn client(workload: Workload, options: &Options) -> Result<Self> {
        let crypto = QuicClientConfig::try_from(tls::client(workload, options)?)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport(options)?);
        let paths = workload.paths();
        // One socket for all local addresses.
        let address = match paths {
            1 => options.client_socket(1),
            _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let endpoint = endpoint(address, None, options)?;
        endpoint.set_default_client_config(config);
        let further = (2..=paths).map(|path| options.client_socket(path));
        Ok(Self {
            endpoint,
            further: further.collect(),
        })
    }

    fn address(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.local_addr()?)
    }

    async fn accept(&mut self) -> Result<Self::Incoming> {
        let connecting = self
            .endpoint
            .accept()
            .await
            .ok_or("no endpoint")?
            .accept()?;
        Ok(Box::pin(async move { Ok(Peer(connecting.await?)) }))
    }

    async fn connect(&self, server: SocketAddr) -> Result<Peer> {
        let connection = self.endpoint.connect(server, tls::SERVER_NAME)?.await?;
        if !self.further.is_empty() {
            connection.handshake_confirmed().await?;
        }
        for local in &self.further {
            timeout(PATH_TIME, open_path(&connection, server, *local)).await??;
        }
        Ok(Peer(connection))
    }
}

/// Opens a path from another local address, as soon as the server has given connection IDs for it.
async fn open_path(
    connection: &noq::Connection,
    server: SocketAddr,
    local: SocketAddr,
) -> Result<()> {
    let tuple = FourTuple::new(server, Some(local.ip()));
    loop {
        match connection.open_path(tuple, PathStatus::Available).await {
            Err(PathError::RemoteCidsExhausted | PathError::MaxPathIdReached) => {
                sleep(Duration::from_millis(5)).await;
            }
            opened => return Ok(opened.map(|_| ())?),
        }
    }
}

#[derive(Clone)]
struct Peer(noq::Connection);

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

    fn received_by_path(&self) -> Vec<u64> {
        let stats = (0..MAX_PATHS).filter_map(|path| self.0.path_stats(path.into()));
        Vec::from_iter(stats.map(|path| path.udp_rx.bytes))
    }

    fn close(&self) {
        self.0.close(0u32.into(), b"");
    }
}

struct Sending(noq::SendStream);

impl SendStream for Sending {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        Ok(self.0.write_chunk(piece).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}

struct Receiving(noq::RecvStream);

impl ReceiveStream for Receiving {
    async fn read(&mut self, pieces: &mut [Bytes]) -> Result<Option<usize>> {
        Ok(self.0.read_many_chunks(pieces).await?)
    }
}
