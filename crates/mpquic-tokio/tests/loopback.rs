//! Whole connections over real sockets: two loopback addresses are two paths.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio::{
    ClientConfig, Connection, ConnectionError, Endpoint, ExportError, OpenPathError, PathEvent,
    PathId, PathState, ReadError, ReadToEndError, RecvStream, SendDatagramError, SendStream,
    ServerConfig, TransportConfig, WriteError, default_transport,
};
use ring::digest::{Context, SHA256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

type Error = Box<dyn std::error::Error + Send + Sync>;
type TestResult = Result<(), Error>;

const ALPN: &[&[u8]] = &[b"test"];
const LIMIT: Duration = Duration::from_secs(30);

/// A server with listening addresses, a client with local ones, and how to connect them.
struct Net {
    server: Endpoint,
    client: Endpoint,
}

impl Net {
    fn new(server: &[&str], client: &[&str], config: ClientConfig) -> Result<Self, Error> {
        Self::with_server(default_transport(), server, client, config)
    }

    fn with_server(
        transport: TransportConfig,
        server: &[&str],
        client: &[&str],
        config: ClientConfig,
    ) -> Result<Self, Error> {
        let (server_config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let mut builder = Endpoint::builder().server(server_config.transport(transport));
        for ip in server {
            builder = builder.bind(SocketAddr::new(ip.parse()?, 0));
        }
        let server = builder.build()?;
        let addresses = server.local_addrs();
        let mut builder = Endpoint::builder().client(config.server_addresses(addresses));
        for ip in client {
            builder = builder.bind(SocketAddr::new(ip.parse()?, 0));
        }
        let client = builder.build()?;
        Ok(Self { server, client })
    }

    /// One server address, two client addresses, defaults.
    fn two_paths() -> Result<Self, Error> {
        Self::new(
            &["127.0.0.1"],
            &["127.0.0.1", "127.0.0.2"],
            client(default_transport())?,
        )
    }

    async fn connect(&self) -> Result<(Connection, Connection), Error> {
        let connecting = self
            .client
            .connect(self.server.local_addr()?, "localhost")?;
        let accept = async {
            let incoming = self.server.accept().await.ok_or("closed")?;
            Ok::<_, Error>(incoming.await?)
        };
        let connect = async { Ok::<_, Error>(connecting.await?) };
        tokio::try_join!(connect, accept)
    }
}

fn client(transport: TransportConfig) -> Result<ClientConfig, Error> {
    Ok(ClientConfig::dangerous_insecure(ALPN)?.transport(transport))
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Error> {
    let result = tokio::time::timeout(LIMIT, future).await;
    result.map_err(|_| format!("{what} took too long").into())
}

async fn until_active(connection: &Connection, count: usize) -> TestResult {
    let mut events = connection.path_events();
    let reached = async {
        loop {
            let stats = connection.path_stats();
            if stats
                .iter()
                .filter(|path| path.state == PathState::Active)
                .count()
                >= count
            {
                return Ok(());
            }
            events.next().await.ok_or("closed")?;
        }
    };
    within("opening paths", reached).await?
}

/// Bytes that differ at every position, cheap to make.
fn pattern(length: usize, seed: u32) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next)
        .flatten()
        .take(length)
        .collect()
}

fn sha256(data: &[u8]) -> Vec<u8> {
    ring::digest::digest(&SHA256, data).as_ref().to_vec()
}

async fn send_all(mut stream: SendStream, data: Bytes) -> TestResult {
    for start in (0..data.len()).step_by(256 << 10) {
        let end = data.len().min(start + (256 << 10));
        stream.write_chunk(data.slice(start..end)).await?;
    }
    stream.finish()?;
    Ok(())
}

async fn receive_hash(mut stream: RecvStream) -> Result<Vec<u8>, Error> {
    let mut hash = Context::new(&SHA256);
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        hash.update(&chunk.bytes);
    }
    Ok(hash.finish().as_ref().to_vec())
}

