//! What received data that nobody reads keeps in memory.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use mpquic_tokio::{Connection, Endpoint, ServerConfig, default_transport};

use crate::harness::{ALPN, Error, Net, TestResult, client, pattern, within};

/// How often the peer leaves a byte behind.
const ROUNDS: usize = 1000;
/// Bytes that are read, after each byte that is not.
const FILLER: usize = 60_000;
/// As much as sockets may allocate to receive all of that: they do with 4 to 6 MB. Where nothing
/// that waits is copied, they take 11 to 20.
const ENOUGH: u64 = 8 << 20;

/// Lets `leave` send something that the server does not read, again and again, between bytes that
/// it does read.
async fn bury(
    from: &Connection,
    to: &Connection,
    mut leave: impl AsyncFnMut(&Connection) -> TestResult,
) -> TestResult {
    let mut filler = from.open_uni().await?;
    filler.write_all(&[0]).await?;
    let mut reader = within("filler", to.accept_uni()).await??;
    let send = async {
        let data = pattern(FILLER, 1);
        for _ in 0..ROUNDS {
            leave(from).await?;
            filler.write_all(&data).await?;
        }
        filler.finish()?;
        Ok::<_, Error>(())
    };
    let read = async {
        let mut read = 0;
        while let Some(chunk) = reader.read_chunk(usize::MAX, true).await? {
            read += chunk.bytes.len();
        }
        assert_eq!(read, 1 + ROUNDS * FILLER);
        Ok(())
    };
    within("transfer", async { tokio::try_join!(send, read) }).await??;
    Ok(())
}

#[tokio::test]
async fn unread_bytes_keep_no_more_than_themselves() -> TestResult {
    let mut transport = default_transport();
    transport.max_concurrent_uni_streams = 2 + ROUNDS as u64;
    let one = ["127.0.0.1"];
    let net = Net::with_server(transport, &one, &one, client(default_transport())?)?;
    let (a, b) = net.connect().await?;
    let mut kept = Vec::new();
    let leave = async |from: &Connection| {
        let mut stream = from.open_uni().await?;
        stream.write_all(b"x").await?;
        kept.push(stream);
        Ok(())
    };
    bury(&a, &b, leave).await?;
    let allocated = net.server.driver_stats().receive_memory_allocated;
    assert!(allocated < ENOUGH, "{allocated} bytes");
    // All of them can still be read.
    for mut sent in kept {
        sent.finish()?;
        let mut stream = within("stream", b.accept_uni()).await??;
        let read = within("byte", stream.read_to_end(10)).await??;
        assert_eq!(read, b"x");
    }
    Ok(())
}

#[tokio::test]
async fn unread_datagrams_keep_no_more_than_themselves() -> TestResult {
    let one = ["127.0.0.1"];
    let net = Net::new(&one, &one, client(default_transport())?)?;
    let (a, b) = net.connect().await?;
    // So large that they were never copied for being small.
    let data = pattern(700, 2);
    let leave = async |from: &Connection| {
        from.send_datagram_wait(data.clone()).await?;
        Ok(())
    };
    bury(&a, &b, leave).await?;
    let allocated = net.server.driver_stats().receive_memory_allocated;
    assert!(allocated < ENOUGH, "{allocated} bytes");
    assert_eq!(within("datagram", b.read_datagram()).await??, data);
    Ok(())
}

/// Waits until the figure of an endpoint is what it should be.
async fn until_kept(endpoint: &Endpoint, is_right: impl Fn(u64) -> bool) -> TestResult {
    within("a change of memory", async {
        while !is_right(endpoint.stats().memory) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
}

#[tokio::test]
async fn endpoint_reports_memory() -> TestResult {
    const SIZE: usize = 900_000;
    /// What is kept besides, and what arrived since the account was last reviewed.
    const REST: u64 = 300_000;
    let one = ["127.0.0.1"];
    let net = Net::new(&one, &one, client(default_transport())?)?;
    let (a, b) = net.connect().await?;
    let buffers = || net.server.driver_stats().receive_memory;
    assert!(buffers() > 0);
    let mut sent = a.open_uni().await?;
    sent.write_all(&pattern(SIZE, 3)).await?;
    sent.finish()?;
    let full = SIZE as u64 - REST;
    until_kept(&net.server, |kept| kept >= full + buffers()).await?;
    let mut stream = within("stream", b.accept_uni()).await??;
    assert_eq!(within("all", stream.read_to_end(SIZE)).await??.len(), SIZE);
    until_kept(&net.server, |kept| kept <= REST + buffers()).await?;
    assert!(b.stats().memory.total() < REST);
    a.close(0u32.into(), b"");
    within("the end", b.closed()).await?;
    Ok(())
}

#[tokio::test]
async fn clients_are_refused_when_memory_is_full() -> TestResult {
    const LIMIT: u64 = 1 << 20;
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let server = || Endpoint::builder().bind(local).server(config.clone());
    let refused = server().memory_limit(LIMIT - 1).build().map(drop);
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(ErrorKind::InvalidInput)
    );
    let server = server().memory_limit(LIMIT).build()?;
    let config = client(default_transport())?;
    let client = Endpoint::builder().bind(local).client(config).build()?;
    let net = Net { server, client };
    let (a, _b) = net.connect().await?;
    let mut sent = a.open_uni().await?;
    sent.write_all(&pattern(1_040_000, 4)).await?;
    until_kept(&net.server, |kept| kept > LIMIT).await?;
    let other = net.client.connect(net.server.local_addr()?, "localhost")?;
    assert!(within("refusal", other).await?.is_err());
    assert_eq!(net.server.stats().refused_at_memory_limit, 1);
    Ok(())
}
