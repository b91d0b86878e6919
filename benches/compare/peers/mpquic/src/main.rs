//! mpquic.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use compare_peer::options::{IDLE_TIMEOUT, MAX_STREAMS};
use compare_peer::{Connection, Http3, ReceiveStream, SendStream, Stack};
use compare_peer::{Options, Result, Workload, tls};
use mpquic_tokio::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use mpquic_tokio::{
    ClientConfig, Endpoint, EndpointBuilder, ServerConfig, TransportConfig, TransportOptions,
};

fn main() -> Result<()> {
    compare_peer::run_with_http3::<Mpquic>()
}

struct Mpquic(Endpoint);

fn transport(options: &Options) -> Result<TransportConfig> {
    if options.defaults {
        return Ok(mpquic_tokio::default_transport().build()?);
    }
    let window = options.window_bytes();
    let controller = mpquic_cc::by_name("cubic")?;
    // To try another scheduler than the default one, on both sides.
    let scheduler = match std::env::var("COMPARE_SCHEDULER") {
        Ok(name) => mpquic_sched::by_name(&name)?,
        Err(_) => mpquic_sched::default(),
    };
    let mut transport = TransportOptions::new(scheduler, controller);
    transport.initial_stream_receive_window = window;
    transport.initial_receive_window = window;
    transport.max_receive_window = window;
    transport.send_window = window;
    transport.max_concurrent_bidi_streams = MAX_STREAMS.into();
    transport.max_idle_timeout = Some(IDLE_TIMEOUT);
    transport.max_mtu = options.datagram;
    transport.max_transmit_segments = options.train;
    Ok(transport.build()?)
}

fn buffers(builder: EndpointBuilder, options: &Options) -> EndpointBuilder {
    if options.defaults {
        builder
    } else {
        builder.socket_buffer(options.buffer_bytes())
    }
}

impl Stack for Mpquic {
    type Connection = Peer;
    type Incoming = Pin<Box<dyn Future<Output = Result<Peer>> + Send>>;

    fn lacks(_: Workload) -> Option<&'static str> {
        None
    }

    fn server(workload: Workload, options: &Options) -> Result<Self> {
        let crypto = QuicServerConfig::new(Arc::new(tls::server(workload, options)?))?;
        let config = ServerConfig::new(Arc::new(crypto))?.transport_config(transport(options)?);
        let builder = Endpoint::builder()
            .server(config)
            .bind(options.server_socket());
        Ok(Self(buffers(builder, options).build()?))
    }

    fn client(workload: Workload, options: &Options) -> Result<Self> {
        let crypto = QuicClientConfig::new(Arc::new(tls::client(workload, options)?))?;
        let config = ClientConfig::new(Arc::new(crypto)).transport_config(transport(options)?);
        let mut builder = Endpoint::builder().client(config);
        for path in 1..=workload.paths() {
            builder = builder.bind(options.client_socket(path));
        }
        Ok(Self(buffers(builder, options).build()?))
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
struct Peer(mpquic_tokio::Connection);

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
        let paths = self.0.path_stats();
        Vec::from_iter(paths.iter().map(|path| path.bytes_received))
    }

    fn close(&self) {
        if std::env::var_os("COMPARE_STATS").is_some() {
            eprintln!("{:?} {:?}", self.0.stats(), self.0.path_stats());
        }
        self.0.close(0u32.into(), b"");
    }
}

impl Http3 for Peer {
    type Body = mpquic_h3::Body;
    type Quic = mpquic_h3::Connection;

    fn quic(&self) -> mpquic_h3::Connection {
        mpquic_h3::Connection::new(self.0.clone())
    }
}

struct Sending(mpquic_tokio::SendStream);

impl SendStream for Sending {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        Ok(self.0.write_chunk(piece).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}

struct Receiving(mpquic_tokio::RecvStream);

impl ReceiveStream for Receiving {
    async fn read(&mut self, pieces: &mut [Bytes]) -> Result<Option<usize>> {
        Ok(self.0.read_chunks(pieces).await?)
    }
}
