//! A proxy that is about to end.

use std::net::SocketAddr;

use mpquic_proxy::{Client, ClientOptions, Server, Target};
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, default_transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{
    Error, Setup, TestResult, connect, echo, exchange, loopback, open, target, within,
};

/// Answers the requests of its first connection until it is told to end, and goes on with those
/// that are open.
pub(crate) async fn ends_when_told(
    listening: Endpoint,
    server: Server,
    told: tokio::sync::oneshot::Receiver<()>,
) -> TestResult {
    let connection = listening.accept().await.ok_or("closed")?.await?;
    let requests = server.connection(&connection);
    let quic = mpquic_h3::Connection::new(connection);
    let mut http = Server::http().build(quic).await?;
    tokio::pin!(told);
    loop {
        tokio::select! {
            request = http.accept() => {
                let (request, requests) = (request?.ok_or("no request")?, requests.clone());
                tokio::spawn(async move { requests.answer(request).await });
            }
            _ = &mut told => break,
        }
    }
    http.shutdown(0).await?;
    while let Some(request) = http.accept().await? {
        drop(request);
    }
    Ok(())
}

/// Flows that are open go on, and those that nobody takes any more can be opened over the next
/// connection: they do not fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_flows_wait_for_the_next_connection() -> TestResult {
    let next = Setup::new(open()).await?;
    let mut transport = default_transport();
    mpquic_proxy::adapt(&mut transport, mpquic_proxy::STREAMS_OF_STRANGERS);
    let transport = transport.build()?;
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
    let listening = Endpoint::server(config.transport_config(transport.clone()), loopback())?;
    let address: SocketAddr = listening.local_addr()?;
    let (tell, told) = tokio::sync::oneshot::channel();
    let ending = tokio::spawn(ends_when_told(listening, Server::new(open()), told));
    let config = ClientConfig::dangerous_insecure(&[mpquic_h3::ALPN])?;
    let endpoint = Endpoint::builder()
        .bind(loopback())
        .client(config.transport_config(transport))
        .build()?;
    let client = Client::new(ClientOptions::new(address.to_string().parse()?));
    let old = connect(&endpoint, address, &client).await?;

    let target = Target::from(target(echo).await?);
    let entrance = mpquic_proxy::Entrance::Tcp(target.clone());
    let entrance = client.listen(entrance, loopback()).await?;
    let mut flow = tokio::net::TcpStream::connect(entrance.address()).await?;
    let mut heard = [0; 6];
    flow.write_all(b"before").await?;
    within("echo", flow.read_exact(&mut heard)).await??;
    tell.send(()).map_err(|()| "it has ended")?;
    within("its word", client.left()).await?;
    flow.write_all(b"during").await?;
    within("echo", flow.read_exact(&mut heard)).await??;
    assert_eq!(&heard, b"during");

    let other = tokio::net::TcpStream::connect(entrance.address()).await?;
    let waiting = tokio::spawn(async move { exchange(other, b"after").await });
    let direct = tokio::spawn({
        let (client, target) = (client.clone(), target.clone());
        async move { client.connect(&target).await.map(drop) }
    });
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(!waiting.is_finished() && !direct.is_finished());
    let _new = connect(&endpoint, next.address, &client).await?;
    assert_eq!(within("the waiting flow", waiting).await???, b"after");
    assert_eq!(within("the waiting request", direct).await??, Ok(()));
    flow.write_all(b"behind").await?;
    within("echo", flow.read_exact(&mut heard)).await??;
    assert_eq!(&heard, b"behind");
    // The end of the old connection is none of the new one.
    old.close(0u32.into(), b"");
    let _ = within("its end", ending).await?;
    let other = tokio::net::TcpStream::connect(entrance.address()).await?;
    assert_eq!(exchange(other, b"last").await?, b"last");
    Ok::<_, Error>(())
}

/// Programs see an error at once while nothing promises a connection.
#[tokio::test(start_paused = true)]
async fn without_an_announced_end_new_flows_fail_at_once() -> TestResult {
    let client = Client::new(ClientOptions::new("localhost".parse()?));
    let began = tokio::time::Instant::now();
    let target = Target::from(loopback());
    let failed = client.connect(&target).await.err();
    assert_eq!(failed, Some(mpquic_proxy::NoFlow::Unconnected));
    assert!(began.elapsed().is_zero());
    client.left().await;
    Ok(())
}
