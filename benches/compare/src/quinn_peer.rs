//! The transfer with quinn.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use tokio::time::Instant;

use crate::peer::{self, PIECES};
use crate::{Result, Transfer, tls};

fn transport(transfer: &Transfer) -> Result<Arc<TransportConfig>> {
    let window = transfer.window << 10;
    let controller: Arc<dyn ControllerFactory + Send + Sync> = match transfer.cc.as_str() {
        "cubic" => Arc::new(CubicConfig::default()),
        "newreno" => Arc::new(NewRenoConfig::default()),
        other => return Err(format!("quinn has no {other}").into()),
    };
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u64(window)?)
        .receive_window(VarInt::from_u64(window)?)
        .send_window(window)
        .congestion_controller_factory(controller);
    Ok(Arc::new(transport))
}

pub(crate) async fn serve(transfer: &Transfer) -> Result<()> {
    let crypto = Arc::new(QuicServerConfig::try_from(tls::server()?)?);
    let mut config = ServerConfig::with_crypto(crypto);
    config.transport_config(transport(transfer)?);
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        Some(config),
        peer::socket(address, transfer)?,
        Arc::new(TokioRuntime),
    )?;
    println!("{}", endpoint.local_addr()?.port());
    let incoming = endpoint.accept().await.ok_or("no client")?;
    let before = peer::usage()?;
    let connection = incoming.await?;
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut request = [0; 8];
    receive.read_exact(&mut request).await?;
    for piece in peer::pieces(u64::from_be_bytes(request)) {
        send.write_chunk(piece).await?;
    }
    send.finish()?;
    connection.closed().await;
    println!("{}", peer::usage()? - before);
    Ok(())
}

pub(crate) async fn fetch(server: SocketAddr, transfer: &Transfer) -> Result<(u64, Duration)> {
    let crypto = Arc::new(QuicClientConfig::try_from(tls::client()?)?);
    let mut config = ClientConfig::new(crypto);
    config.transport_config(transport(transfer)?);
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        None,
        peer::socket(address, transfer)?,
        Arc::new(TokioRuntime),
    )?;
    let connection = endpoint
        .connect_with(config, server, tls::SERVER_NAME)?
        .await?;
    let start = Instant::now();
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&(transfer.size << 20).to_be_bytes()).await?;
    send.finish()?;
    let mut received = 0;
    let mut pieces = vec![Bytes::new(); PIECES];
    while let Some(count) = receive.read_chunks(&mut pieces).await? {
        for piece in &mut pieces[..count] {
            received += std::mem::take(piece).len() as u64;
        }
    }
    let time = start.elapsed();
    if std::env::var_os("COMPARE_STATS").is_some() {
        eprintln!("{:?}", connection.stats());
    }
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok((received, time))
}
