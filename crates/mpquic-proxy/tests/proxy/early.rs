//! Requests that come as 0-RTT.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mpquic_proxy::{Client, ClientOptions, Server};
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, default_transport};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::timeout;

use crate::harness::{Error, TestResult, answer, loopback, open, within};

/// A proxy that takes requests before the handshake is complete.
async fn proxy() -> Result<SocketAddr, Error> {
    let mut transport = default_transport();
    mpquic_proxy::adapt(&mut transport, 10);
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
    let endpoint = Endpoint::server(config.transport_config(transport.build()?), loopback())?;
    let address = endpoint.local_addr()?;
    let proxy = Server::new(open());
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let connecting = incoming.accept()?;
            let Ok((connection, _)) = connecting.into_0rtt() else {
                return Err("a server can always answer".into());
            };
            let proxy = proxy.clone();
            tokio::spawn(async move { answer(connection, &proxy).await });
        }
        Ok::<_, Error>(())
    });
    Ok(address)
}

/// Stands between a client and a server. While `holds` is set, nothing of the client passes that
/// comes after the server's first word: so the handshake cannot complete.
async fn relay(server: SocketAddr, holds: Arc<AtomicBool>) -> Result<SocketAddr, Error> {
    let (inner, outer) = (
        UdpSocket::bind(loopback()).await?,
        UdpSocket::bind(loopback()).await?,
    );
    inner.connect(server).await?;
    let address = outer.local_addr()?;
    tokio::spawn(async move {
        let (mut client, mut answered) = (None, false);
        let (mut there, mut back) = (vec![0; 2048], vec![0; 2048]);
        loop {
            tokio::select! {
                Ok((length, from)) = outer.recv_from(&mut there) => {
                    client = Some(from);
                    if !(answered && holds.load(Ordering::SeqCst)) {
                        let _ = inner.send(&there[..length]).await;
                    }
                }
                Ok(length) = inner.recv(&mut back) => {
                    answered = true;
                    if let Some(client) = client {
                        let _ = outer.send_to(&back[..length], client).await;
                    }
                }
                else => return,
            }
        }
    });
    Ok(address)
}

/// Whoever plays a recorded request again cannot complete the handshake, and so opens no connection
/// to a target (RFC 8470 section 4).
#[tokio::test]
async fn nothing_is_done_before_the_handshake_is_complete() -> TestResult {
    let address = proxy().await?;
    let config = ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?.automatic_paths(false);
    let target = TcpListener::bind(loopback()).await?;
    let to = target.local_addr()?.into();
    let client = Client::new(ClientOptions::new(address.to_string().parse()?));
    let endpoint = Endpoint::builder()
        .bind(loopback())
        .client(config)
        .build()?;

    // The answer of the proxy comes after the ticket for 0-RTT.
    let first = within("handshake", endpoint.connect(address, "localhost")?).await??;
    let running = tokio::spawn({
        let client = client.clone();
        async move { client.run(first).await }
    });
    within("HTTP/3", client.connected()).await?;
    let flow = within("a flow", client.connect(&to)).await??;
    within("target", target.accept()).await??;
    drop(flow);
    running.abort();

    let holds = Arc::new(AtomicBool::new(true));
    let relay = relay(address, holds.clone()).await?;
    let Ok((second, accepted)) = endpoint.connect(relay, "localhost")?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let running = client.clone();
    tokio::spawn(async move { running.run(second).await });
    within("HTTP/3", client.connected()).await?;
    let asking = tokio::spawn(async move { client.connect(&to).await.map(drop) });
    let early = timeout(Duration::from_millis(300), target.accept()).await;
    assert!(early.is_err(), "a connection before the handshake");
    holds.store(false, Ordering::SeqCst);
    within("target", target.accept()).await??;
    within("a flow", asking).await???;
    assert!(accepted.await, "0-RTT was accepted");
    Ok(())
}
