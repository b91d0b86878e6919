//! Endpoints: their sockets, their end and that of their connections.

use mpquic_tokio::{ConnectionError, Endpoint, ReadError, ServerConfig, default_transport};
use tokio::net::UdpSocket;

use crate::harness::{ALPN, Error, Net, TestResult, client, exchange, within};

#[tokio::test]
async fn close_reaches_the_peer_and_everything_ends() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let (_send, mut recv) = a.open_bi().await?;
    a.close(42u32.into(), b"enough");
    assert_eq!(a.close_reason(), Some(ConnectionError::LocallyClosed));
    let Err(ReadError::ConnectionLost(_)) = recv.read(&mut [0; 8]).await else {
        return Err("read after close".into());
    };
    let ConnectionError::ApplicationClosed(close) = within("close", b.closed()).await? else {
        return Err("another reason".into());
    };
    assert_eq!(
        (close.error_code.into_inner(), &close.reason[..]),
        (42, &b"enough"[..])
    );
    assert!(b.open_uni().await.is_err());
    within("idle", net.client.wait_idle()).await?;
    within("idle", net.server.wait_idle()).await?;
    assert_eq!(
        net.client.open_connections() + net.server.open_connections(),
        0
    );
    net.server.close(0u32.into(), b"");
    assert!(net.server.accept().await.is_none());
    Ok(())
}

#[tokio::test]
async fn dropping_the_last_handle_closes() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let mut stream = a.open_uni().await?;
    stream.write_all(b"x").await?;
    drop(a);
    let mut accepted = within("stream", b.accept_uni()).await??;
    assert_eq!(accepted.read(&mut [0; 8]).await?, Some(1));
    assert_eq!(b.close_reason(), None, "a stream keeps its connection open");
    drop(stream);
    within("close", b.closed()).await?;
    drop(net.client);
    within("idle", net.server.wait_idle()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_can_receive_with_several_tasks() -> TestResult {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let address = "127.0.0.1:0".parse()?;
    let server = Endpoint::builder()
        .bind(address)
        .receivers(3)
        .server(config)
        .build()?;
    assert_eq!(server.local_addrs().len(), 1);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let net = Net {
            server: server.clone(),
            client: Endpoint::client("127.0.0.1:0".parse()?)?,
        };
        net.client
            .set_default_client_config(client(default_transport())?);
        let (a, b) = net.connect().await?;
        tasks.spawn(async move {
            exchange(&a, &b, 4 << 20).await?;
            drop(net);
            Ok::<_, Error>(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

#[tokio::test]
async fn packets_of_an_unknown_version_are_answered() -> TestResult {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let mut packet = [0; 1200];
    packet[..6].copy_from_slice(&[0x80, 0xab, 0xcd, 0xef, 1, 8]);
    socket.send_to(&packet, server.local_addr()?).await?;
    let mut answer = [0; 1200];
    let length = within("answer", socket.recv(&mut answer)).await??;
    assert!((20..1200).contains(&length), "{length}");
    // RFC 9000 section 17.2.1: version 0, and our source connection ID comes back.
    assert_eq!(answer[1..5], [0; 4]);
    Ok(())
}