/// Sends data both ways at once and checks that it arrives.
async fn exchange(a: &Connection, b: &Connection, length: usize) -> TestResult {
    let (there, back) = (pattern(length, 1), pattern(length, 2));
    let (a_send, a_recv) = a.open_bi().await?;
    let ours = async { tokio::try_join!(send_all(a_send, there.clone()), receive_hash(a_recv)) };
    let theirs = async {
        let (send, recv) = b.accept_bi().await?;
        tokio::try_join!(send_all(send, back.clone()), receive_hash(recv))
    };
    let ((_, at_a), (_, at_b)) =
        within("exchange", async { tokio::try_join!(ours, theirs) }).await??;
    assert!(at_a == sha256(&back) && at_b == sha256(&there));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_paths_carry_data_in_both_directions() -> TestResult {
    // Equal turns: the default would be right to prefer the faster one, if only by microseconds.
    let transport = TransportConfig {
        scheduler: mpquic_sched::by_name("round-robin")?,
        ..default_transport()
    };
    let config = client(transport.clone())?;
    let locals = ["127.0.0.1", "127.0.0.2"];
    let net = Net::with_server(transport, &["127.0.0.1"], &locals, config)?;
    let (a, b) = net.connect().await?;
    assert!(a.is_multipath() && b.is_multipath());
    until_active(&a, 2).await?;
    until_active(&b, 2).await?;
    exchange(&a, &b, 32 << 20).await?;
    for connection in [&a, &b] {
        let stats = connection.path_stats();
        assert_eq!(stats.len(), 2, "{stats:?}");
        for path in stats {
            assert!(path.bytes_sent > 1 << 20, "{path:?}");
            assert!(path.bytes_received > 1 << 20, "{path:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn one_thread_is_enough() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 8 << 20).await
}

/// Takes an address away in the middle of a transfer.
async fn lose(net: &Net, remove: impl Fn(&Net)) -> TestResult {
    let (a, b) = net.connect().await?;
    until_active(&a, 2).await?;
    let lose = async {
        while a.stats().bytes_sent + b.stats().bytes_sent < 8 << 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        remove(net);
        Ok(())
    };
    tokio::try_join!(exchange(&a, &b, 48 << 20), lose)?;
    exchange(&a, &b, 1 << 20).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_a_local_address_does_not_disturb() -> TestResult {
    for index in 0..2 {
        let net = Net::two_paths()?;
        let gone = net.client.local_addrs()[index];
        lose(&net, |net| assert!(net.client.remove_local(gone))).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_falls_silent_does_not_disturb() -> TestResult {
    for index in 0..2 {
        let config = client(default_transport())?;
        let net = Net::new(
            &["127.0.0.1", "127.0.0.3"],
            &["127.0.0.1", "127.0.0.2"],
            config,
        )?;
        // The server tells nobody: its paths over this address just stop.
        let gone = net.server.local_addrs()[index];
        lose(&net, |net| assert!(net.server.remove_local(gone))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_last_path_moves_to_a_new_address() -> TestResult {
    let config = client(default_transport())?;
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1"], config)?;
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 1 << 20).await?;
    assert!(net.client.remove_local(net.client.local_addr()?));
    let new = net.client.add_local("127.0.0.2:0".parse()?)?;
    exchange(&a, &b, 1 << 20).await?;
    let stats = a.path_stats();
    assert!(
        stats.iter().any(|path| path.four_tuple.local == new),
        "{stats:?}"
    );
    Ok(())
}

#[tokio::test]
async fn paths_open_and_close_by_hand() -> TestResult {
    let config = client(default_transport())?.automatic_paths(false);
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1"], config)?;
    let (a, b) = net.connect().await?;
    let (mut at_a, mut at_b) = (a.path_events(), b.path_events());
    let local = "127.0.0.2:0".parse()?;
    let path = within("open", a.open_path(local, net.server.local_addr()?)).await??;
    assert_eq!(
        path.local_address().map(|a| a.ip().to_string()).as_deref(),
        Some("127.0.0.2")
    );
    assert_eq!(a.paths().len(), 2);
    let wait_for = async |events: &mut mpquic_tokio::PathEvents, wanted: fn(&PathEvent) -> bool| {
        while let Some(event) = events.next().await {
            if wanted(&event) {
                return Ok(event);
            }
        }
        Err::<_, Error>("closed".into())
    };
    let established = |event: &PathEvent| matches!(event, PathEvent::Established(_));
    within("event", wait_for(&mut at_b, established)).await??;
    path.close()?;
    assert!(path.close().is_err());
    let abandoned = |event: &PathEvent| matches!(event, PathEvent::Abandoned { .. });
    let ours = within("event", wait_for(&mut at_a, abandoned)).await??;
    let theirs = within("event", wait_for(&mut at_b, abandoned)).await??;
    for (event, expected) in [(ours, false), (theirs, true)] {
        let PathEvent::Abandoned {
            path: id, by_peer, ..
        } = event
        else {
            return Err("another event".into());
        };
        assert_eq!((id, by_peer), (path.id(), expected));
    }
    exchange(&a, &b, 1 << 20).await
}

#[tokio::test]
async fn a_client_without_multipath_is_served() -> TestResult {
    let transport = TransportConfig {
        max_concurrent_paths: 0,
        ..default_transport()
    };
    let net = Net::new(
        &["127.0.0.1"],
        &["127.0.0.1", "127.0.0.2"],
        client(transport)?,
    )?;
    let (a, b) = net.connect().await?;
    assert!(!a.is_multipath() && !b.is_multipath());
    exchange(&a, &b, 4 << 20).await?;
    assert_eq!(
        a.paths().iter().map(|path| path.id()).collect::<Vec<_>>(),
        [PathId::ZERO]
    );
    let local = net.client.local_addrs()[1];
    let refused = within("open", a.open_path(local, net.server.local_addr()?)).await?;
    let expected = mpquic_tokio::core::OpenPathError::NotNegotiated;
    assert!(matches!(refused, Err(OpenPathError::Refused(error)) if error == expected));
    Ok(())
}

#[tokio::test]
async fn a_dead_port_times_out() -> TestResult {
    let transport = TransportConfig {
        max_idle_timeout: Some(Duration::from_millis(500)),
        ..default_transport()
    };
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
async fn both_sides_export_the_same_keying_material() -> TestResult {
    fn export(connection: &Connection, label: &[u8]) -> Result<[u8; 32], ExportError> {
        let mut output = [0; 32];
        connection
            .export_keying_material(&mut output, label, b"context")
            .map(|()| output)
    }
    let net = Net::two_paths()?;
    let (client, server) = net.connect().await?;
    let first = export(&client, b"EXPERIMENTAL a")?;
    assert_eq!(export(&server, b"EXPERIMENTAL a")?, first);
    assert_ne!(export(&server, b"EXPERIMENTAL b")?, first);
    assert_eq!(export(&server, b""), Err(ExportError::LabelLength));
    within("the exchange", exchange(&client, &server, 100_000)).await??;
    for connection in [&client, &server] {
        assert_eq!(export(connection, b"EXPERIMENTAL a")?, first);
    }

    let connecting = net.client.connect(net.server.local_addr()?, "localhost")?;
    let Ok((early, accepted)) = connecting.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let incomplete = Err(ExportError::HandshakeIncomplete);
    assert_eq!(export(&early, b"EXPERIMENTAL a"), incomplete);
    let server = within("accepting", net.server.accept()).await?;
    let server = server.ok_or("closed")?.await?;
    assert!(within("handshake", accepted).await?);
    let second = export(&early, b"EXPERIMENTAL a")?;
    assert_eq!(export(&server, b"EXPERIMENTAL a")?, second);
    assert_ne!(second, first);
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

#[tokio::test]
async fn datagrams_go_both_ways() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    for round in 0..100u32 {
        a.send_datagram_wait(Bytes::copy_from_slice(&round.to_be_bytes()))
            .await?;
        let received = within("datagram", b.read_datagram()).await??;
        b.send_datagram(received)?;
        let echoed = within("datagram", a.read_datagram()).await??;
        assert_eq!(&echoed[..], round.to_be_bytes());
    }
    let largest = a.max_datagram_size().ok_or("no datagrams")?;
    a.send_datagram(pattern(largest, 3))?;
    assert_eq!(
        within("datagram", b.read_datagram()).await??,
        pattern(largest, 3)
    );
    let too_large = a.send_datagram(pattern(1 << 16, 3));
    assert_eq!(too_large, Err(SendDatagramError::TooLarge));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_share_a_connection() -> TestResult {
    const STREAMS: u32 = 1000;
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let open = async {
        for number in 0..STREAMS {
            let mut stream = a.open_uni().await?;
            stream.write_all(&pattern(5000, number)).await?;
            stream.write_all(&number.to_be_bytes()).await?;
            stream.finish()?;
        }
        Ok(())
    };
    let accept = async {
        let mut seen = vec![false; STREAMS as usize];
        for _ in 0..STREAMS {
            let data = b.accept_uni().await?.read_to_end(1 << 16).await?;
            let (body, number) = data.split_last_chunk::<4>().ok_or("short")?;
            let number = u32::from_be_bytes(*number);
            assert_eq!(body, pattern(5000, number));
            assert!(!std::mem::replace(&mut seen[number as usize], true));
        }
        Ok::<_, Error>(())
    };
    within("streams", async { tokio::try_join!(open, accept) }).await??;
    Ok(())
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
async fn streams_end_as_the_application_says() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let (mut send, mut recv) = a.open_bi().await?;
    send.write_all(b"hello").await?;
    let (mut other_send, mut other_recv) = within("accept", b.accept_bi()).await??;
    let mut hello = [0; 5];
    other_recv.read_exact(&mut hello).await?;
    other_recv.stop(7u32.into())?;
    assert_eq!(
        within("stopped", send.stopped())
            .await??
            .map(|c| c.into_inner()),
        Some(7)
    );
    let blocked = within("write", send.write_all(&[0; 100])).await?;
    assert_eq!(blocked, Err(WriteError::Stopped(7u32.into())));
    other_send.reset(9u32.into())?;
    let reset = within("read", recv.read(&mut hello)).await?;
    assert_eq!(reset, Err(ReadError::Reset(9u32.into())));
    let mut stream = b.open_uni().await?;
    AsyncWriteExt::write_all(&mut stream, &pattern(100_000, 4)).await?;
    AsyncWriteExt::shutdown(&mut stream).await?;
    let mut accepted = within("accept", a.accept_uni()).await??;
    let mut data = Vec::new();
    within("read", AsyncReadExt::read_to_end(&mut accepted, &mut data)).await??;
    assert_eq!(data, pattern(100_000, 4));
    assert_eq!(within("acknowledged", stream.stopped()).await??, None);
    let mut stream = b.open_uni().await?;
    stream.write_all(&pattern(5000, 5)).await?;
    let long = within("read", a.accept_uni())
        .await??
        .read_to_end(1000)
        .await;
    assert_eq!(long, Err(ReadToEndError::TooLong));
    Ok(())
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() -> TestResult {
    let transport = TransportConfig {
        send_window: 1 << 20,
        ..default_transport()
    };
    let net = Net::new(
        &["127.0.0.1"],
        &["127.0.0.1", "127.0.0.2"],
        client(transport)?,
    )?;
    let (a, b) = net.connect().await?;
    let mut stream = a.open_uni().await?;
    let chunk = pattern(64 << 10, 6);
    let mut written = 0;
    let pause = Duration::from_millis(300);
    while let Ok(result) = tokio::time::timeout(pause, stream.write(&chunk)).await {
        written += result?;
        assert!(written < 256 << 20, "nothing holds the writer back");
    }
    let reader = async {
        let mut stream = b.accept_uni().await?;
        let mut read = 0;
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            read += chunk.bytes.len();
        }
        Ok::<_, Error>(read)
    };
    let writer = async {
        stream.write_all(&chunk).await?;
        stream.finish()?;
        Ok(())
    };
    let (read, ()) = within("rest", async { tokio::try_join!(reader, writer) }).await??;
    assert_eq!(read, written + chunk.len());
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
            received.push(connection.accept_uni().await?.read_to_end(100).await?);
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
    net.server.set_server_config(Some(config));
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

/// Whoever writes as soon as it is connected needs no more datagrams than the handshake itself.
#[tokio::test]
async fn a_short_exchange_takes_two_datagrams_each_way() -> TestResult {
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
    assert_eq!(connection.stats().datagrams_sent, 2);
    connection.close(0u32.into(), b"");
    assert_eq!(within("end", served).await???.datagrams_sent, 2);
    Ok(())
}

/// RFC 9000 section 9.6, MP-019: the server binds the address it prefers; the first path moves
/// there, and so do others that have to open anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_moves_to_the_servers_preferred_address() -> TestResult {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let config = config.preferred_address_v4(Some("127.0.0.9:0".parse()?));
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let addresses = server.local_addrs();
    let [first, preferred] = addresses[..] else {
        return Err(format!("{addresses:?}").into());
    };
    let client = Endpoint::builder()
        .client(client(default_transport())?)
        .bind("127.0.0.1:0".parse()?)
        .build()?;
    let net = Net { server, client };
    let (a, b) = net.connect().await?;
    let mut events = a.path_events();
    let is_there = || {
        a.path_stats()
            .iter()
            .any(|path| path.four_tuple.remote == preferred)
    };
    let moved = async {
        while !is_there() {
            events.next().await.ok_or("closed")?;
        }
        Ok::<_, Error>(())
    };
    within("moving", moved).await??;
    assert_eq!(preferred.ip(), "127.0.0.9".parse::<std::net::IpAddr>()?);
    assert_ne!(first, preferred);

    let data = pattern(1 << 20, 3);
    let mut send = a.open_uni().await?;
    let sent = async {
        send.write_all(&data).await?;
        send.finish()?;
        Ok::<_, Error>(())
    };
    let received = async {
        let mut recv = b.accept_uni().await?;
        Ok::<_, Error>(recv.read_to_end(2 << 20).await?)
    };
    let (_, received) = within("a transfer", async { tokio::try_join!(sent, received) }).await??;
    assert_eq!(sha256(&received), sha256(&data));
    let there = b.path_stats();
    assert!(
        there.iter().all(|path| path.four_tuple.local == preferred),
        "{there:?}"
    );
    Ok(())
}
