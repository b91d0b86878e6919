//! Endpoints: their sockets, their end and that of their connections.

use std::net::SocketAddr;

use mpquic_tokio::{
    ConfigError, ConnectionError, Endpoint, PathState, ReadError, ServerConfig, default_transport,
};
use tokio::net::UdpSocket;

use crate::harness::{
    ALPN, Error, Net, TestResult, address_like, client, eventually, exchange, until, until_active,
    within,
};

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

/// Nothing is corrected in silence: the error names the option, its value and what would be right.
#[tokio::test]
async fn options_that_cannot_be_are_refused() -> TestResult {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let nowhere = config
        .clone()
        .preferred_address_v4(Some("0.0.0.0:443".parse()?));
    let cases = [
        (
            Endpoint::builder().receivers(0),
            "receivers is 0, but must be at least 1",
        ),
        (
            Endpoint::builder().supported_versions(Vec::new()),
            "supported_versions is [], but must be at least one version",
        ),
        (
            Endpoint::builder().server(nowhere.clone()),
            "preferred_address_v4 is 0.0.0.0:443, but must be one address with a port",
        ),
    ];
    for (builder, expected) in cases {
        let error = builder.build().err().ok_or("it was taken")?;
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), expected);
    }
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let refused = server.set_server_config(Some(nowhere));
    assert!(matches!(refused, Err(ConfigError::Option(_))));
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

#[tokio::test]
async fn endpoint_counts_connections() -> TestResult {
    let net = Net::two_paths()?;
    let to = net.server.local_addr()?;
    let (a, _b) = net.connect().await?;
    assert_eq!(net.client.stats().outgoing_handshakes, 1);
    assert_eq!(net.server.stats().accepted_handshakes, 1);

    let connecting = net.client.connect(to, "localhost")?;
    let incoming = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    incoming.retry()?;
    let incoming = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    drop(incoming);
    assert!(within("refusal", connecting).await?.is_err());
    let connecting = net.client.connect(to, "localhost")?;
    let incoming = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    incoming.ignore();
    drop(connecting);
    let stats = net.server.stats();
    assert_eq!((stats.retries, stats.refused_handshakes), (1, 1));
    assert_eq!(
        (stats.ignored_handshakes, stats.accepted_handshakes),
        (1, 1)
    );

    // A packet of no connection is reset, noise is dropped.
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.send_to(&[0x40; 100], to).await?;
    let mut answer = [0; 100];
    let length = within("reset", socket.recv(&mut answer)).await??;
    assert!(length < 100);
    assert_eq!(net.server.stats().stateless_resets, 1);
    let dropped = net.server.stats().datagrams_dropped;
    socket.send_to(&[0x40; 3], to).await?;
    let is_counted = || net.server.stats().datagrams_dropped != dropped;
    eventually("the end of noise", is_counted).await?;
    a.close(0u32.into(), b"");
    Ok(())
}

/// What arrives for an endpoint that was closed while it accepts is closed, too.
#[tokio::test]
async fn closed_endpoint_accepts_no_connection() -> TestResult {
    let net = Net::two_paths()?;
    let connecting = net.client.connect(net.server.local_addr()?, "localhost")?;
    let incoming = within("attempt", net.server.accept())
        .await?
        .ok_or("closed")?;
    net.server.close(5u32.into(), b"over");
    let accepted = incoming.await;
    assert_eq!(accepted.err(), Some(ConnectionError::LocallyClosed));
    assert!(within("handshake", connecting).await?.is_err());
    within("idle", net.server.wait_idle()).await
}

