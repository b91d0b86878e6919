//! Connection attempts: accepted, refused, retried, early data, and those nobody answers.

use std::time::Duration;

use mpquic_tokio::{ConnectionError, Endpoint, ServerConfig, WriteError, default_transport};
use tokio::time::Instant;

use crate::harness::{ALPN, Error, Net, TestResult, client, exchange, within};

#[tokio::test]
async fn a_dead_port_times_out() -> TestResult {
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(Duration::from_millis(500));
    let endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let dead = socket.local_addr()?;
    drop(socket);
    let start = Instant::now();
    let connecting = endpoint.connect_with(client(transport)?, dead, "localhost")?;
    let error = within("connect", connecting).await?.err();
    assert_eq!(error, Some(ConnectionError::TimedOut));
    assert!(start.elapsed() > Duration::from_millis(400));
    within("idle", endpoint.wait_idle()).await
}

#[tokio::test]
async fn a_dead_address_does_not_keep_the_client_from_another() -> TestResult {
    let config = client(default_transport())?;
    let net = Net::new(&["127.0.0.1", "127.0.0.3"], &["127.0.0.1"], config)?;
    let dead = net.server.local_addrs()[0];
    assert!(net.server.remove_local(dead));
    let connecting = net.client.connect(dead, "localhost")?;
    let accept = async {
        let incoming = net.server.accept().await.ok_or("closed")?;
        Ok::<_, Error>(incoming.await?)
    };
    let connect = async { Ok::<_, Error>(connecting.await?) };
    let (a, b) = within("connect", async { tokio::try_join!(connect, accept) }).await??;
    assert_eq!(a.remote_address(), Some(net.server.local_addr()?));
    exchange(&a, &b, 1 << 20).await?;
    assert_eq!(
        net.client.open_connections(),
        2,
        "the dead attempt is closing"
    );
    Ok(())
}

#[tokio::test]
async fn attempts_can_be_refused_or_asked_to_retry() -> TestResult {
    let net = Net::two_paths()?;
    let to = net.server.local_addr()?;
    let connecting = net.client.connect(to, "localhost")?;
    within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?
        .refuse();
    let refused = within("refusal", connecting).await?;
    assert!(
        matches!(refused, Err(ConnectionError::ConnectionClosed(_))),
        "{refused:?}"
    );
    let connecting = net.client.connect(to, "localhost")?;
    within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?
        .retry()?;
    let incoming = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    assert!(incoming.remote_address_validated());
    let accepted = async { Ok::<_, Error>(incoming.await?) };
    let connected = async { Ok::<_, Error>(connecting.await?) };
    let (a, b) = within("handshake", async { tokio::try_join!(connected, accepted) }).await??;
    exchange(&a, &b, 1 << 20).await
}

#[tokio::test]
async fn known_servers_get_data_with_the_first_flight() -> TestResult {
    let net = Net::two_paths()?;
    let to = net.server.local_addr()?;
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 1000).await?;
    a.close(0u32.into(), b"");
    let server = net.server.clone();
    let receive = tokio::spawn(async move {
        let mut received = Vec::new();
        for _ in 0..2 {
            let connection = server.accept().await.ok_or("closed")?.await?;
            let mut stream = connection.accept_uni().await?;
            assert!(!stream.is_0rtt(), "the handshake is complete");
            received.push(stream.read_to_end(100).await?);
        }
        Ok::<_, Error>(received)
    });

    let Ok((a, accepted)) = net.client.connect(to, "localhost")?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let mut stream = a.open_uni().await?;
    stream.write_all(b"early").await?;
    stream.finish()?;
    assert!(within("handshake", accepted).await?);
    assert_eq!(within("acknowledged", stream.stopped()).await??, None);

    // A server that forgot its keys: what was sent early is lost, and told so.
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    net.server.set_server_config(Some(config))?;
    let Ok((a, accepted)) = net.client.connect(to, "localhost")?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let mut lost = a.open_uni().await?;
    lost.write_all(b"lost").await?;
    assert!(!within("handshake", accepted).await?);
    assert_eq!(lost.write(b"more").await, Err(WriteError::ZeroRttRejected));
    let mut stream = a.open_uni().await?;
    drop(lost);
    stream.write_all(b"again").await?;
    stream.finish()?;
    assert_eq!(within("both", receive).await???, [&b"early"[..], b"again"]);
    Ok(())
}

