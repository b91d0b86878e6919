//! Connection attempts: accepted, refused, retried, early data, and those nobody answers.

use mpquic_tokio::{ConnectionError, Endpoint, ServerConfig, WriteError};

use crate::harness::{ALPN, Error, Net, TestResult, exchange, within};

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

/// A client that was here before has a token that proves its address (RFC 9000 section 8.1.3), with
/// nothing to be set for it.
#[tokio::test]
async fn clients_are_known_when_they_come_again() -> TestResult {
    let net = Net::two_paths()?;
    let to = net.server.local_addr()?;
    for is_known in [false, true] {
        let connecting = net.client.connect(to, "localhost")?;
        let incoming = within("attempt", net.server.accept()).await?;
        let incoming = incoming.ok_or("closed")?;
        assert_eq!(incoming.remote_address_validated(), is_known);
        let (a, b) = tokio::try_join!(connecting, async { incoming.await })?;
        // The token is sent before.
        exchange(&a, &b, 1000).await?;
    }
    Ok(())
}

/// A name may have addresses where nobody listens. (`localhost` is `::1` as well on most machines.)
#[tokio::test]
async fn a_server_is_found_by_its_name() -> TestResult {
    let net = Net::two_paths()?;
    let port = net.server.local_addr()?.port();
    let client = Endpoint::client("[::]:0".parse()?)?;
    let config = mpquic_tokio::ClientConfig::dangerous_insecure(ALPN)?;
    client.set_default_client_config(config);
    for host in ["localhost", "127.0.0.1"] {
        let connecting = client.connect_to(host, port).await?;
        let accept = async {
            net.server
                .accept()
                .await
                .ok_or("closed")?
                .await
                .map_err(Error::from)
        };
        let connected = async { Ok(connecting.await?) };
        let both = async { tokio::try_join!(connected, accept) };
        let (a, b) = within("handshake", both).await??;
        exchange(&a, &b, 1000).await?;
    }
    let unknown = client.connect_to("no-such-host.invalid", port).await;
    let message = unknown.err().ok_or("found")?.to_string();
    assert_eq!(message, "cannot find the address of no-such-host.invalid");
    Ok(())
}
