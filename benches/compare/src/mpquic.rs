//! The transfer with mpquic.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio::core::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, TransportConfig};
use tokio::time::Instant;

use crate::peer::{self, PIECES};
use crate::{Result, Transfer, tls};

fn transport(transfer: &Transfer) -> Result<TransportConfig> {
    let window = transfer.window << 10;
    let controller = mpquic_cc::by_name(&transfer.cc)?;
    let mut transport = TransportConfig::new(mpquic_sched::default(), controller);
    transport.initial_stream_receive_window = window;
    transport.initial_receive_window = window;
    transport.max_receive_window = window;
    transport.send_window = window;
    Ok(transport)
}

pub(crate) async fn serve(transfer: &Transfer) -> Result<()> {
    let crypto = Arc::new(QuicServerConfig::new(tls::server()?)?);
    let config = ServerConfig::new(crypto)?.transport(transport(transfer)?);
    let endpoint = Endpoint::builder()
        .server(config)
        .bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
        .socket_buffer(transfer.buffer << 10)
        .build()?;
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

pub(crate) async fn fetch(
    server: SocketAddr,
    paths: u8,
    transfer: &Transfer,
) -> Result<(u64, Duration)> {
    let crypto = Arc::new(QuicClientConfig::new(tls::client()?)?);
    let config = ClientConfig::new(crypto).transport(transport(transfer)?);
    let mut builder = Endpoint::builder()
        .client(config)
        .socket_buffer(transfer.buffer << 10);
    for path in 1..=paths {
        builder = builder.bind(SocketAddr::new(Ipv4Addr::new(127, 0, 0, path).into(), 0));
    }
    let endpoint = builder.build()?;
    let connection = endpoint.connect(server, tls::SERVER_NAME)?.await?;
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
        eprintln!("{:?} {:?}", connection.stats(), connection.path_stats());
    }
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok((received, time))
}