/// Makes a connection for a question and its answer. Returns how many datagrams client and server
/// sent until then.
async fn short_exchange() -> Result<(u64, u64), Error> {
    let one = ["127.0.0.1"];
    let net = Net::new(&one, &one, client(default_transport())?)?;
    let server = net.server.clone();
    let served = tokio::spawn(async move {
        let connection = server.accept().await.ok_or("closed")?.await?;
        let (mut send, mut receive) = connection.accept_bi().await?;
        assert_eq!(receive.read_to_end(100).await?, b"question");
        send.write_all(b"answer").await?;
        send.finish()?;
        connection.closed().await;
        Ok::<_, Error>(connection.stats())
    });
    let to = net.server.local_addr()?;
    let connection = net.client.connect(to, "localhost")?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"question").await?;
    send.finish()?;
    assert_eq!(receive.read_to_end(100).await?, b"answer");
    let sent = connection.stats().datagrams_sent;
    connection.close(0u32.into(), b"");
    Ok((sent, within("end", served).await???.datagrams_sent))
}

/// Whoever writes as soon as it is connected needs no more datagrams than the handshake itself. On
/// a busy machine an acknowledgement may be due before the answer is, so not each time.
#[tokio::test]
async fn a_short_exchange_takes_two_datagrams_each_way() -> TestResult {
    let mut seen = Vec::new();
    while !seen.contains(&(2, 2)) {
        assert!(seen.len() < 50, "{seen:?}");
        seen.push(short_exchange().await?);
    }
    Ok(())
}

#[tokio::test]
async fn attempts_tell_what_they_are_and_may_get_another_configuration() -> TestResult {
    let net = Net::two_paths()?;
    let to = net.server.local_addr()?;
    let connecting = net.client.connect(to, "localhost")?;
    let first = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    let destination = first.orig_dst_cid().ok_or("undecided")?;
    assert!(first.may_retry() && destination.len() >= 8);
    assert_eq!(first.local_ip(), Some(to.ip()));
    first.retry()?;
    let again = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    assert!(!again.may_retry());
    assert_eq!(again.orig_dst_cid(), Some(destination));

    // A configuration of its own: it allows no streams, unlike the endpoint's.
    let mut transport = default_transport();
    transport.max_concurrent_uni_streams = 0;
    let (config, certificate) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let accepting = again.accept_with(config.transport_config(transport.build()?))?;
    let accepted = async { Ok::<_, Error>(accepting.await?) };
    let connected = async { Ok::<_, Error>(connecting.await?) };
    let (a, _b) = within("handshake", async { tokio::try_join!(connected, accepted) }).await??;
    assert_eq!(a.peer_certificates(), Some(vec![certificate]));
    let opened = tokio::time::timeout(Duration::from_millis(200), a.open_uni()).await;
    assert!(opened.is_err());
    Ok(())
}

/// A server that does not wait for the end of the handshake learns that it may read a replay.
#[tokio::test]
async fn early_streams_are_told_apart() -> TestResult {
    let net = Net::two_paths()?;
    let to = net.server.local_addr()?;
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 1000).await?;
    a.close(0u32.into(), b"");
    let Ok((a, accepted)) = net.client.connect(to, "localhost")?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let mut stream = a.open_uni().await?;
    stream.write_all(b"early").await?;
    let incoming = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    let Ok((b, _)) = incoming.accept()?.into_0rtt() else {
        return Err("servers always may".into());
    };
    let mut early = within("stream", b.accept_uni()).await??;
    assert!(early.is_0rtt());
    assert_eq!(early.read(&mut [0; 10]).await?, Some(5));
    assert!(within("handshake", accepted).await?);
    within("confirmation", b.handshake_confirmed()).await??;
    let mut late = a.open_uni().await?;
    late.write_all(b"late").await?;
    assert!(!within("stream", b.accept_uni()).await??.is_0rtt());
    Ok(())
}