#[tokio::test]
async fn paths_move_to_a_socket_that_replaces_theirs() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    until_active(&a, 2).await?;
    exchange(&a, &b, 1 << 20).await?;
    let old = net.client.local_addrs();

    // One of two, on another address: the other path stays as it is.
    let socket = std::net::UdpSocket::bind(address_like("127.0.0.3")?)?;
    let new = socket.local_addr()?;
    net.client.rebind_local(old[1], socket)?;
    assert_eq!(net.client.local_addrs(), [old[0], new]);
    let is_at = |local: SocketAddr| {
        let stats = a.path_stats();
        stats
            .iter()
            .any(|path| path.state == PathState::Active && path.four_tuple.local == local)
    };
    until(&a, || is_at(old[0]) && is_at(new)).await?;
    exchange(&a, &b, 1 << 20).await?;

    // All of them: both paths move to the same socket.
    let socket = std::net::UdpSocket::bind(address_like("127.0.0.4")?)?;
    let last = socket.local_addr()?;
    net.client.rebind(socket)?;
    assert_eq!(net.client.local_addrs(), [last]);
    exchange(&a, &b, 1 << 20).await?;
    until(&a, || is_at(last)).await?;
    assert!(!is_at(old[0]) && !is_at(new));

    let socket = std::net::UdpSocket::bind(address_like("127.0.0.5")?)?;
    let unknown = net.client.rebind_local(new, socket).err();
    assert_eq!(unknown.ok_or("found")?.kind(), std::io::ErrorKind::NotFound);
    Ok(())
}

/// The clients of a server know no other address.
#[tokio::test]
async fn a_server_goes_on_if_its_new_socket_has_the_old_address() -> TestResult {
    let one = ["127.0.0.1"];
    let net = Net::new(&one, &one, client(default_transport())?)?;
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 1 << 20).await?;
    let address = net.server.local_addr()?;
    assert!(net.server.remove_local(address));
    // The task that reads the old socket has to let go of it.
    let bound = async {
        loop {
            match net.server.add_local(address) {
                Err(_) => tokio::task::yield_now().await,
                Ok(local) => return local,
            }
        }
    };
    assert_eq!(within("binding", bound).await?, address);
    exchange(&a, &b, 1 << 20).await
}

/// What watches the network interfaces ends with its endpoint.
#[cfg(all(feature = "interfaces", target_os = "linux"))]
#[tokio::test]
async fn interfaces_are_watched_as_long_as_there_is_an_endpoint() -> TestResult {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let endpoint = Endpoint::builder().bind_interface("lo").build()?;
    let sockets = endpoint.local_addrs().len();
    assert_eq!(tasks(), before + sockets + 1);
    drop(endpoint);
    eventually("the end of all tasks", || tasks() <= before).await
}

/// Without an address to bind, an endpoint has a socket on a port of the system's choice.
#[tokio::test]
async fn a_client_needs_no_address_of_its_own() -> TestResult {
    let config = client(default_transport())?.automatic_paths(false);
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1"], config.clone())?;
    let net = Net {
        client: Endpoint::builder().client(config).build()?,
        ..net
    };
    let local = net.client.local_addr()?;
    assert!(local.ip().is_unspecified() && local.port() != 0, "{local}");
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 1 << 20).await
}

/// The sockets go with the last handle, connections or not.
#[tokio::test]
async fn the_port_of_an_endpoint_is_free_once_its_handles_are_gone() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let Net { server, client } = net;
    let addresses = [server.local_addr()?, client.local_addr()?];
    drop((server, client));
    exchange(&a, &b, 1 << 20).await?;
    a.close(0u32.into(), b"");
    within("close", b.closed()).await?;
    drop((a, b));
    for address in addresses {
        let is_free = || std::net::UdpSocket::bind(address).is_ok();
        eventually("the end of a socket", is_free).await?;
    }
    Ok(())
}

/// Whoever comes after the end is refused.
#[tokio::test]
async fn a_closed_endpoint_refuses_attempts() -> TestResult {
    let net = Net::two_paths()?;
    let (_a, b) = net.connect().await?;
    net.server.close(5u32.into(), b"over");
    within("close", b.closed()).await?;
    let connecting = net.client.connect(net.server.local_addr()?, "localhost")?;
    let error = within("refusal", connecting).await?.err();
    assert!(
        matches!(error, Some(ConnectionError::ConnectionClosed(_))),
        "{error:?}"
    );
    Ok(())
}
